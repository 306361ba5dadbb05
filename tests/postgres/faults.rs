//! Tests servers that stop, vanish, lie or refuse: the outcome is the documented one, in time, and nothing is left behind.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::postgres::{Disguise, Server, id, key, set_up, take, ttl, wait_for};
use crate::support::process::{self, Stage, hear, in_child, say, wait_child};
use crate::support::proxy::{Address, Mode, Proxy};
use crate::support::stopwatch::{Stopwatch, worst_of_three};
use syncguard::*;

fn options(schema: &str) -> ClientOptions {
    ClientOptions::new().schema(schema)
}

fn open(url: &str, options: &ClientOptions) -> PostgresBackend {
    PostgresBackend::open(url, options).expect("a store")
}

fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable")
}

type Verb = (
    &'static str,
    fn(&PostgresBackend, &Call<'_>) -> Result<(), LockError>,
);

const VERBS: [Verb; 6] = [
    ("acquire", |s, c| {
        s.acquire(&key("k"), &id(), ttl(1000), c).map(drop)
    }),
    ("release", |s, c| s.release(&id(), c).map(drop)),
    ("extend", |s, c| s.extend(&id(), ttl(1000), c).map(drop)),
    ("is_locked", |s, c| s.is_locked(&key("k"), c).map(drop)),
    ("find", |s, c| s.find(LookupBy::Key(&key("k")), c).map(drop)),
    ("purge_expired", |s, c| s.purge_expired(10, c).map(drop)),
];

/// Each of three tries must keep the bound.
fn within(bound: Duration, what: &str, mut call: impl FnMut()) {
    within_after(bound, what, || (), |()| call());
}

/// The same for calls that need something prepared, which is not timed.
fn within_after<T>(
    bound: Duration,
    what: &str,
    mut prepare: impl FnMut() -> T,
    mut call: impl FnMut(T),
) {
    let worst = worst_of_three(|| {
        let prepared = prepare();
        let watch = Stopwatch::start();
        call(prepared);
        watch.stop()
    });
    assert!(worst <= bound, "{what} took {worst:?}");
}

#[test]
fn every_verb_is_one_round_trip() {
    let server = Server::shared();
    let pooler = Disguise::start(&server);
    let own = trips(&server, server.port, "trips");
    let pooled = trips(&server, pooler.port, "trips_pooled");
    // A session of our own has what it needs; one of a pooler is told everything with every call.
    assert!(own < 250 && pooled > 400, "{own} {pooled} bytes");
}

/// The lock id proves ownership: a look from outside gets a yes or no.
#[test]
fn is_locked_is_not_sent_the_holders_id() {
    let server = Server::shared();
    set_up(&server, "looks");
    let pooler = Disguise::start(&server);
    for (what, port) in [("own session", server.port), ("pooled", pooler.port)] {
        let proxy = Proxy::tcp(Address::port(port));
        let options = options("looks").operation_timeout(Duration::from_secs(60));
        let store = open(&url(proxy.port()), &options);
        let k = key(what);
        let grant = take(&store, what);
        // A reply that holds the id would be kept back, and counted.
        let secret = grant.lock_id.as_str().as_bytes().to_vec();
        proxy.set(Mode::Mute(secret.leak()));
        let locked = store.is_locked(&k, &Call::new());
        assert_eq!(proxy.muted(), 0, "{what}: is_locked was sent the id");
        assert!(locked.expect("a look"), "{what}");
    }
}

/// Counts the trips of every verb on its way to this port, and answers how many bytes a contended acquire sends.
fn trips(server: &Server, port: u16, schema: &str) -> u64 {
    set_up(server, schema);
    let proxy = Proxy::tcp(Address::port(port));
    let options = options(schema).operation_timeout(Duration::from_secs(60));
    let store = open(&url(proxy.port()), &options);
    assert!(!store.is_locked(&key("k"), &Call::new()).expect("an answer"));
    let count = |what: &str, call: &mut dyn FnMut()| {
        proxy.reset_counts();
        call();
        let counts = proxy.counts();
        assert_eq!((counts.round_trips, counts.connections), (1, 0), "{what}");
        counts.from_clients
    };
    let mine = id();
    count("acquire", &mut || {
        drop(
            store
                .acquire(&key("k"), &mine, ttl(60_000), &Call::new())
                .expect("a grant"),
        )
    });
    let sent = count("contended", &mut || {
        drop(
            store
                .acquire(&key("k"), &id(), ttl(60_000), &Call::new())
                .expect("an answer"),
        )
    });
    count("extend", &mut || {
        let _ = store
            .extend(&mine, ttl(60_000), &Call::new())
            .expect("an answer");
    });
    count("is_locked", &mut || {
        let _ = store.is_locked(&key("k"), &Call::new()).expect("an answer");
    });
    count("find by key", &mut || {
        drop(
            store
                .find(LookupBy::Key(&key("k")), &Call::new())
                .expect("an answer"),
        )
    });
    count("find by id", &mut || {
        drop(
            store
                .find(LookupBy::LockId(&mine), &Call::new())
                .expect("an answer"),
        )
    });
    count("release", &mut || {
        assert!(
            store
                .release(&mine, &Call::new())
                .expect("an answer")
                .is_released()
        )
    });
    count("release of nothing", &mut || {
        let _ = store.release(&mine, &Call::new()).expect("an answer");
    });
    count("purge_expired", &mut || {
        let _ = store.purge_expired(10, &Call::new()).expect("an answer");
    });
    count("check", &mut || {
        drop(store.check(&Call::new()).expect("set up"))
    });
    a_refusal_is_one_trip(server, &store, schema, &count);
    sent
}

/// Makes a call that must be one round trip, and answers how many bytes it sends.
type Count<'a> = &'a dyn Fn(&str, &mut dyn FnMut()) -> u64;

/// An error in the middle costs no second trip either, and the connection goes on.
fn a_refusal_is_one_trip(server: &Server, store: &PostgresBackend, schema: &str, count: Count<'_>) {
    server.sql(&format!(
        "INSERT INTO {schema}.syncguard_fence_counters VALUES ('fence:bad', -1)"
    ));
    count("a refused acquire", &mut || {
        drop(
            store
                .acquire(&key("bad"), &id(), ttl(1), &Call::new())
                .expect_err("refused"),
        )
    });
    count("acquire after it", &mut || {
        drop(
            store
                .acquire(&key("k"), &id(), ttl(1), &Call::new())
                .expect("a grant"),
        )
    });
}

#[test]
fn a_stopped_server_costs_the_timeout_and_no_more() {
    let server = Server::start(&[]);
    set_up(&server, "s");
    let store = server.open(
        &options("s")
            .operation_timeout(Duration::from_millis(400))
            .connect_timeout(Duration::from_millis(300)),
    );
    wait_for("a first answer", || {
        store.is_locked(&key("k"), &Call::new()).ok()
    });
    {
        let _frozen = server.freeze();
        for (name, verb) in VERBS {
            within(Duration::from_millis(500), name, || {
                let error = verb(&store, &Call::new()).expect_err(name);
                assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{name}: {error}");
            });
        }
        within(Duration::from_millis(500), "drop", || {
            drop(server.open(&options("s")))
        });
    }
    // Some of them may still be executed now; then the key is free, or its short lease ends.
    wait_for("the server works again", || {
        match store.acquire(&key("k"), &id(), ttl(1000), &Call::new()) {
            Ok(AcquireOutcome::Acquired(_)) => Some(()),
            _ => None,
        }
    });
}

#[test]
fn a_black_hole_and_a_trickle_cost_the_timeout() {
    let server = Server::shared();
    set_up(&server, "holes");
    let limit = Duration::from_millis(400);
    let proxy = Proxy::tcp(Address::port(server.port));
    let store = open(
        &url(proxy.port()),
        &options("holes")
            .operation_timeout(limit)
            .connect_timeout(limit),
    );
    for mode in [Mode::Swallow, Mode::Trickle(Duration::from_millis(50))] {
        for (name, verb) in VERBS {
            let connect = || {
                proxy.set(Mode::Pass);
                wait_for("a connection", || {
                    store.is_locked(&key("other"), &Call::new()).ok()
                });
                proxy.set(mode);
            };
            within_after(limit + Duration::from_millis(100), name, connect, |()| {
                let start = Instant::now();
                let error = verb(&store, &Call::new()).expect_err(name);
                assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{name}: {error}");
                assert!(start.elapsed() >= Duration::from_millis(300) || mode == Mode::Swallow);
            });
        }
        // And from the very first byte.
        let fresh = open(
            &url(proxy.port()),
            &options("holes").operation_timeout(limit),
        );
        within(limit + Duration::from_millis(100), "connecting", || {
            let error = fresh
                .acquire(&key("k"), &id(), ttl(1), &Call::new())
                .expect_err("no server");
            assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
            assert!(!error.may_have_applied(), "nothing of ours was sent");
        });
    }
}

#[test]
fn a_server_that_never_greets_costs_the_connect_timeout() {
    let server = Server::shared();
    let proxy = Proxy::tcp(Address::port(server.port));
    proxy.set(Mode::Swallow);
    let quick = options("public")
        .operation_timeout(Duration::from_secs(60))
        .connect_timeout(Duration::from_millis(200));
    let store = open(&url(proxy.port()), &quick);
    let begun = Instant::now();
    let error = store
        .is_locked(&key("k"), &Call::new())
        .expect_err("no answer");
    let took = begun.elapsed();
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    assert!(!error.may_have_applied());
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// A session whose reply was not waited for is not used again: what comes late would answer the next question.
#[test]
fn a_reply_that_comes_too_late_answers_no_call() {
    let server = Server::shared();
    let direct = set_up(&server, "late");
    let _ = take(&direct, "held");
    let proxy = Proxy::tcp(Address::port(server.port));
    let patient = Duration::from_secs(60);
    let one = options("late")
        .operation_timeout(patient)
        .connect_timeout(patient)
        // One of them is kept for renewals and releases.
        .pool_size(2);
    let store = open(&url(proxy.port()), &one);
    assert!(
        store
            .is_locked(&key("held"), &Call::new())
            .expect("an answer")
    );
    proxy.set(Mode::Hold);
    let hasty = Call::new().within(Duration::from_millis(100));
    let error = store.is_locked(&key("held"), &hasty);
    assert_eq!(
        error.expect_err("no reply").code(),
        ErrorCode::NetworkTimeout
    );
    std::thread::scope(|scope| {
        let next = scope.spawn(|| store.is_locked(&key("free"), &Call::new()));
        // Long enough to be asked before the late reply comes; if it is not, nothing is lost.
        std::thread::sleep(Duration::from_millis(300));
        proxy.set(Mode::Pass);
        let next = next.join().expect("no panic");
        assert!(!next.expect("an answer"), "the answer is the other one's");
    });
}

#[test]
fn a_reply_that_is_lost_leaves_the_effect_unknown() {
    let server = Server::shared();
    let direct = set_up(&server, "lost");
    let proxy = Proxy::tcp(Address::port(server.port));
    let store = open(&url(proxy.port()), &options("lost"));
    assert!(!store.is_locked(&key("k"), &Call::new()).expect("an answer"));
    let mine = id();
    proxy.cut_next_replies(1);
    let error = store
        .acquire(&key("k"), &mine, ttl(60_000), &Call::new())
        .expect_err("no reply");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    assert!(error.may_have_applied());
    // It was granted all the same; asking again with the same id has the same grant, with the same fence.
    wait_for("the grant", || {
        direct
            .find(LookupBy::LockId(&mine), &Call::new())
            .expect("an answer")
    });
    match store
        .acquire(&key("k"), &mine, ttl(60_000), &Call::new())
        .expect("an answer")
    {
        AcquireOutcome::Acquired(grant) => assert_eq!(grant.fence.get(), 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sessions_that_end_while_idle_are_not_noticed() {
    let server = Server::start(&[]);
    let store = set_up(&server, "s");
    for round in 0..3 {
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'syncguard'");
        wait_for("the session is gone", || {
            (server
                .sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'syncguard'")
                == "0")
                .then_some(())
        });
        assert_eq!(take(&store, &format!("k{round}")).fence.get(), 1);
    }
    server.stop();
    let error = store
        .is_locked(&key("k"), &Call::new())
        .expect_err("no server");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    assert!(!error.may_have_applied());
    within(Duration::from_millis(500), "a refused connection", || {
        assert_eq!(
            store
                .is_locked(&key("k"), &Call::new())
                .map_err(|e| e.code()),
            Err(ErrorCode::ServiceUnavailable)
        );
    });
    server.restart();
    assert!(
        store
            .is_locked(&key("k0"), &Call::new())
            .expect("the first call after the restart")
    );
}

#[test]
fn a_session_that_is_terminated_in_flight_had_no_effect() {
    let server = Server::shared();
    set_up(&server, "ended");
    let pooler = Disguise::start(&server);
    for url in [server.url(), pooler.url()] {
        ended_in_flight(&server, &url);
    }
}

fn ended_in_flight(server: &Server, url: &str) {
    let options = options("ended").operation_timeout(Duration::from_secs(60));
    let store = open(url, &options);
    let mut blocker = server.session();
    blocker.run("BEGIN; SELECT pg_advisory_xact_lock(hashtext('ended'))");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| store.acquire(&key("ended"), &id(), ttl(60_000), &Call::new()));
        server.wait_until_waiting("ended", 1);
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%\"ended\".%'");
        let error = call.join().expect("a thread").expect_err("terminated");
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
        assert!(!error.may_have_applied());
    });
    blocker.run("COMMIT");
    let before = server.sql("SELECT coalesce(max(fence), 0) FROM ended.syncguard_fence_counters");
    let grant = take(&store, "ended");
    assert_eq!((grant.fence.get() - 1).to_string(), before);
    assert!(
        store
            .release(&grant.lock_id, &Call::new())
            .expect("an answer")
            .is_released()
    );
}

#[test]
fn a_wait_ends_with_the_deadline_and_leaves_nothing() {
    let server = Server::shared();
    let slow = set_up(&server, "deadline");
    let pooler = Disguise::start(&server);
    for url in [server.url(), pooler.url()] {
        let options = options("deadline").operation_timeout(Duration::from_millis(600));
        let store = open(&url, &options);
        // On a busy machine connecting alone may take its time.
        wait_for("a first answer", || {
            store.is_locked(&key("k"), &Call::new()).ok()
        });
        waits_to_the_deadline(&server, &slow, &store);
    }
}

fn waits_to_the_deadline(server: &Server, slow: &PostgresBackend, store: &PostgresBackend) {
    let grant = take(slow, "deadline held");
    let mut blocker = server.session();
    blocker.run("BEGIN; SELECT pg_advisory_xact_lock(hashtext('deadline k')), pg_advisory_xact_lock(hashtext('deadline held'))");
    for _ in 0..3 {
        let start = Instant::now();
        let errors = [
            store
                .acquire(&key("deadline k"), &id(), ttl(60_000), &Call::new())
                .map(drop)
                .expect_err("a wait"),
            store
                .extend(&grant.lock_id, ttl(60_000), &Call::new())
                .map(drop)
                .expect_err("a wait"),
            store
                .release(&grant.lock_id, &Call::new())
                .map(drop)
                .expect_err("a wait"),
        ];
        for error in errors {
            assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
        }
        if start.elapsed() < Duration::from_secs(3) {
            break;
        }
    }
    wait_for("no call waits any more", || {
        (server.waiting("deadline") == 0).then_some(())
    });
    blocker.run("COMMIT");
    assert!(
        !slow
            .is_locked(&key("deadline k"), &Call::new())
            .expect("an answer")
    );
    assert!(
        slow.is_locked(&key("deadline held"), &Call::new())
            .expect("an answer")
    );
    assert!(
        slow.release(&grant.lock_id, &Call::new())
            .expect("an answer")
            .is_released()
    );
}

#[test]
fn a_short_call_does_not_shorten_the_next() {
    let server = Server::shared();
    let other = set_up(&server, "shortened");
    let full = take(&other, "full").lock_id;
    assert!(other.release(&full, &Call::new()).is_ok());
    server.sql("UPDATE shortened.syncguard_fence_counters SET fence = 900000000000000");
    let options = options("shortened").operation_timeout(Duration::from_secs(60));
    let store = open(&server.url(), &options);
    // Only a machine that is busy beyond reason needs the second try.
    let _ = wait_for("a short call", || {
        let short = Call::new().within(Duration::from_secs(2));
        store.release(&id(), &short).ok()
    });
    // What a refused call has set is taken back with it.
    let refused = store.acquire(&key("full"), &id(), ttl(60_000), &Call::new());
    assert_eq!(
        refused.expect_err("a counter at its end").code(),
        ErrorCode::Internal
    );
    let mut blocker = server.session();
    blocker.run("BEGIN; SELECT pg_advisory_xact_lock(hashtext('shortened'))");
    std::thread::scope(|scope| {
        let call =
            scope.spawn(|| store.acquire(&key("shortened"), &id(), ttl(60_000), &Call::new()));
        server.wait_until_waiting("shortened", 1);
        // Longer than the session's limit would be, had it stayed.
        std::thread::sleep(Duration::from_secs(3));
        blocker.run("COMMIT");
        assert!(matches!(
            call.join().expect("a thread"),
            Ok(AcquireOutcome::Acquired(_))
        ));
    });
}

#[test]
fn cancel_ends_the_call_and_the_query() {
    let server = Server::shared();
    set_up(&server, "cancel");
    let pooler = Disguise::start(&server);
    let options = options("cancel").operation_timeout(Duration::from_secs(60));
    for url in [server.url(), pooler.url()] {
        cancels(&server, &open(&url, &options));
    }
}

fn cancels(server: &Server, store: &PostgresBackend) {
    let token = CancelToken::new();
    token.cancel();
    for (name, verb) in VERBS {
        let error = verb(store, &Call::new().cancelled_by(&token)).expect_err(name);
        assert!(
            error.code() == ErrorCode::Aborted && !error.may_have_applied(),
            "{name}: {error}"
        );
    }
    let mut blocker = server.session();
    blocker.run("BEGIN; SELECT pg_advisory_xact_lock(hashtext('cancel k'))");
    let worst = worst_of_three(|| {
        let token = CancelToken::new();
        let took = std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                store.acquire(
                    &key("cancel k"),
                    &id(),
                    ttl(60_000),
                    &Call::new().cancelled_by(&token),
                )
            });
            server.wait_until_waiting("cancel", 1);
            let watch = Stopwatch::start();
            token.cancel();
            let error = call.join().expect("a thread").expect_err("cancelled");
            assert!(
                error.code() == ErrorCode::Aborted && error.may_have_applied(),
                "{error}"
            );
            watch.stop()
        });
        // 60 s are left to it: only the request to cancel ends its wait.
        let start = Instant::now();
        wait_for("the server gives up", || {
            (server.waiting("cancel") == 0).then_some(())
        });
        assert!(start.elapsed() < Duration::from_secs(30));
        took
    });
    assert!(worst <= Duration::from_millis(200), "{worst:?}");
    blocker.run("COMMIT");
    assert!(
        !store
            .is_locked(&key("cancel k"), &Call::new())
            .expect("an answer")
    );
}

