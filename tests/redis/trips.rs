//! Tests callers that share a connection to a real server, while one of them is cancelled, late or stopped, or the connection breaks.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use nix::libc::{pthread_kill, pthread_self, pthread_t};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::support::eventually;
use crate::support::process;
use crate::support::proxy::{Address, Mode, Proxy};
use crate::support::redis::RedisServer;
use crate::support::verbs::{self, code, granted, id, key, ttl};
use syncguard::{
    Backend, Call, CancelToken, Client, ClientOptions, ErrorCode, LockError, LockOptions,
    RedisBackend,
};

const SHORT: Duration = Duration::from_millis(300);
/// No call that has to return at once takes so long, on any machine.
const AMPLE: Duration = Duration::from_secs(30);

/// A server behind a proxy, and a store whose callers share connections to it.
struct Rig {
    redis: RedisBackend,
    // It ends before the server, in whose folder its socket is.
    proxy: Proxy,
    server: RedisServer,
    /// How many bytes [`look`] sends.
    request: u64,
}

type Answer = Result<bool, LockError>;

/// One request, always of the same length.
fn look(redis: &RedisBackend, call: &Call<'_>) -> Answer {
    redis.is_locked(&key("x"), call)
}

impl Rig {
    fn start(pool_size: usize) -> Self {
        let server = RedisServer::start(&[]);
        let path = server.dir().join("p");
        let proxy = Proxy::unix(&path, Address::Unix(server.socket()));
        let url = format!("redis+unix://{}", path.display());
        let options = verbs::patient().pool_size(pool_size);
        let redis = RedisBackend::open(&url, &options).expect("a good URL");
        // The second one finds the connection made and the script known.
        for _ in 0..2 {
            proxy.reset_counts();
            assert!(!look(&redis, &Call::new()).expect("a look"));
        }
        let request = proxy.counts().from_clients;
        proxy.reset_counts();
        Self {
            redis,
            proxy,
            server,
            request,
        }
    }

    /// Waits until so many looks were sent since the last reset.
    fn sent(&self, looks: u64) {
        self.proxy
            .wait_for(|counts| counts.from_clients >= looks * self.request);
    }

    fn looks<'a>(
        &'a self,
        scope: &'a Scope<'a, '_>,
        callers: usize,
    ) -> Vec<ScopedJoinHandle<'a, Answer>> {
        let callers = 0..callers;
        callers
            .map(|_| scope.spawn(|| look(&self.redis, &Call::new())))
            .collect()
    }

    /// The library's connections that the server knows.
    fn connections(&self) -> usize {
        let clients = self.server.cli(&["CLIENT", "LIST"]).text();
        clients.matches("name=syncguard ").count()
    }

    fn expect_new_connections(&self, wanted: usize) {
        assert_eq!(self.proxy.counts().connections, wanted);
    }
}

fn all_answered(callers: Vec<ScopedJoinHandle<'_, Answer>>) {
    for caller in callers {
        let answer = caller.join().expect("no panic");
        assert!(!answer.expect("an answer"));
    }
}

#[test]
fn a_crowd_needs_two_connections_and_the_listener() {
    let server = RedisServer::start(&[]);
    let options = verbs::patient().pool_size(33);
    let client = Client::open_with(&server.url(), &options).expect("a good URL");
    let most = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..32)
            .map(|caller| {
                let client = &client;
                scope.spawn(move || {
                    for round in 0..100 {
                        // Some keys are wanted by four callers: those that wait are called by the listener or by each other.
                        let name = format!("k{}", if round % 4 == 0 { caller / 4 } else { caller });
                        let options = LockOptions::new().acquire_timeout(Duration::from_secs(60));
                        let guard = client.lock_with(&name, &options).expect("a lock");
                        guard.release().expect("an answer").expect_released();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(SeqCst) {
                let clients = server.cli(&["CLIENT", "LIST"]).text();
                most.fetch_max(clients.matches("name=syncguard ").count(), SeqCst);
            }
        });
        for caller in callers {
            caller.join().expect("no panic");
        }
        done.store(true, SeqCst);
    });
    let most = most.into_inner();
    assert!((1..=3).contains(&most), "{most} connections");
}

