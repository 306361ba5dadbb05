/* How long calls take while their store is in trouble: overshoot URL CALL CALLERS ACQUIRE_MS OPERATION_MS. Opens a client, prepares the
 * calls while the store is well, and says "ready". After a line on stdin it makes the calls at once, each on a thread of its own, and
 * prints for each what it took and how long its thread or the whole process did not get to run, in microseconds. */
#include "stopwatch.h"

#define MOST 64

static syncguard_client *client;
static syncguard_lock_options options;
static int64_t acquire_ms, operation_ms;

/* One caller. */
typedef struct {
  const char *call;
  char key[16];
  syncguard_guard *guard;
  syncguard_acquired acquired;
  pthread_t thread;
  int64_t took, lost;
} caller;

static pthread_mutex_t bell = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rung = PTHREAD_COND_INITIALIZER;
static uint64_t wakes;

static void wake(void *unused) {
  (void)unused;
  pthread_mutex_lock(&bell);
  wakes++;
  pthread_cond_broadcast(&rung);
  pthread_mutex_unlock(&bell);
}

/* Sleeps until the line wakes a waiter, or the time is over. */
static void sleep_in_line(uint64_t heard, int64_t ms) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += (ms % 1000) * 1000000;
  until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&bell);
  while (wakes == heard && pthread_cond_timedwait(&rung, &bell, &until) == 0) {
  }
  pthread_mutex_unlock(&bell);
}

static uint64_t heard_so_far(void) {
  pthread_mutex_lock(&bell);
  uint64_t heard = wakes;
  pthread_mutex_unlock(&bell);
  return heard;
}

/* The loop of a caller that waits by itself, as the header describes it. */
static void by_itself(caller *c) {
  syncguard_waiter *place = NULL;
  syncguard_status status = syncguard_lock_or_wait(client, c->key, NUL, &options, wake, NULL, &c->guard, &place, NULL);
  while (status >= 0 && c->guard == NULL) {
    int64_t ms = 0;
    uint64_t heard = heard_so_far();
    status = syncguard_waiter_next(place, SYNCGUARD_WAITER_WOKEN, &ms, NULL);
    if (status == OK) {
      status = syncguard_waiter_try_lock(place, NULL, &c->guard, NULL);
    } else if (status == LOCKED) {
      sleep_in_line(heard, ms);
    }
  }
  syncguard_waiter_free(place);
}

static void *extends(void *data) {
  caller *c = data;
  syncguard_guard_extend(c->guard, 30000, NULL, NULL);
  return NULL;
}

static void make(caller *c) {
  const char *call = c->call, *id = c->acquired.lock_id;
  int64_t n;
  uint64_t purged;
  bool yes;
  syncguard_lock_info info;
  if (strcmp(call, "lock") == 0) {
    syncguard_lock(client, c->key, NUL, &options, &c->guard, NULL);
  } else if (strcmp(call, "waiter") == 0) {
    by_itself(c);
  } else if (strcmp(call, "try_lock") == 0) {
    syncguard_try_lock(client, c->key, NUL, &options, &c->guard, NULL);
  } else if (strcmp(call, "acquire") == 0) {
    syncguard_acquire(client, c->key, NUL, 30000, NULL, &c->acquired, NULL);
  } else if (strcmp(call, "release") == 0) {
    syncguard_release(client, id, NUL, NULL, NULL);
  } else if (strcmp(call, "extend") == 0) {
    syncguard_extend(client, id, NUL, 30000, NULL, &n, NULL);
  } else if (strcmp(call, "is_locked") == 0) {
    syncguard_is_locked(client, c->key, NUL, NULL, &yes, NULL);
  } else if (strcmp(call, "lookup_by_key") == 0) {
    syncguard_lookup_by_key(client, c->key, NUL, NULL, &info, NULL);
  } else if (strcmp(call, "lookup_by_id") == 0) {
    syncguard_lookup_by_id(client, id, NUL, NULL, &info, NULL);
  } else if (strcmp(call, "check") == 0) {
    syncguard_client_check(client, NULL, NULL);
  } else if (strcmp(call, "setup_schema") == 0) {
    syncguard_client_setup_schema(client, NULL, NULL);
  } else if (strcmp(call, "purge_expired") == 0) {
    syncguard_client_purge_expired(client, 10, NULL, &purged, NULL);
  } else if (strcmp(call, "guard_release") == 0) {
    syncguard_guard_release(c->guard, NULL, NULL);
  } else if (strcmp(call, "guard_extend") == 0) {
    syncguard_guard_extend(c->guard, 30000, NULL, NULL);
  } else if (strncmp(call, "guard_free", 10) == 0) {
    syncguard_guard_free(c->guard);
  } else {
    fprintf(stderr, "there is no call %s\n", call);
    _exit(2);
  }
}

