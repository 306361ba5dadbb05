//! Tests requests that the network delivers late: after the caller has given them up, and after its next request.

use std::any::Any;
use std::time::{Duration, Instant};

use crate::support::postgres;
use crate::support::postgres::Server;
use crate::support::proxy::{Address, Mode, Proxy};
use crate::support::redis::{RedisServer, directory};
use crate::support::verbs::{code, granted, id, key, patient, ttl};
use crate::support::{WAIT_LIMIT, eventually, set_server_clock};
use syncguard::{
    Backend, Call, CancelToken, Client, ErrorCode, ExtendOutcome, LockOptions, LookupBy, LossReason,
};

/// A server, a way to it that can delay requests, and one that cannot.
struct Network {
    proxy: Proxy,
    /// Through the proxy; its calls have all the time they need unless the test ends them.
    far: Client,
    /// Straight to the server.
    near: Client,
    /// Keeps the server running.
    _server: Box<dyn Any>,
}

/// Every store that a network lies before.
const NETWORKS: [fn() -> Network; 2] = [Network::redis, Network::postgres];

impl Network {
    fn postgres() -> Self {
        let server = Server::start(&[]);
        let proxy = Proxy::tcp(Address::port(server.port));
        let near = server.url();
        let far = near.replace(
            &format!(":{}/", server.port),
            &format!(":{}/", proxy.port()),
        );
        let near = Client::open_with(&near, &patient()).expect("a good URL");
        near.setup_schema().expect("set-up");
        Self {
            proxy,
            far: Client::open_with(&far, &patient()).expect("a good URL"),
            near,
            _server: Box::new(server),
        }
        .warmed()
    }

    fn redis() -> Self {
        let server = RedisServer::start(&[]);
        let socket = server.dir().join("proxy");
        let proxy = Proxy::unix(&socket, Address::Unix(server.socket()));
        let far = format!("redis+unix://{}", socket.display());
        Self {
            proxy,
            far: Client::open_with(&far, &patient()).expect("a good URL"),
            near: Client::open_with(&server.url(), &patient()).expect("a good URL"),
            _server: Box::new(server),
        }
        .warmed()
    }

    /// With a connection that can be held back, on a server that knows the scripts.
    fn warmed(self) -> Self {
        for client in [&self.far, &self.near] {
            let guard = client.lock("warm").expect("a free lock");
            assert!(guard.extend(WAIT_LIMIT).expect("an answer").is_extended());
            assert!(guard.release().expect("an answer").is_released());
        }
        self
    }

    /// What is left of the lock of `k`, by the store's own word.
    fn left_ms(&self) -> i64 {
        let probe = granted(
            self.near
                .acquire(&key("clock"), &id(), ttl(60_000), &Call::new()),
        );
        let now = probe.expires_at_ms - 60_000;
        let released = self.near.release(&probe.lock_id, &Call::new());
        assert!(released.expect("an answer").is_released());
        let lock = self.near.find(LookupBy::Key(&key("k")), &Call::new());
        lock.expect("a look").map_or(0, |l| l.expires_at_ms - now)
    }

    /// Delivers what was held back and waits until the server has answered it.
    fn deliver(&self) {
        self.proxy.reset_counts();
        self.proxy.let_go();
        self.proxy.wait_for(|counts| counts.from_server > 0);
    }
}

/// Ends a call soon, long before the server would refuse it.
fn short_call() -> Call<'static> {
    Call::new().within(Duration::from_millis(300))
}

#[test]
fn a_delayed_extend_does_not_undo_a_later_one() {
    for network in NETWORKS {
        let net = network();
        let guard = net.far.lock("k").expect("a free lock");
        net.proxy.hold_back();
        let held = guard.extend_with(Duration::from_secs(2), &short_call());
        assert_eq!(code(held), ErrorCode::NetworkTimeout);
        assert!(guard.remaining() <= Duration::from_secs(2));
        // On another connection. It may be answered before the store's clock has passed the time of the first one; then the guard
        // counts on the shorter lease until a renewal is answered after that.
        assert!(
            guard
                .extend(Duration::from_secs(60))
                .expect("an answer")
                .is_extended()
        );
        eventually("a lease that is certain", || {
            guard.remaining() > Duration::from_secs(30)
        });
        net.deliver();
        assert!(
            net.left_ms() > 30_000,
            "the delayed extend has cut the lease to {} ms",
            net.left_ms()
        );
        assert!(!guard.is_lost());
        assert!(guard.release().expect("an answer").is_released());
    }
}

