// A holder that may be paused past its lease, and then writes to Postgres, with libpq. The gate in its own transaction refuses it.
//
//   ./late_writer_postgres postgres://localhost/app
//
// It says "holding" with its fence and waits for a line. Stop it now (kill -STOP), wait until the lease of two seconds is over, start
// another one and let it write, then let the first one go on (kill -CONT) and write: it says "refused".
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <libpq-fe.h>
#include <syncguard.hpp>

namespace {

/// A newer holder has written.
class refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class database {
 public:
  explicit database(const char* url) : connection_(PQconnectdb(url), PQfinish) {
    if (PQstatus(connection_.get()) != CONNECTION_OK) {
      throw std::runtime_error(PQerrorMessage(connection_.get()));
    }
  }

  void run(const std::string& sql, const std::vector<std::string>& values = {}) {
    std::vector<const char*> texts;
    for (const std::string& value : values) {
      texts.push_back(value.c_str());
    }
    const std::unique_ptr<PGresult, decltype(&PQclear)> result(
        PQexecParams(connection_.get(), sql.c_str(), static_cast<int>(texts.size()), nullptr, texts.data(), nullptr, nullptr, 0), PQclear);
    const ExecStatusType status = PQresultStatus(result.get());
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
      return;
    }
    const char* state = PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
    const std::string said = PQerrorMessage(connection_.get());
    if (state != nullptr && std::string(state) == "SGG01") {
      throw refused(said);
    }
    throw std::runtime_error(said);
  }

 private:
  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_;
};

/// Passes the gate and writes, in one transaction. Throws `refused` if a newer holder has written.
void write_report(database& db, const std::string& pass, std::uint64_t fence, const std::string& text) {
  db.run("BEGIN");
  try {
    db.run(pass, {"report", std::to_string(fence)});
    db.run("DELETE FROM report");
    db.run("INSERT INTO report VALUES ($1)", {text});
  } catch (...) {
    db.run("ROLLBACK");
    throw;
  }
  db.run("COMMIT");
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace std::chrono_literals;
  const char* url = argc > 1 ? argv[1] : "postgres://localhost/postgres";
  syncguard::client client(url);
  // Once, by the role that owns the schema. The gate is where the data is; the locks may be anywhere.
  client.setup_schema();
  client.setup_fence_gate();
  const std::string pass = syncguard::gate_text(SYNCGUARD_GATE_POSTGRES_PASS, "public");
  database db(url);
  db.run("CREATE TABLE IF NOT EXISTS report (text text)");
  syncguard::lock_options options;
  options.ttl = 2s;
  options.acquire_timeout = 60s;
  const syncguard::guard guard = client.lock("report", options);
  std::cout << "holding " << guard.fence() << std::endl;
  std::string text;
  std::getline(std::cin, text);
  // The pause was here. No check of the lock itself could help: another pause may come right after it.
  try {
    write_report(db, pass, guard.fence_number(), text);
    std::cout << "written" << std::endl;
  } catch (const refused&) {
    std::cout << "refused" << std::endl;
  }
  return 0;
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
