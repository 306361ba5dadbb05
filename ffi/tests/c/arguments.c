/* Bad arguments: each answers INVALID_ARGUMENT, touches nothing and tells no secret. Numbers are rows of the list of bad inputs. */
#include "check.h"

static syncguard_client *C;

static const char *ID = "AAAAAAAAAAAAAAAAAAAAAA";

/* 14, 43: NULL for every pointer in turn. */
static void null_for_every_pointer(void) {
  syncguard_guard *g = lock(C, "null"), *out = (syncguard_guard *)&out;
  syncguard_client *c = (syncguard_client *)&c;
  uint64_t n;

  EXPECT(IA, syncguard_client_open(NULL, NUL, NULL, &c, &err));
  CHECK(c == NULL);
  EXPECT(IA, syncguard_client_open(URL, NUL, NULL, NULL, &err));
  EXPECT(IA, syncguard_client_setup_schema(NULL, NULL, &err));
  EXPECT(IA, syncguard_client_check(NULL, NULL, &err));
  EXPECT(IA, syncguard_client_purge_expired(NULL, 1, NULL, &n, &err));
  EXPECT(IA, syncguard_client_purge_expired(C, 1, NULL, NULL, &err));
  CHECK(syncguard_client_backend(NULL) == NULL);

  EXPECT(IA, syncguard_lock(NULL, "k", NUL, NULL, &out, &err));
  CHECK(out == NULL);
  out = (syncguard_guard *)&out;
  EXPECT(IA, syncguard_lock(C, NULL, 0, NULL, &out, &err));
  CHECK(out == NULL);
  EXPECT(IA, syncguard_lock(C, NULL, 3, NULL, &out, &err));
  EXPECT(IA, syncguard_lock(C, NULL, NUL, NULL, &out, &err));
  EXPECT(IA, syncguard_lock(C, "k", NUL, NULL, NULL, &err));
  EXPECT(IA, syncguard_try_lock(NULL, "k", NUL, NULL, &out, &err));
  EXPECT(IA, syncguard_try_lock(C, NULL, 3, NULL, &out, &err));
  EXPECT(IA, syncguard_try_lock(C, "k", NUL, NULL, NULL, &err));

  CHECK(syncguard_guard_key(NULL) == NULL && syncguard_guard_lock_id(NULL) == NULL && syncguard_guard_fence(NULL) == NULL);
  CHECK(syncguard_guard_expires_at_ms(NULL) == 0 && syncguard_guard_remaining_ms(NULL) == 0);
  CHECK(syncguard_guard_is_lost(NULL) && syncguard_guard_wait_lost(NULL, SYNCGUARD_FOREVER));
  CHECK(syncguard_guard_lost_fd(NULL) == -1);
  EXPECT(IA, syncguard_guard_extend(NULL, 1000, NULL, &err));
  EXPECT(IA, syncguard_guard_release(NULL, NULL, &err));

  /* err itself may be NULL. */
  CHECK(syncguard_lock(NULL, "k", NUL, NULL, &out, NULL) == IA);
  CHECK(syncguard_error_status(NULL) == IA && strcmp(syncguard_error_message(NULL), "no error") == 0);
  CHECK(syncguard_error_key_hash(NULL) == NULL && syncguard_error_attempts(NULL) == 0);

  /* 44: and everything that frees. */
  syncguard_client_free(NULL);
  syncguard_guard_free(NULL);
  syncguard_cancel_free(NULL);
  syncguard_error_free(NULL);
  syncguard_cancel_trigger(NULL);
  syncguard_guard_free(g);
}

