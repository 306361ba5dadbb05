/* Everything in the header does what it says when it is used as it says. */
#include "check.h"

#include <inttypes.h>
#include <poll.h>

static void versions_and_names(void) {
  char text[32];
  CHECK(syncguard_version_number() == SYNCGUARD_VERSION_NUMBER);
  snprintf(text, sizeof text, "%d.%d.%d", SYNCGUARD_VERSION_MAJOR, SYNCGUARD_VERSION_MINOR, SYNCGUARD_VERSION_PATCH);
  CHECK(strcmp(syncguard_version_string(), text) == 0);
  CHECK(strcmp(syncguard_status_str(0), "ok") == 0);
  for (int s = -9; s <= 2; s++) {
    CHECK(strcmp(syncguard_status_str(s), "unknown status") != 0);
  }
  CHECK(strcmp(syncguard_status_str(4), "unknown status") == 0);
  CHECK(strcmp(syncguard_status_str(-10), "lost") == 0 && strcmp(syncguard_status_str(-11), "unknown status") == 0);
  CHECK(strcmp(syncguard_status_str(INT32_MIN), "unknown status") == 0);
  CHECK(SYNCGUARD_STATUS_SERVICE_UNAVAILABLE == -1 && SYNCGUARD_STATUS_AUTH_FAILED == -2);
  CHECK(SYNCGUARD_STATUS_INVALID_ARGUMENT == -3 && SYNCGUARD_STATUS_RATE_LIMITED == -4);
  CHECK(SYNCGUARD_STATUS_NETWORK_TIMEOUT == -5 && SYNCGUARD_STATUS_ACQUISITION_TIMEOUT == -6);
  CHECK(SYNCGUARD_STATUS_ABORTED == -7 && SYNCGUARD_STATUS_INTERNAL == -8 && SYNCGUARD_STATUS_PANIC == -9);
  CHECK(SYNCGUARD_STATUS_LOST == -10);
}

static void a_lock_from_end_to_end(void) {
  syncguard_client *client = open_client();
  const char *backend = syncguard_client_backend(client);
  CHECK(strncmp(URL, backend, strlen(backend)) == 0);
  EXPECT(OK, syncguard_client_check(client, NULL, &err));

  syncguard_guard *guard = lock(client, "caf\x65\xcc\x81");
  CHECK(strcmp(syncguard_guard_key(guard), "caf\xc3\xa9") == 0);
  CHECK(strlen(syncguard_guard_lock_id(guard)) == 22);
  CHECK(strlen(syncguard_guard_fence(guard)) == 15);
  CHECK(syncguard_guard_expires_at_ms(guard) > 0);
  int64_t remaining = syncguard_guard_remaining_ms(guard);
  CHECK(remaining > 0 && remaining < 30000);
  CHECK(!syncguard_guard_is_lost(guard));
  CHECK(!syncguard_guard_wait_lost(guard, 0) && !syncguard_guard_wait_lost(guard, 5));
  EXPECT(OK, syncguard_guard_extend(guard, 60000, NULL, &err));
  CHECK(syncguard_guard_remaining_ms(guard) > 30000);
  EXPECT(OK, syncguard_guard_extend(guard, 20000, NULL, &err));
  CHECK(syncguard_guard_remaining_ms(guard) < 20000);

  syncguard_guard *second = (syncguard_guard *)&second;
  EXPECT(LOCKED, syncguard_try_lock(client, "caf\xc3\xa9", NUL, NULL, &second, &err));
  CHECK(second == NULL);

  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  EXPECT(ABSENT, syncguard_guard_release(guard, NULL, &err));
  EXPECT(ABSENT, syncguard_guard_extend(guard, 1000, NULL, &err));
  CHECK(syncguard_guard_remaining_ms(guard) == 0 && !syncguard_guard_is_lost(guard));
  CHECK(!syncguard_guard_wait_lost(guard, SYNCGUARD_FOREVER));

  char fence[16];
  strcpy(fence, syncguard_guard_fence(guard));
  syncguard_guard_free(guard);
  guard = lock(client, "caf\xc3\xa9");
  CHECK(strcmp(syncguard_guard_fence(guard), fence) > 0);
  syncguard_guard_free(guard);
  EXPECT(OK, syncguard_try_lock(client, "caf\xc3\xa9", NUL, NULL, &guard, &err));
  syncguard_client_free(client);
  CHECK(strcmp(syncguard_guard_key(guard), "caf\xc3\xa9") == 0);
  EXPECT(OK, syncguard_guard_extend(guard, 1000, NULL, &err));
  syncguard_guard_free(guard);
}

