//! Tests the public waits: on a token, on a guard, and for a lock without end.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::WAIT_LIMIT;
use syncguard::testkit::{ManualClock, MemoryBackend, Verb};
use syncguard::{
    Call, CancelToken, Client, ClientOptions, ErrorCode, LockOptions, LossReason, WaitEnd,
};

const SHORT: Duration = Duration::from_millis(20);

/// Does `work` on a thread and waits for its end, with a limit.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Box<dyn FnOnce() -> T> {
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || tell.send(work()));
    Box::new(move || told.recv_timeout(WAIT_LIMIT).expect("the wait ends"))
}

#[test]
fn a_wait_on_a_token_ends_with_its_time_or_its_cancel() {
    let token = CancelToken::new();
    let begun = Instant::now();
    assert!(!token.wait_for(SHORT));
    assert!(begun.elapsed() >= SHORT);
    let until = Instant::now() + SHORT;
    assert!(!token.wait_until(until));
    assert!(Instant::now() >= until);
    assert!(!token.wait_until(begun), "in the past");
    assert!(!token.wait_for(Duration::ZERO));

    let (a, b, c) = (token.clone(), token.child(), token.clone());
    let waits = [
        ends(move || a.wait_for(Duration::MAX)),
        ends(move || b.wait_until(Instant::now() + WAIT_LIMIT * 10)),
        ends(move || {
            c.wait();
            true
        }),
    ];
    token.cancel();
    for wait in waits {
        assert!(wait(), "cancelled");
    }
    assert!(token.wait_for(Duration::ZERO), "at once, and for good");
    assert!(token.wait_until(begun), "also after the deadline");
}

/// A client on a clock that stands still until the test moves it.
fn client() -> (ManualClock, MemoryBackend, Client) {
    let clock = ManualClock::new();
    let store = MemoryBackend::with_clock(&clock);
    let options = ClientOptions::new().clock(&clock);
    let client = Client::from_backend_with(store.clone(), &options).expect("good options");
    (clock, store, client)
}

#[test]
fn a_wait_on_a_guard_says_what_ended_it() {
    let (_clock, _store, client) = client();
    let guard = client.lock("k").expect("a lock");
    let token = CancelToken::new();
    let call = Call::new().cancelled_by(&token);
    assert_eq!(guard.wait_lost_with(&call.within(SHORT)), WaitEnd::TimeOver);
    assert!(!guard.wait_lost_for(SHORT));
    thread::scope(|scope| {
        let canceller = scope.spawn(|| {
            thread::sleep(SHORT);
            token.cancel();
        });
        let limited = call.within(WAIT_LIMIT);
        assert_eq!(guard.wait_lost_with(&limited), WaitEnd::Cancelled);
        assert!(limited.deadline().is_none_or(|at| Instant::now() < at));
        canceller.join().expect("no panic");
    });
    assert_eq!(guard.wait_lost_with(&call), WaitEnd::Cancelled, "at once");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| guard.wait_lost_with(&Call::new().within(WAIT_LIMIT)));
        thread::sleep(SHORT);
        guard.release().expect("an answer").expect_released();
        assert_eq!(waiter.join().expect("no panic"), WaitEnd::Released);
    });
    assert_eq!(guard.wait_lost_with(&call), WaitEnd::Released, "not lost");
    assert!(!guard.wait_lost());
}

#[test]
fn a_loss_ends_every_wait_on_a_guard() {
    let (clock, _store, client) = client();
    let options = LockOptions::new().no_heartbeat();
    let guard = client.lock_with("k", &options).expect("a lock");
    let token = CancelToken::new();
    thread::scope(|scope| {
        let call = Call::new().within(WAIT_LIMIT).cancelled_by(&token);
        let guard = &guard;
        let waits = [
            scope.spawn(move || guard.wait_lost_with(&call)),
            scope.spawn(|| match guard.wait_lost_for(WAIT_LIMIT) {
                true => WaitEnd::Lost(LossReason::NotRenewed),
                false => WaitEnd::TimeOver,
            }),
        ];
        clock.advance(Duration::from_secs(31));
        for wait in waits {
            let end = wait.join().expect("no panic");
            assert_eq!(end, WaitEnd::Lost(LossReason::NotRenewed));
        }
    });
    token.cancel();
    let call = Call::new().cancelled_by(&token);
    assert_eq!(
        guard.wait_lost_with(&call),
        WaitEnd::Lost(LossReason::NotRenewed),
        "a loss counts before a cancel"
    );
    assert!(guard.wait_lost());
}

#[test]
fn a_wait_for_ever_outlasts_every_default_and_ends_with_its_token() {
    let (clock, store, client) = client();
    let held = client.lock("k").expect("a lock");
    let token = CancelToken::new();
    let options = LockOptions::new()
        .acquire_timeout(Duration::ZERO)
        .max_retries(0)
        .wait_forever()
        .retry_delay(Duration::from_millis(1))
        .backoff(syncguard::Backoff::Fixed)
        .cancel(&token);
    let before = store.calls(Verb::Acquire);
    let (waiting, other) = (client.clone(), options.clone());
    let granted = ends(move || waiting.lock_with("k", &other).map(|guard| guard.fence()));
    // More than the default number of retries.
    let end = Instant::now() + WAIT_LIMIT;
    while store.calls(Verb::Acquire) < before + 12 {
        assert!(Instant::now() < end, "it gave up");
        clock.advance(Duration::from_millis(1));
        thread::yield_now();
    }
    held.release().expect("an answer").expect_released();
    assert_eq!(granted().expect("a lock").get(), 2);

    let _held = client.lock("k").expect("a lock");
    let waiting = client.clone();
    let ended = ends(move || waiting.lock_with("k", &options).map(drop));
    token.cancel();
    assert_eq!(
        ended().expect_err("cancelled").code(),
        ErrorCode::Aborted,
        "a token ends it"
    );
}
