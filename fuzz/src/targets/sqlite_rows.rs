//! A row of any values in the table of locks of a SQLite file, and then a verb.
//!
//! The row is read, taken for one that is over, or refused; and what must hold for every store holds.

use std::sync::Mutex;
use std::sync::{OnceLock, PoisonError};

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use syncguard::{Backend, Call, ReleaseOutcome, SqliteBackend};

use crate::engine::Target;
use crate::folder;

/// How it is run.
pub const TARGET: Target = Target {
    name: "sqlite_rows",
    run,
    words: &[
        b"\0\0\0\0\0\0\0\0",
        b"\x01\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x01\x80\0\0\0\0\0\0\0",
        b"\x02\x04\xff\xfe\0\x41",
        b"\x03\x16JjYEnSICuoi1IlfW3NFLOw",
        b"\x04",
        b"\x05",
        b"\x06",
        b"\x07",
        b"\x02\0",
    ],
    max_len: 1024,
    short: 2_000,
    memory: 4 << 20,
};

struct Fixture {
    store: SqliteBackend,
    sqlite: Connection,
    boot_id: String,
}

fn fixture() -> Fixture {
    let path = folder().join("rows.db");
    let store = SqliteBackend::open(&format!("sqlite:{}", path.display()), &super::options())
        .expect("a good URL");
    // The first lock shows the name that the store has for this boot.
    super::verb(&store, 0, &super::SECRETS);
    let sqlite = Connection::open(&path).expect("a database");
    let boot_id = sqlite
        .query_row("SELECT boot_id FROM syncguard_locks", [], |row| row.get(0))
        .expect("a row");
    let released = store.release(&super::lock_id(), &Call::new());
    assert!(released.is_ok_and(|outcome| outcome == ReleaseOutcome::Released));
    Fixture {
        store,
        sqlite,
        boot_id,
    }
}

/// The next value of an input: a kind, and what belongs to it.
fn value(data: &mut &[u8], boot_id: &str) -> Value {
    let mut take = |n: usize| {
        let (taken, rest) = data.split_at(n.min(data.len()));
        *data = rest;
        taken
    };
    let kind = take(1).first().copied().unwrap_or_default();
    let number = |bytes: &[u8]| bytes.iter().fold(0, |n: i64, b| n << 8 | i64::from(*b));
    match kind % 9 {
        0 => Value::Null,
        1 => Value::Integer(number(take(8))),
        2 | 3 => {
            let length = take(1).first().copied().unwrap_or_default();
            let bytes = take(length.into());
            match std::str::from_utf8(bytes) {
                Ok(text) if kind % 9 == 3 => Value::Text(text.to_owned()),
                _ => Value::Blob(bytes.to_vec()),
            }
        }
        // What a row of a live lock has.
        4 => Value::Text(super::KEY.to_owned()),
        5 => Value::Text(super::LOCK_ID.to_owned()),
        6 => Value::Text(boot_id.to_owned()),
        // Within the next weeks of any machine.
        7 => Value::Integer(number(take(4)).abs()),
        _ => Value::Real(f64::from_bits(number(take(8)).cast_unsigned())),
    }
}

/// Executes one input: the verb, and nine values.
pub fn run(data: &[u8]) -> u64 {
    static FIXTURE: OnceLock<Mutex<Fixture>> = OnceLock::new();
    let fixture = FIXTURE
        .get_or_init(|| Mutex::new(fixture()))
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let (&verb, mut rest) = data.split_first().unwrap_or((&0, &[]));
    let values: Vec<Value> = (0..9).map(|_| value(&mut rest, &fixture.boot_id)).collect();
    fixture
        .sqlite
        .execute_batch("DELETE FROM syncguard_locks; DELETE FROM syncguard_fence_counters")
        .expect("an empty table");
    let insert = "INSERT OR IGNORE INTO syncguard_locks \
        (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, boot_id, expires_boot_ms, written_boot_ms) \
        VALUES (?1, CAST(?2 AS TEXT), ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    fixture
        .sqlite
        .execute(insert, params_from_iter(&values))
        .expect("a row, or none");
    if let Some(counter @ Value::Integer(_)) = rest.split_first().map(|_| value(&mut rest, "")) {
        let insert = "INSERT INTO syncguard_fence_counters VALUES (?1, ?2)";
        let name = format!("fence:{}", super::KEY);
        fixture
            .sqlite
            .execute(insert, rusqlite::params![name, counter])
            .expect("a counter");
    }
    super::verb(&fixture.store, verb, &super::SECRETS)
}
