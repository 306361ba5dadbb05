/* Preloaded: two.test has a dead address before a live one, hang.test takes half a minute. Other names are as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  resolver *real = (resolver *)dlsym(RTLD_NEXT, "getaddrinfo");
  struct addrinfo *last;
  int failed;
  if (node != NULL && strcmp(node, "hang.test") == 0) {
    sleep(30);
    return EAI_AGAIN;
  }
  if (node == NULL || strcmp(node, "two.test") != 0) {
    return real(node, service, hints, found);
  }
  failed = real("127.0.0.2", service, hints, found);
  if (failed != 0) {
    return failed;
  }
  for (last = *found; last->ai_next != NULL; last = last->ai_next) {
  }
  return real("127.0.0.1", service, hints, &last->ai_next);
}
