/* One of several programs that contend for a key: PROGRAM URL KEY MILLISECONDS. Prints for each time it held the key the fence
 * and when it entered and left, on the machine's monotonic clock. */
#include "check.h"

#include <inttypes.h>

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc < 4) {
    return 2;
  }
  URL = argv[1];
  syncguard_client *client = open_client();
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.acquire_timeout_ms = 60000;
  options.retry_delay_ms = 1;
  options.backoff = SYNCGUARD_BACKOFF_FIXED;
  options.jitter = SYNCGUARD_JITTER_FULL;
  int64_t until = now_ms() + atol(argv[3]);
  while (now_ms() < until) {
    syncguard_guard *guard = NULL;
    EXPECT(OK, syncguard_lock(client, argv[2], NUL, &options, &guard, &err));
    int64_t entered = now_ns();
    pause_ms(1);
    int64_t left = now_ns();
    printf("%s %" PRId64 " %" PRId64 "\n", syncguard_guard_fence(guard), entered, left);
    EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
    syncguard_guard_free(guard);
  }
  syncguard_client_free(client);
  return 0;
}
