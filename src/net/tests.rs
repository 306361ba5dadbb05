//! A socket keeps its deadline whatever the other side does.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Type};

use super::proxy::{Address, Mode, Proxy};
use crate::backend::call::Call;
use crate::backend::limits::Limits;
use crate::net::connect;
use crate::net::dialer::Dialer;
use crate::net::socket::Socket;
use crate::net::uri::Endpoint;
use crate::runtime::cancel::CancelToken;
use crate::runtime::process::Owner;
use crate::types::error::{ErrorCode, LockError};

/// Far more than a loaded machine needs for anything here.
const AMPLE: Duration = Duration::from_secs(60);
/// What the tests of deadlines wait for.
const SHORT: Duration = Duration::from_millis(150);

/// A directory whose path is short enough for a socket's name, wherever `TMPDIR` points.
fn directory() -> tempfile::TempDir {
    let given = std::env::temp_dir();
    let short = given.as_os_str().len() <= 60;
    let parent = if short { given } else { "/tmp".into() };
    tempfile::tempdir_in(parent).expect("a directory")
}

fn within(timeout: Duration) -> Limits<'static> {
    Limits::enter(Owner::current(), timeout, &Call::new()).expect("time is left")
}

fn cancellable(token: &CancelToken) -> Limits<'_> {
    Limits::enter(Owner::current(), AMPLE, &Call::new().cancelled_by(token)).expect("time is left")
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

fn tcp(address: SocketAddr) -> Endpoint {
    Endpoint::Tcp {
        host: address.ip().to_string(),
        port: address.port(),
    }
}

/// A connection and its other end.
fn pair() -> (Socket, TcpStream) {
    let (listener, address) = listener();
    let socket =
        Socket::connect(&tcp(address), &Dialer::default(), &within(AMPLE)).expect("connected");
    (socket, listener.accept().expect("a client").0)
}

/// A server that sends back what it gets, on as many connections as come.
fn echo() -> SocketAddr {
    let (listener, address) = listener();
    thread::spawn(move || {
        for peer in listener.incoming() {
            let mut peer = peer.expect("a client");
            thread::spawn(move || io::copy(&mut peer.try_clone().expect("a twin"), &mut peer));
        }
    });
    address
}

/// An address that refuses, as long as what is returned lives: the port is taken and has no listener.
fn refusing() -> (SocketAddr, socket2::Socket) {
    let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let free: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    socket.bind(&free.into()).expect("a free port");
    let address = socket.local_addr().expect("bound").as_socket();
    (address.expect("an address"), socket)
}

/// An address that accepts no connection and refuses none, as long as what is returned lives.
fn blackhole() -> (SocketAddr, Vec<socket2::Socket>) {
    let listener = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let free: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    listener.bind(&free.into()).expect("a free port");
    listener.listen(0).expect("listening");
    let address = listener.local_addr().expect("bound");
    let mut all = vec![listener];
    // The queue takes a few; the kernel drops what comes then.
    for _ in 0..8 {
        let client = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        client.set_nonblocking(true).expect("a flag");
        let _ = client.connect(&address);
        all.push(client);
    }
    (address.as_socket().expect("an address"), all)
}

/// A unix socket whose queue is full, as long as what is returned lives.
fn full_unix(path: &std::path::Path) -> Vec<socket2::Socket> {
    let address = SockAddr::unix(path).expect("a path");
    let listener = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    listener.bind(&address).expect("bound");
    listener.listen(0).expect("listening");
    let mut all = vec![listener];
    loop {
        let client = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        client.set_nonblocking(true).expect("a flag");
        match client.connect(&address) {
            Ok(()) => all.push(client),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return all,
            Err(e) => panic!("{e}"),
        }
    }
}

fn exchange(socket: &mut Socket, request: &[u8], limits: &Limits<'_>) -> Result<(), LockError> {
    socket.write_all(request, limits)?;
    let mut reply = vec![0; request.len()];
    let mut n = 0;
    while n < reply.len() {
        n += socket.read(&mut reply[n..], limits)?;
    }
    assert_eq!(reply, request);
    Ok(())
}

/// Runs `call` with a token that another thread cancels once it is under way.
fn cancelled<T>(call: impl FnOnce(&Limits<'_>) -> Result<T, LockError>) -> LockError {
    let token = CancelToken::new();
    let limits = cancellable(&token);
    let begun = Instant::now();
    let other = token.clone();
    let canceller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        other.cancel();
    });
    let error = call(&limits).err().expect("a cancel");
    assert!(begun.elapsed() < AMPLE / 2, "{error:?}");
    assert_eq!(error.code(), ErrorCode::Aborted, "{error:?}");
    canceller.join().expect("it ends");
    error
}

