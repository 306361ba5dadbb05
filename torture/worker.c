/* A worker in C. It does what the worker in Rust does (src/worker), and writes the same records (src/record.rs).
 * WORKER URL LOG IDS GATE SEED INCARNATION SLOT END */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <syncguard.h>

enum { THREADS = 3, OPERATION_MS = 800, CONNECT_MS = 500, HOT_KEYS = 4, SHORT_KEYS = 7, LONG_KEYS = 2, LONG_TTL_MS = 4000,
       UNKNOWN_TTL_MS = 120000 };
enum { GRANT = 1, HELD, LOST, RELEASING, RELEASED, ENDED, TOLD, CALL, STALL, UNKNOWN, LEFT, FORKED, AGAIN, EXIT, ABSENT, GRANT_BARE,
       TIMER, MEMORY };
enum { V_LOCK = 1, V_TRY_LOCK, V_RELEASE, V_DROP, V_EXTEND, V_ACQUIRE, V_BARE_RELEASE, V_BARE_EXTEND, V_IS_LOCKED, V_LOOKUP };
#define MS INT64_C(1000000)

static int log_fd, ids_fd;
static const char *gate_path;
static int64_t incarnation, slot, end_at, holds, unknowns;
static syncguard_client *client;

/* What wakes a thread that waits in line for a lock. It lives as long as the process: `wake` may come late. */
typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool woken, cancelled;
} line;

typedef struct {
  uint64_t state;
  int gate;
  int64_t private_key;
  line *line;
} worker;

typedef struct {
  int64_t id, key, fence, ttl_ms;
} hold;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_ms(int64_t ms) {
  struct timespec t = {ms / 1000, (ms % 1000) * 1000000};
  while (nanosleep(&t, &t) != 0 && errno == EINTR) {
  }
}

static void put(int64_t kind, int64_t id, int64_t key, int64_t at, int64_t a, int64_t b, int64_t c, int64_t d) {
  int64_t record[8] = {kind, id, key, at, a, b, c, d};
  if (write(log_fd, record, sizeof record) != (ssize_t)sizeof record) {
    abort();
  }
}

static uint64_t next(worker *w) {
  uint64_t z = w->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static int64_t between(worker *w, int64_t from, int64_t to) { return from + (int64_t)(next(w) % (uint64_t)(to - from + 1)); }

static bool one_in(worker *w, uint64_t n) { return next(w) % n == 0; }

/* How long a thread was ready to run and did not; -1 if it has ended. */
static int64_t waited_in(const char *schedstat) {
  unsigned long long ran = 0, waited = 0;
  FILE *stat = fopen(schedstat, "re");
  if (stat == NULL) {
    return -1;
  }
  bool read = fscanf(stat, "%llu %llu", &ran, &waited) == 2;
  fclose(stat);
  return read ? (int64_t)waited : -1;
}

static int64_t delayed(void) {
  int64_t waited = waited_in("/proc/thread-self/schedstat");
  return waited > 0 ? waited : 0;
}

static int64_t delayed_of(long thread) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", thread);
  return waited_in(path);
}

/* The call that a thread makes: how long the thread had waited for a processor when the call was due is noted by the thread that
 * watches, so that only what it waits after that is taken off. */
typedef struct {
  pthread_mutex_t mutex;
  long thread;
  int64_t due, waited;
} own_call;

static own_call calls[THREADS] = {{.mutex = PTHREAD_MUTEX_INITIALIZER}, {.mutex = PTHREAD_MUTEX_INITIALIZER},
                                  {.mutex = PTHREAD_MUTEX_INITIALIZER}};
static _Thread_local own_call *own;

static void begin_call(int64_t due) {
  pthread_mutex_lock(&own->mutex);
  own->due = due;
  own->waited = -1;
  pthread_mutex_unlock(&own->mutex);
}

