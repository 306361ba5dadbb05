/* Callbacks: when they come, what they may do, and that every user_data is finalized exactly once. */
#include "check.h"

#include <pthread.h>
#include <sys/stat.h>

/* What a callback saw, and how often its data was finalized. */
struct seen {
  int lost, errors, events, warnings, freed;
  int frees_guard, frees_client, sleeps, calls_in;
  syncguard_guard *guard;
  syncguard_client *client;
  char key[64], lock_id[32], source[16];
  char text[512];
};

static pthread_mutex_t M = PTHREAD_MUTEX_INITIALIZER;

static int read_int(int *what) {
  pthread_mutex_lock(&M);
  int value = *what;
  pthread_mutex_unlock(&M);
  return value;
}

static syncguard_guard *guard_of(struct seen *seen) {
  pthread_mutex_lock(&M);
  syncguard_guard *guard = seen->guard;
  pthread_mutex_unlock(&M);
  return guard;
}

static void add(int *what) {
  pthread_mutex_lock(&M);
  ++*what;
  pthread_mutex_unlock(&M);
}

/* More than a small thread has: callbacks and finalizers run on ordinary stacks. */
static void use_stack(void) {
  volatile char large[1 << 20];
  for (size_t i = 0; i < sizeof large; i += 512) {
    large[i] = (char)i;
  }
  CHECK(large[512] == 0);
}

static void finalize(void *data) {
  use_stack();
  if (data != NULL) {
    add(&((struct seen *)data)->freed);
  }
}

static int null_finalized;

static void finalize_null(void *data) {
  CHECK(data == NULL);
  add(&null_finalized);
}

static void on_lost(void *data, const syncguard_error *why) {
  use_stack();
  struct seen *seen = data;
  CHECK(syncguard_error_status(why) < 0 && strlen(syncguard_error_message(why)) > 5);
  CHECK(strlen(syncguard_error_key_hash(why)) == 24);
  if (seen->sleeps) {
    pause_ms(seen->sleeps);
  }
  if (seen->calls_in || seen->frees_guard) {
    /* It may come before the lock has returned. */
    EVENTUALLY(guard_of(seen) != NULL);
  }
  if (seen->calls_in) {
    syncguard_guard *other = lock(seen->client, "from inside");
    syncguard_guard_free(other);
    CHECK(syncguard_guard_is_lost(seen->guard));
    CHECK(syncguard_guard_release(seen->guard, NULL, NULL) >= 0);
  }
  if (seen->frees_guard) {
    syncguard_guard_free(seen->guard);
  }
  if (seen->frees_client) {
    syncguard_client_free(seen->client);
  }
  add(&seen->lost);
}

static syncguard_lock_options lost_soon(struct seen *seen) {
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.ttl_ms = 150;
  options.heartbeat_ms = SYNCGUARD_FOREVER;
  options.on_lost = on_lost;
  options.user_data = seen;
  options.user_data_free = finalize;
  return options;
}

static void lost_once(struct seen *seen, const char *key) {
  syncguard_lock_options options = lost_soon(seen);
  syncguard_guard *guard = NULL;
  EXPECT(OK, syncguard_lock(seen->client, key, NUL, &options, &guard, &err));
  pthread_mutex_lock(&M);
  seen->guard = guard;
  pthread_mutex_unlock(&M);
  EVENTUALLY(read_int(&seen->lost) == 1);
}

static void lost_is_told_once(void) {
  struct seen seen = {0};
  seen.client = open_client();
  lost_once(&seen, "once");
  CHECK(read_int(&seen.freed) == 0);
  for (int i = 0; i < 3; i++) {
    CHECK(syncguard_guard_is_lost(seen.guard));
    CHECK(syncguard_guard_extend(seen.guard, 1000, NULL, NULL) == ABSENT);
  }
  syncguard_guard_free(seen.guard);
  EVENTUALLY(read_int(&seen.freed) == 1);
  CHECK(read_int(&seen.lost) == 1);
  syncguard_client_free(seen.client);
}

static void not_told_after_a_release(void) {
  struct seen seen = {0};
  seen.client = open_client();
  syncguard_lock_options options = lost_soon(&seen);
  EXPECT(OK, syncguard_lock(seen.client, "released", NUL, &options, &seen.guard, &err));
  CHECK(syncguard_guard_release(seen.guard, NULL, NULL) >= 0);
  int lost = read_int(&seen.lost);
  pause_ms(300);
  CHECK(read_int(&seen.lost) == lost);
  syncguard_guard_free(seen.guard);
  EVENTUALLY(read_int(&seen.freed) == 1);
  syncguard_client_free(seen.client);
}

