//! Tests waiting on real stores: a release elsewhere wakes the waiter, and a waiter that no release wakes is served too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::postgres::{Bouncer, Server};
use crate::support::proxy::{Address, Mode, Proxy};
use crate::support::redis::RedisServer;
use crate::support::{WAIT_LIMIT, ended, eventually, threads_named};
use syncguard::{
    AcquireOutcome, Backend, Call, Client, ClientOptions, ErrorCode, Jitter, Key, LockError,
    LockId, LockOptions, Ttl, Watch,
};

/// Options under which polling alone would take far longer than any test waits.
fn patient() -> LockOptions {
    LockOptions::new()
        .acquire_timeout(WAIT_LIMIT * 20)
        .retry_delay(WAIT_LIMIT * 10)
        .jitter(Jitter::None)
        .ttl(WAIT_LIMIT * 10)
}

/// Options that fall back to polling soon.
fn polling() -> LockOptions {
    LockOptions::new()
        .acquire_timeout(WAIT_LIMIT * 2)
        .retry_delay(Duration::from_millis(20))
}

fn clients(url: &str) -> (Client, Client) {
    let options = ClientOptions::new()
        .operation_timeout(WAIT_LIMIT)
        .connect_timeout(WAIT_LIMIT);
    let open = || Client::open_with(url, &options).expect("a legal URL");
    (open(), open())
}

/// A waiter of one client is called by the release of another, again and again.
fn called_by_another(here: &Client, there: &Client, in_line: impl Fn() -> bool) {
    let mut best = WAIT_LIMIT;
    for round in 0..5 {
        // A lease that ended while the test waits would serve the waiter too.
        let guard = there.lock_with("k", &patient()).expect("a lock");
        let fence = guard.fence();
        let other = here.clone();
        let waiter =
            std::thread::spawn(move || other.lock_with("k", &patient()).map(|g| g.fence()));
        eventually("a waiter that listens", &in_line);
        let begun = Instant::now();
        drop(guard);
        eventually("a waiter that is called", || waiter.is_finished());
        best = best.min(begun.elapsed());
        assert!(ended(waiter).expect("the lock") > fence, "round {round}");
    }
    // The connection is looked after every ten seconds, which may call too.
    assert!(
        best < Duration::from_secs(5),
        "no release woke it: {best:?}"
    );
}

/// No release wakes the waiter when a holder dies. The waiter looks when the lease ends, however long its own delay.
fn outlived((here, there): (Client, Client)) {
    let key = Key::new("k").expect("a key");
    let ttl = Ttl::new(Duration::from_millis(300)).expect("a ttl");
    for round in 1..=3 {
        let id = LockId::random().expect("randomness");
        let granted = there
            .acquire(&key, &id, ttl, &Call::new())
            .expect("an answer");
        assert!(matches!(granted, AcquireOutcome::Acquired(_)));
        let other = here.clone();
        let waiter =
            std::thread::spawn(move || other.lock_with("k", &patient()).map(|g| g.fence().get()));
        eventually("the lock of the dead", || waiter.is_finished());
        let fence = ended(waiter).expect("the lock");
        assert_eq!(fence, 2 * round);
    }
}

#[test]
fn a_dead_holder_is_outlived_on_redis() {
    let server = RedisServer::start(&[]);
    outlived(clients(&server.url()));
}

#[test]
fn a_dead_holder_is_outlived_on_postgres() {
    let server = Server::shared();
    outlived(postgres(&server, &server.url(), "outlived"));
}

#[test]
fn a_dead_holder_is_outlived_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("locks.db");
    outlived(clients(&format!("sqlite:{}", file.display())));
}

fn subscribers(server: &RedisServer) -> i64 {
    server
        .cli(&["PUBSUB", "NUMSUB", "syncguard:k:freed"])
        .list()[1]
        .int()
}

