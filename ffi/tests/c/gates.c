/* Gates on every store: set-up, the fenced write, look and reset, the texts, and bad input. */
#include "check.h"

#define REFUSED SYNCGUARD_STATUS_REFUSED

static void the_fenced_write(void) {
  syncguard_client *c = open_client();
  EXPECT(OK, syncguard_client_setup_fence_gate(c, NULL, &err));
  EXPECT(OK, syncguard_client_setup_fence_gate(c, NULL, &err));
  uint64_t newest = 7;
  EXPECT(ABSENT, syncguard_gate_newest(c, "gates.c", NUL, NULL, &newest, &err));
  CHECK(newest == 7);
  if (strcmp(syncguard_client_backend(c), "redis") != 0) {
    EXPECT(IA, syncguard_fenced_set(c, "gates.c", NUL, "x", 1, 1, NULL, &err));
    EXPECT(ABSENT, syncguard_gate_reset(c, "gates.c", NUL, 1, NULL, &err));
    syncguard_client_free(c);
    return;
  }
  EXPECT(OK, syncguard_fenced_set(c, "gates.c", NUL, "one", 3, 33, NULL, &err));
  EXPECT(OK, syncguard_fenced_set(c, "gates.c", NUL, "", 0, 33, NULL, &err));
  EXPECT(OK, syncguard_fenced_set(c, "gates.c", 7, NULL, 0, 34, NULL, &err));
  EXPECT(REFUSED, syncguard_fenced_set(c, "gates.c", NUL, "late", 4, 33, NULL, &err));
  EXPECT(OK, syncguard_gate_newest(c, "gates.c", NUL, NULL, &newest, &err));
  CHECK(newest == 34);
  EXPECT(ABSENT, syncguard_gate_reset(c, "gates.c", NUL, 33, NULL, &err));
  EXPECT(OK, syncguard_gate_reset(c, "gates.c", NUL, 34, NULL, &err));
  EXPECT(OK, syncguard_fenced_set(c, "gates.c", NUL, "two", 3, 2, NULL, &err));
  EXPECT(OK, syncguard_gate_reset(c, "gates.c", NUL, 2, NULL, &err));
  syncguard_client_free(c);
}

/* A place that has no gate: each call says what to call. Redis needs no set-up. */
static void without_set_up(void) {
  syncguard_client *c = open_client();
  const char *backend = syncguard_client_backend(c);
  const int redis = strcmp(backend, "redis") == 0;
  char url[4096];
  snprintf(url, sizeof url, "%s%s", URL, strcmp(backend, "sqlite") == 0 ? "-without" : "");
  syncguard_client_options options = patient();
  options.schema = strcmp(backend, "postgres") == 0 ? "gates_c_without" : NULL;
  syncguard_client_free(c);
  EXPECT(OK, syncguard_client_open(url, NUL, &options, &c, &err));
  EXPECT(OK, syncguard_client_setup_schema(c, NULL, &err));
  uint64_t newest = 7;
  for (int call = 0; call < 2; call++) {
    syncguard_error *err = NULL;
    const syncguard_status said = call == 0 ? syncguard_gate_newest(c, "gates.c", NUL, NULL, &newest, &err)
                                            : syncguard_gate_reset(c, "gates.c", NUL, 34, NULL, &err);
    CHECK(said == (redis ? ABSENT : IA) && newest == 7);
    CHECK(redis || strstr(syncguard_error_message(err), "setup_fence_gate()") != NULL);
    syncguard_error_free(err);
  }
  syncguard_client_free(c);
}

static void bad_input(void) {
  syncguard_client *c = open_client();
  static char big[10000];
  uint64_t newest;
  memset(big, 'x', sizeof big);
  EXPECT(OK, syncguard_client_setup_fence_gate(c, NULL, &err));
  EXPECT(IA, syncguard_client_setup_fence_gate(NULL, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(NULL, "r", NUL, "x", 1, 1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, NULL, 1, "x", 1, 1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, "r", NUL, NULL, 1, 1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, "r", NUL, "x", SIZE_MAX, 1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, "r", SIZE_MAX - 1, "x", 1, 1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, "\xff", NUL, "x", 1, 1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, "", NUL, "x", 1, 1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, "a\0b", 3, "x", 1, 1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, big, sizeof big, "x", 1, 1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, "syncguard:account:7", NUL, "x", 1, 1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, "r:fence", NUL, "x", 1, 1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, "r", NUL, "x", 1, 0, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, "r", NUL, "x", 1, (uint64_t)-1, NULL, &err));
  EXPECT(IA, syncguard_fenced_set(c, "r", NUL, "x", 1, UINT64_C(900000000000001), NULL, &err));
  EXPECT(IA, syncguard_gate_newest(c, "r", NUL, NULL, NULL, &err));
  EXPECT(IA, syncguard_gate_newest(c, "", NUL, NULL, &newest, &err));
  EXPECT(IA, syncguard_gate_newest(c, big, sizeof big, NULL, &newest, &err));
  EXPECT(IA, syncguard_gate_newest(NULL, "r", NUL, NULL, &newest, &err));
  EXPECT(IA, syncguard_gate_reset(c, "", NUL, 1, NULL, &err));
  EXPECT(IA, syncguard_gate_reset(c, big, sizeof big, 1, NULL, &err));
  EXPECT(IA, syncguard_gate_reset(c, "a\0b", 3, 1, NULL, &err));
  EXPECT(IA, syncguard_gate_reset(c, "r", NUL, (uint64_t)-1, NULL, &err));
  EXPECT(IA, syncguard_gate_reset(NULL, "r", NUL, 1, NULL, &err));
  syncguard_cancel *cancel = syncguard_cancel_new();
  syncguard_cancel_trigger(cancel);
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_gate_newest(c, "r", NUL, cancel, &newest, &err));
  EXPECT(SYNCGUARD_STATUS_ABORTED, syncguard_client_setup_fence_gate(c, cancel, &err));
  syncguard_cancel_free(cancel);
  syncguard_client_free(c);
}