static void due_now(own_call *call, int64_t at) {
  pthread_mutex_lock(&call->mutex);
  if (call->due > at) {
    call->due = at;
  }
  pthread_mutex_unlock(&call->mutex);
}

static int64_t end_call(void) {
  pthread_mutex_lock(&own->mutex);
  int64_t waited = own->waited;
  own->due = 0;
  own->waited = -1;
  pthread_mutex_unlock(&own->mutex);
  return waited < 0 ? 0 : delayed() - waited;
}

/* The thread of the library that notices when a lease has ended, or 0. */
static long find_timer(void) {
  long found = 0;
  DIR *dir = opendir("/proc/self/task");
  for (struct dirent *e; dir != NULL && found == 0 && (e = readdir(dir)) != NULL;) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
      if (fgets(name, sizeof name, file) != NULL && strcmp(name, "syncguard-timer\n") == 0) {
        found = atol(e->d_name);
      }
      fclose(file);
    }
  }
  if (dir != NULL) {
    closedir(dir);
  }
  return found;
}

static void *watch(void *unused) {
  (void)unused;
  long timer = 0;
  int64_t timer_waited = -1, last = now();
  for (int n = 0;; n++) {
    sleep_ms(5);
    int64_t at = now();
    if (at - last > 10 * MS) {
      put(STALL, 0, 0, at, last + 5 * MS, 0, 0, 0);
    }
    last = at;
    for (int i = 0; i < THREADS; i++) {
      pthread_mutex_lock(&calls[i].mutex);
      if (calls[i].due > 0 && at >= calls[i].due && calls[i].waited < 0) {
        calls[i].waited = delayed_of(calls[i].thread);
      }
      pthread_mutex_unlock(&calls[i].mutex);
    }
    if (timer == 0) {
      timer = n % 40 == 0 ? find_timer() : 0;
      timer_waited = timer != 0 ? delayed_of(timer) : -1;
      continue;
    }
    int64_t waited = delayed_of(timer);
    if (waited < 0) {
      timer = 0;
    } else if (timer_waited >= 0 && waited - timer_waited > MS) {
      /* It is told when the thread has run again, so by up to a tick late. */
      put(TIMER, 0, 0, at, at - (waited - timer_waited) - 5 * MS, 0, 0, 0);
    }
    timer_waited = waited;
  }
  return NULL;
}

/* Every text goes to stderr, where it is searched for secrets. */
static void tell(syncguard_error *err) {
  if (err != NULL) {
    fprintf(stderr, "%s: %s\n", syncguard_status_str(syncguard_error_status(err)), syncguard_error_message(err));
    syncguard_error_free(err);
  }
}

/* A cancel that comes some time after the call began. */
typedef struct {
  syncguard_cancel *token;
  int64_t after_us, at;
  own_call *caller;
  line *line;
  bool over;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  pthread_t thread;
} canceller;

static void *cancel_later(void *data) {
  canceller *c = data;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += c->after_us / 1000000;
  until.tv_nsec += (c->after_us % 1000000) * 1000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_sec += 1;
    until.tv_nsec -= 1000000000;
  }
  pthread_mutex_lock(&c->mutex);
  int waited = 0;
  while (!c->over && waited != ETIMEDOUT) {
    waited = pthread_cond_timedwait(&c->changed, &c->mutex, &until);
  }
  if (!c->over) {
    c->at = now();
    due_now(c->caller, c->at);
    syncguard_cancel_trigger(c->token);
    if (c->line != NULL) {
      pthread_mutex_lock(&c->line->mutex);
      c->line->cancelled = true;
      pthread_cond_signal(&c->line->changed);
      pthread_mutex_unlock(&c->line->mutex);
    }
  }
  pthread_mutex_unlock(&c->mutex);
  return NULL;
}

