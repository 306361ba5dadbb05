//! Tests that the verbs do the same under every setting of the role, the database and a pooler.

use std::time::Duration;

use crate::support::postgres::{Bouncer, Disguise, Server, id, key, set_up, take, ttl};
use syncguard::*;

/// Roles, and what each of them is set to.
const ROLES: [(&str, &str); 16] = [
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
];

/// The verbs do what they do for `admin`, on a key of this name.
fn every_verb_works(store: &PostgresBackend, admin: &PostgresBackend, name: &str) {
    let grant = take(store, name);
    assert!(
        matches!(
            store.acquire(&key(name), &id(), ttl(1), &Call::new()),
            Ok(AcquireOutcome::Locked(_))
        ),
        "{name}"
    );
    assert!(
        matches!(
            admin.acquire(&key(name), &id(), ttl(1), &Call::new()),
            Ok(AcquireOutcome::Locked(_))
        ),
        "{name}"
    );
    assert!(
        store
            .is_locked(&key(name), &Call::new())
            .expect("an answer"),
        "{name}"
    );
    assert!(
        matches!(
            store.extend(&grant.lock_id, ttl(30_000), &Call::new()),
            Ok(ExtendOutcome::Extended(_))
        ),
        "{name}"
    );
    assert!(
        store
            .find(LookupBy::LockId(&grant.lock_id), &Call::new())
            .expect("an answer")
            .is_some(),
        "{name}"
    );
    assert_eq!(
        store.purge_expired(10, &Call::new()).ok(),
        Some(0),
        "{name}"
    );
    assert!(
        store
            .release(&grant.lock_id, &Call::new())
            .expect("an answer")
            .is_released(),
        "{name}"
    );
}

#[test]
fn whatever_the_role_says() {
    let server = Server::shared();
    let admin = set_up(&server, "roles");
    for (role, setting) in ROLES {
        server.sql(&format!(
            "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET {setting}"
        ));
    }
    // An operator and a clock of another owner, before pg_catalog in the path.
    server.sql(
        "CREATE SCHEMA evil; CREATE FUNCTION evil.lie(text, text) RETURNS bool LANGUAGE sql AS 'SELECT false'; \
         CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.lie); \
         CREATE FUNCTION evil.lie8(int8, int8) RETURNS bool LANGUAGE sql AS 'SELECT false'; \
         CREATE OPERATOR evil.> (LEFTARG = int8, RIGHTARG = int8, FUNCTION = evil.lie8); \
         CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''epoch''::timestamptz'; \
         CREATE FUNCTION evil.pg_advisory_xact_lock(int8) RETURNS void LANGUAGE sql AS ''; \
         CREATE TABLE evil.syncguard_locks (key text); CREATE TABLE evil.syncguard_fence_counters (fence_key text)",
    );
    let pooler = Disguise::start(&server);
    let ways = ROLES.map(|(role, _)| [(role, server.url_of(role)), (role, pooler.url_of(role))]);
    for (n, (role, url)) in ways.into_iter().flatten().enumerate() {
        let store =
            PostgresBackend::open(&url, &ClientOptions::new().schema("roles")).expect("a store");
        let name = format!("k'\\{role} {n}");
        store
            .setup_schema(&Call::new())
            .unwrap_or_else(|e| panic!("{role}: {e}"));
        store
            .check(&Call::new())
            .unwrap_or_else(|e| panic!("{role}: {e}"));
        every_verb_works(&store, &admin, &name);
    }
    // No schema named: the path decides, and an empty one is a clear error.
    let error = PostgresBackend::open(&server.url_of("nopath"), &ClientOptions::new())
        .expect("a store")
        .is_locked(&key("k"), &Call::new())
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
    let admin = set_up(&server, "isolation");
    server.sql("CREATE ROLE strict LOGIN SUPERUSER; ALTER ROLE strict SET default_transaction_isolation = 'repeatable read'");
    let pooler = Disguise::start(&server);
    for (url, name) in [
        (server.url_of("strict"), "isolation own"),
        (pooler.url_of("strict"), "isolation pooled"),
    ] {
        let options = ClientOptions::new()
            .schema("isolation")
            .operation_timeout(Duration::from_secs(60));
        let strict = PostgresBackend::open(&url, &options).expect("a store");
        let mut blocker = server.session();
        blocker.run(&format!(
            "BEGIN; SELECT pg_advisory_xact_lock(hashtext('{name}'))"
        ));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                strict
                    .acquire(&key(name), &id(), ttl(30_000), &Call::new())
                    .expect("an answer")
            });
            server.wait_until_waiting("isolation", 1);
            blocker.run(&format!(
                "INSERT INTO isolation.syncguard_locks VALUES ('{name}', '{}', 99999999999999, 1, '000000000000001', '{name}'); COMMIT",
                id().as_str()
            ));
            assert!(matches!(
                waiting.join().expect("a thread"),
                AcquireOutcome::Locked(_)
            ));
        });
        assert!(
            admin
                .is_locked(&key(name), &Call::new())
                .expect("an answer")
        );
    }
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
    stores[0].setup_schema(&Call::new()).expect("set-up");
    let grants = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (n, store) in stores.iter().enumerate() {
            let grants = &grants;
            scope.spawn(move || {
                let mut operations = 0;
                while operations < 125 {
                    let name = key(&format!("k{}", (n + operations) % 3));
                    let outcome = store
                        .acquire(&name, &id(), ttl(30_000), &Call::new())
                        .expect("an answer");
                    let _ = store.is_locked(&name, &Call::new()).expect("an answer");
                    operations += 2;
                    if let AcquireOutcome::Acquired(grant) = outcome {
                        grants.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        assert!(matches!(
                            store
                                .extend(&grant.lock_id, ttl(30_000), &Call::new())
                                .expect("an answer"),
                            ExtendOutcome::Extended(_)
                        ));
                        assert!(
                            store
                                .find(LookupBy::LockId(&grant.lock_id), &Call::new())
                                .expect("an answer")
                                .is_some()
                        );
                        assert!(
                            store
                                .release(&grant.lock_id, &Call::new())
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
        let store = set_up(&server, "s");
        let grant = take(&store, "caf\u{e9}");
        let found = store
            .find(LookupBy::LockId(&grant.lock_id), &Call::new())
            .expect("an answer")
            .expect("a lock");
        assert_eq!(found.key, "caf\u{e9}");
        match store.acquire(&key("日本語"), &id(), ttl(30_000), &Call::new()) {
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
            .release(&grant.lock_id, &Call::new())
            .map(drop)
            .expect("the connection is still good");
    }
}