/// Runs `call`, which must end by its deadline. The best of three tries counts: the machine may be busy.
fn overdue<T>(mut call: impl FnMut(&Limits<'_>) -> Result<T, LockError>) -> LockError {
    let mut best = Duration::MAX;
    let mut last = None;
    for _ in 0..3 {
        let begun = Instant::now();
        let error = call(&within(SHORT)).err().expect("a timeout");
        assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error:?}");
        assert!(begun.elapsed() >= SHORT - Duration::from_millis(1));
        best = best.min(begun.elapsed());
        last = Some(error);
    }
    assert!(best < SHORT * 20, "{best:?}");
    last.expect("three tries")
}

#[test]
fn a_request_is_answered() {
    let endpoint = Endpoint::Tcp {
        host: "localhost".to_owned(),
        port: echo().port(),
    };
    let mut socket =
        Socket::connect(&endpoint, &Dialer::default(), &within(AMPLE)).expect("connected");
    assert!(socket.is_quiet() && socket.channel_binding().is_none());
    exchange(&mut socket, b"ping", &within(AMPLE)).expect("answered");
    let token = CancelToken::new();
    exchange(&mut socket, b"with a token", &cancellable(&token)).expect("answered");
    assert!(socket.is_quiet());
}

#[test]
fn a_unix_socket_is_like_any_other() {
    let dir = directory();
    let path = dir.path().join("s");
    let proxy = Proxy::unix(&path, Address::Tcp(echo()));
    let mut socket = Socket::connect(
        &Endpoint::Unix(path.clone()),
        &Dialer::default(),
        &within(AMPLE),
    )
    .expect("connected");
    exchange(&mut socket, b"ping", &within(AMPLE)).expect("answered");
    assert_eq!(proxy.counts().round_trips, 1);
    drop(proxy);
    let code = |path: PathBuf| {
        let error = Socket::connect(&Endpoint::Unix(path), &Dialer::default(), &within(AMPLE))
            .err()
            .expect("no peer");
        assert!(!error.may_have_applied());
        error.code()
    };
    assert_eq!(code(path), ErrorCode::ServiceUnavailable);
    assert_eq!(
        code(dir.path().join("x".repeat(200))),
        ErrorCode::InvalidArgument
    );
    assert_eq!(code(dir.path().to_owned()), ErrorCode::ServiceUnavailable);
    for path in ["", "\0abstract", "/tmp/a\0b"] {
        assert_eq!(code(path.into()), ErrorCode::InvalidArgument);
    }
}

#[test]
fn a_refusal_comes_at_once() {
    let (address, _kept) = refusing();
    let begun = Instant::now();
    let error = Socket::connect(&tcp(address), &Dialer::default(), &within(AMPLE))
        .err()
        .expect("refused");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert!(!error.may_have_applied() && error.message().contains(&address.to_string()));
    assert!(begun.elapsed() < AMPLE / 2);
}

#[test]
fn what_never_accepts_ends_by_the_deadline() {
    let (address, _full) = blackhole();
    let error = overdue(|limits| Socket::connect(&tcp(address), &Dialer::default(), limits));
    assert!(!error.may_have_applied());
    let error = cancelled(|limits| Socket::connect(&tcp(address), &Dialer::default(), limits));
    assert!(!error.may_have_applied());
}

#[test]
fn a_full_unix_queue_is_waited_for() {
    let dir = directory();
    let endpoint = Endpoint::Unix(dir.path().join("s"));
    let full = full_unix(&dir.path().join("s"));
    assert!(
        !overdue(|limits| Socket::connect(&endpoint, &Dialer::default(), limits))
            .may_have_applied()
    );
    assert!(
        !cancelled(|limits| Socket::connect(&endpoint, &Dialer::default(), limits))
            .may_have_applied()
    );
    let waiting = thread::spawn(move || {
        Socket::connect(&endpoint, &Dialer::default(), &within(AMPLE)).map(drop)
    });
    for _ in 1..full.len() {
        full[0].accept().expect("one of the queue");
    }
    waiting.join().expect("it ends").expect("connected");
}

#[test]
fn a_dead_first_address_costs_little() {
    let (dead, _full) = blackhole();
    let good = echo();
    let (refused, _kept) = refusing();
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        let found = connect::any(&[dead, good], &within(AMPLE));
        found.map(drop).expect("the second");
        best = best.min(begun.elapsed());
    }
    assert!(best < AMPLE / 10, "{best:?}");
    for addresses in [[refused, good], [good, dead]] {
        let found = connect::any(&addresses, &within(AMPLE));
        found.map(drop).expect("the good one");
    }
    let error = connect::any(&[refused, refused], &within(AMPLE))
        .err()
        .expect("refused");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert_eq!(
        connect::any(&[refused, dead], &within(SHORT))
            .err()
            .expect("a timeout")
            .code(),
        ErrorCode::NetworkTimeout
    );
    assert!(connect::any(&[], &within(AMPLE)).is_err());
}

