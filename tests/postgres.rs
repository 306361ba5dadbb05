//! The Postgres store against real servers: the verbs, the tables it shares with the TypeScript library, and set-up.
#![cfg(feature = "postgres")]

#[path = "support/postgres.rs"]
mod support;

use std::time::Duration;

use support::{Bouncer, Server};
use syncguard::*;

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

fn id() -> LockId {
    LockId::random().expect("an id")
}

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).expect("a ttl")
}

fn store(server: &Server, schema: &str) -> PostgresBackend {
    let store = server.open(&ClientOptions::new().schema(schema));
    store.setup_schema(None).expect("set-up");
    store
}

fn grant(outcome: AcquireOutcome) -> Acquired {
    match outcome {
        AcquireOutcome::Acquired(grant) => grant,
        AcquireOutcome::Locked(holder) => panic!("locked by {holder:?}"),
    }
}

fn take(store: &PostgresBackend, name: &str, ms: u64) -> Acquired {
    grant(
        store
            .acquire(&key(name), &id(), ttl(ms), None)
            .expect("an answer"),
    )
}

#[test]
fn a_lock_lives_as_the_contract_says() {
    let server = Server::shared();
    let store = store(&server, "life");
    let first = take(&store, "job:1", 30_000);
    assert_eq!(first.fence.get(), 1);
    match store
        .acquire(&key("job:1"), &id(), ttl(1000), None)
        .expect("an answer")
    {
        AcquireOutcome::Locked(Some(holder)) => {
            assert_eq!(holder.lock_id_hash, Some(first.lock_id.hash()));
            assert_eq!(holder.fence, Some(first.fence));
            let left = holder.remaining.expect("what remains");
            assert!(left > Duration::from_secs(10) && left <= Duration::from_secs(30));
        }
        other => panic!("{other:?}"),
    }
    // The answer was lost: the same id again has the stored grant.
    let again = store
        .acquire(&key("job:1"), &first.lock_id, ttl(5), None)
        .expect("an answer");
    assert_eq!(grant(again), first);
    assert!(store.is_locked(&key("job:1"), None).expect("an answer"));
    for by in [
        LookupBy::Key(&key("job:1")),
        LookupBy::LockId(&first.lock_id),
    ] {
        let found = store.find(by, None).expect("an answer").expect("a lock");
        assert_eq!(
            (found.key.as_str(), found.lock_id, found.fence),
            ("job:1", first.lock_id, first.fence)
        );
        assert_eq!(found.expires_at_ms, first.expires_at_ms);
        assert_eq!(found.acquired_at_ms, first.expires_at_ms - 30_000);
    }
    match store
        .extend(&first.lock_id, ttl(60_000), None)
        .expect("an answer")
    {
        ExtendOutcome::Extended(at) => assert!(at >= first.expires_at_ms + 30_000),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        store.extend(&id(), ttl(1), None).expect("an answer"),
        ExtendOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        store.release(&id(), None).expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert!(
        store
            .release(&first.lock_id, None)
            .expect("an answer")
            .is_released()
    );
    assert_eq!(
        store.release(&first.lock_id, None).expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert!(!store.is_locked(&key("job:1"), None).expect("an answer"));
    assert!(
        store
            .find(LookupBy::Key(&key("job:1")), None)
            .expect("an answer")
            .is_none()
    );
    assert_eq!(take(&store, "job:1", 1).fence.get(), 2);
    assert_eq!(store.capabilities().backend, "postgres");
}

#[test]
fn the_servers_clock_decides_with_the_one_tolerance() {
    let server = Server::shared();
    let store = store(&server, "clock");
    let age = |name: &str, ms: i64| {
        server.sql(&format!(
            "UPDATE clock.syncguard_locks SET expires_at_ms = extract(epoch from clock_timestamp()) * 1000 - {ms} WHERE key = '{name}'"
        ));
    };
    // Inside the tolerance a lock is taken, alive and extensible; the margins are wide for a slow machine.
    let a = take(&store, "a", 30_000);
    age("a", -20_000);
    assert!(matches!(
        store.extend(&a.lock_id, ttl(60_000), None),
        Ok(ExtendOutcome::Extended(_))
    ));
    let b = take(&store, "b", 30_000);
    age("b", 1001);
    assert!(!store.is_locked(&key("b"), None).expect("an answer"));
    assert!(
        store
            .find(LookupBy::LockId(&b.lock_id), None)
            .expect("an answer")
            .is_none()
    );
    assert_eq!(
        store.extend(&b.lock_id, ttl(60_000), None).ok(),
        Some(ExtendOutcome::Absent(Absence::Expired))
    );
    assert_eq!(
        store.release(&b.lock_id, None).ok(),
        Some(ReleaseOutcome::Absent(Absence::Expired))
    );
    assert_eq!(take(&store, "b", 30_000).fence.get(), 2);
    assert_eq!(
        store.release(&b.lock_id, None).ok(),
        Some(ReleaseOutcome::Absent(Absence::NotFound))
    );

    // The edge itself: best of three, for the statements take time.
    let inside = (0..3).any(|_| {
        let c = take(&store, "c", 30_000);
        age("c", 200);
        let locked = store.is_locked(&key("c"), None).expect("an answer");
        let extended = store
            .extend(&c.lock_id, ttl(60_000), None)
            .expect("an answer");
        let _ = store.release(&c.lock_id, None).expect("an answer");
        locked && matches!(extended, ExtendOutcome::Extended(_))
    });
    assert!(inside, "a lock expired for 200 ms counts as alive");
}

#[test]
fn no_sql_carries_a_tolerance_of_its_own() {
    for text in [
        include_str!("../src/postgres/functions.sql"),
        include_str!("../src/postgres/sql.rs"),
    ] {
        let numbers: Vec<&str> = text
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|w| w.len() >= 4 && w.bytes().all(|b| b.is_ascii_digit()))
            .collect();
        // The only one turns seconds into milliseconds.
        assert!(numbers.iter().all(|n| *n == "1000"), "{numbers:?}");
        assert_eq!(
            text.matches("1000").count(),
            text.matches("OPERATOR(pg_catalog.*) 1000)").count()
        );
        assert!(!text.contains("now()") && !text.to_lowercase().contains("current_timestamp"));
    }
}

#[test]
fn keys_are_plain_data() {
    let server = Server::shared();
    let store = store(&server, "keys");
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
    let grants: Vec<_> = names
        .iter()
        .map(|name| take(&store, name, 30_000))
        .collect();
    for (name, grant) in names.iter().zip(&grants) {
        assert_eq!(grant.fence.get(), 1, "{name:?}");
        let found = store
            .find(LookupBy::Key(&key(name)), None)
            .expect("an answer")
            .expect("a lock");
        assert_eq!((found.key.as_str(), found.lock_id), (*name, grant.lock_id));
    }
    assert!(
        store
            .is_locked(&key("cafe\u{301}"), None)
            .expect("an answer"),
        "one lock in both forms"
    );
    for grant in &grants {
        assert!(
            store
                .release(&grant.lock_id, None)
                .expect("an answer")
                .is_released()
        );
    }
    assert_eq!(server.sql("SELECT count(*) FROM keys.syncguard_locks"), "0");
}

#[test]
fn counters_outside_their_limits_grant_nothing() {
    let server = Server::shared();
    let store = store(&server, "counters");
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
            .acquire(&key(bad), &id(), ttl(30_000), None)
            .expect_err("no grant");
        assert_eq!(error.code(), ErrorCode::Internal, "{error}");
        assert!(!error.may_have_applied() && error.message().contains("not taken"));
        assert!(!store.is_locked(&key(bad), None).expect("an answer"));
        assert_eq!(server.sql(&format!("SELECT fence FROM counters.syncguard_fence_counters WHERE fence_key = 'fence:{bad}'")), bad);
    }
    server.sql(
        "INSERT INTO counters.syncguard_fence_counters VALUES ('fence:last', 899999999999999)",
    );
    assert_eq!(take(&store, "last", 30_000).fence.get(), MAX_FENCE);
}

