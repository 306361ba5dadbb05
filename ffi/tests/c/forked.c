/* 49: what a forked child may do with what it inherited, and that its parent does not notice. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define INTERNAL SYNCGUARD_STATUS_INTERNAL

static void child_must_succeed(pid_t child) {
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fprintf(stderr, "the child ended with %d\n", status);
  }
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What the guard answers in a child; frees the error. Ask for both in this order: the call writes the error. */
#define lost_to_the_parent(call, error)                                                              \
  do {                                                                                              \
    error = NULL;                                                                                   \
    CHECK((call) == SYNCGUARD_STATUS_LOST && syncguard_error_status(error) == SYNCGUARD_STATUS_LOST); \
    CHECK(syncguard_error_loss_reason(error) == SYNCGUARD_LOSS_FORKED);                             \
    syncguard_error_free(error);                                                                    \
  } while (0)

/* A client of its own works in a child, and sees the parent's lock. Only SQLite is refused, because the parent has the file open. */
static void child_opens_its_own(void) {
  if (strncmp(URL, "sqlite:", 7) == 0) {
    syncguard_client_options options = patient();
    syncguard_client *client = NULL;
    syncguard_error *why = NULL;
    syncguard_guard *guard = NULL;
    EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
    CHECK(syncguard_try_lock(client, "parent's", NUL, NULL, &guard, &why) == INTERNAL && guard == NULL);
    CHECK(strstr(syncguard_error_message(why), "exec a new program") != NULL);
    syncguard_error_free(why);
    syncguard_client_free(client);
    return;
  }
  syncguard_client *client = open_client();
  syncguard_guard *guard = NULL;
  EXPECT(LOCKED, syncguard_try_lock(client, "parent's", NUL, NULL, &guard, &err));
  syncguard_guard_free(lock(client, "child's"));
  syncguard_client_free(client);
}

static void child_uses_all(syncguard_client *client, syncguard_guard *guard) {
  syncguard_guard *g = (syncguard_guard *)&g;
  syncguard_acquired a;
  syncguard_lock_info info;
  bool yes;
  int64_t at;
  uint64_t n;
  uint32_t told, untold;
  syncguard_error *why = NULL;
  const char *id = syncguard_guard_lock_id(guard);
  EXPECT(INTERNAL, syncguard_lock(client, "k", NUL, NULL, &g, &err));
  CHECK(g == NULL);
  EXPECT(INTERNAL, syncguard_try_lock(client, "k", NUL, NULL, &g, &err));
  EXPECT(INTERNAL, syncguard_acquire(client, "k", NUL, 1000, NULL, &a, &err));
  EXPECT(INTERNAL, syncguard_release(client, id, NUL, NULL, &err));
  EXPECT(INTERNAL, syncguard_extend(client, id, NUL, 1000, NULL, &at, &err));
  EXPECT(INTERNAL, syncguard_is_locked(client, "k", NUL, NULL, &yes, &err));
  EXPECT(INTERNAL, syncguard_lookup_by_key(client, "k", NUL, NULL, &info, &err));
  EXPECT(INTERNAL, syncguard_owns(client, id, NUL, &yes, &err));
  EXPECT(INTERNAL, syncguard_owns_with(client, id, NUL, NULL, &yes, &err));
  EXPECT(INTERNAL, syncguard_lock_once(client, "k", NUL, NULL, &g, &err));
  CHECK(g == NULL && syncguard_client_supports_fencing(client) && syncguard_guard_waited_ms(guard) >= 0);
  EXPECT(INTERNAL, syncguard_client_check(client, NULL, &err));
  EXPECT(INTERNAL, syncguard_client_check_report(client, NULL, &told, &untold, &err));
  EXPECT(INTERNAL, syncguard_client_purge_expired(client, 1, NULL, &n, &err));
  lost_to_the_parent(syncguard_guard_extend(guard, 1000, NULL, &why), why);
  lost_to_the_parent(syncguard_guard_release(guard, NULL, &why), why);
  CHECK(syncguard_guard_loss_reason(guard) == SYNCGUARD_LOSS_FORKED);
  CHECK(syncguard_guard_is_lost(guard) && syncguard_guard_remaining_ms(guard) == 0);
  CHECK(syncguard_guard_wait_lost(guard, SYNCGUARD_FOREVER) && syncguard_guard_lost_fd(guard) == -1);
  CHECK(strcmp(syncguard_guard_key(guard), "parent's") == 0);
}

