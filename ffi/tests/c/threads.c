/* Several threads at one handle: frees under a call, cancellation, races, signals, many guards. */
#include "stopwatch.h"

#include <signal.h>
#include <sys/time.h>

struct job {
  pthread_t thread;
  syncguard_client *client;
  syncguard_guard *guard;
  syncguard_cancel *cancel;
  syncguard_status status;
  int64_t timeout;
  bool lost;
  int64_t done;
};

static void begin(struct job *job, void *(*body)(void *)) { CHECK(pthread_create(&job->thread, NULL, body, job) == 0); }

static void end(struct job *job) { CHECK(pthread_join(job->thread, NULL) == 0); }

static void *waits_for_lock(void *data) {
  struct job *job = data;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.acquire_timeout_ms = job->timeout;
  options.retry_delay_ms = job->cancel ? 60000 : 20;
  options.backoff = SYNCGUARD_BACKOFF_FIXED;
  options.jitter = SYNCGUARD_JITTER_NONE;
  options.cancel = job->cancel;
  job->status = syncguard_lock(job->client, "waited for", NUL, &options, &job->guard, NULL);
  job->done = now_ms();
  return NULL;
}

static void *waits_for_loss(void *data) {
  struct job *job = data;
  job->lost = syncguard_guard_wait_lost(job->guard, SYNCGUARD_FOREVER);
  return NULL;
}

