//! Tests the verbs on a real Postgres server, and the SQL behind them.

use std::time::Duration;

use crate::support::postgres::{Server, id, key, set_up, take, ttl, wait_for};
use syncguard::*;

fn grant(outcome: AcquireOutcome) -> Acquired {
    match outcome {
        AcquireOutcome::Acquired(grant) => grant,
        AcquireOutcome::Locked(holder) => panic!("locked by {holder:?}"),
    }
}

#[test]
fn a_lock_is_granted_once_and_found() {
    let server = Server::shared();
    let store = set_up(&server, "life");
    let first = take(&store, "job:1");
    assert_eq!(first.fence.get(), 1);
    match store
        .acquire(&key("job:1"), &id(), ttl(1000), &Call::new())
        .expect("an answer")
    {
        AcquireOutcome::Locked(Some(holder)) => {
            assert_eq!(holder.lock_id_hash, Some(first.lock_id.log_hash()));
            assert_eq!(holder.fence, Some(first.fence));
            let left = holder.remaining.expect("what remains");
            assert!(left > Duration::from_secs(10) && left <= Duration::from_secs(60));
        }
        other => panic!("{other:?}"),
    }
    // The answer was lost: the same id again has the stored grant.
    let again = store
        .acquire(&key("job:1"), &first.lock_id, ttl(5), &Call::new())
        .expect("an answer");
    assert_eq!(grant(again), first);
    assert!(
        store
            .is_locked(&key("job:1"), &Call::new())
            .expect("an answer")
    );
    for by in [
        LookupBy::Key(&key("job:1")),
        LookupBy::LockId(&first.lock_id),
    ] {
        let found = store
            .find(by, &Call::new())
            .expect("an answer")
            .expect("a lock");
        assert_eq!(
            (found.key.as_str(), found.lock_id, found.fence),
            ("job:1", first.lock_id, first.fence)
        );
        assert_eq!(found.expires_at_ms, first.expires_at_ms);
        assert_eq!(found.acquired_at_ms, first.expires_at_ms - 60_000);
    }
    assert_eq!(store.capabilities().backend, "postgres");
}

