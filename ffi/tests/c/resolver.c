/* 65: names. The library asks the `getaddrinfo` of the program, which is this one: PROGRAM redis://127.0.0.1:PORT [TEST]. */
#include "check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* Another address of this machine, where the server does not listen. */
#define DEAD "127.77.77.77"

static volatile int asked, go_on;

static struct addrinfo *address(const char *text, struct addrinfo *next) {
  struct addrinfo *info = calloc(1, sizeof *info);
  struct sockaddr_in *in = calloc(1, sizeof *in);
  CHECK(info != NULL && in != NULL);
  in->sin_family = AF_INET;
  CHECK(inet_pton(AF_INET, text, &in->sin_addr) == 1);
  info->ai_family = AF_INET;
  info->ai_socktype = SOCK_STREAM;
  info->ai_addr = (struct sockaddr *)in;
  info->ai_addrlen = sizeof *in;
  info->ai_next = next;
  return info;
}

/* As the modules that a system's resolver loads may. */
static void use_stack(void) {
  volatile char large[1 << 20];
  for (size_t i = 0; i < sizeof large; i += 512) {
    large[i] = (char)i;
  }
  CHECK(large[512] == 0);
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out) {
  (void)service;
  (void)hints;
  use_stack();
  asked++;
  if (strcmp(node, "two.test") == 0) {
    *out = address(DEAD, address("127.0.0.1", NULL));
    return 0;
  }
  if (strcmp(node, "hangs.test") == 0) {
    /* Only this thread waits here for half a minute. */
    for (int i = 0; i < 30000 && !go_on; i++) {
      pause_ms(1);
    }
    return EAI_AGAIN;
  }
  return EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *info) {
  while (info != NULL) {
    struct addrinfo *next = info->ai_next;
    free(info->ai_addr);
    free(info);
    info = next;
  }
}

static int port(void) {
  const char *colon = strrchr(URL, ':');
  CHECK(colon != NULL);
  return atoi(colon + 1);
}

static syncguard_client *client_of(const char *host, uint32_t timeout_ms) {
  char url[128];
  syncguard_client_options options = SYNCGUARD_CLIENT_OPTIONS_INIT;
  syncguard_client *client = NULL;
  snprintf(url, sizeof url, "redis://%s:%d", host, port());
  options.connect_timeout_ms = options.operation_timeout_ms = timeout_ms;
  EXPECT(OK, syncguard_client_open(url, NUL, &options, &client, &err));
  return client;
}

static void the_first_address_refuses(void) {
  syncguard_client *client = client_of("two.test", 60000);
  syncguard_guard_free(lock(client, "refused"));
  CHECK(asked > 0);
  syncguard_client_free(client);
}

/* A queue that is full and that no program serves: a new connection is not answered. */
static void the_first_address_is_silent(void) {
  int waiting[16], listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in in;
  memset(&in, 0, sizeof in);
  in.sin_family = AF_INET;
  in.sin_port = htons((uint16_t)port());
  CHECK(inet_pton(AF_INET, DEAD, &in.sin_addr) == 1);
  CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&in, sizeof in) == 0 && listen(listener, 0) == 0);
  for (int i = 0; i < 16; i++) {
    waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(waiting[i] >= 0);
    (void)connect(waiting[i], (struct sockaddr *)&in, sizeof in);
  }
  syncguard_client *client = client_of("two.test", 60000);
  int64_t begun = now_ms();
  syncguard_guard_free(lock(client, "silent"));
  /* Beside the first, not after it: else it would have been given up after a minute, with an error. */
  CHECK(now_ms() - begun < 50000);
  syncguard_client_free(client);
  for (int i = 0; i < 16; i++) {
    close(waiting[i]);
  }
  close(listener);
}

static void a_name_that_is_none(void) {
  syncguard_client *client = client_of("none.test", 60000);
  syncguard_guard *guard = NULL;
  EXPECT(SYNCGUARD_STATUS_SERVICE_UNAVAILABLE, syncguard_try_lock(client, "k", NUL, NULL, &guard, &err));
  syncguard_client_free(client);
}

/* The operation timeout bounds the resolver too. */
static void a_resolver_that_hangs(void) {
  syncguard_client *client = client_of("hangs.test", 200);
  syncguard_guard *guard = NULL;
  int64_t begun = now_ms();
  EXPECT(SYNCGUARD_STATUS_NETWORK_TIMEOUT, syncguard_try_lock(client, "k", NUL, NULL, &guard, &err));
  CHECK(now_ms() - begun < 20000);
  syncguard_client_free(client);
  go_on = 1;
}

int main(int argc, char **argv) {
  BEGIN;
  RUN(the_first_address_refuses);
  RUN(the_first_address_is_silent);
  RUN(a_name_that_is_none);
  RUN(a_resolver_that_hangs);
  return 0;
}
