/* What a C program sees of a store that refuses, lies or hangs: PROGRAM URL WORD...
 * The test around it makes the trouble. The words are obeyed in their order; those that name a status may name several, with '|'.
 *   prefix=T schema=T table=T fence_table=T ca=FILE timeout=MS   options of the client, before `open`
 *   key=T says=T hides=T      the key to use; what every error from here on must say; what none may
 *   open=S setup=S check=S    what these must answer
 *   raw=S                     what the look at the raw key must answer; it must not have written anything then
 *   writes=S reads=S          what every call that takes or changes a lock, or only looks, must answer
 *   works                     a whole life of a lock
 *   tries=S                   what one attempt must answer; what it was granted is given back
 *   free held warned=T        the key is free; it is held; a warning with this text has come */
#include "check.h"

#include <pthread.h>

static syncguard_client_options options;
static syncguard_client *C;
static const char *KEY = "k", *SAYS = "", *HIDES;
static long timeout = 60000;

static pthread_mutex_t M = PTHREAD_MUTEX_INITIALIZER;
static char warnings[8192];

static void on_warning(void *data, const char *message) {
  (void)data;
  pthread_mutex_lock(&M);
  strncat(warnings, message, sizeof warnings - strlen(warnings) - 1);
  pthread_mutex_unlock(&M);
}

static int warned(const char *text) {
  pthread_mutex_lock(&M);
  int found = strstr(warnings, text) != NULL;
  pthread_mutex_unlock(&M);
  return found;
}

/* Whether `status` is named in `wanted`, which is one name or several with '|' between them. */
static int named(const char *wanted, syncguard_status status) {
  const char *name = syncguard_status_str(status), *at = wanted;
  size_t len = strlen(name);
  for (;;) {
    if (strncmp(at, name, len) == 0 && (at[len] == 0 || at[len] == '|')) {
      return 1;
    }
    at = strchr(at, '|');
    if (at == NULL) {
      return 0;
    }
    at++;
  }
}

/* One call must have answered as wanted, with an error that says what it should and hides the rest, and must not have hung. */
static void answered(const char *what, const char *wanted, syncguard_status got, syncguard_error *err, int64_t begun) {
  const char *message = err ? syncguard_error_message(err) : "";
  int good = named(wanted, got) && (got < 0) == (err != NULL) && (got >= 0 || strstr(message, SAYS) != NULL) &&
             (HIDES == NULL || strstr(message, HIDES) == NULL);
  if (!good || getenv("VERBOSE")) {
    fprintf(stderr, "%s: wanted %s and \"%s\", got %s: %s\n", what, wanted, SAYS, syncguard_status_str(got), message);
  }
  CHECK(good);
  /* How exactly the deadline is kept is measured elsewhere; a busy machine gets twenty seconds. */
  CHECK(now_ms() - begun < timeout + 20000);
  syncguard_error_free(err);
}

