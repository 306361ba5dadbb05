//! Tests the SQLite store in one process: the verbs, what is in the file, wrong files, bounded waits.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::eventually;
use crate::support::stopwatch::{Stopwatch, worst_of_three};
use crate::support::verbs::{self, code, granted, id, key, ttl};
use rusqlite::Connection;
use syncguard::{
    Absence, AcquireOutcome, Backend, Call, CancelToken, ClientOptions, ErrorCode, ExtendOutcome,
    LookupBy, MAX_FENCE, ReleaseOutcome, SqliteBackend,
};

struct Store {
    _dir: tempfile::TempDir,
    path: PathBuf,
    backend: SqliteBackend,
}

fn open(path: &Path) -> SqliteBackend {
    open_with(path, &verbs::patient())
}

fn open_with(path: &Path, options: &ClientOptions) -> SqliteBackend {
    SqliteBackend::open(&format!("sqlite:{}", path.display()), options).expect("a good URL")
}

fn store() -> Store {
    let dir = tempfile::tempdir().expect("a temp dir");
    let path = dir.path().join("locks.db");
    Store {
        backend: open(&path),
        _dir: dir,
        path,
    }
}

const MINUTE: u64 = 60_000;

#[test]
fn the_verbs() {
    let s = store();
    let (b, k, a) = (&s.backend, key("job"), id());
    assert!(!b.is_locked(&k, &Call::new()).expect("answer"));
    let grant = granted(b.acquire(&k, &a, ttl(MINUTE), &Call::new()));
    assert_eq!((grant.lock_id, grant.fence.get()), (a, 1));
    assert!(b.is_locked(&k, &Call::new()).expect("answer"));

    // The same id again: the stored grant. Another one: the holder.
    assert_eq!(granted(b.acquire(&k, &a, ttl(5), &Call::new())), grant);
    match b.acquire(&k, &id(), ttl(MINUTE), &Call::new()) {
        Ok(AcquireOutcome::Locked(Some(holder))) => {
            assert_eq!(holder.lock_id_hash, Some(a.log_hash()));
            assert_eq!(holder.fence, Some(grant.fence));
            let left = holder.remaining.expect("known");
            assert!(left <= Duration::from_millis(MINUTE) && left > Duration::from_secs(30));
        }
        other => panic!("{other:?}"),
    }

    for by in [LookupBy::Key(&k), LookupBy::LockId(&a)] {
        let found = b.find(by, &Call::new()).expect("answer").expect("there");
        assert_eq!((found.key.as_str(), found.lock_id), ("job", a));
        assert_eq!(found.expires_at_ms, grant.expires_at_ms);
        assert_eq!(found.expires_at_ms - found.acquired_at_ms, MINUTE as i64);
    }

    match b.extend(&a, ttl(2 * MINUTE), &Call::new()) {
        Ok(ExtendOutcome::Extended(until)) => assert!(until > grant.expires_at_ms),
        other => panic!("{other:?}"),
    }
    let stranger = id();
    let absent = ReleaseOutcome::Absent(Absence::NotFound);
    assert_eq!(b.release(&stranger, &Call::new()).ok(), Some(absent));
    assert_eq!(
        b.extend(&stranger, ttl(1), &Call::new()).ok(),
        Some(ExtendOutcome::Absent(Absence::NotFound))
    );
    assert_eq!(
        b.release(&a, &Call::new()).ok(),
        Some(ReleaseOutcome::Released)
    );
    assert_eq!(b.release(&a, &Call::new()).ok(), Some(absent));
    assert!(
        b.find(LookupBy::LockId(&a), &Call::new())
            .expect("answer")
            .is_none()
    );
    assert_eq!(
        granted(b.acquire(&k, &id(), ttl(5), &Call::new()))
            .fence
            .get(),
        2
    );
    assert_eq!(b.capabilities().backend, "sqlite");
}

#[test]
fn two_backends_on_one_file_are_one_store() {
    let s = store();
    let other = open(&s.path);
    let (k, a) = (key("shared"), id());
    let _ = granted(s.backend.acquire(&k, &a, ttl(MINUTE), &Call::new()));
    assert!(matches!(
        other.acquire(&k, &id(), ttl(MINUTE), &Call::new()),
        Ok(AcquireOutcome::Locked(_))
    ));
    assert_eq!(
        other.release(&a, &Call::new()).ok(),
        Some(ReleaseOutcome::Released)
    );
    assert_eq!(
        granted(other.acquire(&k, &id(), ttl(5), &Call::new()))
            .fence
            .get(),
        2
    );
}

