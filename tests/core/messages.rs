//! Tests that errors and warnings say what a person can do about them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::time::Duration;

use crate::support;
use crate::support::WAIT_LIMIT;
use crate::support::kit::kit_with;
use crate::support::postgres::{Server, id, set_up, ttl};
use crate::support::redis::{RedisServer, directory};
use socket2::{Domain, Socket, Type};
use syncguard::testkit::MemoryBackend;
use syncguard::{
    Backend, Call, Client, ClientOptions, ErrorCode, Guard, Key, LockError, LockOptions,
    PostgresBackend, RedisBackend, Turn, WaiterEvent, WaiterStep,
};

const LIMIT: Duration = Duration::from_millis(400);
const NO_CONNECTION: &str = "no connection to";
const NO_ANSWER: &str = "is connected but did not answer";

/// A store by its URL. Connecting has [`LIMIT`], everything together far more.
fn open(url: &str) -> Box<dyn Backend> {
    open_with(
        url,
        &ClientOptions::new()
            .operation_timeout(WAIT_LIMIT)
            .connect_timeout(LIMIT),
    )
}

fn open_with(url: &str, options: &ClientOptions) -> Box<dyn Backend> {
    if url.starts_with("redis") {
        Box::new(RedisBackend::open(url, options).expect("a good URL"))
    } else {
        Box::new(PostgresBackend::open(url, &options.clone().schema("s")).expect("a good URL"))
    }
}

fn ask(store: &dyn Backend) -> Result<bool, LockError> {
    store.is_locked(&Key::new("k").expect("a key"), &Call::new())
}

/// The URLs of both kinds for one host and port, with a user and a password that no message may hold.
fn urls(host: &str, port: u16) -> [String; 3] {
    [
        format!("redis://alice:s3cret@{host}:{port}"),
        format!("postgres://alice:s3cret@{host}:{port}/db?sslmode=disable"),
        format!("postgres://alice:s3cret@{host}:{port}/db?sslmode=prefer"),
    ]
}

/// Checks a timeout. A busy machine may have spent the time on something else than what is `expected`: then it is asked again.
#[track_caller]
fn times_out(store: &dyn Backend, server: &str, expected: &str) {
    let mut seen = String::new();
    let found = (0..20).any(|_| {
        let error = ask(store).expect_err("no answer");
        assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
        seen = format!("{error} {error:?}");
        assert!(
            !seen.contains("alice") && !seen.contains("s3cret"),
            "{seen}"
        );
        seen.contains(server) && seen.contains(expected) && seen.contains("limit of 400 ms")
    });
    assert!(found, "{server}, {expected}: {seen}");
}

/// An address that accepts no connection and refuses none, as long as what is returned lives.
fn blackhole() -> (u16, Vec<Socket>) {
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let listener = socket();
    let free: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    listener.bind(&free.into()).expect("a free port");
    listener.listen(0).expect("listening");
    let address = listener.local_addr().expect("bound");
    let mut all = vec![listener];
    // The queue takes a few; the kernel drops what comes then.
    for _ in 0..8 {
        let client = socket();
        client.set_nonblocking(true).expect("a flag");
        let _ = client.connect(&address);
        all.push(client);
    }
    (address.as_socket().expect("an address").port(), all)
}

#[test]
fn a_timeout_says_that_connecting_took_too_long() {
    let (port, _kept) = blackhole();
    for url in urls("127.0.0.1", port) {
        times_out(&*open(&url), &format!("127.0.0.1:{port}"), NO_CONNECTION);
    }
    // The first host takes all of the time, and is named.
    let url = format!("postgres://alice@127.0.0.1:{port},127.0.0.1:1/db?sslmode=disable");
    let short = ClientOptions::new()
        .operation_timeout(LIMIT)
        .connect_timeout(WAIT_LIMIT);
    times_out(
        &*open_with(&url, &short),
        &format!("127.0.0.1:{port}"),
        NO_CONNECTION,
    );
}

#[test]
fn a_timeout_says_that_the_answer_took_too_long() {
    // The system accepts for it; no program reads.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    for url in urls("localhost", port) {
        times_out(&*open(&url), &format!("localhost:{port}"), NO_ANSWER);
    }
    let dir = directory("sg-silent-");
    let path = dir.path().join("s");
    let _listener = UnixListener::bind(&path).expect("bound");
    let path = path.display().to_string();
    times_out(&*open(&format!("redis+unix://{path}")), &path, NO_ANSWER);
    {
        let store = open(&format!("rediss://alice:s3cret@127.0.0.1:{port}"));
        times_out(&*store, &format!("127.0.0.1:{port}"), NO_ANSWER);
        times_out(&*store, "it may not speak TLS on this port", NO_ANSWER);
    }
}

