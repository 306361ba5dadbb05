//! Setting up: the tables and functions, who may make them, and which ones are refused.
#![cfg(feature = "postgres")]

#[path = "support/postgres.rs"]
mod support;

use std::time::Duration;

use support::{Server, id, key, set_up, take, ttl};
use syncguard::*;

#[test]
fn table_names_are_taken_exactly_or_refused() {
    let server = Server::shared();
    server.sql("CREATE SCHEMA names");
    let open = |lock: &str, fence: &str| {
        PostgresBackend::open(
            &server.url(),
            &ClientOptions::new()
                .schema("names")
                .table_name(lock)
                .fence_table_name(fence),
        )
    };
    for bad in ["", "a.b.c", "a\"b", "a;b", "ünicode", "1a", &"x".repeat(64)] {
        assert_eq!(
            open(bad, "f").map_err(|e| e.code()).err(),
            Some(ErrorCode::InvalidArgument),
            "{bad:?}"
        );
        assert_eq!(
            open("l", bad).map_err(|e| e.code()).err(),
            Some(ErrorCode::InvalidArgument),
            "{bad:?}"
        );
    }
    assert!(open("same", "same").is_err() && open("Same", "sAME").is_err());
    let longest = "x".repeat(51);
    for (lock, fence) in [
        ("order", "select"),
        ("MyLocks", "MyFences"),
        ("mylocks", "myfences"),
        (longest.as_str(), "f"),
    ] {
        let store = open(lock, fence).expect("legal");
        store.setup_schema(None).expect("set-up");
        assert_eq!(
            store
                .check(None)
                .expect("set up")
                .iter()
                .filter(|w| !w.contains("fsync"))
                .count(),
            0
        );
        assert_eq!(take(&store, "k").fence.get(), 1, "{lock}");
        assert_eq!(
            server.sql(&format!("SELECT count(*) FROM names.\"{lock}\"")),
            "1"
        );
        assert_eq!(
            server.sql(&format!("SELECT fence FROM names.\"{fence}\"")),
            "1"
        );
    }
}

#[test]
fn setup_is_needed_named_and_repeatable() {
    let server = Server::shared();
    let fresh = server.open(&ClientOptions::new().schema("fresh"));
    for error in [
        fresh
            .acquire(&key("k"), &id(), ttl(1), None)
            .map(drop)
            .expect_err("no tables"),
        fresh.release(&id(), None).map(drop).expect_err("no tables"),
        fresh
            .is_locked(&key("k"), None)
            .map(drop)
            .expect_err("no tables"),
        fresh.check(None).map(drop).expect_err("no tables"),
    ] {
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        assert!(error.message().contains("setup_schema()"), "{error}");
        assert!(!error.may_have_applied());
    }
    for _ in 0..3 {
        fresh.setup_schema(None).expect("set-up");
    }
    let warnings = fresh.check(None).expect("set up");
    assert!(warnings.iter().any(|w| w.contains("fsync")), "{warnings:?}");
    server.sql("DROP FUNCTION fresh.syncguard_v1_release");
    let error = fresh.check(None).expect_err("a function is missing");
    assert!(
        error.message().contains("syncguard_v1_release")
            && error.message().contains("setup_schema()"),
        "{error}"
    );
    let error = fresh
        .release(&id(), None)
        .expect_err("a function is missing");
    assert!(error.message().contains("setup_schema()"), "{error}");
    fresh.setup_schema(None).expect("set-up");
    // Somebody's own function under our name is noticed, and replaced where that is allowed.
    server.sql("CREATE OR REPLACE FUNCTION fresh.syncguard_v1_release(p_lock_id text, p_tolerance_ms int8, OUT o_found bool, OUT o_released bool) LANGUAGE plpgsql AS 'BEGIN END'");
    assert!(
        fresh
            .check(None)
            .expect_err("another function")
            .message()
            .contains("not the one")
    );
    fresh.setup_schema(None).expect("set-up");
    fresh.check(None).expect("right again");
}

#[test]
fn many_set_up_at_once() {
    let server = Server::shared();
    for round in 0..3 {
        let start = std::sync::Barrier::new(16);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let options = ClientOptions::new()
                        .schema(&format!("many{round}"))
                        .operation_timeout(Duration::from_secs(60));
                    let store = server.open(&options);
                    start.wait();
                    store.setup_schema(None).expect("set-up");
                    store.check(None).expect("set up");
                });
            }
        });
    }
}

