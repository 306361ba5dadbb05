//! What a password provider and a connector may do wrong, on both stores with servers: hang, panic, fail, answer late, answer
//! nonsense.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::postgres::{Server, set_up};
use crate::support::redis::RedisServer;
use crate::support::{WAIT_LIMIT, ended, eventually, process, threads_named};
use syncguard::{
    Call, CancelToken, Client, ClientOptions, ConnectRequest, ErrorCode, Key, LockError,
};

/// What a connector gives.
type Give = Box<dyn Fn() -> OwnedFd + Send + Sync>;

/// How long a call with a function that hangs may take.
const SHORT: Duration = Duration::from_millis(300);
/// What such a call takes at the most on a busy machine.
const FAR_TOO_LONG: Duration = Duration::from_secs(20);

pub const STAGES: &[process::Entry] = &[
    ("provider that hangs", provider_that_hangs),
    ("connector that hangs", connector_that_hangs),
    ("forked child", forked_child),
];

/// A server of each kind, which lets in the user of its URL whatever the password is.
struct Both {
    redis: RedisServer,
    postgres: Server,
}

impl Both {
    fn start() -> Self {
        let postgres = Server::start(&[]);
        set_up(&postgres, "s");
        Self {
            redis: RedisServer::start_tcp(&[]),
            postgres,
        }
    }

    fn urls(&self) -> [String; 2] {
        let redis = format!("redis://admin@127.0.0.1:{}", self.redis.port());
        [redis, self.postgres.url()]
    }
}

fn open(url: &str, options: &ClientOptions) -> Client {
    Client::open_with(url, &options.clone().on_warning(|_| {})).expect("legal options")
}

fn schema() -> ClientOptions {
    ClientOptions::new().schema("s")
}

fn look(client: &Client) -> Result<bool, LockError> {
    client.is_locked_with(Key::new("k").expect("a key"), &Call::new())
}

#[track_caller]
fn fails(client: &Client, code: ErrorCode, said: &str) -> LockError {
    let begun = Instant::now();
    let error = look(client).expect_err(said);
    assert!(begun.elapsed() < FAR_TOO_LONG, "{:?}", begun.elapsed());
    assert_eq!(error.code(), code, "{error}");
    assert!(error.message().contains(said), "{error}");
    assert!(!error.may_have_applied(), "{error}");
    error
}

/// A function that hangs until the sender goes, how often it was called, and what ends it.
fn hanging() -> (
    impl Fn() + Send + Sync + Clone + 'static,
    Arc<AtomicUsize>,
    Sender<()>,
) {
    let (end, ends): (Sender<()>, Receiver<()>) = channel();
    let (ends, calls) = (Arc::new(Mutex::new(ends)), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&calls);
    let hang = move || {
        count.fetch_add(1, SeqCst);
        let _ = ends.lock().expect("unpoisoned").recv();
    };
    (hang, calls, end)
}

#[test]
fn a_provider_that_hangs_costs_each_call_its_time_and_is_not_started_again() {
    process::run_alone("provider that hangs");
}

fn provider_that_hangs(_: &Path) {
    let both = Both::start();
    for url in both.urls() {
        let (hang, calls, end) = hanging();
        let options = schema().operation_timeout(SHORT).password(move || {
            hang();
            Ok("late".to_owned())
        });
        let client = open(&url, &options);
        for _ in 0..4 {
            fails(&client, ErrorCode::NetworkTimeout, "password provider");
        }
        let token = CancelToken::new();
        token.cancel();
        let cancelled = Call::new().cancelled_by(&token);
        let error = client.is_locked_with(Key::new("k").expect("a key"), &cancelled);
        assert_eq!(error.expect_err("cancelled").code(), ErrorCode::Aborted);
        assert_eq!(calls.load(SeqCst), 1, "it is not started again");
        assert_eq!(threads_named("syncguard-pass"), 1);
        // Callers that still wait are given the late answer; the next connection asks again.
        let patient = open_patient(&client);
        drop(end);
        assert_eq!(ended(patient).ok(), Some(false));
        eventually("the end of the provider", || {
            threads_named("syncguard-pass") == 0
        });
    }
}

