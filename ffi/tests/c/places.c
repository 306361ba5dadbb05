/* Where locks live: prefixes in Redis, tables in Postgres, and URLs. Numbers are rows of the list of bad inputs. */
#include "check.h"

static int on(const char *backend) { return strncmp(URL, backend, strlen(backend)) == 0; }

static syncguard_client *with_prefix(const char *prefix) {
  syncguard_client_options options = patient();
  syncguard_client *client = NULL;
  options.key_prefix = prefix;
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  return client;
}

/* Whether a key under one prefix and a key under another one are the same lock. */
static bool same_lock(const char *prefix, const char *key, const char *other_prefix, const char *other_key) {
  syncguard_client *one = with_prefix(prefix), *other = with_prefix(other_prefix);
  syncguard_guard *held = lock(one, key), *second = NULL;
  syncguard_status status = syncguard_try_lock(other, other_key, NUL, NULL, &second, NULL);
  CHECK(status == OK || status == LOCKED);
  syncguard_guard_free(second);
  syncguard_guard_free(held);
  syncguard_client_free(one);
  syncguard_client_free(other);
  return status == LOCKED;
}

/* 29. A NUL ends a text in C: there is no prefix with one in it. */
static void prefixes(void) {
  char prefix[1001];
  if (!on("redis")) {
    return;
  }
  memset(prefix, 'p', 1000);
  prefix[1000] = 0;
  const char *bad[] = {"fence", "a:fence", "fence:a", "id", "a:id:", "\xff", "\xed\xa0\x80", prefix};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    syncguard_client_options options = patient();
    syncguard_client *client = (syncguard_client *)&client;
    options.key_prefix = bad[i];
    EXPECT(IA, syncguard_client_open(URL, NUL, &options, &client, &err));
    CHECK(client == NULL);
  }
  /* Trailing colons do not count, and NULL is the default. */
  CHECK(same_lock("", "k", ":::", "k") && same_lock("a", "k", "a:", "k") && same_lock("a:", "k", "a::", "k"));
  CHECK(same_lock(NULL, "k", "syncguard", "k"));
  CHECK(!same_lock("", "k", "a", "k") && !same_lock("a", "k", "{}", "k") && !same_lock("a", "k", "A", "k"));
  prefix[900] = 0;
  CHECK(!same_lock(prefix, "k", prefix + 1, "k"));
  char key[513];
  memset(key, 'k', 512);
  key[512] = 0;
  CHECK(!same_lock(prefix, key, prefix, "k"));
}

/* 30: prefixes that nest name the same place. The header says that they must not. */
static void prefixes_that_nest(void) {
  if (on("redis")) {
    CHECK(same_lock("app", "x:foo", "app:x", "foo"));
    CHECK(!same_lock("app", "foo", "app:x", "foo"));
  }
}

/* 10: what is stored under one name has one holder: a key that is the hash of a longer one shares its lock. */
static void a_key_that_is_the_hash_of_another(void) {
  syncguard_client *client = NULL;
  syncguard_guard *held, *second = NULL;
  syncguard_lock_info_raw raw;
  char prefix[701], key[513];
  memset(prefix, 'p', 700);
  memset(key, 'k', 512);
  prefix[700] = key[512] = 0;
  client = on("redis") ? with_prefix(prefix) : open_client();
  held = lock(client, key);
  EXPECT(OK, syncguard_lookup_by_key_raw(client, key, NUL, NULL, &raw, &err));
  CHECK(strcmp(raw.key, key) == 0);
  /* What the long key is stored as, told by the test around this one. */
  const char *hash = getenv("HASH_OF_512_KS");
  if (hash != NULL) {
    EXPECT(LOCKED, syncguard_try_lock(client, hash, NUL, NULL, &second, &err));
  }
  key[511] = 0;
  EXPECT(OK, syncguard_try_lock(client, key, NUL, NULL, &second, &err));
  syncguard_guard_free(second);
  syncguard_guard_free(held);
  syncguard_client_free(client);
}

static syncguard_status open_tables(const char *table, const char *fences, syncguard_client **client) {
  syncguard_client_options options = patient();
  syncguard_error *err = NULL;
  options.table_name = table;
  options.fence_table_name = fences;
  *client = (syncguard_client *)client;
  syncguard_status status = syncguard_client_open(URL, NUL, &options, client, &err);
  CHECK((status == OK) == (*client != NULL));
  CHECK(status == OK || strstr(syncguard_error_message(err), "table_name") != NULL);
  check_error_(status, err);
  syncguard_error_free(err);
  return status;
}