#[test]
fn nothing_touches_the_disk_before_the_first_call() {
    let s = store();
    assert!(!s.path.exists());
    let told = s.backend.check(&Call::new()).expect("a good store");
    // The directory for temporary files may lie in memory.
    assert!(told.iter().all(|w| w.contains("tmpfs")), "{told:?}");
    assert!(s.path.exists());
}

#[test]
fn check_tells_what_the_file_lies_on_and_its_other_names() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let path = dir.path().join("locks.db");
    let told = open(&path).check(&Call::new()).expect("a good store");
    assert!(
        matches!(&told[..], [w] if w.contains("tmpfs") && w.contains("reboot")),
        "{told:?}"
    );
    // Also through a link that lies elsewhere.
    let s = store();
    std::os::unix::fs::symlink(&path, &s.path).expect("a link");
    let told = s.backend.check(&Call::new()).expect("a good store");
    assert!(told.iter().any(|w| w.contains("tmpfs")), "{told:?}");

    let s = store();
    s.backend.setup_schema(&Call::new()).expect("a file");
    std::fs::hard_link(&s.path, s.path.with_extension("other")).expect("another name");
    let told = s.backend.check(&Call::new()).expect("a good store");
    assert!(told.iter().any(|w| w.contains("hard links")), "{told:?}");
}

const SCHEMA_OF_TODAY: &str = syncguard::format::sqlite::SCHEMA;

/// The tables as older versions made them.
const OLDER_SCHEMA: &str = "PRAGMA journal_mode = WAL;
CREATE TABLE syncguard_locks (
    key TEXT NOT NULL PRIMARY KEY,
    lock_id TEXT NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    acquired_at_ms INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    user_key TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    expires_boot_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX idx_syncguard_locks_lock_id ON syncguard_locks (lock_id);
CREATE INDEX idx_syncguard_locks_expires ON syncguard_locks (boot_id, expires_boot_ms);
CREATE TABLE syncguard_fence_counters (fence_key TEXT NOT NULL PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID;";

#[test]
fn a_file_without_the_column_for_holders_is_used_as_it_is_until_the_set_up() {
    let s = store();
    let former = SCHEMA_OF_TODAY.replace(",\n    -- What the holder says of itself, behind its lock id and a space. NULL in rows of an older version.\n    holder TEXT", "");
    assert_ne!(former, SCHEMA_OF_TODAY);
    sql(&s.path, &format!("PRAGMA journal_mode = WAL; {former}"));
    let url = format!("sqlite:{}", s.path.display());
    let client = syncguard::Client::open(&url).expect("a client");
    let shown = |key: &str| {
        let found = client.get_by_key_raw(key).expect("answer");
        found.expect("a lock").holder
    };
    let columns = || {
        sql_text(
            &s.path,
            "SELECT group_concat(name) FROM pragma_table_info('syncguard_locks')",
        )
    };
    let before = client.lock("k").expect("a lock");
    client.check().expect("a report");
    assert_eq!(shown("k"), None);
    assert!(!columns().contains("holder"), "{}", columns());
    client.setup_schema().expect("set-up");
    assert!(columns().ends_with(",holder"), "{}", columns());
    assert_eq!(shown("k"), None);
    before.release().expect("answer").expect_released();
    let _held = client.lock_with("k", &syncguard::LockOptions::new().holder("now"));
    assert_eq!(shown("k").as_deref(), Some("now"));
    // As a program of an older version writes the row.
    sql(
        &s.path,
        "UPDATE syncguard_locks SET lock_id = 'W647iISzFHXC1Nia_Mdz2Q'",
    );
    assert_eq!(shown("k"), None);
}

#[test]
fn a_file_of_an_older_version_keeps_its_locks_and_fences() {
    let s = store();
    // Names and keys of a row come from a file of today.
    let (a, k) = (id(), key("old"));
    let newer = store();
    let _ = granted(newer.backend.acquire(&k, &a, ttl(MINUTE), &Call::new()));
    sql(&s.path, OLDER_SCHEMA);
    sql(
        &s.path,
        &format!(
            "ATTACH '{}' AS newer;
             INSERT INTO syncguard_locks SELECT key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, boot_id,
                 expires_boot_ms FROM newer.syncguard_locks;
             INSERT INTO syncguard_fence_counters SELECT * FROM newer.syncguard_fence_counters;",
            newer.path.display()
        ),
    );
    // Many at once: one adds the column.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(open(&s.path).is_locked(&k, &Call::new()).expect("answer")));
        }
    });
    let b = &s.backend;
    assert!(matches!(
        b.acquire(&k, &id(), ttl(MINUTE), &Call::new()),
        Ok(AcquireOutcome::Locked(_))
    ));
    // Of another boot id: alive until the wall clock says otherwise.
    sql(&s.path, "UPDATE syncguard_locks SET boot_id = 'another'");
    assert!(b.is_locked(&k, &Call::new()).expect("answer"));
    assert!(matches!(
        b.extend(&a, ttl(MINUTE), &Call::new()),
        Ok(ExtendOutcome::Extended(_))
    ));
    sql(
        &s.path,
        "UPDATE syncguard_locks SET boot_id = 'another', written_boot_ms = NULL, expires_at_ms = acquired_at_ms - 9000",
    );
    assert!(!b.is_locked(&k, &Call::new()).expect("answer"));
    assert_eq!(b.purge_expired(10, &Call::new()).ok(), Some(1));
    assert_eq!(
        granted(b.acquire(&k, &id(), ttl(5), &Call::new()))
            .fence
            .get(),
        2
    );
}