/// Looks, again and again, on a thread of its own, until the provider has answered.
fn open_patient(client: &Client) -> std::thread::JoinHandle<Result<bool, LockError>> {
    let client = client.clone();
    std::thread::spawn(move || {
        let end = Instant::now() + WAIT_LIMIT;
        loop {
            match look(&client) {
                Err(e) if e.code() == ErrorCode::NetworkTimeout && Instant::now() < end => {}
                other => return other,
            }
        }
    })
}

#[test]
fn all_that_wait_share_one_call_of_the_provider() {
    let both = Both::start();
    for url in both.urls() {
        let (hang, calls, end) = hanging();
        let options = schema()
            .operation_timeout(WAIT_LIMIT)
            .connect_timeout(WAIT_LIMIT);
        let (most, running) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let seen = Arc::clone(&most);
        let provider = move || {
            seen.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            hang();
            running.fetch_sub(1, SeqCst);
            Ok("shared".to_owned())
        };
        let client = open(&url, &options.password(provider));
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let client = client.clone();
                std::thread::spawn(move || look(&client))
            })
            .collect();
        eventually("a call", || calls.load(SeqCst) == 1);
        drop(end);
        for caller in callers {
            assert_eq!(ended(caller).ok(), Some(false));
        }
        // Of callers that come while a call runs none begins another one.
        assert_eq!(most.load(SeqCst), 1, "never two at once");
    }
}