/* 47: a callback that frees its own guard and the client. */
static void a_callback_may_free_its_handles(void) {
  struct seen seen = {0};
  seen.client = open_client();
  seen.frees_guard = seen.frees_client = 1;
  lost_once(&seen, "frees");
  EVENTUALLY(read_int(&seen.freed) == 1);
}

/* 47: one that calls back in. */
static void a_callback_may_call_back_in(void) {
  struct seen seen = {0};
  seen.client = open_client();
  seen.calls_in = 1;
  lost_once(&seen, "calls");
  syncguard_guard_free(seen.guard);
  EVENTUALLY(read_int(&seen.freed) == 1);
  syncguard_client_free(seen.client);
}

/* 47: one that sleeps delays no other guard's loss, and is waited for, bounded, by its guard's free. */
static void a_callback_may_sleep(void) {
  struct seen slow = {0}, quick = {0};
  slow.client = quick.client = open_client();
  slow.sleeps = 3000;
  syncguard_lock_options options = lost_soon(&slow);
  EXPECT(OK, syncguard_lock(slow.client, "slow", NUL, &options, &slow.guard, &err));
  CHECK(syncguard_guard_wait_lost(slow.guard, 60000));
  options = lost_soon(&quick);
  EXPECT(OK, syncguard_lock(quick.client, "quick", NUL, &options, &quick.guard, &err));
  EVENTUALLY(read_int(&quick.lost) == 1);
  syncguard_guard_free(slow.guard);
  syncguard_guard_free(quick.guard);
  EVENTUALLY(read_int(&slow.lost) == 1);
  EVENTUALLY(read_int(&slow.freed) == 1 && read_int(&quick.freed) == 1);
  syncguard_client_free(slow.client);
}

/* The finalizer runs once on every path, whatever the status. */
static void data_is_finalized_on_every_path(void) {
  struct seen s = {0};
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "held"), *g = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  int n = 0;
  options.user_data = &s;
  options.user_data_free = finalize;
  options.acquire_timeout_ms = 5;

#define FINALIZED(wanted, call)            \
  EXPECT(wanted, call);                    \
  n++;                                     \
  EVENTUALLY(read_int(&s.freed) == n)

  FINALIZED(LOCKED, syncguard_try_lock(client, "held", NUL, &options, &g, &err));
  FINALIZED(SYNCGUARD_STATUS_ACQUISITION_TIMEOUT, syncguard_lock(client, "held", NUL, &options, &g, &err));
  FINALIZED(IA, syncguard_lock(NULL, "k", NUL, &options, &g, &err));
  FINALIZED(IA, syncguard_lock(client, NULL, NUL, &options, &g, &err));
  FINALIZED(IA, syncguard_lock(client, "", 0, &options, &g, &err));
  FINALIZED(IA, syncguard_lock(client, "k", (size_t)-2, &options, &g, &err));
  FINALIZED(IA, syncguard_lock(client, "k", NUL, &options, NULL, &err));
  FINALIZED(IA, syncguard_try_lock(client, "\xff", NUL, &options, &g, &err));
  options.jitter = 99;
  FINALIZED(IA, syncguard_lock(client, "k", NUL, &options, &g, &err));
  options.jitter = 0;
  syncguard_cancel *cancel = syncguard_cancel_new();
  syncguard_cancel_trigger(cancel);
  options.cancel = cancel;
  options.on_lost = on_lost;
  FINALIZED(SYNCGUARD_STATUS_ABORTED, syncguard_lock(client, "k", NUL, &options, &g, &err));
  options.cancel = NULL;
  syncguard_cancel_free(cancel);
  EXPECT(OK, syncguard_lock(client, "k", NUL, &options, &g, &err));
  CHECK(read_int(&s.freed) == n);
  syncguard_guard_free(g);
  n++;
  EVENTUALLY(read_int(&s.freed) == n);
  /* A newer struct with a field that we do not know is refused, but what it handed over was ours. */
  struct {
    syncguard_lock_options ours;
    char beyond[8];
  } newer = {SYNCGUARD_LOCK_OPTIONS_INIT, {1}};
  newer.ours = options;
  newer.ours.struct_size = sizeof newer;
  FINALIZED(IA, syncguard_lock(client, "k", NUL, &newer.ours, &g, &err));
  /* Where the struct has no valid size, nothing in it is believed. */
  options.struct_size = 0;
  EXPECT(IA, syncguard_lock(client, "k", NUL, &options, &g, &err));
  /* The helpers take nothing over. */
  options.struct_size = sizeof options;
  CHECK(syncguard_retry_delay_ms(&options, 1, 1000) > 0);
  syncguard_lock_options_resolve(&options);
  CHECK(read_int(&s.freed) == n);
  /* NULL is data too. */
  syncguard_lock_options null_data = SYNCGUARD_LOCK_OPTIONS_INIT;
  null_data.user_data_free = finalize_null;
  EXPECT(LOCKED, syncguard_try_lock(client, "held", NUL, &null_data, &g, &err));
  CHECK(read_int(&null_finalized) == 1);

  syncguard_guard_free(held);
  syncguard_client_free(client);
  pause_ms(50);
  CHECK(read_int(&s.freed) == n);
}