/// How often a watch of `b` has been called, and what keeps it.
fn watched(b: &SqliteBackend) -> (std::sync::Arc<AtomicU64>, syncguard::Watch) {
    let calls = std::sync::Arc::new(AtomicU64::new(0));
    let counted = std::sync::Arc::clone(&calls);
    let watch = b.watch(
        &key("k"),
        std::sync::Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        }),
    );
    (calls, watch.expect("a watch"))
}

/// A write through another client is noticed by the watch of `b`.
fn notices(b: &SqliteBackend, other: &SqliteBackend, what: &str) {
    let _ = b.is_locked(&key("k"), &Call::new()).expect("answer");
    let (calls, _watch) = watched(b);
    // The calls for what was written before come to an end.
    let limit = Instant::now() + Duration::from_secs(30);
    let mut before = u64::MAX;
    while calls.load(Ordering::SeqCst) != before {
        assert!(Instant::now() < limit, "{what}: no rest");
        before = calls.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(200));
    }
    let a = id();
    let _ = granted(other.acquire(&key("k"), &a, ttl(MINUTE), &Call::new()));
    let limit = Instant::now() + Duration::from_secs(10);
    while calls.load(Ordering::SeqCst) == before {
        assert!(Instant::now() < limit, "{what}: a write was not noticed");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(
        b.release(&a, &Call::new()).expect("answer").is_released(),
        "{what}"
    );
}

#[test]
fn a_waiter_behind_a_symbolic_link_notices_writes() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().expect("a temp dir");
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("data")).expect("a directory");
    symlink("data/first.db", at("link.db")).expect("a link");
    symlink("data", at("folder")).expect("a link");
    let linked = open(&at("link.db"));
    // The link leads nowhere yet.
    linked.setup_schema(&Call::new()).expect("a new file");
    assert!(at("data/first.db").exists());
    notices(&linked, &open(&at("data/first.db")), "a link to a new file");
    notices(
        &open(&at("link.db")),
        &open(&at("data/first.db")),
        "a link to a file",
    );
    notices(
        &open(&at("folder/first.db")),
        &open(&at("data/first.db")),
        "a link to a directory",
    );
    // The link is changed, also under a watch.
    let (calls, _watch) = watched(&linked);
    std::fs::remove_file(at("link.db")).expect("the link");
    symlink("data/second.db", at("link.db")).expect("a link");
    notices(
        &linked,
        &open(&at("data/second.db")),
        "a link that was changed",
    );
    assert!(calls.load(Ordering::SeqCst) > 1);
}

#[test]
fn an_expired_lock_is_taken_over_with_the_next_fence() {
    let s = store();
    let (b, k, a) = (&s.backend, key("short"), id());
    let _ = granted(b.acquire(&k, &a, ttl(1), &Call::new()));
    let limit = Instant::now() + Duration::from_secs(30);
    while b.is_locked(&k, &Call::new()).expect("answer") {
        assert!(Instant::now() < limit, "a lease of 1 ms lives on");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        b.find(LookupBy::LockId(&a), &Call::new())
            .expect("answer")
            .is_none()
    );
    let gone = Absence::Expired;
    assert_eq!(
        b.release(&a, &Call::new()).ok(),
        Some(ReleaseOutcome::Absent(gone))
    );
    assert_eq!(
        b.extend(&a, ttl(MINUTE), &Call::new()).ok(),
        Some(ExtendOutcome::Absent(gone))
    );
    // The id of a dead lock may come back, for another key too.
    assert_eq!(
        granted(b.acquire(&key("other"), &a, ttl(MINUTE), &Call::new()))
            .fence
            .get(),
        1
    );
    assert_eq!(
        granted(b.acquire(&k, &id(), ttl(MINUTE), &Call::new()))
            .fence
            .get(),
        2
    );
    assert_eq!(
        code(b.acquire(&key("third"), &a, ttl(MINUTE), &Call::new())),
        ErrorCode::InvalidArgument
    );
    assert!(!b.is_locked(&key("third"), &Call::new()).expect("answer"));
}