#[test]
fn foreign_rows_are_never_granted() {
    let server = Server::shared();
    let store = store(&server, "foreign_rows");
    let far = "99999999999999";
    for (name, lock_id, fence) in [
        ("short", "x", "000000000000001"),
        ("spaces", "a b c", "12"),
        ("fence", "AAAAAAAAAAAAAAAAAAAAAA", "abc"),
    ] {
        server.sql(&format!("INSERT INTO foreign_rows.syncguard_locks VALUES ('{name}', '{lock_id}', {far}, 1, '{fence}', '{name}')"));
        assert!(matches!(
            store.acquire(&key(name), &id(), ttl(1), None),
            Ok(AcquireOutcome::Locked(Some(_)))
        ));
        assert!(store.is_locked(&key(name), None).expect("an answer"));
        let error = store
            .find(LookupBy::Key(&key(name)), None)
            .expect_err("not ours");
        assert_eq!(error.code(), ErrorCode::Internal);
    }
    // A garbled fence under our own id is no grant either.
    let ours = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA").expect("an id");
    assert_eq!(
        store
            .acquire(&key("fence"), &ours, ttl(1), None)
            .map_err(|e| e.code()),
        Err(ErrorCode::Internal)
    );
    // One id, two keys: refused, nothing changed.
    let grant = take(&store, "one", 30_000);
    let error = store
        .acquire(&key("two"), &grant.lock_id, ttl(1), None)
        .expect_err("in use");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(!error.to_string().contains(grant.lock_id.as_str()));
    assert!(!store.is_locked(&key("two"), None).expect("an answer"));
}

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
        assert_eq!(take(&store, "k", 30_000).fence.get(), 1, "{lock}");
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
    server.sql("CREATE OR REPLACE FUNCTION fresh.syncguard_v1_release(p_lock_id text, p_tolerance_ms int8, p_lock_timeout text, OUT o_found bool, OUT o_released bool) LANGUAGE plpgsql AS 'BEGIN END'");
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
    let admin = store(&server, "grants");
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
    let grant = take(&worker, "k", 30_000);
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
fn whatever_the_role_says() {
    let server = Server::shared();
    let admin = store(&server, "roles");
    for (role, setting) in [
        (
            "serializable",
            "default_transaction_isolation = serializable",
        ),
        (
            "repeatable",
            "default_transaction_isolation = 'repeatable read'",
        ),
        ("readonly", "default_transaction_read_only = on"),
        ("nosync", "synchronous_commit = off"),
        ("postponed", "default_transaction_deferrable = on"),
        ("nopath", "search_path = ''"),
        ("evilpath", "search_path = evil, pg_catalog"),
        ("strings", "standard_conforming_strings = off"),
        ("nolockwait", "lock_timeout = 1"),
        ("custom", "plan_cache_mode = force_custom_plan"),
        ("noindex", "enable_indexscan = off"),
        ("bytea", "bytea_output = escape"),
        ("datestyle", "DateStyle = 'SQL, DMY'"),
        ("zone", "TimeZone = 'Pacific/Kiritimati'"),
        ("floats", "extra_float_digits = -15"),
        ("mute", "client_min_messages = error"),
    ] {
        server.sql(&format!(
            "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET {setting}"
        ));
    }
    // An operator and a clock of somebody's own, before pg_catalog in the path.
    server.sql(
        "CREATE SCHEMA evil; CREATE FUNCTION evil.lie(text, text) RETURNS bool LANGUAGE sql AS 'SELECT false'; \
         CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.lie); \
         CREATE FUNCTION evil.lie8(int8, int8) RETURNS bool LANGUAGE sql AS 'SELECT false'; \
         CREATE OPERATOR evil.> (LEFTARG = int8, RIGHTARG = int8, FUNCTION = evil.lie8); \
         CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''epoch''::timestamptz'; \
         CREATE FUNCTION evil.pg_advisory_xact_lock(int8) RETURNS void LANGUAGE sql AS ''; \
         CREATE TABLE evil.syncguard_locks (key text); CREATE TABLE evil.syncguard_fence_counters (fence_key text)",
    );
    let roles = [
        "serializable",
        "repeatable",
        "readonly",
        "nosync",
        "postponed",
        "nopath",
        "evilpath",
        "strings",
        "nolockwait",
        "custom",
        "noindex",
        "bytea",
        "datestyle",
        "zone",
        "floats",
        "mute",
    ];
    for role in roles {
        let store =
            PostgresBackend::open(&server.url_of(role), &ClientOptions::new().schema("roles"))
                .expect("a store");
        let name = format!("k'\\{role}");
        store
            .setup_schema(None)
            .unwrap_or_else(|e| panic!("{role}: {e}"));
        store.check(None).unwrap_or_else(|e| panic!("{role}: {e}"));
        let grant = take(&store, &name, 30_000);
        assert!(
            matches!(
                store.acquire(&key(&name), &id(), ttl(1), None),
                Ok(AcquireOutcome::Locked(_))
            ),
            "{role}"
        );
        assert!(
            matches!(
                admin.acquire(&key(&name), &id(), ttl(1), None),
                Ok(AcquireOutcome::Locked(_))
            ),
            "{role}"
        );
        assert!(
            store.is_locked(&key(&name), None).expect("an answer"),
            "{role}"
        );
        assert!(
            matches!(
                store.extend(&grant.lock_id, ttl(30_000), None),
                Ok(ExtendOutcome::Extended(_))
            ),
            "{role}"
        );
        assert!(
            store
                .find(LookupBy::LockId(&grant.lock_id), None)
                .expect("an answer")
                .is_some(),
            "{role}"
        );
        assert_eq!(store.purge_expired(10, None).ok(), Some(0), "{role}");
        assert!(
            store
                .release(&grant.lock_id, None)
                .expect("an answer")
                .is_released(),
            "{role}"
        );
    }
    // No schema named: the path decides, and an empty one is a clear error.
    let error = PostgresBackend::open(&server.url_of("nopath"), &ClientOptions::new())
        .expect("a store")
        .is_locked(&key("k"), None)
        .expect_err("no schema");
    assert!(
        error.code() == ErrorCode::InvalidArgument && error.message().contains("search_path"),
        "{error}"
    );
}

