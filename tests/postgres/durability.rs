//! Tests that what was granted stays granted: over crashes, on standbys, and under every level of synchronous_commit.

use std::time::Duration;

use crate::support::postgres::{Disguise, Server, free_port, id, key, set_up, take, ttl, wait_for};
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
            .is_locked(&key("k"), &Call::new())
            .ok()
            .filter(|locked| *locked)
    });
    for error in [
        replica
            .acquire(&key("other"), &id(), ttl(1), &Call::new())
            .map(drop)
            .expect_err("read-only"),
        replica
            .release(&grant.lock_id, &Call::new())
            .map(drop)
            .expect_err("read-only"),
        replica
            .extend(&grant.lock_id, ttl(1), &Call::new())
            .map(drop)
            .expect_err("read-only"),
        replica
            .check(&Call::new())
            .map(drop)
            .expect_err("read-only"),
        replica.setup_schema(&Call::new()).expect_err("read-only"),
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
        free_port(),
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
            store.extend(&grant.lock_id, ttl(60_000), &Call::new()),
            Ok(ExtendOutcome::Extended(_))
        ));
    }
    let store = open(
        &format!("{}&target_session_attrs=primary", standby.url()),
        &options("s"),
    );
    assert_eq!(
        store
            .is_locked(&key("k"), &Call::new())
            .map_err(|e| e.code()),
        Err(ErrorCode::ServiceUnavailable)
    );
}

#[test]
fn stronger_durability_is_not_weakened() {
    // No standby is there to confirm: what waits for a standby waits for ever.
    let server = Server::start(&[
        "synchronous_standby_names=absent",
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
            wait_for("a connection", || {
                store.is_locked(&key("k"), &Call::new()).ok()
            });
            let outcome = store.acquire(&key(&url), &id(), ttl(60_000), &Call::new());
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
    // A release does not wait, except under the last level.
    let admin = server.open(&options("s"));
    for role in ["r_write", "r_on", "r_off"] {
        for url in [server.url_of(role), pooler.url_of(role)] {
            let grant = take(&admin, &format!("release by {url}"));
            let store = open(&url, &options("s"));
            assert!(
                store
                    .release(&grant.lock_id, &Call::new())
                    .expect("an answer")
                    .is_released(),
                "{url}"
            );
        }
    }
}

/// A commit that is refused may still have been made: a session is ended while its commit, which is on the disk, waits for a
/// standby. A client that takes this for "not applied" leaves a lock without a holder.
#[test]
fn a_commit_that_fails_may_have_been_made() {
    let server = Server::start(&[
        "synchronous_standby_names=absent",
        "synchronous_commit=local",
    ]);
    let admin = set_up(&server, "s");
    server.sql("CREATE ROLE waits LOGIN SUPERUSER; ALTER ROLE waits SET synchronous_commit = on");
    let pooler = Disguise::start(&server);
    let options = options("s").operation_timeout(Duration::from_secs(60));
    let end_the_commit = || {
        wait_for("a commit waits for the standby", || {
            let ended = server.sql(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
            );
            (ended == "1").then_some(())
        });
    };
    for (n, url) in [server.url_of("waits"), pooler.url_of("waits")]
        .iter()
        .enumerate()
    {
        let store = open(url, &options);
        let name = key(&format!("verb {n}"));
        let mine = id();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| store.acquire(&name, &mine, ttl(600_000), &Call::new()));
            end_the_commit();
            let error = call.join().expect("a thread").expect_err("terminated");
            assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
            assert!(error.may_have_applied(), "{url}: {error}");
        });
        // It was: the lock is there, and its id releases it.
        assert!(admin.is_locked(&name, &Call::new()).expect("an answer"));
        assert!(
            admin
                .release(&mine, &Call::new())
                .expect("an answer")
                .is_released()
        );

        let grant = take(&admin, &format!("extend {n}"));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| store.extend(&grant.lock_id, ttl(900_000), &Call::new()));
            end_the_commit();
            let error = call.join().expect("a thread").expect_err("terminated");
            assert!(error.may_have_applied(), "{url}: {error}");
        });
        let found = admin.find(LookupBy::LockId(&grant.lock_id), &Call::new());
        let found = found.expect("an answer").expect("a lock");
        assert!(found.expires_at_ms > grant.expires_at_ms + 600_000);

        // A client undoes what it cannot know: the lock does not stay until its lease ends.
        let client = Client::open_with(url, &options).expect("a client");
        let name = format!("client {n}");
        let lease = LockOptions::new().ttl(Duration::from_secs(600));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| client.try_lock_with(&name, &lease).map(drop));
            end_the_commit();
            let error = call.join().expect("a thread").expect_err("terminated");
            assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
        });
        wait_for("the lock is given back", || {
            (!admin
                .is_locked(&key(&name), &Call::new())
                .expect("an answer"))
            .then_some(())
        });
    }
}