#[test]
fn purging_takes_dead_locks_and_leaves_the_rest() {
    let s = store();
    let b = &s.backend;
    for n in 0..5 {
        let _ = granted(b.acquire(&key(&format!("dead {n}")), &id(), ttl(1), &Call::new()));
    }
    let _ = granted(b.acquire(&key("alive"), &id(), ttl(MINUTE), &Call::new()));
    let limit = Instant::now() + Duration::from_secs(30);
    let mut gone = 0;
    while gone < 5 {
        assert!(Instant::now() < limit, "{gone} of 5 purged");
        let now = b.purge_expired(2, &Call::new()).expect("answer");
        assert!(now <= 2);
        gone += now;
        std::thread::sleep(Duration::from_millis(20));
    }
    // Another boot id alone is no reboot: a container may have one of its own.
    sql(
        &s.path,
        "UPDATE syncguard_locks SET boot_id = 'another boot'",
    );
    assert!(b.is_locked(&key("alive"), &Call::new()).expect("answer"));
    assert_eq!(b.purge_expired(10, &Call::new()).ok(), Some(0));
    // Written at a time that the clock has yet to reach: before a reboot.
    sql(
        &s.path,
        "UPDATE syncguard_locks SET written_boot_ms = written_boot_ms + 9000000, expires_boot_ms = expires_boot_ms + 9000000",
    );
    assert!(!b.is_locked(&key("alive"), &Call::new()).expect("answer"));
    assert_eq!(b.purge_expired(10, &Call::new()).ok(), Some(1));
    assert_eq!(
        granted(b.acquire(&key("dead 0"), &id(), ttl(1), &Call::new()))
            .fence
            .get(),
        2
    );
    assert_eq!(
        granted(b.acquire(&key("alive"), &id(), ttl(1), &Call::new()))
            .fence
            .get(),
        2
    );
}

/// A lock that ran out a moment ago still counts as taken, and is left alone.
#[test]
fn purging_leaves_what_has_only_just_run_out() {
    // Only a try that was faster than the two seconds tells anything.
    let in_time = (0..50).any(|_| {
        let s = store();
        s.backend.setup_schema(&Call::new()).expect("a file");
        let begun = Instant::now();
        let _ = granted(s.backend.acquire(&key("just"), &id(), ttl(1), &Call::new()));
        std::thread::sleep(Duration::from_millis(20));
        let gone = s.backend.purge_expired(10, &Call::new()).expect("answer");
        let in_time = begun.elapsed() < Duration::from_millis(1900);
        assert!(gone == 0 || !in_time, "purged");
        in_time
    });
    assert!(in_time, "fifty tries were too slow");
}

/// The first column of the first row.
fn sql_text(path: &Path, statement: &str) -> String {
    let c = Connection::open(path).expect("the file");
    c.query_row(statement, [], |row| row.get(0))
        .expect(statement)
}

fn sql(path: &Path, statement: &str) {
    let c = Connection::open(path).expect("the file");
    c.execute_batch(statement).expect(statement);
}

#[test]
fn keys_are_plain_data_and_nothing_is_reserved() {
    let s = store();
    let b = &s.backend;
    let strange = [
        "fence:job",
        "fence:syncguard:job",
        "id:AAAAAAAAAAAAAAAAAAAAAA",
        "job",
        "JOB",
        "job ",
        "'; DROP TABLE x; --",
        "?1",
        "%s",
        "\r\n*1\r\n",
        "\u{7f}\u{1}",
        "😀",
        "\u{5d0}",
        "\u{378}",
    ];
    for text in strange {
        let a = id();
        assert_eq!(
            granted(b.acquire(&key(text), &a, ttl(MINUTE), &Call::new()))
                .fence
                .get(),
            1,
            "{text:?}"
        );
        let found = b
            .find(LookupBy::LockId(&a), &Call::new())
            .expect("answer")
            .expect("there");
        assert_eq!(found.key, text);
    }
    let long = "x".repeat(512);
    assert_eq!(
        granted(b.acquire(&key(&long), &id(), ttl(MINUTE), &Call::new()))
            .fence
            .get(),
        1
    );
}