#[test]
fn a_silent_peer_ends_by_the_deadline() {
    let (mut socket, _peer) = pair();
    let error = overdue(|limits| socket.read(&mut [0; 8], limits));
    assert!(error.may_have_applied());
}

#[test]
fn a_peer_that_does_not_read_ends_by_the_deadline() {
    let (mut socket, _peer) = pair();
    let much = vec![0; 64 << 20];
    overdue(|limits| socket.write_all(&much, limits));
    cancelled(|limits| socket.write_all(&much, limits));
}

#[test]
fn a_trickle_ends_by_the_deadline() {
    let proxy = Proxy::tcp(Address::Tcp(echo()));
    let endpoint = Endpoint::Tcp {
        host: "127.0.0.1".to_owned(),
        port: proxy.port(),
    };
    proxy.set(Mode::Trickle(Duration::from_millis(10)));
    overdue(|limits| {
        let mut socket = Socket::connect(&endpoint, &Dialer::default(), limits)?;
        exchange(&mut socket, &[7; 10_000], limits)
    });
}

#[test]
fn an_endless_reply_ends_by_the_deadline() {
    let (mut socket, mut peer) = pair();
    thread::spawn(move || while peer.write_all(&[0; 4096]).is_ok() {});
    overdue(|limits| {
        loop {
            socket.read(&mut [0; 512], limits)?;
        }
        #[allow(unreachable_code)]
        Ok(())
    });
}

#[test]
fn a_cancel_ends_a_call_in_flight() {
    let (mut socket, mut peer) = pair();
    let error = cancelled(|limits| socket.read(&mut [0; 8], limits));
    assert!(error.may_have_applied());
    // The next call has a token of its own and does not feel the old one.
    let token = CancelToken::new();
    peer.write_all(b"x").expect("sent");
    assert_eq!(
        socket
            .read(&mut [0; 8], &cancellable(&token))
            .expect("a byte"),
        1
    );
    cancelled(|limits| socket.read(&mut [0; 8], limits));
    overdue(|limits| socket.read(&mut [0; 8], limits));
}

#[test]
fn a_wake_up_that_came_late_cancels_no_other_call() {
    let (mut socket, _peer) = pair();
    cancelled(|limits| socket.read(&mut [0; 8], limits));
    for _ in 0..3 {
        // As left behind by a token that was cancelled just after its call.
        socket.descriptor.wake_for_test();
        let token = CancelToken::new();
        let limits = Limits::enter(Owner::current(), SHORT, &Call::new().cancelled_by(&token))
            .expect("time is left");
        let error = socket.read(&mut [0; 8], &limits).expect_err("a timeout");
        assert_eq!(error.code(), ErrorCode::NetworkTimeout);
    }
}

#[test]
fn a_storm_of_signals_fails_no_call() {
    signal_hook::flag::register(
        signal_hook::consts::SIGUSR2,
        Arc::new(AtomicBool::new(false)),
    )
    .expect("a handler");
    let address = echo();
    let stop = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicUsize::new(0));
    let me = nix::sys::pthread::pthread_self();
    let storm = thread::spawn({
        let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
        move || {
            while !stop.load(Ordering::Relaxed) {
                nix::sys::pthread::pthread_kill(me, nix::sys::signal::Signal::SIGUSR2)
                    .expect("sent");
                sent.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_micros(100));
            }
        }
    });
    let token = CancelToken::new();
    let mut calls = 0;
    while sent.load(Ordering::Relaxed) < 2_000 {
        let mut socket = Socket::connect(&tcp(address), &Dialer::default(), &cancellable(&token))
            .expect("connected");
        for _ in 0..10 {
            exchange(&mut socket, b"ping", &cancellable(&token)).expect("answered");
            exchange(&mut socket, b"ping", &within(AMPLE)).expect("answered");
            calls += 1;
        }
        assert!(socket.is_quiet());
    }
    let (mut socket, _peer) = pair();
    overdue(|limits| socket.read(&mut [0; 8], limits));
    stop.store(true, Ordering::Relaxed);
    storm.join().expect("it ends");
    assert!(calls > 0);
}

