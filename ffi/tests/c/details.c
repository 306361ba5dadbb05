/* What a program learns beyond a status: the holder, the time waited, whether a failed call may have been applied, and what the
 * store is. With SERVER_PID in the environment, the process of a Redis server that may be stopped. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

static void is_held_by(const syncguard_holder *seen, syncguard_client *client, const char *key, const char *fence) {
  syncguard_lock_info info;
  uint64_t number = 0;
  EXPECT(OK, syncguard_lookup_by_key(client, key, NUL, NULL, &info, &err));
  EXPECT(OK, syncguard_parse_fence(fence, NUL, &number, &err));
  CHECK(strcmp(seen->fence, fence) == 0 && seen->fence_number == number && number > 0);
  CHECK(strcmp(seen->lock_id_hash, info.lock_id_hash) == 0);
  CHECK(seen->remaining_ms > 0 && seen->remaining_ms <= 30000);
}

static void is_unknown(const syncguard_holder *seen) {
  CHECK(seen->lock_id_hash[0] == 0 && seen->fence[0] == 0 && seen->fence_number == 0 && seen->remaining_ms == -1);
}

static void the_end_of_a_wait(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "wait"), *guard = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.acquire_timeout_ms = 60;
  syncguard_error *err = NULL;
  int64_t begun = now_ms();
  CHECK(syncguard_lock(client, "wait", NUL, &options, &guard, &err) == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT);
  int64_t waited = syncguard_error_waited_ms(err);
  CHECK(waited >= 60 && waited <= now_ms() - begun + 1);
  CHECK(!syncguard_error_may_have_applied(err));
  syncguard_holder seen;
  memset(&seen, 0x5a, sizeof seen);
  CHECK(syncguard_error_holder(err, &seen) && syncguard_error_holder(err, NULL));
  is_held_by(&seen, client, "wait", syncguard_guard_fence(held));
  syncguard_error_free(err);
  syncguard_guard_free(held);
  syncguard_client_free(client);
}

static void one_attempt(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held = NULL, *guard = (syncguard_guard *)&guard;
  EXPECT(OK, syncguard_lock_once(client, "once", NUL, NULL, &held, &err));
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.acquire_timeout_ms = SYNCGUARD_FOREVER;
  syncguard_error *err = NULL;
  CHECK(syncguard_lock_once(client, "once", NUL, &options, &guard, &err) == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT);
  CHECK(guard == NULL && syncguard_error_attempts(err) == 1 && syncguard_error_waited_ms(err) >= 0);
  syncguard_holder seen;
  CHECK(syncguard_error_holder(err, &seen));
  is_held_by(&seen, client, "once", syncguard_guard_fence(held));
  syncguard_error_free(err);
  EXPECT(IA, syncguard_lock_once(client, "once", NUL, NULL, NULL, &err));
  EXPECT(IA, syncguard_lock_once(NULL, "once", NUL, NULL, &guard, &err));
  EXPECT(IA, syncguard_lock_once(client, NULL, 1, NULL, &guard, &err));
  syncguard_guard_free(held);
  syncguard_client_free(client);
}

static void the_holder_of_a_verb(void) {
  syncguard_client *client = open_client();
  syncguard_acquired a, b;
  syncguard_holder seen;
  memset(&seen, 0x5a, sizeof seen);
  syncguard_holder before = seen;
  EXPECT(OK, syncguard_acquire_or_holder(client, "verb", NUL, 30000, NULL, &a, &seen, &err));
  CHECK(memcmp(&before, &seen, sizeof seen) == 0 && strlen(a.fence) == 15);
  EXPECT(LOCKED, syncguard_acquire_or_holder(client, "verb", NUL, 30000, NULL, &b, &seen, &err));
  CHECK(strlen(b.lock_id) == 22 && b.fence[0] == 0);
  is_held_by(&seen, client, "verb", a.fence);
  EXPECT(IA, syncguard_acquire_or_holder(client, "verb", NUL, 30000, NULL, &b, NULL, &err));
  EXPECT(IA, syncguard_acquire_or_holder(client, "verb", NUL, 30000, NULL, NULL, &seen, &err));
  EXPECT(IA, syncguard_acquire_or_holder(NULL, "verb", NUL, 30000, NULL, &b, &seen, &err));
  EXPECT(IA, syncguard_acquire_or_holder(client, "", 0, 30000, NULL, &b, &seen, &err));
  EXPECT(OK, syncguard_release(client, a.lock_id, NUL, NULL, &err));
  syncguard_client_free(client);
}

static void what_a_holder_says(void) {
  syncguard_client *client = open_client();
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  syncguard_guard *guard = NULL, *none = NULL;
  char text[201];
  options.holder = "build-7/nightly";
  EXPECT(OK, syncguard_lock(client, "says", NUL, &options, &guard, &err));
  EXPECT(OK, syncguard_holder_text_by_key(client, "says", NUL, NULL, &text, &err));
  CHECK(strcmp(text, "build-7/nightly") == 0);
  text[0] = 0;
  EXPECT(OK, syncguard_holder_text_by_id(client, syncguard_guard_lock_id(guard), NUL, NULL, &text, &err));
  CHECK(strcmp(text, "build-7/nightly") == 0);
  syncguard_error *refused = NULL;
  CHECK(syncguard_lock_once(client, "says", NUL, NULL, &none, &refused) == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT);
  CHECK(strcmp(syncguard_error_holder_text(refused), "build-7/nightly") == 0);
  CHECK(strstr(syncguard_error_message(refused), "build-7") == NULL);
  syncguard_error_free(refused);
  EXPECT(ABSENT, syncguard_holder_text_by_key(client, "free", NUL, NULL, &text, &err));
  EXPECT(IA, syncguard_holder_text_by_key(client, "", 0, NULL, &text, &err));
  EXPECT(IA, syncguard_holder_text_by_key(client, "says", NUL, NULL, NULL, &err));
  EXPECT(IA, syncguard_holder_text_by_key(NULL, "says", NUL, NULL, &text, &err));
  EXPECT(IA, syncguard_holder_text_by_id(client, "short", NUL, NULL, &text, &err));
  CHECK(syncguard_error_holder_text(NULL) == NULL);
  syncguard_lock_info_raw raw;
  text[0] = 0;
  EXPECT(OK, syncguard_lookup_by_key_held(client, "says", NUL, NULL, &raw, &text, &err));
  CHECK(strcmp(text, "build-7/nightly") == 0 && strcmp(raw.key, "says") == 0);
  memset(&raw, 0, sizeof raw);
  text[0] = 0;
  EXPECT(OK, syncguard_lookup_by_id_held(client, syncguard_guard_lock_id(guard), NUL, NULL, &raw, &text, &err));
  CHECK(strcmp(text, "build-7/nightly") == 0 && strcmp(raw.lock_id, syncguard_guard_lock_id(guard)) == 0);
  EXPECT(ABSENT, syncguard_lookup_by_key_held(client, "free", NUL, NULL, &raw, &text, &err));
  EXPECT(ABSENT, syncguard_lookup_by_id_held(client, "AAAAAAAAAAAAAAAAAAAAAA", NUL, NULL, &raw, &text, &err));
  EXPECT(IA, syncguard_lookup_by_key_held(client, "says", NUL, NULL, &raw, NULL, &err));
  EXPECT(IA, syncguard_lookup_by_key_held(client, "says", NUL, NULL, NULL, &text, &err));
  EXPECT(IA, syncguard_lookup_by_key_held(NULL, "says", NUL, NULL, &raw, &text, &err));
  EXPECT(IA, syncguard_lookup_by_id_held(client, "short", NUL, NULL, &raw, &text, &err));
  EXPECT(IA, syncguard_lookup_by_id_held(client, syncguard_guard_lock_id(guard), NUL, NULL, &raw, NULL, &err));
  syncguard_guard_free(guard);
  options.holder = "two\nlines";
  EXPECT(IA, syncguard_lock(client, "says", NUL, &options, &none, &err));
  options.holder = "";
  EXPECT(OK, syncguard_lock(client, "says", NUL, &options, &guard, &err));
  EXPECT(OK, syncguard_holder_text_by_key(client, "says", NUL, NULL, &text, &err));
  CHECK(text[0] == 0);
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

static void looks_end_with_their_token(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "looks");
  const char *id = syncguard_guard_lock_id(guard);
  syncguard_cancel *cancel = syncguard_cancel_new();
  syncguard_lock_info info;
  syncguard_lock_info_raw raw;
  bool yes = false;
  EXPECT(OK, syncguard_owns_with(client, id, NUL, cancel, &yes, &err));
  CHECK(yes);
  EXPECT(OK, syncguard_owns_with(client, "AAAAAAAAAAAAAAAAAAAAAA", NUL, NULL, &yes, &err));
  CHECK(!yes);
  EXPECT(IA, syncguard_owns_with(client, id, 3, cancel, &yes, &err));
  EXPECT(IA, syncguard_owns_with(NULL, id, NUL, cancel, &yes, &err));
  EXPECT(IA, syncguard_owns_with(client, id, NUL, cancel, NULL, &err));
  syncguard_cancel_trigger(cancel);
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_owns_with(client, id, NUL, cancel, &yes, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_lookup_by_key(client, "looks", NUL, cancel, &info, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_lookup_by_id(client, id, NUL, cancel, &info, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_lookup_by_key_raw(client, "looks", NUL, cancel, &raw, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_lookup_by_id_raw(client, id, NUL, cancel, &raw, &err));
  /* What is ended before anything is sent has no effect. */
  syncguard_error *err = NULL;
  syncguard_acquired a;
  CHECK(syncguard_acquire(client, "other", NUL, 1000, cancel, &a, &err) == SYNCGUARD_STATUS_ABORTED);
  CHECK(!syncguard_error_may_have_applied(err) && syncguard_error_waited_ms(err) == -1);
  syncguard_error_free(err);
  syncguard_cancel_free(cancel);
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

