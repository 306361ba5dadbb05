//! Tests the Redis store while the server, the network or the process around it misbehaves.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::process;
use crate::support::proxy::{Address, Mode, Proxy};
use crate::support::redis::{RedisServer, directory};
use crate::support::stopwatch::{Stopwatch, worst_of_three};
use crate::support::verbs::{self, granted, id, key};
use syncguard::{
    AcquireOutcome, Backend, Call, CancelToken, Client, ClientOptions, ErrorCode, LockError,
    LockId, LookupBy, RedisBackend, Ttl,
};

const TIMEOUT: Duration = Duration::from_millis(300);

fn open(url: &str) -> RedisBackend {
    let options = ClientOptions::new().operation_timeout(TIMEOUT);
    RedisBackend::open(url, &options).expect("a good URL")
}

/// For what should succeed on a machine that is busy with something else.
fn patient(url: &str) -> RedisBackend {
    RedisBackend::open(url, &verbs::patient()).expect("a good URL")
}

/// Waits until `redis`, which has little time for a call, has a connection.
fn warm(redis: &RedisBackend) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while redis.is_locked(&key("x"), &Call::new()).is_err() {
        assert!(Instant::now() < deadline, "it never works");
    }
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(600)).expect("a legal ttl")
}

/// Every verb, as something that fails or not.
#[allow(clippy::type_complexity)]
fn verbs() -> Vec<(
    &'static str,
    Box<dyn Fn(&RedisBackend, &LockId) -> Result<(), LockError>>,
)> {
    vec![
        (
            "acquire",
            Box::new(|r, id| r.acquire(&key("x"), id, ttl(), &Call::new()).map(drop)),
        ),
        (
            "release",
            Box::new(|r, id| r.release(id, &Call::new()).map(drop)),
        ),
        (
            "extend",
            Box::new(|r, id| r.extend(id, ttl(), &Call::new()).map(drop)),
        ),
        (
            "is_locked",
            Box::new(|r, _| r.is_locked(&key("x"), &Call::new()).map(drop)),
        ),
        (
            "find by key",
            Box::new(|r, _| r.find(LookupBy::Key(&key("x")), &Call::new()).map(drop)),
        ),
        (
            "find by id",
            Box::new(|r, id| r.find(LookupBy::LockId(id), &Call::new()).map(drop)),
        ),
        ("check", Box::new(|r, _| r.check(&Call::new()).map(drop))),
    ]
}

/// Each of three tries must keep the bound.
fn within(bound: Duration, what: &str, mut call: impl FnMut()) {
    let worst = worst_of_three(|| {
        let watch = Stopwatch::start();
        call();
        watch.stop()
    });
    assert!(worst <= bound, "{what} took {worst:?}");
}

fn every_verb_times_out(redis: &RedisBackend) {
    for (name, verb) in verbs() {
        within(TIMEOUT + Duration::from_millis(100), name, || {
            let error = verb(redis, &id()).expect_err(name);
            assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{name}: {error}");
        });
    }
}

#[test]
fn a_stopped_server_costs_the_operation_timeout() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let a = id();
    let _ = granted(patient(&server.url()).acquire(&key("mine"), &a, ttl(), &Call::new()));
    {
        let _paused = server.pause();
        every_verb_times_out(&redis);
    }
    // What the server answers once it goes on answers no call.
    let redis = patient(&server.url());
    assert!(redis.is_locked(&key("mine"), &Call::new()).expect("a look"));
    assert!(
        redis
            .release(&a, &Call::new())
            .expect("an answer")
            .is_released()
    );
}

#[test]
fn a_network_that_swallows_or_trickles_costs_the_operation_timeout() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::unix(server.dir().join("p"), Address::Unix(server.socket()));
    let redis = open(&format!(
        "redis+unix://{}",
        server.dir().join("p").display()
    ));
    let warm = |redis: &RedisBackend| {
        proxy.set(Mode::Pass);
        warm(redis);
    };
    for mode in [
        Mode::Swallow,
        Mode::Hold,
        Mode::Trickle(Duration::from_millis(150)),
    ] {
        // Once on a connection that was good a moment ago, and on new ones from then on.
        warm(&redis);
        proxy.set(mode);
        every_verb_times_out(&redis);
        // No connection that saw a timeout is used again: this one is new.
        let before = proxy.counts().connections;
        warm(&redis);
        assert!(proxy.counts().connections > before, "{mode:?}");
    }
}

