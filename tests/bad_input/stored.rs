//! Tests stores that hold values which the library did not write.

use super::*;
use rusqlite::Connection;

fn sql(store: &Store, statement: &str) {
    let file = Connection::open(store.file()).expect("the file");
    file.busy_timeout(support::WAIT_LIMIT).expect("a timeout");
    file.execute_batch(statement).expect(statement);
}

/// No lock, no fence, and nothing that a retry would wait for.
#[track_caller]
fn no_grant(client: &Client, what: &str) {
    let error = client.lock("k").map(drop).expect_err(what);
    assert_eq!(error.code(), ErrorCode::Internal, "{what}: {error}");
    assert!(!error.may_have_applied());
    assert_eq!(error.attempts(), 1);
    assert!(!is_locked(client, "k"), "{what}");
}

#[test]
fn row_41_counters_at_their_end_and_no_counters() {
    let ends = [
        900_000_000_000_000,
        999_999_999_999_999,
        1 << 53,
        i64::MAX,
        -1,
        i64::MIN,
    ];
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    for end in ends {
        store.set_fence_counter("k", end).expect("a key");
        no_grant(&client, &end.to_string());
    }
    let store = Store::sqlite();
    drop(take(&store.client, "k"));
    let texts = ["'abc'", "'1e3x'", "x'31'", "0.5", "''"].map(str::to_owned);
    for end in ends.map(|n| n.to_string()).into_iter().chain(texts) {
        sql(
            &store,
            &format!("UPDATE syncguard_fence_counters SET fence = {end}"),
        );
        no_grant(&store.client, &end);
    }
    // The last fence there is has 15 digits.
    sql(
        &store,
        "UPDATE syncguard_fence_counters SET fence = 899999999999999",
    );
    let last = take(&store.client, "k");
    assert_eq!(last.fence().to_string(), "900000000000000");
}

#[test]
fn row_42_rows_that_we_did_not_write() {
    let store = Store::sqlite();
    let client = &store.client;
    let huge = "x".repeat(1 << 20);
    for garbage in [
        "lock_id = ''",
        "lock_id = x'00ff'",
        &format!("lock_id = '{huge}'"),
        "fence = 'abc'",
        "fence = -3",
        "fence = 1000000000000000",
        "expires_boot_ms = 'null'",
        "expires_boot_ms = 9e15",
        "expires_boot_ms = 9223372036854775807",
        "expires_at_ms = '{}'",
        "user_key = x'ff'",
    ] {
        let guard = take(client, "k");
        sql(&store, &format!("UPDATE syncguard_locks SET {garbage}"));
        let error = client.try_lock("k").map(|g| g.is_some());
        assert_eq!(
            error.expect_err(garbage).code(),
            ErrorCode::Internal,
            "{garbage}"
        );
        let read = client.get_by_key("k").expect_err(garbage);
        assert_eq!(read.code(), ErrorCode::Internal);
        // The holder is told so, or that its lock is gone; never that it still has it.
        assert!(
            !guard.extend(TTL).is_ok_and(|o| o.is_extended()),
            "{garbage}"
        );
        assert!(!guard.release().is_ok_and(|o| o.is_released()), "{garbage}");
        sql(&store, "DELETE FROM syncguard_locks");
        drop(guard);
    }
    // Tables that are gone: an error, and the counters never begin anew.
    let fence = take(client, "k").fence();
    sql(&store, "DROP TABLE syncguard_fence_counters");
    let error = client.try_lock("k").map(|g| g.is_some());
    assert!(!error.expect_err("no counters").may_have_applied());
    assert!(fence.get() > 1);
}