#define HELD_MS 50

static void *free_later(void *guard) {
  pause_ms(HELD_MS);
  syncguard_guard_free(guard);
  return NULL;
}

static void the_time_until_a_grant(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "later"), *guard = NULL;
  int64_t begun = now_ms();
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.acquire_timeout_ms = SYNCGUARD_FOREVER;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, free_later, held) == 0);
  /* Asked for before the other thread frees it, or after, on a busy machine: then it was not waited for as long. */
  int64_t asked = now_ms();
  EXPECT(OK, syncguard_lock(client, "later", NUL, &options, &guard, &err));
  int64_t waited = syncguard_guard_waited_ms(guard);
  CHECK(waited >= HELD_MS - (asked - begun) - 2 && waited <= now_ms() - asked + 1);
  CHECK(pthread_join(thread, NULL) == 0);
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  CHECK(syncguard_guard_waited_ms(guard) == waited);
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

static void what_the_store_is(void) {
  syncguard_client *client = open_client();
  CHECK(syncguard_client_supports_fencing(client));
  CHECK(syncguard_client_time_authority(client) == SYNCGUARD_TIME_SERVER);
  CHECK(syncguard_client_fence_source(client) == SYNCGUARD_FENCES_COUNTER);
  CHECK(syncguard_client_fence_source(NULL) == SYNCGUARD_FENCES_DEFAULT);
  syncguard_client_options by_clock = patient();
  syncguard_client *other = NULL;
  by_clock.fences = SYNCGUARD_FENCES_CLOCK;
  EXPECT(OK, syncguard_client_open(URL, NUL, &by_clock, &other, &err));
  CHECK(syncguard_client_fence_source(other) == SYNCGUARD_FENCES_CLOCK);
  syncguard_client_free(other);
  CHECK(SYNCGUARD_TIME_UNKNOWN == 0 && SYNCGUARD_TIME_SERVER == 1 && SYNCGUARD_TIME_CLIENT == 2);
  syncguard_client_free(client);
}