#[test]
fn a_server_that_never_greets_costs_the_connect_timeout() {
    let server = RedisServer::start(&[]);
    let path = server.dir().join("p");
    let proxy = Proxy::unix(&path, Address::Unix(server.socket()));
    proxy.set(Mode::Swallow);
    let quick = verbs::patient().connect_timeout(Duration::from_millis(200));
    let url = format!("redis+unix://{}", path.display());
    let redis = RedisBackend::open(&url, &quick).expect("a good URL");
    let begun = Instant::now();
    let error = redis
        .is_locked(&key("x"), &Call::new())
        .expect_err("no answer");
    let took = begun.elapsed();
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    assert!(!error.may_have_applied());
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// A guard's drop has a time of its own, which is shorter than the store's: it ends the store's call.
#[test]
fn a_drop_costs_the_dispose_timeout() {
    let server = RedisServer::start(&[]);
    let path = server.dir().join("p");
    let proxy = Proxy::unix(&path, Address::Unix(server.socket()));
    let (told, hear) = std::sync::mpsc::channel();
    let told = Mutex::new(told);
    let options = verbs::patient()
        .dispose_timeout(Duration::from_millis(100))
        .on_release_error(move |e| {
            let told = told.lock().expect("no panic");
            told.send(e.error.code()).expect("a listener");
        });
    let url = format!("redis+unix://{}", path.display());
    let client = Client::open_with(&url, &options).expect("a good URL");
    let guard = client.lock("k").expect("a lock");
    proxy.set(Mode::Swallow);
    let begun = Instant::now();
    drop(guard);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(30), "the store's time: {took:?}");
    let code = hear.recv_timeout(Duration::from_secs(30));
    assert_eq!(code, Ok(ErrorCode::NetworkTimeout));
}

#[test]
fn an_error_tells_whether_something_may_have_happened() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::unix(server.dir().join("p"), Address::Unix(server.socket()));
    let url = format!("redis+unix://{}", server.dir().join("p").display());
    let redis = open(&url);
    warm(&redis);
    proxy.set(Mode::Swallow);
    // On the pooled connection the request was sent; on a new one not even the login was answered.
    let sent = redis
        .acquire(&key("x"), &id(), ttl(), &Call::new())
        .expect_err("swallowed");
    assert!(sent.may_have_applied());
    let not_sent = redis
        .acquire(&key("x"), &id(), ttl(), &Call::new())
        .expect_err("swallowed");
    assert!(!not_sent.may_have_applied());
}

#[test]
fn a_lost_reply_is_found_again_by_its_lock_id() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::unix(server.dir().join("p"), Address::Unix(server.socket()));
    let redis = patient(&format!(
        "redis+unix://{}",
        server.dir().join("p").display()
    ));
    assert!(!redis.is_locked(&key("x"), &Call::new()).expect("a look"));
    for round in 1..=1_000u64 {
        let a = id();
        proxy.cut_next_replies(1);
        let error = redis
            .acquire(&key("x"), &a, ttl(), &Call::new())
            .expect_err("its reply is lost");
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
        assert!(error.may_have_applied());
        let grant = granted(redis.acquire(&key("x"), &a, ttl(), &Call::new()));
        assert_eq!(grant.fence.get(), round, "the grant was stored once");
        assert!(
            redis
                .release(&a, &Call::new())
                .expect("an answer")
                .is_released()
        );
    }
    let left = server.cli(&["KEYS", "*"]);
    assert_eq!(
        left.list().len(),
        1,
        "only the fence counter is left: {left:?}"
    );
}

/// A port that refuses, and keeps refusing as long as what is returned lives: a connection has it, and no server listens there.
fn refusing() -> (u16, (TcpListener, TcpStream)) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let port = stream.local_addr().expect("bound").port();
    (port, (listener, stream))
}

#[test]
fn a_refused_port_is_reported_at_once() {
    let (port, _kept) = refusing();
    let redis = patient(&format!("redis://127.0.0.1:{port}"));
    let nowhere = directory("sg-nowhere-");
    let unix = patient(&format!("redis+unix://{}/none", nowhere.path().display()));
    for redis in [&redis, &unix] {
        for (name, verb) in verbs() {
            within(Duration::from_millis(100), name, || {
                let error = verb(redis, &id()).expect_err(name);
                assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
                assert!(!error.may_have_applied());
            });
        }
    }
}

/// A server that answers every connection with the same bytes, again and again if told, and never closes.
struct Fake {
    port: u16,
    accepted: Arc<AtomicU64>,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Fake {
    fn start(answer: Vec<u8>, endless: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let accepted = Arc::new(AtomicU64::new(0));
        let received = Arc::new(Mutex::new(Vec::new()));
        let (count, seen) = (Arc::clone(&accepted), Arc::clone(&received));
        // The threads end with the test's process; each holds one socket.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                count.fetch_add(1, Ordering::SeqCst);
                let (answer, seen) = (answer.clone(), Arc::clone(&seen));
                std::thread::spawn(move || serve(stream, &answer, endless, &seen));
            }
        });
        Self {
            port,
            accepted,
            received,
        }
    }
}