/* And so does the client's. */
static void data_of_a_client_is_finalized_on_every_path(void) {
  struct seen s = {0};
  syncguard_guard *g = NULL;
  int n = 0;
  syncguard_client_options copts = patient();
  syncguard_client *c = NULL;
  copts.user_data = &s;
  copts.user_data_free = finalize;
  FINALIZED(IA, syncguard_client_open("nosuch://", NUL, &copts, &c, &err));
  FINALIZED(IA, syncguard_client_open(NULL, 0, &copts, &c, &err));
  FINALIZED(IA, syncguard_client_open(URL, NUL, &copts, NULL, &err));
  copts.cleanup_in_is_locked = 7;
  FINALIZED(IA, syncguard_client_open(URL, NUL, &copts, &c, &err));
  copts.cleanup_in_is_locked = 0;
  EXPECT(OK, syncguard_client_open(URL, NUL, &copts, &c, &err));
  g = lock(c, "client's");
  syncguard_client_free(c);
  syncguard_guard_free(g);
  n++;
  EVENTUALLY(read_int(&s.freed) == n);
  pause_ms(50);
  CHECK(read_int(&s.freed) == n);
}

static void on_event(void *data, const syncguard_event *event) {
  use_stack();
  struct seen *seen = data;
  char line[256];
  CHECK(event->struct_size == sizeof *event && event->duration_us >= 0);
  CHECK(event->key == NULL || strcmp(event->key, "told") == 0);
  snprintf(line, sizeof line, "%d%c%s%s%s%s;", (int)event->type, event->ok ? '+' : '-', event->reason ? event->reason : "",
           event->key_hash ? "k" : "", event->lock_id_hash ? "i" : "", event->key ? "K" : event->lock_id ? "I" : "");
  pthread_mutex_lock(&M);
  strcat(seen->text, line);
  seen->events++;
  pthread_mutex_unlock(&M);
}

static void events_tell_everything(int raw, const char *wanted) {
  struct seen seen = {0};
  syncguard_client_options options = patient();
  syncguard_client *client = NULL;
  syncguard_acquired a, b;
  syncguard_lock_info info;
  bool yes;
  int64_t at;
  options.on_event = on_event;
  options.events_include_raw = raw;
  options.user_data = &seen;
  options.user_data_free = finalize;
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  EXPECT(OK, syncguard_acquire(client, "told", NUL, 30000, NULL, &a, &err));
  EXPECT(LOCKED, syncguard_acquire(client, "told", NUL, 30000, NULL, &b, &err));
  EXPECT(OK, syncguard_extend(client, a.lock_id, NUL, 30000, NULL, &at, &err));
  EXPECT(OK, syncguard_is_locked(client, "told", NUL, NULL, &yes, &err));
  EXPECT(OK, syncguard_lookup_by_key(client, "told", NUL, NULL, &info, &err));
  EXPECT(OK, syncguard_release(client, a.lock_id, NUL, NULL, &err));
  EXPECT(ABSENT, syncguard_release(client, a.lock_id, NUL, NULL, &err));
  EVENTUALLY(read_int(&seen.events) == 7);
  CHECK(strcmp(seen.text, wanted) == 0);
  syncguard_client_free(client);
  EVENTUALLY(read_int(&seen.freed) == 1);
}

static void events(void) {
  events_tell_everything(0, "0+ki;0-lockedki;2+i;3+k;4+k;1+i;1-not-foundi;");
  events_tell_everything(1, "0+kiK;0-lockedkiK;2+iI;3+kK;4+kK;1+iI;1-not-foundiI;");
}

