/* Why a lock was lost: the status and the reason that on_lost gets, and what the guard answers. */
#include "check.h"

#include <pthread.h>
#include <sys/stat.h>

static pthread_mutex_t M = PTHREAD_MUTEX_INITIALIZER;
static int calls;
static syncguard_status status;
static syncguard_loss_reason reason;
static char text[256];

static void on_lost(void *data, const syncguard_error *why) {
  (void)data;
  pthread_mutex_lock(&M);
  status = syncguard_error_status(why);
  reason = syncguard_error_loss_reason(why);
  snprintf(text, sizeof text, "%s", syncguard_error_message(why));
  calls++;
  pthread_mutex_unlock(&M);
}

static int told(void) {
  pthread_mutex_lock(&M);
  int n = calls;
  pthread_mutex_unlock(&M);
  return n;
}

static syncguard_lock_options watched(int64_t ttl_ms) {
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  options.ttl_ms = ttl_ms;
  options.on_lost = on_lost;
  calls = 0;
  return options;
}

static void is_lost_because(syncguard_guard *guard, syncguard_loss_reason wanted, const char *words) {
  CHECK(syncguard_guard_wait_lost(guard, 60000));
  CHECK(syncguard_guard_loss_reason(guard) == wanted);
  EVENTUALLY(told() == 1);
  CHECK(status == SYNCGUARD_STATUS_LOST && reason == wanted);
  CHECK(strstr(text, words) != NULL && strstr(text, "internal") == NULL && strstr(text, "network") == NULL);
  /* A release changes nothing about that. */
  CHECK(syncguard_guard_release(guard, NULL, NULL) >= 0);
  CHECK(syncguard_guard_loss_reason(guard) == wanted);
  syncguard_guard_free(guard);
}

static syncguard_guard *lock_watched(syncguard_client *client, const char *key, const syncguard_lock_options *options) {
  syncguard_guard *guard = NULL;
  EXPECT(OK, syncguard_lock(client, key, NUL, options, &guard, &err));
  return guard;
}

static void without_a_heartbeat(void) {
  syncguard_client *client = open_client();
  syncguard_lock_options options = watched(150);
  options.heartbeat_ms = SYNCGUARD_FOREVER;
  is_lost_because(lock_watched(client, "not renewed", &options), SYNCGUARD_LOSS_NOT_RENEWED, "no heartbeat");
  syncguard_client_free(client);
}

static void after_max_hold(void) {
  syncguard_client *client = open_client();
  syncguard_lock_options options = watched(300);
  options.max_hold_ms = 1;
  is_lost_because(lock_watched(client, "max hold", &options), SYNCGUARD_LOSS_MAX_HOLD, "max_hold");
  syncguard_client_free(client);
}

static void removed_by_another_client(void) {
  syncguard_client *client = open_client(), *other = open_client();
  syncguard_lock_options options = watched(60000);
  options.heartbeat_ms = 20;
  syncguard_guard *guard = lock_watched(client, "removed", &options);
  EXPECT(OK, syncguard_release(other, syncguard_guard_lock_id(guard), NUL, NULL, &err));
  is_lost_because(guard, SYNCGUARD_LOSS_REMOVED, "no longer has it");
  syncguard_client_free(other);
  syncguard_client_free(client);
}

static void unconfirmed(void) {
  if (strncmp(URL, "sqlite:", 7) != 0) {
    return; /* the store is broken by replacing its file */
  }
  char url[512], moved[600];
  snprintf(url, sizeof url, "%s.unconfirmed", URL);
  snprintf(moved, sizeof moved, "%s.moved", url + 7);
  syncguard_client_options copts = patient();
  syncguard_client *client = NULL;
  EXPECT(OK, syncguard_client_open(url, NUL, &copts, &client, &err));
  /* Long enough to break the store before the first renewal, also under valgrind. */
  syncguard_lock_options options = watched(6000);
  options.heartbeat_ms = 5000;
  syncguard_guard *guard = lock_watched(client, "unconfirmed", &options);
  CHECK(rename(url + 7, moved) == 0 && mkdir(url + 7, 0700) == 0);
  CHECK(syncguard_guard_loss_reason(guard) == SYNCGUARD_LOSS_NONE);
  CHECK(syncguard_guard_wait_lost(guard, 60000));
  CHECK(syncguard_guard_loss_reason(guard) == SYNCGUARD_LOSS_UNCONFIRMED);
  EVENTUALLY(told() == 1);
  CHECK(status == SYNCGUARD_STATUS_LOST && reason == SYNCGUARD_LOSS_UNCONFIRMED);
  CHECK(strstr(text, "before a renewal was confirmed") != NULL);
  syncguard_guard_free(guard);
  syncguard_client_free(client);
}

static void no_loss(void) {
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "held");
  CHECK(syncguard_guard_loss_reason(guard) == SYNCGUARD_LOSS_NONE);
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  CHECK(syncguard_guard_loss_reason(guard) == SYNCGUARD_LOSS_NONE);
  syncguard_guard_free(guard);
  syncguard_error *other = NULL;
  CHECK(syncguard_lock(client, "", 0, NULL, &guard, &other) == IA);
  CHECK(syncguard_error_loss_reason(other) == SYNCGUARD_LOSS_NONE);
  syncguard_error_free(other);
  CHECK(syncguard_error_loss_reason(NULL) == SYNCGUARD_LOSS_NONE);
  CHECK(syncguard_guard_loss_reason(NULL) == SYNCGUARD_LOSS_NONE);
  syncguard_client_free(client);
}

int main(int argc, char **argv) {
  BEGIN;
  CHECK(SYNCGUARD_STATUS_LOST == -10 && strcmp(syncguard_status_str(-10), "lost") == 0);
  RUN(without_a_heartbeat);
  RUN(after_max_hold);
  RUN(removed_by_another_client);
  RUN(unconfirmed);
  RUN(no_loss);
  return 0;
}