#[test]
fn a_lock_is_extended_and_released_by_its_id_alone() {
    let server = Server::shared();
    let store = set_up(&server, "ends");
    let first = take(&store, "job:1");
    match store
        .extend(&first.lock_id, ttl(120_000), &Call::new())
        .expect("an answer")
    {
        ExtendOutcome::Extended(at) => assert!(at >= first.expires_at_ms + 60_000),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        store
            .extend(&id(), ttl(1), &Call::new())
            .expect("an answer"),
        ExtendOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        store.release(&id(), &Call::new()).expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert!(
        store
            .release(&first.lock_id, &Call::new())
            .expect("an answer")
            .is_released()
    );
    assert_eq!(
        store
            .release(&first.lock_id, &Call::new())
            .expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert!(
        !store
            .is_locked(&key("job:1"), &Call::new())
            .expect("an answer")
    );
    assert!(
        store
            .find(LookupBy::Key(&key("job:1")), &Call::new())
            .expect("an answer")
            .is_none()
    );
    assert_eq!(take(&store, "job:1").fence.get(), 2);
}

#[test]
fn the_servers_clock_decides_with_the_one_tolerance() {
    let server = Server::shared();
    let store = set_up(&server, "clock");
    let age = |name: &str, ms: i64| {
        server.sql(&format!(
            "UPDATE clock.syncguard_locks SET expires_at_ms = extract(epoch from clock_timestamp()) * 1000 - {ms} WHERE key = '{name}'"
        ));
    };
    // Inside the tolerance a lock is taken, alive and extensible; the margins are wide for a slow machine.
    let a = take(&store, "a");
    age("a", -20_000);
    assert!(matches!(
        store.extend(&a.lock_id, ttl(60_000), &Call::new()),
        Ok(ExtendOutcome::Extended(_))
    ));
    let b = take(&store, "b");
    age("b", 1001);
    assert!(!store.is_locked(&key("b"), &Call::new()).expect("an answer"));
    assert!(
        store
            .find(LookupBy::LockId(&b.lock_id), &Call::new())
            .expect("an answer")
            .is_none()
    );
    assert_eq!(
        store.extend(&b.lock_id, ttl(60_000), &Call::new()).ok(),
        Some(ExtendOutcome::Absent(Absence::Expired))
    );
    assert_eq!(
        store.release(&b.lock_id, &Call::new()).ok(),
        Some(ReleaseOutcome::Absent(Absence::Expired))
    );
    assert_eq!(take(&store, "b").fence.get(), 2);
    assert_eq!(
        store.release(&b.lock_id, &Call::new()).ok(),
        Some(ReleaseOutcome::Absent(Absence::NotFound))
    );

    // The edge itself. The statements take time: only a try that was quick enough tells, and tells for certain.
    let mut quick = 0;
    wait_for("three quick tries", || {
        let c = take(&store, "c");
        let begun = std::time::Instant::now();
        age("c", 200);
        let locked = store.is_locked(&key("c"), &Call::new()).expect("an answer");
        let extended = store
            .extend(&c.lock_id, ttl(60_000), &Call::new())
            .expect("an answer");
        let in_time = begun.elapsed() < Duration::from_millis(750);
        let _ = store.release(&c.lock_id, &Call::new()).expect("an answer");
        if in_time {
            quick += 1;
            let alive = locked && matches!(extended, ExtendOutcome::Extended(_));
            assert!(alive, "a lock expired for 200 ms counts as alive");
        }
        (quick == 3).then_some(())
    });
}

#[test]
fn keys_are_plain_data() {
    let server = Server::shared();
    let store = set_up(&server, "keys");
    let long = "k".repeat(512);
    let names = [
        "fence:syncguard:foo",
        "id:AAAAAAAAAAAAAAAAAAAAAA",
        "fence:foo",
        "foo",
        "'; DROP TABLE x; --",
        "$1",
        "%s",
        "a\\b",
        "E'x'",
        "line\nbreak\r\n*1\r\n",
        "\u{7f}\u{1}",
        "日本語",
        "😀",
        "caf\u{e9}",
        "a",
        "A",
        "a ",
        "\u{202e}rtl",
        "\"quoted\"",
        &long,
    ];
    let grants: Vec<_> = names.iter().map(|name| take(&store, name)).collect();
    for (name, grant) in names.iter().zip(&grants) {
        assert_eq!(grant.fence.get(), 1, "{name:?}");
        let found = store
            .find(LookupBy::Key(&key(name)), &Call::new())
            .expect("an answer")
            .expect("a lock");
        assert_eq!((found.key.as_str(), found.lock_id), (*name, grant.lock_id));
    }
    assert!(
        store
            .is_locked(&key("cafe\u{301}"), &Call::new())
            .expect("an answer"),
        "one lock in both forms"
    );
    for grant in &grants {
        assert!(
            store
                .release(&grant.lock_id, &Call::new())
                .expect("an answer")
                .is_released()
        );
    }
    assert_eq!(server.sql("SELECT count(*) FROM keys.syncguard_locks"), "0");
}

#[test]
fn counters_outside_their_limits_grant_nothing() {
    let server = Server::shared();
    let store = set_up(&server, "counters");
    for bad in [
        "900000000000000",
        "999999999999999",
        "9007199254740992",
        "9223372036854775807",
        "-1",
    ] {
        server.sql(&format!(
            "INSERT INTO counters.syncguard_fence_counters VALUES ('fence:{bad}', {bad})"
        ));
        let error = store
            .acquire(&key(bad), &id(), ttl(30_000), &Call::new())
            .expect_err("no grant");
        assert_eq!(error.code(), ErrorCode::Internal, "{error}");
        assert!(!error.may_have_applied() && error.message().contains("not taken"));
        assert!(!store.is_locked(&key(bad), &Call::new()).expect("an answer"));
        assert_eq!(server.sql(&format!("SELECT fence FROM counters.syncguard_fence_counters WHERE fence_key = 'fence:{bad}'")), bad);
    }
    server.sql(
        "INSERT INTO counters.syncguard_fence_counters VALUES ('fence:last', 899999999999999)",
    );
    assert_eq!(take(&store, "last").fence.get(), MAX_FENCE);
}

#[test]
fn foreign_rows_are_never_granted() {
    let server = Server::shared();
    let store = set_up(&server, "foreign_rows");
    let far = "99999999999999";
    for (name, lock_id, fence) in [
        ("short", "x", "000000000000001"),
        ("spaces", "a b c", "12"),
        ("fence", "AAAAAAAAAAAAAAAAAAAAAA", "abc"),
    ] {
        server.sql(&format!("INSERT INTO foreign_rows.syncguard_locks VALUES ('{name}', '{lock_id}', {far}, 1, '{fence}', '{name}')"));
        assert!(matches!(
            store.acquire(&key(name), &id(), ttl(1), &Call::new()),
            Ok(AcquireOutcome::Locked(Some(_)))
        ));
        assert!(
            store
                .is_locked(&key(name), &Call::new())
                .expect("an answer")
        );
        let error = store
            .find(LookupBy::Key(&key(name)), &Call::new())
            .expect_err("not ours");
        assert_eq!(error.code(), ErrorCode::Internal);
    }
    // A garbled fence under our own id is no grant either.
    let ours = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA").expect("an id");
    assert_eq!(
        store
            .acquire(&key("fence"), &ours, ttl(1), &Call::new())
            .map_err(|e| e.code()),
        Err(ErrorCode::Internal)
    );
    // One id, two keys: refused, nothing changed.
    let grant = take(&store, "one");
    let error = store
        .acquire(&key("two"), &grant.lock_id, ttl(1), &Call::new())
        .expect_err("in use");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(!error.to_string().contains(grant.lock_id.as_str()));
    assert!(
        !store
            .is_locked(&key("two"), &Call::new())
            .expect("an answer")
    );
}

#[test]
fn purge_removes_the_dead_and_only_them() {
    let server = Server::shared();
    let store = set_up(&server, "purge");
    for i in 0..10 {
        let _ = take(&store, &format!("dead{i}"));
    }
    let _ = take(&store, "alive");
    let now = "extract(epoch from clock_timestamp()) * 1000";
    server.sql(&format!(
        "UPDATE purge.syncguard_locks SET expires_at_ms = {now} - 3600000 WHERE key LIKE 'dead%'"
    ));
    // A row that another session has locked is passed over, not waited for.
    let mut other = server.session();
    other.run("BEGIN; SELECT * FROM purge.syncguard_locks WHERE key = 'dead0' FOR UPDATE");
    assert_eq!(store.purge_expired(4, &Call::new()).ok(), Some(4));
    assert_eq!(store.purge_expired(0, &Call::new()).ok(), Some(0));
    assert_eq!(store.purge_expired(1000, &Call::new()).ok(), Some(5));
    other.run("COMMIT");
    assert_eq!(store.purge_expired(u32::MAX, &Call::new()).ok(), Some(1));
    assert_eq!(
        server.sql("SELECT string_agg(key, ',' ORDER BY key) FROM purge.syncguard_locks"),
        "alive"
    );
    assert_eq!(
        server.sql("SELECT count(*) FROM purge.syncguard_fence_counters"),
        "11"
    );
    assert_eq!(take(&store, "dead3").fence.get(), 2);
}

/// A lock that ran out a moment ago still counts as taken, and is left alone.
#[test]
fn purge_leaves_what_has_only_just_run_out() {
    let server = Server::shared();
    // Only a try that was faster than the two seconds tells anything.
    let in_time = (0..50).any(|n| {
        let store = set_up(&server, &format!("recent{n}"));
        let begun = std::time::Instant::now();
        let just = store.acquire(&key("just"), &id(), ttl(1), &Call::new());
        let _ = grant(just.expect("an answer"));
        std::thread::sleep(Duration::from_millis(20));
        let gone = store.purge_expired(10, &Call::new()).expect("an answer");
        let in_time = begun.elapsed() < Duration::from_millis(1900);
        assert!(gone == 0 || !in_time, "purged");
        in_time
    });
    assert!(in_time, "fifty tries were too slow");
}

#[test]
fn is_locked_cleans_up_only_if_told() {
    let server = Server::shared();
    let plain = set_up(&server, "cleanup");
    let options = ClientOptions::new()
        .schema("cleanup")
        .cleanup_in_is_locked(true);
    let cleaning = Client::open_with(&server.url(), &options).expect("a client");
    let _ = take(&plain, "dead");
    server.sql("UPDATE cleanup.syncguard_locks SET expires_at_ms = 1");
    assert!(
        !plain
            .is_locked(&key("dead"), &Call::new())
            .expect("an answer")
    );
    assert_eq!(
        server.sql("SELECT count(*) FROM cleanup.syncguard_locks"),
        "1"
    );
    assert!(
        !cleaning
            .is_locked_with(key("dead"), &Call::new())
            .expect("an answer")
    );
    wait_for("the dead lock is removed", || {
        (server.sql("SELECT count(*) FROM cleanup.syncguard_locks") == "0").then_some(())
    });
    assert_eq!(
        server.sql("SELECT fence FROM cleanup.syncguard_fence_counters"),
        "1"
    );
}

#[test]
fn plans_made_on_a_small_table_never_read_all_of_a_large_one() {
    let server = Server::shared();
    let store = set_up(&server, "plans");
    server.sql("INSERT INTO plans.syncguard_locks SELECT 'x' || i, 'y' || i, 1, 1, '1', 'u' FROM generate_series(1, 3) i");
    server.sql("ALTER TABLE plans.syncguard_locks SET (autovacuum_enabled = off)");
    server.sql("VACUUM ANALYZE plans.syncguard_locks");
    let scans = |kind: &str| -> u64 {
        let sql = format!(
            "SELECT {kind} FROM pg_stat_user_tables WHERE schemaname = 'plans' AND relname = 'syncguard_locks'"
        );
        server.sql(&sql).parse().expect("a number")
    };
    for _ in 0..20 {
        let grant = take(&store, "plans");
        assert!(matches!(
            store.extend(&grant.lock_id, ttl(30_000), &Call::new()),
            Ok(ExtendOutcome::Extended(_))
        ));
        assert!(
            store
                .release(&grant.lock_id, &Call::new())
                .expect("an answer")
                .is_released()
        );
    }
    drop(store);
    // Counts arrive late; the few of set-up are among them.
    wait_for("the counts arrive", || {
        (scans("seq_scan") + scans("idx_scan") >= 100).then_some(())
    });
    assert!(scans("seq_scan") < 20, "{} scans", scans("seq_scan"));
}