static void on_release_error(void *data, const syncguard_error *err, const char *key, const char *lock_id, const char *source) {
  use_stack();
  struct seen *seen = data;
  CHECK(syncguard_error_status(err) < 0);
  CHECK(strstr(syncguard_error_message(err), lock_id) == NULL);
  snprintf(seen->key, sizeof seen->key, "%s", key);
  snprintf(seen->lock_id, sizeof seen->lock_id, "%s", lock_id);
  snprintf(seen->source, sizeof seen->source, "%s", source);
  add(&seen->errors);
}

/* A release that fails in free goes to the guard's hook, else to the client's; both may outlive their handles. */
static void failed_releases_are_told(void) {
  if (strncmp(URL, "sqlite:", 7) != 0) {
    return; /* the store is broken by replacing its file */
  }
  for (int own = 0; own < 2; own++) {
    struct seen of_client = {0}, of_guard = {0};
    char url[512], moved[600], lock_id[23];
    snprintf(url, sizeof url, "%s.broken%d", URL, own);
    snprintf(moved, sizeof moved, "%s.moved", url + 7);
    syncguard_client_options copts = patient();
    syncguard_client *client = NULL;
    copts.on_release_error = on_release_error;
    copts.user_data = &of_client;
    copts.user_data_free = finalize;
    EXPECT(OK, syncguard_client_open(url, NUL, &copts, &client, &err));
    syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
    options.on_release_error = own ? on_release_error : NULL;
    options.user_data = &of_guard;
    options.user_data_free = finalize;
    syncguard_guard *g = NULL;
    EXPECT(OK, syncguard_lock(client, "broken", NUL, &options, &g, &err));
    strcpy(lock_id, syncguard_guard_lock_id(g));
    CHECK(rename(url + 7, moved) == 0 && mkdir(url + 7, 0700) == 0);
    syncguard_client_free(client);
    syncguard_guard_free(g);
    struct seen *told = own ? &of_guard : &of_client;
    EVENTUALLY(read_int(&told->errors) == 1);
    CHECK(strcmp(told->key, "broken") == 0 && strcmp(told->lock_id, lock_id) == 0 && strcmp(told->source, "drop") == 0);
    EVENTUALLY(read_int(&of_client.freed) == 1 && read_int(&of_guard.freed) == 1);
    CHECK(read_int(&of_client.errors) + read_int(&of_guard.errors) == 1);
  }
}

static void on_wake(void *data) {
  use_stack();
  add(&((struct seen *)data)->events);
}

/* Whether an attempt is to be made now. */
static bool is_due(syncguard_waiter *place) {
  int64_t ms = -1;
  syncguard_status status = syncguard_waiter_next(place, SYNCGUARD_WAITER_WOKEN, &ms, NULL);
  CHECK((status == OK || status == LOCKED) && ms >= 0);
  return status == OK;
}

/* For how long it is to sleep. */
static int64_t sleep_of(syncguard_waiter *place) {
  int64_t ms = -1;
  EXPECT(LOCKED, syncguard_waiter_next(place, SYNCGUARD_WAITER_WOKEN, &ms, &err));
  return ms;
}

static syncguard_lock_options data_of(struct seen *seen) {
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.user_data = seen;
  options.user_data_free = finalize;
  options.retry_delay_ms = 60000;
  options.acquire_timeout_ms = 600000;
  return options;
}

/* A caller that waits by itself: in line, woken when the lock is freed, and passed over once it has left. */
static void a_place_in_line(void) {
  struct seen first = {0}, second = {0};
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "line");
  syncguard_waiter *a = NULL, *b = NULL;
  syncguard_lock_options of_first = data_of(&first), of_second = data_of(&second);
  EXPECT(OK, syncguard_waiter_new(client, "line", NUL, &of_first, on_wake, &first, &a, &err));
  EXPECT(OK, syncguard_waiter_new(client, "line", NUL, &of_second, on_wake, &second, &b, &err));
  CHECK(is_due(a) && !is_due(b));
  syncguard_guard_free(guard);
  syncguard_waiter_free(a);
  EVENTUALLY(read_int(&first.freed) == 1);
  EVENTUALLY(is_due(b));
  syncguard_waiter_free(b);
  EVENTUALLY(read_int(&second.freed) == 1);
  CHECK(read_int(&second.events) >= 1);

  EXPECT(IA, syncguard_waiter_new(NULL, "k", NUL, &of_first, on_wake, &first, &a, &err));
  CHECK(a == NULL && read_int(&first.freed) == 2);
  EXPECT(IA, syncguard_waiter_new(client, NULL, NUL, &of_first, on_wake, &first, &a, &err));
  EXPECT(IA, syncguard_waiter_new(client, "", 0, &of_first, on_wake, &first, &a, &err));
  EXPECT(IA, syncguard_waiter_new(client, "k", NUL, &of_first, NULL, &first, &a, &err));
  EXPECT(IA, syncguard_waiter_new(client, "k", NUL, &of_first, on_wake, &first, NULL, &err));
  CHECK(read_int(&first.freed) == 6);
  syncguard_waiter_free(NULL);
  syncguard_client_free(client);
}

