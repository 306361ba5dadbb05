/* Why a lock alone is not enough, and what the fence is for: a holder that was paused past its lease does not know it. The
 * resource itself, here a file, refuses every caller with an older fence than it has seen.
 *
 *   ./fenced_write URL FILE
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <syncguard.h>

/* The first line of the file is the largest fence it has seen. 1: written, 0: refused, -1: trouble. Fences order as texts. */
static int write_fenced(const char *path, const char *fence, const char *text) {
  char seen[16] = "";
  FILE *file = fopen(path, "a+");
  if (file == NULL || flock(fileno(file), LOCK_EX) != 0) {
    return -1;
  }
  rewind(file);
  if (fscanf(file, "%15s", seen) == 1 && strcmp(fence, seen) < 0) {
    fclose(file);
    return 0;
  }
  int written = ftruncate(fileno(file), 0) == 0 && fprintf(file, "%s\n%s\n", fence, text) > 0;
  return fclose(file) == 0 && written ? 1 : -1;
}

int main(int argc, char **argv) {
  const char *url = argc > 1 ? argv[1] : "sqlite:./locks.db";
  const char *path = argc > 2 ? argv[2] : "./resource.txt";
  syncguard_client *client = NULL;
  syncguard_guard *slow = NULL, *next = NULL;
  syncguard_error *err = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  int result = 1;

  /* Never renewed: as good as a holder that is stopped right after it got the lock. */
  options.ttl_ms = 200;
  options.heartbeat_ms = SYNCGUARD_FOREVER;
  if (syncguard_client_open(url, SYNCGUARD_NUL, NULL, &client, &err) != SYNCGUARD_STATUS_OK ||
      syncguard_client_setup_schema(client, NULL, &err) != SYNCGUARD_STATUS_OK ||
      syncguard_lock(client, "report", SYNCGUARD_NUL, &options, &slow, &err) != SYNCGUARD_STATUS_OK) {
    goto end;
  }
  printf("the first holder has fence %s and is paused\n", syncguard_guard_fence(slow));

  options = (syncguard_lock_options)SYNCGUARD_LOCK_OPTIONS_INIT;
  options.acquire_timeout_ms = 30000;
  if (syncguard_lock(client, "report", SYNCGUARD_NUL, &options, &next, &err) != SYNCGUARD_STATUS_OK) {
    goto end;
  }
  printf("the second holder has fence %s\n", syncguard_guard_fence(next));
  if (write_fenced(path, syncguard_guard_fence(next), "written by the second") != 1) {
    fprintf(stderr, "the second could not write\n");
    goto end;
  }
  printf("the second has written\n");

  switch (write_fenced(path, syncguard_guard_fence(slow), "written by the first, too late")) {
    case 0:
      printf("the first comes back and is refused\n");
      result = 0;
      break;
    case 1:
      fprintf(stderr, "the first overwrote the second\n");
      break;
    default:
      perror(path);
  }

end:
  if (err != NULL) {
    fprintf(stderr, "%s\n", syncguard_error_message(err));
  }
  syncguard_error_free(err);
  syncguard_guard_free(next);
  syncguard_guard_free(slow);
  syncguard_client_free(client);
  return result;
}