#[test]
fn wrong_tables_are_refused_with_the_reason() {
    let server = Server::shared();
    let locks = "key text PRIMARY KEY, lock_id text NOT NULL UNIQUE, expires_at_ms bigint NOT NULL, acquired_at_ms bigint NOT NULL, fence text NOT NULL, user_key text NOT NULL";
    let fences = "fence_key text PRIMARY KEY, fence bigint NOT NULL DEFAULT 0, key_debug text";
    let cases = [
        (
            "view",
            format!(
                "CREATE TABLE base ({locks}); CREATE VIEW syncguard_locks AS SELECT * FROM base; CREATE TABLE syncguard_fence_counters ({fences})"
            ),
            "not an ordinary table",
        ),
        (
            "unlogged",
            format!(
                "CREATE TABLE syncguard_locks ({locks}); CREATE UNLOGGED TABLE syncguard_fence_counters ({fences})"
            ),
            "UNLOGGED",
        ),
        (
            "nocolumn",
            format!(
                "CREATE TABLE syncguard_locks ({locks}); CREATE TABLE syncguard_fence_counters (fence_key text PRIMARY KEY, fence bigint NOT NULL)"
            ),
            "lacks the column key_debug",
        ),
        (
            "type",
            format!(
                "CREATE TABLE syncguard_locks ({}); CREATE TABLE syncguard_fence_counters ({fences})",
                locks.replace("expires_at_ms bigint", "expires_at_ms numeric")
            ),
            "numeric instead of bigint",
        ),
        (
            "counter",
            format!(
                "CREATE TABLE syncguard_locks ({locks}); CREATE TABLE syncguard_fence_counters ({})",
                fences.replace("fence bigint NOT NULL DEFAULT 0", "fence text NOT NULL")
            ),
            "text instead of bigint",
        ),
        (
            "nullable",
            format!(
                "CREATE TABLE syncguard_locks ({}); CREATE TABLE syncguard_fence_counters ({fences})",
                locks.replace("fence text NOT NULL", "fence text")
            ),
            "may be NULL",
        ),
        (
            "nounique",
            format!(
                "CREATE TABLE syncguard_locks ({}); CREATE TABLE syncguard_fence_counters ({fences})",
                locks.replace(" UNIQUE", "")
            ),
            "no unique index on lock_id",
        ),
        (
            "nokey",
            format!(
                "CREATE TABLE syncguard_locks ({locks}); CREATE TABLE syncguard_fence_counters ({})",
                fences.replace("PRIMARY KEY", "NOT NULL")
            ),
            "no unique index on fence_key",
        ),
        (
            "partial",
            format!(
                "CREATE TABLE syncguard_locks ({}); CREATE UNIQUE INDEX ON syncguard_locks (lock_id) WHERE lock_id > 'a'; CREATE TABLE syncguard_fence_counters ({fences})",
                locks.replace(" UNIQUE", "")
            ),
            "no unique index on lock_id",
        ),
        (
            "triggers",
            format!(
                "CREATE TABLE syncguard_locks ({locks}); CREATE TABLE syncguard_fence_counters ({fences}); CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER t BEFORE INSERT ON syncguard_locks FOR EACH ROW EXECUTE FUNCTION t()"
            ),
            "triggers",
        ),
        (
            "rules",
            format!(
                "CREATE TABLE syncguard_locks ({locks}); CREATE TABLE syncguard_fence_counters ({fences}); CREATE RULE r AS ON DELETE TO syncguard_locks DO INSTEAD NOTHING"
            ),
            "rules",
        ),
        (
            "security",
            format!(
                "CREATE TABLE syncguard_locks ({locks}); CREATE TABLE syncguard_fence_counters ({fences}); ALTER TABLE syncguard_locks ENABLE ROW LEVEL SECURITY"
            ),
            "row-level security",
        ),
        (
            "partitioned",
            format!(
                "CREATE TABLE syncguard_locks ({}) PARTITION BY HASH (key); CREATE TABLE syncguard_fence_counters ({fences})",
                locks.replace(" UNIQUE", "")
            ),
            "not an ordinary table",
        ),
        (
            "extra",
            format!(
                "CREATE TABLE syncguard_locks ({locks}, tenant int NOT NULL); CREATE TABLE syncguard_fence_counters ({fences})"
            ),
            "needs a value",
        ),
    ];
    for (name, ddl, reason) in cases {
        let schema = format!("wrong_{name}");
        server.sql(&format!(
            "CREATE SCHEMA {schema}; SET search_path = {schema}; {ddl}"
        ));
        let store = server.open(&ClientOptions::new().schema(&schema));
        for error in [store.check(None).map(drop), store.setup_schema(None)] {
            let error = error.expect_err(name);
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{name}: {error}");
            assert!(error.message().contains(reason), "{name}: {error}");
        }
        assert!(
            store.acquire(&key("k"), &id(), ttl(1), None).is_err(),
            "{name}"
        );
    }
}

