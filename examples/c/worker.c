/* A worker of which only one may run, on whatever machine. It works in steps inside an event loop and stops at once when its lock
 * is lost: the guard's descriptor becomes readable. On SIGTERM and SIGINT it gives the lock back, so that the next one need not wait
 * for the lease to end.
 *
 *   ./worker URL STEPS
 *
 * Ends with 0 when it is done or was told to stop, 2 when another one runs already, 3 when it lost its lock.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <syncguard.h>

static void watch(int loop, int fd) {
  struct epoll_event event = {0};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) != 0) {
    perror("epoll_ctl");
    exit(1);
  }
}

int main(int argc, char **argv) {
  const char *url = argc > 1 ? argv[1] : "sqlite:./locks.db";
  long steps = argc > 2 ? atol(argv[2]) : 20;
  syncguard_client *client = NULL;
  syncguard_guard *guard = NULL;
  syncguard_error *err = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  int result = 1;

  /* The library may not be called from a signal handler: signals are read in the loop. */
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, NULL);

  /* Short, so that another machine can take over soon after this one has died. Renewed three times within it. */
  options.ttl_ms = 3000;

  if (syncguard_client_open(url, SYNCGUARD_NUL, NULL, &client, &err) != SYNCGUARD_STATUS_OK ||
      syncguard_client_setup_schema(client, NULL, &err) != SYNCGUARD_STATUS_OK) {
    goto trouble;
  }
  syncguard_status status = syncguard_try_lock(client, "nightly-report", SYNCGUARD_NUL, &options, &guard, &err);
  if (status == SYNCGUARD_STATUS_LOCKED) {
    printf("another one runs\n");
    result = 2;
    goto end;
  }
  if (status != SYNCGUARD_STATUS_OK) {
    goto trouble;
  }

  int loop = epoll_create1(EPOLL_CLOEXEC);
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  int told = signalfd(-1, &signals, SFD_CLOEXEC);
  int lost = syncguard_guard_lost_fd(guard);
  struct itimerspec every = {{0, 50000000}, {0, 50000000}};
  if (loop < 0 || timer < 0 || told < 0 || lost < 0 || timerfd_settime(timer, 0, &every, NULL) != 0) {
    perror("the event loop");
    goto end;
  }
  watch(loop, timer);
  watch(loop, told);
  watch(loop, lost);
  printf("working with fence %s\n", syncguard_guard_fence(guard));
  fflush(stdout);

  while (steps > 0) {
    struct epoll_event event;
    if (epoll_wait(loop, &event, 1, -1) != 1) {
      continue; /* stopped and continued */
    }
    if (event.data.fd == lost) {
      printf("lost the lock, stopping\n");
      result = 3;
      break;
    }
    if (event.data.fd == told) {
      printf("told to stop\n");
      result = 0;
      break;
    }
    uint64_t ticks;
    if (read(timer, &ticks, sizeof ticks) == (ssize_t)sizeof ticks) {
      steps--; /* a step of the work */
    }
  }
  if (steps == 0) {
    printf("done\n");
    result = 0;
  }
  /* The descriptor belongs to the guard: out of the loop before the guard is freed. */
  close(loop);
  close(timer);
  close(told);
  goto end;

trouble:
  fprintf(stderr, "%s\n", syncguard_error_message(err));
  syncguard_error_free(err);
end:
  syncguard_guard_free(guard);
  syncguard_client_free(client);
  return result;
}