#[test]
fn a_waiting_acquire_is_right_under_any_default_isolation() {
    // Under a snapshot taken before the wait, the lock granted meanwhile would be invisible.
    let server = Server::shared();
    let admin = store(&server, "isolation");
    server.sql("CREATE ROLE strict LOGIN SUPERUSER; ALTER ROLE strict SET default_transaction_isolation = 'repeatable read'");
    let strict = PostgresBackend::open(
        &server.url_of("strict"),
        &ClientOptions::new().schema("isolation"),
    )
    .expect("a store");
    let mut blocker = server.session();
    blocker.run("BEGIN; SELECT pg_advisory_xact_lock(hashtext('isolation'))");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            strict
                .acquire(&key("isolation"), &id(), ttl(30_000), None)
                .expect("an answer")
        });
        server.wait_until_waiting("isolation", 1);
        blocker.run(
            "INSERT INTO isolation.syncguard_locks VALUES ('isolation', 'BBBBBBBBBBBBBBBBBBBBBB', 99999999999999, 1, '000000000000001', 'isolation'); COMMIT",
        );
        assert!(matches!(
            waiting.join().expect("a thread"),
            AcquireOutcome::Locked(_)
        ));
    });
    assert!(admin.is_locked(&key("isolation"), None).expect("an answer"));
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
    assert_eq!(take(&store, "k", 30_000).fence.get(), 1);
    assert_eq!(
        server.sql("SELECT count(*) FROM second.syncguard_locks"),
        "1"
    );
    // A path that changes under a running client moves nothing.
    server.sql("CREATE TABLE first.syncguard_locks (key text)");
    assert!(store.is_locked(&key("k"), None).expect("an answer"));
}

