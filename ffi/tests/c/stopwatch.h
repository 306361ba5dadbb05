/* What a call takes, and how much of that the machine did not let this process run. */
#ifndef STOPWATCH_H
#define STOPWATCH_H

#include "check.h"

#include <pthread.h>

static inline int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* How long this thread was ready to run and did not. */
static inline int64_t delayed_us(void) {
  unsigned long long ran = 0, waited = 0;
  FILE *stat = fopen("/proc/thread-self/schedstat", "r");
  if (stat != NULL) {
    if (fscanf(stat, "%llu %llu", &ran, &waited) != 2) {
      waited = 0;
    }
    fclose(stat);
  }
  return (int64_t)(waited / 1000);
}

/* A thread that sleeps for 2 ms at a time: if it wakes up late, the process did not run. The times of that, oldest first. */
#define STALLS 10000
static struct {
  int64_t from, to;
} stalls[STALLS];
static int stalls_seen;

static void *metronome(void *unused) {
  (void)unused;
  for (int64_t last = now_us();;) {
    pause_ms(2);
    int64_t now = now_us();
    int n = __atomic_load_n(&stalls_seen, __ATOMIC_RELAXED);
    if (now - last > 4000 && n < STALLS) {
      stalls[n].from = last + 2000;
      stalls[n].to = now;
      __atomic_store_n(&stalls_seen, n + 1, __ATOMIC_RELEASE);
    }
    last = now;
  }
  return NULL;
}

/* How much of this time the process did not run. */
static inline int64_t stalled_us(int64_t from, int64_t to) {
  int64_t sum = 0;
  pause_ms(5); /* the metronome may not have noticed yet */
  int n = __atomic_load_n(&stalls_seen, __ATOMIC_ACQUIRE);
  for (int i = 0; i < n; i++) {
    int64_t begin = stalls[i].from > from ? stalls[i].from : from, end = stalls[i].to < to ? stalls[i].to : to;
    sum += end > begin ? end - begin : 0;
  }
  return sum;
}

static inline void begin_ticking(void) {
  static pthread_t ticking;
  CHECK(pthread_create(&ticking, NULL, metronome, NULL) == 0);
}

#endif
