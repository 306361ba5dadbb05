//! Tests the set-up: the tables and functions, the roles that may make them, and the tables that are refused.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::postgres::{Disguise, Server, id, key, set_up, take, ttl};
use crate::support::process::{self, Stage, hear, say};
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
        store.setup_schema(&Call::new()).expect("set-up");
        assert_eq!(
            store
                .check(&Call::new())
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
            .acquire(&key("k"), &id(), ttl(1), &Call::new())
            .map(drop)
            .expect_err("no tables"),
        fresh
            .release(&id(), &Call::new())
            .map(drop)
            .expect_err("no tables"),
        fresh
            .is_locked(&key("k"), &Call::new())
            .map(drop)
            .expect_err("no tables"),
        fresh.check(&Call::new()).map(drop).expect_err("no tables"),
    ] {
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        assert!(error.message().contains("setup_schema()"), "{error}");
        assert!(!error.may_have_applied());
    }
    for _ in 0..3 {
        fresh.setup_schema(&Call::new()).expect("set-up");
    }
    let warnings = fresh.check(&Call::new()).expect("set up");
    assert!(warnings.iter().any(|w| w.contains("fsync")), "{warnings:?}");
    server.sql("DROP FUNCTION fresh.syncguard_v1_release");
    let error = fresh
        .check(&Call::new())
        .expect_err("a function is missing");
    assert!(
        error.message().contains("syncguard_v1_release")
            && error.message().contains("setup_schema()"),
        "{error}"
    );
    let error = fresh
        .release(&id(), &Call::new())
        .expect_err("a function is missing");
    assert!(error.message().contains("setup_schema()"), "{error}");
    fresh.setup_schema(&Call::new()).expect("set-up");
    // A function of another owner under our name is noticed, and replaced where that is allowed.
    server.sql("CREATE OR REPLACE FUNCTION fresh.syncguard_v1_release(p_lock_id text, p_tolerance_ms int8, OUT o_found bool, OUT o_released bool) LANGUAGE plpgsql AS 'BEGIN END'");
    assert!(
        fresh
            .check(&Call::new())
            .expect_err("another function")
            .message()
            .contains("not the one")
    );
    fresh.setup_schema(&Call::new()).expect("set-up");
    fresh.check(&Call::new()).expect("right again");
}

/// The SQL for running by hand makes what `setup_schema` makes, which then has nothing to do.
#[test]
fn the_sql_to_be_run_by_hand_is_what_setup_runs() {
    let server = Server::shared();
    let named = ClientOptions::new()
        .table_name("by_hand")
        .fence_table_name("by_hand_fences");
    for (options, schema) in [
        (ClientOptions::new().schema("By_Hand"), "By_Hand"),
        (named, "public"),
    ] {
        server.sql(&PostgresBackend::schema_sql(&options).expect("legal names"));
        let store = PostgresBackend::open(&server.url(), &options.schema(schema)).expect("legal");
        let warnings = store.check(&Call::new()).expect("everything is there");
        assert!(warnings.iter().all(|w| w.contains("fsync")), "{warnings:?}");
        cycle(&store, &key("k")).expect("a lock");
        // Other tests make tables of their own meanwhile.
        let made = format!(
            "SELECT string_agg(c.oid::text, ',' ORDER BY c.oid) FROM pg_class c \
             WHERE c.relnamespace = '\"{schema}\"'::regnamespace AND (c.relname LIKE '%by_hand%' OR '{schema}' <> 'public')"
        );
        let before = server.sql(&made);
        assert!(!before.is_empty());
        store.setup_schema(&Call::new()).expect("repeatable");
        assert_eq!(server.sql(&made), before);
    }
    assert_eq!(
        PostgresBackend::schema_sql(&ClientOptions::new().schema("a\"b"))
            .map_err(|e| e.code())
            .err(),
        Some(ErrorCode::InvalidArgument)
    );
}

const URL: &str = "SYNCGUARD_TEST_URL";
const SCHEMA: &str = "SYNCGUARD_TEST_SCHEMA";

pub const STAGES: &[process::Entry] = &[("set up", set_up_with_others)];

fn set_up_with_others(_: &Path) {
    let of = |name| std::env::var(name).expect("a setting");
    let options = ClientOptions::new()
        .schema(of(SCHEMA))
        .operation_timeout(Duration::from_secs(60));
    let store = PostgresBackend::open(&of(URL), &options).expect("a store");
    say("ready");
    hear();
    store.setup_schema(&Call::new()).expect("set-up");
    store.check(&Call::new()).expect("set up");
    let grant = take(&store, &std::process::id().to_string());
    assert_eq!(grant.fence.get(), 1);
}

