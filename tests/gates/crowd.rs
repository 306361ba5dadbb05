//! Eight writers at once, with fences in a forged order, on every gate: none is accepted behind a newer one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::compare_and_set::Bucket;
use crate::fence;
use crate::postgres::Gated;
use crate::support::redis::{Link, RedisServer, Value};
use crate::support::verbs::patient;
use syncguard::gate::postgres::PostgresGate;
use syncguard::gate::redis::{STALE, gate_key, gated};
use syncguard::gate::{FenceGate, sqlite};
use syncguard::{Call, Client};

const WRITERS: u64 = 8;

/// How many writes are tried on each gate; `make gates` says more.
fn writes() -> u64 {
    let told = std::env::var("SYNCGUARD_GATE_WRITES").ok();
    told.map_or(4_000, |n| n.parse().expect("a number"))
}

/// Fences in a forged order: they rise as a whole, and each may be older or newer than the ones before.
struct Forger {
    next: AtomicU64,
}

impl Forger {
    fn fence(&self) -> Option<u64> {
        let n = self.next.fetch_add(1, SeqCst);
        // Mixed, so that neighbours differ by up to 8 in either direction.
        let spread = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61;
        (n < writes()).then_some(n / 4 + spread + 1)
    }
}

/// Tries every fence from eight threads, each with a writer of its own that says whether its fence passed; the log that the gate let pass
/// never goes back.
fn crowd(
    kind: &str,
    writer: &(dyn Fn() -> Box<dyn FnMut(u64) -> bool> + Sync),
    log: &dyn Fn() -> Vec<u64>,
) {
    let forger = Forger {
        next: AtomicU64::new(0),
    };
    let passed = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let mut write = writer();
                let mut mine = 0;
                while let Some(fence) = forger.fence() {
                    mine += u64::from(write(fence));
                }
                *passed.lock().expect("no panic") += mine;
            });
        }
    });
    let (passed, log) = (*passed.lock().expect("no panic"), log());
    let back = log.windows(2).filter(|pair| pair[0] > pair[1]).count();
    println!(
        "{kind}: {} tried, {passed} accepted, {back} out of order",
        writes()
    );
    assert_eq!(log.len() as u64, passed, "{kind}: what passed was written");
    assert_eq!(back, 0, "{kind}: accepted behind a newer one");
    let refused = writes() - passed;
    assert!(
        passed > writes() / 100 && refused > writes() / 100,
        "{kind}: {passed} of both"
    );
}

#[test]
fn redis_accepts_none_out_of_order() {
    let server = RedisServer::start(&[]);
    let script = gated("redis.call('RPUSH', KEYS[1], ARGV[1])\nreturn 1");
    let gate = gate_key("log");
    let writer = || -> Box<dyn FnMut(u64) -> bool> {
        let mut link = Link::open(&server.socket()).expect("a connection");
        let (script, gate) = (script.clone(), gate.clone());
        Box::new(move |fence| {
            let fence = fence.to_string();
            let command = ["EVAL", &script, "2", &gate, "log", &fence, &fence];
            match link.call(&command).expect("an answer") {
                Value::Error(refused) => {
                    assert!(refused.contains(STALE), "{refused}");
                    false
                }
                _ => true,
            }
        })
    };
    crowd("redis", &writer, &|| {
        let all = server.cli(&["LRANGE", "log", "0", "-1"]);
        let number = |text: String| text.parse().expect("a fence");
        all.list()
            .iter()
            .map(|value| number(value.text()))
            .collect()
    });
}

/// The value is overwritten each time, so the server itself is asked in which order it was: MONITOR shows each command as it runs.
#[test]
fn fenced_set_accepts_none_out_of_order() {
    let server = RedisServer::start(&[]);
    let mut monitor = Link::open(&server.socket()).expect("a connection");
    monitor.call(&["MONITOR"]).expect("an answer");
    let writer = || -> Box<dyn FnMut(u64) -> bool> {
        let client = Client::open_with(&server.url(), &patient()).expect("a good URL");
        Box::new(move |n| {
            let value = n.to_string();
            let outcome = client.fenced_set("log", value.as_bytes(), fence(n));
            outcome.expect("an answer").is_passed()
        })
    };
    let monitor = Mutex::new(monitor);
    crowd("redis, fenced_set", &writer, &|| {
        server.cli(&["SET", "end", "1"]);
        let mut monitor = monitor.lock().expect("no panic");
        let mut log = Vec::new();
        loop {
            let line = monitor.read().expect("a line").text();
            if line.contains("\"SET\" \"end\"") {
                return log;
            }
            if let Some((_, value)) = line.split_once("lua] \"SET\" \"log\" \"") {
                log.push(value.trim_end_matches('"').parse().expect("a fence"));
            }
        }
    });
}