/* The whole of it: attempts only when they are due. */
static void waiting_by_oneself(void) {
  struct seen seen = {0};
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "own"), *guard = NULL;
  syncguard_waiter *waiter = NULL;
  syncguard_lock_options options = data_of(&seen);
  EXPECT(LOCKED, syncguard_try_lock(client, "own", NUL, NULL, &guard, &err));
  EXPECT(OK, syncguard_waiter_new(client, "own", NUL, &options, on_wake, &seen, &waiter, &err));
  syncguard_guard_free(held);
  while (guard == NULL) {
    EVENTUALLY(is_due(waiter));
    syncguard_status status = syncguard_waiter_try_lock(waiter, NULL, &guard, NULL);
    CHECK(status == OK || status == LOCKED);
  }
  syncguard_client_free(client);
  syncguard_waiter_free(waiter);
  CHECK(read_int(&seen.freed) == 0);
  syncguard_guard_free(guard);
  EVENTUALLY(read_int(&seen.freed) == 1);
}

/* Held, or in line: one of two asks, and the other is served next. */
static void held_or_in_line(void) {
  struct seen first = {0}, second = {0}, data = {0};
  syncguard_client *client = open_client();
  syncguard_guard *held = NULL, *guard = NULL;
  syncguard_waiter *a = NULL, *b = NULL;
  syncguard_lock_options options = data_of(&data);
  syncguard_cancel *token = syncguard_cancel_new();
  int64_t ms = -1;
  EXPECT(OK, syncguard_lock_or_wait(client, "either", NUL, NULL, on_wake, &first, &held, &a, &err));
  CHECK(held != NULL && a == NULL);
  EXPECT(OK, syncguard_lock_or_wait(client, "either", NUL, &options, on_wake, &first, &guard, &a, &err));
  CHECK(guard == NULL && a != NULL && read_int(&data.freed) == 0);
  options.user_data = NULL;
  options.user_data_free = NULL;
  EXPECT(OK, syncguard_lock_or_wait(client, "either", NUL, &options, on_wake, &second, &guard, &b, &err));
  CHECK(guard == NULL && b != NULL);
  /* The store has begun to listen and calls once; then the holder's lease is all there is to wait for. */
  while (is_due(a)) {
    EXPECT(LOCKED, syncguard_waiter_try_lock(a, NULL, &guard, &err));
    pause_ms(20);
  }
  CHECK(sleep_of(a) >= 1 && sleep_of(a) <= 31000);
  CHECK(sleep_of(b) > 31000);
  EXPECT(LOCKED, syncguard_waiter_try_lock(b, NULL, &guard, &err));
  CHECK(guard == NULL && read_int(&data.freed) == 0);
  syncguard_guard_free(held);
  while (guard == NULL) {
    EVENTUALLY(is_due(a));
    syncguard_status status = syncguard_waiter_try_lock(a, token, &guard, NULL);
    CHECK(status == OK || status == LOCKED);
  }
  EXPECT(IA, syncguard_waiter_next(a, SYNCGUARD_WAITER_WOKEN, &ms, &err));
  syncguard_waiter_free(a);
  CHECK(read_int(&data.freed) == 0);
  syncguard_guard_free(guard);
  EVENTUALLY(read_int(&data.freed) == 1);
  EVENTUALLY(is_due(b));
  CHECK(read_int(&second.events) >= 1);
  EXPECT(IA, syncguard_waiter_try_lock(NULL, NULL, &guard, &err));
  CHECK(guard == NULL);
  EXPECT(IA, syncguard_waiter_try_lock(b, NULL, NULL, &err));
  EXPECT(IA, syncguard_waiter_next(NULL, SYNCGUARD_WAITER_WOKEN, &ms, &err));
  EXPECT(IA, syncguard_waiter_next(b, SYNCGUARD_WAITER_WOKEN, NULL, &err));
  EXPECT(IA, syncguard_waiter_next(b, 3, &ms, &err));
  EXPECT(IA, syncguard_waiter_next(b, -1, &ms, &err));
  syncguard_waiter_free(b);

  options = data_of(&data);
  EXPECT(IA, syncguard_lock_or_wait(NULL, "k", NUL, &options, on_wake, &first, &guard, &a, &err));
  CHECK(guard == NULL && a == NULL && read_int(&data.freed) == 2);
  EXPECT(IA, syncguard_lock_or_wait(client, "", 0, NULL, on_wake, &first, &guard, &a, &err));
  EXPECT(IA, syncguard_lock_or_wait(client, "k", NUL, NULL, NULL, &first, &guard, &a, &err));
  EXPECT(IA, syncguard_lock_or_wait(client, "k", NUL, NULL, on_wake, &first, NULL, &a, &err));
  EXPECT(IA, syncguard_lock_or_wait(client, "k", NUL, NULL, on_wake, &first, &guard, NULL, &err));
  options.ttl_ms = -5;
  EXPECT(IA, syncguard_waiter_new(client, "either", NUL, &options, on_wake, &first, &a, &err));
  EXPECT(IA, syncguard_lock_or_wait(client, "either", NUL, &options, on_wake, &first, &guard, &a, &err));
  CHECK(read_int(&data.freed) == 4);
  syncguard_cancel_free(token);
  syncguard_client_free(client);
}