#[test]
fn a_server_that_stops_is_named_with_the_operation_timeout() {
    let short = ClientOptions::new().operation_timeout(LIMIT);
    let warm = |store: &dyn Backend| {
        support::eventually("a first answer", || ask(store).is_ok());
    };
    let redis = RedisServer::start_tcp(&[]);
    let store = open_with(&redis.tcp_url(), &short);
    warm(&*store);
    {
        let _paused = redis.pause();
        times_out(&*store, &format!("127.0.0.1:{}", redis.port()), NO_ANSWER);
    }
    let postgres = Server::start(&[]);
    set_up(&postgres, "s");
    let store = open_with(&postgres.url(), &short);
    warm(&*store);
    let server = format!("127.0.0.1:{}", postgres.port);
    {
        let _frozen = postgres.freeze();
        times_out(&*store, &server, NO_ANSWER);
    }
    // Here the server itself ends the statement.
    let mut blocker = postgres.session();
    blocker.run("BEGIN; SELECT pg_advisory_xact_lock(hashtext('k'))");
    let key = Key::new("k").expect("a key");
    let mut seen = String::new();
    let named = (0..20).any(|_| {
        let id = id();
        let error = store
            .acquire(&key, &id, ttl(1000), &Call::new())
            .expect_err("another session has the advisory lock");
        seen = error.to_string();
        seen.contains(&server) && seen.contains("400 ms")
    });
    assert!(named, "{seen}");
    blocker.run("COMMIT");
}

/// A server that reads a little, says `answer`, and closes. Its port.
fn closing(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        }
    });
    port
}

fn refused(url: &str) -> LockError {
    let patient = ClientOptions::new()
        .operation_timeout(WAIT_LIMIT)
        .connect_timeout(WAIT_LIMIT);
    let error = ask(&*open_with(url, &patient)).expect_err("another service");
    assert!(!error.may_have_applied(), "{error}");
    error
}

#[test]
fn a_server_that_closes_without_a_word_may_be_another_service() {
    let postgres = Server::shared();
    let error = refused(&format!("redis://127.0.0.1:{}", postgres.port));
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    assert!(
        error.message().contains("may be no Redis server"),
        "{error}"
    );
    let port = closing(b"");
    for url in urls("127.0.0.1", port) {
        let error = refused(&url);
        let name = if url.starts_with("redis") {
            "may be no Redis server"
        } else {
            "may be no Postgres server"
        };
        assert!(error.message().contains(name), "{url}: {error}");
    }
    // One that has begun to answer is not suspected.
    let error = refused(&format!("redis://127.0.0.1:{}", closing(b"*2\r\n")));
    assert!(!error.message().contains("may be"), "{error}");
    // The notice has no field.
    let port = closing(b"N\0\0\0\x05\0");
    let error = refused(&format!(
        "postgres://alice@127.0.0.1:{port}/db?sslmode=disable"
    ));
    assert!(!error.message().contains("may be"), "{error}");
}

#[test]
fn a_redis_that_expects_tls_is_thought_of() {
    let made =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let (certificate, private) = (made.cert.pem(), made.signing_key.serialize_pem());
    let server = RedisServer::start_tls(&certificate, &private, &[]);
    let error = refused(&format!("redis://127.0.0.1:{}", server.port()));
    assert!(
        error.message().contains("expects TLS (rediss://)"),
        "{error}"
    );
}

fn wait_briefly() -> LockOptions {
    LockOptions::new()
        .ttl(WAIT_LIMIT * 10)
        .acquire_timeout(Duration::from_millis(50))
        .retry_delay(Duration::from_millis(10))
}

const OWN: &str = "this thread itself took the lock";

fn timed_out(client: &Client) -> String {
    let error = client
        .lock_with("my key", &wait_briefly())
        .expect_err("the lock is held");
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout, "{error}");
    let text = format!("{error} {error:?}");
    assert!(!text.contains("my key"), "{text}");
    text
}

fn held(client: &Client) -> Guard {
    client
        .lock_with("my key", &wait_briefly().acquire_timeout(WAIT_LIMIT))
        .expect("a free lock")
}

