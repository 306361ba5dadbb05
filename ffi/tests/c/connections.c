/* A password callback and a connector, good and bad. PROGRAM URL [TEST]; the URL names a server on 127.0.0.1 and a user that it lets in
 * with any password. */
#include "check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>

#define LIMIT_MS 300

static pthread_mutex_t M = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t CHANGED = PTHREAD_COND_INITIALIZER;
static int calls, running, hangs, freed;
/* What the callbacks do. */
static const char *answer;
static int status, descriptor;

static int number(int *what) {
  pthread_mutex_lock(&M);
  int n = *what;
  pthread_mutex_unlock(&M);
  return n;
}

static void set(int *what, int value) {
  pthread_mutex_lock(&M);
  *what = value;
  pthread_cond_broadcast(&CHANGED);
  pthread_mutex_unlock(&M);
}

/* Counts a call, and stays in it as long as `hangs` says. */
static void enter(void *data) {
  CHECK(data == &calls);
  pthread_mutex_lock(&M);
  CHECK(freed == 0);
  calls++;
  running++;
  while (hangs) {
    pthread_cond_wait(&CHANGED, &M);
  }
  running--;
  pthread_mutex_unlock(&M);
}

static int password(void *data, char *out, size_t size) {
  enter(data);
  CHECK(size == 65536);
  if (answer == NULL) {
    memset(out, 'x', size);
  } else {
    memcpy(out, answer, strlen(answer) + 1);
  }
  return status;
}

static int connect_to(const char *host, uint16_t port) {
  struct sockaddr_in address;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  CHECK(fd >= 0 && inet_pton(AF_INET, host, &address.sin_addr) == 1);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
    int why = errno;
    close(fd);
    return -why;
  }
  return fd;
}

static int connector(void *data, const char *host, uint16_t port, int64_t timeout_ms) {
  enter(data);
  CHECK(strcmp(host, "127.0.0.1") == 0 && port != 0 && timeout_ms >= 0 && timeout_ms <= 60000);
  return descriptor == 0 ? connect_to(host, port) : descriptor;
}

static void finalize(void *data) {
  CHECK(data == &calls);
  pthread_mutex_lock(&M);
  /* Never before the last call has returned. */
  CHECK(running == 0);
  freed++;
  pthread_mutex_unlock(&M);
}

static syncguard_client *open_with(int with_password, int with_connector, uint32_t limit_ms) {
  syncguard_client_options options = patient();
  syncguard_client *client = NULL;
  set(&calls, 0);
  set(&freed, 0);
  options.operation_timeout_ms = limit_ms;
  options.password = with_password ? password : NULL;
  options.connector = with_connector ? connector : NULL;
  options.user_data = &calls;
  options.user_data_free = finalize;
  EXPECT(OK, syncguard_client_open(URL, NUL, &options, &client, &err));
  return client;
}

static void end(syncguard_client *client) {
  syncguard_client_free(client);
  EVENTUALLY(number(&freed) == 1);
}

/* Asks for a lock once. The error says what is expected, and never the answer. */
static void asks(syncguard_client *client, syncguard_status wanted, const char *said) {
  bool locked = true;
  syncguard_error *err = NULL;
  syncguard_status got = syncguard_is_locked(client, "k", NUL, NULL, &locked, &err);
  if (got != wanted || (said != NULL && strstr(syncguard_error_message(err), said) == NULL)) {
    fprintf(stderr, "wanted %d with \"%s\", got %d: %s\n", wanted, said, got, syncguard_error_message(err));
    _exit(1);
  }
  CHECK(err == NULL || strstr(syncguard_error_message(err), "hunter2") == NULL);
  CHECK(err == NULL || !syncguard_error_may_have_applied(err));
  syncguard_error_free(err);
}

static void a_password_is_asked_for_before_a_connection(void) {
  answer = "hunter2";
  syncguard_client *client = open_with(1, 0, 60000);
  CHECK(number(&calls) == 0);
  asks(client, OK, NULL);
  asks(client, OK, NULL);
  CHECK(number(&calls) == 1);
  end(client);
  CHECK(number(&calls) == 1);
}