/// What callers ask while the server is busy goes out together, and the server reads it at once.
#[test]
fn calls_at_the_same_time_share_a_trip() {
    const CALLERS: usize = 64;
    let rig = Rig::start(10);
    let trips = || rig.proxy.counts().round_trips;
    std::thread::scope(|scope| {
        let paused = rig.server.pause();
        let callers = rig.looks(scope, CALLERS);
        rig.sent(CALLERS as u64);
        assert_eq!(trips(), 0);
        drop(paused);
        all_answered(callers);
    });
    // The server may meet what was sent in a few pieces.
    assert!(trips() <= 8, "{} trips", trips());
    rig.expect_new_connections(0);
}

#[test]
fn a_cancelled_caller_returns_at_once_and_the_others_notice_nothing() {
    for cancelled in 0..4 {
        let rig = Rig::start(10);
        let token = CancelToken::new();
        std::thread::scope(|scope| {
            let paused = rig.server.pause();
            // The first to ask reads, the others sleep: each of them is cancelled once.
            let before = rig.looks(scope, cancelled);
            rig.sent(cancelled as u64);
            let call = scope.spawn(|| look(&rig.redis, &Call::new().cancelled_by(&token)));
            rig.sent(cancelled as u64 + 1);
            let after = rig.looks(scope, 3 - cancelled);
            rig.sent(4);
            let begun = Instant::now();
            token.cancel();
            let error = call.join().expect("no panic").expect_err("cancelled");
            assert!(begun.elapsed() < AMPLE, "it waited for its answer");
            assert_eq!(error.code(), ErrorCode::Aborted);
            assert!(error.may_have_applied());
            drop(paused);
            all_answered(before);
            all_answered(after);
        });
        // Its late answer is no other call's.
        let a = id();
        let _ = granted(rig.redis.acquire(&key("x"), &a, ttl(60_000), &Call::new()));
        assert!(look(&rig.redis, &Call::new()).expect("a look"));
        rig.expect_new_connections(0);
    }
}

#[test]
fn a_late_caller_ends_the_connection_for_new_calls_and_not_for_those_that_wait() {
    let rig = Rig::start(2);
    std::thread::scope(|scope| {
        let paused = rig.server.pause();
        let patient = rig.looks(scope, 3);
        rig.sent(3);
        let begun = Instant::now();
        let error = look(&rig.redis, &Call::new().within(SHORT)).expect_err("no answer");
        assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
        assert!(error.may_have_applied() && begun.elapsed() >= SHORT);
        // The other slot is kept for upkeep, and this connection counts until it is closed.
        let error = look(&rig.redis, &Call::new().within(SHORT)).expect_err("no connection");
        assert_eq!(error.code(), ErrorCode::RateLimited, "{error}");
        assert!(!error.may_have_applied());
        assert_eq!(rig.proxy.open(), 1);
        drop(paused);
        all_answered(patient);
        // Now it is closed, and the next call has a new one.
        assert!(!look(&rig.redis, &Call::new()).expect("a look"));
    });
    rig.expect_new_connections(1);
    eventually("the first one is closed", || rig.connections() == 1);
}

#[test]
fn upkeep_does_not_wait_behind_a_crowd() {
    let rig = Rig::start(3);
    let a = id();
    let _ = granted(rig.redis.acquire(&key("a"), &a, ttl(600_000), &Call::new()));
    rig.proxy.reset_counts();
    std::thread::scope(|scope| {
        rig.proxy.hold_back();
        let crowd = rig.looks(scope, 8);
        rig.proxy.wait_for(|counts| counts.from_clients > 0);
        let answer = rig.redis.release(&a, &Call::new());
        assert!(answer.expect("an answer").is_released());
        rig.expect_new_connections(1);
        rig.proxy.let_go();
        all_answered(crowd);
    });
}

/// A thread that a signal handler keeps, until it is told to go on.
struct StoppedThread;

static STOPPED: AtomicBool = AtomicBool::new(false);
static GO_ON: AtomicBool = AtomicBool::new(false);

extern "C" fn stand_still(_: nix::libc::c_int) {
    STOPPED.store(true, SeqCst);
    while !GO_ON.load(SeqCst) {
        // SAFETY: it may be called in a signal handler, and sleeps.
        unsafe { nix::libc::poll(std::ptr::null_mut(), 0, 1) };
    }
}