#[test]
fn statement_timeout_of_a_millisecond_orphans_nothing() {
    let server = Server::shared();
    let admin = set_up(&server, "hasty");
    server.sql("CREATE ROLE hasty LOGIN SUPERUSER; ALTER ROLE hasty SET statement_timeout = 1");
    let pooler = Disguise::start(&server);
    for url in [server.url_of("hasty"), pooler.url_of("hasty")] {
        hurries(&admin, &open(&url, &options("hasty")), &url);
    }
}

fn hurries(admin: &PostgresBackend, store: &PostgresBackend, way: &str) {
    let mut granted = 0;
    for n in 0..200 {
        let (name, mine) = (format!("{way} {n}"), id());
        match store.acquire(&key(&name), &mine, ttl(60_000), &Call::new()) {
            Ok(AcquireOutcome::Acquired(_)) => granted += 1,
            Ok(AcquireOutcome::Locked(holder)) => panic!("an orphan: {holder:?}"),
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
                assert!(
                    error.may_have_applied()
                        || !admin
                            .is_locked(&key(&name), &Call::new())
                            .expect("an answer"),
                    "an orphan"
                );
            }
        }
    }
    assert!(granted > 0, "the setting is overruled for the verbs");
}

#[test]
fn what_is_no_postgres_is_an_error_in_time() {
    type Babble = fn(&mut std::net::TcpStream);
    let answers: [Babble; 6] = [
        |s| drop(s.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        |s| drop(s.write_all(b"N")),
        |s| drop(s.write_all(b"D\x7f\xff\xff\xff")),
        |s| drop(s.write_all(b"R\0\0\0\x02")),
        |_| {},
        |s| while s.write_all(&[b'N', 0, 0, 0, 5, 0].repeat(100)).is_ok() {},
    ];
    for answer in answers {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its number").port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let _ = stream.read(&mut [0; 1024]);
                    answer(&mut stream);
                    let _ = stream.read(&mut [0; 1024]);
                });
            }
        });
        for ssl in ["disable", "prefer", "require"] {
            let url = format!("postgres://bob:hunter2@127.0.0.1:{port}/db?sslmode={ssl}");
            let store = open(
                &url,
                &options("s").operation_timeout(Duration::from_millis(300)),
            );
            within(Duration::from_millis(400), "babble", || {
                let error = store
                    .is_locked(&key("k"), &Call::new())
                    .expect_err("no Postgres");
                let text = format!("{error} {error:?} {store:?}");
                assert!(!text.contains("hunter2") && !text.contains("bob"), "{text}");
            });
        }
    }
}

