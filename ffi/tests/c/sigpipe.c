/* A host that leaves SIGPIPE at its default loses its server, and lives. */
#include "check.h"

#include <signal.h>

int main(int argc, char **argv) {
  char line[8];
  signal(SIGPIPE, SIG_DFL);
  BEGIN;
  syncguard_client *client = open_client();
  syncguard_guard *guard = lock(client, "k"), *other = NULL;
  puts("holding");
  fflush(stdout);
  CHECK(fgets(line, sizeof line, stdin) != NULL);
  for (int i = 0; i < 3; i++) {
    syncguard_error *e = NULL;
    CHECK(syncguard_try_lock(client, "other", SYNCGUARD_NUL, NULL, &other, &e) == SYNCGUARD_STATUS_SERVICE_UNAVAILABLE);
    CHECK(other == NULL && e != NULL);
    syncguard_error_free(e);
  }
  syncguard_guard_free(guard);
  syncguard_client_free(client);
  puts("alive");
  return 0;
}