extern "C" fn nothing(_: nix::libc::c_int) {}

fn handle(signal: Signal, handler: extern "C" fn(nix::libc::c_int)) {
    // Without SA_RESTART: every system call that can be interrupted is.
    let action = SigAction::new(
        SigHandler::Handler(handler),
        SaFlags::empty(),
        SigSet::empty(),
    );
    // SAFETY: the handlers touch atomics only.
    unsafe { sigaction(signal, &action) }.expect("a handler");
}

/// Whether a thread of this process sleeps in a system call.
fn sleeps(thread: nix::unistd::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    let stat = stat.expect("the thread is there");
    stat.rsplit_once(") ")
        .is_some_and(|(_, state)| state.starts_with('S'))
}

impl StoppedThread {
    fn stop(thread: pthread_t) -> Self {
        handle(Signal::SIGUSR1, stand_still);
        // SAFETY: the thread waits for an answer that is on its way.
        unsafe { pthread_kill(thread, nix::libc::SIGUSR1) };
        eventually("the thread stands still", || STOPPED.load(SeqCst));
        Self
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        GO_ON.store(true, SeqCst);
    }
}

pub const STAGES: &[process::Entry] = &[
    ("stopped reader", stopped_reader),
    ("ten thousand", ten_thousand),
    ("fork in a trip", fork_in_a_trip),
];

/// In a process of its own: a thread stops in a signal handler.
#[test]
fn a_reader_that_is_stopped_costs_the_others_no_more_than_their_deadlines() {
    process::run_alone("stopped reader");
}

fn stopped_reader(_: &Path) {
    let rig = Rig::start(4);
    std::thread::scope(|scope| {
        let paused = rig.server.pause();
        let (started, thread) = mpsc::channel();
        let rig = &rig;
        let reader = scope.spawn(move || {
            // SAFETY: it only asks.
            let me = (unsafe { pthread_self() }, nix::unistd::gettid());
            started.send(me).expect("heard");
            look(&rig.redis, &Call::new())
        });
        rig.sent(1);
        let (reading, number) = thread.recv().expect("started");
        // One that is stopped on its way there may hold a mutex, and then nothing helps the others.
        eventually("it sleeps in its read", || sleeps(number));
        let stopped = StoppedThread::stop(reading);
        drop(paused);
        let begun = Instant::now();
        let others: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| look(&rig.redis, &Call::new().within(SHORT))))
            .collect();
        for other in others {
            // One that comes late has a new connection already.
            if let Err(error) = other.join().expect("no panic") {
                assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
            }
        }
        assert!(begun.elapsed() < SHORT + AMPLE);
        // From now on calls are answered, on another connection.
        assert!(!look(&rig.redis, &Call::new()).expect("a look"));
        rig.expect_new_connections(1);
        drop(stopped);
        let answer = reader.join().expect("no panic");
        assert!(!answer.expect("its answer had come"));
    });
}

/// The callers of one connection that breaks each learn that their own request may have been applied, and undoing works.
#[test]
fn a_cut_gives_every_caller_an_unknown_outcome_that_is_undone() {
    const CALLERS: usize = 16;
    for mode in [Mode::CutReply, Mode::TearReply] {
        let rig = Rig::start(10);
        let options = verbs::patient().pool_size(10);
        let Address::Unix(path) = rig.proxy.address() else {
            unreachable!("it was made with a path");
        };
        let url = format!("redis+unix://{}", path.display());
        let client = Client::open_with(&url, &options).expect("a good URL");
        let _ = client.is_locked("warm").expect("a look");
        std::thread::scope(|scope| {
            let paused = rig.server.pause();
            rig.proxy.reset_counts();
            let callers: Vec<_> = (0..CALLERS)
                .map(|n| {
                    let client = &client;
                    scope.spawn(move || client.try_lock(format!("k{n:02}")))
                })
                .collect();
            // Many of them: a request of an acquire is longer than one of a look. How many, the machine decides.
            rig.sent(2 * CALLERS as u64);
            rig.proxy.set(mode);
            drop(paused);
            let mut unknown = 0;
            for caller in callers {
                match caller.join().expect("no panic") {
                    Err(error) => {
                        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
                        unknown += usize::from(error.may_have_applied());
                    }
                    Ok(guard) => drop(guard),
                }
                rig.proxy.set(Mode::Pass);
            }
            assert!(unknown > 1, "{unknown} unknown outcomes");
        });
        let left = || {
            let names = rig.server.cli(&["KEYS", "syncguard:k*"]);
            names.list().len()
        };
        eventually("every lock is undone", || left() == 0);
    }
}