/* 14, 43: and of the verbs and helpers. */
static void null_for_every_pointer_of_the_verbs(void) {
  syncguard_acquired a;
  syncguard_lock_info info;
  syncguard_lock_info_raw raw;
  char hash[25];
  bool yes;
  int64_t at;

  EXPECT(IA, syncguard_acquire(NULL, "k", NUL, 1000, NULL, &a, &err));
  EXPECT(IA, syncguard_acquire(C, NULL, NUL, 1000, NULL, &a, &err));
  EXPECT(IA, syncguard_acquire(C, "k", NUL, 1000, NULL, NULL, &err));
  EXPECT(IA, syncguard_release(NULL, ID, NUL, NULL, &err));
  EXPECT(IA, syncguard_release(C, NULL, NUL, NULL, &err));
  EXPECT(IA, syncguard_extend(NULL, ID, NUL, 1000, NULL, &at, &err));
  EXPECT(IA, syncguard_extend(C, NULL, NUL, 1000, NULL, &at, &err));
  EXPECT(IA, syncguard_extend(C, ID, NUL, 1000, NULL, NULL, &err));
  EXPECT(IA, syncguard_is_locked(NULL, "k", NUL, NULL, &yes, &err));
  EXPECT(IA, syncguard_is_locked(C, NULL, NUL, NULL, &yes, &err));
  EXPECT(IA, syncguard_is_locked(C, "k", NUL, NULL, NULL, &err));
  EXPECT(IA, syncguard_lookup_by_key(NULL, "k", NUL, NULL, &info, &err));
  EXPECT(IA, syncguard_lookup_by_key(C, NULL, NUL, NULL, &info, &err));
  EXPECT(IA, syncguard_lookup_by_key(C, "k", NUL, NULL, NULL, &err));
  EXPECT(IA, syncguard_lookup_by_id(NULL, ID, NUL, NULL, &info, &err));
  EXPECT(IA, syncguard_lookup_by_id(C, NULL, NUL, NULL, &info, &err));
  EXPECT(IA, syncguard_lookup_by_id(C, ID, NUL, NULL, NULL, &err));
  EXPECT(IA, syncguard_lookup_by_key_raw(NULL, "k", NUL, NULL, &raw, &err));
  EXPECT(IA, syncguard_lookup_by_key_raw(C, NULL, NUL, NULL, &raw, &err));
  EXPECT(IA, syncguard_lookup_by_key_raw(C, "k", NUL, NULL, NULL, &err));
  EXPECT(IA, syncguard_lookup_by_id_raw(NULL, ID, NUL, NULL, &raw, &err));
  EXPECT(IA, syncguard_lookup_by_id_raw(C, NULL, NUL, NULL, &raw, &err));
  EXPECT(IA, syncguard_lookup_by_id_raw(C, ID, NUL, NULL, NULL, &err));
  EXPECT(IA, syncguard_owns(NULL, ID, NUL, &yes, &err));
  EXPECT(IA, syncguard_owns(C, NULL, NUL, &yes, &err));
  EXPECT(IA, syncguard_owns(C, ID, NUL, NULL, &err));
  EXPECT(IA, syncguard_hash_key(NULL, NUL, hash, &err));
  EXPECT(IA, syncguard_hash_key("k", NUL, NULL, &err));
  EXPECT(IA, syncguard_validate_lock_id(NULL, NUL, &err));
}

/* 15: a length beyond any object is refused without a look at the text. */
static void lengths_that_cannot_be(void) {
  const char *nowhere = (const char *)16;
  syncguard_guard *g = NULL;
  syncguard_client *c = NULL;
  syncguard_acquired a;
  size_t lengths[] = {(size_t)PTRDIFF_MAX + 1, (size_t)-2};
  for (int i = 0; i < 2; i++) {
    EXPECT(IA, syncguard_lock(C, nowhere, lengths[i], NULL, &g, &err));
    EXPECT(IA, syncguard_acquire(C, nowhere, lengths[i], 1000, NULL, &a, &err));
    EXPECT(IA, syncguard_release(C, nowhere, lengths[i], NULL, &err));
    EXPECT(IA, syncguard_client_open(nowhere, lengths[i], NULL, &c, &err));
    EXPECT(IA, syncguard_validate_lock_id(nowhere, lengths[i], &err));
  }
}