#[test]
fn sixteen_processes_set_up_at_once() {
    let server = Server::shared();
    let url = server.url();
    for round in 0..2 {
        let schema = format!("many{round}");
        let env = [(URL, Path::new(&url)), (SCHEMA, Path::new(&schema))];
        let mut all: Vec<_> = (0..16)
            .map(|_| Stage::start_with("set up", server.path(), &env))
            .collect();
        all.iter_mut().for_each(|stage| drop(stage.expect("ready")));
        all.iter_mut().for_each(|stage| stage.tell("go"));
        all.into_iter().for_each(Stage::finish);
        let locks = server.sql(&format!("SELECT count(*) FROM {schema}.syncguard_locks"));
        assert_eq!(locks, "16");
    }
}

fn cycle(store: &PostgresBackend, name: &Key) -> Result<(), LockError> {
    let mine = id();
    let outcome = store.acquire(name, &mine, ttl(60_000), &Call::new())?;
    assert!(
        matches!(outcome, AcquireOutcome::Acquired(_)),
        "{outcome:?}"
    );
    let outcome = store.extend(&mine, ttl(60_000), &Call::new())?;
    assert!(matches!(outcome, ExtendOutcome::Extended(_)), "{outcome:?}");
    assert!(store.is_locked(name, &Call::new())?);
    assert!(store.release(&mine, &Call::new())?.is_released());
    Ok(())
}

/// A store on a session of its own, and one on sessions of a pooler.
fn direct_and_pooled(server: &Server, pooler: &Disguise, schema: &str) -> [PostgresBackend; 2] {
    let options = ClientOptions::new()
        .schema(schema)
        .operation_timeout(Duration::from_secs(60));
    [server.url(), pooler.url()].map(|url| PostgresBackend::open(&url, &options).expect("a store"))
}

/// Sessions keep prepared statements and plans. What these refer to may be replaced, dropped and made again.
#[test]
fn sessions_survive_what_is_done_to_the_schema() {
    let server = Server::shared();
    let admin = set_up(&server, "moving");
    let pooler = Disguise::start(&server);
    let stores = direct_and_pooled(&server, &pooler, "moving");
    let all_well = |when: &str| {
        for store in &stores {
            // Often enough for plans that are kept.
            for _ in 0..8 {
                cycle(store, &key("k")).unwrap_or_else(|e| panic!("{when}: {e}"));
            }
        }
    };
    all_well("at first");
    for (change, breaks) in [
        (
            "DROP FUNCTION moving.syncguard_v1_acquire, moving.syncguard_v1_acquire_held, moving.syncguard_v1_extend, moving.syncguard_v1_release",
            true,
        ),
        ("DROP INDEX moving.idx_syncguard_locks_expires", false),
        (
            "ALTER TABLE moving.syncguard_locks ADD COLUMN note text",
            false,
        ),
        ("TRUNCATE moving.syncguard_locks", false),
        (
            "VACUUM FULL moving.syncguard_locks, moving.syncguard_fence_counters",
            false,
        ),
        ("DROP TABLE moving.syncguard_locks", true),
        ("DROP TABLE moving.syncguard_fence_counters", true),
        ("DROP SCHEMA moving CASCADE", true),
    ] {
        server.sql(change);
        if breaks {
            for store in &stores {
                let error = cycle(store, &key("k")).expect_err(change);
                assert_eq!(
                    error.code(),
                    ErrorCode::InvalidArgument,
                    "{change}: {error}"
                );
                assert!(
                    error.message().contains("setup_schema()"),
                    "{change}: {error}"
                );
            }
        } else {
            all_well(change);
        }
        admin.setup_schema(&Call::new()).expect(change);
        all_well(change);
    }
}

/// An upgrade replaces the functions in the midst of traffic.
#[test]
fn sessions_survive_functions_that_are_replaced() {
    let server = Server::shared();
    set_up(&server, "replaced");
    let pooler = Disguise::start(&server);
    let stores = direct_and_pooled(&server, &pooler, "replaced");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let traffic: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(n, store)| {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        cycle(store, &key(&format!("traffic {n}"))).expect("an answer");
                    }
                })
            })
            .collect();
        for _ in 0..20 {
            server.sql(
                "DO $$ DECLARE f text; BEGIN FOR f IN SELECT pg_get_functiondef(oid) FROM pg_proc \
                 WHERE pronamespace = 'replaced'::regnamespace LOOP EXECUTE f; END LOOP; END $$",
            );
        }
        done.store(true, Ordering::Relaxed);
        traffic
            .into_iter()
            .for_each(|t| t.join().expect("the traffic"));
    });
}