/// A server that greets and then answers `wanted` requests together, with these bytes, and nothing more.
struct WrongServer {
    port: u16,
    accepted: Arc<AtomicUsize>,
}

impl WrongServer {
    fn start(wanted: usize, answer: Vec<u8>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, SeqCst);
                let answer = answer.clone();
                std::thread::spawn(move || answer_wrongly(stream, wanted, &answer));
            }
        });
        Self { port, accepted }
    }

    fn open(&self) -> RedisBackend {
        let options = ClientOptions::new().operation_timeout(Duration::from_secs(5));
        let url = format!("redis://127.0.0.1:{}", self.port);
        RedisBackend::open(&url, &options).expect("a good URL")
    }
}

fn answer_wrongly(
    mut stream: std::net::TcpStream,
    wanted: usize,
    answer: &[u8],
) -> std::io::Result<()> {
    let (mut buffer, mut heard) = ([0; 4096], Vec::new());
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => heard.extend_from_slice(&buffer[..n]),
        }
        let text = String::from_utf8_lossy(&heard);
        if text.contains("SETNAME") && text.ends_with("syncguard\r\n") {
            stream.write_all(b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n+OK\r\n")?;
            heard.clear();
        } else if text.matches("EVALSHA").count() == wanted && text.ends_with("\r\n") {
            stream.write_all(answer)?;
            heard.clear();
        }
    }
}

/// How `wanted` callers of one connection are answered, and what the next call opens.
fn wrongly_answered(wanted: usize, answer: Vec<u8>) -> Vec<Answer> {
    let server = WrongServer::start(wanted, answer);
    let redis = server.open();
    let answers = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..wanted)
            .map(|_| scope.spawn(|| look(&redis, &Call::new())))
            .collect();
        let joined = callers.into_iter();
        joined
            .map(|caller| caller.join().expect("no panic"))
            .collect()
    });
    let before = server.accepted.load(SeqCst);
    assert_eq!(before, 1, "they did not share");
    // It is alone, and this server does not answer it.
    let error = look(&redis, &Call::new().within(SHORT)).expect_err("no answer");
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    assert_eq!(server.accepted.load(SeqCst), 2, "it was used again");
    answers
}

#[test]
fn replies_too_many_or_malformed_or_huge_end_the_connection_for_all() {
    const CALLERS: usize = 6;
    let replies = b":0\r\n".repeat(CALLERS);
    for (name, answer) in [
        ("too many", [&replies[..], b":0\r\n"].concat()),
        ("half a one too many", [&replies[..], b":"].concat()),
        ("malformed", [&replies[..8], b"HTTP/1.1 400\r\n"].concat()),
        ("huge", [&replies[..8], b"$2000000\r\n"].concat()),
    ] {
        for answer in wrongly_answered(CALLERS, answer) {
            let error = answer.expect_err(name);
            assert_eq!(error.code(), ErrorCode::Internal, "{name}: {error}");
            assert!(error.may_have_applied());
        }
    }
}

#[test]
fn a_reply_too_few_costs_one_caller_its_time_and_ends_the_connection() {
    const CALLERS: usize = 6;
    let answers = wrongly_answered(CALLERS, b":0\r\n".repeat(CALLERS - 1));
    let (answered, late): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((answered.len(), late.len()), (CALLERS - 1, 1));
    for error in late {
        assert_eq!(code(error), ErrorCode::NetworkTimeout);
    }
}

#[test]
fn a_server_that_forgets_its_scripts_in_a_crowd_is_not_noticed() {
    let rig = Rig::start(10);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (rig, done) = (&rig, &done);
        scope.spawn(move || {
            while !done.load(SeqCst) {
                rig.server.cli(&["SCRIPT", "FLUSH"]);
            }
        });
        let callers: Vec<_> = (0..16)
            .map(|n| scope.spawn(move || cycles(&rig.redis, &format!("k{n}"), 50)))
            .collect();
        let ended: Vec<_> = callers.into_iter().map(ScopedJoinHandle::join).collect();
        done.store(true, SeqCst);
        assert!(ended.iter().all(Result::is_ok), "a call failed");
    });
    let fences = rig.server.cli(&["GET", "syncguard:fence:syncguard:k7"]);
    assert_eq!(fences.text(), "50");
}

