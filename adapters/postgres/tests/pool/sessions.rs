//! What a session of the program keeps and what it may bring along.

use std::time::Duration;

use crate::support::common::postgres::{id, key, ttl};
use crate::support::{Pool, Setup};
use r2d2_postgres::postgres::SimpleQueryMessage;
use syncguard::{AcquireOutcome, Backend, Call, ErrorCode};

/// What a session has that the server does not give to every session.
const TRACES: &str = "SELECT concat_ws(' ', \
    (SELECT string_agg(name || '=' || setting, ' ') FROM pg_settings WHERE source = 'session' AND name <> 'client_encoding' AND name NOT LIKE 'transaction_%'), \
    (SELECT string_agg(name, ' ') FROM pg_prepared_statements), \
    (SELECT string_agg('advisory lock', ' ') FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()))";

fn call() -> Call<'static> {
    Call::new().within(Duration::from_secs(20))
}

fn ask(pool: &Pool, sql: &str) -> String {
    let mut client = pool.get().expect("a connection");
    let rows = client.simple_query(sql).expect("an answer");
    rows.iter()
        .find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
        .unwrap_or_default()
}

#[test]
fn a_session_of_the_program_stays_as_it_was() {
    let setup = Setup::start();
    let pool = setup.pool(1);
    let store = setup.over(&pool);
    for name in ["a'b", r"a\", "$1 \"x\"", "a\nb"] {
        let mine = id();
        let outcome = store.acquire(&key(name), &mine, ttl(60_000), &call());
        assert!(matches!(outcome, Ok(AcquireOutcome::Acquired(_))), "{name}");
        assert!(setup.near().is_locked(name).expect("an answer"), "{name}");
        assert!(
            store
                .release(&mine, &call())
                .expect("an answer")
                .is_released()
        );
    }
    store.check(&call()).expect("set up");
    assert_eq!(ask(&pool, TRACES), "");
    assert_eq!(ask(&pool, "SHOW statement_timeout"), "0");
}

/// Nothing that is granted in a transaction which may be rolled back is told to a caller.
#[test]
fn a_connection_with_an_open_transaction_is_refused_and_mended() {
    let setup = Setup::start();
    let pool = setup.pool(1);
    let store = setup.over(&pool);
    assert!(!store.is_locked(&key("k"), &call()).expect("an answer"));
    for begun in ["BEGIN", "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1"] {
        pool.get()
            .expect("a connection")
            .batch_execute(begun)
            .expect("begun");
        let error = store
            .acquire(&key("k"), &id(), ttl(60_000), &call())
            .expect_err("the transaction is the program's");
        assert_eq!(error.code(), ErrorCode::Internal, "{error}");
        assert!(error.message().contains("open transaction") && !error.may_have_applied());
        assert!(!store.is_locked(&key("k"), &call()).expect("an answer"));
    }
}

/// The role's own defaults have no say: an acquire must see what was committed while it waited.
#[test]
fn the_isolation_level_of_the_role_does_not_matter() {
    let setup = Setup::alone();
    setup
        .server
        .sql("ALTER ROLE postgres SET default_transaction_isolation = 'serializable'");
    setup
        .server
        .sql("ALTER ROLE postgres SET default_transaction_read_only = on");
    let store = setup.store(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let mine = id();
                    let outcome = store.acquire(&key("k"), &mine, ttl(60_000), &call());
                    if let AcquireOutcome::Acquired(_) = outcome.expect("no error for a race") {
                        let released = store.release(&mine, &call()).expect("an answer");
                        assert!(released.is_released());
                    }
                }
            });
        }
    });
}

/// A caller that waits for a row which another session has locked ends in time, and so does its statement.
#[test]
fn the_server_gives_up_before_the_caller() {
    let setup = Setup::start();
    let store = setup.store(1);
    // A connection on which the time of the server is known: before that nothing is sent that could be applied.
    let first = store.acquire(&key("first"), &id(), ttl(60_000), &call());
    assert!(first.is_ok(), "{first:?}");
    let mut holder = setup.server.session();
    holder.run(&format!(
        "BEGIN; LOCK TABLE {}.syncguard_locks",
        setup.schema
    ));
    let limited = Call::new().within(Duration::from_secs(1));
    let error = store
        .acquire(&key("k"), &id(), ttl(60_000), &limited)
        .expect_err("the table is locked");
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    assert!(
        !error.may_have_applied(),
        "the server's refusal is certain: {error}"
    );
    holder.run("ROLLBACK");
    assert!(!store.is_locked(&key("k"), &call()).expect("an answer"));
}

#[test]
fn bad_names_are_refused_before_any_call() {
    let setup = Setup::start();
    let long = "x".repeat(64);
    let refusals = [
        setup.store(1).with_schema("no name").map(drop),
        setup.store(1).with_schema(&long).map(drop),
        setup.store(1).with_tables("same", "SAME").map(drop),
        setup.store(1).with_tables("a\"b", "c").map(drop),
    ];
    for refused in refusals {
        let error = refused.expect_err("a bad name");
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    }
    assert_eq!(setup.proxy.counts().connections, 0);
}
