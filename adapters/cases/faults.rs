//! Pools and servers in trouble. For each adapter, whose `support` makes servers and stores.

use std::time::{Duration, Instant};

use crate::support::common::proxy::Mode;
use crate::support::common::stopwatch::Stopwatch;
use crate::support::{Setup, Store};
use syncguard::{
    AcquireOutcome, Backend, Call, CancelToken, Client, ErrorCode, Key, LockError, LockId,
    LookupBy, Ttl,
};

const LIMIT: Duration = Duration::from_millis(500);
/// What the way back to the caller may take on a busy machine.
const SLACK: Duration = Duration::from_millis(500);

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

fn id() -> LockId {
    LockId::random().expect("an id")
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(60)).expect("a ttl")
}

fn patient() -> Call<'static> {
    Call::new().within(Duration::from_secs(20))
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "it did not happen in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

type Verb<'a> = &'a dyn Fn(&Call<'_>) -> Option<LockError>;

/// Every verb with a limit of [`LIMIT`]: what each came to, and how long the longest took.
fn every_verb(store: &Store) -> (Vec<LockError>, Duration) {
    let verbs: [Verb<'_>; 5] = [
        &|call| store.acquire(&key("k"), &id(), ttl(), call).err(),
        &|call| store.release(&id(), call).err(),
        &|call| store.extend(&id(), ttl(), call).err(),
        &|call| store.is_locked(&key("k"), call).err(),
        &|call| store.find(LookupBy::LockId(&id()), call).err(),
    ];
    let mut worst = Duration::ZERO;
    let errors = verbs.iter().map(|verb| {
        let watch = Stopwatch::start();
        let error = verb(&Call::new().within(LIMIT));
        worst = worst.max(watch.stop());
        error.expect("the server answers nothing")
    });
    let errors: Vec<_> = errors.collect();
    (errors, worst)
}

fn expect_bounded(store: &Store, what: &str) {
    let (errors, worst) = every_verb(store);
    for error in &errors {
        assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{what}: {error}");
    }
    assert!(worst < LIMIT + SLACK, "{what}: {worst:?}");
}

/// Warmed connections, a server that answers nothing any more, and after that as good as ever.
#[test]
fn a_call_ends_in_time_on_a_server_that_has_stopped() {
    let setup = Setup::alone();
    let store = setup.store(8);
    assert!(!store.is_locked(&key("k"), &patient()).expect("an answer"));
    let stopped = setup.stop();
    expect_bounded(&store, "stopped");
    drop(stopped);
    eventually("no thread is stuck", || store.threads_at_work() == 0);
    let mine = id();
    let outcome = store.acquire(&key("k"), &mine, ttl(), &patient());
    assert!(
        matches!(outcome, Ok(AcquireOutcome::Acquired(_))),
        "{outcome:?}"
    );
    let found = store.find(LookupBy::Key(&key("k")), &patient());
    assert_eq!(found.expect("an answer").expect("a lock").lock_id, mine);
}

#[test]
fn a_call_ends_in_time_on_a_server_that_is_silent() {
    let setup = Setup::start();
    let store = setup.store(8);
    assert!(!store.is_locked(&key("k"), &patient()).expect("an answer"));
    setup.proxy.set(Mode::LoseReply);
    expect_bounded(&store, "silent");
    setup.proxy.set(Mode::Pass);
    setup.proxy.close_all();
    eventually("no thread is stuck", || store.threads_at_work() == 0);
    assert!(store.is_locked(&key("k"), &patient()).is_ok());
}

#[test]
fn a_call_ends_in_time_on_a_server_that_trickles() {
    let setup = Setup::start();
    let store = setup.store(8);
    assert!(!store.is_locked(&key("k"), &patient()).expect("an answer"));
    // Each read gets its byte soon: no timeout of a read ends this.
    setup.proxy.set(Mode::Trickle(Duration::from_millis(200)));
    expect_bounded(&store, "trickling");
    setup.proxy.set(Mode::Pass);
    eventually("no thread is stuck", || store.threads_at_work() == 0);
    assert!(store.is_locked(&key("k"), &patient()).is_ok());
}

/// A pool that tests its connections waits for that test too.
#[test]
fn a_pool_that_tests_on_check_out_is_bounded_and_warned_of() {
    let setup = Setup::alone();
    let pool = setup
        .builder(8)
        .test_on_check_out(true)
        .build_unchecked(setup.manager());
    let store = setup.over(&pool);
    let warnings = store.check(&patient()).expect("a good server");
    assert!(
        warnings.iter().any(|w| w.contains("test_on_check_out")),
        "{warnings:?}"
    );
    assert!(!store.is_locked(&key("k"), &patient()).expect("an answer"));
    let stopped = setup.stop();
    expect_bounded(&store, "stopped, tested");
    drop(stopped);
    let quiet = setup.store(2).check(&patient()).expect("a good server");
    assert!(
        !quiet.iter().any(|w| w.contains("test_on_check_out")),
        "{quiet:?}"
    );
}

#[test]
fn a_cancel_ends_a_call_on_a_server_that_has_stopped() {
    let setup = Setup::alone();
    let store = setup.store(4);
    assert!(!store.is_locked(&key("k"), &patient()).expect("an answer"));
    let _stopped = setup.stop();
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let call = patient().cancelled_by(&token);
        let waiting = scope.spawn(move || store.is_locked(&key("k"), &call));
        std::thread::sleep(Duration::from_millis(50));
        let cancelled = Instant::now();
        token.cancel();
        let error = waiting.join().expect("no panic").expect_err("cancelled");
        assert_eq!(error.code(), ErrorCode::Aborted, "{error}");
        assert!(cancelled.elapsed() < Duration::from_secs(10));
    });
}