#[test]
fn the_end_of_the_stream_is_an_error() {
    let (mut socket, mut peer) = pair();
    peer.write_all(b"x").expect("sent");
    wait_until(|| !socket.is_quiet());
    drop(peer);
    assert!(!socket.is_quiet());
    assert_eq!(socket.read(&mut [0; 8], &within(AMPLE)).expect("a byte"), 1);
    let error = socket
        .read(&mut [0; 8], &within(AMPLE))
        .expect_err("the end");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert!(error.may_have_applied());
}

#[cfg(target_os = "linux")]
#[test]
fn a_peer_that_went_away_raises_no_signal() {
    use std::os::unix::net::UnixListener;

    use nix::sys::signal::{SigSet, Signal};
    use nix::sys::signalfd::{SfdFlags, SignalFd};

    let dir = directory();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).expect("bound");
    let unix = Socket::connect(&Endpoint::Unix(path), &Dialer::default(), &within(AMPLE))
        .expect("connected");
    drop(listener.accept().expect("a client"));
    let (tcp, mut peer) = pair();
    // Unread bytes turn its close into a reset.
    let mut tcp = tcp;
    tcp.write_all(b"unread", &within(AMPLE)).expect("sent");
    peer.read_exact(&mut [0]).expect("a byte");
    drop(peer);

    // A blocked signal is kept even where the process ignores it.
    let mask = SigSet::from(Signal::SIGPIPE);
    mask.thread_block().expect("a mask");
    let seen = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .expect("a descriptor");
    for mut socket in [unix, tcp] {
        wait_until(|| !socket.is_quiet());
        for _ in 0..3 {
            let error = socket.write_all(b"x", &within(AMPLE)).expect_err("broken");
            assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
        }
    }
    assert_eq!(seen.read_signal().expect("readable"), None);
}

#[test]
fn the_proxy_loses_holds_and_cuts() {
    let proxy = Proxy::tcp(Address::Tcp(echo()));
    let endpoint = Endpoint::Tcp {
        host: "127.0.0.1".to_owned(),
        port: proxy.port(),
    };
    let connect =
        || Socket::connect(&endpoint, &Dialer::default(), &within(AMPLE)).expect("connected");
    let mut socket = connect();
    exchange(&mut socket, b"1", &within(AMPLE)).expect("answered");
    exchange(&mut socket, b"2", &within(AMPLE)).expect("answered");
    assert_eq!(proxy.counts().round_trips, 2);

    proxy.cut_next_replies(1);
    let error = exchange(&mut socket, b"3", &within(AMPLE)).expect_err("cut");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert_eq!((proxy.counts().from_server, proxy.cuts_left()), (3, 0));
    wait_until(|| proxy.open() == 0);

    let mut socket = connect();
    proxy.set(Mode::Hold);
    socket.write_all(b"4", &within(AMPLE)).expect("sent");
    proxy.wait_for(|c| c.from_clients == 4);
    socket.read(&mut [0], &within(SHORT)).expect_err("held");
    proxy.set(Mode::Pass);
    assert_eq!(socket.read(&mut [0], &within(AMPLE)).expect("late"), 1);

    proxy.set(Mode::Swallow);
    exchange(&mut socket, b"5", &within(SHORT)).expect_err("lost");
    exchange(&mut connect(), b"6", &within(SHORT)).expect_err("never answered");
    proxy.set(Mode::CutReply);
    exchange(&mut connect(), b"7", &within(AMPLE)).expect_err("cut");
    proxy.set(Mode::Pass);
    let mut socket = connect();
    exchange(&mut socket, b"8", &within(AMPLE)).expect("answered");
    proxy.close_all();
    wait_until(|| !socket.is_quiet());
    proxy.set(Mode::Close);
    exchange(&mut connect(), b"9", &within(AMPLE)).expect_err("closed");
}

#[test]
fn errors_of_connecting_have_codes() {
    use nix::errno::Errno;
    for (errno, code) in [
        (Errno::EMFILE, ErrorCode::RateLimited),
        (Errno::ENFILE, ErrorCode::RateLimited),
        (Errno::ETIMEDOUT, ErrorCode::NetworkTimeout),
        (Errno::ECONNREFUSED, ErrorCode::ServiceUnavailable),
        (Errno::ENETUNREACH, ErrorCode::ServiceUnavailable),
        (Errno::EACCES, ErrorCode::AuthFailed),
    ] {
        let error = connect::failed("x", ErrorCode::AuthFailed, errno.into());
        assert_eq!(error.code(), code);
    }
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + AMPLE;
    while !condition() {
        assert!(Instant::now() < deadline, "it never came");
        thread::sleep(Duration::from_millis(1));
    }
}