/// Takes and releases one lock; every answer must be this caller's own.
fn cycles(redis: &RedisBackend, name: &str, count: u64) {
    let name = key(name);
    for n in 1..=count {
        let mine = id();
        let grant = granted(redis.acquire(&name, &mine, ttl(60_000), &Call::new()));
        assert_eq!(grant.fence.get(), n, "another caller's answer");
        let answer = redis.release(&mine, &Call::new());
        assert!(answer.expect("an answer").is_released());
    }
}

#[test]
fn signals_fail_no_call_of_a_crowd() {
    let rig = Rig::start(10);
    handle(Signal::SIGUSR2, nothing);
    let running = AtomicUsize::new(8);
    std::thread::scope(|scope| {
        let (started, threads) = mpsc::channel();
        for n in 0..8 {
            let (rig, running, started) = (&rig, &running, started.clone());
            scope.spawn(move || {
                // SAFETY: it only asks.
                started.send(unsafe { pthread_self() }).expect("heard");
                let talk = || cycles(&rig.redis, &format!("k{n}"), 500);
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(talk));
                running.fetch_sub(1, SeqCst);
                // A signal must not be sent to a thread that is gone.
                while running.load(SeqCst) > 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                result.expect("no call fails");
            });
        }
        let threads: Vec<pthread_t> = threads.iter().take(8).collect();
        while running.load(SeqCst) > 1 {
            for thread in &threads {
                // SAFETY: all of them wait for the last one before they end.
                unsafe { pthread_kill(*thread, nix::libc::SIGUSR2) };
            }
            std::thread::yield_now();
        }
    });
}

/// In a process of its own: it has very many threads.
#[test]
fn ten_thousand_callers_share_two_connections() {
    process::run_alone("ten thousand");
}

fn ten_thousand(_: &Path) {
    const CALLERS: usize = 10_000;
    let rig = Rig::start(10);
    let paused = rig.server.pause();
    let (answers, answered) = mpsc::channel();
    let rig = Arc::new(rig);
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (rig, answers) = (Arc::clone(&rig), answers.clone());
            let body = move || answers.send(look(&rig.redis, &Call::new())).expect("heard");
            let small = std::thread::Builder::new().stack_size(256 * 1024);
            small.spawn(body).expect("a thread")
        })
        .collect();
    drop(paused);
    for _ in 0..CALLERS {
        let answer = answered.recv_timeout(Duration::from_secs(120));
        assert!(!answer.expect("an answer").expect("a look"));
    }
    rig.expect_new_connections(0);
    for caller in callers {
        caller.join().expect("no panic");
    }
}

#[test]
fn a_child_that_is_forked_in_a_trip_is_refused_and_disturbs_none() {
    process::run_alone("fork in a trip");
}

fn fork_in_a_trip(_: &Path) {
    let rig = Rig::start(10);
    std::thread::scope(|scope| {
        let paused = rig.server.pause();
        let callers = rig.looks(scope, 8);
        rig.sent(8);
        let child = process::in_child(|| {
            let error = look(&rig.redis, &Call::new()).expect_err("a forked child");
            assert_eq!(error.code(), ErrorCode::Internal);
            assert!(!error.may_have_applied());
        });
        assert_eq!(process::wait_child(child), Ok(0));
        drop(paused);
        all_answered(callers);
    });
    rig.expect_new_connections(0);
}

/// It would be connected to again and again, until the call's time is over.
#[test]
fn a_server_that_hangs_up_after_the_login_costs_a_call_one_connection() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, SeqCst);
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n+OK\r\n");
        }
    });
    let url = format!("redis://127.0.0.1:{port}");
    let redis = RedisBackend::open(&url, &ClientOptions::new()).expect("a good URL");
    for calls in 1..=3 {
        let error = redis.is_locked(&key("k"), &Call::new());
        let error = error.expect_err("a server that hangs up");
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
        assert_eq!(accepted.load(SeqCst), calls);
    }
}