static void no_error_and_no_handle(void) {
  syncguard_holder seen;
  memset(&seen, 0x5a, sizeof seen);
  CHECK(!syncguard_error_holder(NULL, &seen) && !syncguard_error_holder(NULL, NULL));
  is_unknown(&seen);
  CHECK(!syncguard_error_may_have_applied(NULL) && syncguard_error_waited_ms(NULL) == -1);
  CHECK(syncguard_guard_waited_ms(NULL) == 0);
  CHECK(!syncguard_client_supports_fencing(NULL));
  CHECK(syncguard_client_time_authority(NULL) == SYNCGUARD_TIME_UNKNOWN);
  syncguard_client *client = open_client();
  syncguard_guard *guard = NULL;
  syncguard_error *err = NULL;
  CHECK(syncguard_lock(client, "", 0, NULL, &guard, &err) == IA);
  memset(&seen, 0x5a, sizeof seen);
  CHECK(!syncguard_error_holder(err, &seen) && !syncguard_error_may_have_applied(err));
  is_unknown(&seen);
  CHECK(syncguard_error_waited_ms(err) == -1);
  syncguard_error_free(err);
  syncguard_client_free(client);
}

/* A request that was sent to a server that does not answer may have been applied; one that was never sent was not. */
static void applied_perhaps(void) {
  const char *pid = getenv("SERVER_PID");
  if (pid == NULL) {
    return;
  }
  syncguard_client_options options = patient();
  options.operation_timeout_ms = 500;
  syncguard_client *client = NULL;
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  syncguard_acquired a;
  /* Makes the connection. On a busy machine this may take longer than the limit. */
  int64_t end = now_ms() + 60000;
  while (syncguard_acquire(client, "first", NUL, 60000, NULL, &a, NULL) < 0) {
    CHECK(now_ms() < end);
  }
  CHECK(kill((pid_t)atol(pid), SIGSTOP) == 0);
  syncguard_error *err = NULL;
  syncguard_status got = syncguard_acquire(client, "second", NUL, 60000, NULL, &a, &err);
  bool sent = syncguard_error_may_have_applied(err);
  syncguard_error_free(err);
  err = NULL;
  /* The connection is not used again, and a new one is not answered. */
  syncguard_acquired b;
  syncguard_status again = syncguard_acquire(client, "third", NUL, 60000, NULL, &b, &err);
  bool sent_again = syncguard_error_may_have_applied(err);
  syncguard_error_free(err);
  CHECK(kill((pid_t)atol(pid), SIGCONT) == 0);
  CHECK(got == SYNCGUARD_STATUS_NETWORK_TIMEOUT && sent);
  CHECK(again == SYNCGUARD_STATUS_NETWORK_TIMEOUT && !sent_again);
  /* The id is known, so that it can be released. */
  syncguard_client_free(client);
  client = open_client();
  CHECK(syncguard_release(client, a.lock_id, NUL, NULL, NULL) >= 0);
  syncguard_client_free(client);
}

