/* Takes a lock, shows its fence, gives it back.
 *
 *   cc quickstart.c $(pkg-config --cflags --libs syncguard) && ./a.out [URL]
 */
#include <stdio.h>
#include <syncguard.h>

/* Says what went wrong; the number for the shell. */
static int failed(const char *what, syncguard_error *err) {
  fprintf(stderr, "%s: %s: %s\n", what, syncguard_status_str(syncguard_error_status(err)), syncguard_error_message(err));
  syncguard_error_free(err);
  return 1;
}

int main(int argc, char **argv) {
  const char *url = argc > 1 ? argv[1] : "sqlite:./locks.db";
  syncguard_client *client = NULL;
  syncguard_guard *guard = NULL, *second = NULL;
  syncguard_error *err = NULL;

  if (syncguard_client_open(url, SYNCGUARD_NUL, NULL, &client, &err) != SYNCGUARD_STATUS_OK) {
    return failed("open", err);
  }
  /* Postgres needs its tables once; elsewhere this does nothing. */
  if (syncguard_client_setup_schema(client, NULL, &err) != SYNCGUARD_STATUS_OK) {
    syncguard_client_free(client);
    return failed("setup", err);
  }

  /* Waits up to 5 s. The lease of 30 s is renewed in the background until the guard is freed. */
  if (syncguard_lock(client, "invoice:42", SYNCGUARD_NUL, NULL, &guard, &err) != SYNCGUARD_STATUS_OK) {
    syncguard_client_free(client);
    return failed("lock", err);
  }
  printf("locked with fence %s\n", syncguard_guard_fence(guard));

  /* An attempt by another caller. Contention is an answer, not an error. */
  switch (syncguard_try_lock(client, "invoice:42", SYNCGUARD_NUL, NULL, &second, &err)) {
    case SYNCGUARD_STATUS_OK:
      printf("the lock was lost meanwhile\n");
      syncguard_guard_free(second);
      break;
    case SYNCGUARD_STATUS_LOCKED:
      printf("a second one must wait\n");
      break;
    default:
      syncguard_guard_free(guard);
      syncguard_client_free(client);
      return failed("try_lock", err);
  }

  /* Freeing alone would release too, but silently. */
  if (syncguard_guard_release(guard, NULL, &err) < 0) {
    syncguard_guard_free(guard);
    syncguard_client_free(client);
    return failed("release", err);
  }
  printf("released\n");
  syncguard_guard_free(guard);
  syncguard_client_free(client);
  return 0;
}