static void bad_key(const char *key, size_t len) {
  syncguard_guard *g = NULL;
  syncguard_acquired a;
  syncguard_lock_info info;
  char hash[25] = "untouched";
  bool yes = true;
  memset(&a, 0x5a, sizeof a);
  EXPECT(IA, syncguard_lock(C, key, len, NULL, &g, &err));
  CHECK(g == NULL);
  EXPECT(IA, syncguard_try_lock(C, key, len, NULL, &g, &err));
  EXPECT(IA, syncguard_acquire(C, key, len, 1000, NULL, &a, &err));
  CHECK(a.lock_id[0] == 0x5a);
  EXPECT(IA, syncguard_is_locked(C, key, len, NULL, &yes, &err));
  CHECK(yes);
  EXPECT(IA, syncguard_lookup_by_key(C, key, len, NULL, &info, &err));
  EXPECT(IA, syncguard_hash_key(key, len, hash, &err));
  CHECK(strcmp(hash, "untouched") == 0);
}

static void good_key(const char *key, size_t len) {
  syncguard_guard *g = NULL;
  syncguard_lock_info_raw raw;
  EXPECT(OK, syncguard_lock(C, key, len, NULL, &g, &err));
  CHECK(strlen(syncguard_guard_key(g)) == len && memcmp(syncguard_guard_key(g), key, len) == 0);
  EXPECT(OK, syncguard_lookup_by_key_raw(C, key, len, NULL, &raw, &err));
  CHECK(strlen(raw.key) == len && memcmp(raw.key, key, len) == 0);
  syncguard_guard_free(g);
}

/* 1, 6, 7. */
static void keys_that_are_no_text(void) {
  bad_key("", 0);
  bad_key("", NUL);
  bad_key("k", 0);                   /* a length, although a text is there */
  bad_key("a\0b", 3);
  bad_key("\0", 1);
  bad_key("\xff", 1);
  bad_key("ab\xc3", 3);              /* cut off */
  bad_key("\xc0\xaf", 2);            /* overlong */
  bad_key("\xe0\x80\xaf", 3);        /* overlong */
  bad_key("\xf0\x80\x80\xaf", 4);    /* overlong */
  bad_key("\xed\xa0\x80", 3);        /* a surrogate */
  bad_key("\xed\xbf\xbf", 3);
  bad_key("\xf4\x90\x80\x80", 4);    /* beyond Unicode */
  bad_key("\x80", NUL);
}

/* 2, 3, 5. */
static void keys_that_are_too_long(void) {
  char key[3200];
  memset(key, 'k', sizeof key);
  good_key(key, 512);
  bad_key(key, 513);
  for (int i = 0; i < 200; i++) {
    memcpy(key + 3 * i, "\xe2\x82\xac", 3);
  }
  bad_key(key, 600);
  /* NFD that shrinks to 512 bytes is legal, and the same lock. */
  for (int i = 0; i < 256; i++) {
    memcpy(key + 3 * i, "e\xcc\x81", 3);
  }
  syncguard_guard *g = NULL, *again = NULL;
  EXPECT(OK, syncguard_lock(C, key, 768, NULL, &g, &err));
  CHECK(strlen(syncguard_guard_key(g)) == 512);
  EXPECT(LOCKED, syncguard_try_lock(C, syncguard_guard_key(g), NUL, NULL, &again, &err));
  syncguard_guard_free(g);
  bad_key(key, 771);
  /* U+0958 grows under NFC, from three bytes to six. */
  for (int i = 0; i < 170; i++) {
    memcpy(key + 3 * i, "\xe0\xa5\x98", 3);
  }
  bad_key(key, 510);
}