#[test]
fn a_provider_that_fails_panics_or_answers_nonsense_is_an_error_without_its_answer() {
    let both = Both::start();
    let long = "hunter2".repeat(10_000);
    for url in both.urls() {
        let with = |answer: &str| {
            let answer = answer.to_owned();
            open(&url, &schema().password(move || Ok(answer.clone())))
        };
        for (answer, said) in [("hunter2\0", "NUL"), (&long, "longer than 65534")] {
            let error = fails(&with(answer), ErrorCode::InvalidArgument, said);
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
        assert_eq!(
            look(&with("anything, it is not asked for")).ok(),
            Some(false)
        );
        let failing = open(&url, &schema().password(|| Err("no role".into())));
        let error = fails(&failing, ErrorCode::ServiceUnavailable, "provider failed");
        let source = std::error::Error::source(&error).expect("the provider's own error");
        assert_eq!(source.to_string(), "no role");
        let calls = AtomicUsize::new(0);
        let panicking = open(
            &url,
            &schema().password(move || {
                assert!(calls.fetch_add(1, SeqCst) > 0, "planted");
                Ok("x".to_owned())
            }),
        );
        fails(&panicking, ErrorCode::Internal, "provider panicked");
        assert_eq!(
            look(&panicking).ok(),
            Some(false),
            "the next one is asked again"
        );
    }
}

#[test]
fn a_connector_that_hangs_costs_each_call_its_time_and_its_late_answer_is_used() {
    process::run_alone("connector that hangs");
}

fn connector_that_hangs(_: &Path) {
    let both = Both::start();
    for url in both.urls() {
        let (hang, calls, end) = hanging();
        let options = schema().operation_timeout(SHORT).connector(move |to| {
            hang();
            Ok(TcpStream::connect((to.host(), to.port()))?.into())
        });
        let client = open(&url, &options);
        for _ in 0..5 {
            fails(&client, ErrorCode::NetworkTimeout, "connector");
        }
        assert_eq!(
            calls.load(SeqCst),
            1,
            "no other one is begun to the same server"
        );
        assert_eq!(threads_named("syncguard-dial"), 1);
        let patient = open_patient(&client);
        drop(end);
        assert_eq!(ended(patient).ok(), Some(false));
        eventually("the end of the connector", || {
            threads_named("syncguard-dial") == 0
        });
    }
}

#[test]
fn a_connector_that_fails_panics_or_gives_nonsense_is_an_error() {
    let both = Both::start();
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let raw = std::io::Error::from_raw_os_error;
    let refusals = [
        (
            ErrorCode::ServiceUnavailable,
            nix::libc::ECONNREFUSED,
            "refused",
        ),
        (ErrorCode::AuthFailed, nix::libc::EACCES, "denied"),
        (ErrorCode::RateLimited, nix::libc::EMFILE, "open files"),
        (ErrorCode::NetworkTimeout, nix::libc::ETIMEDOUT, "timed out"),
    ];
    for url in both.urls() {
        for (code, errno, said) in refusals {
            let client = open(&url, &schema().connector(move |_| Err(raw(errno))));
            fails(&client, code, said);
        }
        let telling = |_: &ConnectRequest<'_>| Err(std::io::Error::other("proxy password hunter2"));
        let error = fails(
            &open(&url, &schema().connector(telling)),
            ErrorCode::ServiceUnavailable,
            "connector",
        );
        assert!(!error.message().contains("hunter2"), "{error}");
        let panicking = schema().connector(|_| panic!("planted"));
        fails(
            &open(&url, &panicking),
            ErrorCode::Internal,
            "connector panicked",
        );
        let twin = listener.try_clone().expect("a twin");
        let odd: [(Give, &str); 3] = [
            (
                Box::new(|| std::fs::File::open("/dev/null").expect("a file").into()),
                "no socket",
            ),
            (
                Box::new(|| UdpSocket::bind(("127.0.0.1", 0)).expect("a socket").into()),
                "no stream",
            ),
            (
                Box::new(move || twin.try_clone().expect("a twin").into()),
                "not connected",
            ),
        ];
        for (give, said) in odd {
            let client = open(&url, &schema().connector(move |_| Ok(give())));
            fails(&client, ErrorCode::InvalidArgument, said);
        }
    }
}

/// As a tunnel does: the library has one end of a pair, and a thread carries the bytes.
#[test]
fn a_connector_may_give_one_end_of_a_tunnel() {
    let both = Both::start();
    for url in both.urls() {
        let options = schema().connector(|to| {
            let (ours, theirs) = UnixStream::pair()?;
            let server = TcpStream::connect((to.host(), to.port()))?;
            let (mut up, mut down) = (theirs.try_clone()?, server.try_clone()?);
            let (mut theirs, mut server) = (theirs, server);
            std::thread::spawn(move || std::io::copy(&mut up, &mut server));
            std::thread::spawn(move || std::io::copy(&mut down, &mut theirs));
            Ok(ours.into())
        });
        let client = open(&url, &options);
        let guard = client.lock("k").expect("a lock");
        let _ = guard.release().expect("a release");
    }
}

#[test]
fn options_that_a_store_does_not_use_are_told() {
    let (tell, told) = channel();
    let dir = tempfile::tempdir().expect("a directory");
    let options = ClientOptions::new()
        .password(|| Ok(String::new()))
        .connector(|_| Err(std::io::Error::other("never called")))
        .tls_client_cert("/c", "/k")
        .on_warning(move |text| drop(tell.send(text.to_owned())));
    let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    let client = Client::open_with(&url, &options).expect("legal");
    let text = told.recv_timeout(WAIT_LIMIT).expect("a warning");
    for name in ["password", "connector", "tls_client_cert"] {
        assert!(text.contains(name), "{text}");
    }
    drop(client);
}

#[test]
fn a_forked_child_of_a_client_with_functions_is_told_so() {
    process::run_alone("forked child");
}

fn forked_child(_: &Path) {
    let both = Both::start();
    for url in both.urls() {
        let (hang, calls, end) = hanging();
        let options = schema().operation_timeout(SHORT).password(move || {
            hang();
            Ok("x".to_owned())
        });
        let client = open(&url, &options);
        fails(&client, ErrorCode::NetworkTimeout, "password provider");
        let child = process::in_child(|| {
            let error = look(&client).expect_err("a forked child");
            assert_eq!(error.code(), ErrorCode::Internal, "{error}");
        });
        assert_eq!(process::wait_child(child), Ok(0));
        assert_eq!(calls.load(SeqCst), 1);
        drop(end);
    }
}