static void a_child_answers_errors_and_sends_nothing(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "parent's");
  pid_t child = fork();
  if (child == 0) {
    alarm(600);
    child_uses_all(client, guard);
    syncguard_guard_free(guard);
    syncguard_client_free(client);
    child_opens_its_own();
    /* A leak check in a child takes what only the parent's threads hold for lost. */
    getenv("SLOW") ? _exit(0) : exit(0);
  }
  child_must_succeed(child);
  EXPECT(OK, syncguard_guard_extend(guard, 30000, NULL, &err));
  CHECK(!syncguard_guard_is_lost(guard));
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

/* Forks into a new pid namespace, where the child is PID 1. */
static pid_t fork_as_pid_1(void) {
  /* Without privileges a user namespace gives the right to make the other one. */
  if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
    perror("a new pid namespace: run this test as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
           "user.max_user_namespaces, user.max_pid_namespaces)");
    _exit(1);
  }
  return fork();
}

/* The parent is PID 1, as in a container, and so is its child. */
static void a_child_with_the_pid_of_its_parent_sends_nothing(void) {
  pid_t outside = fork();
  if (outside == 0) {
    alarm(600);
    pid_t parent = fork_as_pid_1();
    if (parent == 0) {
      /* An alarm does not end PID 1; the end of its parent does. */
      CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getpid() == 1);
      syncguard_client *client = open_client();
      syncguard_guard *guard = lock(client, "parent's");
      pid_t child = fork_as_pid_1();
      if (child == 0) {
        CHECK(getpid() == 1);
        child_uses_all(client, guard);
        syncguard_guard_free(guard);
        syncguard_client_free(client);
        child_opens_its_own();
        _exit(0);
      }
      child_must_succeed(child);
      CHECK(!syncguard_guard_is_lost(guard));
      EXPECT(OK, syncguard_guard_extend(guard, 30000, NULL, &err));
      EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
      syncguard_guard_free(guard);
      syncguard_client_free(client);
      _exit(0);
    }
    child_must_succeed(parent);
    _exit(0);
  }
  child_must_succeed(outside);
}

static volatile int stop;

static void *cycles(void *data) {
  while (!stop) {
    syncguard_guard_free(lock(data, "busy"));
  }
  return NULL;
}

/* Forked in the middle of other threads' calls, whatever mutex they hold. */
static void forks_under_load(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "parent's");
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, cycles, client) == 0);
  for (int i = 0; i < 20; i++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(600);
      child_uses_all(client, guard);
      syncguard_guard_free(guard);
      syncguard_client_free(client);
      _exit(0);
    }
    child_must_succeed(child);
  }
  stop = 1;
  CHECK(pthread_join(thread, NULL) == 0);
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

/* What a child inherited has no threads in it to wait for. */
static void a_child_frees_at_once(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "parent's");
  pid_t child = fork();
  if (child == 0) {
    alarm(600);
    int64_t begun = now_ms();
    syncguard_guard_free(guard);
    syncguard_client_free(client);
    /* Waiting for threads that are not there would take a second. */
    _exit(now_ms() - begun < 900 ? 0 : 3);
  }
  child_must_succeed(child);
  CHECK(!syncguard_guard_is_lost(guard));
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(a_child_with_the_pid_of_its_parent_sends_nothing);
  RUN(a_child_answers_errors_and_sends_nothing);
  RUN(forks_under_load);
  RUN(a_child_frees_at_once);
  return 0;
}