static void *timed(void *data) {
  caller *c = data;
  pthread_t beside;
  if (strcmp(c->call, "guard_free_beside_a_call") == 0) {
    CHECK(pthread_create(&beside, NULL, extends, c) == 0);
    pause_ms(30);
  }
  int64_t delayed = delayed_us(), begun = now_us();
  make(c);
  int64_t ended = now_us();
  c->took = ended - begun;
  c->lost = delayed_us() - delayed;
  int64_t bound = begun + 1000 * (strcmp(c->call, "lock") == 0 || strcmp(c->call, "waiter") == 0
                                      ? (acquire_ms > operation_ms ? acquire_ms : operation_ms)
                                      : operation_ms);
  int64_t stalled = stalled_us(bound, ended);
  c->lost = c->lost > stalled ? c->lost : stalled;
  return NULL;
}

static void quiet_error(void *u, const syncguard_error *e, const char *k, const char *i, const char *s) {
  (void)u, (void)e, (void)k, (void)i, (void)s;
}

static void quiet_warning(void *u, const char *m) { (void)u, (void)m; }

int main(int argc, char **argv) {
  static caller callers[MOST];
  if (argc < 6) {
    return 2;
  }
  URL = argv[1];
  int many = atoi(argv[3]);
  acquire_ms = atoi(argv[4]), operation_ms = atoi(argv[5]);
  CHECK(many > 0 && many <= MOST);
  syncguard_client *well = open_client();
  syncguard_client_options opened = SYNCGUARD_CLIENT_OPTIONS_INIT;
  syncguard_lock_options defaults = SYNCGUARD_LOCK_OPTIONS_INIT;
  opened.operation_timeout_ms = opened.dispose_timeout_ms = (uint32_t)operation_ms;
  opened.on_release_error = quiet_error;
  opened.on_warning = quiet_warning;
  options = defaults;
  options.acquire_timeout_ms = acquire_ms;
  EXPECT(OK, syncguard_client_open(URL, NUL, &opened, &client, &err));
  for (int i = 0; i < many; i++) {
    caller *c = &callers[i];
    c->call = argv[2];
    snprintf(c->key, sizeof c->key, "k");
    if (strncmp(c->call, "guard_", 6) == 0) {
      snprintf(c->key, sizeof c->key, "g%d-%d", (int)getpid() % 100000, i);
      /* On a busy machine it may take longer than the calls are given. */
      int64_t end = now_ms() + 60000;
      while (syncguard_lock(client, c->key, NUL, NULL, &c->guard, NULL) != OK) {
        CHECK(now_ms() < end);
      }
    } else {
      snprintf(c->acquired.lock_id, sizeof c->acquired.lock_id, "AAAAAAAAAAAAAAAAAAAAAA");
    }
  }
  /* A connection that was good a moment ago. */
  bool yes;
  for (int64_t end = now_ms() + 60000; syncguard_is_locked(client, "k", NUL, NULL, &yes, NULL) != OK;) {
    CHECK(now_ms() < end);
  }
  syncguard_client_free(well);
  begin_ticking();
  printf("ready\n");
  fflush(stdout);
  CHECK(getchar() != EOF);
  for (int i = 0; i < many; i++) {
    CHECK(pthread_create(&callers[i].thread, NULL, timed, &callers[i]) == 0);
  }
  for (int i = 0; i < many; i++) {
    pthread_join(callers[i].thread, NULL);
    printf("%lld %lld\n", (long long)callers[i].took, (long long)callers[i].lost);
  }
  fflush(stdout);
  _exit(0);
}