#[test]
fn an_extend_that_may_still_arrive_in_time_counts() {
    for network in NETWORKS {
        let net = network();
        let guard = net.far.lock("k").expect("a free lock");
        net.proxy.reset_counts();
        net.proxy.hold_back();
        // Ended by the caller long before the call's own time is over: until then the server may apply it.
        let token = CancelToken::new();
        let cancel = token.clone();
        std::thread::scope(|scope| {
            let extend = scope.spawn(|| {
                guard.extend_with(
                    Duration::from_millis(9_000),
                    &Call::new().cancelled_by(&token),
                )
            });
            net.proxy.wait_for(|counts| counts.from_clients > 0);
            cancel.cancel();
            assert_eq!(code(extend.join().expect("no panic")), ErrorCode::Aborted);
        });
        assert!(
            guard
                .extend(Duration::from_secs(600))
                .expect("an answer")
                .is_extended()
        );
        assert!(
            guard.remaining() <= Duration::from_millis(9_000),
            "the guard counts on {:?}, and the delayed extend can still cut it",
            guard.remaining()
        );
        net.deliver();
        let left = net.left_ms();
        assert!(left <= 9_000, "it was still in time: {left}");
        assert!(guard.remaining() <= Duration::from_millis(9_000));
        assert!(!guard.is_lost());
    }
}

#[test]
fn a_shorter_lease_counts_before_its_extend_is_answered() {
    for network in NETWORKS {
        let net = network();
        let options = LockOptions::new().ttl(WAIT_LIMIT).no_heartbeat();
        let guard = net.far.lock_with("k", &options).expect("a free lock");
        // The store applies the extend and frees the lock a second later; its answer is on the way all that time.
        net.proxy.set(Mode::Trickle(WAIT_LIMIT));
        std::thread::scope(|scope| {
            let extend = scope.spawn(|| guard.extend(Duration::from_secs(1)));
            let wait = LockOptions::new().acquire_timeout(WAIT_LIMIT);
            let next = net.near.lock_with("k", &wait).expect("the lease ends");
            assert!(guard.is_lost(), "two holders: {:?} left", guard.remaining());
            assert_eq!(guard.loss(), Some(LossReason::NotRenewed));
            assert!(next.fence() > guard.fence());
            let outcome = extend.join().expect("no panic").expect("the loss ends it");
            assert!(!outcome.is_extended());
        });
        net.proxy.set(Mode::Pass);
    }
}

#[test]
fn a_delayed_acquire_takes_nothing() {
    for network in NETWORKS {
        let net = network();
        let backend: &dyn Backend = &net.far;
        net.proxy.hold_back();
        let tried = backend.acquire(&key("k"), &id(), ttl(600_000), &short_call());
        let error = tried.expect_err("no answer");
        assert_eq!(error.code(), ErrorCode::NetworkTimeout);
        assert!(error.may_have_applied());
        // Past the time that the request carries: its caller's, and what the two clocks may be apart by rounding.
        std::thread::sleep(Duration::from_secs(1));
        net.deliver();
        assert!(
            !net.near
                .is_locked_with(key("k"), &Call::new())
                .expect("a look"),
            "a lock without a holder"
        );
    }
}

#[test]
fn an_attempt_that_arrives_after_the_release_is_taken_back() {
    for network in NETWORKS {
        let net = network();
        net.proxy.reset_counts();
        net.proxy.hold_back();
        let far = net.far.clone();
        let options = LockOptions::new()
            .ttl(Duration::from_secs(600))
            .acquire_timeout(WAIT_LIMIT)
            .deadline(Instant::now() + Duration::from_secs(4));
        let locking = std::thread::spawn(move || far.lock_with("k", &options));
        net.proxy.wait_for(|counts| counts.from_clients > 0);
        // The connection breaks, the request does not: the second attempt is granted, and its lock released.
        net.proxy.reset_held();
        let guard = locking.join().expect("no panic").expect("granted");
        assert!(guard.release().expect("an answer").is_released());
        assert!(
            !net.near
                .is_locked_with(key("k"), &Call::new())
                .expect("a look")
        );
        net.deliver();
        eventually("the end of the lock that the first attempt took", || {
            !net.near
                .is_locked_with(key("k"), &Call::new())
                .expect("a look")
        });
    }
}