/* 8, 9, 11, 12, 13. */
static void keys_that_only_look_bad(void) {
  const char *keys[] = {"\n", "\x7f\x01\x1b[2J", "\r\n*1\r\n$4\r\nPING\r\n", "\"'\\`", "\xf0\x9f\x94\x92", "\xd7\xa9\xd7\x9c",
                        "'; DROP TABLE syncguard_locks; --", "$1", "%s%n", "Case", "case", "case ", "\xf3\xb0\x80\x80", "id:42",
                        "a:b:c", " "};
  syncguard_guard *all[sizeof keys / sizeof *keys];
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    good_key(keys[i], strlen(keys[i]));
    all[i] = lock(C, keys[i]);
  }
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    syncguard_guard_free(all[i]);
  }
  if (strcmp(syncguard_client_backend(C), "redis") == 0) {
    /* Legal as names; they are too long for the store. */
    syncguard_guard *g = NULL;
    syncguard_acquired a;
    EXPECT(IA, syncguard_lock(C, "fence:syncguard:foo", 19, NULL, &g, &err));
    EXPECT(IA, syncguard_acquire(C, "fence:syncguard:foo", 19, 1000, NULL, &a, &err));
    EXPECT(IA, syncguard_lock(C, "id:AAAAAAAAAAAAAAAAAAAAAA", NUL, NULL, &g, &err));
  } else {
    good_key("fence:syncguard:foo", 19);
    good_key("id:AAAAAAAAAAAAAAAAAAAAAA", 25);
  }
}

/* 16, 17, 19. */
static void ttls_that_cannot_be(void) {
  syncguard_guard *g = lock(C, "ttl"), *out = NULL;
  syncguard_acquired a, before;
  int64_t bad[] = {0, -1, -2, INT64_MIN, 400000000000000, INT64_C(1) << 53, INT64_MAX};
  int64_t at = 5;
  EXPECT(OK, syncguard_acquire(C, "fences", NUL, 1000, NULL, &before, &err));
  EXPECT(OK, syncguard_release(C, before.lock_id, NUL, NULL, &err));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
    EXPECT(IA, syncguard_acquire(C, "fences", NUL, bad[i], NULL, &a, &err));
    EXPECT(IA, syncguard_extend(C, ID, NUL, bad[i], NULL, &at, &err));
    EXPECT(IA, syncguard_guard_extend(g, bad[i], NULL, &err));
    options.ttl_ms = bad[i];
    if (bad[i] != 0) {
      EXPECT(IA, syncguard_lock(C, "fences", NUL, &options, &out, &err));
      EXPECT(IA, syncguard_try_lock(C, "fences", NUL, &options, &out, &err));
    }
  }
  CHECK(at == 5 && !syncguard_guard_is_lost(g) && syncguard_guard_remaining_ms(g) > 20000);
  /* No fence was burnt. */
  EXPECT(OK, syncguard_acquire(C, "fences", NUL, 1000, NULL, &a, &err));
  CHECK(strtoll(a.fence, NULL, 10) == strtoll(before.fence, NULL, 10) + 1);
  syncguard_guard_free(g);
}

/* 18. */
static void tiny_ttls(void) {
  for (int64_t ttl = 1; ttl <= 3; ttl++) {
    syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
    syncguard_guard *g = NULL;
    options.ttl_ms = ttl;
    EXPECT(OK, syncguard_lock(C, "tiny", NUL, &options, &g, &err));
    CHECK(syncguard_guard_wait_lost(g, 60000));
    syncguard_guard_free(g);
  }
}