#[test]
fn a_counter_at_its_end_or_not_a_counter_takes_no_lock() {
    let s = store();
    let b = &s.backend;
    let k = key("counted");
    let first = id();
    let _ = granted(b.acquire(&k, &first, ttl(MINUTE), &Call::new()));
    assert!(
        b.release(&first, &Call::new())
            .expect("answer")
            .is_released()
    );
    for bad in [
        MAX_FENCE.to_string(),
        "999999999999999".into(),
        (1u64 << 53).to_string(),
        i64::MAX.to_string(),
        "-1".into(),
        "'abc'".into(),
        "1.5".into(),
        "x'00'".into(),
        "''".into(),
    ] {
        sql(
            &s.path,
            &format!("UPDATE syncguard_fence_counters SET fence = {bad}"),
        );
        let error = b
            .acquire(&k, &id(), ttl(MINUTE), &Call::new())
            .expect_err(&bad);
        assert_eq!(error.code(), ErrorCode::Internal, "{bad}");
        assert!(!error.may_have_applied());
        assert!(!b.is_locked(&k, &Call::new()).expect("answer"), "{bad}");
        let c = Connection::open(&s.path).expect("the file");
        let kept: bool = c
            .query_row(
                &format!("SELECT fence = {bad} FROM syncguard_fence_counters"),
                [],
                |r| r.get(0),
            )
            .expect("a row");
        assert!(kept, "{bad} was changed");
    }
    sql(
        &s.path,
        &format!(
            "UPDATE syncguard_fence_counters SET fence = {}",
            MAX_FENCE - 1
        ),
    );
    assert_eq!(
        granted(b.acquire(&k, &id(), ttl(5), &Call::new()))
            .fence
            .get(),
        MAX_FENCE
    );
}

#[test]
fn a_row_we_did_not_write_is_an_error_and_never_a_grant() {
    let s = store();
    let b = &s.backend;
    let (k, a) = (key("row"), id());
    let _ = granted(b.acquire(&k, &a, ttl(MINUTE), &Call::new()));
    let saved = Connection::open(&s.path).expect("the file");
    saved
        .execute_batch("CREATE TABLE saved AS SELECT * FROM syncguard_locks")
        .expect("a copy");
    for garbage in [
        "lock_id = 'short'",
        "lock_id = 7",
        "lock_id = x'ff'",
        "fence = -1",
        "fence = 'x'",
        "fence = 1.5",
        "fence = 1000000000000000",
        "expires_boot_ms = 'x'",
        "expires_boot_ms = 9e18",
        "expires_boot_ms = 1.5e300",
        "expires_boot_ms = 9223372036854775807",
        "expires_at_ms = 'x'",
        "acquired_at_ms = x'00'",
        "user_key = 3e3",
        "user_key = CAST(x'ff' AS TEXT)",
        "written_boot_ms = 'x'",
        "written_boot_ms = 1.5",
        "boot_id = x'00'",
        "boot_id = 1e9",
    ] {
        // INTEGER affinity turns what looks like a number into one, and TEXT affinity the other way round.
        sql(&s.path, &format!("UPDATE syncguard_locks SET {garbage}"));
        let taken = b.acquire(&k, &id(), ttl(MINUTE), &Call::new());
        match taken {
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Internal, "{garbage}");
                assert!(!error.may_have_applied());
                assert_eq!(
                    code(b.is_locked(&k, &Call::new())),
                    ErrorCode::Internal,
                    "{garbage}"
                );
                assert_eq!(
                    code(b.find(LookupBy::Key(&k), &Call::new())),
                    ErrorCode::Internal
                );
            }
            Ok(AcquireOutcome::Acquired(_)) => panic!("{garbage}"),
            // What became a text by affinity is another boot id, or another key: defined.
            Ok(AcquireOutcome::Locked(_)) => {
                assert!(
                    ["user_key = 3e3", "boot_id = 1e9"].contains(&garbage),
                    "{garbage}"
                )
            }
        }
        sql(
            &s.path,
            "DELETE FROM syncguard_locks; INSERT INTO syncguard_locks SELECT * FROM saved",
        );
    }
    // Dead by its expiry, whatever else it holds.
    sql(
        &s.path,
        "UPDATE syncguard_locks SET lock_id = '?', fence = 'x', expires_boot_ms = -5",
    );
    assert!(!b.is_locked(&k, &Call::new()).expect("answer"));
    let _ = granted(b.acquire(&k, &id(), ttl(MINUTE), &Call::new()));
}

