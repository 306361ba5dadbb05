/* What the C tests share. Each program gets the URL of a store as its first argument. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <syncguard.h>

#define OK SYNCGUARD_STATUS_OK
#define LOCKED SYNCGUARD_STATUS_LOCKED
#define ABSENT SYNCGUARD_STATUS_ABSENT
#define IA SYNCGUARD_STATUS_INVALID_ARGUMENT
#define NUL SYNCGUARD_NUL

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: in %s: not so: %s\n", __FILE__, __LINE__, __func__, #condition); \
      fflush(stderr);                                                                 \
      _exit(1);                                                                       \
    }                                                                                 \
  } while (0)

/* A call that must answer `wanted`; an error is shown, checked to agree, and freed. */
#define EXPECT(wanted, call)                                                                       \
  do {                                                                                             \
    syncguard_error *err = NULL;                                                                   \
    syncguard_status got_ = (call);                                                                \
    if (got_ != (wanted)) {                                                                        \
      fprintf(stderr, "%s:%d: in %s: %s: wanted %s, got %s: %s\n", __FILE__, __LINE__, __func__, #call, \
              syncguard_status_str(wanted), syncguard_status_str(got_), syncguard_error_message(err)); \
      _exit(1);                                                                                    \
    }                                                                                              \
    check_error_(got_, err);                                                                       \
    syncguard_error_free(err);                                                                     \
  } while (0)

static inline void check_error_(syncguard_status status, syncguard_error *err) {
  CHECK((status < 0) == (err != NULL));
  if (err != NULL) {
    CHECK(syncguard_error_status(err) == status);
    CHECK(strlen(syncguard_error_message(err)) > 5);
  }
}

static inline int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void pause_ms(long ms) {
  struct timespec t;
  t.tv_sec = ms / 1000;
  t.tv_nsec = (ms % 1000) * 1000000;
  while (nanosleep(&t, &t) != 0) {
  }
}

/* Polls for a condition; a minute is for machines under load and valgrind. */
#define EVENTUALLY(condition)                    \
  do {                                           \
    int64_t end_ = now_ms() + 60000;             \
    while (!(condition) && now_ms() < end_) {    \
      pause_ms(2);                               \
    }                                            \
    CHECK(condition);                            \
  } while (0)

static const char *URL;

/* For what must succeed, or fail for its own reason, on a machine that is busy with something else. */
static inline syncguard_client_options patient(void) {
  syncguard_client_options options = SYNCGUARD_CLIENT_OPTIONS_INIT;
  options.connect_timeout_ms = options.operation_timeout_ms = options.dispose_timeout_ms = 60000;
  return options;
}

static inline syncguard_client *open_client(void) {
  syncguard_client_options options = patient();
  syncguard_client *client = NULL;
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  CHECK(client != NULL);
  EXPECT(OK, syncguard_client_setup_schema(client, NULL, &err));
  return client;
}

static inline syncguard_guard *lock(syncguard_client *client, const char *key) {
  syncguard_guard *guard = NULL;
  EXPECT(OK, syncguard_lock(client, key, NUL, NULL, &guard, &err));
  CHECK(guard != NULL);
  return guard;
}

/* A test by its name, so that a failure says which, and one can be run alone: PROGRAM URL NAME. */
#define RUN(test)                                        \
  do {                                                   \
    if (argc < 3 || strcmp(argv[2], #test) == 0) {       \
      int64_t begun_ = now_ms();                         \
      test();                                            \
      fprintf(stderr, "ok %s (%d ms)\n", #test, (int)(now_ms() - begun_)); \
    }                                                    \
  } while (0)

#define BEGIN                                            \
  if (argc < 2) {                                        \
    fprintf(stderr, "usage: %s URL [TEST]\n", argv[0]);  \
    return 2;                                            \
  }                                                      \
  URL = argv[1]

#endif
