/* Many cycles leave nothing behind: descriptors, threads and resident memory are the same at the end as after the first thousand.
 * PROGRAM URL [CYCLES]. With SLOW in the environment, for valgrind and sanitizers, whose memory is not ours: a few, and what is
 * lost is for them to find. */
#include "check.h"

#include <dirent.h>

struct load {
  int fds, threads;
  long kib;
};

static struct load measure(void) {
  struct load load = {0, 0, 0};
  char line[128];
  DIR *dir = opendir("/proc/self/fd");
  CHECK(dir != NULL);
  while (readdir(dir) != NULL) {
    load.fds++;
  }
  closedir(dir);
  FILE *f = fopen("/proc/self/status", "r");
  CHECK(f != NULL);
  while (fgets(line, sizeof line, f) != NULL) {
    sscanf(line, "Threads: %d", &load.threads);
    sscanf(line, "VmRSS: %ld", &load.kib);
  }
  fclose(f);
  return load;
}

static long finalized;

static void finalize(void *data) { *(long *)data += 1; }

static void on_lost(void *data, const syncguard_error *why) {
  (void)data;
  (void)why;
}

static void cycle(syncguard_client *client) {
  syncguard_guard *guard = NULL, *second = NULL;
  syncguard_error *err = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  syncguard_cancel *cancel = syncguard_cancel_new();
  options.cancel = cancel;
  options.on_lost = on_lost;
  options.user_data = &finalized;
  options.user_data_free = finalize;
  CHECK(syncguard_lock(client, "cycle", 5, &options, &guard, &err) == OK);
  CHECK(syncguard_lock(client, "", 0, &options, &second, &err) == IA && second == NULL);
  syncguard_error_free(err);
  syncguard_guard_free(guard);
  syncguard_cancel_free(cancel);
}

int main(int argc, char **argv) {
  BEGIN;
  int slow = getenv("SLOW") != NULL;
  long cycles = argc > 2 ? atol(argv[2]) : slow ? 200 : 10000, first = slow ? 20 : 1000;
  syncguard_client *client = open_client();
  for (long i = 0; i < first; i++) {
    cycle(client);
  }
  struct load before = measure();
  int64_t begun = now_ms();
  for (long i = 0; i < cycles; i++) {
    cycle(client);
  }
  struct load after = measure();
  fprintf(stderr, "%ld cycles, %.1f us each: %d fds, %d threads, %ld KiB; then %d, %d, %ld\n", cycles,
          (double)(now_ms() - begun) * 1000.0 / (double)cycles, before.fds, before.threads, before.kib, after.fds, after.threads,
          after.kib);
  CHECK(after.fds == before.fds && after.threads == before.threads);
  /* The store warms its caches; twenty bytes per cycle would show. */
  CHECK(slow || after.kib - before.kib <= 384);
  CHECK(finalized == 2 * (cycles + first));
  syncguard_client_free(client);
  return 0;
}
