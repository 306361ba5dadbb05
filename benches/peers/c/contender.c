/* The line protocol of benches/performance/worker.rs for the C interface. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syncguard.h>
#include <time.h>
#include <unistd.h>

#define MOST_CALLERS 128
#define MOST_CROWDS 3

struct caller {
  syncguard_client *client;
  syncguard_lock_options options;
  syncguard_guard *guard;
  char key[32];
};

struct crowd {
  int count;
  syncguard_client *client;
  struct caller callers[MOST_CALLERS];
};

struct round {
  struct caller *caller;
  int me;
  int64_t begun, ended, grants, gave_up;
  double *times;
  size_t count, capacity;
  pthread_t thread;
};

static const char *url;
static char trouble[256];
static int64_t time_ns, hold_us, end_ns;
static pthread_barrier_t together;
static atomic_bool over;
static bool polite;
static _Atomic int64_t total;
static _Atomic int64_t released_at;
static atomic_int released_by;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void hold(void) { usleep((useconds_t)hold_us); }

static void note(const char *what, syncguard_error *err) {
  snprintf(trouble, sizeof trouble, "%s: %s", what, err ? syncguard_error_message(err) : "no reason");
  syncguard_error_free(err);
}

static bool acquire(struct caller *c) {
  syncguard_error *err = NULL;
  enum syncguard_status status = syncguard_lock(c->client, c->key, SYNCGUARD_NUL, &c->options, &c->guard, &err);
  if (status == SYNCGUARD_STATUS_OK) return true;
  if (status == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT) syncguard_error_free(err);
  else note("lock", err);
  return false;
}

static void release(struct caller *c) {
  syncguard_guard_free(c->guard);
  c->guard = NULL;
}

static void push(struct round *r, double value) {
  if (r->count == r->capacity) {
    r->capacity = r->capacity ? r->capacity * 2 : 4096;
    r->times = realloc(r->times, r->capacity * sizeof *r->times);
    if (r->times == NULL) abort();
  }
  r->times[r->count++] = value;
}

static void *cycles(void *arg) {
  struct round *r = arg;
  pthread_barrier_wait(&together);
  int64_t last = r->begun = now();
  while (last - r->begun < time_ns && !trouble[0]) {
    if (!acquire(r->caller)) {
      if (!trouble[0]) snprintf(trouble, sizeof trouble, "a lock that no other caller wants was taken");
      break;
    }
    release(r->caller);
    int64_t t = now();
    push(r, (double)(t - last));
    last = t;
  }
  r->ended = last;
  return NULL;
}

static void *contend(void *arg) {
  struct round *r = arg;
  pthread_barrier_wait(&together);
  while (now() < end_ns && !over && !trouble[0]) {
    if (!acquire(r->caller)) {
      r->gave_up++;
      continue;
    }
    int64_t granted = now(), at = released_at;
    int by = released_by;
    if (granted >= end_ns) {
      release(r->caller);
      break;
    }
    if (by >= 0 && by != r->me) push(r, (double)(granted - at));
    r->grants++;
    int64_t mine = ++total;
    hold();
    released_by = r->me;
    released_at = now();
    release(r->caller);
    while (polite && total == mine && now() < end_ns) usleep(50);
  }
  over = true;
  return NULL;
}

/* As many connections as callers, made and used before anything is measured. */
static void *look(void *arg) {
  struct round *r = arg;
  syncguard_guard *guard = NULL;
  syncguard_error *err = NULL;
  char key[64];
  snprintf(key, sizeof key, "%.30s-before-%p", r->caller->key, arg);
  pthread_barrier_wait(&together);
  if (syncguard_try_lock(r->caller->client, key, SYNCGUARD_NUL, NULL, &guard, &err) < 0) note("try_lock", err);
  syncguard_guard_free(guard);
  return NULL;
}

static void *burst(void *arg) {
  struct round *r = arg;
  pthread_barrier_wait(&together);
  r->begun = now();
  while (!acquire(r->caller) && !trouble[0]) r->gave_up++;
  hold();
  if (r->caller->guard) release(r->caller);
  r->ended = now();
  return NULL;
}

