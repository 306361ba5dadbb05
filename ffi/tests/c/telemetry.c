/* What events say of a guard, of a wait and of a loss; the client's on_lost; and the events that a slow callback missed. */
#include "check.h"

#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t M = PTHREAD_MUTEX_INITIALIZER;

struct told {
  syncguard_event event;
  char backend[16], reason[16], key_hash[25];
};

struct seen {
  struct told told[64];
  int events, losses, finalized;
  syncguard_lost_lock lost;
  syncguard_status status;
  syncguard_loss_reason reason;
  char key[32], lock_id[32];
};

static int read_int(const int *n) {
  pthread_mutex_lock(&M);
  int value = *n;
  pthread_mutex_unlock(&M);
  return value;
}

static void copy(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from != NULL ? from : ""); }

static void on_event(void *data, const syncguard_event *event) {
  struct seen *seen = data;
  CHECK(event->struct_size == sizeof *event);
  pthread_mutex_lock(&M);
  CHECK(seen->events < 64);
  struct told *told = &seen->told[seen->events++];
  told->event = *event;
  copy(told->backend, sizeof told->backend, event->backend);
  copy(told->reason, sizeof told->reason, event->reason);
  copy(told->key_hash, sizeof told->key_hash, event->key_hash);
  pthread_mutex_unlock(&M);
}

static void on_lost(void *data, const syncguard_lost_lock *lost) {
  struct seen *seen = data;
  CHECK(lost->struct_size == sizeof *lost);
  pthread_mutex_lock(&M);
  seen->lost = *lost;
  seen->status = syncguard_error_status(lost->why);
  seen->reason = syncguard_error_loss_reason(lost->why);
  copy(seen->key, sizeof seen->key, lost->key);
  copy(seen->lock_id, sizeof seen->lock_id, lost->lock_id);
  seen->losses++;
  pthread_mutex_unlock(&M);
}

static void finalize(void *data) {
  struct seen *seen = data;
  pthread_mutex_lock(&M);
  seen->finalized++;
  pthread_mutex_unlock(&M);
}

static syncguard_client *open_watched(struct seen *seen) {
  syncguard_client_options options = SYNCGUARD_CLIENT_OPTIONS_INIT;
  syncguard_client *client = NULL;
  options.operation_timeout_ms = 60000;
  options.on_event = on_event;
  options.on_lost = on_lost;
  options.user_data = seen;
  options.user_data_free = finalize;
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  return client;
}

static void ends(syncguard_client *client, struct seen *seen) {
  CHECK(syncguard_client_events_dropped(client) == 0);
  syncguard_client_free(client);
  EVENTUALLY(read_int(&seen->finalized) == 1);
}

/* Event `n` is of this type, and of the lock with this fence. */
static const syncguard_event *event(struct seen *seen, int n, int32_t type, uint64_t fence) {
  char hash[25];
  const struct told *told = &seen->told[n];
  CHECK(syncguard_hash_key("told", NUL, hash, NULL) == SYNCGUARD_STATUS_OK);
  CHECK(told->event.type == type && told->event.fence == fence);
  CHECK(strcmp(told->key_hash, hash) == 0 && strcmp(told->backend, "sqlite") == 0);
  CHECK((told->event.waited_us >= 0) == (type == SYNCGUARD_EVENT_WAIT));
  CHECK((told->event.attempts > 0) == (type == SYNCGUARD_EVENT_WAIT));
  CHECK((told->event.held_us >= 0) == (type == SYNCGUARD_EVENT_RELEASE || type == SYNCGUARD_EVENT_LOSS));
  CHECK((told->event.loss_reason != SYNCGUARD_LOSS_NONE) == (type == SYNCGUARD_EVENT_LOSS));
  return &told->event;
}

