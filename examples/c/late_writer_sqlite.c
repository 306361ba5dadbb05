/* A holder that may be paused past its lease, and then writes to a database of SQLite. The gate in its own transaction refuses it.
 *
 *   ./late_writer_sqlite sqlite:./locks.db ./data.db
 *
 * It says "holding" with its fence and waits for a line. Stop it now (kill -STOP), wait until the lease of two seconds is over, start
 * another one and let it write, then let the first one go on (kill -CONT) and write: it says "refused".
 */
#include <stdio.h>
#include <string.h>

#include <sqlite3.h>
#include <syncguard.h>

enum outcome { TROUBLE, REFUSED, DONE };

/* Runs one statement with these values: a text, and a number if it is not 0. */
static enum outcome run(sqlite3 *db, const char *sql, const char *text, sqlite3_int64 number) {
  sqlite3_stmt *statement = NULL;
  enum outcome outcome = DONE;
  if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK ||
      (text != NULL && sqlite3_bind_text(statement, 1, text, -1, SQLITE_STATIC) != SQLITE_OK) ||
      (number != 0 && sqlite3_bind_int64(statement, 2, number) != SQLITE_OK) || sqlite3_step(statement) != SQLITE_DONE) {
    outcome = strstr(sqlite3_errmsg(db), "syncguard: refused") != NULL ? REFUSED : TROUBLE;
    if (outcome == TROUBLE) {
      fprintf(stderr, "%s\n", sqlite3_errmsg(db));
    }
  }
  sqlite3_finalize(statement);
  return outcome;
}

/* Passes the gate and writes, in one transaction. REFUSED: a newer holder has written. */
static enum outcome write_report(sqlite3 *db, uint64_t fence, const char *text) {
  enum outcome outcome = run(db, "BEGIN IMMEDIATE", NULL, 0);
  if (outcome != DONE) {
    return outcome;
  }
  outcome = run(db, syncguard_gate_text(SYNCGUARD_GATE_SQLITE_PASS), "report", (sqlite3_int64)fence);
  /* After a refusal there is no transaction any more: what follows would be committed without the gate. */
  if (outcome == DONE) {
    outcome = run(db, "DELETE FROM report", NULL, 0);
  }
  if (outcome == DONE) {
    outcome = run(db, "INSERT INTO report VALUES (?1)", text, 0);
  }
  if (outcome == DONE) {
    outcome = run(db, "COMMIT", NULL, 0);
  }
  if (!sqlite3_get_autocommit(db)) {
    run(db, "ROLLBACK", NULL, 0);
  }
  return outcome;
}

int main(int argc, char **argv) {
  const char *url = argc > 1 ? argv[1] : "sqlite:./locks.db";
  const char *file = argc > 2 ? argv[2] : "./data.db";
  syncguard_client *client = NULL;
  syncguard_guard *guard = NULL;
  syncguard_error *err = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  sqlite3 *db = NULL;
  char text[200] = "";
  int result = 1;

  /* The gate is in the file that has the data; the locks may be anywhere. */
  if (sqlite3_open(file, &db) != SQLITE_OK || sqlite3_busy_timeout(db, 10000) != SQLITE_OK ||
      sqlite3_exec(db, syncguard_gate_text(SYNCGUARD_GATE_SQLITE_SETUP), NULL, NULL, NULL) != SQLITE_OK ||
      sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS report (text)", NULL, NULL, NULL) != SQLITE_OK) {
    fprintf(stderr, "%s\n", sqlite3_errmsg(db));
    goto end;
  }
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
  switch (write_report(db, syncguard_guard_fence_number(guard), text)) {
    case DONE:
      printf("written\n");
      result = 0;
      break;
    case REFUSED:
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
  sqlite3_close(db);
  return result;
}
