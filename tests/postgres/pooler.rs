//! Tests a pooler that names a real process of the server, and gives every transaction another one.

use std::time::Duration;

use crate::support::forwarding_pooler::ForwardingPooler;
use crate::support::postgres::{Server, id, key, set_up, ttl, wait_for};
use syncguard::*;

fn open(url: &str, schema: &str) -> PostgresBackend {
    let options = ClientOptions::new()
        .schema(schema)
        .operation_timeout(Duration::from_secs(30));
    PostgresBackend::open(url, &options).expect("a store")
}

/// What a session has that the server does not give to every session.
const TRACES: &str = "SELECT concat_ws(' ', \
    (SELECT string_agg(name || '=' || setting, ' ') FROM pg_settings WHERE source = 'session' AND name <> 'client_encoding'), \
    (SELECT string_agg(name, ' ') FROM pg_prepared_statements), \
    (SELECT string_agg(c, ' ') FROM pg_listening_channels() c), \
    (SELECT string_agg('advisory lock', ' ') FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()))";

/// Locks and releases in both stores by turns; every lock is in the table of the store that took it.
fn locks_are_where_they_belong(server: &Server, stores: &[(&str, PostgresBackend)]) {
    for round in 0..20 {
        for (schema, store) in stores {
            let mine = id();
            let outcome = store.acquire(&key("k"), &mine, ttl(60_000), &Call::new());
            let outcome = outcome.unwrap_or_else(|e| panic!("{schema} {round}: {e}"));
            assert!(
                matches!(outcome, AcquireOutcome::Acquired(_)),
                "{schema} {round}: {outcome:?}"
            );
            let held = format!(
                "SELECT count(*) FROM {schema}.syncguard_locks WHERE lock_id = '{}'",
                mine.as_str()
            );
            assert_eq!(server.sql(&held), "1", "{schema} {round}");
            let extended = store
                .extend(&mine, ttl(60_000), &Call::new())
                .expect("an answer");
            assert!(matches!(extended, ExtendOutcome::Extended(_)), "{schema}");
            assert!(store.is_locked(&key("k"), &Call::new()).expect("an answer"));
            assert!(
                store
                    .release(&mine, &Call::new())
                    .expect("an answer")
                    .is_released()
            );
        }
    }
}

/// Whatever a client believes about its session, it never runs a statement that another client has prepared there.
#[test]
fn a_statement_of_another_client_is_never_run() {
    let server = Server::start(&[]);
    for schema in ["a", "b"] {
        set_up(&server, schema);
    }
    for sessions in [1, 2, 3] {
        for more in ["", "&pooler=yes"] {
            let pooler = ForwardingPooler::start(server.port, sessions);
            let url = pooler.url(more);
            let stores = ["a", "b"].map(|schema| (schema, open(&url, schema)));
            locks_are_where_they_belong(&server, &stores);
        }
    }
}

/// A client that is told of a pooler leaves nothing behind in its sessions.
#[test]
fn a_session_of_a_known_pooler_stays_as_it_was() {
    let server = Server::start(&[]);
    set_up(&server, "a");
    let pooler = ForwardingPooler::start(server.port, 2);
    let url = pooler.url("&pooler=yes");
    let stores = [("a", open(&url, "a"))];
    stores[0].1.check(&Call::new()).expect("set up");
    locks_are_where_they_belong(&server, &stores);
    // A waiter gets the lock by asking.
    let options = ClientOptions::new().schema("a");
    let client = Client::open_with(&url, &options).expect("a client");
    let first = client.lock("waited for").expect("a lock");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| client.lock("waited for").map(drop));
        wait_for("the waiter asks", || {
            let calls = "SELECT n_tup_upd + n_tup_ins + seq_scan + idx_scan > 3 FROM pg_stat_user_tables WHERE schemaname = 'a' AND relname = 'syncguard_locks'";
            (server.sql(calls) == "t").then_some(())
        });
        assert!(first.release().expect("an answer").is_released());
        second.join().expect("a thread").expect("a lock");
    });
    assert_eq!(pooler.on_each(TRACES), ["", ""]);
}

/// Without the hint a client sees that its session is shared when a call reaches another one. Nothing is done there in its
/// way, and no session is taken for its own from then on.
#[test]
fn a_session_that_turns_out_to_be_shared_is_used_as_such() {
    let server = Server::start(&[]);
    set_up(&server, "a");
    let pooler = ForwardingPooler::start(server.port, 2);
    let store = open(&pooler.url(""), "a");
    let cycle = |name: &str| {
        let mine = id();
        let outcome = store.acquire(&key(name), &mine, ttl(60_000), &Call::new());
        let outcome = outcome.expect("an answer");
        assert!(
            matches!(outcome, AcquireOutcome::Acquired(_)),
            "{outcome:?}"
        );
        assert!(
            store
                .release(&mine, &Call::new())
                .expect("an answer")
                .is_released()
        );
    };
    // The first call reaches the second session.
    cycle("k");
    let traces = pooler.on_each(TRACES);
    assert!(traces.iter().any(String::is_empty), "{traces:?}");
    pooler.on_each("DISCARD ALL");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let cycle = &cycle;
            scope.spawn(move || (0..10).for_each(|m| cycle(&format!("{n} {m}"))));
        }
    });
    assert_eq!(pooler.on_each(TRACES), ["", ""]);
}

/// The role's own isolation level holds in the sessions that are not ours: a call there must not trust what was set elsewhere.
#[test]
fn a_call_that_reaches_another_session_sets_its_own_isolation() {
    let server = Server::start(&["default_transaction_isolation=repeatable read"]);
    set_up(&server, "a");
    for sessions in [2, 3] {
        let pooler = ForwardingPooler::start(server.port, sessions);
        let store = open(&pooler.url(""), "a");
        let _ = store
            .is_locked(&key("k"), &Call::new())
            .expect("a connection");
        for n in 0..4 {
            let name = format!("waited for {sessions} {n}");
            let mut blocker = server.session();
            blocker.run(&format!(
                "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(hashtext('{name}'))"
            ));
            std::thread::scope(|scope| {
                let waiting =
                    scope.spawn(|| store.acquire(&key(&name), &id(), ttl(30_000), &Call::new()));
                server.wait_until_waiting("a", 1);
                blocker.run(&format!(
                    "INSERT INTO a.syncguard_locks VALUES ('{name}', '{}', 99999999999999, 1, '000000000000001', 'x'); COMMIT",
                    id().as_str()
                ));
                let outcome = waiting.join().expect("a thread").expect("an answer");
                assert!(matches!(outcome, AcquireOutcome::Locked(_)), "{outcome:?}");
            });
        }
    }
}