#[test]
fn a_server_that_says_nothing_may_be_no_postgres() {
    // The system accepts connections for it; no program reads them.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its number").port();
    for ssl in ["disable", "prefer"] {
        let url = format!("postgres://bob@127.0.0.1:{port}/db?sslmode={ssl}");
        let store = open(
            &url,
            &options("s").operation_timeout(Duration::from_millis(300)),
        );
        // A busy machine may need all of the time to connect.
        assert!((0..50).any(|_| {
            let error = store
                .is_locked(&key("k"), &Call::new())
                .expect_err("silence");
            assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
            error.message().contains("may be no Postgres server")
        }));
    }
}

#[test]
fn renewals_and_releases_have_a_connection_kept() {
    let server = Server::shared();
    let admin = set_up(&server, "pool");
    let grant = take(&admin, "mine");
    let store = server.open(
        &options("pool")
            .pool_size(2)
            .operation_timeout(Duration::from_secs(60)),
    );
    let mut blocker = server.session();
    blocker.run("BEGIN; SELECT pg_advisory_xact_lock(hashtext('pool k'))");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.acquire(&key("pool k"), &id(), ttl(1), &Call::new()));
        server.wait_until_waiting("pool", 1);
        let second = scope.spawn(|| {
            store.is_locked(
                &key("pool k"),
                &Call::new().within(Duration::from_millis(200)),
            )
        });
        assert!(matches!(
            store.extend(&grant.lock_id, ttl(60_000), &Call::new()),
            Ok(ExtendOutcome::Extended(_))
        ));
        assert!(
            store
                .release(&grant.lock_id, &Call::new())
                .expect("an answer")
                .is_released()
        );
        let error = second.join().expect("a thread").expect_err("no connection");
        assert_eq!(error.code(), ErrorCode::RateLimited, "{error}");
        blocker.run("COMMIT");
        assert!(waiting.join().expect("a thread").is_ok());
    });
}

