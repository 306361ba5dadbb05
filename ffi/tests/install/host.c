/* A program with an SQLite of its own, linked with the static library, which has another one inside: PROGRAM URL. */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <syncguard.h>

int main(int argc, char **argv) {
  if (argc < 2) {
    return 2;
  }
  /* The host's own is the one its header is of. */
  if (strcmp(sqlite3_libversion(), SQLITE_VERSION) != 0) {
    fprintf(stderr, "the host got SQLite %s for its %s\n", sqlite3_libversion(), SQLITE_VERSION);
    return 1;
  }
  sqlite3 *db = NULL;
  if (sqlite3_open(":memory:", &db) != SQLITE_OK || sqlite3_exec(db, "CREATE TABLE t (x)", NULL, NULL, NULL) != SQLITE_OK) {
    return 1;
  }
  syncguard_client *client = NULL;
  syncguard_guard *guard = NULL;
  syncguard_error *err = NULL;
  if (syncguard_client_open(argv[1], SYNCGUARD_NUL, NULL, &client, &err) != SYNCGUARD_STATUS_OK ||
      syncguard_lock(client, "host", SYNCGUARD_NUL, NULL, &guard, &err) != SYNCGUARD_STATUS_OK) {
    fprintf(stderr, "%s\n", syncguard_error_message(err));
    return 1;
  }
  if (sqlite3_exec(db, "INSERT INTO t VALUES (1)", NULL, NULL, NULL) != SQLITE_OK || sqlite3_close(db) != SQLITE_OK) {
    return 1;
  }
  printf("SQLite %s beside fence %s\n", sqlite3_libversion(), syncguard_guard_fence(guard));
  syncguard_guard_free(guard);
  syncguard_client_free(client);
  return 0;
}
