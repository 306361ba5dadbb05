//! A holder that may be paused past its lease, and then writes. The gate at the data refuses it.
//!
//! ```text
//! late_writer sqlite:locks.db data.db               locks and data in files
//! late_writer sqlite:locks.db versions data.db      the data is a row with a version, behind a FenceGate
//! late_writer redis://127.0.0.1/                    locks and data in Redis
//! late_writer redis://127.0.0.1/ script redis-cli   a script behind the check, sent with redis-cli, as with any client
//! late_writer postgres://… psql -d app              locks in Postgres; the data is written with psql, as with any driver
//! late_writer postgres://… share psql -d app        locks and data in one database, without a gate of its own
//! ```
//!
//! It says `holding` with its fence and waits for a line. Stop it now (`kill -STOP`), wait until the lease of two seconds is over, start
//! another one and let it write, then let the first one go on (`kill -CONT`) and write: it says `refused`.

use std::error::Error;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use syncguard::gate::postgres::PostgresGate;
use syncguard::gate::{CompareAndSet, FenceGate, FencedRecord, redis, sqlite};
use syncguard::{Call, Client, ErrorCode, Fence, LockError, LockOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let url = words.next().ok_or("the first argument is a URL")?;
    let rest: Vec<String> = words.collect();
    let client = Client::open(&url)?;
    client.setup_schema()?;
    let options = LockOptions::new()
        .ttl(Duration::from_secs(2))
        .acquire_timeout(Duration::from_secs(60));
    let guard = client.lock_with("report", &options)?;
    println!("holding {}", guard.fence());
    let mut text = String::new();
    std::io::stdin().read_line(&mut text)?;
    // The pause was here. No check of the lock itself could help: another pause may come right after it.
    let text = text.trim_end();
    let fence = guard.fence();
    let words: Vec<&str> = rest.iter().map(String::as_str).collect();
    let written = match (url.split(':').next(), &words[..]) {
        (Some("sqlite"), ["versions", file]) => to_a_row_with_a_version(file, fence, text)?,
        (Some("sqlite"), [file]) => to_sqlite(file, fence, text)?,
        (Some("postgres" | "postgresql"), ["share", psql @ ..]) => share(psql, fence, text)?,
        (Some("postgres" | "postgresql"), psql) => to_postgres(&client, psql, fence, text)?,
        (_, ["script", redis_cli @ ..]) => by_script(redis_cli, fence, text)?,
        _ => client
            .fenced_set("report:text", text.as_bytes(), fence)?
            .is_passed(),
    };
    println!("{}", if written { "written" } else { "refused" });
    Ok(())
}

/// Passes the gate and writes, in one transaction. `false`: a newer holder has written.
fn to_sqlite(file: &str, fence: Fence, text: &str) -> rusqlite::Result<bool> {
    let mut db = Connection::open(file)?;
    db.execute_batch(sqlite::SETUP)?;
    db.execute_batch("CREATE TABLE IF NOT EXISTS report (text)")?;
    let work = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match work.execute(sqlite::PASS, ("report", i64::from(fence))) {
        Err(e) if e.to_string().contains(sqlite::STALE) => return Ok(false),
        passed => passed?,
    };
    work.execute("DELETE FROM report", [])?;
    work.execute("INSERT INTO report VALUES (?1)", [text])?;
    work.commit()?;
    Ok(true)
}

/// The same with SQL alone, which any driver can send.
fn to_postgres(
    client: &Client,
    psql: &[&str],
    fence: Fence,
    text: &str,
) -> Result<bool, Box<dyn Error>> {
    client.setup_fence_gate()?; // once, by the role that owns the schema
    let sql = format!(
        "\\set VERBOSITY sqlstate\n\
         CREATE TABLE IF NOT EXISTS report (text text);\n\
         BEGIN;\n\
         SELECT public.syncguard_pass('report'::text, {}::bigint);\n\
         DELETE FROM report;\n\
         INSERT INTO report VALUES (:'text');\n\
         COMMIT;\n",
        fence.get()
    );
    match run_sql(psql, &sql, text)? {
        Ok(_) => Ok(true),
        Err(said) if said.contains(syncguard::gate::postgres::STALE) => Ok(false),
        Err(said) => Err(said.into()),
    }
}