/* `line` is where the caller may be waiting, or NULL. */
static syncguard_cancel *begin_cancel_in_line(canceller *c, bool wanted, int64_t after_us, line *l) {
  memset(c, 0, sizeof *c);
  if (!wanted) {
    return NULL;
  }
  c->caller = own;
  c->line = l;
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&c->mutex, NULL);
  pthread_cond_init(&c->changed, &attributes);
  c->after_us = after_us;
  c->token = syncguard_cancel_new();
  if (pthread_create(&c->thread, NULL, cancel_later, c) != 0) {
    abort();
  }
  return c->token;
}

static syncguard_cancel *begin_cancel(canceller *c, bool wanted, int64_t after_us) {
  return begin_cancel_in_line(c, wanted, after_us, NULL);
}

/* When it was cancelled so far, or 0. */
static int64_t cancelled_at(canceller *c) {
  if (c->token == NULL) {
    return 0;
  }
  pthread_mutex_lock(&c->mutex);
  int64_t at = c->at;
  pthread_mutex_unlock(&c->mutex);
  return at;
}

/* When it was cancelled, or 0. */
static int64_t end_cancel(canceller *c) {
  if (c->token == NULL) {
    return 0;
  }
  pthread_mutex_lock(&c->mutex);
  c->over = true;
  pthread_cond_signal(&c->changed);
  pthread_mutex_unlock(&c->mutex);
  pthread_join(c->thread, NULL);
  syncguard_cancel_free(c->token);
  return c->at;
}

/* Makes a call, and writes down when it began and ended. */
#define TIMED(verb, key, bound_ms, cancel, call)                                                                \
  do {                                                                                                          \
    int64_t begun_ = now(), bound_ = (bound_ms)*MS;                                                             \
    begin_call(begun_ + bound_);                                                                                \
    int64_t before_ = cancelled_at(cancel);                                                                     \
    if (before_ > 0) {                                                                                          \
      due_now(own, before_);                                                                                    \
    }                                                                                                           \
    call;                                                                                                       \
    int64_t ended_ = now(), waited_ = end_call(), at_ = end_cancel(cancel);                                     \
    bool late_ = ended_ > begun_ + bound_ || (at_ > 0 && ended_ > at_);                                         \
    put(CALL, verb, key, ended_, begun_, bound_, at_ < ended_ ? at_ : 0, late_ ? waited_ : 0);                  \
  } while (0)

static void name_key(char *name, size_t size, int64_t key) { snprintf(name, size, "canary-key-%lld", (long long)key); }

static void write_to_resource(worker *w, const hold *h) {
  int64_t request[3] = {h->key, h->fence, h->id};
  char answer;
  if (write(w->gate, request, sizeof request) != (ssize_t)sizeof request || read(w->gate, &answer, 1) != 1) {
    _exit(0); /* the coordinator has ended */
  }
}

typedef struct {
  int64_t id, key;
} told;

static void on_lost(void *data, const syncguard_error *why) {
  static _Thread_local int64_t waited;
  told *t = data;
  put(TOLD, t->id, t->key, now(), syncguard_error_loss_reason(why), 0, delayed() - waited, 0);
  waited = delayed();
}

/* Writes down a lock id, which no output may have. */
static void note_id(const char *lock_id) {
  char text[24];
  int n = snprintf(text, sizeof text, "%s\n", lock_id);
  if (write(ids_fd, text, (size_t)n) != n) {
    abort();
  }
}

static bool look(syncguard_guard *guard, const hold *h) {
  for (int i = 0; i < 3; i++) {
    /* The expiry is read before, so that it is never of a later renewal than the belief. */
    int64_t at = now(), expires = syncguard_guard_expires_at_ms(guard), remaining = syncguard_guard_remaining_ms(guard);
    if (syncguard_guard_is_lost(guard)) {
      put(LOST, h->id, h->key, at, syncguard_guard_loss_reason(guard), h->fence, 0, syncguard_guard_expires_at_ms(guard));
      return false;
    }
    if (i == 2 || now() - at < MS) {
      put(HELD, h->id, h->key, at, 0, h->fence, at + remaining * MS, expires);
      break;
    }
  }
  return true;
}