static void waiting_ends_with_the_time(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "wait"), *guard = held;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.acquire_timeout_ms = 60;
  options.retry_delay_ms = 10;
  options.backoff = SYNCGUARD_BACKOFF_FIXED;
  options.jitter = SYNCGUARD_JITTER_NONE;
  syncguard_error *err = NULL;
  char hash[25];
  CHECK(syncguard_lock(client, "wait", 4, &options, &guard, &err) == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT);
  CHECK(guard == NULL && syncguard_error_attempts(err) >= 1);
  CHECK(syncguard_hash_key("wait", NUL, hash, NULL) == OK);
  CHECK(strcmp(syncguard_error_key_hash(err), hash) == 0);
  CHECK(strstr(syncguard_error_message(err), syncguard_guard_lock_id(held)) == NULL);
  CHECK(strstr(syncguard_error_message(err), "this thread itself took the lock") != NULL);
  syncguard_error_free(err);
  options.acquire_timeout_ms = SYNCGUARD_FOREVER;
  options.max_retries = 2;
  err = NULL;
  CHECK(syncguard_lock(client, "wait", 4, &options, &guard, &err) == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT);
  /* Being woken is no retry, so there may be more attempts. */
  CHECK(syncguard_error_attempts(err) >= 3);
  syncguard_error_free(err);
  syncguard_guard_free(held);
  syncguard_client_free(client);
}

static void the_verbs(void) {
  syncguard_client *client = open_client();
  syncguard_acquired a, b;
  syncguard_lock_info info;
  syncguard_lock_info_raw raw;
  char hash[25];
  bool yes = false;
  int64_t expires = 0;
  const char *key = "verbs:\xe2\x82\xac";
  EXPECT(OK, syncguard_is_locked(client, key, NUL, NULL, &yes, &err));
  CHECK(!yes);
  EXPECT(ABSENT, syncguard_lookup_by_key(client, key, NUL, NULL, &info, &err));
  EXPECT(OK, syncguard_acquire(client, key, NUL, 30000, NULL, &a, &err));
  CHECK(strlen(a.lock_id) == 22 && strlen(a.fence) == 15 && a.expires_at_ms > 0);
  EXPECT(OK, syncguard_validate_lock_id(a.lock_id, NUL, &err));
  EXPECT(LOCKED, syncguard_acquire(client, key, strlen(key), 30000, NULL, &b, &err));
  CHECK(strlen(b.lock_id) == 22 && strcmp(a.lock_id, b.lock_id) != 0 && b.fence[0] == 0 && b.expires_at_ms == 0);
  EXPECT(OK, syncguard_is_locked(client, key, NUL, NULL, &yes, &err));
  CHECK(yes);
  EXPECT(OK, syncguard_owns(client, a.lock_id, NUL, &yes, &err));
  CHECK(yes);
  EXPECT(OK, syncguard_owns(client, b.lock_id, 22, &yes, &err));
  CHECK(!yes);

  EXPECT(OK, syncguard_hash_key(key, NUL, hash, &err));
  EXPECT(OK, syncguard_lookup_by_key(client, key, NUL, NULL, &info, &err));
  CHECK(strcmp(info.key_hash, hash) == 0 && strcmp(info.fence, a.fence) == 0);
  CHECK(info.expires_at_ms == a.expires_at_ms && info.acquired_at_ms == a.expires_at_ms - 30000);
  CHECK(strlen(info.lock_id_hash) == 24);
  EXPECT(OK, syncguard_lookup_by_id(client, a.lock_id, NUL, NULL, &info, &err));
  CHECK(strcmp(info.key_hash, hash) == 0);
  EXPECT(OK, syncguard_lookup_by_key_raw(client, key, NUL, NULL, &raw, &err));
  CHECK(strcmp(raw.key, key) == 0 && strcmp(raw.lock_id, a.lock_id) == 0 && strcmp(raw.info.key_hash, hash) == 0);
  memset(&raw, 0x5a, sizeof raw);
  EXPECT(OK, syncguard_lookup_by_id_raw(client, a.lock_id, NUL, NULL, &raw, &err));
  CHECK(strcmp(raw.key, key) == 0 && strcmp(raw.lock_id, a.lock_id) == 0);
  EXPECT(ABSENT, syncguard_lookup_by_id(client, b.lock_id, NUL, NULL, &info, &err));
  EXPECT(ABSENT, syncguard_lookup_by_id_raw(client, b.lock_id, NUL, NULL, &raw, &err));
  EXPECT(ABSENT, syncguard_lookup_by_key_raw(client, "another", NUL, NULL, &raw, &err));

  EXPECT(OK, syncguard_extend(client, a.lock_id, NUL, 60000, NULL, &expires, &err));
  CHECK(expires > a.expires_at_ms);
  EXPECT(ABSENT, syncguard_extend(client, b.lock_id, NUL, 60000, NULL, &expires, &err));
  EXPECT(ABSENT, syncguard_release(client, b.lock_id, NUL, NULL, &err));
  EXPECT(OK, syncguard_release(client, a.lock_id, NUL, NULL, &err));
  EXPECT(ABSENT, syncguard_release(client, a.lock_id, NUL, NULL, &err));
  uint64_t purged = 77;
  EXPECT(OK, syncguard_client_purge_expired(client, 100, NULL, &purged, &err));
  CHECK(purged == 0);
  syncguard_client_free(client);
}