/* 31: refused, or exactly that quoted table in the setup and in use. */
static void table_names(void) {
  char longest[65];
  syncguard_client *client;
  memset(longest, 't', 64);
  longest[64] = 0;
  if (!on("postgres")) {
    return;
  }
  const char *bad[] = {"", "a.b.c", "a\"b", "a;b", "tabl\xc3\xa9", "1a", "a b", longest};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    CHECK(open_tables(bad[i], "f", &client) == IA && open_tables("l", bad[i], &client) == IA);
  }
  longest[51] = 0;
  const char *good[][2] = {{"order", "select"}, {"MyLocks", "MyFences"}, {"mylocks", "myfences"}, {longest, "f"}};
  syncguard_client *clients[4];
  syncguard_guard *guards[4];
  for (int i = 0; i < 4; i++) {
    syncguard_guard *unset = NULL;
    CHECK(open_tables(good[i][0], good[i][1], &clients[i]) == OK);
    EXPECT(IA, syncguard_try_lock(clients[i], "k", NUL, NULL, &unset, &err));
    EXPECT(OK, syncguard_client_setup_schema(clients[i], NULL, &err));
    EXPECT(OK, syncguard_client_check(clients[i], NULL, &err));
    guards[i] = lock(clients[i], "k");
    CHECK(strcmp(syncguard_guard_fence(guards[i]), "000000000000001") == 0);
  }
  for (int i = 0; i < 4; i++) {
    EXPECT(OK, syncguard_guard_release(guards[i], NULL, &err));
    syncguard_guard_free(guards[i]);
    syncguard_client_free(clients[i]);
  }
}

/* 32. */
static void one_table_for_two_purposes(void) {
  syncguard_client *client;
  if (on("postgres")) {
    CHECK(open_tables("t", "t", &client) == IA && open_tables("Locks", "lOCKS", &client) == IA);
    CHECK(open_tables("Syncguard_Fence_Counters", NULL, &client) == IA);
    CHECK(open_tables(NULL, "SYNCGUARD_locks", &client) == IA);
  }
}

/* 34: what is wrong is named, and never with the password. */
static void an_unknown_option_is_named(void) {
  const char *urls[] = {"redis://u:hunter2@h/?nonsense=1", "postgres://u:hunter2@h/db?nonsense=1"};
  for (int i = 0; i < 2; i++) {
    syncguard_client *client = NULL;
    syncguard_error *err = NULL;
    CHECK(syncguard_client_open(urls[i], NUL, NULL, &client, &err) == IA && client == NULL);
    CHECK(strstr(syncguard_error_message(err), "nonsense") != NULL && strstr(syncguard_error_message(err), "hunter2") == NULL);
    syncguard_error_free(err);
  }
  syncguard_client *client = NULL;
  EXPECT(IA, syncguard_client_open("sqlite:/a?nonsense=1", NUL, NULL, &client, &err));
}

/* 35: parsed right, or refused without the password. Opening does no I/O. */
static void percent_signs_at_signs_ipv6_and_sockets(void) {
  const char *bad[] = {"sqlite:/a%00b", "sqlite:/a%", "sqlite:/a%zz", "redis://:hunter2%00@host", "redis://:hunter2%@host",
                       "redis://:hunter2@[::1", "redis://:hunter2@[::1]x:1", "postgres://me:hunter2%zz@host/db",
                       "postgres://me:hunter2%00@host/db"};
  const char *good[] = {"sqlite:/a%20b/100%25@c", "sqlite:///a/b", "redis://user:p%40ss%2F@host:6379/3", "redis://user:p@ss@host",
                        "redis://[::1]:6379", "redis+unix:///tmp/redis.sock?db=1", "postgres://me:p%40ss@host/db",
                        "postgres://me@[::1]:5432/db", "postgres:///db?host=/var/run/postgresql&user=me"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    syncguard_client *client = NULL;
    syncguard_error *err = NULL;
    CHECK(syncguard_client_open(bad[i], NUL, NULL, &client, &err) == IA && client == NULL);
    CHECK(strstr(syncguard_error_message(err), "hunter2") == NULL);
    syncguard_error_free(err);
  }
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    syncguard_client *client = NULL;
    EXPECT(OK, syncguard_client_open(good[i], NUL, NULL, &client, &err));
    syncguard_client_free(client);
  }
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(prefixes);
  RUN(prefixes_that_nest);
  RUN(a_key_that_is_the_hash_of_another);
  RUN(table_names);
  RUN(one_table_for_two_purposes);
  RUN(an_unknown_option_is_named);
  RUN(percent_signs_at_signs_ipv6_and_sockets);
  return 0;
}