/* The first thread of a worker mostly takes locks that change hands all the time. */
static bool is_runner(const worker *w) { return w->private_key % 10 == 0; }

/* The last thread of a worker mostly holds its own key, through renewals: losses and deaths meet it. */
static bool is_keeper(const worker *w) { return w->private_key % 10 == THREADS - 1; }

static int64_t hold_ms(worker *w, int64_t key, int64_t ttl_ms) {
  if (key < HOT_KEYS) {
    return 0;
  }
  if (key == w->private_key && is_keeper(w)) {
    return between(w, ttl_ms, ttl_ms * 4);
  }
  int64_t n = between(w, 0, 99);
  return n < 80 ? between(w, 0, 2) : n < 96 ? between(w, 5, 100) : between(w, ttl_ms / 2, ttl_ms * 5 / 2);
}

static void give_back(worker *w, syncguard_guard *guard, const hold *h) {
  char lock_id[23];
  snprintf(lock_id, sizeof lock_id, "%s", syncguard_guard_lock_id(guard));
  canceller none = {0}, c;
  syncguard_error *err = NULL;
  int64_t began = now();
  put(RELEASING, h->id, h->key, began, 0, h->fence, 0, syncguard_guard_expires_at_ms(guard));
  if (!one_in(w, 3)) {
    syncguard_status status;
    syncguard_cancel *token = begin_cancel(&c, one_in(w, 10), between(w, 0, 5000));
    TIMED(V_RELEASE, h->key, OPERATION_MS, &c, status = syncguard_guard_release(guard, token, &err));
    int64_t outcome = status == SYNCGUARD_STATUS_OK ? 0 : status == SYNCGUARD_STATUS_ABSENT ? 1 : -1;
    put(RELEASED, h->id, h->key, now(), outcome, h->fence, 0, 0);
    tell(err);
    err = NULL;
  }
  TIMED(V_DROP, h->key, OPERATION_MS, &none, syncguard_guard_free(guard));
  put(ENDED, h->id, h->key, now(), 0, h->fence, 0, 0);
  if (one_in(w, 20)) {
    syncguard_status status;
    TIMED(V_BARE_RELEASE, h->key, OPERATION_MS, &none, status = syncguard_release(client, lock_id, SYNCGUARD_NUL, NULL, &err));
    put(AGAIN, h->id, h->key, now(), status == SYNCGUARD_STATUS_OK ? 0 : status == SYNCGUARD_STATUS_ABSENT ? 1 : -1, h->fence, 0, 0);
    tell(err);
  }
  if (one_in(w, 20)) {
    sleep_ms(between(w, 1, 5));
    write_to_resource(w, h); /* a former holder that did not look, when the next one may have written */
  }
}

static void keep(worker *w, syncguard_guard *guard, hold *h, int64_t begun) {
  h->fence = (int64_t)syncguard_guard_fence_number(guard);
  note_id(syncguard_guard_lock_id(guard));
  int64_t at = now();
  put(GRANT, h->id, h->key, at, begun, h->fence, at + syncguard_guard_remaining_ms(guard) * MS, h->ttl_ms * MS);
  int64_t until = now() + hold_ms(w, h->key, h->ttl_ms) * MS;
  bool held = look(guard, h);
  while (held) {
    write_to_resource(w, h);
    if (now() >= until) {
      break;
    }
    sleep_ms(between(w, 1, 25));
    if (one_in(w, 30)) {
      canceller c;
      syncguard_error *err = NULL;
      syncguard_status status;
      int64_t sent = now();
      syncguard_cancel *token = begin_cancel(&c, one_in(w, 4), between(w, 0, 20000));
      TIMED(V_EXTEND, h->key, OPERATION_MS, &c, status = syncguard_guard_extend(guard, h->ttl_ms, token, &err));
      if (status == SYNCGUARD_STATUS_ABSENT) {
        put(ABSENT, h->id, h->key, now(), sent, h->fence, 0, 0);
      }
      tell(err);
    }
    held = look(guard, h);
  }
  if (!held) {
    write_to_resource(w, h); /* a former holder that did not look */
  }
  give_back(w, guard, h);
}