/// The row of the fence counter is the check. It is there as long as no newer holder was granted the lock, which waits for the commit.
fn share(psql: &[&str], fence: Fence, text: &str) -> Result<bool, Box<dyn Error>> {
    let gate = PostgresGate::new("public")?;
    let check = gate
        .share()
        .replace("$1", "'fence:report'")
        .replace("$2", &fence.get().to_string());
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS report (text text);\n\
         SET idle_in_transaction_session_timeout = '10s';\n\
         BEGIN;\n\
         WITH held AS MATERIALIZED ({check}) SELECT count(*) = 1 AS held FROM held \\gset\n\
         \\if :held\n\
         DELETE FROM report;\n\
         INSERT INTO report VALUES (:'text');\n\
         \\endif\n\
         COMMIT;\n\
         \\echo :held\n"
    );
    let said = run_sql(psql, &sql, text)??;
    Ok(said.trim() == "t")
}

/// What psql said, or why it failed.
fn run_sql(psql: &[&str], sql: &str, text: &str) -> Result<Result<String, String>, Box<dyn Error>> {
    let (program, arguments) = psql.split_first().ok_or("a command that runs psql")?;
    let mut child = Command::new(program)
        .args(arguments)
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-v"])
        .arg(format!("text={text}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().ok_or("no input")?;
    input.write_all(sql.as_bytes())?;
    drop(input);
    let ended = child.wait_with_output()?;
    Ok(if ended.status.success() {
        Ok(String::from_utf8(ended.stdout)?)
    } else {
        Err(String::from_utf8_lossy(&ended.stderr).into_owned())
    })
}

/// A script of one's own behind the check: it finds its own key and its own argument as if it were alone.
fn by_script(redis_cli: &[&str], fence: Fence, text: &str) -> Result<bool, Box<dyn Error>> {
    let script = redis::gated("redis.call('SET', KEYS[1], ARGV[1])\nreturn 'written'");
    let (program, arguments) = redis_cli
        .split_first()
        .ok_or("a command that runs redis-cli")?;
    let gate = redis::gate_key("report:text");
    let ended = Command::new(program)
        .args(arguments)
        .args(["EVAL", &script, "2", &gate, "report:text"])
        .args([&fence.to_string(), text])
        .output()?;
    let said = String::from_utf8(ended.stdout)?;
    match said.trim() {
        "written" => Ok(true),
        refused if refused.contains(redis::STALE) => Ok(false),
        other => Err(format!("redis-cli said {other:?}").into()),
    }
}

/// A row with a version stands for anything that compares and sets: an object with an `ETag`, a key of etcd.
struct Rows(Connection);

impl CompareAndSet for Rows {
    type Value = String;
    type Version = i64;

    fn load(
        &self,
        name: &str,
        _: &Call<'_>,
    ) -> Result<Option<FencedRecord<String, i64>>, LockError> {
        let find = "SELECT text, fence, version FROM report WHERE name = ?1";
        let found = self.0.query_row(find, [name], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?))
        });
        let Some((value, fence, version)) = found.optional().map_err(trouble)? else {
            return Ok(None);
        };
        Ok(Some(FencedRecord {
            value,
            fence: Fence::try_from(fence)?,
            version,
        }))
    }

    fn store(
        &self,
        name: &str,
        expected: Option<&i64>,
        value: String,
        fence: Fence,
        _: &Call<'_>,
    ) -> Result<bool, LockError> {
        let fence = i64::from(fence);
        let written = match expected {
            Some(version) => self.0.execute(
                "UPDATE report SET text = ?1, fence = ?2, version = version + 1 WHERE name = ?3 AND version = ?4",
                (value, fence, name, version),
            ),
            None => self.0.execute(
                "INSERT INTO report (name, text, fence, version) VALUES (?1, ?2, ?3, 1) ON CONFLICT DO NOTHING",
                (name, value, fence),
            ),
        };
        Ok(written.map_err(trouble)? == 1)
    }
}

fn trouble(error: rusqlite::Error) -> LockError {
    LockError::new(ErrorCode::ServiceUnavailable, "the file does not answer").with_source(error)
}

fn to_a_row_with_a_version(file: &str, fence: Fence, text: &str) -> Result<bool, Box<dyn Error>> {
    let db = Connection::open(file)?;
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS report (name TEXT PRIMARY KEY, text TEXT, fence INTEGER, version INTEGER)",
    )?;
    let gate = FenceGate::new(Rows(db));
    let outcome = gate.write("report", fence, |_| text.to_owned(), &Call::new())?;
    Ok(outcome.is_passed())
}