static void *wait_for_it(void *arg) {
  acquire(arg);
  return NULL;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double at(const double *sorted, size_t count, double part) {
  return count ? sorted[(size_t)round((double)(count - 1) * part)] : NAN;
}

static syncguard_client *open_client(uint32_t pool) {
  syncguard_client_options options = SYNCGUARD_CLIENT_OPTIONS_INIT;
  options.pool_size = pool;
  syncguard_client *client = NULL;
  syncguard_error *err = NULL;
  if (syncguard_client_open(url, SYNCGUARD_NUL, &options, &client, &err) != SYNCGUARD_STATUS_OK) note("open", err);
  return client;
}

static void set_up(struct caller *c, syncguard_client *client, const char *key, const char *wait) {
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  memset(c, 0, sizeof *c);
  if (strcmp(wait, "default") != 0) options.acquire_timeout_ms = 600000;
  if (strcmp(wait, "tuned") == 0) {
    options.retry_delay_ms = 2;
    options.backoff = SYNCGUARD_BACKOFF_FIXED;
    options.jitter = SYNCGUARD_JITTER_FULL;
  }
  c->client = client;
  c->options = options;
  snprintf(c->key, sizeof c->key, "%s", key);
}

/* Runs work for every caller at once; what they measured is joined in the first. */
static void each(struct round *rounds, struct caller *callers, int count, void *(*work)(void *)) {
  pthread_barrier_init(&together, NULL, (unsigned)count);
  memset(rounds, 0, (size_t)count * sizeof *rounds);
  for (int i = 0; i < count; i++) {
    rounds[i].caller = &callers[i];
    rounds[i].me = i;
    if (count > 1) pthread_create(&rounds[i].thread, NULL, work, &rounds[i]);
    else work(&rounds[i]);
  }
  for (int i = 0; i < count && count > 1; i++) pthread_join(rounds[i].thread, NULL);
  pthread_barrier_destroy(&together);
  for (int i = 1; i < count; i++) {
    for (size_t n = 0; n < rounds[i].count; n++) push(&rounds[0], rounds[i].times[n]);
    free(rounds[i].times);
  }
  if (rounds[0].times) qsort(rounds[0].times, rounds[0].count, sizeof(double), compare);
}

int main(int argc, char **argv) {
  static struct crowd crowds[MOST_CROWDS];
  static struct caller rivals[MOST_CALLERS];
  static struct round rounds[MOST_CALLERS];
  char line[256], wait[16];
  if (argc != 2) return 2;
  url = argv[1];
  printf("ready libsyncguard %s\n", syncguard_version_string());
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    int count = 0;
    long ms = 0;
    trouble[0] = 0;
    over = false;
    released_by = -1;
    if (sscanf(line, "cycles %d %ld", &count, &ms) == 2) {
      struct crowd *crowd = crowds;
      while (crowd->count != 0 && crowd->count != count) crowd++;
      if (crowd->count == 0) {
        crowd->count = count;
        crowd->client = open_client((uint32_t)count + 1);
        for (int i = 0; i < count; i++) {
          char key[32];
          snprintf(key, sizeof key, "bench-%08d", i);
          set_up(&crowd->callers[i], crowd->client, key, "default");
        }
      }
      time_ns = ms * INT64_C(1000000);
      each(rounds, crowd->callers, count, cycles);
      int64_t begun = rounds[0].begun, ended = rounds[0].ended;
      for (int i = 1; i < count; i++) {
        if (rounds[i].begun < begun) begun = rounds[i].begun;
        if (rounds[i].ended > ended) ended = rounds[i].ended;
      }
      if (!trouble[0])
        printf("ok %zu %lld %f %f\n", rounds[0].count, (long long)(ended - begun), at(rounds[0].times, rounds[0].count, 0.5),
               at(rounds[0].times, rounds[0].count, 0.99));
      free(rounds[0].times);
    } else if (sscanf(line, "contend %d %ld %ld %15s", &count, &hold_us, &ms, wait) == 4 ||
               sscanf(line, "handoff %d %ld %ld %15s", &count, &hold_us, &ms, wait) == 4 ||
               sscanf(line, "burst %d %ld %15s", &count, &hold_us, wait) == 3) {
      bool looped = line[0] != 'b';
      polite = line[0] == 'h';
      syncguard_client *shared = open_client((uint32_t)count + 1);
      for (int i = 0; i < count; i++) set_up(&rivals[i], shared, "bench-contended", wait);
      each(rounds, rivals, count, look);
      end_ns = now() + ms * INT64_C(1000000);
      each(rounds, rivals, count, looped ? contend : burst);
      int64_t grants = 0, gave_up = 0, fewest = INT64_MAX, most = 0, begun = INT64_MAX, ended = 0;
      for (int i = 0; i < count; i++) {
        struct round *r = &rounds[i];
        grants += r->grants;
        gave_up += r->gave_up;
        if (r->grants < fewest) fewest = r->grants;
        if (r->grants > most) most = r->grants;
        if (r->begun < begun) begun = r->begun;
        if (r->ended > ended) ended = r->ended;
      }
      syncguard_client_free(shared);
      if (!trouble[0] && looped)
        printf("ok %lld %lld %zu %f %f %lld %lld %lld\n", (long long)grants, (long long)ms * 1000000LL, rounds[0].count,
               at(rounds[0].times, rounds[0].count, 0.5), at(rounds[0].times, rounds[0].count, 0.99), (long long)fewest,
               (long long)most, (long long)gave_up);
      else if (!trouble[0]) printf("ok %lld %lld\n", (long long)(ended - begun), (long long)gave_up);
      free(rounds[0].times);
    } else if (sscanf(line, "wait %d %15s", &count, wait) == 2) {
      syncguard_client *shared = open_client((uint32_t)count + 1);
      for (int i = 0; i <= count; i++) set_up(&rivals[i], shared, "bench-waited", wait);
      if (acquire(&rivals[count])) {
        for (int i = 0; i < count; i++) {
          pthread_t thread;
          pthread_create(&thread, NULL, wait_for_it, &rivals[i]);
        }
        printf("ok\n");
      } else if (!trouble[0]) snprintf(trouble, sizeof trouble, "the holder was not granted its lock");
    } else snprintf(trouble, sizeof trouble, "no such request");
    if (trouble[0]) printf("error %s\n", trouble);
    fflush(stdout);
  }
  _exit(0);
}