/* A token with a time limit bounds every call that it is given to. */
static void a_token_with_a_limit(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "limit"), *g = NULL;
  bool locked = false;
  int64_t over[] = {0, -1, INT64_MIN};
  for (size_t i = 0; i < sizeof over / sizeof over[0]; i++) {
    syncguard_cancel *none_left = syncguard_cancel_new_timeout(over[i]);
    EXPECT(SYNCGUARD_STATUS_NETWORK_TIMEOUT, syncguard_is_locked(client, "limit", NUL, none_left, &locked, &err));
    CHECK(!locked);
    syncguard_cancel_free(none_left);
  }
  /* A wait for ever ends with it. */
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  syncguard_cancel *soon = syncguard_cancel_new_timeout(200);
  options.acquire_timeout_ms = SYNCGUARD_FOREVER;
  options.cancel = soon;
  int64_t begun = now_ms();
  syncguard_status ended = syncguard_lock(client, "limit", NUL, &options, &g, NULL);
  CHECK(ended == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT || ended == SYNCGUARD_STATUS_NETWORK_TIMEOUT);
  CHECK(g == NULL && now_ms() - begun >= 200);
  syncguard_cancel_free(soon);
  /* A limit that the clock cannot show is none; such a token is triggered like any other. */
  syncguard_cancel *far = syncguard_cancel_new_timeout(INT64_MAX);
  EXPECT(OK, syncguard_is_locked(client, "limit", NUL, far, &locked, &err));
  CHECK(locked);
  syncguard_cancel_trigger(far);
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_is_locked(client, "limit", NUL, far, &locked, &err));
  syncguard_cancel_free(far);
  syncguard_guard_free(held);
  syncguard_client_free(client);
}

