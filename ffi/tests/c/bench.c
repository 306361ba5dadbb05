/* PROGRAM URL CYCLES: for each line read, that many cycles of lock and free, and the nanoseconds of one of them. */
#include "check.h"

#include <inttypes.h>

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    return 2;
  }
  URL = argv[1];
  long cycles = atol(argv[2]);
  syncguard_client *client = open_client();
  while (getchar() != EOF) {
    int64_t begun = now_ns();
    for (long i = 0; i < cycles; i++) {
      syncguard_guard_free(lock(client, "bench"));
    }
    printf("%" PRId64 "\n", (now_ns() - begun) / cycles);
    fflush(stdout);
  }
  syncguard_client_free(client);
  return 0;
}