fn serve(mut stream: TcpStream, answer: &[u8], endless: bool, seen: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(n) = stream.read(&mut buffer) {
        if n == 0 {
            return;
        }
        seen.lock()
            .expect("not poisoned")
            .extend_from_slice(&buffer[..n]);
        loop {
            if stream.write_all(answer).is_err() {
                return;
            }
            if !endless {
                break;
            }
        }
    }
}

/// The answer to CLIENT SETNAME, and then this to the verb.
fn after_login(answer: &[u8]) -> Vec<u8> {
    [b"+OK\r\n".as_slice(), answer].concat()
}

pub const STAGES: &[process::Entry] = &[("not Redis", not_redis)];

#[test]
fn a_server_that_is_not_redis_gets_nowhere_and_no_memory() {
    process::run_alone("not Redis");
}

/// Measures the memory of the whole process.
fn not_redis(_: &Path) {
    let bulk = b"$2147483648\r\n".to_vec();
    let nested = b"*1\r\n".repeat(1_000_000);
    let cases: Vec<(&str, Vec<u8>, bool)> = vec![
        ("silence", Vec::new(), false),
        ("one byte", b"+".to_vec(), false),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), false),
        ("a TLS alert", vec![0x15, 3, 1, 0, 2, 2, 40], false),
        (
            "an endless line",
            b"+xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx".to_vec(),
            true,
        ),
        ("endless data", after_login(&b"$1000\r\n".repeat(400)), true),
        ("2 GB to come", bulk.clone(), false),
        ("2 GB after the login", after_login(&bulk), false),
        ("a million deep", nested.clone(), false),
        (
            "a million deep after the login",
            after_login(&nested),
            false,
        ),
        ("two replies for one", b"+OK\r\n+OK\r\n".to_vec(), false),
        ("extra replies", after_login(b":0\r\n:0\r\n"), false),
        ("a wrong type", b"+OK\r\n".to_vec(), false),
        (
            "an array too many",
            after_login(b"*2\r\n:1\r\n:1\r\n"),
            false,
        ),
        ("not a number", b":x\r\n".to_vec(), false),
    ];
    for (name, answer, endless) in cases {
        let fake = Fake::start(answer, endless);
        let redis = open(&format!("redis://127.0.0.1:{}", fake.port));
        for (verb_name, verb) in verbs() {
            let before = fake.accepted.load(Ordering::SeqCst);
            let start = Instant::now();
            let error = verb(&redis, &id()).expect_err(name);
            // The exact bound is measured elsewhere; here it must only not hang.
            assert!(
                start.elapsed() < TIMEOUT + Duration::from_secs(20),
                "{name}, {verb_name}"
            );
            assert!(
                matches!(
                    error.code(),
                    ErrorCode::Internal | ErrorCode::NetworkTimeout | ErrorCode::ServiceUnavailable
                ),
                "{name}, {verb_name}: {error}"
            );
            // "A wrong type" is a reply as any other, to the connection; everything else ends it.
            if name != "a wrong type" {
                let _ = verb(&redis, &id());
                // A connection is counted by another thread, perhaps later.
                let deadline = Instant::now() + Duration::from_secs(30);
                while fake.accepted.load(Ordering::SeqCst) < before + 2 {
                    assert!(
                        Instant::now() < deadline,
                        "{name}, {verb_name}: the connection was used again"
                    );
                    std::thread::yield_now();
                }
            }
        }
    }
    // A million nested arrays and gigabytes of promises have cost next to nothing.
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .and_then(|l| l.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .expect("a peak");
    assert!(peak < 400_000, "{peak} kB");
}

#[test]
fn a_plain_server_never_sees_the_password_of_a_tls_url() {
    for answer in [
        b"-ERR unknown command\r\n".to_vec(),
        b"+OK\r\n".to_vec(),
        Vec::new(),
    ] {
        let fake = Fake::start(answer, false);
        let redis = open(&format!("rediss://user:s3cret@127.0.0.1:{}", fake.port));
        let error = redis
            .is_locked(&key("x"), &Call::new())
            .expect_err("no TLS there");
        assert!(!error.may_have_applied());
        let received = fake.received.lock().expect("not poisoned").clone();
        assert!(!received.windows(6).any(|w| w == b"s3cret"));
        assert!(!received.windows(4).any(|w| w == b"AUTH"));
    }
}