/* The guards of a client that stops renewing are lost when their lease is over, and their locks are not deleted before. */
static void a_client_that_stops_renewing(void) {
  syncguard_client *client = open_client();
  syncguard_guard *g = NULL;
  bool there = false;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.ttl_ms = 3000;
  EXPECT(OK, syncguard_lock(client, "stops", NUL, &options, &g, &err));
  syncguard_client_stop_renewing(NULL);
  syncguard_client_stop_renewing(client);
  EXPECT(OK, syncguard_owns(client, syncguard_guard_lock_id(g), NUL, &there, &err));
  /* Unless this machine stood still for the whole lease. */
  CHECK(there || syncguard_guard_is_lost(g));
  CHECK(syncguard_guard_wait_lost(g, 60000));
  CHECK(syncguard_guard_loss_reason(g) == SYNCGUARD_LOSS_NOT_RENEWED);
  syncguard_guard_free(g);
  syncguard_client_free(client);
}

static void *trigger_later(void *cancel) {
  pause_ms(HELD_MS);
  syncguard_cancel_trigger(cancel);
  return NULL;
}

static void a_sleep_that_a_token_ends(void) {
  syncguard_cancel *cancel = syncguard_cancel_new(), *limit = syncguard_cancel_new_timeout(20);
  pthread_t thread;
  CHECK(!syncguard_cancel_wait(NULL, SYNCGUARD_FOREVER) && !syncguard_cancel_is_triggered(NULL));
  CHECK(!syncguard_cancel_is_triggered(cancel));
  CHECK(!syncguard_cancel_wait(cancel, 0) && !syncguard_cancel_wait(cancel, -7) && !syncguard_cancel_wait(cancel, 5));
  /* The token's own limit ends a sleep without one, and triggers nothing. */
  CHECK(!syncguard_cancel_wait(limit, SYNCGUARD_FOREVER) && !syncguard_cancel_is_triggered(limit));
  CHECK(pthread_create(&thread, NULL, trigger_later, cancel) == 0);
  CHECK(syncguard_cancel_wait(cancel, SYNCGUARD_FOREVER));
  CHECK(syncguard_cancel_is_triggered(cancel) && syncguard_cancel_wait(cancel, INT64_MAX) && syncguard_cancel_wait(cancel, 0));
  CHECK(pthread_join(thread, NULL) == 0);
  syncguard_cancel_free(limit);
  syncguard_cancel_free(cancel);
}