/// A session that has lost its statements, or whose statements would answer with other types, goes on in the long form.
#[test]
fn statements_that_are_gone_are_not_missed() {
    let server = Server::shared();
    let store = set_up(&server, "forgetful");
    let grant = take(&store, "a");
    assert!(store.is_locked(&key("a"), &Call::new()).expect("an answer"));
    // Binary text is binary varchar, but no prepared statement may change its types.
    server.sql("ALTER TABLE forgetful.syncguard_locks ALTER COLUMN fence TYPE varchar(20)");
    assert!(store.is_locked(&key("a"), &Call::new()).expect("an answer"));
    assert!(
        store
            .find(LookupBy::LockId(&grant.lock_id), &Call::new())
            .expect("an answer")
            .is_some()
    );
    server.sql("ALTER TABLE forgetful.syncguard_locks ALTER COLUMN fence TYPE text");

    let store = set_up(&server, "forgetful");
    let grant = take(&store, "b");
    server.sql(
        "CREATE OR REPLACE FUNCTION forgetful.syncguard_v1_extend(p_lock_id text, p_ttl_ms int8, p_tolerance_ms int8, \
         p_not_after_ms int8, OUT o_found bool, OUT o_expires_at_ms int8, OUT o_late_ms int8) LANGUAGE plpgsql AS \
         'BEGIN EXECUTE ''DEALLOCATE ALL''; o_found := true; o_expires_at_ms := 1; END'",
    );
    // The session prepares the release first, forgets it in the extend, and is asked for it again.
    let _ = store.release(&id(), &Call::new()).expect("an answer");
    assert!(matches!(
        store.extend(&grant.lock_id, ttl(1000), &Call::new()),
        Ok(ExtendOutcome::Extended(1))
    ));
    assert!(
        store
            .release(&grant.lock_id, &Call::new())
            .expect("an answer")
            .is_released()
    );
    assert_eq!(take(&store, "b").fence.get(), 2);
}

const LOCKS: &str = "key text PRIMARY KEY, lock_id text NOT NULL UNIQUE, expires_at_ms bigint NOT NULL, acquired_at_ms bigint NOT NULL, fence text NOT NULL, user_key text NOT NULL";
const FENCES: &str = "fence_key text PRIMARY KEY, fence bigint NOT NULL DEFAULT 0, key_debug text";

/// The statements that make the two tables, with these columns and this after them.
fn tables(locks: &str, fences: &str, more: &str) -> String {
    format!(
        "CREATE TABLE syncguard_locks ({locks}); CREATE TABLE syncguard_fence_counters ({fences}){more}"
    )
}

/// A name, statements that make tables which are wrong, and words of the refusal.
type WrongTables = (&'static str, String, &'static str);

fn wrong_columns() -> [WrongTables; 8] {
    let locks = |from: &str, to: &str| tables(&LOCKS.replace(from, to), FENCES, "");
    let fences = |from: &str, to: &str| tables(LOCKS, &FENCES.replace(from, to), "");
    [
        (
            "nocolumn",
            tables(
                LOCKS,
                "fence_key text PRIMARY KEY, fence bigint NOT NULL",
                "",
            ),
            "lacks the column key_debug",
        ),
        (
            "type",
            locks("expires_at_ms bigint", "expires_at_ms numeric"),
            "numeric instead of bigint",
        ),
        (
            "counter",
            fences("fence bigint NOT NULL DEFAULT 0", "fence text NOT NULL"),
            "text instead of bigint",
        ),
        (
            "nullable",
            locks("fence text NOT NULL", "fence text"),
            "may be NULL",
        ),
        (
            "nounique",
            locks(" UNIQUE", ""),
            "no unique index on lock_id",
        ),
        (
            "nokey",
            fences("PRIMARY KEY", "NOT NULL"),
            "no unique index on fence_key",
        ),
        (
            "partial",
            format!(
                "{}; CREATE UNIQUE INDEX ON syncguard_locks (lock_id) WHERE lock_id > 'a'",
                locks(" UNIQUE", "")
            ),
            "no unique index on lock_id",
        ),
        (
            "extra",
            tables(&format!("{LOCKS}, tenant int NOT NULL"), FENCES, ""),
            "needs a value",
        ),
    ]
}

