/* The last free leaves no thread behind: a program that ends right after it is clean for valgrind, all kinds of leaks counted.
 * PROGRAM URL [TEST]. */
#include "check.h"

#include <dirent.h>
#include <pthread.h>

/* Threads of this process. One that was joined has left it. */
static int threads(void) {
  int n = 0;
  struct dirent *entry;
  DIR *dir = opendir("/proc/self/task");
  CHECK(dir != NULL);
  while ((entry = readdir(dir)) != NULL) {
    n += entry->d_name[0] != '.';
  }
  closedir(dir);
  return n;
}

/* The last free waits for its threads, a second at the most. Under valgrind and beside other tests some need longer. */
static void all_threads_are_gone(void) {
  if (getenv("SLOW") != NULL) {
    EVENTUALLY(threads() == 1);
  } else {
    CHECK(threads() == 1);
  }
}

static int events;
/* Attempts that met a holder. */
static int refused;

static void on_event(void *data, const syncguard_event *event) {
  if (event->reason != NULL && strcmp(event->reason, "locked") == 0) {
    __atomic_add_fetch(&refused, 1, __ATOMIC_SEQ_CST);
  }
  __atomic_add_fetch((int *)data, 1, __ATOMIC_SEQ_CST);
}

static syncguard_client *open_with_events(void) {
  syncguard_client_options options = patient();
  syncguard_client *client = NULL;
  options.on_event = on_event;
  options.user_data = &events;
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  EXPECT(OK, syncguard_client_setup_schema(client, NULL, &err));
  return client;
}

static void *take(void *client) {
  syncguard_guard *guard = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.acquire_timeout_ms = 60000;
  EXPECT(OK, syncguard_lock(client, "ends", NUL, &options, &guard, &err));
  syncguard_guard_free(guard);
  return NULL;
}

/* The timer, a heartbeat, the events' thread, and whatever the store listens with for one that waits. */
static void after_use_of_everything(void) {
  syncguard_client *client = open_with_events();
  syncguard_guard *guard = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  pthread_t waiter;
  int before = __atomic_load_n(&events, __ATOMIC_SEQ_CST);
  int before_refused = __atomic_load_n(&refused, __ATOMIC_SEQ_CST);
  options.ttl_ms = 60000;
  options.heartbeat_ms = 10;
  EXPECT(OK, syncguard_lock(client, "ends", NUL, &options, &guard, &err));
  CHECK(pthread_create(&waiter, NULL, take, client) == 0);
  EVENTUALLY(__atomic_load_n(&refused, __ATOMIC_SEQ_CST) > before_refused);
  int64_t first = syncguard_guard_expires_at_ms(guard);
  EVENTUALLY(syncguard_guard_expires_at_ms(guard) > first);
  syncguard_guard_free(guard);
  CHECK(pthread_join(waiter, NULL) == 0);
  syncguard_client_free(client);
  all_threads_are_gone();
  /* Nor is an event lost: two grants, two releases, and the renewals. */
  CHECK(__atomic_load_n(&events, __ATOMIC_SEQ_CST) >= before + 5);
}

static void by_a_guard_that_outlives_its_client(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "ends");
  syncguard_client_free(client);
  CHECK(!syncguard_guard_is_lost(guard));
  syncguard_guard_free(guard);
  all_threads_are_gone();
}

static void time_and_again(void) {
  for (int i = 0; i < 20; i++) {
    syncguard_client *client = open_client();
    syncguard_guard_free(lock(client, "ends"));
    syncguard_client_free(client);
    all_threads_are_gone();
  }
}

static pthread_mutex_t ours = PTHREAD_MUTEX_INITIALIZER;

static void wait_for_ours(void *data, const syncguard_event *event) {
  (void)data;
  (void)event;
  pthread_mutex_lock(&ours);
  pthread_mutex_unlock(&ours);
}

/* The host frees under a mutex that its own callback wants: that delays it, and no more. */
static void not_without_end_for_a_callback(void) {
  syncguard_client_options options = patient();
  syncguard_client *client = NULL;
  options.on_event = wait_for_ours;
  pthread_mutex_lock(&ours);
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  EXPECT(OK, syncguard_client_setup_schema(client, NULL, &err));
  syncguard_guard_free(lock(client, "ends"));
  int64_t begun = now_ms();
  syncguard_client_free(client);
  int64_t took = now_ms() - begun;
  CHECK(took >= 900 && took < 30000);
  pthread_mutex_unlock(&ours);
  EVENTUALLY(threads() == 1);
}

static syncguard_client *last;

static void free_last(void *data, const syncguard_event *event) {
  (void)data;
  (void)event;
  syncguard_client *client = __atomic_exchange_n(&last, NULL, __ATOMIC_SEQ_CST);
  syncguard_client_free(client);
}

/* A thread of the library cannot wait for itself. */
static void from_a_callback(void) {
  syncguard_client_options options = patient();
  syncguard_client *client = NULL;
  options.on_event = free_last;
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  EXPECT(OK, syncguard_client_setup_schema(client, NULL, &err));
  syncguard_guard *guard = lock(client, "ends");
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  syncguard_guard_free(guard);
  __atomic_store_n(&last, client, __ATOMIC_SEQ_CST);
  /* The events so far may all have been told: one more, on the client that the callback frees. */
  int64_t end = now_ms() + 60000;
  while (__atomic_load_n(&last, __ATOMIC_SEQ_CST) != NULL && now_ms() < end) {
    pause_ms(2);
    client = __atomic_exchange_n(&last, NULL, __ATOMIC_SEQ_CST);
    if (client != NULL) {
      bool locked = false;
      EXPECT(OK, syncguard_is_locked(client, "ends", NUL, NULL, &locked, &err));
      __atomic_store_n(&last, client, __ATOMIC_SEQ_CST);
    }
  }
  CHECK(__atomic_load_n(&last, __ATOMIC_SEQ_CST) == NULL);
  EVENTUALLY(threads() == 1);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(after_use_of_everything);
  RUN(by_a_guard_that_outlives_its_client);
  RUN(time_and_again);
  RUN(not_without_end_for_a_callback);
  RUN(from_a_callback);
  return 0;
}