static hold new_hold(int64_t key, int64_t ttl_ms) {
  hold h = {incarnation * 1000000000 + __atomic_fetch_add(&holds, 1, __ATOMIC_RELAXED), key, 0, ttl_ms};
  return h;
}

static syncguard_lock_options guard_options(const hold *h) {
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  told *data = malloc(sizeof *data);
  data->id = h->id;
  data->key = h->key;
  options.ttl_ms = h->ttl_ms;
  options.retry_delay_ms = 20;
  options.on_lost = on_lost;
  options.user_data = data;
  options.user_data_free = free;
  return options;
}

static void wake(void *data) {
  line *l = data;
  pthread_mutex_lock(&l->mutex);
  l->woken = true;
  pthread_cond_signal(&l->changed);
  pthread_mutex_unlock(&l->mutex);
}

/* Sleeps in line until it is woken or cancelled, or the time is over. */
static int32_t sleep_in_line(line *l, int64_t ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  int64_t ns = until.tv_nsec + (ms % 1000) * MS;
  until.tv_sec += ms / 1000 + ns / 1000000000;
  until.tv_nsec = ns % 1000000000;
  pthread_mutex_lock(&l->mutex);
  int waited = 0;
  while (!l->woken && !l->cancelled && waited != ETIMEDOUT) {
    waited = pthread_cond_timedwait(&l->changed, &l->mutex, &until);
  }
  l->woken = false;
  int32_t event = l->cancelled ? SYNCGUARD_WAITER_CANCELLED : SYNCGUARD_WAITER_WOKEN;
  pthread_mutex_unlock(&l->mutex);
  return event;
}

/* What `syncguard_lock` does, by a place in line that this thread steps through itself. */
static void lock_in_line(worker *w, const char *name, const syncguard_lock_options *options, syncguard_guard **guard,
                         syncguard_error **err) {
  syncguard_waiter *place = NULL;
  syncguard_status status = syncguard_lock_or_wait(client, name, SYNCGUARD_NUL, options, wake, w->line, guard, &place, err);
  int32_t event = SYNCGUARD_WAITER_WOKEN;
  while (place != NULL && *guard == NULL && status >= 0) {
    int64_t ms = 0;
    status = syncguard_waiter_next(place, event, &ms, err);
    if (status == SYNCGUARD_STATUS_LOCKED) {
      event = sleep_in_line(w->line, ms);
    } else if (status == SYNCGUARD_STATUS_OK) {
      status = syncguard_waiter_try_lock(place, options->cancel, guard, err);
      event = SYNCGUARD_WAITER_WOKEN;
    }
  }
  syncguard_waiter_free(place);
}

/* Waits for the lock if wait_ms is positive. */
static void take(worker *w, int64_t key, int64_t ttl_ms, int64_t wait_ms, bool cancels) {
  char name[64];
  name_key(name, sizeof name, key);
  hold h = new_hold(key, ttl_ms);
  canceller c;
  syncguard_lock_options options = guard_options(&h);
  bool steps = wait_ms > 0 && one_in(w, 3);
  w->line->woken = w->line->cancelled = false;
  int64_t after_us = between(w, 0, key < HOT_KEYS ? 5000 : wait_ms * 500);
  options.cancel = begin_cancel_in_line(&c, cancels, after_us, steps ? w->line : NULL);
  options.acquire_timeout_ms = wait_ms > 0 ? wait_ms : 0;
  options.heartbeat_ms = one_in(w, 10) ? SYNCGUARD_FOREVER : 0;
  syncguard_guard *guard = NULL;
  syncguard_error *err = NULL;
  int64_t begun = now(), bound = wait_ms > OPERATION_MS ? wait_ms : OPERATION_MS;
  if (steps) {
    TIMED(V_LOCK, key, bound, &c, lock_in_line(w, name, &options, &guard, &err));
  } else if (wait_ms > 0) {
    TIMED(V_LOCK, key, bound, &c, syncguard_lock(client, name, SYNCGUARD_NUL, &options, &guard, &err));
  } else {
    TIMED(V_TRY_LOCK, key, OPERATION_MS, &c, syncguard_try_lock(client, name, SYNCGUARD_NUL, &options, &guard, &err));
  }
  tell(err);
  if (guard != NULL) {
    keep(w, guard, &h, begun);
  } else {
    sleep_ms(between(w, 1, 20));
  }
}