/* 21, 22. */
static void lock_ids_that_are_none(void) {
  const char *bad[] = {"", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAA+", "AAAAAAAAAAAAAAAAAAAAA/",
                       "AAAAAAAAAAAAAAAAAAAAA=", "AAAAAAAAAAAAAAAAAAAA\xc3\xa9", "\xff\xff\xff"};
  syncguard_lock_info info;
  syncguard_lock_info_raw raw;
  bool yes;
  int64_t at;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    syncguard_error *err = NULL;
    CHECK(syncguard_validate_lock_id(bad[i], NUL, &err) == IA);
    CHECK(bad[i][0] == 0 || strstr(syncguard_error_message(err), bad[i]) == NULL);
    syncguard_error_free(err);
    EXPECT(IA, syncguard_release(C, bad[i], NUL, NULL, &err));
    EXPECT(IA, syncguard_extend(C, bad[i], NUL, 1000, NULL, &at, &err));
    EXPECT(IA, syncguard_lookup_by_id(C, bad[i], NUL, NULL, &info, &err));
    EXPECT(IA, syncguard_lookup_by_id_raw(C, bad[i], NUL, NULL, &raw, &err));
    EXPECT(IA, syncguard_owns(C, bad[i], NUL, &yes, &err));
  }
  EXPECT(OK, syncguard_validate_lock_id("AbcdefghijklmnopqrstuX and more", 22, &err));
  EXPECT(ABSENT, syncguard_release(C, ID, NUL, NULL, &err));
  EXPECT(ABSENT, syncguard_extend(C, ID, NUL, 1000, NULL, &at, &err));
}

/* 25, 26, 28. */
static void options_that_cannot_be(void) {
  syncguard_lock_options good = SYNCGUARD_LOCK_OPTIONS_INIT, bad[16];
  for (int i = 0; i < 16; i++) {
    bad[i] = good;
  }
  int n = 0;
  bad[n++].acquire_timeout_ms = -2;
  bad[n++].acquire_timeout_ms = INT64_MIN;
  bad[n++].heartbeat_ms = -2;
  bad[n++].heartbeat_ms = 30000;
  bad[n++].heartbeat_ms = INT64_MAX;
  bad[n++].max_hold_ms = -2;
  bad[n++].max_retries = -2;
  bad[n++].max_retries = INT32_MIN;
  bad[n++].backoff = 3;
  bad[n++].backoff = -1;
  bad[n++].jitter = 4;
  bad[n++].jitter = 99;
  bad[n++].jitter = INT32_MIN;
  for (int i = 0; i < n; i++) {
    syncguard_guard *g = (syncguard_guard *)&g;
    EXPECT(IA, syncguard_lock(C, "options", NUL, &bad[i], &g, &err));
    CHECK(g == NULL);
    EXPECT(IA, syncguard_try_lock(C, "options", NUL, &bad[i], &g, &err));
    CHECK(syncguard_retry_delay_ms(&bad[i], 1, 1000) == -1);
  }
  /* The largest values neither overflow nor fail. */
  syncguard_lock_options large = SYNCGUARD_LOCK_OPTIONS_INIT;
  syncguard_guard *g = NULL;
  large.acquire_timeout_ms = INT64_MAX;
  large.max_hold_ms = INT64_MAX;
  large.max_retries = INT32_MAX;
  large.retry_delay_ms = UINT32_MAX;
  EXPECT(OK, syncguard_lock(C, "options", NUL, &large, &g, &err));
  syncguard_guard_free(g);

  syncguard_client_options client = SYNCGUARD_CLIENT_OPTIONS_INIT;
  syncguard_client *c = (syncguard_client *)&c;
  client.cleanup_in_is_locked = 2;
  EXPECT(IA, syncguard_client_open(URL, NUL, &client, &c, &err));
  CHECK(c == NULL);
  client.cleanup_in_is_locked = 1;
  client.events_include_raw = -1;
  EXPECT(IA, syncguard_client_open(URL, NUL, &client, &c, &err));
  client.events_include_raw = 1;
  client.fences = 3;
  EXPECT(IA, syncguard_client_open(URL, NUL, &client, &c, &err));
  client.fences = -1;
  EXPECT(IA, syncguard_client_open(URL, NUL, &client, &c, &err));
  client.fences = SYNCGUARD_FENCES_COUNTER;
  client.pool_size = 1;
  EXPECT(IA, syncguard_client_open(URL, NUL, &client, &c, &err));
  client.pool_size = 2;
  client.key_prefix = "\xff";
  EXPECT(IA, syncguard_client_open(URL, NUL, &client, &c, &err));
  client.key_prefix = "app";
  client.connect_timeout_ms = client.operation_timeout_ms = client.dispose_timeout_ms = UINT32_MAX;
  EXPECT(OK, syncguard_client_open(URL, NUL, &client, &c, &err));
  bool yes;
  EXPECT(OK, syncguard_is_locked(c, "k", NUL, NULL, &yes, &err));
  syncguard_client_free(c);
}