#[test]
fn redis_wakes_every_waiter() {
    let server = RedisServer::start(&[]);
    let (here, there) = clients(&server.url());
    called_by_another(&here, &there, || subscribers(&server) == 1);
    // The subscription and its thread end with the last waiter.
    eventually("the end of the subscription", || subscribers(&server) == 0);
}

#[test]
fn a_release_that_publishes_nothing_is_found_by_polling() {
    let server = RedisServer::start(&[]);
    let (here, there) = clients(&server.url());
    let guard = there.lock("k").expect("a lock");
    let waiter =
        std::thread::spawn(move || here.lock_with("k", &polling()).map(|g| g.fence().get()));
    eventually("a subscriber", || subscribers(&server) == 1);
    // As a library does that knows nothing of channels.
    let index = format!("syncguard:id:{}", guard.lock_id().as_str());
    server.cli(&["DEL", "syncguard:k", &index]);
    assert_eq!(ended(waiter).expect("the lock"), 2);
}

#[test]
fn a_subscription_that_is_killed_all_the_time_costs_no_progress() {
    let server = RedisServer::start(&[]);
    robbed(clients(&server.url()), 10, || {
        let _ = server.try_cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    });
}

/// One that waits for the lock, and gives its fence.
fn waiter(client: &Client) -> JoinHandle<Result<u64, LockError>> {
    let client = client.clone();
    std::thread::spawn(move || client.lock_with("k", &polling()).map(|g| g.fence().get()))
}

/// Waiters get the lock in the end, though `kill` ends the connection that listens again and again.
fn robbed((here, there): (Client, Client), rounds: u64, kill: impl Fn() + Sync) {
    /// Also when the test fails: else the scope would wait for ever.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                kill();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        for n in 1..=rounds {
            let guard = there.lock_with("k", &polling()).expect("a lock");
            let waiter = waiter(&here);
            std::thread::sleep(Duration::from_millis(50));
            drop(guard);
            assert_eq!(ended(waiter).expect("the lock"), 2 * n);
        }
    });
}

#[test]
fn a_user_without_channels_releases_and_waits_all_the_same() {
    let server = RedisServer::start(&[]);
    server.cli(&[
        "ACL",
        "SETUSER",
        "quiet",
        "on",
        ">secret",
        "resetchannels",
        "~syncguard:*",
        "+@all",
        "-@pubsub",
    ]);
    let url = server.url();
    let join = if url.contains('?') { '&' } else { '?' };
    let (here, there) = clients(&format!("{url}{join}user=quiet&pass=secret"));
    let guard = there.lock("k").expect("a lock");
    let waiter =
        std::thread::spawn(move || here.lock_with("k", &polling()).map(|g| g.fence().get()));
    std::thread::sleep(Duration::from_millis(100));
    assert!(guard.release().expect("a release").is_released());
    assert_eq!(ended(waiter).expect("the lock"), 2);
}

#[test]
fn the_documented_rights_are_enough_to_be_called() {
    let server = RedisServer::start(&[]);
    let rights = include_str!("../../docs/wire-format.md")
        .lines()
        .find_map(|l| l.strip_prefix("ACL SETUSER locks on >password "))
        .expect("the documented line");
    let more = "+publish +subscribe +unsubscribe +ping &syncguard:*";
    assert!(include_str!("../../docs/wire-format.md").contains(more));
    let mut command = vec!["ACL", "SETUSER", "locks", "on", ">password"];
    command.extend(rights.split(' '));
    command.extend(more.split(' '));
    server.cli(&command);
    let (here, there) = clients(&format!("{}?user=locks&pass=password", server.url()));
    called_by_another(&here, &there, || subscribers(&server) == 1);
}

#[test]
fn a_restart_of_redis_is_waited_out() {
    let mut server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (here, there) = clients(&server.url());
    let guard = there
        .lock_with("k", &LockOptions::new().ttl(Duration::from_secs(60)))
        .expect("a lock");
    let waiter =
        std::thread::spawn(move || here.lock_with("k", &polling()).map(|g| g.fence().get()));
    eventually("a subscriber", || subscribers(&server) == 1);
    server.restart();
    eventually("a subscriber again", || subscribers(&server) == 1);
    eventually("a release", || guard.release().is_ok());
    assert_eq!(ended(waiter).expect("the lock"), 2);
}