/// Each writer is granted its fence, as acquire does it, and writes in a transaction of its own. Another may have been granted a newer one
/// in between, or be waiting for this transaction.
#[test]
fn share_accepts_none_out_of_order() {
    let gated = Gated::start();
    gated.client.setup_schema().expect("tables");
    drop(gated.client.lock("log").expect("a counter"));
    gated
        .caller()
        .run("CREATE TABLE log (id bigserial PRIMARY KEY, fence bigint)");
    let gate = PostgresGate::new(&gated.schema).expect("a name");
    let writer = || -> Box<dyn FnMut(u64) -> bool> {
        let mut caller = gated.caller();
        let share = gate.share().replace("$1", "'fence:log'");
        Box::new(move |n| {
            let granted = caller.run(&format!(
                "UPDATE syncguard_fence_counters SET fence = {n} WHERE fence_key = 'fence:log' AND fence < {n}"
            ));
            assert_eq!(granted, "00000");
            let written = caller.rows(&format!(
                "WITH gate AS MATERIALIZED ({}) INSERT INTO log (fence) SELECT {n} FROM gate RETURNING fence",
                share.replace("$2", &n.to_string())
            ));
            written == [n.to_string()]
        })
    };
    crowd("postgres, FOR SHARE", &writer, &|| {
        let rows = gated.caller().rows("SELECT fence FROM log ORDER BY id");
        let number = |row: &String| row.parse().expect("a fence");
        rows.iter().map(number).collect()
    });
}

#[test]
fn postgres_accepts_none_out_of_order() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let gated = Gated::start();
        gated
            .caller()
            .run("CREATE TABLE log (id bigserial PRIMARY KEY, fence bigint)");
        let writer = || -> Box<dyn FnMut(u64) -> bool> {
            let mut caller = gated.caller();
            caller.run(&format!("SET default_transaction_isolation = '{level}'"));
            Box::new(move |fence| {
                // One statement is one transaction. A serialization failure is tried again, as the documentation says.
                let write = format!(
                    "WITH gate AS MATERIALIZED (SELECT syncguard_pass('log', {fence}) AS fence) INSERT INTO log (fence) SELECT fence FROM gate"
                );
                loop {
                    match caller.run(&write).as_str() {
                        "00000" => return true,
                        "SGG01" => return false,
                        "40001" => {}
                        state => panic!("SQLSTATE {state}"),
                    }
                }
            })
        };
        crowd(&format!("postgres, {level}"), &writer, &|| {
            let mut caller = gated.caller();
            let rows = caller.rows("SELECT fence FROM log ORDER BY id");
            rows.iter()
                .map(|row| row.parse().expect("a fence"))
                .collect()
        });
    }
}

#[test]
fn sqlite_accepts_none_out_of_order() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = || {
        let db = rusqlite::Connection::open(dir.path().join("data.db")).expect("a file");
        db.busy_timeout(std::time::Duration::from_secs(120))
            .expect("a timeout");
        // Nothing here depends on the disk.
        db.execute_batch("PRAGMA synchronous = OFF")
            .expect("a setting");
        db
    };
    let db = open();
    db.pragma_update(None, "journal_mode", "wal")
        .expect("a log");
    db.execute_batch(sqlite::SETUP).expect("a gate");
    db.execute_batch("CREATE TABLE log (id INTEGER PRIMARY KEY, fence INTEGER)")
        .expect("a table");
    let writer = || -> Box<dyn FnMut(u64) -> bool> {
        let mut db = open();
        Box::new(move |fence| {
            let work = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
            let work = work.expect("the right to write");
            if let Err(e) = work.execute(sqlite::PASS, ("log", fence as i64)) {
                assert!(e.to_string().contains(sqlite::STALE), "{e}");
                return false;
            }
            work.execute("INSERT INTO log (fence) VALUES (?1)", [fence as i64])
                .expect("a row");
            work.commit().expect("a commit");
            true
        })
    };
    crowd("sqlite", &writer, &|| {
        let mut all = db
            .prepare("SELECT fence FROM log ORDER BY id")
            .expect("a query");
        let rows = all.query_map([], |row| row.get::<_, i64>(0)).expect("rows");
        rows.map(|n| n.expect("a fence").unsigned_abs()).collect()
    });
}

#[test]
fn compare_and_set_accepts_none_out_of_order() {
    let gate = std::sync::Arc::new(FenceGate::new(Bucket::<Vec<u64>>::default()));
    let writer = || -> Box<dyn FnMut(u64) -> bool> {
        let gate = std::sync::Arc::clone(&gate);
        Box::new(move |n| {
            let append = |log: Option<Vec<u64>>| {
                let mut log = log.unwrap_or_default();
                log.push(n);
                log
            };
            let call = Call::new().within(std::time::Duration::from_secs(60));
            gate.write("log", fence(n), append, &call)
                .expect("an answer")
                .is_passed()
        })
    };
    crowd("compare and set", &writer, &|| {
        use syncguard::gate::CompareAndSet;
        let found = gate.place().load("log", &Call::new()).expect("an answer");
        found.map(|record| record.value).unwrap_or_default()
    });
}