/* 44: the client is freed while a thread waits with it; the wait goes on and succeeds. */
static void a_client_freed_under_a_call(void) {
  syncguard_client *other = open_client();
  struct job job = {0};
  job.timeout = SYNCGUARD_FOREVER;
  do {
    syncguard_guard *held = lock(other, "waited for");
    job.client = open_client();
    begin(&job, waits_for_lock);
    pause_ms(100);
    syncguard_client_free(job.client);
    syncguard_guard_free(held);
    end(&job);
    /* A call that a busy machine has not begun by then is refused: once more. */
  } while (job.status == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  CHECK(job.status == OK && !syncguard_guard_is_lost(job.guard));
  syncguard_guard_free(job.guard);
  syncguard_client_free(other);
}

/* 44: the guard is freed while a thread waits for its loss; the lock is released at once and the wait ends. */
static void a_guard_freed_under_a_call(void) {
  syncguard_client *client = open_client();
  struct job job = {0};
  job.guard = lock(client, "freed");
  begin(&job, waits_for_loss);
  pause_ms(100);
  syncguard_guard_free(job.guard);
  syncguard_guard *again = NULL;
  EXPECT(OK, syncguard_try_lock(client, "freed", NUL, NULL, &again, &err));
  end(&job);
  CHECK(!job.lost);
  syncguard_guard_free(again);
  syncguard_client_free(client);
}

/* 44: the token is freed while a call waits with it. */
static void a_token_freed_under_a_call(void) {
  struct job job = {0};
  job.client = open_client();
  syncguard_guard *held = lock(job.client, "waited for");
  job.timeout = 300;
  do {
    job.cancel = syncguard_cancel_new();
    begin(&job, waits_for_lock);
    pause_ms(100);
    syncguard_cancel_free(job.cancel);
    end(&job);
    /* As above. */
  } while (job.status == SYNCGUARD_STATUS_INVALID_ARGUMENT);
  CHECK(job.status == SYNCGUARD_STATUS_ACQUISITION_TIMEOUT && job.guard == NULL);
  syncguard_guard_free(held);
  syncguard_client_free(job.client);
}

/* 25: the longest time that can be said is waited, and does not overflow. */
static void the_longest_wait(void) {
  struct job job = {0};
  job.client = open_client();
  syncguard_guard *held = lock(job.client, "waited for");
  job.timeout = INT64_MAX;
  begin(&job, waits_for_lock);
  pause_ms(50);
  syncguard_guard_free(held);
  end(&job);
  CHECK(job.status == OK);
  syncguard_guard_free(job.guard);
  syncguard_client_free(job.client);
}

/* A wait of a minute ends within 50 ms of the trigger, and on a busy machine within 200 ms each time, without what the process lost. */
static void cancel_ends_a_wait(void) {
  syncguard_client *client = open_client();
  syncguard_guard *held = lock(client, "waited for");
  int64_t best = INT64_MAX, worst = 0, bound = getenv("SLOW") ? 5000 : 50;
  begin_ticking();
  for (int i = 0; i < 3 || (i < 30 && best >= bound); i++) {
    struct job job = {0};
    job.client = client;
    job.cancel = syncguard_cancel_new();
    job.timeout = SYNCGUARD_FOREVER;
    begin(&job, waits_for_lock);
    pause_ms(100);
    int64_t from = now_ms();
    syncguard_cancel_trigger(job.cancel);
    end(&job);
    CHECK(job.status == SYNCGUARD_STATUS_ABORTED && job.guard == NULL);
    int64_t took = job.done - from - stalled_us(from * 1000, job.done * 1000) / 1000;
    best = took < best ? took : best;
    worst = took > worst ? took : worst;
    syncguard_cancel_free(job.cancel);
  }
  fprintf(stderr, "   cancelled within %d ms at best, %d ms at worst\n", (int)best, (int)worst);
  CHECK(best < bound && worst < 4 * bound);
  syncguard_guard_free(held);
  syncguard_client_free(client);
}

static void *extends(void *data) {
  struct job *job = data;
  for (int i = 0; i < 20; i++) {
    syncguard_status s = syncguard_guard_extend(job->guard, 30000, NULL, NULL);
    /* A release ends an extend in flight. */
    CHECK(s == OK || s == ABSENT);
  }
  return NULL;
}

static void *releases(void *data) {
  struct job *job = data;
  pause_ms(5);
  job->status = syncguard_guard_release(job->guard, NULL, NULL);
  return NULL;
}

/* 62. */
static void extend_and_release_at_once(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "raced");
  struct job jobs[8];
  memset(jobs, 0, sizeof jobs);
  int won = 0;
  for (int i = 0; i < 8; i++) {
    jobs[i].guard = guard;
    jobs[i].status = ABSENT;
    begin(&jobs[i], i % 2 ? extends : releases);
  }
  for (int i = 0; i < 8; i++) {
    end(&jobs[i]);
    CHECK(jobs[i].status == OK || jobs[i].status == ABSENT);
    won += jobs[i].status == OK;
  }
  CHECK(won == 1 && !syncguard_guard_is_lost(guard));
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

static int threads_now(void) {
  char line[128];
  int n = 0;
  FILE *f = fopen("/proc/self/status", "r");
  CHECK(f != NULL);
  while (fgets(line, sizeof line, f) != NULL) {
    if (sscanf(line, "Threads: %d", &n) == 1) {
      break;
    }
  }
  fclose(f);
  return n;
}

/* 51. */
static void a_thousand_guards(void) {
  static syncguard_guard *all[1000];
  syncguard_client *client = open_client();
  int n = getenv("SLOW") ? 100 : 1000;
  char key[32];
  /* However long all of this takes, no renewal is due. */
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.ttl_ms = 3600000;
  for (int i = 0; i < n; i++) {
    snprintf(key, sizeof key, "many:%d", i);
    EXPECT(OK, syncguard_lock(client, key, NUL, &options, &all[i], &err));
  }
  /* A lock whose renewal is not due pays for no thread. */
  CHECK(threads_now() < 20);
  syncguard_client_free(client);
  for (int i = 0; i < n; i++) {
    CHECK(!syncguard_guard_is_lost(all[i]));
    syncguard_guard_free(all[i]);
  }
}

static volatile sig_atomic_t alarms;

static void on_alarm(int signal) {
  (void)signal;
  alarms++;
}

/* 52: a signal every millisecond, without SA_RESTART. */
static void signals_disturb_nothing(void) {
  syncguard_client *client = open_client();
  struct sigaction action;
  struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
  memset(&action, 0, sizeof action);
  action.sa_handler = on_alarm;
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
  int64_t until = now_ms() + 500;
  while (now_ms() < until) {
    syncguard_guard *guard = lock(client, "disturbed");
    EXPECT(OK, syncguard_guard_extend(guard, 10000, NULL, &err));
    CHECK(!syncguard_guard_wait_lost(guard, 3));
    EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
    syncguard_guard_free(guard);
  }
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
  /* One may still be on its way: the handler stays. */
  CHECK(alarms > 5);
  syncguard_client_free(client);
}

static void *frees(void *data) {
  syncguard_guard_free(data);
  return NULL;
}

/* 44, 63: freed by another thread, after the client; and a second lock of one key in one thread is not granted. */
static void freed_elsewhere(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "elsewhere"), *second = NULL;
  EXPECT(LOCKED, syncguard_try_lock(client, "elsewhere", NUL, NULL, &second, &err));
  syncguard_client_free(client);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, frees, guard) == 0 && pthread_join(thread, NULL) == 0);
  client = open_client();
  EXPECT(OK, syncguard_try_lock(client, "elsewhere", NUL, NULL, &second, &err));
  syncguard_guard_free(second);
  syncguard_client_free(client);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(a_client_freed_under_a_call);
  RUN(a_guard_freed_under_a_call);
  RUN(a_token_freed_under_a_call);
  RUN(the_longest_wait);
  RUN(cancel_ends_a_wait);
  RUN(extend_and_release_at_once);
  RUN(a_thousand_guards);
  RUN(signals_disturb_nothing);
  RUN(freed_elsewhere);
  return 0;
}