#[test]
fn a_waiter_times_out_as_asked_with_a_dead_server() {
    let mut server = RedisServer::start(&[]);
    let options = ClientOptions::new().operation_timeout(Duration::from_millis(300));
    let here = Client::open_with(&server.url(), &options).expect("a legal URL");
    let guard = Client::open(&server.url())
        .expect("a legal URL")
        .lock("k")
        .expect("a lock");
    let waiter = std::thread::spawn(move || {
        here.lock_with(
            "k",
            // Long enough to be seen while it waits, also on a busy machine.
            &LockOptions::new().acquire_timeout(Duration::from_secs(4)),
        )
        .map(drop)
    });
    eventually("a subscriber", || subscribers(&server) == 1);
    server.kill();
    let error = ended(waiter).expect_err("no server");
    assert!(
        matches!(
            error.code(),
            ErrorCode::ServiceUnavailable
                | ErrorCode::NetworkTimeout
                | ErrorCode::AcquisitionTimeout
        ),
        "{error}"
    );
    std::mem::forget(guard);
}

#[test]
fn sqlite_waiters_notice_other_clients() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let (here, there) = clients(&url);
    called_by_another(&here, &there, || threads_named("syncguard-poll") >= 1);
}

#[test]
fn a_watch_ends_with_its_drop() {
    let server = RedisServer::start(&[]);
    let client = Client::open(&server.url()).expect("a legal URL");
    let called = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&called);
    let watch = client
        .watch(
            &Key::new("k").expect("a key"),
            Arc::new(move || flag.store(true, SeqCst)),
        )
        .expect("a watch");
    eventually("the first call", || called.load(SeqCst));
    called.store(false, SeqCst);
    client
        .lock("k")
        .expect("a lock")
        .release()
        .expect("a release")
        .expect_released();
    eventually("a call", || called.load(SeqCst));
    drop(watch);
    eventually("the end of the subscription", || subscribers(&server) == 0);
}

/// A watch of the caller that panics whenever it is called.
fn planted(client: &Client) -> Watch {
    let key = Key::new("k").expect("a key");
    let watch = client.watch(&key, Arc::new(|| panic!("planted")));
    watch.expect("a watch")
}

#[test]
fn a_watch_that_panics_keeps_no_call_from_others() {
    let server = RedisServer::start(&[]);
    let (here, there) = clients(&server.url());
    let _planted = planted(&here);
    called_by_another(&here, &there, || subscribers(&server) == 1);
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let (here, there) = clients(&url);
    let _planted = planted(&here);
    called_by_another(&here, &there, || threads_named("syncguard-poll") >= 1);
}

fn postgres(server: &Server, url: &str, schema: &str) -> (Client, Client) {
    let options = ClientOptions::new().schema(schema);
    let open = || Client::open_with(url, &options).expect("a legal URL");
    Client::open_with(&server.url(), &options)
        .expect("a legal URL")
        .setup_schema()
        .expect("a schema");
    (open(), open())
}

/// How many sessions say that a caller waits.
fn listeners(server: &Server) -> usize {
    let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted";
    server.sql(sql).trim().parse().expect("a count")
}

#[test]
fn postgres_wakes_every_waiter() {
    let server = Server::start(&[]);
    let (here, there) = postgres(&server, &server.url(), "calls");
    called_by_another(&here, &there, || listeners(&server) == 1);
    eventually("the end of the listening", || listeners(&server) == 0);
}