/* The ends of a wait that the caller brings about, and the one that the clock does. */
static void a_wait_by_oneself_ends(void) {
  struct seen seen = {0};
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "ends"), *guard = NULL;
  syncguard_waiter *place = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.acquire_timeout_ms = 600000;
  options.retry_delay_ms = 60000;
  int64_t ms = -1;
  syncguard_error *err = NULL;
  EXPECT(OK, syncguard_lock_or_wait(client, "ends", NUL, &options, on_wake, &seen, &guard, &place, &err));
  CHECK(syncguard_waiter_next(place, SYNCGUARD_WAITER_CANCELLED, &ms, &err) == SYNCGUARD_STATUS_ABORTED);
  CHECK(syncguard_error_attempts(err) == 1 && strlen(syncguard_error_key_hash(err)) == 24);
  syncguard_error_free(err);
  CHECK(syncguard_waiter_try_lock(place, NULL, &guard, NULL) < 0 && guard == NULL);
  syncguard_waiter_free(place);

  /* A thread is not to be had for as long as the attempt may take: the wait is over, and nothing was asked. */
  options.acquire_timeout_ms = 1;
  EXPECT(OK, syncguard_waiter_new(client, "elsewhere", NUL, &options, on_wake, &seen, &place, &err));
  EXPECT(OK, syncguard_waiter_next(place, SYNCGUARD_WAITER_WOKEN, &ms, &err));
  CHECK(ms > 0);
  pause_ms(10);
  CHECK(syncguard_waiter_next(place, SYNCGUARD_WAITER_NO_THREAD, &ms, &err) == SYNCGUARD_STATUS_RATE_LIMITED);
  CHECK(syncguard_error_attempts(err) == 0);
  syncguard_error_free(err);
  syncguard_waiter_free(place);

  options.acquire_timeout_ms = 50;
  EXPECT(OK, syncguard_lock_or_wait(client, "ends", NUL, &options, on_wake, &seen, &guard, &place, &err));
  syncguard_status status = OK;
  for (int64_t end = now_ms() + 60000; status >= 0 && now_ms() < end;) {
    status = syncguard_waiter_next(place, SYNCGUARD_WAITER_WOKEN, &ms, NULL);
    if (status == OK) {
      status = syncguard_waiter_try_lock(place, NULL, &guard, NULL);
    } else if (status == LOCKED) {
      CHECK(ms <= 50);
      pause_ms((int)ms);
    }
  }
  CHECK(status == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT && guard == NULL);
  syncguard_waiter_free(place);
  syncguard_guard_free(held);
  syncguard_client_free(client);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(lost_is_told_once);
  RUN(not_told_after_a_release);
  RUN(a_callback_may_free_its_handles);
  RUN(a_callback_may_call_back_in);
  RUN(a_callback_may_sleep);
  RUN(data_is_finalized_on_every_path);
  RUN(data_of_a_client_is_finalized_on_every_path);
  RUN(events);
  RUN(failed_releases_are_told);
  RUN(a_place_in_line);
  RUN(waiting_by_oneself);
  RUN(held_or_in_line);
  RUN(a_wait_by_oneself_ends);
  return 0;
}
