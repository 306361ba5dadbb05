/* Wall clocks that are wrong: the program's own, which it moves itself by the file WALL_CLOCK_OFFSET (a preloaded clock has it
 * mapped), and the store's, of which STORE_SECONDS says what it shows. */
#include "check.h"

#include <fcntl.h>

static void set_wall_clock(int64_t seconds) {
  const char *path = getenv("WALL_CLOCK_OFFSET");
  CHECK(path != NULL);
  int fd = open(path, O_WRONLY);
  CHECK(fd >= 0 && pwrite(fd, &seconds, sizeof seconds, 0) == sizeof seconds);
  close(fd);
}

static volatile int lost;

static void on_lost(void *data, const syncguard_error *why) {
  (void)data;
  (void)why;
  lost++;
}

/* A lease that is not renewed ends in its time, and not an hour later. */
static void a_short_lease_ends(syncguard_client *client, int64_t step) {
  syncguard_acquired left;
  syncguard_guard *next = NULL;
  syncguard_lock_options wait = SYNCGUARD_LOCK_OPTIONS_INIT;
  EXPECT(OK, syncguard_acquire(client, "short", NUL, 100, NULL, &left, &err));
  set_wall_clock(step);
  wait.acquire_timeout_ms = 60000;
  wait.retry_delay_ms = 20;
  EXPECT(OK, syncguard_lock(client, "short", NUL, &wait, &next, &err));
  syncguard_guard_free(next);
}

/* 59: not lost, not freed, not frozen, and renewed as before. */
static void steps_during_a_hold(void) {
  int64_t steps[] = {3600, -3600, 0};
  syncguard_client *client = open_client();
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  syncguard_guard *guard = NULL, *second = NULL;
  time_t start = time(NULL);
  options.heartbeat_ms = 20;
  options.on_lost = on_lost;
  EXPECT(OK, syncguard_lock(client, "k", NUL, &options, &guard, &err));
  for (int i = 0; i < 3; i++) {
    set_wall_clock(steps[i]);
    int64_t moved = (int64_t)(time(NULL) - start) - steps[i];
    CHECK(moved >= 0 && moved < 300);
    CHECK(!syncguard_guard_is_lost(guard));
    CHECK(syncguard_guard_remaining_ms(guard) > 10000 && syncguard_guard_remaining_ms(guard) <= 30000);
    EXPECT(LOCKED, syncguard_try_lock(client, "k", NUL, NULL, &second, &err));
    int64_t expires = syncguard_guard_expires_at_ms(guard);
    EVENTUALLY(syncguard_guard_expires_at_ms(guard) != expires);
    EXPECT(OK, syncguard_guard_extend(guard, 30000, NULL, &err));
    a_short_lease_ends(client, -steps[i]);
  }
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  CHECK(lost == 0);
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

/* 64: the store is in 1970 or 2100; here durations count. */
static void a_store_in_another_age(void) {
  const char *seconds = getenv("STORE_SECONDS");
  CHECK(seconds != NULL);
  int64_t year = atoll(seconds);
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "k"), *second = NULL;
  /* What is shown is the store's; the test around this one may have been under way for a while. */
  int64_t apart = syncguard_guard_expires_at_ms(guard) / 1000 - year;
  CHECK(apart >= 0 && apart < 1200);
  CHECK(syncguard_guard_remaining_ms(guard) > 10000 && syncguard_guard_remaining_ms(guard) <= 30000);
  EXPECT(OK, syncguard_guard_extend(guard, 30000, NULL, &err));
  EXPECT(LOCKED, syncguard_try_lock(client, "k", NUL, NULL, &second, &err));
  CHECK(!syncguard_guard_is_lost(guard));
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(steps_during_a_hold);
  RUN(a_store_in_another_age);
  return 0;
}