static int64_t contended_key(worker *w, int64_t *ttl_ms) {
  if (one_in(w, 8)) {
    *ttl_ms = LONG_TTL_MS;
    return SHORT_KEYS + (int64_t)(next(w) % LONG_KEYS);
  }
  *ttl_ms = between(w, 300, 1500);
  return (int64_t)(next(w) % SHORT_KEYS);
}

/* The bare verbs; the belief is the caller's own arithmetic. */
static void bare_cycle(worker *w) {
  int64_t ttl_ms = between(w, 300, 1500), key = w->private_key;
  if (one_in(w, 2)) {
    key = contended_key(w, &ttl_ms);
  }
  char name[64];
  name_key(name, sizeof name, key);
  canceller none = {0}, c;
  syncguard_acquired grant;
  syncguard_error *err = NULL;
  syncguard_status status;
  int64_t begun = now(), lease = (ttl_ms * 99 / 100 - 2) * MS;
  syncguard_cancel *token = begin_cancel(&c, one_in(w, 3), between(w, 0, 20000));
  TIMED(V_ACQUIRE, key, OPERATION_MS, &c, status = syncguard_acquire(client, name, SYNCGUARD_NUL, ttl_ms, token, &grant, &err));
  tell(err);
  if (status != SYNCGUARD_STATUS_OK) {
    sleep_ms(between(w, 1, 10));
    return;
  }
  hold h = new_hold(key, ttl_ms);
  h.fence = strtoll(grant.fence, NULL, 10);
  note_id(grant.lock_id);
  int64_t until = begun + lease, at = now();
  if (at < until) {
    put(GRANT_BARE, h.id, key, at, begun, h.fence, until, ttl_ms * MS);
    write_to_resource(w, &h);
  }
  for (int64_t n = between(w, 0, 3); n > 0; n--) {
    sleep_ms(between(w, 1, ttl_ms / 3));
    int64_t sent = now(), expires;
    err = NULL;
    TIMED(V_BARE_EXTEND, key, OPERATION_MS, &none,
          status = syncguard_extend(client, grant.lock_id, SYNCGUARD_NUL, ttl_ms, NULL, &expires, &err));
    tell(err);
    if (status == SYNCGUARD_STATUS_OK) {
      until = sent + lease;
      put(HELD, h.id, key, sent, 0, h.fence, until, 0);
    } else if (status == SYNCGUARD_STATUS_ABSENT) {
      put(ABSENT, h.id, key, now(), sent, h.fence, 0, 0);
      break;
    }
    if (now() < until) {
      write_to_resource(w, &h);
    }
  }
  put(RELEASING, h.id, key, now(), 0, h.fence, 0, 0);
  err = NULL;
  TIMED(V_BARE_RELEASE, key, OPERATION_MS, &none, status = syncguard_release(client, grant.lock_id, SYNCGUARD_NUL, NULL, &err));
  put(RELEASED, h.id, key, now(), status == SYNCGUARD_STATUS_OK ? 0 : status == SYNCGUARD_STATUS_ABSENT ? 1 : -1, h.fence, 0, 0);
  tell(err);
}