#[test]
fn wrong_files_are_bad_arguments_that_say_why() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let at = |name: &str| dir.path().join(name);
    std::fs::write(
        at("text"),
        "not a database, but long enough to be looked at ".repeat(40),
    )
    .expect("a file");
    std::fs::create_dir(at("directory")).expect("a directory");
    sql(&at("columns"), "CREATE TABLE syncguard_locks (a, b)");
    sql(
        &at("view"),
        "CREATE VIEW syncguard_fence_counters AS SELECT 1",
    );
    sql(&at("application"), "CREATE TABLE customers (name)");
    for name in [
        "text",
        "directory",
        "missing/locks.db",
        "columns",
        "view",
        "application",
    ] {
        let b = open(&at(name));
        for error in [
            b.check(&Call::new()).map(|_| ()).expect_err(name),
            b.setup_schema(&Call::new()).expect_err(name),
            b.acquire(&key("k"), &id(), ttl(5), &Call::new())
                .map(|_| ())
                .expect_err(name),
            b.is_locked(&key("k"), &Call::new())
                .map(|_| ())
                .expect_err(name),
        ] {
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{name}: {error}");
            assert!(!error.may_have_applied());
        }
    }

    // A database that has its own log may hold our tables too; ours with a trigger, or without counters, are refused.
    sql(
        &at("guest"),
        "PRAGMA journal_mode = WAL; CREATE TABLE customers (name)",
    );
    let guest = open(&at("guest"));
    let _ = granted(guest.acquire(&key("k"), &id(), ttl(MINUTE), &Call::new()));
    sql(
        &at("guest"),
        "CREATE TRIGGER t AFTER INSERT ON syncguard_locks BEGIN SELECT 1; END",
    );
    assert_eq!(code(guest.check(&Call::new())), ErrorCode::InvalidArgument);
    sql(
        &at("guest"),
        "DROP TRIGGER t; DROP TABLE syncguard_fence_counters",
    );
    assert_eq!(
        code(open(&at("guest")).check(&Call::new())),
        ErrorCode::InvalidArgument
    );
}

#[test]
fn a_file_that_is_replaced_is_noticed() {
    let s = store();
    let (b, k) = (&s.backend, key("moved"));
    let _ = granted(b.acquire(&k, &id(), ttl(MINUTE), &Call::new()));
    for suffix in ["", "-wal", "-shm"] {
        let name = |p: &str| format!("{}{suffix}{p}", s.path.display());
        std::fs::rename(name(""), name(".old")).expect("a rename");
    }
    assert!(!b.is_locked(&k, &Call::new()).expect("answer"));
    assert!(s.path.exists());
}

#[test]
fn a_busy_file_ends_in_a_timeout_and_cancel_ends_the_wait() {
    let s = store();
    s.backend.check(&Call::new()).expect("a good store");
    let blocker = Connection::open(&s.path).expect("the file");
    blocker.execute_batch("BEGIN EXCLUSIVE").expect("the lock");

    let timeout = Duration::from_millis(300);
    let b = open_with(&s.path, &ClientOptions::new().operation_timeout(timeout));
    // Also the very first call, which has a connection to set up.
    for _ in 0..2 {
        let began = Instant::now();
        let error = b
            .acquire(&key("k"), &id(), ttl(5), &Call::new())
            .expect_err("busy");
        assert_eq!(error.code(), ErrorCode::NetworkTimeout);
        assert!(!error.may_have_applied());
        assert!(began.elapsed() >= timeout, "gave up early");
    }
    let worst = worst_of_three(|| {
        let watch = Stopwatch::start();
        assert_eq!(
            code(b.release(&id(), &Call::new())),
            ErrorCode::NetworkTimeout
        );
        watch.stop()
    });
    assert!(worst <= timeout + Duration::from_millis(100), "{worst:?}");
    // A reader delays no call.
    assert!(!b.is_locked(&key("k"), &Call::new()).expect("answer"));

    let patient = open_with(
        &s.path,
        &ClientOptions::new().operation_timeout(Duration::from_secs(600)),
    );
    let token = CancelToken::new();
    let error = std::thread::scope(|scope| {
        let waiter = scope
            .spawn(|| patient.acquire(&key("k"), &id(), ttl(5), &Call::new().cancelled_by(&token)));
        std::thread::sleep(Duration::from_millis(50));
        let begun = Instant::now();
        token.cancel();
        let error = waiter.join().expect("no panic").expect_err("cancelled");
        assert!(begun.elapsed() < Duration::from_secs(30), "it timed out");
        error
    });
    assert_eq!(error.code(), ErrorCode::Aborted);
    assert!(!error.may_have_applied());

    blocker.execute_batch("ROLLBACK").expect("the end");
    let _ = granted(b.acquire(&key("k"), &id(), ttl(5), &Call::new()));
    let before = b
        .acquire(&key("k2"), &id(), ttl(5), &Call::new().cancelled_by(&token))
        .expect_err("cancelled");
    assert_eq!(
        (before.code(), before.may_have_applied()),
        (ErrorCode::Aborted, false)
    );
}