static void a_guard_and_a_wait_without_the_lock(void) {
  static struct seen seen;
  syncguard_client *client = open_watched(&seen);
  syncguard_lock_options brief = SYNCGUARD_LOCK_OPTIONS_INIT;
  syncguard_guard *held = NULL, *none = NULL;
  EXPECT(OK, syncguard_lock(client, "told", NUL, NULL, &held, &err));
  uint64_t fence = syncguard_guard_fence_number(held);
  EXPECT(OK, syncguard_guard_extend(held, 30000, NULL, &err));
  brief.acquire_timeout_ms = 1;
  EXPECT(SYNCGUARD_STATUS_ACQUISITION_TIMEOUT, syncguard_lock(client, "told", NUL, &brief, &none, &err));
  EXPECT(OK, syncguard_guard_release(held, NULL, &err));
  syncguard_guard_free(held);
  EXPECT(ABSENT, syncguard_release(client, "0123456789012345678901", NUL, NULL, &err));
  syncguard_client_free(client);
  EVENTUALLY(read_int(&seen.finalized) == 1);

  CHECK(event(&seen, 0, SYNCGUARD_EVENT_ACQUIRE, fence)->ok);
  CHECK(event(&seen, 1, SYNCGUARD_EVENT_WAIT, fence)->ok && seen.told[1].event.attempts == 1);
  CHECK(event(&seen, 2, SYNCGUARD_EVENT_EXTEND, fence)->ok);
  int n = 3;
  for (; seen.told[n].event.type == SYNCGUARD_EVENT_ACQUIRE; n++) {
    CHECK(seen.told[n].event.reason_number == SYNCGUARD_EVENT_REASON_LOCKED && strcmp(seen.told[n].reason, "locked") == 0);
    CHECK(seen.told[n].event.error_status == SYNCGUARD_STATUS_OK && seen.told[n].event.fence == 0);
  }
  CHECK(n > 3);
  const syncguard_event *wait = event(&seen, n, SYNCGUARD_EVENT_WAIT, 0);
  CHECK(!wait->ok && wait->error_status == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT);
  CHECK(wait->reason_number == SYNCGUARD_EVENT_REASON_LOCKED && wait->attempts == (uint32_t)(n - 3));
  CHECK(event(&seen, n + 1, SYNCGUARD_EVENT_RELEASE, fence)->ok);
  const struct told *last = &seen.told[n + 2];
  CHECK(last->event.type == SYNCGUARD_EVENT_RELEASE && last->event.reason_number == SYNCGUARD_EVENT_REASON_NOT_FOUND);
  CHECK(last->key_hash[0] == '\0' && last->event.fence == 0 && last->event.held_us == -1);
  CHECK(seen.events == n + 3 && seen.losses == 0);
}

static void a_loss(void) {
  static struct seen seen;
  syncguard_client *client = open_watched(&seen);
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  syncguard_guard *guard = NULL;
  options.ttl_ms = 150;
  options.heartbeat_ms = SYNCGUARD_FOREVER;
  EXPECT(OK, syncguard_lock(client, "told", NUL, &options, &guard, &err));
  CHECK(syncguard_guard_wait_lost(guard, 60000));
  EVENTUALLY(read_int(&seen.losses) == 1 && read_int(&seen.events) == 3);
  CHECK(seen.status == SYNCGUARD_STATUS_LOST && seen.reason == SYNCGUARD_LOSS_NOT_RENEWED);
  CHECK(strcmp(seen.key, "told") == 0 && strcmp(seen.lock_id, syncguard_guard_lock_id(guard)) == 0);
  CHECK(seen.lost.fence == syncguard_guard_fence_number(guard) && seen.lost.held_us >= 140000);
  const syncguard_event *loss = event(&seen, 2, SYNCGUARD_EVENT_LOSS, seen.lost.fence);
  CHECK(!loss->ok && loss->error_status == SYNCGUARD_STATUS_LOST && loss->loss_reason == SYNCGUARD_LOSS_NOT_RENEWED);
  CHECK(loss->held_us == seen.lost.held_us);
  syncguard_guard_free(guard);
  ends(client, &seen);
  CHECK(seen.losses == 1);
}