#define ASK(wanted, call)                                  \
  do {                                                     \
    syncguard_error *err = NULL;                           \
    int64_t begun_ = now_ms();                             \
    syncguard_status got_ = (call);                        \
    answered(#call, wanted, got_, err, begun_);            \
  } while (0)

static void open_it(const char *wanted) {
  options.connect_timeout_ms = options.operation_timeout_ms = (uint32_t)timeout;
  options.on_warning = on_warning;
  C = (syncguard_client *)&C;
  ASK(wanted, syncguard_client_open(URL, NUL, &options, &C, &err));
  CHECK((C == NULL) != named(wanted, OK));
}

static void writes(const char *wanted) {
  const char *id = "AAAAAAAAAAAAAAAAAAAAAA";
  syncguard_lock_options once = SYNCGUARD_LOCK_OPTIONS_INIT;
  syncguard_guard *g = (syncguard_guard *)&g;
  syncguard_acquired a;
  int64_t at;
  memset(&a, 0, sizeof a);
  once.acquire_timeout_ms = timeout;
  once.retry_delay_ms = 20;
  ASK(wanted, syncguard_try_lock(C, KEY, NUL, NULL, &g, &err));
  CHECK(g == NULL);
  ASK(wanted, syncguard_lock(C, KEY, NUL, &once, &g, &err));
  CHECK(g == NULL);
  ASK(wanted, syncguard_acquire(C, KEY, NUL, 1000, NULL, &a, &err));
  /* Filled in before anything is sent, unless the arguments alone were enough to refuse. */
  CHECK((strlen(a.lock_id) == 22 || named(wanted, IA)) && a.fence[0] == 0);
  /* There is no such lock: a store that is asked may also say just that. */
  char or_absent[256];
  snprintf(or_absent, sizeof or_absent, "%s|%s", wanted, syncguard_status_str(ABSENT));
  ASK(or_absent, syncguard_release(C, id, NUL, NULL, &err));
  ASK(or_absent, syncguard_extend(C, id, NUL, 1000, NULL, &at, &err));
}

static void reads(const char *wanted) {
  const char *id = "AAAAAAAAAAAAAAAAAAAAAA";
  syncguard_lock_info info;
  syncguard_lock_info_raw raw;
  bool yes;
  ASK(wanted, syncguard_is_locked(C, KEY, NUL, NULL, &yes, &err));
  ASK(wanted, syncguard_lookup_by_key(C, KEY, NUL, NULL, &info, &err));
  ASK(wanted, syncguard_lookup_by_key_raw(C, KEY, NUL, NULL, &raw, &err));
  ASK(wanted, syncguard_lookup_by_id(C, id, NUL, NULL, &info, &err));
  ASK(wanted, syncguard_lookup_by_id_raw(C, id, NUL, NULL, &raw, &err));
  ASK(wanted, syncguard_owns(C, id, NUL, &yes, &err));
}

static void works(void) {
  syncguard_guard *g = NULL, *second = NULL;
  syncguard_lock_info_raw raw;
  char fence[16];
  bool yes = false;
  ASK("ok", syncguard_lock(C, KEY, NUL, NULL, &g, &err));
  CHECK(strcmp(syncguard_guard_key(g), KEY) == 0 && strlen(syncguard_guard_fence(g)) == 15);
  CHECK(syncguard_guard_remaining_ms(g) > 0 && syncguard_guard_remaining_ms(g) <= 30000);
  ASK("locked", syncguard_try_lock(C, KEY, NUL, NULL, &second, &err));
  ASK("ok", syncguard_is_locked(C, KEY, NUL, NULL, &yes, &err));
  CHECK(yes);
  ASK("ok", syncguard_lookup_by_key_raw(C, KEY, NUL, NULL, &raw, &err));
  CHECK(strcmp(raw.key, KEY) == 0 && strcmp(raw.lock_id, syncguard_guard_lock_id(g)) == 0);
  ASK("ok", syncguard_guard_extend(g, 20000, NULL, &err));
  CHECK(!syncguard_guard_is_lost(g));
  strcpy(fence, syncguard_guard_fence(g));
  ASK("ok", syncguard_guard_release(g, NULL, &err));
  syncguard_guard_free(g);
  ASK("ok", syncguard_try_lock(C, KEY, NUL, NULL, &g, &err));
  CHECK(strcmp(syncguard_guard_fence(g), fence) > 0);
  ASK("ok", syncguard_guard_release(g, NULL, &err));
  syncguard_guard_free(g);
}

static void tries(const char *wanted) {
  syncguard_guard *g = NULL;
  ASK(wanted, syncguard_try_lock(C, KEY, NUL, NULL, &g, &err));
  syncguard_guard_free(g);
}

static void looks_raw(const char *wanted) {
  syncguard_lock_info_raw raw;
  memset(&raw, 0x5a, sizeof raw);
  ASK(wanted, syncguard_lookup_by_key_raw(C, KEY, NUL, NULL, &raw, &err));
  CHECK(named(wanted, OK) || raw.key[0] == 0x5a);
}

static void is(bool wanted) {
  bool locked = !wanted;
  ASK("ok", syncguard_is_locked(C, KEY, NUL, NULL, &locked, &err));
  CHECK(locked == wanted);
}

/* What a server promises it is not given: two gigabytes, or a million levels, cost next to nothing. */
static void little_memory(void) {
  char line[128];
  long peak = -1;
  FILE *f = fopen("/proc/self/status", "r");
  CHECK(f != NULL);
  while (fgets(line, sizeof line, f) != NULL) {
    sscanf(line, "VmHWM: %ld", &peak);
  }
  fclose(f);
  CHECK(peak > 0 && peak < 400000);
}

static const char *after(const char *word, const char *name) {
  size_t len = strlen(name);
  return strncmp(word, name, len) == 0 && word[len] == '=' ? word + len + 1 : NULL;
}

static void obey(const char *word) {
  const char *v;
  if ((v = after(word, "prefix"))) {
    options.key_prefix = v;
  } else if ((v = after(word, "schema"))) {
    options.schema = v;
  } else if ((v = after(word, "table"))) {
    options.table_name = v;
  } else if ((v = after(word, "fence_table"))) {
    options.fence_table_name = v;
  } else if ((v = after(word, "ca"))) {
    options.tls_ca_file = v;
  } else if ((v = after(word, "client_cert"))) {
    options.tls_client_cert_file = v;
  } else if ((v = after(word, "client_key"))) {
    options.tls_client_key_file = v;
  } else if ((v = after(word, "timeout"))) {
    timeout = atol(v);
  } else if ((v = after(word, "key"))) {
    KEY = v;
  } else if ((v = after(word, "says"))) {
    SAYS = v;
  } else if ((v = after(word, "hides"))) {
    HIDES = v;
  } else if ((v = after(word, "open"))) {
    open_it(v);
  } else if ((v = after(word, "setup"))) {
    ASK(v, syncguard_client_setup_schema(C, NULL, &err));
  } else if ((v = after(word, "check"))) {
    ASK(v, syncguard_client_check(C, NULL, &err));
  } else if ((v = after(word, "writes"))) {
    writes(v);
  } else if ((v = after(word, "reads"))) {
    reads(v);
  } else if ((v = after(word, "raw"))) {
    looks_raw(v);
  } else if ((v = after(word, "tries"))) {
    tries(v);
  } else if ((v = after(word, "warned"))) {
    EVENTUALLY(warned(v));
  } else if (strcmp(word, "works") == 0) {
    works();
  } else if (strcmp(word, "free") == 0 || strcmp(word, "held") == 0) {
    is(word[0] == 'h');
  } else {
    fprintf(stderr, "no such word: %s\n", word);
    _exit(2);
  }
}

int main(int argc, char **argv) {
  BEGIN;
  options = patient();
  for (int i = 2; i < argc; i++) {
    obey(argv[i]);
  }
  little_memory();
  syncguard_client_free(C);
  return 0;
}