/// A lease begins when the file is ours and not when we began to wait for it, or a long wait would grant what is over already.
#[test]
fn a_wait_for_the_file_does_not_count_against_the_lease() {
    let s = store();
    let (b, k, a) = (&s.backend, key("job"), id());
    let left = |since: Instant| match b.acquire(&k, &id(), ttl(MINUTE), &Call::new()) {
        Ok(AcquireOutcome::Locked(Some(holder))) => {
            holder.remaining.expect("known") + since.elapsed() + Duration::from_millis(50)
        }
        other => panic!("{other:?}"),
    };
    // Kept busy until the call has waited for a while, if the machine lets it begin by then.
    let busy = |call: &(dyn Fn() + Sync)| {
        let other = Connection::open(&s.path).expect("the file");
        other.execute_batch("BEGIN IMMEDIATE").expect("its turn");
        std::thread::scope(|scope| {
            scope.spawn(call);
            std::thread::sleep(Duration::from_millis(500));
            let freed = Instant::now();
            other.execute_batch("COMMIT").expect("its end");
            freed
        })
    };
    b.setup_schema(&Call::new()).expect("a file");
    let freed = busy(&|| {
        let _ = granted(b.acquire(&k, &a, ttl(MINUTE), &Call::new()));
    });
    assert!(left(freed) >= Duration::from_millis(MINUTE), "a grant");
    let freed = busy(&|| {
        let extended = b
            .extend(&a, ttl(2 * MINUTE), &Call::new())
            .expect("an answer");
        assert!(matches!(extended, ExtendOutcome::Extended(_)));
    });
    assert!(
        left(freed) >= Duration::from_millis(2 * MINUTE),
        "a renewal"
    );
}

#[test]
fn threads_of_one_backend_exclude_each_other() {
    let s = store();
    let k = key("threads");
    let (mut fences, rounds) = (Vec::new(), 20);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    while mine.len() < rounds {
                        let a = id();
                        if let Ok(AcquireOutcome::Acquired(grant)) =
                            s.backend.acquire(&k, &a, ttl(MINUTE), &Call::new())
                        {
                            mine.push(grant.fence.get());
                            assert!(
                                s.backend
                                    .release(&a, &Call::new())
                                    .expect("answer")
                                    .is_released()
                            );
                        }
                    }
                    mine
                })
            })
            .collect();
        for worker in workers {
            fences.extend(worker.join().expect("no panic"));
        }
    });
    fences.sort_unstable();
    assert_eq!(fences, (1..=8 * rounds as u64).collect::<Vec<_>>());
}

#[test]
fn more_threads_than_connections_all_get_their_turn() {
    let s = store();
    let options = ClientOptions::new().operation_timeout(Duration::from_secs(300));
    let b = open_with(&s.path, &options.pool_size(2));
    std::thread::scope(|scope| {
        for n in 0..100 {
            let (b, k) = (&b, key(&format!("key {n}")));
            scope.spawn(move || granted(b.acquire(&k, &id(), ttl(MINUTE), &Call::new())));
        }
    });
    let files = std::fs::read_dir("/proc/self/fd")
        .expect("our descriptors")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.starts_with(s.path.parent().expect("a directory")))
        .count();
    // A file and a log for each connection, one index for all.
    assert!(files <= 2 * 2 + 1, "{files} descriptors");
}

/// How often this process has the file open.
fn opened(path: &Path) -> usize {
    let path = std::fs::canonicalize(path).expect("the file");
    let entries = std::fs::read_dir("/proc/self/fd").expect("the descriptors");
    let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| *link == path).count()
}