#[test]
fn without_a_waiter_no_notification_is_sent() {
    let server = Server::start(&[]);
    let (here, _) = postgres(&server, &server.url(), "quiet");
    let channel = server.sql("SELECT substring(prosrc from 'syncguard_[0-9a-f]{32}') FROM pg_proc WHERE prosrc LIKE '%pg_notify(''syncguard%' LIMIT 1");
    let mut session = server.session();
    session.run(&format!("LISTEN \"{}\"", channel.trim()));
    here.lock("k")
        .expect("a lock")
        .release()
        .expect("a release")
        .expect_released();
    // A notification would be shown with the next answer of psql.
    let shown = session.run("SELECT 'nothing else'").join("\n");
    assert!(!shown.contains("otification"), "{shown}");
}

#[test]
fn a_listening_session_that_is_killed_costs_no_progress() {
    let server = Server::start(&[]);
    robbed(postgres(&server, &server.url(), "killed"), 5, || {
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'");
    });
}

#[test]
fn behind_a_pooler_waiters_poll_and_leave_nothing_in_its_sessions() {
    let server = Server::start(&[]);
    let bouncer = Bouncer::start(&server, 8);
    let (here, there) = postgres(&server, &bouncer.url(), "pooled");
    for n in 1..=3 {
        let guard = there.lock("k").expect("a lock");
        let other = here.clone();
        let waiter =
            std::thread::spawn(move || other.lock_with("k", &polling()).map(|g| g.fence().get()));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(listeners(&server), 0);
        drop(guard);
        assert_eq!(ended(waiter).expect("the lock"), 2 * n);
    }
}

/// Waiters of `here`, whose messages `proxy` drops, get the lock all the same, and time out as asked.
fn served_in_silence(proxy: &Proxy, here: &Client, there: &Client, in_line: impl Fn() -> bool) {
    // A message may be later than its waiter: that one is served by then.
    for n in (1..=50).take_while(|n| *n <= 3 || proxy.muted() == 0) {
        let guard = there.lock_with("k", &polling()).expect("a lock");
        let waiter = waiter(here);
        eventually("a waiter that listens", &in_line);
        drop(guard);
        assert_eq!(ended(waiter).expect("the lock"), 2 * n);
    }
    let guard = there.lock_with("k", &polling()).expect("a lock");
    let hasty = LockOptions::new().acquire_timeout(Duration::from_millis(300));
    let error = here
        .lock_with("k", &hasty)
        .map(drop)
        .expect_err("still held");
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
    drop(guard);
    assert!(proxy.muted() > 0, "there was nothing to drop");
}

#[test]
fn messages_of_redis_that_are_dropped_cost_no_progress() {
    let server = RedisServer::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let proxy = Proxy::unix(&path, Address::Unix(server.socket()));
    proxy.set(Mode::Mute(b"$7\r\nmessage\r\n"));
    let here = Client::open(&format!("redis+unix://{}", path.display())).expect("a legal URL");
    let there = Client::open(&server.url()).expect("a legal URL");
    served_in_silence(&proxy, &here, &there, || subscribers(&server) == 1);
}

#[test]
fn notifications_of_postgres_that_are_dropped_cost_no_progress() {
    let server = Server::start(&[]);
    let proxy = Proxy::tcp(Address::port(server.port));
    // The channel's name.
    proxy.set(Mode::Mute(b"syncguard_"));
    let through = server
        .url()
        .replace(&server.port.to_string(), &proxy.port().to_string());
    let (here, _) = postgres(&server, &through, "mute");
    let (_, there) = postgres(&server, &server.url(), "mute");
    served_in_silence(&proxy, &here, &there, || listeners(&server) == 1);
}