/// A commit that the server itself takes back: a deferred trigger refuses. Nothing is there, and nothing is claimed.
#[test]
fn a_commit_that_is_refused_is_not_taken_for_an_answer() {
    let server = Server::shared();
    let store = set_up(&server, "deferred");
    server.sql(
        "SET search_path = deferred; CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'not today'; END $$; \
         CREATE CONSTRAINT TRIGGER no AFTER INSERT ON syncguard_locks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         EXECUTE FUNCTION no()",
    );
    let pooler = Disguise::start(&server);
    let options = options("deferred").operation_timeout(Duration::from_secs(60));
    for url in [server.url(), pooler.url()] {
        let refused = open(&url, &options);
        let outcome = refused.acquire(&key("k"), &id(), ttl(60_000), &Call::new());
        let error = outcome.expect_err("refused");
        assert_eq!(error.code(), ErrorCode::Internal, "{error}");
        assert!(error.may_have_applied(), "{url}: {error}");
        // The session is as good as before.
        assert!(
            !refused
                .is_locked(&key("k"), &Call::new())
                .expect("an answer")
        );
    }
    server.sql("DROP TRIGGER no ON deferred.syncguard_locks");
    assert_eq!(take(&store, "k").fence.get(), 1);
}

/// The fences that four workers got, each on a key of its own, until the server was killed `after` this.
fn grants_until_killed(server: &Server, options: &ClientOptions, after: Duration) -> Vec<Vec<u64>> {
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|n| {
                let stop = &stop;
                scope.spawn(move || {
                    let store = server.open(options);
                    let mut seen = Vec::new();
                    while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                        let mine = id();
                        match store.acquire(&key(&format!("k{n}")), &mine, ttl(1), &Call::new()) {
                            Ok(AcquireOutcome::Acquired(grant)) => seen.push(grant.fence.get()),
                            Ok(AcquireOutcome::Locked(_)) => {}
                            Err(_) => break,
                        }
                        if store.release(&mine, &Call::new()).is_err() {
                            break;
                        }
                    }
                    seen
                })
            })
            .collect();
        std::thread::sleep(after);
        server.kill();
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        workers
            .into_iter()
            .map(|w| w.join().expect("a worker"))
            .collect::<Vec<_>>()
    })
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
        let seen = grants_until_killed(&server, &options, Duration::from_millis(30 + 7 * round));
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
                .find(LookupBy::LockId(&grant.lock_id), &Call::new())
                .expect("an answer")
                .expect("an extended lock");
            assert!(found.expires_at_ms >= grant.expires_at_ms);
        }
        let mut grant = take(&store, &format!("extended {round}"));
        match store
            .extend(&grant.lock_id, ttl(600_000), &Call::new())
            .expect("an answer")
        {
            ExtendOutcome::Extended(at) => grant.expires_at_ms = at,
            other => panic!("{other:?}"),
        }
        last = Some(grant);
    }
    assert!(highest.iter().all(|f| *f > 0), "{highest:?}");
}