/// A connection keeps its memory, and SQLite has one writer.
#[test]
fn callers_that_write_stand_in_line_without_a_connection() {
    const CALLERS: usize = 16;
    let s = store();
    let _ = granted(
        s.backend
            .acquire(&key("kept"), &id(), ttl(MINUTE), &Call::new()),
    );
    let other = Connection::open(&s.path).expect("the file");
    other.execute_batch("BEGIN IMMEDIATE").expect("its turn");
    std::thread::scope(|scope| {
        for n in 0..CALLERS {
            let b = &s.backend;
            scope.spawn(move || {
                let name = key(&format!("k{n}"));
                granted(b.acquire(&name, &id(), ttl(MINUTE), &Call::new()))
            });
        }
        eventually("callers wait", || opened(&s.path) == 1 + 5);
        // A call that reads waits for none of them.
        let look = s.backend.is_locked(&key("kept"), &Call::new());
        assert!(look.expect("answer"));
        other.execute_batch("ROLLBACK").expect("its end");
    });
    for n in 0..CALLERS {
        let name = key(&format!("k{n}"));
        assert!(s.backend.is_locked(&name, &Call::new()).expect("answer"));
    }
    assert!(opened(&s.path) <= 1 + 6, "{} times", opened(&s.path));
}

#[test]
fn urls_and_options_are_checked_without_touching_a_file() {
    for url in [
        "sqlite:",
        "sqlite::memory:",
        "sqlite:/a?x=1",
        "sqlite:/a%00",
        "sqlite://host/a",
        "redis://h",
    ] {
        assert_eq!(
            code(SqliteBackend::open(url, &ClientOptions::new())),
            ErrorCode::InvalidArgument,
            "{url}"
        );
    }
    let none = ClientOptions::new().operation_timeout(Duration::ZERO);
    assert_eq!(
        code(SqliteBackend::open("sqlite:/a", &none)),
        ErrorCode::InvalidArgument
    );
}

#[test]
fn a_pipe_is_refused_and_no_call_hangs_in_it() {
    let dir = tempfile::tempdir().expect("a temp dir");
    for (name, pipe) in [
        ("a", "a"),
        ("b", "b-wal"),
        ("c", "c-shm"),
        ("d", "d-journal"),
    ] {
        // A process that may not write it would open it for reading, and wait for a writer.
        let rights = nix::sys::stat::Mode::S_IRUSR;
        nix::unistd::mkfifo(&dir.path().join(pipe), rights).expect("a pipe");
        let (tell, told) = std::sync::mpsc::channel();
        let store = open(&dir.path().join(name));
        std::thread::spawn(move || tell.send(code(store.is_locked(&key("k"), &Call::new()))));
        let answer = told.recv_timeout(Duration::from_secs(30));
        assert_eq!(answer, Ok(ErrorCode::InvalidArgument), "{pipe}");
    }
}

/// Another program may write what it likes: a key that is no text must not make the listing begin again.
#[test]
fn a_listing_ends_at_keys_that_are_no_texts() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("locks.db");
    let client = syncguard::Client::open(&format!("sqlite:{}", path.display())).expect("a client");
    let _guards = ["a", "b", "c"].map(|key| client.lock(key).expect("a lock"));
    let sqlite = Connection::open(&path).expect("the file");
    let copy = |key: &str, id: usize| {
        let columns = "expires_at_ms, acquired_at_ms, fence, user_key, boot_id, expires_boot_ms, written_boot_ms";
        let text = format!(
            "INSERT INTO syncguard_locks (key, lock_id, {columns}) \
             SELECT {key}, 'another-{id}', {columns} FROM syncguard_locks WHERE key = 'a'"
        );
        sqlite.execute(&text, []).expect("a row");
    };
    let odd = [
        "CAST(x'ff' AS TEXT)",
        "CAST(x'62ff' AS TEXT)",
        "x'00'",
        "x'61'",
        "x'ffff'",
    ];
    for (id, key) in odd.into_iter().enumerate() {
        copy(key, id);
    }
    for examine in [1, 2, 3, 100] {
        let mut options = syncguard::ListOptions::new().examine(examine);
        let mut found = Vec::new();
        for pages in 0.. {
            assert!(pages < 20, "the listing has no end");
            let page = client.list_raw(&options).expect("a page");
            found.extend(page.locks.into_iter().map(|lock| lock.key));
            match page.next {
                Some(next) => options = options.after(next),
                None => break,
            }
        }
        // A page of one row that is no text of ours ends the listing early; no lock comes twice.
        let expected = if examine == 1 {
            vec!["a", "b"]
        } else {
            vec!["a", "b", "c"]
        };
        assert_eq!(found, expected, "{examine}");
    }
}