/// A guard of a client through a proxy, on a server whose clock the test moves: forward costs one more trip and no lock.
fn survives_steps(proxy: &Proxy, client: &Client, set_clock: &dyn Fn(i64)) {
    let long = Duration::from_secs(600);
    let guard = client.lock_with("k", &LockOptions::new().ttl(long));
    let guard = guard.expect("a free lock");
    // The server learns the script.
    assert!(guard.extend(long).expect("an answer").is_extended());
    set_clock(120);
    // The first one finds out what time it is; the next ones know.
    for trips in [2, 1, 1] {
        proxy.reset_counts();
        assert!(guard.extend(long).expect("an answer").is_extended());
        assert_eq!(proxy.counts().round_trips, trips);
    }
    assert!(!guard.is_lost());
    // So does an acquire.
    set_clock(240);
    let other = client.try_lock("other").expect("an answer");
    assert!(other.is_some());
    // A clock that was set back refuses nothing.
    set_clock(60);
    assert!(guard.extend(long).expect("an answer").is_extended());
}

#[test]
fn a_redis_clock_that_steps_forward_costs_no_guard_its_lock() {
    let dir = directory("sg-clock-");
    let (shim, clock) = (dir.path().join("clock.so"), dir.path().join("clock"));
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .arg(&shim)
        .arg("tests/support/common/clock_shim.c")
        .arg("-ldl")
        .status()
        .expect("a C compiler");
    assert!(built.success());
    let set_clock = |seconds: i64| set_server_clock(&clock, seconds);
    set_clock(0);
    let server = RedisServer::start_env(&[
        ("LD_PRELOAD", shim.to_str().expect("UTF-8")),
        ("SG_CLOCK", clock.to_str().expect("UTF-8")),
    ]);
    let socket = server.dir().join("proxy");
    let proxy = Proxy::unix(&socket, Address::Unix(server.socket()));
    let far = format!("redis+unix://{}", socket.display());
    let client = Client::open_with(&far, &patient()).expect("a good URL");
    survives_steps(&proxy, &client, &set_clock);
}

#[test]
fn a_postgres_clock_that_steps_forward_costs_no_guard_its_lock() {
    let mut server = Server::start(&[]);
    server.take_clock();
    let proxy = Proxy::tcp(Address::port(server.port));
    let far = server.url().replace(
        &format!(":{}/", server.port),
        &format!(":{}/", proxy.port()),
    );
    let client = Client::open_with(&far, &patient()).expect("a good URL");
    client.setup_schema().expect("set-up");
    survives_steps(&proxy, &client, &|seconds| server.set_clock(seconds));
}

#[test]
fn bare_extends_are_refused_late_too() {
    for network in NETWORKS {
        let net = network();
        let backend: &dyn Backend = &net.far;
        let grant = granted(backend.acquire(&key("k"), &id(), ttl(60_000), &Call::new()));
        net.proxy.hold_back();
        let held = backend.extend(&grant.lock_id, ttl(1_000), &short_call());
        assert_eq!(code(held), ErrorCode::NetworkTimeout);
        std::thread::sleep(Duration::from_secs(1));
        let later = backend.extend(&grant.lock_id, ttl(60_000), &Call::new());
        assert!(matches!(later, Ok(ExtendOutcome::Extended(_))));
        net.deliver();
        assert!(net.left_ms() > 30_000);
    }
}

/// A process that is stopped until this is dropped.
struct Stopped(nix::unistd::Pid);

impl Stopped {
    fn new(pid: i32) -> Self {
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("a process");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(self.0, nix::sys::signal::Signal::SIGCONT);
    }
}

#[test]
fn an_acquire_whose_commit_outlasts_its_time_is_undone() {
    let server = Server::start(&["synchronous_standby_names=none", "synchronous_commit=local"]);
    let near = postgres::set_up(&server, "s");
    server.sql("CREATE ROLE waits LOGIN SUPERUSER; ALTER ROLE waits SET synchronous_commit = on");
    let options = patient().schema("s");
    let client = Client::open_with(&server.url_of("waits"), &options).expect("a good URL");
    let deadline = Instant::now() + Duration::from_secs(2);
    let lease = LockOptions::new()
        .ttl(Duration::from_secs(600))
        .deadline(deadline);
    let stopped = std::thread::scope(|scope| {
        let call = scope.spawn(|| client.try_lock_with("k", &lease).map(drop));
        // The server has met the request in time, and waits for a standby that it does not have.
        let pid = postgres::wait_for("the commit", || {
            let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            server.sql(waiting).trim().parse().ok()
        });
        let stopped = Stopped::new(pid);
        let error = call.join().expect("no panic").expect_err("no answer");
        assert!(error.may_have_applied(), "{error}");
        stopped
    });
    // The undoing finds nothing while the commit is not over, also when the time of the request has passed.
    std::thread::sleep(Duration::from_millis(100));
    drop(stopped);
    eventually("the end of the lock", || {
        let over = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        server.sql(over).trim() == "0" && !near.is_locked(&key("k"), &Call::new()).expect("a look")
    });
}