#[test]
fn purge_removes_the_dead_and_only_them() {
    let server = Server::shared();
    let store = store(&server, "purge");
    for i in 0..10 {
        let _ = take(&store, &format!("dead{i}"), 30_000);
    }
    let _ = take(&store, "alive", 30_000);
    let _ = take(&store, "recent", 30_000);
    let now = "extract(epoch from clock_timestamp()) * 1000";
    server.sql(&format!(
        "UPDATE purge.syncguard_locks SET expires_at_ms = {now} - 3600000 WHERE key LIKE 'dead%'"
    ));
    server.sql(&format!(
        "UPDATE purge.syncguard_locks SET expires_at_ms = {now} - 1 WHERE key = 'recent'"
    ));
    // A row that somebody works on is passed over, not waited for.
    let mut other = server.session();
    other.run("BEGIN; SELECT * FROM purge.syncguard_locks WHERE key = 'dead0' FOR UPDATE");
    assert_eq!(store.purge_expired(4, None).ok(), Some(4));
    assert_eq!(store.purge_expired(0, None).ok(), Some(0));
    assert_eq!(store.purge_expired(1000, None).ok(), Some(5));
    other.run("COMMIT");
    assert_eq!(store.purge_expired(u32::MAX, None).ok(), Some(1));
    assert_eq!(
        server.sql("SELECT string_agg(key, ',' ORDER BY key) FROM purge.syncguard_locks"),
        "alive,recent"
    );
    assert_eq!(
        server.sql("SELECT count(*) FROM purge.syncguard_fence_counters"),
        "12"
    );
    assert_eq!(take(&store, "dead3", 30_000).fence.get(), 2);
}