static void passwords_that_are_none(void) {
  syncguard_client *client = open_with(1, 0, 60000);
  answer = "hunter2";
  status = 1;
  asks(client, SYNCGUARD_STATUS_SERVICE_UNAVAILABLE, "password provider failed");
  status = -1;
  asks(client, SYNCGUARD_STATUS_SERVICE_UNAVAILABLE, "password provider failed");
  status = 0;
  answer = NULL;
  asks(client, IA, "without a NUL");
  answer = "hunter2\xff";
  asks(client, IA, "not valid UTF-8");
  answer = "hunter2";
  asks(client, OK, NULL);
  end(client);
}

/* A callback that hangs costs each call its limit, is not called again, and its data live until it has returned. */
static void hanging(int with_password) {
  answer = "late";
  hangs = 1;
  syncguard_client *client = open_with(with_password, !with_password, LIMIT_MS);
  for (int n = 0; n < 3; n++) {
    int64_t begun = now_ms();
    asks(client, SYNCGUARD_STATUS_NETWORK_TIMEOUT, with_password ? "password provider" : "connector");
    CHECK(now_ms() - begun < 60000);
  }
  CHECK(number(&calls) == 1 && number(&running) == 1);
  syncguard_client_free(client);
  CHECK(number(&freed) == 0);
  set(&hangs, 0);
  EVENTUALLY(number(&freed) == 1);
}

static void a_password_that_hangs(void) { hanging(1); }

static void a_connector_that_hangs(void) { hanging(0); }

static void a_connector_connects(void) {
  syncguard_client *client = open_with(0, 1, 60000);
  syncguard_guard *guard;
  EXPECT(OK, syncguard_client_setup_schema(client, NULL, &err));
  guard = lock(client, "k");
  CHECK(number(&calls) >= 1);
  EXPECT(OK, syncguard_guard_release(guard, NULL, &err));
  syncguard_guard_free(guard);
  end(client);
}

static void descriptors_that_are_none(void) {
  int pair[2];
  syncguard_client *client = open_with(0, 1, 60000);
  descriptor = -ECONNREFUSED;
  asks(client, SYNCGUARD_STATUS_SERVICE_UNAVAILABLE, "connector");
  descriptor = -EACCES;
  asks(client, SYNCGUARD_STATUS_AUTH_FAILED, "connector");
  descriptor = INT32_MIN;
  asks(client, SYNCGUARD_STATUS_SERVICE_UNAVAILABLE, "connector");
  /* A number that no descriptor has. */
  descriptor = 99999;
  asks(client, SYNCGUARD_STATUS_SERVICE_UNAVAILABLE, "connector");
  descriptor = open("/dev/null", O_RDWR);
  CHECK(descriptor > 0);
  asks(client, IA, "no socket");
  CHECK(fcntl(descriptor, F_GETFD) == -1);
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
  descriptor = pair[0];
  asks(client, IA, "no stream");
  close(pair[1]);
  descriptor = 0;
  asks(client, OK, NULL);
  end(client);
}

static void half_of_a_pair(void) {
  syncguard_client_options options = patient();
  syncguard_client *client = NULL;
  options.tls_client_cert_file = "/cert.pem";
  EXPECT(IA, syncguard_client_open(URL, NUL, &options, &client, &err));
  options.tls_client_cert_file = NULL;
  options.tls_client_key_file = "/key.pem";
  EXPECT(IA, syncguard_client_open(URL, NUL, &options, &client, &err));
  /* Two passwords. */
  options.tls_client_key_file = NULL;
  options.password = password;
  EXPECT(IA, syncguard_client_open("redis://u:hunter2@127.0.0.1/", NUL, &options, &client, &err));
  EXPECT(IA, syncguard_client_open("postgres://u:hunter2@127.0.0.1/d", NUL, &options, &client, &err));
  CHECK(client == NULL);
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(a_password_is_asked_for_before_a_connection);
  RUN(passwords_that_are_none);
  RUN(a_password_that_hangs);
  RUN(a_connector_that_hangs);
  RUN(a_connector_connects);
  RUN(descriptors_that_are_none);
  RUN(half_of_a_pair);
  return 0;
}
