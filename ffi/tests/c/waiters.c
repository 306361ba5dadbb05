/* Waiting without a blocked thread: a place in line, single attempts, and a callback that only notes. */
#include "check.h"

#include <pthread.h>

struct note {
  pthread_mutex_t mutex;
  int calls, finalized;
};

#define NOTE {PTHREAD_MUTEX_INITIALIZER, 0, 0}

static void on_call(void *data) {
  struct note *note = data;
  pthread_mutex_lock(&note->mutex);
  note->calls++;
  pthread_mutex_unlock(&note->mutex);
}

static void finalize(void *data) {
  struct note *note = data;
  pthread_mutex_lock(&note->mutex);
  note->finalized++;
  pthread_mutex_unlock(&note->mutex);
}

static int calls(struct note *note) {
  pthread_mutex_lock(&note->mutex);
  int n = note->calls;
  pthread_mutex_unlock(&note->mutex);
  return n;
}

static int finalized(struct note *note) {
  pthread_mutex_lock(&note->mutex);
  int n = note->finalized;
  pthread_mutex_unlock(&note->mutex);
  return n;
}

static bool waited_for(syncguard_client *client, const char *key) {
  bool answer = false;
  EXPECT(OK, syncguard_is_waited_for(client, key, NUL, &answer, &err));
  return answer;
}

static syncguard_waiter *join_line(syncguard_client *client, const char *key, struct note *note) {
  syncguard_waiter *waiter = NULL;
  EXPECT(OK, syncguard_waiter_new(client, key, NUL, on_call, note, finalize, &waiter, &err));
  CHECK(waiter != NULL);
  return waiter;
}

/* What a binding does: attempt, join, wait to be called, attempt. */
static void a_release_calls_the_waiter(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "waited for"), *guard = NULL;
  CHECK(!waited_for(client, "waited for"));
  EXPECT(LOCKED, syncguard_try_lock(client, "waited for", NUL, NULL, &guard, &err));
  struct note note = NOTE;
  syncguard_waiter *waiter = join_line(client, "waited for", &note);
  CHECK(waited_for(client, "waited for"));
  CHECK(!waited_for(client, "another"));
  CHECK(syncguard_waiter_is_first(waiter));
  /* Called once when the store begins to tell; then no more while the lock is held. */
  EVENTUALLY(syncguard_waiter_is_called(waiter));
  syncguard_waiter_begin_attempt(waiter);
  EXPECT(LOCKED, syncguard_try_lock(client, "waited for", NUL, NULL, &guard, &err));
  int before = calls(&note);
  EXPECT(OK, syncguard_guard_release(held, NULL, &err));
  EVENTUALLY(calls(&note) > before);
  CHECK(syncguard_waiter_is_called(waiter));
  syncguard_waiter_begin_attempt(waiter);
  EXPECT(OK, syncguard_try_lock(client, "waited for", NUL, NULL, &guard, &err));
  CHECK(finalized(&note) == 0);
  syncguard_waiter_free(waiter);
  EVENTUALLY(finalized(&note) == 1);
  CHECK(!waited_for(client, "waited for"));
  syncguard_guard_free(held);
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

static void who_leaves_passes_the_turn_on(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "line");
  struct note notes[2] = {NOTE, NOTE};
  syncguard_waiter *first = join_line(client, "line", &notes[0]);
  syncguard_waiter *second = join_line(client, "line", &notes[1]);
  CHECK(syncguard_waiter_is_first(first) && !syncguard_waiter_is_first(second) && !syncguard_waiter_is_called(second));
  syncguard_waiter_free(first);
  EVENTUALLY(calls(&notes[1]) > 0);
  CHECK(syncguard_waiter_is_first(second));
  /* The client may go first. */
  syncguard_client_free(client);
  syncguard_waiter_free(second);
  syncguard_guard_free(held);
  EVENTUALLY(finalized(&notes[0]) == 1 && finalized(&notes[1]) == 1);
}

/* The data is the library's on every path. */
static void bad_arguments(void) {
  syncguard_client *client = open_client();
  syncguard_waiter *waiter = (syncguard_waiter *)&client;
  struct note note = NOTE;
  int n = 0;
  EXPECT(IA, syncguard_waiter_new(NULL, "k", NUL, on_call, &note, finalize, &waiter, &err));
  CHECK(waiter == NULL && finalized(&note) == ++n);
  EXPECT(IA, syncguard_waiter_new(client, NULL, NUL, on_call, &note, finalize, &waiter, &err));
  CHECK(finalized(&note) == ++n);
  EXPECT(IA, syncguard_waiter_new(client, "", 0, on_call, &note, finalize, &waiter, &err));
  CHECK(finalized(&note) == ++n);
  EXPECT(IA, syncguard_waiter_new(client, "k", (size_t)-2, on_call, &note, finalize, &waiter, &err));
  CHECK(finalized(&note) == ++n);
  EXPECT(IA, syncguard_waiter_new(client, "\xed\xa0\x80", NUL, on_call, &note, finalize, &waiter, &err));
  CHECK(finalized(&note) == ++n);
  EXPECT(IA, syncguard_waiter_new(client, "k", NUL, NULL, &note, finalize, &waiter, &err));
  CHECK(finalized(&note) == ++n);
  EXPECT(IA, syncguard_waiter_new(client, "k", NUL, on_call, &note, finalize, NULL, &err));
  CHECK(finalized(&note) == ++n);
  CHECK(calls(&note) == 0);
  bool answer = true;
  EXPECT(IA, syncguard_is_waited_for(NULL, "k", NUL, &answer, &err));
  EXPECT(IA, syncguard_is_waited_for(client, NULL, 0, &answer, &err));
  EXPECT(IA, syncguard_is_waited_for(client, "", 0, &answer, &err));
  EXPECT(IA, syncguard_is_waited_for(client, "k", NUL, NULL, &err));
  CHECK(answer && !waited_for(client, "k"));
  CHECK(!syncguard_waiter_is_called(NULL) && !syncguard_waiter_is_first(NULL));
  syncguard_waiter_begin_attempt(NULL);
  syncguard_waiter_free(NULL);
  syncguard_client_free(client);
}

/* A blocking wait and a waiter stand in the same line. */
static void *waits(void *data) {
  syncguard_guard *guard = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.acquire_timeout_ms = SYNCGUARD_FOREVER;
  EXPECT(OK, syncguard_lock(data, "shared", NUL, &options, &guard, &err));
  syncguard_guard_free(guard);
  return NULL;
}

static void one_line_for_all(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "shared");
  struct note note = NOTE;
  syncguard_waiter *waiter = join_line(client, "shared", &note);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, waits, client) == 0);
  syncguard_guard_free(held);
  CHECK(syncguard_waiter_is_first(waiter));
  syncguard_waiter_free(waiter);
  CHECK(pthread_join(thread, NULL) == 0);
  EVENTUALLY(finalized(&note) == 1);
  syncguard_client_free(client);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(a_release_calls_the_waiter);
  RUN(who_leaves_passes_the_turn_on);
  RUN(bad_arguments);
  RUN(one_line_for_all);
  return 0;
}