/* 46. */
static void sizes_of_structs(void) {
  struct {
    syncguard_lock_options ours;
    char beyond[32];
  } newer = {SYNCGUARD_LOCK_OPTIONS_INIT, {0}};
  syncguard_guard *g = NULL;
  syncguard_client *c = NULL;
  size_t bad[] = {0, 1, 4, 7, 9, 12, sizeof newer.ours - 1, 4097, (size_t)-1, (size_t)PTRDIFF_MAX};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    syncguard_client_options client = SYNCGUARD_CLIENT_OPTIONS_INIT;
    newer.ours.struct_size = bad[i];
    EXPECT(IA, syncguard_lock(C, "size", NUL, &newer.ours, &g, &err));
    CHECK(syncguard_retry_delay_ms(&newer.ours, 1, 1000) == -1);
    client.struct_size = bad[i];
    EXPECT(IA, syncguard_client_open(URL, NUL, &client, &c, &err));
  }
  newer.ours.struct_size = sizeof newer;
  newer.beyond[31] = 1;
  EXPECT(IA, syncguard_lock(C, "size", NUL, &newer.ours, &g, &err));
  newer.beyond[31] = 0;
  EXPECT(OK, syncguard_lock(C, "size", NUL, &newer.ours, &g, &err));
  syncguard_guard_free(g);
}

/* 34, 35. */
static void urls_that_cannot_be(void) {
  const char *bad[] = {"", ":", "redis", "nosuch://hunter2:hunter2@h/", "hunter2@h:hunter2", "://hunter2", "redis://:hunter2@h:65536/",
                       "redis://:hunter2@h:port/", "redis://u:hunter2@h/notanumber", "postgres://u:hunter2@h:99999/db",
                       "redis://u:hunter2@h/?nosuch=hunter2", "postgres://u:hunter2@h/db?nosuch=hunter2", "sqlite:",
                       "redis://u:hunt%er2@h/", "mysql://u:hunter2@h/", "\xff", "sqlite:a%00b?hunter2"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    syncguard_client *c = (syncguard_client *)&c;
    syncguard_error *err = NULL;
    syncguard_status status = syncguard_client_open(bad[i], NUL, NULL, &c, &err);
    if (status == OK && strncmp(bad[i], "sqlite:a", 8) == 0) {
      syncguard_client_free(c); /* a strange but legal path */
      continue;
    }
    if (status != IA) {
      fprintf(stderr, "URL %s: %s\n", bad[i], syncguard_status_str(status));
    }
    CHECK(status == IA && c == NULL);
    if (strstr(syncguard_error_message(err), "hunter2") != NULL) {
      fprintf(stderr, "URL %s: %s\n", bad[i], syncguard_error_message(err));
    }
    CHECK(strstr(syncguard_error_message(err), "hunter2") == NULL && syncguard_error_key_hash(err) == NULL);
    syncguard_error_free(err);
  }
  syncguard_client *c = NULL;
  EXPECT(IA, syncguard_client_open("sqlite:a\0b", 10, NULL, &c, &err));
}

int main(int argc, char **argv) {
  BEGIN;
  C = open_client();
  RUN(null_for_every_pointer);
  RUN(null_for_every_pointer_of_the_verbs);
  RUN(lengths_that_cannot_be);
  RUN(keys_that_are_no_text);
  RUN(keys_that_are_too_long);
  RUN(keys_that_only_look_bad);
  RUN(ttls_that_cannot_be);
  RUN(tiny_ttls);
  RUN(lock_ids_that_are_none);
  RUN(options_that_cannot_be);
  RUN(sizes_of_structs);
  RUN(urls_that_cannot_be);
  syncguard_client_free(C);
  return 0;
}