#[test]
fn the_least_grants_are_enough_and_each_is_needed() {
    let server = Server::shared();
    let admin = set_up(&server, "grants");
    server.sql(
        "CREATE ROLE worker LOGIN; REVOKE ALL ON FUNCTION grants.syncguard_v1_acquire FROM PUBLIC",
    );
    let options = ClientOptions::new().schema("grants");
    let worker = PostgresBackend::open(&server.url_of("worker"), &options).expect("a store");
    let error = worker
        .acquire(&key("k"), &id(), ttl(1), None)
        .expect_err("no grants");
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error}");
    let grants = [
        "USAGE ON SCHEMA grants",
        "SELECT ON grants.syncguard_locks",
        "INSERT ON grants.syncguard_locks",
        "UPDATE ON grants.syncguard_locks",
        "DELETE ON grants.syncguard_locks",
        "SELECT ON grants.syncguard_fence_counters",
        "INSERT ON grants.syncguard_fence_counters",
        "UPDATE ON grants.syncguard_fence_counters",
        "EXECUTE ON FUNCTION grants.syncguard_v1_acquire",
    ];
    for grant in grants {
        let error = worker.check(None).expect_err("not enough");
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{error}");
        assert_eq!(
            worker.setup_schema(None).map_err(|e| e.code()),
            Err(ErrorCode::AuthFailed)
        );
        server.sql(&format!("GRANT {grant} TO worker"));
    }
    worker.check(None).expect("enough");
    worker.setup_schema(None).expect("nothing to create");
    let grant = take(&worker, "k");
    assert!(matches!(
        worker.extend(&grant.lock_id, ttl(30_000), None),
        Ok(ExtendOutcome::Extended(_))
    ));
    assert_eq!(worker.purge_expired(10, None).ok(), Some(0));
    assert!(admin.is_locked(&key("k"), None).expect("an answer"));
    assert!(
        worker
            .release(&grant.lock_id, None)
            .expect("an answer")
            .is_released()
    );
    for grant in grants {
        server.sql(&format!("REVOKE {grant} FROM worker"));
        let error = worker.check(None).expect_err(grant);
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{grant}");
        server.sql(&format!("GRANT {grant} TO worker"));
    }
}

#[test]
fn the_path_decides_where_no_schema_is_named() {
    let server = Server::start(&[]);
    server.sql("CREATE SCHEMA first; CREATE SCHEMA second; CREATE ROLE app LOGIN SUPERUSER; ALTER ROLE app SET search_path = first, second");
    let open =
        || PostgresBackend::open(&server.url_of("app"), &ClientOptions::new()).expect("a store");
    open().setup_schema(None).expect("set-up");
    assert_eq!(
        server.sql("SELECT to_regclass('first.syncguard_locks') IS NOT NULL"),
        "t"
    );
    // Tables that the path finds later in it are used where they are.
    server.sql("ALTER TABLE first.syncguard_locks SET SCHEMA second; ALTER TABLE first.syncguard_fence_counters SET SCHEMA second");
    let store = open();
    store.setup_schema(None).expect("set-up");
    assert_eq!(take(&store, "k").fence.get(), 1);
    assert_eq!(
        server.sql("SELECT count(*) FROM second.syncguard_locks"),
        "1"
    );
    // A path that changes under a running client moves nothing.
    server.sql("CREATE TABLE first.syncguard_locks (key text)");
    assert!(store.is_locked(&key("k"), None).expect("an answer"));
}
