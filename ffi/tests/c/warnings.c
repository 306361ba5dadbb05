/* What check() says of a store that is not safe: PROGRAM URL [hook | hang]. Without a word: open, check, free, exit. */
#include "check.h"

#include <pthread.h>

#define LIMIT_MS 2000

static pthread_mutex_t M = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t MAY_RETURN = PTHREAD_COND_INITIALIZER;
static int returned, hangs, freed;

static int count(int *what) {
  pthread_mutex_lock(&M);
  int n = *what;
  pthread_mutex_unlock(&M);
  return n;
}

static void on_warning(void *data, const char *message) {
  (void)data;
  CHECK(strlen(message) > 5);
  /* Slow enough to be missed by a check that does not wait. */
  pause_ms(20);
  pthread_mutex_lock(&M);
  while (hangs) {
    pthread_cond_wait(&MAY_RETURN, &M);
  }
  returned++;
  pthread_mutex_unlock(&M);
}

static void finalize(void *data) {
  (void)data;
  pthread_mutex_lock(&M);
  freed++;
  pthread_mutex_unlock(&M);
}

static syncguard_client *open_with_hook(uint32_t operation_timeout_ms) {
  syncguard_client_options options = patient();
  syncguard_client *client = NULL;
  options.operation_timeout_ms = operation_timeout_ms;
  options.on_warning = on_warning;
  options.user_data_free = finalize;
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  return client;
}

/* The hook has returned from every warning when check does. */
static void hook(void) {
  uint32_t warnings = 0, undelivered = 99;
  syncguard_client *client = open_with_hook(60000);
  EXPECT(OK, syncguard_client_check_report(client, NULL, &warnings, &undelivered, &err));
  CHECK(warnings > 0 && undelivered == 0 && count(&returned) == (int)warnings);
  EXPECT(OK, syncguard_client_check(client, NULL, &err));
  CHECK(count(&returned) == 2 * (int)warnings);
  EXPECT(IA, syncguard_client_check_report(client, NULL, NULL, &undelivered, &err));
  EXPECT(IA, syncguard_client_check_report(client, NULL, &warnings, NULL, &err));
  EXPECT(IA, syncguard_client_check_report(NULL, NULL, &warnings, &undelivered, &err));
  CHECK(count(&returned) == 2 * (int)warnings);
  syncguard_client_free(client);
}

/* One that hangs delays it by the operation timeout, and the answer says what it did not take. It gets the rest later. */
static void hang(void) {
  uint32_t warnings = 0, undelivered = 0;
  syncguard_client *client = open_with_hook(LIMIT_MS);
  hangs = 1;
  int64_t begun = now_ms();
  EXPECT(OK, syncguard_client_check_report(client, NULL, &warnings, &undelivered, &err));
  int64_t took = now_ms() - begun;
  CHECK(warnings > 0 && undelivered == warnings && count(&returned) == 0);
  /* Once for the store and once for the hook; the rest is for machines that are busy with something else. */
  CHECK(took >= LIMIT_MS && took < 2 * LIMIT_MS + 20000);
  pthread_mutex_lock(&M);
  hangs = 0;
  pthread_cond_broadcast(&MAY_RETURN);
  pthread_mutex_unlock(&M);
  syncguard_client_free(client);
  EVENTUALLY(count(&returned) == (int)warnings && count(&freed) == 1);
}

int main(int argc, char **argv) {
  BEGIN;
  if (argc < 3) {
    syncguard_client *client = NULL;
    EXPECT(OK, syncguard_client_open(URL, NUL, NULL, &client, &err));
    EXPECT(OK, syncguard_client_check(client, NULL, &err));
    syncguard_client_free(client);
    exit(0);
  }
  RUN(hook);
  RUN(hang);
  return 0;
}
