/* A holder that may be paused past its lease, and then writes. The gate at the data, which is in Redis here, refuses it.
 *
 *   ./late_writer redis://127.0.0.1/
 *
 * It says "holding" with its fence and waits for a line. Stop it now (kill -STOP), wait until the lease of two seconds is over, start
 * another one and let it write, then let the first one go on (kill -CONT) and write: it says "refused".
 */
#include <stdio.h>
#include <string.h>

#include <syncguard.h>

int main(int argc, char **argv) {
  const char *url = argc > 1 ? argv[1] : "redis://127.0.0.1/";
  syncguard_client *client = NULL;
  syncguard_guard *guard = NULL;
  syncguard_error *err = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  char text[200] = "";
  int result = 1;

  options.ttl_ms = 2000;
  options.acquire_timeout_ms = 60000;
  if (syncguard_client_open(url, SYNCGUARD_NUL, NULL, &client, &err) != SYNCGUARD_STATUS_OK ||
      syncguard_lock(client, "report", SYNCGUARD_NUL, &options, &guard, &err) != SYNCGUARD_STATUS_OK) {
    goto end;
  }
  printf("holding %s\n", syncguard_guard_fence(guard));
  fflush(stdout);
  if (fgets(text, sizeof text, stdin) == NULL) {
    goto end;
  }
  text[strcspn(text, "\n")] = '\0';
  /* The pause was here. No check of the lock itself could help: another pause may come right after it. */
  switch (syncguard_fenced_set(client, "report:text", SYNCGUARD_NUL, text, strlen(text), syncguard_guard_fence_number(guard), NULL, &err)) {
    case SYNCGUARD_STATUS_OK:
      printf("written\n");
      result = 0;
      break;
    case SYNCGUARD_STATUS_REFUSED:
      printf("refused\n");
      result = 0;
      break;
    default:
      break;
  }

end:
  if (err != NULL) {
    fprintf(stderr, "%s\n", syncguard_error_message(err));
  }
  syncguard_error_free(err);
  syncguard_guard_free(guard);
  syncguard_client_free(client);
  return result;
}