static int texts, raws;

static void on_raw_event(void *data, const syncguard_event *event) {
  (void)data;
  pthread_mutex_lock(&M);
  raws += event->key != NULL && strcmp(event->key, "raw") == 0;
  texts += event->holder != NULL && strcmp(event->holder, "telemetry of C") == 0 && event->reason_number == SYNCGUARD_EVENT_REASON_LOCKED;
  pthread_mutex_unlock(&M);
}

static void the_holder_is_told_only_with_raw_data(void) {
  for (int32_t raw = 0; raw <= 1; raw++) {
    syncguard_client_options options = SYNCGUARD_CLIENT_OPTIONS_INIT;
    syncguard_lock_options says = SYNCGUARD_LOCK_OPTIONS_INIT;
    syncguard_client *client = NULL;
    syncguard_guard *guard = NULL, *none = NULL;
    options.operation_timeout_ms = 60000;
    options.on_event = on_raw_event;
    options.events_include_raw = raw;
    EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
    says.holder = "telemetry of C";
    EXPECT(OK, syncguard_lock(client, "raw", NUL, &says, &guard, &err));
    EXPECT(LOCKED, syncguard_try_lock(client, "raw", NUL, NULL, &none, &err));
    syncguard_guard_free(guard);
    syncguard_client_free(client);
    /* The free has told them all: an acquire, a wait, the acquire that was refused and a release. */
    CHECK(raws == 4 * raw && texts == raw);
  }
}

static int blocked = 1;

static void hang(void *data, const syncguard_event *event) {
  (void)data;
  (void)event;
  while (read_int(&blocked)) {
    pause_ms(1);
  }
}

static void what_a_slow_callback_misses_is_counted(void) {
  syncguard_client_options options = SYNCGUARD_CLIENT_OPTIONS_INIT;
  syncguard_client *client = NULL;
  bool yes;
  options.operation_timeout_ms = 60000;
  options.on_event = hang;
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  for (int n = 0; n < 1100; n++) {
    EXPECT(OK, syncguard_is_locked(client, "told", NUL, NULL, &yes, &err));
  }
  uint64_t dropped = syncguard_client_events_dropped(client);
  /* The queue takes 1024, and one is with the callback. */
  CHECK(dropped >= 1100 - 1025 && dropped < 1100);
  pthread_mutex_lock(&M);
  blocked = 0;
  pthread_mutex_unlock(&M);
  syncguard_client_free(client);
  CHECK(syncguard_client_events_dropped(NULL) == 0);
}

/* A program that was built against a header without the last field works as it did. */
static void the_options_of_an_older_header(void) {
  static struct seen seen;
  syncguard_client_options options = SYNCGUARD_CLIENT_OPTIONS_INIT;
  syncguard_client *client = NULL;
  options.on_lost = on_lost; /* beyond the end that it names */
  options.user_data = &seen;
  options.user_data_free = finalize;
  options.struct_size = offsetof(syncguard_client_options, on_lost);
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  syncguard_lock_options brief = SYNCGUARD_LOCK_OPTIONS_INIT;
  syncguard_guard *guard = NULL;
  brief.ttl_ms = 50;
  brief.heartbeat_ms = SYNCGUARD_FOREVER;
  EXPECT(OK, syncguard_lock(client, "old", NUL, &brief, &guard, &err));
  CHECK(syncguard_guard_wait_lost(guard, 60000));
  syncguard_guard_free(guard);
  ends(client, &seen);
  CHECK(seen.losses == 0);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(a_guard_and_a_wait_without_the_lock);
  RUN(a_loss);
  RUN(the_holder_is_told_only_with_raw_data);
  RUN(what_a_slow_callback_misses_is_counted);
  RUN(the_options_of_an_older_header);
  return 0;
}
