/* 51: no thread and no descriptor to be had. What was locked stays valid or is given back; nothing panics. */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static volatile int lost_calls;

static void on_lost(void *data, const syncguard_error *why) {
  (void)data;
  (void)why;
  lost_calls++;
}

static void limit(int what, rlim_t soft) {
  struct rlimit r;
  CHECK(getrlimit(what, &r) == 0);
  r.rlim_cur = soft < r.rlim_max ? soft : r.rlim_max;
  CHECK(setrlimit(what, &r) == 0);
}

/* The limit of processes does not bind root: go on as the user "nobody", in a child, which must not have used the library before. A root that
 * cannot become "nobody" is that of a container, and another user outside. */
static int in_child(void (*body)(void)) {
  pid_t child = fork();
  if (child == 0) {
    alarm(900);
    if (geteuid() == 0) {
      if (setgid(65534) != 0 || setuid(65534) != 0) {
        fprintf(stderr, "   goes on as root\n");
      }
    }
    body();
    _exit(0);
  }
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void *nothing(void *data) { return data; }

/* Not one more, however many this user runs already. */
static void no_more_threads(void) {
  pthread_t thread;
  limit(RLIMIT_NPROC, 0);
  CHECK(pthread_create(&thread, NULL, nothing, NULL) != 0);
}

static void without_threads(void) {
  struct rlimit before;
  CHECK(getrlimit(RLIMIT_NPROC, &before) == 0);
  syncguard_client *client = open_client();
  syncguard_guard *guard = (syncguard_guard *)&guard, *timer = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  bool locked = true;

  /* The first guard needs the timer's thread: a clean error, and the lock is not left behind. */
  no_more_threads();
  EXPECT(SYNCGUARD_STATUS_RATE_LIMITED, syncguard_try_lock(client, "first", NUL, NULL, &guard, &err));
  CHECK(guard == NULL);
  EXPECT(OK, syncguard_is_locked(client, "first", NUL, NULL, &locked, &err));
  CHECK(!locked);
  limit(RLIMIT_NPROC, before.rlim_cur);

  /* A heartbeat that cannot start is tried again. The timer runs already; the limit is there before the heartbeat can be. */
  options.ttl_ms = 3600000;
  EXPECT(OK, syncguard_lock(client, "timer", NUL, &options, &timer, &err));
  no_more_threads();
  options.heartbeat_ms = 50;
  EXPECT(OK, syncguard_lock(client, "beat", NUL, &options, &guard, &err));
  int64_t expires = syncguard_guard_expires_at_ms(guard);
  pause_ms(300);
  CHECK(syncguard_guard_expires_at_ms(guard) == expires && !syncguard_guard_is_lost(guard));
  limit(RLIMIT_NPROC, before.rlim_cur);
  EVENTUALLY(syncguard_guard_expires_at_ms(guard) > expires);
  CHECK(!syncguard_guard_is_lost(guard));
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  syncguard_guard_free(guard);

  /* Loss needs no thread; its callback comes as soon as there is one. */
  no_more_threads();
  options.ttl_ms = 300;
  options.on_lost = on_lost;
  EXPECT(OK, syncguard_lock(client, "lost", NUL, &options, &guard, &err));
  CHECK(syncguard_guard_wait_lost(guard, 60000));
  limit(RLIMIT_NPROC, before.rlim_cur);
  EVENTUALLY(lost_calls == 1);
  syncguard_guard_free(guard);
  syncguard_guard_free(timer);
  syncguard_client_free(client);
}

static void no_threads(void) { CHECK(in_child(without_threads)); }

static void without_descriptors(void) {
  struct rlimit before;
  CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
  syncguard_client *client = open_client(), *other = NULL;
  syncguard_guard *held = lock(client, "held"), *guard = NULL;
  int lowest = open("/dev/null", O_RDONLY);
  CHECK(lowest >= 0 && close(lowest) == 0);
  limit(RLIMIT_NOFILE, (rlim_t)lowest);

  syncguard_client_options options = patient();
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &other, &err));
  syncguard_error *err = NULL;
  syncguard_status status = syncguard_try_lock(other, "other", NUL, NULL, &guard, &err);
  CHECK(status == SYNCGUARD_STATUS_RATE_LIMITED || status == SYNCGUARD_STATUS_SERVICE_UNAVAILABLE);
  CHECK(guard == NULL);
  syncguard_error_free(err);
  CHECK(syncguard_guard_lost_fd(held) == -1);
  CHECK(!syncguard_guard_is_lost(held) && syncguard_guard_remaining_ms(held) > 0);

  limit(RLIMIT_NOFILE, before.rlim_cur);
  EXPECT(OK, syncguard_guard_extend(held, 30000, NULL, &err));
  CHECK(syncguard_guard_lost_fd(held) >= 0);
  EXPECT(OK, syncguard_try_lock(other, "other", NUL, NULL, &guard, &err));
  syncguard_guard_free(guard);
  EXPECT(OK, syncguard_guard_release(held, NULL, &err));
  syncguard_guard_free(held);
  syncguard_client_free(other);
  syncguard_client_free(client);
}

static void no_descriptors(void) { CHECK(in_child(without_descriptors)); }

int main(int argc, char **argv) {
  BEGIN;
  if (strncmp(URL, "sqlite:", 7) == 0) {
    char dir[512];
    snprintf(dir, sizeof dir, "%s", URL + 7);
    char *slash = strrchr(dir, '/');
    CHECK(slash != NULL);
    *slash = 0;
    CHECK(chmod(dir, 0777) == 0);
  }
  RUN(no_threads);
  RUN(no_descriptors);
  return 0;
}