#[test]
fn is_locked_cleans_up_only_if_told() {
    let server = Server::shared();
    let plain = store(&server, "cleanup");
    let cleaning = server.open(
        &ClientOptions::new()
            .schema("cleanup")
            .cleanup_in_is_locked(true),
    );
    let _ = take(&plain, "dead", 30_000);
    server.sql("UPDATE cleanup.syncguard_locks SET expires_at_ms = 1");
    assert!(!plain.is_locked(&key("dead"), None).expect("an answer"));
    assert_eq!(
        server.sql("SELECT count(*) FROM cleanup.syncguard_locks"),
        "1"
    );
    assert!(!cleaning.is_locked(&key("dead"), None).expect("an answer"));
    support::wait_for("the dead lock is removed", || {
        (server.sql("SELECT count(*) FROM cleanup.syncguard_locks") == "0").then_some(())
    });
    assert_eq!(
        server.sql("SELECT fence FROM cleanup.syncguard_fence_counters"),
        "1"
    );
}

#[test]
fn a_thousand_operations_through_pgbouncer() {
    let server = Server::shared();
    let bouncer = Bouncer::start(&server, 3);
    let options = ClientOptions::new()
        .schema("bounced")
        .operation_timeout(Duration::from_secs(60));
    let stores: Vec<_> = (0..8)
        .map(|_| PostgresBackend::open(&bouncer.url(), &options).expect("a store"))
        .collect();
    stores[0].setup_schema(None).expect("set-up");
    let grants = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (n, store) in stores.iter().enumerate() {
            let grants = &grants;
            scope.spawn(move || {
                let mut operations = 0;
                while operations < 125 {
                    let name = key(&format!("k{}", (n + operations) % 3));
                    let outcome = store
                        .acquire(&name, &id(), ttl(30_000), None)
                        .expect("an answer");
                    let _ = store.is_locked(&name, None).expect("an answer");
                    operations += 2;
                    if let AcquireOutcome::Acquired(grant) = outcome {
                        grants.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        assert!(matches!(
                            store
                                .extend(&grant.lock_id, ttl(30_000), None)
                                .expect("an answer"),
                            ExtendOutcome::Extended(_)
                        ));
                        assert!(
                            store
                                .find(LookupBy::LockId(&grant.lock_id), None)
                                .expect("an answer")
                                .is_some()
                        );
                        assert!(
                            store
                                .release(&grant.lock_id, None)
                                .expect("an answer")
                                .is_released()
                        );
                        operations += 3;
                    }
                }
            });
        }
    });
    let counted = server.sql("SELECT sum(fence) FROM bounced.syncguard_fence_counters");
    assert_eq!(
        counted,
        grants.into_inner().to_string(),
        "one fence per grant"
    );
}

#[test]
fn databases_of_other_encodings() {
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let server = Server::start_encoded(encoding, &[]);
        let store = store(&server, "s");
        let grant = take(&store, "caf\u{e9}", 30_000);
        let found = store
            .find(LookupBy::LockId(&grant.lock_id), None)
            .expect("an answer")
            .expect("a lock");
        assert_eq!(found.key, "caf\u{e9}");
        match store.acquire(&key("日本語"), &id(), ttl(30_000), None) {
            Ok(AcquireOutcome::Acquired(_)) => assert_eq!(encoding, "SQL_ASCII"),
            Err(e) => assert!(
                encoding == "LATIN1"
                    && e.code() == ErrorCode::InvalidArgument
                    && e.message().contains("UTF8"),
                "{e}"
            ),
            other => panic!("{other:?}"),
        }
        store
            .release(&grant.lock_id, None)
            .map(drop)
            .expect("the connection is still good");
    }
}

#[test]
fn plans_made_on_a_small_table_never_read_all_of_a_large_one() {
    let server = Server::shared();
    let store = store(&server, "plans");
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
        let grant = take(&store, "plans", 30_000);
        assert!(matches!(
            store.extend(&grant.lock_id, ttl(30_000), None),
            Ok(ExtendOutcome::Extended(_))
        ));
        assert!(
            store
                .release(&grant.lock_id, None)
                .expect("an answer")
                .is_released()
        );
    }
    drop(store);
    // Counts arrive late; the few of set-up are among them.
    support::wait_for("the counts arrive", || {
        (scans("seq_scan") + scans("idx_scan") >= 100).then_some(())
    });
    assert!(scans("seq_scan") < 20, "{} scans", scans("seq_scan"));
}
