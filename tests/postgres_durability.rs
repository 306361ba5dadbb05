//! What was granted stays granted: crashes, standbys, and every level of synchronous_commit.
#![cfg(feature = "postgres")]

#[path = "support/limit.rs"]
mod limit;
#[path = "support/postgres.rs"]
mod support;

use std::time::Duration;

use support::{Disguise, Server, id, key, set_up, take, ttl, wait_for};
use syncguard::*;

fn options(schema: &str) -> ClientOptions {
    ClientOptions::new().schema(schema)
}

fn open(url: &str, options: &ClientOptions) -> PostgresBackend {
    PostgresBackend::open(url, options).expect("a store")
}

#[test]
fn a_standby_reads_and_does_not_lock() {
    let primary = Server::start(&["wal_level=replica", "max_wal_senders=3", "hot_standby=on"]);
    let store = set_up(&primary, "s");
    let grant = take(&store, "k");
    let standby = primary.standby();
    let replica = standby.open(&options("s"));
    wait_for("the lock arrives", || {
        replica
            .is_locked(&key("k"), None)
            .ok()
            .filter(|locked| *locked)
    });
    for error in [
        replica
            .acquire(&key("other"), &id(), ttl(1), None)
            .map(drop)
            .expect_err("read-only"),
        replica
            .release(&grant.lock_id, None)
            .map(drop)
            .expect_err("read-only"),
        replica
            .extend(&grant.lock_id, ttl(1), None)
            .map(drop)
            .expect_err("read-only"),
        replica.check(None).map(drop).expect_err("read-only"),
        replica.setup_schema(None).expect_err("read-only"),
    ] {
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
        assert!(
            error.message().contains("standby") && !error.may_have_applied(),
            "{error}"
        );
    }
    // The one that writes is found, behind a dead host and the standby.
    let hosts = format!(
        "127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}",
        support::free_port(),
        standby.port,
        primary.port
    );
    for target in ["primary", "read-write"] {
        let store = open(
            &format!(
                "postgres://postgres@{hosts}/postgres?sslmode=disable&target_session_attrs={target}"
            ),
            &options("s"),
        );
        assert!(matches!(
            store.extend(&grant.lock_id, ttl(60_000), None),
            Ok(ExtendOutcome::Extended(_))
        ));
    }
    let store = open(
        &format!("{}&target_session_attrs=primary", standby.url()),
        &options("s"),
    );
    assert_eq!(
        store.is_locked(&key("k"), None).map_err(|e| e.code()),
        Err(ErrorCode::ServiceUnavailable)
    );
}

#[test]
fn stronger_durability_is_not_weakened() {
    // Nobody is there to confirm: what waits for a standby waits for ever.
    let server = Server::start(&[
        "synchronous_standby_names=nobody",
        "synchronous_commit=local",
    ]);
    set_up(&server, "s");
    let pooler = Disguise::start(&server);
    for (role, level) in [
        ("r_apply", "remote_apply"),
        ("r_write", "remote_write"),
        ("r_on", "on"),
        ("r_local", "local"),
        ("r_off", "off"),
    ] {
        server.sql(&format!(
            "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET synchronous_commit = {level}"
        ));
        for url in [server.url_of(role), pooler.url_of(role)] {
            let store = open(
                &url,
                &options("s").operation_timeout(Duration::from_millis(800)),
            );
            wait_for("a connection", || store.is_locked(&key("k"), None).ok());
            let outcome = store.acquire(&key(&url), &id(), ttl(60_000), None);
            if level == "local" {
                assert!(
                    matches!(outcome, Ok(AcquireOutcome::Acquired(_))),
                    "{level}: {outcome:?}"
                );
            } else {
                let error = outcome.expect_err(level);
                assert!(
                    error.code() == ErrorCode::NetworkTimeout && error.may_have_applied(),
                    "{level}: {error}"
                );
            }
        }
    }
    // A release does not wait, whoever has asked for what but the last.
    let admin = server.open(&options("s"));
    for role in ["r_write", "r_on", "r_off"] {
        for url in [server.url_of(role), pooler.url_of(role)] {
            let grant = take(&admin, &format!("release by {url}"));
            let store = open(&url, &options("s"));
            assert!(
                store
                    .release(&grant.lock_id, None)
                    .expect("an answer")
                    .is_released(),
                "{url}"
            );
        }
    }
}

#[test]
fn fences_survive_crashes() {
    // The writer of the log sleeps: what was not flushed by its own commit is lost with the processes.
    let server = Server::start(&[
        "fsync=on",
        "wal_writer_delay=10000",
        "synchronous_commit=off",
        "autovacuum=off",
    ]);
    set_up(&server, "s");
    server.sql("CHECKPOINT");
    let options = options("s").operation_timeout(Duration::from_secs(20));
    let mut highest = [0u64; 4];
    let mut last: Option<Acquired> = None;
    for round in 0..20 {
        let stop = std::sync::atomic::AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|n| {
                    let (stop, options, server) = (&stop, &options, &server);
                    scope.spawn(move || {
                        let store = server.open(options);
                        let mut seen = Vec::new();
                        while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                            let mine = id();
                            match store.acquire(&key(&format!("k{n}")), &mine, ttl(1), None) {
                                Ok(AcquireOutcome::Acquired(grant)) => seen.push(grant.fence.get()),
                                Ok(AcquireOutcome::Locked(_)) => {}
                                Err(_) => break,
                            }
                            if store.release(&mine, None).is_err() {
                                break;
                            }
                        }
                        seen
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(30 + 7 * round));
            server.kill();
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
            workers
                .into_iter()
                .map(|w| w.join().expect("a worker"))
                .collect::<Vec<_>>()
        });
        server.restart();
        for (n, fences) in seen.into_iter().enumerate() {
            for fence in fences {
                assert!(
                    fence > highest[n],
                    "round {round}: fence {fence} of k{n} after {}",
                    highest[n]
                );
                highest[n] = fence;
            }
            let stored = server.sql(&format!("SELECT coalesce(max(fence), 0) FROM s.syncguard_fence_counters WHERE fence_key = 'fence:k{n}'"));
            assert!(
                stored.parse::<u64>().expect("a number") >= highest[n],
                "round {round}: a fence was lost"
            );
        }
        // What was promised last before a crash is there after it.
        let store = server.open(&options);
        if let Some(grant) = last.take() {
            let found = store
                .find(LookupBy::LockId(&grant.lock_id), None)
                .expect("an answer")
                .expect("an extended lock");
            assert!(found.expires_at_ms >= grant.expires_at_ms);
        }
        let mut grant = take(&store, &format!("extended {round}"));
        match store
            .extend(&grant.lock_id, ttl(600_000), None)
            .expect("an answer")
        {
            ExtendOutcome::Extended(at) => grant.expires_at_ms = at,
            other => panic!("{other:?}"),
        }
        last = Some(grant);
    }
    assert!(highest.iter().all(|f| *f > 0), "{highest:?}");
}