static void what_ends_a_wait(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "ends"), *lost = NULL;
  syncguard_cancel *cancel = syncguard_cancel_new(), *limit = syncguard_cancel_new_timeout(20);
  pthread_t thread;
  CHECK(SYNCGUARD_WAIT_END_OTHER == 0 && SYNCGUARD_WAIT_END_LOST == 1 && SYNCGUARD_WAIT_END_RELEASED == 2);
  CHECK(SYNCGUARD_WAIT_END_CANCELLED == 3 && SYNCGUARD_WAIT_END_TIME_OVER == 4);
  CHECK(syncguard_guard_wait_end(NULL, SYNCGUARD_FOREVER, NULL) == SYNCGUARD_WAIT_END_LOST);
  CHECK(syncguard_guard_wait_end(guard, SYNCGUARD_FOREVER, (syncguard_cancel *)guard) == SYNCGUARD_WAIT_END_OTHER);
  CHECK(syncguard_guard_wait_end(guard, 0, NULL) == SYNCGUARD_WAIT_END_TIME_OVER);
  CHECK(syncguard_guard_wait_end(guard, -7, NULL) == SYNCGUARD_WAIT_END_TIME_OVER);
  CHECK(syncguard_guard_wait_end(guard, 5, cancel) == SYNCGUARD_WAIT_END_TIME_OVER);
  CHECK(syncguard_guard_wait_end(guard, SYNCGUARD_FOREVER, limit) == SYNCGUARD_WAIT_END_TIME_OVER);
  CHECK(pthread_create(&thread, NULL, trigger_later, cancel) == 0);
  CHECK(syncguard_guard_wait_end(guard, SYNCGUARD_FOREVER, cancel) == SYNCGUARD_WAIT_END_CANCELLED);
  CHECK(!syncguard_guard_is_lost(guard) && pthread_join(thread, NULL) == 0);
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  CHECK(syncguard_guard_wait_end(guard, SYNCGUARD_FOREVER, NULL) == SYNCGUARD_WAIT_END_RELEASED);
  syncguard_guard_free(guard);
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.ttl_ms = 100;
  options.heartbeat_ms = SYNCGUARD_FOREVER;
  options.dispose_timeout_ms = 60000;
  EXPECT(OK, syncguard_lock(client, "ends", NUL, &options, &lost, &err));
  CHECK(syncguard_guard_wait_end(lost, 60000, NULL) == SYNCGUARD_WAIT_END_LOST);
  CHECK(syncguard_guard_loss_reason(lost) == SYNCGUARD_LOSS_NOT_RENEWED);
  syncguard_guard_free(lost);
  /* A guard that another thread frees. */
  guard = lock(client, "ends");
  CHECK(pthread_create(&thread, NULL, free_later, guard) == 0);
  CHECK(syncguard_guard_wait_end(guard, 60000, NULL) == SYNCGUARD_WAIT_END_RELEASED);
  CHECK(pthread_join(thread, NULL) == 0);
  syncguard_cancel_free(limit);
  syncguard_cancel_free(cancel);
  syncguard_client_free(client);
}

struct waits {
  syncguard_client *client;
  syncguard_cancel *cancel;
};

static void *wait_for_it(void *data) {
  struct waits *waits = data;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  syncguard_guard *guard = NULL;
  options.acquire_timeout_ms = SYNCGUARD_FOREVER;
  options.cancel = waits->cancel;
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_lock(waits->client, "wanted", NUL, &options, &guard, &err));
  return NULL;
}

static bool wanted(syncguard_client *client) {
  bool yes = false;
  EXPECT(OK, syncguard_client_is_waited_for(client, "wanted", NUL, &yes, &err));
  return yes;
}

static void callers_that_wait(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "wanted");
  struct waits waits = {client, syncguard_cancel_new()};
  pthread_t thread;
  bool yes = true;
  CHECK(!wanted(client));
  CHECK(pthread_create(&thread, NULL, wait_for_it, &waits) == 0);
  EVENTUALLY(wanted(client));
  syncguard_cancel_trigger(waits.cancel);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(!wanted(client));
  EXPECT(IA, syncguard_client_is_waited_for(client, "", 0, &yes, &err));
  EXPECT(IA, syncguard_client_is_waited_for(client, "wanted", NUL, NULL, &err));
  EXPECT(IA, syncguard_client_is_waited_for(client, NULL, 1, &yes, &err));
  EXPECT(IA, syncguard_client_is_waited_for(NULL, "wanted", NUL, &yes, &err));
  CHECK(yes);
  syncguard_cancel_free(waits.cancel);
  syncguard_guard_free(held);
  syncguard_client_free(client);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(the_end_of_a_wait);
  RUN(one_attempt);
  RUN(the_holder_of_a_verb);
  RUN(what_a_holder_says);
  RUN(looks_end_with_their_token);
  RUN(a_token_with_a_limit);
  RUN(a_client_that_stops_renewing);
  RUN(the_time_until_a_grant);
  RUN(what_the_store_is);
  RUN(no_error_and_no_handle);
  RUN(a_sleep_that_a_token_ends);
  RUN(what_ends_a_wait);
  RUN(callers_that_wait);
  RUN(applied_perhaps);
  return 0;
}