static void look_around(worker *w) {
  int64_t ttl_ms, key = contended_key(w, &ttl_ms);
  char name[64];
  name_key(name, sizeof name, key);
  canceller c;
  syncguard_error *err = NULL;
  syncguard_cancel *token = begin_cancel(&c, one_in(w, 2), between(w, 0, 50000));
  if (one_in(w, 2)) {
    bool locked;
    TIMED(V_IS_LOCKED, key, OPERATION_MS, &c, syncguard_is_locked(client, name, SYNCGUARD_NUL, token, &locked, &err));
  } else {
    syncguard_lock_info info;
    TIMED(V_LOOKUP, key, OPERATION_MS, &c, syncguard_lookup_by_key(client, name, SYNCGUARD_NUL, token, &info, &err));
  }
  tell(err);
}

/* An acquire of a key of its own with a long lease, cancelled on its way: the library has to undo it. */
static void unknown_acquire(worker *w) {
  int64_t key = (incarnation + 1) * 1000000 + __atomic_fetch_add(&unknowns, 1, __ATOMIC_RELAXED);
  char name[64];
  name_key(name, sizeof name, key);
  canceller c;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.ttl_ms = UNKNOWN_TTL_MS;
  options.acquire_timeout_ms = 100;
  options.cancel = begin_cancel(&c, !one_in(w, 4), between(w, 0, one_in(w, 2) ? 300 : 3000));
  syncguard_guard *guard = NULL;
  syncguard_error *err = NULL;
  int64_t begun = now();
  TIMED(V_LOCK, key, OPERATION_MS, &c, syncguard_lock(client, name, SYNCGUARD_NUL, &options, &guard, &err));
  if (guard != NULL) {
    note_id(syncguard_guard_lock_id(guard));
  } else {
    put(UNKNOWN, 0, key, now(), begun, syncguard_error_may_have_applied(err), 0, 0);
  }
  tell(err);
  syncguard_guard_free(guard);
  sleep_ms(between(w, 0, 10));
}

/* A child that uses the guard it inherited: all of it must be refused, and the parent must keep its lock. */
static void fork_with_guard(worker *w) {
  char name[64];
  name_key(name, sizeof name, w->private_key);
  hold h = new_hold(w->private_key, 1500);
  syncguard_lock_options options = guard_options(&h);
  syncguard_guard *guard = NULL;
  int64_t begun = now();
  if (syncguard_try_lock(client, name, SYNCGUARD_NUL, &options, &guard, NULL) != SYNCGUARD_STATUS_OK) {
    return;
  }
  pid_t child = fork();
  if (child == 0) {
    alarm(10); /* the kernel ends a child that hangs */
    bool locked, refused = syncguard_guard_is_lost(guard) && syncguard_guard_release(guard, NULL, NULL) < 0 &&
                           syncguard_is_locked(client, "other", SYNCGUARD_NUL, NULL, &locked, NULL) < 0;
    syncguard_guard_free(guard);
    syncguard_client_free(client);
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child > 0) {
    put(FORKED, h.id, w->private_key, now(), WIFEXITED(status) ? WEXITSTATUS(status) : 2, 0, 0, 0);
  }
  keep(w, guard, &h, begun);
}

static void *work(void *data) {
  worker *w = data;
  own = &calls[w->private_key % 10];
  own->thread = gettid();
  if (!is_runner(w) && !is_keeper(w)) {
    fork_with_guard(w);
  }
  while (now() < end_at) {
    int64_t n = between(w, 0, 99), ttl_ms;
    if (is_keeper(w) && !one_in(w, 8)) {
      take(w, w->private_key, between(w, 300, 800), 0, false);
    } else if (n < 5 || (is_runner(w) && !one_in(w, 8))) {
      for (int i = 0; i < 100 && now() < end_at; i++) {
        take(w, (int64_t)(next(w) % HOT_KEYS), between(w, 300, 1500), between(w, 500, 2500), one_in(w, 12));
      }
    } else if (n < 40) {
      int64_t key = contended_key(w, &ttl_ms);
      take(w, key, ttl_ms, between(w, 100, 2500), one_in(w, 3));
    } else if (n < 50) {
      take(w, w->private_key, between(w, 300, 800), 0, false);
    } else if (n < 65) {
      bare_cycle(w);
    } else if (n < 78) {
      look_around(w);
    } else if (n < 98) {
      unknown_acquire(w);
    } else {
      fork_with_guard(w);
    }
  }
  close(w->gate);
  return NULL;
}

