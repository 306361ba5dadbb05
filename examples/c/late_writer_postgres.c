/* A holder that may be paused past its lease, and then writes to Postgres, with libpq. The gate in its own transaction refuses it.
 *
 *   ./late_writer_postgres postgres://localhost/app
 *
 * It says "holding" with its fence and waits for a line. Stop it now (kill -STOP), wait until the lease of two seconds is over, start
 * another one and let it write, then let the first one go on (kill -CONT) and write: it says "refused".
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <libpq-fe.h>
#include <syncguard.h>

enum outcome { TROUBLE, REFUSED, DONE };

static enum outcome run(PGconn *db, const char *sql, int count, const char *const *values) {
  PGresult *result = PQexecParams(db, sql, count, NULL, values, NULL, NULL, 0);
  const ExecStatusType status = PQresultStatus(result);
  const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  enum outcome outcome = TROUBLE;
  if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
    outcome = DONE;
  } else if (state != NULL && strcmp(state, "SGG01") == 0) {
    outcome = REFUSED;
  } else {
    fputs(PQerrorMessage(db), stderr);
  }
  PQclear(result);
  return outcome;
}

/* Passes the gate and writes, in one transaction. REFUSED: a newer holder has written. */
static enum outcome write_report(PGconn *db, const char *pass, uint64_t fence, const char *text) {
  char number[24];
  const char *const gate[] = {"report", number};
  snprintf(number, sizeof number, "%" PRIu64, fence);
  enum outcome outcome = run(db, "BEGIN", 0, NULL);
  if (outcome == DONE) {
    outcome = run(db, pass, 2, gate);
  }
  if (outcome == DONE) {
    outcome = run(db, "DELETE FROM report", 0, NULL);
  }
  if (outcome == DONE) {
    outcome = run(db, "INSERT INTO report VALUES ($1)", 1, &text);
  }
  if (outcome == DONE) {
    return run(db, "COMMIT", 0, NULL);
  }
  run(db, "ROLLBACK", 0, NULL);
  return outcome;
}

int main(int argc, char **argv) {
  const char *url = argc > 1 ? argv[1] : "postgres://localhost/postgres";
  syncguard_client *client = NULL;
  syncguard_guard *guard = NULL;
  syncguard_error *err = NULL;
  syncguard_lock_options options = SYNCGUARD_LOCK_OPTIONS_INIT;
  PGconn *db = NULL;
  char pass[256] = "", text[200] = "";
  int result = 1;

  options.ttl_ms = 2000;
  options.acquire_timeout_ms = 60000;
  /* The set-up is done once, by the role that owns the schema. The gate is where the data is; the locks may be anywhere. */
  if (syncguard_client_open(url, SYNCGUARD_NUL, NULL, &client, &err) != SYNCGUARD_STATUS_OK ||
      syncguard_client_setup_schema(client, NULL, &err) != SYNCGUARD_STATUS_OK ||
      syncguard_client_setup_fence_gate(client, NULL, &err) != SYNCGUARD_STATUS_OK ||
      syncguard_gate_postgres_text(SYNCGUARD_GATE_POSTGRES_PASS, "public", SYNCGUARD_NUL, NULL, pass, sizeof pass, NULL, &err) !=
          SYNCGUARD_STATUS_OK) {
    goto end;
  }
  db = PQconnectdb(url);
  if (PQstatus(db) != CONNECTION_OK) {
    fputs(PQerrorMessage(db), stderr);
    goto end;
  }
  if (run(db, "CREATE TABLE IF NOT EXISTS report (text text)", 0, NULL) != DONE ||
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
  switch (write_report(db, pass, syncguard_guard_fence_number(guard), text)) {
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
  PQfinish(db);
  return result;
}