#[test]
fn signals_fail_no_call() {
    use nix::libc::{pthread_kill, pthread_self};
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    extern "C" fn nothing(_: nix::libc::c_int) {}
    let server = RedisServer::start_tcp(&[]);
    // Without SA_RESTART: every system call that can be interrupted is.
    let action = SigAction::new(
        SigHandler::Handler(nothing),
        SaFlags::empty(),
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGALRM, &action) }.expect("a handler");
    let seconds = std::env::var("SYNCGUARD_STORM_SECONDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(10);
    let end = Instant::now() + Duration::from_secs(seconds);
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let calls = &calls;
        for url in [server.url(), server.tcp_url()] {
            let (started, thread) = std::sync::mpsc::channel();
            let done = Arc::new(AtomicBool::new(false));
            let finished = Arc::clone(&done);
            scope.spawn(move || {
                // SAFETY: it only asks.
                started.send(unsafe { pthread_self() }).expect("heard");
                let talk = || {
                    let mut redis = patient(&url);
                    while Instant::now() < end {
                        for _ in 0..20 {
                            let a = id();
                            let _ = granted(redis.acquire(&key(&url), &a, ttl(), &Call::new()));
                            assert!(
                                redis
                                    .release(&a, &Call::new())
                                    .expect("an answer")
                                    .is_released()
                            );
                            calls.fetch_add(2, Ordering::SeqCst);
                        }
                        // Connecting is interrupted too.
                        redis = patient(&url);
                    }
                };
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(talk));
                // Only the storm's own word ends this thread: a signal must not be sent to one that is gone.
                finished.store(true, Ordering::SeqCst);
                while Arc::strong_count(&finished) > 1 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                result.expect("no call fails");
            });
            // A timer's signal goes to whichever thread the kernel likes, mostly the idle main one: these are aimed.
            scope.spawn(move || {
                let thread = thread.recv().expect("started");
                while !done.load(Ordering::SeqCst) {
                    // SAFETY: the thread waits for us before it ends.
                    unsafe { pthread_kill(thread, nix::libc::SIGALRM) };
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
    });
    assert!(calls.load(Ordering::SeqCst) > 0);
}

#[test]
fn a_cancel_during_connect_ends_it() {
    let fake = Fake::start(Vec::new(), false);
    let redis = patient(&format!("redis://127.0.0.1:{}", fake.port));
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let call = scope
            .spawn(|| redis.acquire(&key("x"), &id(), ttl(), &Call::new().cancelled_by(&token)));
        while fake.accepted.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        token.cancel();
        let error = call.join().expect("it returns").expect_err("cancelled");
        assert!(begun.elapsed() < Duration::from_secs(30), "it timed out");
        assert_eq!(error.code(), ErrorCode::Aborted);
        assert!(!error.may_have_applied());
    });
}

#[test]
fn no_fence_is_given_twice_by_a_server_that_is_killed() {
    let mut server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let url = server.url();
    let highest: Mutex<HashMap<usize, u64>> = Mutex::default();
    let grants = AtomicU64::new(0);
    for _ in 0..20 {
        let stop = AtomicBool::new(false);
        let before = grants.load(Ordering::SeqCst);
        std::thread::scope(|scope| {
            for at in 0..4usize {
                let (url, stop, highest, grants) = (&url, &stop, &highest, &grants);
                scope.spawn(move || {
                    let redis = patient(url);
                    let k = key(&format!("k{at}"));
                    while !stop.load(Ordering::SeqCst) {
                        let a = id();
                        // An error is the server's death; a lock left by it is that round's, and the next one takes a
                        // key of its own by releasing what is stored.
                        match redis.acquire(&k, &a, ttl(), &Call::new()) {
                            Ok(AcquireOutcome::Acquired(grant)) => {
                                let mut highest = highest.lock().expect("not poisoned");
                                let last = highest.entry(at).or_default();
                                assert!(grant.fence.get() > *last, "a fence came back");
                                *last = grant.fence.get();
                                drop(highest);
                                grants.fetch_add(1, Ordering::SeqCst);
                                let _ = redis.release(&a, &Call::new());
                            }
                            Ok(AcquireOutcome::Locked(_)) => {
                                if let Ok(Some(left)) = redis.find(LookupBy::Key(&k), &Call::new())
                                {
                                    let _ = redis.release(&left.lock_id, &Call::new());
                                }
                            }
                            Err(_) => return,
                        }
                    }
                });
            }
            let deadline = Instant::now() + Duration::from_secs(120);
            while grants.load(Ordering::SeqCst) < before + 40 {
                assert!(Instant::now() < deadline, "no traffic");
                std::thread::sleep(Duration::from_millis(1));
            }
            server.kill();
            stop.store(true, Ordering::SeqCst);
        });
        server.start_again();
    }
    assert!(grants.load(Ordering::SeqCst) >= 800);
}