static int entries(const char *path) {
  int n = 0;
  DIR *dir = opendir(path);
  if (dir == NULL) {
    return 0;
  }
  for (struct dirent *e; (e = readdir(dir)) != NULL;) {
    n += e->d_name[0] != '.';
  }
  closedir(dir);
  return n;
}

static int64_t resident_kb(void) {
  long long pages = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file != NULL) {
    if (fscanf(file, "%lld %lld", &pages, &resident) != 2) {
      resident = 0;
    }
    fclose(file);
  }
  return resident * 4;
}

int main(int argc, char **argv) {
  if (argc < 9) {
    return 2;
  }
  setvbuf(stderr, NULL, _IOLBF, 0);
  int threads_before = entries("/proc/self/task"), descriptors_before = entries("/proc/self/fd");
  log_fd = open(argv[2], O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600);
  ids_fd = open(argv[3], O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600);
  gate_path = argv[4];
  incarnation = atoll(argv[6]);
  slot = atoll(argv[7]);
  end_at = atoll(argv[8]);
  pthread_t stalls;
  if (log_fd < 0 || ids_fd < 0 || pthread_create(&stalls, NULL, watch, NULL) != 0) {
    return 3;
  }
  syncguard_client_options options = SYNCGUARD_CLIENT_OPTIONS_INIT;
  options.connect_timeout_ms = CONNECT_MS;
  options.operation_timeout_ms = options.dispose_timeout_ms = OPERATION_MS;
  syncguard_error *err = NULL;
  if (syncguard_client_open(argv[1], SYNCGUARD_NUL, &options, &client, &err) != SYNCGUARD_STATUS_OK) {
    tell(err);
    return 4;
  }
  pthread_t threads[THREADS];
  static worker workers[THREADS];
  static line lines[THREADS];
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  for (int i = 0; i < THREADS; i++) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", gate_path);
    workers[i].state = strtoull(argv[5], NULL, 10) + ((uint64_t)i << 40);
    workers[i].private_key = 100 + slot * 10 + i;
    workers[i].line = &lines[i];
    pthread_mutex_init(&lines[i].mutex, NULL);
    pthread_cond_init(&lines[i].changed, &monotonic);
    workers[i].gate = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(workers[i].gate, (struct sockaddr *)&address, sizeof address) != 0 ||
        pthread_create(&threads[i], NULL, work, &workers[i]) != 0) {
      return 5;
    }
  }
  while (now() + 250 * MS < end_at) {
    sleep_ms(250);
    put(MEMORY, 0, 0, now(), resident_kb(), __atomic_load_n(&holds, __ATOMIC_RELAXED), 0, 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  syncguard_client_free(client);
  /* The thread that watches, the files of the records and of the lock ids, and what the library keeps for the life of the process. The undo of
   * an acquire looks for the last time more than six seconds later. */
  int64_t more_threads, more_descriptors, until = now() + 30000 * MS;
  do {
    sleep_ms(20);
    more_threads = entries("/proc/self/task") - threads_before - 2;
    more_descriptors = entries("/proc/self/fd") - descriptors_before - 4;
  } while ((more_threads > 0 || more_descriptors > 0) && now() < until);
  put(LEFT, 0, 0, now(), more_threads > 0 ? more_threads : 0, more_descriptors > 0 ? more_descriptors : 0, 0, 0);
  put(EXIT, 0, 0, now(), 0, 0, 0, 0);
  return 0;
}