static void texts(void) {
  static const char *const words[] = {"SYNCGUARD_STALE", "redis.call('SET', KEYS[1], ARGV[1])", "syncguard_pass($1::pg_catalog.text",
                                      "FOR SHARE",       "CREATE TRIGGER",                      "ON CONFLICT",
                                      "SELECT fence",    "DELETE"};
  for (int32_t which = 1; which <= 8; which++) {
    CHECK(strstr(syncguard_gate_text(which), words[which - 1]) != NULL);
  }
  CHECK(syncguard_gate_text(0) == NULL && syncguard_gate_text(9) == NULL && syncguard_gate_text(-1) == NULL);
  CHECK(strcmp(syncguard_status_str(REFUSED), "refused") == 0);
}

/* The texts with a schema: the length first, then the text into as many bytes and one for the NUL. */
static void texts_of_a_schema(void) {
  static const struct {
    int32_t which;
    const char *word;
  } texts[] = {
      {SYNCGUARD_GATE_POSTGRES_PASS, "\"app\".\"syncguard_pass\"($1"},
      {SYNCGUARD_GATE_POSTGRES_SHARE, "\"app\".\"other_fences\""},
      {SYNCGUARD_GATE_POSTGRES_SETUP, "CREATE TABLE \"app\".\"syncguard_fence_gates\""},
      {SYNCGUARD_GATE_POSTGRES_NEWEST, "SELECT g.fence"},
      {SYNCGUARD_GATE_POSTGRES_RESET, "DELETE FROM \"app\""},
  };
  char text[8192];
  size_t length = 0, again = 0;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    EXPECT(OK, syncguard_gate_postgres_text(texts[i].which, "app", NUL, "other_fences", NULL, 0, &length, &err));
    CHECK(length > 0 && length < sizeof text);
    strcpy(text, "as before");
    EXPECT(OK, syncguard_gate_postgres_text(texts[i].which, "app", 3, "other_fences", text, length, &again, &err));
    CHECK(again == length && strcmp(text, "as before") == 0);
    memset(text, '#', sizeof text);
    EXPECT(OK, syncguard_gate_postgres_text(texts[i].which, "app", NUL, "other_fences", text, length + 1, NULL, &err));
    CHECK(strlen(text) == length && text[length + 1] == '#' && strstr(text, texts[i].word) != NULL);
  }
  EXPECT(OK, syncguard_gate_postgres_text(SYNCGUARD_GATE_POSTGRES_SHARE, "app", NUL, NULL, text, sizeof text, NULL, &err));
  CHECK(strstr(text, "syncguard_fence_counters") != NULL);
  const int32_t pass = SYNCGUARD_GATE_POSTGRES_PASS;
  EXPECT(IA, syncguard_gate_postgres_text(pass, NULL, 0, NULL, text, sizeof text, &length, &err));
  EXPECT(IA, syncguard_gate_postgres_text(pass, "", NUL, NULL, text, sizeof text, &length, &err));
  EXPECT(IA, syncguard_gate_postgres_text(pass, "no name", NUL, NULL, text, sizeof text, &length, &err));
  EXPECT(IA, syncguard_gate_postgres_text(pass, "app", SIZE_MAX - 1, NULL, text, sizeof text, &length, &err));
  EXPECT(IA, syncguard_gate_postgres_text(pass, "app", NUL, "no name", text, sizeof text, &length, &err));
  EXPECT(IA, syncguard_gate_postgres_text(pass, "app", NUL, NULL, NULL, 1, &length, &err));
  EXPECT(IA, syncguard_gate_postgres_text(pass, "app", NUL, NULL, text, SIZE_MAX, &length, &err));
  EXPECT(IA, syncguard_gate_postgres_text(0, "app", NUL, NULL, text, sizeof text, &length, &err));
  EXPECT(IA, syncguard_gate_postgres_text(SYNCGUARD_GATE_SQLITE_PASS, "app", NUL, NULL, text, sizeof text, &length, &err));
}

static void fences_of_a_clock(void) {
  syncguard_client_options options = SYNCGUARD_CLIENT_OPTIONS_INIT;
  options.fences = SYNCGUARD_FENCES_CLOCK;
  syncguard_client *c = NULL;
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &c, &err));
  EXPECT(OK, syncguard_client_setup_schema(c, NULL, &err));
  syncguard_guard *one = lock(c, "gates.c by clock");
  uint64_t first = syncguard_guard_fence_number(one);
  CHECK(first > UINT64_C(1700000000000));
  syncguard_guard_free(one);
  one = lock(c, "gates.c by clock");
  CHECK(syncguard_guard_fence_number(one) > first);
  syncguard_guard_free(one);
  syncguard_client_free(c);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(the_fenced_write);
  RUN(without_set_up);
  RUN(bad_input);
  RUN(texts);
  RUN(texts_of_a_schema);
  RUN(fences_of_a_clock);
  return 0;
}