/// What a client and another one of the same store say of their own locks and of each other's.
fn tells_own_locks(client: &Client, other: &Client) {
    let guard = held(client);
    let text = timed_out(client);
    assert!(
        text.contains(OWN) && text.contains("not re-entrant"),
        "{text}"
    );
    // Another thread is told nothing of the kind.
    let text = std::thread::scope(|scope| scope.spawn(|| timed_out(client)).join());
    let text = text.expect("no panic");
    assert!(
        !text.contains(OWN) && text.contains("somebody else"),
        "{text}"
    );
    drop(guard);
    // Nor is this one, of a lock that another thread took.
    let guard = std::thread::scope(|scope| scope.spawn(|| held(other)).join()).expect("no panic");
    let text = timed_out(client);
    assert!(!text.contains(OWN), "{text}");
    // Nor of a lock that it had before.
    guard.release().expect("an answer").expect_released();
    held(client).release().expect("an answer").expect_released();
    let guard = std::thread::scope(|scope| scope.spawn(|| held(other)).join()).expect("no panic");
    let text = timed_out(client);
    assert!(!text.contains(OWN), "{text}");
    drop(guard);
}

#[test]
fn a_thread_that_waits_for_its_own_lock_is_told_so() {
    let store = MemoryBackend::new();
    let memory = || Client::from_backend(store.clone());
    tells_own_locks(&memory(), &memory());
    let dir = tempfile::tempdir().expect("a directory");
    let redis = RedisServer::start(&[]);
    let postgres = Server::shared();
    set_up(&postgres, "own");
    for url in [
        format!("sqlite:{}", dir.path().join("locks.db").display()),
        redis.url(),
        postgres.url(),
    ] {
        let options = ClientOptions::new()
            .schema("own")
            .operation_timeout(WAIT_LIMIT)
            .connect_timeout(WAIT_LIMIT);
        let open = || Client::open_with(&url, &options).expect("a good URL");
        tells_own_locks(&open(), &open());
    }
}

#[test]
fn a_place_in_line_does_not_speak_of_threads() {
    // Callers that wait by themselves make their attempts on any thread: goroutines share theirs.
    let client = Client::from_backend(MemoryBackend::new());
    let held = client.lock("k").expect("a free lock");
    let options = LockOptions::new().acquire_timeout(Duration::from_millis(20));
    let turn = client.lock_or_wait("k", &options, || {}).expect("a place");
    let Turn::InLine(waiter) = turn else {
        panic!("it is held");
    };
    let end = std::time::Instant::now() + WAIT_LIMIT;
    let error = loop {
        assert!(std::time::Instant::now() < end, "the wait has no end");
        match waiter.next(WaiterEvent::Woken) {
            WaiterStep::GiveUp(error) => break error,
            WaiterStep::Try { .. } => match waiter.try_lock(&Call::new()) {
                Ok(granted) => assert!(granted.is_none()),
                Err(error) => break error,
            },
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout, "{error}");
    assert!(!error.message().contains(OWN), "{error}");
    drop(held);
}

/// All that `on_warning` was told of what `work` does with a client.
fn warnings(work: impl FnOnce(&Client)) -> Vec<String> {
    let (tell, told) = mpsc::channel();
    let kit =
        kit_with(ClientOptions::new().on_warning(move |text| drop(tell.send(text.to_owned()))));
    work(&kit.client);
    drop(kit);
    let mut all = Vec::new();
    loop {
        match told.recv_timeout(WAIT_LIMIT) {
            Ok(text) => all.push(text),
            // The client is gone, and so is every call of the hook.
            Err(mpsc::RecvTimeoutError::Disconnected) => return all,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the hook is still there"),
        }
    }
}

#[test]
fn a_guard_that_is_lost_when_it_is_granted_is_warned_of_once() {
    let tiny = LockOptions::new().ttl(Duration::from_millis(1));
    let told = warnings(|client| {
        for _ in 0..3 {
            let guard = client.lock_with("my key", &tiny).expect("a lock");
            assert!(guard.is_lost());
        }
        let guard = client.try_lock_with("my key", &tiny).expect("an answer");
        assert!(guard.expect("a lock").is_lost());
    });
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("lost already when it was granted") && told[0].contains("ttl is 1 ms"),
        "{told:?}"
    );
    assert!(!told[0].contains("my key"), "{told:?}");
    let told = warnings(|client| drop(client.lock("my key").expect("a lock")));
    assert!(told.is_empty(), "{told:?}");
}