/// A connection that dies without a word, as behind a firewall that forgets it, is found out and made again. No waiter here polls.
fn heard_again_after_silence(proxy: &Proxy, here: &Client, there: &Client) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let freed = move || {
        count.fetch_add(1, SeqCst);
    };
    let watch = here.watch(&Key::new("k").expect("a key"), Arc::new(freed));
    let _watch = watch.expect("a watch");
    let called_after = |what: &str, cause: &dyn Fn()| {
        let before = calls.load(SeqCst);
        cause();
        eventually(what, || calls.load(SeqCst) > before);
    };
    // It may have come before this thread looks.
    eventually("the first call", || calls.load(SeqCst) > 0);
    let made = proxy.counts().connections;
    proxy.set(Mode::Swallow);
    eventually("another connection", || proxy.counts().connections > made);
    called_after("the call of the new connection", &|| proxy.set(Mode::Pass));
    called_after("a release that is heard", &|| {
        drop(there.lock("k").expect("a lock"));
    });
}

#[test]
fn a_connection_to_redis_that_dies_silently_is_made_again() {
    let server = RedisServer::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let proxy = Proxy::unix(&path, Address::Unix(server.socket()));
    let options = ClientOptions::new().connect_timeout(Duration::from_secs(1));
    let url = format!("redis+unix://{}", path.display());
    let here = Client::open_with(&url, &options).expect("a legal URL");
    let (_, there) = clients(&server.url());
    heard_again_after_silence(&proxy, &here, &there);
}

#[test]
fn a_session_of_postgres_that_dies_silently_is_made_again() {
    let server = Server::start(&[]);
    let proxy = Proxy::tcp(Address::port(server.port));
    let through = server
        .url()
        .replace(&server.port.to_string(), &proxy.port().to_string());
    let (_, there) = postgres(&server, &server.url(), "silent");
    let options = ClientOptions::new()
        .schema("silent")
        .connect_timeout(Duration::from_secs(1));
    let here = Client::open_with(&through, &options).expect("a legal URL");
    heard_again_after_silence(&proxy, &here, &there);
}

#[test]
fn a_release_without_a_notification_is_found_by_polling() {
    let server = Server::start(&[]);
    let (here, there) = postgres(&server, &server.url(), "plain");
    let guard = there.lock("k").expect("a lock");
    let waiter =
        std::thread::spawn(move || here.lock_with("k", &polling()).map(|g| g.fence().get()));
    eventually("a waiter that listens", || listeners(&server) == 1);
    // As a library does that knows nothing of channels.
    let id = guard.lock_id().as_str();
    server.sql(&format!(
        "DELETE FROM plain.syncguard_locks WHERE lock_id = '{id}'"
    ));
    assert_eq!(ended(waiter).expect("the lock"), 2);
}

#[test]
fn a_restart_of_postgres_is_waited_out() {
    let server = Server::start(&[]);
    let (here, there) = postgres(&server, &server.url(), "again");
    let long = LockOptions::new().ttl(WAIT_LIMIT * 10);
    let guard = there.lock_with("k", &long).expect("a lock");
    let waiter =
        std::thread::spawn(move || here.lock_with("k", &polling()).map(|g| g.fence().get()));
    eventually("a waiter that listens", || listeners(&server) == 1);
    server.kill();
    server.restart();
    eventually("a waiter that listens again", || listeners(&server) == 1);
    eventually("a release", || guard.release().is_ok());
    assert_eq!(ended(waiter).expect("the lock"), 2);
}

/// Two clients with four callers each that all want one lock and do not poll: a call that is lost would cost minutes.
fn no_call_is_lost(clients: &(Client, Client)) {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for client in [&clients.0, &clients.1] {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        drop(client.lock_with("k", &patient()).expect("the lock"));
                    }
                });
            }
        }
    });
    let took = begun.elapsed();
    assert!(took < WAIT_LIMIT * 5, "{took:?}");
}

#[test]
fn no_call_of_redis_is_lost() {
    let server = RedisServer::start(&[]);
    no_call_is_lost(&clients(&server.url()));
}

#[test]
fn no_call_of_postgres_is_lost() {
    let server = Server::start(&[]);
    no_call_is_lost(&postgres(&server, &server.url(), "many"));
}

#[test]
fn no_call_of_sqlite_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    no_call_is_lost(&clients(&url));
}