const URL: &str = "SYNCGUARD_TEST_URL";

pub const STAGES: &[process::Entry] = &[("fork", fork_with_a_session)];

fn fork_with_a_session(_: &Path) {
    let url = std::env::var(URL).expect("a URL");
    let options = options("forked").operation_timeout(Duration::from_secs(60));
    let mut store = Some(open(&url, &options));
    let grant = take(store.as_ref().expect("it"), "k");
    say("holds");
    hear();
    let child = in_child(|| {
        let store = store.take().expect("it");
        for (name, verb) in VERBS {
            let error = verb(&store, &Call::new()).expect_err(name);
            assert_eq!(error.code(), ErrorCode::Internal, "{name}: {error}");
            assert!(!error.may_have_applied(), "{name}: {error}");
        }
        drop(store);
    });
    assert_eq!(wait_child(child), Ok(0));
    // Nor does a child say anything that only exits.
    let child = in_child(|| {});
    assert_eq!(wait_child(child), Ok(0));
    say("forked");
    hear();
    let store = store.expect("still the parent's");
    assert!(
        store
            .release(&grant.lock_id, &Call::new())
            .expect("an answer")
            .is_released()
    );
    say("released");
    hear();
}

#[test]
fn a_forked_child_gets_an_error_and_leaves_the_session_alone() {
    let server = Server::shared();
    let admin = set_up(&server, "forked");
    let url = format!("{}&application_name=forked", server.url());
    let mut stage = Stage::start_with("fork", server.path(), &[(URL, Path::new(&url))]);
    let sessions =
        || server.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'forked'");
    stage.expect("holds");
    let before = sessions();
    assert!(before.parse::<u32>().is_ok(), "one session: {before}");
    stage.tell("fork");
    stage.expect("forked");
    assert_eq!(sessions(), before);
    assert!(admin.is_locked(&key("k"), &Call::new()).expect("an answer"));
    stage.tell("release");
    stage.expect("released");
    assert_eq!(sessions(), before, "the parent went on with its session");
    assert!(!admin.is_locked(&key("k"), &Call::new()).expect("an answer"));
    stage.tell("end");
    stage.finish();
}
