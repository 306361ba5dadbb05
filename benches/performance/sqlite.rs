//! The statements of the embedded store on a bare connection.

use std::path::Path;

use rusqlite::{Connection, params};
use syncguard::LockId;

/// A connection as the library opens its own; the file and its tables are the library's.
pub fn connect(path: &Path) -> Connection {
    let raw = Connection::open(path).expect("the file");
    raw.execute_batch("PRAGMA synchronous = FULL")
        .expect("a setting");
    raw
}

/// Takes the lock of `key`, and gives it back with [`release`].
pub fn acquire(c: &Connection, key: &str, fence_key: &str, id: &LockId) {
    run(c, "BEGIN IMMEDIATE", &[]);
    assert!(one(c, "SELECT boot_id, expires_boot_ms, lock_id, fence, expires_at_ms, acquired_at_ms, user_key, key, written_boot_ms FROM syncguard_locks WHERE key = ?1", key).is_none());
    let fence = one(
        c,
        "SELECT fence_key, fence FROM syncguard_fence_counters WHERE fence_key = ?1",
        fence_key,
    )
    .unwrap_or(0)
        + 1;
    run(
        c,
        "INSERT INTO syncguard_fence_counters (fence_key, fence) VALUES (?1, ?2) ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence",
        params![fence_key, fence],
    );
    run(
        c,
        "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, boot_id, expires_boot_ms, written_boot_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, \
         expires_at_ms = excluded.expires_at_ms, acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, \
         user_key = excluded.user_key, boot_id = excluded.boot_id, expires_boot_ms = excluded.expires_boot_ms, \
         written_boot_ms = excluded.written_boot_ms",
        params![
            key,
            id.as_str(),
            1_800_000_000_000i64,
            1_799_999_970_000i64,
            fence,
            key,
            "01234567-89ab-cdef-0123-456789abcdef",
            1_000_000_000i64,
            999_970_000i64
        ],
    );
    run(c, "COMMIT", &[]);
}

pub fn release(c: &Connection, key: &str, id: &LockId) {
    run(c, "BEGIN IMMEDIATE", &[]);
    assert!(one(c, "SELECT boot_id, expires_boot_ms, lock_id, fence, expires_at_ms, acquired_at_ms, user_key, key, written_boot_ms FROM syncguard_locks WHERE lock_id = ?1", id.as_str()).is_some());
    assert_eq!(
        run(
            c,
            "DELETE FROM syncguard_locks WHERE key = ?1 AND lock_id = ?2",
            params![key, id.as_str()]
        ),
        1
    );
    run(c, "COMMIT", &[]);
}

fn run(c: &Connection, sql: &str, p: &[&dyn rusqlite::ToSql]) -> usize {
    c.prepare(sql).and_then(|mut s| s.execute(p)).expect("done")
}

fn one(c: &Connection, sql: &str, arg: &str) -> Option<i64> {
    let mut statement = c.prepare(sql).expect("a statement");
    let mut rows = statement.query([arg]).expect("rows");
    rows.next()
        .expect("a row")
        .map(|row| row.get::<_, i64>(1).expect("a number"))
}