fn wrong_kinds() -> [WrongTables; 6] {
    let with = |more: &str| tables(LOCKS, FENCES, more);
    [
        (
            "view",
            format!(
                "CREATE TABLE base ({LOCKS}); CREATE VIEW syncguard_locks AS SELECT * FROM base; CREATE TABLE syncguard_fence_counters ({FENCES})"
            ),
            "not an ordinary table",
        ),
        (
            "unlogged",
            format!(
                "CREATE TABLE syncguard_locks ({LOCKS}); CREATE UNLOGGED TABLE syncguard_fence_counters ({FENCES})"
            ),
            "UNLOGGED",
        ),
        (
            "triggers",
            with(
                "; CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER t BEFORE INSERT ON syncguard_locks FOR EACH ROW EXECUTE FUNCTION t()",
            ),
            "triggers",
        ),
        (
            "rules",
            with("; CREATE RULE r AS ON DELETE TO syncguard_locks DO INSTEAD NOTHING"),
            "rules",
        ),
        (
            "security",
            with("; ALTER TABLE syncguard_locks ENABLE ROW LEVEL SECURITY"),
            "row-level security",
        ),
        (
            "partitioned",
            format!(
                "CREATE TABLE syncguard_locks ({}) PARTITION BY HASH (key); CREATE TABLE syncguard_fence_counters ({FENCES})",
                LOCKS.replace(" UNIQUE", "")
            ),
            "not an ordinary table",
        ),
    ]
}

#[test]
fn wrong_tables_are_refused_with_the_reason() {
    let server = Server::shared();
    for (name, ddl, reason) in wrong_columns().into_iter().chain(wrong_kinds()) {
        let schema = format!("wrong_{name}");
        server.sql(&format!(
            "CREATE SCHEMA {schema}; SET search_path = {schema}; {ddl}"
        ));
        let store = server.open(&ClientOptions::new().schema(&schema));
        for error in [
            store.check(&Call::new()).map(drop),
            store.setup_schema(&Call::new()),
        ] {
            let error = error.expect_err(name);
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{name}: {error}");
            assert!(error.message().contains(reason), "{name}: {error}");
        }
        let error = store
            .acquire(&key("k"), &id(), ttl(1), &Call::new())
            .expect_err(name);
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{name}: {error}");
        assert!(
            error.message().contains("setup_schema()"),
            "{name}: {error}"
        );
    }
}

#[test]
fn tables_that_were_right_once_are_refused_with_the_column() {
    let server = Server::shared();
    let store = set_up(&server, "wronged");
    let grant = take(&store, "k");
    server.sql("ALTER TABLE wronged.syncguard_locks RENAME COLUMN expires_at_ms TO expires");
    for error in [
        store
            .acquire(&key("k"), &id(), ttl(1), &Call::new())
            .map(drop),
        store.extend(&grant.lock_id, ttl(1), &Call::new()).map(drop),
        store.release(&grant.lock_id, &Call::new()).map(drop),
        store.is_locked(&key("k"), &Call::new()).map(drop),
        store.check(&Call::new()).map(drop),
    ] {
        let error = error.expect_err("a column is missing");
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        assert!(error.message().contains("expires_at_ms"), "{error}");
        assert!(!error.may_have_applied(), "{error}");
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
        .acquire(&key("k"), &id(), ttl(1), &Call::new())
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
        let error = worker.check(&Call::new()).expect_err("not enough");
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{error}");
        assert_eq!(
            worker.setup_schema(&Call::new()).map_err(|e| e.code()),
            Err(ErrorCode::AuthFailed)
        );
        server.sql(&format!("GRANT {grant} TO worker"));
    }
    worker.check(&Call::new()).expect("enough");
    worker
        .setup_schema(&Call::new())
        .expect("nothing to create");
    let grant = take(&worker, "k");
    assert!(matches!(
        worker.extend(&grant.lock_id, ttl(30_000), &Call::new()),
        Ok(ExtendOutcome::Extended(_))
    ));
    assert_eq!(worker.purge_expired(10, &Call::new()).ok(), Some(0));
    assert!(admin.is_locked(&key("k"), &Call::new()).expect("an answer"));
    assert!(
        worker
            .release(&grant.lock_id, &Call::new())
            .expect("an answer")
            .is_released()
    );
    for grant in grants {
        server.sql(&format!("REVOKE {grant} FROM worker"));
        let error = worker.check(&Call::new()).expect_err(grant);
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
    open().setup_schema(&Call::new()).expect("set-up");
    assert_eq!(
        server.sql("SELECT to_regclass('first.syncguard_locks') IS NOT NULL"),
        "t"
    );
    // Tables that the path finds later in it are used where they are.
    server.sql("ALTER TABLE first.syncguard_locks SET SCHEMA second; ALTER TABLE first.syncguard_fence_counters SET SCHEMA second");
    let store = open();
    store.setup_schema(&Call::new()).expect("set-up");
    assert_eq!(take(&store, "k").fence.get(), 1);
    assert_eq!(
        server.sql("SELECT count(*) FROM second.syncguard_locks"),
        "1"
    );
    // A path that changes under a running client moves nothing.
    server.sql("CREATE TABLE first.syncguard_locks (key text)");
    assert!(store.is_locked(&key("k"), &Call::new()).expect("an answer"));
}