/// However many calls come, no more threads are stuck than the pool has connections, and one.
#[test]
fn the_number_of_stuck_threads_is_bounded() {
    let setup = Setup::alone();
    let pool = setup.pool(3);
    let store = setup.over(&pool);
    assert!(!store.is_locked(&key("k"), &patient()).expect("an answer"));
    let stopped = setup.stop();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let call = Call::new().within(Duration::from_millis(400));
                let error = store.is_locked(&key("k"), &call).expect_err("stopped");
                assert!(error.code().is_transient(), "{error}");
            });
        }
    });
    assert!(store.threads_at_work() <= 4, "{}", store.threads_at_work());
    assert!(threads_named("syncguard-help") <= 64);
    let error = store
        .is_locked(&key("k"), &Call::new().within(LIMIT))
        .expect_err("stopped");
    assert!(
        error.code().is_transient() && !error.may_have_applied(),
        "{error}"
    );
    drop(stopped);
    eventually("no thread is stuck", || store.threads_at_work() == 0);
    assert!(store.is_locked(&key("k"), &patient()).is_ok());
}

/// The number of threads of this process whose name begins with `prefix`. Other tests of this process have some too.
fn threads_named(prefix: &str) -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    tasks
        .filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// The program's other work has every connection.
#[test]
fn a_pool_without_a_free_connection_is_said_to_be_too_small() {
    let setup = Setup::start();
    let pool = setup.pool(2);
    let store = setup.over(&pool);
    let work = [pool.get().expect("one"), pool.get().expect("two")];
    let begun = Instant::now();
    let error = store
        .acquire(&key("k"), &id(), ttl(), &Call::new().within(LIMIT))
        .expect_err("no connection is free");
    assert_eq!(error.code(), ErrorCode::RateLimited, "{error}");
    assert!(
        !error.may_have_applied() && error.message().contains("2 connections"),
        "{error}"
    );
    assert!(begun.elapsed() < LIMIT * 10);
    drop(work);
    assert!(store.is_locked(&key("k"), &patient()).is_ok());
}

/// A pool of one serves a client with a heartbeat and several callers.
#[test]
fn a_pool_of_one_connection_is_enough_for_several_callers() {
    let setup = Setup::start();
    let client = Client::from_backend(setup.store(1));
    std::thread::scope(|scope| {
        for n in 0..8 {
            let client = &client;
            scope.spawn(move || {
                for _ in 0..10 {
                    let guard = client.lock(format!("k{n}")).expect("a free lock");
                    guard.release().expect("an answer").expect_released();
                }
            });
        }
    });
}

/// No connection was made, and none can be.
#[test]
fn an_empty_pool_of_a_server_that_is_down_says_so() {
    let setup = Setup::start();
    setup.proxy.set(Mode::Close);
    let store = setup.store(4);
    let begun = Instant::now();
    let error = store
        .acquire(&key("k"), &id(), ttl(), &Call::new().within(LIMIT))
        .expect_err("the server is down");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    assert!(!error.may_have_applied());
    assert!(begun.elapsed() < LIMIT * 10);
    setup.proxy.set(Mode::Pass);
    assert!(!store.is_locked(&key("k"), &patient()).expect("an answer"));
}

/// After a restart of the server every connection that idles is dead: none of them costs a call.
#[test]
fn a_pool_full_of_dead_connections_costs_no_call() {
    let mut setup = Setup::alone();
    let pool = setup.pool(6);
    let store = setup.over(&pool);
    let all: Vec<_> = (0..6).map(|_| pool.get().expect("a connection")).collect();
    drop(all);
    assert_eq!(pool.state().idle_connections, 6);
    setup.restart();
    let mine = id();
    let outcome = store.acquire(&key("k"), &mine, ttl(), &patient());
    assert!(
        matches!(outcome, Ok(AcquireOutcome::Acquired(_))),
        "{outcome:?}"
    );
    assert!(
        store
            .release(&mine, &patient())
            .expect("an answer")
            .is_released()
    );
    // The same for a release that comes first.
    let mine = id();
    let outcome = setup.near().acquire(&key("k"), &mine, ttl(), &patient());
    assert!(
        matches!(outcome, Ok(AcquireOutcome::Acquired(_))),
        "{outcome:?}"
    );
    let all: Vec<_> = (0..6).map(|_| pool.get().expect("a connection")).collect();
    drop(all);
    setup.proxy.close_all();
    assert!(
        store
            .release(&mine, &patient())
            .expect("an answer")
            .is_released()
    );
}

/// The answer to a release is lost, and its repetition finds nothing: the caller is not told that the lock was gone before.
#[test]
fn a_release_whose_answer_was_lost_is_of_unknown_effect() {
    let setup = Setup::start();
    let store = setup.store(2);
    let take = |mine: &LockId| {
        let outcome = store.acquire(&key("k"), mine, ttl(), &patient());
        assert!(
            matches!(outcome, Ok(AcquireOutcome::Acquired(_))),
            "{outcome:?}"
        );
    };
    // From the second round on the server knows the scripts, and each request is one trip.
    let warm = id();
    take(&warm);
    let released = store.release(&warm, &patient()).expect("an answer");
    assert!(released.is_released());
    let mine = id();
    take(&mine);
    setup.proxy.cut_next_replies(1);
    let error = store
        .release(&mine, &patient())
        .expect_err("its answer was lost");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    assert!(error.may_have_applied());
    assert!(!setup.near().is_locked("k").expect("an answer"));
    // An acquire may be repeated: its lock id tells that it was granted.
    setup.proxy.cut_next_replies(1);
    take(&id());
}
