//! Tests that waits for a lock follow the clock which a test moves: their end, their delays, the lease of the holder, and waiters
//! that sleep by themselves. No test here waits for time to pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::kit::{Kit, TTL, kit, kit_with};
use crate::support::{ended, eventually};
use syncguard::testkit::Verb;
use syncguard::{
    Backoff, Call, ClientOptions, ErrorCode, Guard, Jitter, LockError, LockOptions,
    TIME_TOLERANCE_MS, Turn, WaiterEvent, WaiterStep,
};

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

/// A kit whose lock is held for longer than any test moves the clock.
fn held() -> (Kit, Guard) {
    let kit = kit();
    let holder = kit.lock_with(LockOptions::new().ttl(HOUR * 24).no_heartbeat());
    (kit, holder)
}

fn waiter(kit: &Kit, options: LockOptions) -> JoinHandle<Result<Guard, LockError>> {
    let client = kit.client.clone();
    std::thread::spawn(move || client.lock_with("k", &options))
}

fn asleep(kit: &Kit, count: usize) {
    eventually("sleepers", || kit.clock.sleepers() == count);
}

#[test]
fn a_wait_ends_when_the_clock_has_moved_by_its_timeout() {
    let (kit, _holder) = held();
    let options = LockOptions::new().acquire_timeout(HOUR);
    let first = waiter(&kit, options.clone());
    asleep(&kit, 1);
    // It stands behind the other one, and asks the store only at its end.
    let second = waiter(&kit, options);
    asleep(&kit, 2);
    kit.clock.advance(HOUR - MS);
    asleep(&kit, 2);
    assert!(!first.is_finished() && !second.is_finished());
    kit.clock.advance(MS);
    for waiter in [first, second] {
        let error = ended(waiter).expect_err("held");
        assert_eq!(error.code(), ErrorCode::AcquisitionTimeout, "{error}");
        assert_eq!(error.waited(), Some(HOUR));
    }
    assert_eq!(kit.clock.sleepers(), 0);
}

#[test]
fn a_retry_comes_when_the_clock_has_moved_by_its_delay() {
    let (kit, holder) = held();
    let options = LockOptions::new()
        .wait_forever()
        .retry_delay(MS * 100)
        .backoff(Backoff::Fixed)
        .jitter(Jitter::None);
    let waiter = waiter(&kit, options);
    asleep(&kit, 1);
    for _ in 0..20 {
        let calls = kit.store.calls(Verb::Acquire);
        kit.clock.advance(MS * 99);
        assert_eq!(kit.clock.sleepers(), 1, "it sleeps on");
        kit.clock.advance(MS);
        asleep(&kit, 1);
        assert_eq!(kit.store.calls(Verb::Acquire), calls + 1);
    }
    drop(holder);
    assert_eq!(ended(waiter).expect("a lock").fence().get(), 2);
}

#[test]
fn a_waiter_takes_the_lock_when_the_clock_passes_the_end_of_its_lease() {
    let kit = kit();
    let holder = kit.lock_with(LockOptions::new().no_heartbeat());
    let options = LockOptions::new()
        .acquire_timeout(HOUR)
        .retry_delay(HOUR)
        .jitter(Jitter::None);
    let waiter = waiter(&kit, options);
    asleep(&kit, 1);
    kit.clock.advance(TTL);
    assert_eq!(kit.clock.sleepers(), 1, "the tolerance is not over");
    let tolerance = u64::try_from(TIME_TOLERANCE_MS).expect("a time");
    kit.clock.advance(MS * 2 + Duration::from_millis(tolerance));
    assert_eq!(ended(waiter).expect("a lock").fence().get(), 2);
    assert!(holder.is_lost());
}

#[test]
fn of_a_deadline_the_time_that_is_left_counts() {
    let (kit, _holder) = held();
    let options = LockOptions::new()
        .wait_forever()
        .deadline(Instant::now() + HOUR);
    let waiter = waiter(&kit, options);
    asleep(&kit, 1);
    kit.clock.advance(HOUR / 2);
    asleep(&kit, 1);
    kit.clock.advance(HOUR / 2);
    let error = ended(waiter).expect_err("held");
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout, "{error}");
}

#[test]
fn a_waiter_that_sleeps_by_itself_is_woken_when_the_clock_moves() {
    let (kit, _holder) = held();
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    let options = LockOptions::new()
        .acquire_timeout(HOUR)
        .retry_delay(MS * 100)
        .backoff(Backoff::Fixed)
        .jitter(Jitter::None);
    let wake = move || {
        count.fetch_add(1, SeqCst);
    };
    let Turn::InLine(waiter) = kit
        .client
        .lock_or_wait("k", &options, wake)
        .expect("a turn")
    else {
        panic!("the lock is held");
    };
    // The store has just begun to listen: a release before that was not heard.
    while let WaiterStep::Try { .. } = waiter.next(WaiterEvent::Woken) {
        assert!(waiter.try_lock(&Call::new()).expect("an answer").is_none());
    }
    let sleeps = || match waiter.next(WaiterEvent::Woken) {
        WaiterStep::Sleep(time) => Some(time),
        _ => None,
    };
    assert_eq!(sleeps(), Some(MS * 100));
    let before = woken.load(SeqCst);
    kit.clock.advance(MS * 40);
    assert!(woken.load(SeqCst) > before);
    assert_eq!(sleeps(), Some(MS * 60));
    kit.clock.advance(MS * 60);
    assert_eq!(sleeps(), None, "it is to try");
    assert!(waiter.try_lock(&Call::new()).expect("an answer").is_none());
    kit.clock.advance(HOUR);
    // Its turn comes for the last time, and then the wait is over.
    let error = loop {
        match waiter.next(WaiterEvent::Woken) {
            WaiterStep::Try { .. } => match waiter.try_lock(&Call::new()) {
                Ok(guard) => assert!(guard.is_none()),
                Err(error) => break error,
            },
            WaiterStep::GiveUp(error) => break error,
            WaiterStep::Sleep(time) => panic!("it sleeps for {time:?}"),
        }
    };
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
}

#[test]
fn time_that_passes_while_the_clock_stands_still_is_not_counted() {
    let timeout = Duration::from_secs(2);
    let kit = kit_with(ClientOptions::new().operation_timeout(timeout));
    std::thread::sleep(timeout + MS);
    // The attempts have their whole operation timeout in real time.
    let options = LockOptions::new().acquire_timeout(timeout);
    let guard = ended(waiter(&kit, options.clone())).expect("a free lock");
    let waiter = waiter(&kit, options);
    asleep(&kit, 1);
    guard.release().expect("an answer").expect_released();
    assert_eq!(ended(waiter).expect("a lock").fence().get(), 2);
}
