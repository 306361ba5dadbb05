//! Tests the gate of SQLite in a database of the caller's own, and in the file of the locks.

use crate::fence;
use crate::support::verbs::patient;
use rusqlite::{Connection, ToSql, TransactionBehavior::Immediate};
use syncguard::gate::sqlite::{NEWEST, PASS, RESET, SETUP, STALE};
use syncguard::{Client, ErrorCode};

fn database() -> Connection {
    let db = Connection::open_in_memory().expect("a database");
    db.execute_batch(SETUP).expect("a gate");
    db.execute_batch(SETUP).expect("once more");
    db.execute_batch("CREATE TABLE log (fence)")
        .expect("a table");
    db
}

/// A transaction that writes before it passes, which is late and must be undone all the same.
fn write(db: &mut Connection, resource: &dyn ToSql, fence: &dyn ToSql) -> Result<(), String> {
    let work = db.transaction_with_behavior(Immediate).expect("the file");
    let done = work
        .execute("INSERT INTO log VALUES (?1)", [fence])
        .and_then(|_| work.execute(PASS, [resource, fence]));
    match done {
        Ok(_) => work.commit().map_err(|e| e.to_string()),
        Err(e) => Err(e.to_string()),
    }
}

fn logged(db: &Connection) -> i64 {
    let sql = "SELECT count(*) FROM log";
    db.query_row(sql, [], |row| row.get(0)).expect("a count")
}

#[test]
fn a_gate_passes_newer_and_equal_fences_and_refuses_older_ones() {
    let mut db = database();
    for n in [33, 33, 34] {
        write(&mut db, &"r", &n).expect("passed");
    }
    let late = write(&mut db, &"r", &33).expect_err("a former holder");
    assert!(late.contains(STALE), "{late}");
    assert_eq!(logged(&db), 3, "the whole transaction is undone");
    write(&mut db, &"another", &1).expect("passed");
    let newest = db.query_row(NEWEST, ["r"], |row| row.get::<_, i64>(0));
    assert_eq!(newest, Ok(34));
    let back = db.execute("UPDATE syncguard_fence_gates SET fence = 1", []);
    assert!(back.is_err(), "a gate is not set back by accident");
    assert_eq!(db.execute(RESET, ("r", 34)), Ok(1));
    write(&mut db, &"r", &2).expect("reset");
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let mut db = database();
    let long = "x".repeat(10_000);
    for bad in [
        &-1 as &dyn ToSql,
        &0,
        &1.5,
        &"abc",
        &rusqlite::types::Null,
        &900_000_000_000_001_i64,
        &i64::MAX,
    ] {
        write(&mut db, &"r", bad).expect_err("no fence");
    }
    for bad in [
        &"" as &dyn ToSql,
        &long,
        &rusqlite::types::Null,
        &vec![1_u8, 2],
    ] {
        write(&mut db, bad, &7).expect_err("no name");
    }
    assert_eq!(logged(&db), 0);
    write(&mut db, &&long[..512], &900_000_000_000_000_i64).expect("the largest");
}

#[test]
fn a_client_sets_up_looks_and_resets_in_the_file_of_its_locks() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("locks.db");
    let client = Client::open_with(&format!("sqlite:{}", file.display()), &patient());
    let client = client.expect("a good URL");
    let error = client.newest_fence("r").expect_err("no gate");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("setup_fence_gate()"), "{error}");
    let error = client.reset_fence_gate("r", fence(1)).expect_err("no gate");
    assert!(error.message().contains("setup_fence_gate()"), "{error}");
    for _ in 0..2 {
        client.setup_fence_gate().expect("a gate");
    }
    let db = Connection::open(&file).expect("the file");
    db.busy_timeout(std::time::Duration::from_secs(60))
        .expect("a timeout");
    assert_eq!(db.execute(PASS, ("r", 34)), Ok(1));
    assert_eq!(
        client.newest_fence("r").expect("an answer"),
        Some(fence(34))
    );
    assert!(!client.reset_fence_gate("r", fence(33)).expect("an answer"));
    assert!(client.reset_fence_gate("r", fence(34)).expect("an answer"));
    assert_eq!(client.newest_fence("r").expect("an answer"), None);
    drop(client.lock("k").expect("locks work as before"));
    let set = client
        .fenced_set("r", b"x", fence(1))
        .expect_err("no Redis");
    assert_eq!(set.code(), ErrorCode::InvalidArgument);
    for bad in ["", &"x".repeat(10_000), "a\0b"] {
        let refused = client.newest_fence(bad).expect_err("a bad name");
        assert_eq!(refused.code(), ErrorCode::InvalidArgument);
    }
}

/// What a driver shows of a gate that is not set up, as the documentation says.
#[test]
fn a_pass_without_set_up_names_the_table_that_is_missing() {
    let mut db = Connection::open_in_memory().expect("a database");
    db.execute_batch("CREATE TABLE log (fence)")
        .expect("a table");
    let error = write(&mut db, &"r", &33).expect_err("no gate");
    assert!(
        error.contains("no such table: syncguard_fence_gates"),
        "{error}"
    );
    assert_eq!(logged(&db), 0);
}

#[test]
fn something_else_under_the_name_of_the_gate_is_refused() {
    for made in [
        "CREATE TABLE syncguard_fence_gates (resource TEXT PRIMARY KEY, fence INTEGER)",
        "CREATE VIEW syncguard_fence_gates AS SELECT 1 AS resource, 2 AS fence",
        "CREATE TABLE syncguard_fence_gates (x)",
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("locks.db");
        let url = format!("sqlite:{}", file.display());
        let client = Client::open_with(&url, &patient()).expect("a good URL");
        client.setup_schema().expect("a file");
        let db = Connection::open(&file).expect("the file");
        db.execute_batch(made).expect(made);
        let error = client.setup_fence_gate().expect_err(made);
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{made}: {error}");
        assert!(error.message().contains("setup_fence_gate()"), "{error}");
    }
}