static void guards_and_verbs_interoperate(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "inter");
  int64_t expires = 0;
  EXPECT(OK, syncguard_extend(client, syncguard_guard_lock_id(guard), NUL, 30000, NULL, &expires, &err));
  EXPECT(OK, syncguard_release(client, syncguard_guard_lock_id(guard), NUL, NULL, &err));
  EXPECT(ABSENT, syncguard_guard_extend(guard, 1000, NULL, &err));
  CHECK(syncguard_guard_is_lost(guard));
  EXPECT(ABSENT, syncguard_guard_release(guard, NULL, &err));
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

static void the_lost_fd(void) {
  syncguard_client *client = open_client();
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.ttl_ms = 400;
  options.heartbeat_ms = SYNCGUARD_FOREVER;
  syncguard_guard *guard = NULL;
  EXPECT(OK, syncguard_lock(client, "fd", NUL, &options, &guard, &err));
  struct pollfd p;
  p.fd = syncguard_guard_lost_fd(guard);
  p.events = POLLIN;
  CHECK(p.fd >= 0 && syncguard_guard_lost_fd(guard) == p.fd);
  CHECK(poll(&p, 1, 60000) == 1 && (p.revents & POLLIN) != 0);
  CHECK(syncguard_guard_is_lost(guard) && syncguard_guard_remaining_ms(guard) == 0);
  CHECK(syncguard_guard_wait_lost(guard, SYNCGUARD_FOREVER));
  CHECK(poll(&p, 1, 0) == 1);
  syncguard_guard_free(guard);

  /* A release does not make it readable. */
  guard = lock(client, "fd2");
  p.fd = syncguard_guard_lost_fd(guard);
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  CHECK(poll(&p, 1, 0) == 0);
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

static void a_heartbeat_outlives_the_ttl(void) {
  syncguard_client *client = open_client();
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.ttl_ms = 30000;
  options.heartbeat_ms = 50;
  syncguard_guard *guard = NULL;
  EXPECT(OK, syncguard_lock(client, "beat", NUL, &options, &guard, &err));
  int64_t first = syncguard_guard_expires_at_ms(guard);
  EVENTUALLY(syncguard_guard_expires_at_ms(guard) > first);
  CHECK(!syncguard_guard_is_lost(guard));
  syncguard_guard_free(guard);
  /* And max_hold ends it. */
  options.max_hold_ms = 60;
  options.ttl_ms = 300;
  EXPECT(OK, syncguard_lock(client, "beat2", NUL, &options, &guard, &err));
  CHECK(syncguard_guard_wait_lost(guard, 60000));
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

static void defaults_resolved(void) {
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  syncguard_lock_options_resolve(&options);
  CHECK(options.ttl_ms == 30000 && options.acquire_timeout_ms == 5000 && options.heartbeat_ms == 10000);
  CHECK(options.max_hold_ms == 0 && options.max_retries == 10 && options.retry_delay_ms == 100);
  CHECK(options.backoff == SYNCGUARD_BACKOFF_EXPONENTIAL && options.jitter == SYNCGUARD_JITTER_EQUAL);
  syncguard_lock_options again = options;
  syncguard_lock_options_resolve(&again);
  CHECK(memcmp(&again, &options, sizeof options) == 0);

  syncguard_lock_options explicit_wait = SYNCGUARD_LOCK_OPTIONS_INIT;
  explicit_wait.acquire_timeout_ms = 100;
  explicit_wait.ttl_ms = 900;
  syncguard_lock_options_resolve(&explicit_wait);
  CHECK(explicit_wait.max_retries == -1 && explicit_wait.heartbeat_ms == 300 && explicit_wait.acquire_timeout_ms == 100);

  /* Nothing is written beyond the size the struct says it has. */
  syncguard_lock_options older = SYNCGUARD_LOCK_OPTIONS_INIT;
  older.struct_size = offsetof(syncguard_lock_options, max_retries);
  syncguard_lock_options_resolve(&older);
  CHECK(older.ttl_ms == 30000 && older.max_retries == 0 && older.jitter == 0);
  older.struct_size = 0;
  older.ttl_ms = 0;
  syncguard_lock_options_resolve(&older);
  CHECK(older.ttl_ms == 0);
  syncguard_lock_options_resolve(NULL);
}

static void delays(void) {
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.jitter = SYNCGUARD_JITTER_NONE;
  CHECK(syncguard_retry_delay_ms(&options, 1, 60000) == 100);
  CHECK(syncguard_retry_delay_ms(&options, 2, SYNCGUARD_FOREVER) == 200);
  CHECK(syncguard_retry_delay_ms(&options, 10, SYNCGUARD_FOREVER) == 2000);
  CHECK(syncguard_retry_delay_ms(&options, 11, SYNCGUARD_FOREVER) == -1);
  CHECK(syncguard_retry_delay_ms(&options, 5, 7) == 7);
  CHECK(syncguard_retry_delay_ms(&options, 1, 0) == -1);
  CHECK(syncguard_retry_delay_ms(&options, 1, -5) == -1);
  CHECK(syncguard_retry_delay_ms(&options, 1, INT64_MAX) == 100);
  options.max_retries = -1;
  CHECK(syncguard_retry_delay_ms(&options, UINT32_MAX, 60000) == 2000);
  options.max_retries = -2;
  CHECK(syncguard_retry_delay_ms(&options, 1, 60000) == -1);
  int64_t delay = syncguard_retry_delay_ms(NULL, 1, 60000);
  CHECK(delay >= 50 && delay <= 100);
}

static void cancelled_before(void) {
  syncguard_client *client = open_client();
  syncguard_cancel *cancel = syncguard_cancel_new();
  syncguard_cancel_trigger(cancel);
  syncguard_cancel_trigger(cancel);
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.cancel = cancel;
  syncguard_guard *guard = NULL;
  syncguard_acquired a;
  syncguard_lock_info info;
  syncguard_lock_info_raw raw;
  bool yes;
  uint64_t n;
  int64_t at;
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_lock(client, "c", 1, &options, &guard, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_try_lock(client, "c", 1, &options, &guard, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_acquire(client, "c", 1, 1000, cancel, &a, &err));
  CHECK(strlen(a.lock_id) == 22);
  EXPECT(ABSENT, syncguard_release(client, a.lock_id, 22, NULL, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_release(client, a.lock_id, 22, cancel, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_extend(client, a.lock_id, 22, 1000, cancel, &at, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_is_locked(client, "c", 1, cancel, &yes, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_lookup_by_key(client, "c", 1, cancel, &info, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_lookup_by_id(client, a.lock_id, 22, cancel, &info, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_lookup_by_key_raw(client, "c", 1, cancel, &raw, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_lookup_by_id_raw(client, a.lock_id, 22, cancel, &raw, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_client_check(client, cancel, &err));
  if (strcmp(syncguard_client_backend(client), "redis") != 0) { /* which has nothing to purge */
    EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_client_purge_expired(client, 1, cancel, &n, &err));
    EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_client_setup_schema(client, cancel, &err));
  }
  EXPECT(OK, syncguard_lock(client, "c", 1, NULL, &guard, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_guard_extend(guard, 1000, cancel, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_guard_release(guard, cancel, &err));
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  syncguard_guard_free(guard);
  syncguard_cancel_free(cancel);
  syncguard_client_free(client);
}

static void older_and_newer_structs(void) {
  syncguard_client *client = NULL;
  struct {
    syncguard_lock_options ours;
    char beyond[64];
  } lock_newer = {SYNCGUARD_LOCK_OPTIONS_INIT, {0}};
  struct {
    syncguard_client_options ours;
    char beyond[64];
  } client_newer = {SYNCGUARD_CLIENT_OPTIONS_INIT, {0}};
  syncguard_guard *guard = NULL;
  client_newer.ours = patient();
  client_newer.ours.struct_size = sizeof client_newer;
  EXPECT(OK, syncguard_client_open(URL, NUL, &client_newer.ours, &client, &err));
  lock_newer.ours.struct_size = sizeof lock_newer;
  lock_newer.ours.ttl_ms = 5000;
  EXPECT(OK, syncguard_lock(client, "newer", NUL, &lock_newer.ours, &guard, &err));
  CHECK(syncguard_guard_remaining_ms(guard) <= 5000);
  syncguard_guard_free(guard);
  /* An older one: what lies behind its end is not read. */
  syncguard_lock_options older;
  memset(&older, 0x5a, sizeof older);
  older.struct_size = offsetof(syncguard_lock_options, acquire_timeout_ms);
  older.ttl_ms = 5000;
  EXPECT(OK, syncguard_lock(client, "older", NUL, &older, &guard, &err));
  CHECK(syncguard_guard_remaining_ms(guard) <= 5000);
  syncguard_guard_free(guard);
  older.struct_size = sizeof(size_t);
  EXPECT(OK, syncguard_lock(client, "older", NUL, &older, &guard, &err));
  CHECK(syncguard_guard_remaining_ms(guard) > 5000);
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

static void fences_are_numbers_too(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "numbers");
  uint64_t first = syncguard_guard_fence_number(guard), number = 7;
  CHECK(first > 0 && first == strtoull(syncguard_guard_fence(guard), NULL, 10));
  syncguard_guard_free(guard);
  syncguard_acquired grant;
  CHECK(syncguard_acquire(client, "numbers", SYNCGUARD_NUL, 30000, NULL, &grant, NULL) == SYNCGUARD_STATUS_OK);
  CHECK(syncguard_parse_fence(grant.fence, SYNCGUARD_NUL, &number, NULL) == SYNCGUARD_STATUS_OK && number == first + 1);
  CHECK(syncguard_parse_fence("999999999999999", 15, &number, NULL) == SYNCGUARD_STATUS_OK);
  CHECK(number == UINT64_C(999999999999999));
  const char *bad[] = {"", "1", "00000000000001", "0000000000000001", "00000000000001x", "+00000000000001", " 00000000000001"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    number = 7;
    CHECK(syncguard_parse_fence(bad[i], SYNCGUARD_NUL, &number, NULL) == SYNCGUARD_STATUS_INVALID_ARGUMENT && number == 0);
  }
  CHECK(syncguard_parse_fence(NULL, 0, &number, NULL) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  CHECK(syncguard_parse_fence(grant.fence, SYNCGUARD_NUL, NULL, NULL) == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  CHECK(syncguard_guard_fence_number(NULL) == 0);
  CHECK(syncguard_release(client, grant.lock_id, SYNCGUARD_NUL, NULL, NULL) == SYNCGUARD_STATUS_OK);
  syncguard_client_free(client);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(versions_and_names);
  RUN(a_lock_from_end_to_end);
  RUN(waiting_ends_with_the_time);
  RUN(the_verbs);
  RUN(fences_are_numbers_too);
  RUN(guards_and_verbs_interoperate);
  RUN(the_lost_fd);
  RUN(a_heartbeat_outlives_the_ttl);
  RUN(defaults_resolved);
  RUN(delays);
  RUN(cancelled_before);
  RUN(older_and_newer_structs);
  return 0;
}
