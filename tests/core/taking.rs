//! Tests taking a lock: how waits end, answers that were lost, and the undoing of what may have been granted. On the test kit's
//! store and clock.

use std::sync::{Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::kit::{Kit, TTL, kit, kit_with};
use crate::support::stopwatch::{Stopwatch, worst_of_three};
use crate::support::{WAIT_LIMIT, ended, eventually};
use syncguard::testkit::{Fault, Verb};
use syncguard::{CancelToken, ClientOptions, ErrorCode, Guard, LockError, LockOptions};

#[test]
fn waiting_ends_with_the_release_of_the_other() {
    let kit = kit();
    let first = kit.lock();
    let client = kit.client.clone();
    let waiter = std::thread::spawn(move || {
        client.lock_with(
            "k",
            &LockOptions::new()
                .acquire_timeout(WAIT_LIMIT)
                .retry_delay(Duration::from_millis(5)),
        )
    });
    eventually("a contended attempt", || {
        kit.store.calls(Verb::Acquire) >= 2
    });
    let fence = first.fence();
    drop(first);
    assert!(ended(waiter).expect("the lock").fence() > fence);
}

#[test]
fn a_wait_that_ends_without_the_lock_names_the_holder() {
    let kit = kit();
    let holder = kit.lock();
    let options = LockOptions::new()
        .acquire_timeout(WAIT_LIMIT)
        .max_retries(3)
        .retry_delay(Duration::from_millis(1));
    let error = kit
        .moving(|| kit.client.lock_with("k", &options))
        .expect_err("another caller holds it");
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
    // The first one, the one that finds nothing freed before the store listened, and three retries.
    assert_eq!(error.attempts(), 5);
    assert!(error.waited().is_some() && !error.may_have_applied());
    let seen = error.holder().expect("the store names the holder");
    assert_eq!(
        (seen.fence, seen.lock_id_hash.clone()),
        (Some(holder.fence()), Some(holder.lock_id().log_hash()))
    );
    assert_eq!(error.key_hash(), Some(syncguard::hash_key("k").as_str()));
    assert!(!format!("{error:?} {error}").contains(holder.lock_id().as_str()));
}

#[test]
fn timeout_zero_is_one_attempt() {
    let kit = kit();
    let _holder = kit.lock();
    let error = kit
        .client
        .lock_with("k", &LockOptions::new().acquire_timeout(Duration::ZERO))
        .expect_err("held");
    assert_eq!(
        (
            error.code(),
            error.attempts(),
            kit.store.calls(Verb::Acquire)
        ),
        (ErrorCode::AcquisitionTimeout, 1, 2)
    );
}

#[test]
fn an_explicit_timeout_lifts_the_limit_of_ten_retries() {
    let kit = kit();
    let _holder = kit.lock();
    let token = CancelToken::new();
    let options = LockOptions::new()
        .acquire_timeout(WAIT_LIMIT * 2)
        .retry_delay(Duration::from_millis(1))
        .backoff(syncguard::Backoff::Fixed)
        .cancel(&token);
    let client = kit.client.clone();
    let waiter = std::thread::spawn(move || client.lock_with("k", &options).map(drop));
    // The holder's, the first, the one after the store listens, ten retries, and one more.
    eventually("more than ten retries", || {
        kit.clock.advance(Duration::from_millis(1));
        kit.store.calls(Verb::Acquire) > 13
    });
    token.cancel();
    let error = ended(waiter).expect_err("cancelled");
    assert_eq!(error.code(), ErrorCode::Aborted, "{error:?}");
}

#[test]
fn transient_trouble_is_waited_out_and_the_rest_is_not() {
    let kit = kit();
    for code in [
        ErrorCode::ServiceUnavailable,
        ErrorCode::NetworkTimeout,
        ErrorCode::RateLimited,
    ] {
        kit.store.once(Verb::Acquire, Fault::Refuse(code));
    }
    let options = LockOptions::new().retry_delay(Duration::from_millis(1));
    drop(kit.moving(|| kit.lock_with(options.clone())));
    assert_eq!(kit.store.calls(Verb::Acquire), 4);
    for code in [
        ErrorCode::AuthFailed,
        ErrorCode::InvalidArgument,
        ErrorCode::Internal,
    ] {
        kit.store.once(Verb::Acquire, Fault::Refuse(code));
        let calls = kit.store.calls(Verb::Acquire);
        assert_eq!(kit.client.lock("k").expect_err("refused").code(), code);
        assert_eq!(kit.store.calls(Verb::Acquire), calls + 1);
    }
    kit.store
        .always(Verb::Acquire, Fault::Refuse(ErrorCode::ServiceUnavailable));
    let options = options.max_retries(2);
    let error = kit
        .moving(|| kit.client.lock_with("k", &options))
        .expect_err("down");
    assert_eq!(
        (error.code(), error.attempts()),
        (ErrorCode::ServiceUnavailable, 3)
    );
}

#[test]
fn the_error_of_a_wait_says_whether_any_attempt_may_have_been_applied() {
    let thrice = LockOptions::new()
        .max_retries(2)
        .retry_delay(Duration::from_millis(1));
    // Refused each time: nothing was applied, whatever the code is.
    let kit = kit();
    let wait = || kit.moving(|| kit.client.lock_with("k", &thrice));
    kit.store
        .always(Verb::Acquire, Fault::Refuse(ErrorCode::ServiceUnavailable));
    let error = wait().expect_err("down");
    assert_eq!(
        (error.code(), error.may_have_applied()),
        (ErrorCode::ServiceUnavailable, false)
    );
    // The first attempt was applied without an answer; the last one was refused.
    kit.store.once(Verb::Acquire, Fault::DropReply);
    let error = wait().expect_err("down");
    assert_eq!(
        (error.attempts(), error.may_have_applied()),
        (3, true),
        "{error}"
    );
    kit.store.heal();
    eventually("the orphan's end", || !kit.is_locked());
    // The last attempt was answered: another caller holds the lock. The first one may still be on its way.
    kit.store.once(Verb::Acquire, Fault::DropReply);
    kit.store.always(Verb::Acquire, Fault::SayAbsent);
    let error = wait().expect_err("held");
    assert_eq!(
        (error.code(), error.may_have_applied()),
        (ErrorCode::AcquisitionTimeout, true)
    );
}

#[test]
fn a_wait_that_is_cancelled_between_answered_attempts_has_applied_nothing() {
    let kit = kit();
    let _holder = kit.lock();
    let token = CancelToken::new();
    let options = asleep_until(&token);
    let client = kit.client.clone();
    let waiter = std::thread::spawn(move || client.lock_with("k", &options).map(drop));
    // The second contended attempt follows as soon as the store listens; then the wait sleeps.
    eventually("the wait", || kit.store.calls(Verb::Acquire) == 3);
    token.cancel();
    let error = ended(waiter).expect_err("cancelled");
    assert_eq!(
        (error.code(), error.may_have_applied()),
        (ErrorCode::Aborted, false)
    );
}

#[test]
fn a_guard_says_how_long_its_caller_waited() {
    let kit = kit();
    let first = kit.lock();
    let held = Duration::from_secs(5);
    let client = kit.client.clone();
    let options = LockOptions::new().acquire_timeout(WAIT_LIMIT);
    let waiter = std::thread::spawn(move || client.lock_with("k", &options));
    eventually("the wait", || kit.clock.sleepers() > 0);
    // On the clock that waits are counted on, as in the error of a wait.
    kit.clock.advance(held);
    drop(first);
    let guard = ended(waiter).expect("the lock");
    assert!(guard.waited() >= held, "{:?}", guard.waited());
    drop(guard);
    // One that was free at once was waited for as long as the call took.
    let begun = Instant::now();
    let guard = kit.client.try_lock("k").expect("an answer").expect("free");
    assert!(guard.waited() <= begun.elapsed());
}

/// A wait that nothing but this token ends.
fn asleep_until(token: &CancelToken) -> LockOptions {
    LockOptions::new()
        .cancel(token)
        .acquire_timeout(WAIT_LIMIT * 10)
        .retry_delay(WAIT_LIMIT * 10)
        .jitter(syncguard::Jitter::None)
}

#[test]
fn cancel_ends_a_wait_at_once() {
    let kit = kit();
    let _holder = kit.lock();
    let took = worst_of_three(|| {
        let token = CancelToken::new();
        let options = asleep_until(&token);
        let client = kit.client.clone();
        let calls = kit.store.calls(Verb::Acquire);
        let waiter = std::thread::spawn(move || client.lock_with("k", &options).map(drop));
        eventually("the wait", || kit.store.calls(Verb::Acquire) > calls);
        let watch = Stopwatch::start();
        token.cancel();
        assert_eq!(
            ended(waiter).expect_err("cancelled").code(),
            ErrorCode::Aborted
        );
        watch.stop()
    });
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_cancel_in_flight_leaves_nothing_behind() {
    let kit = kit();
    kit.store.once(Verb::Acquire, Fault::Hang);
    let token = CancelToken::new();
    let options = LockOptions::new().cancel(&token);
    let client = kit.client.clone();
    let waiter = std::thread::spawn(move || client.lock_with("k", &options).map(drop));
    eventually("the attempt in flight", || {
        kit.store.calls(Verb::Acquire) == 1
    });
    token.cancel();
    assert_eq!(
        ended(waiter).expect_err("cancelled").code(),
        ErrorCode::Aborted
    );
    eventually("the compensating release", || {
        kit.store.calls(Verb::Release) == 1
    });
}

#[test]
fn a_lost_reply_is_recognised_when_the_acquire_is_repeated() {
    let kit = kit();
    kit.store.once(Verb::Acquire, Fault::DropReply);
    let options = LockOptions::new().retry_delay(Duration::from_millis(1));
    let guard = kit.moving(|| kit.lock_with(options));
    assert_eq!(
        (guard.fence().get(), kit.store.calls(Verb::Acquire)),
        (1, 2)
    );
    assert_eq!(kit.store.calls(Verb::Release), 0);
}

/// A caller whose first attempt was applied without an answer, and whose second one was refused. It sleeps, and the store has healed.
fn in_doubt(kit: &Kit) -> JoinHandle<Result<Guard, LockError>> {
    kit.store.once(Verb::Acquire, Fault::DropReply);
    kit.store
        .always(Verb::Acquire, Fault::Refuse(ErrorCode::ServiceUnavailable));
    let client = kit.client.clone();
    let options = LockOptions::new()
        .no_heartbeat()
        .retry_delay(Duration::from_millis(1))
        .acquire_timeout(TTL * 10);
    let waiter = std::thread::spawn(move || client.lock_with("k", &options));
    let asleep = || kit.clock.sleepers() > 0;
    eventually("the first attempt", asleep);
    kit.clock.advance(Duration::from_millis(1));
    eventually("the second attempt", || kit.store.calls(Verb::Acquire) == 2);
    eventually("its end", asleep);
    kit.store.heal();
    waiter
}

#[test]
fn a_repeated_acquire_counts_its_lease_from_the_first_send() {
    let kit = kit();
    let waiter = in_doubt(&kit);
    kit.clock.advance(Duration::from_secs(5));
    let guard = ended(waiter).expect("the stored grant");
    assert_eq!(guard.fence().get(), 1);
    assert_eq!(
        guard.remaining(),
        TTL - TTL / 100 - Duration::from_millis(2) - kit.clock.now()
    );
}

#[test]
fn a_doubt_older_than_the_lease_begins_anew() {
    let kit = kit();
    let waiter = in_doubt(&kit);
    kit.clock.advance(TTL * 2);
    let guard = ended(waiter).expect("a new grant");
    assert!(!guard.is_lost());
    assert_eq!(guard.fence().get(), 2);
    eventually("the old id's release", || {
        kit.store.calls(Verb::Release) == 1
    });
    assert!(
        kit.is_locked(),
        "undoing the old id does not touch the new grant"
    );
}

#[test]
fn an_acquire_of_unknown_outcome_is_undone_until_the_store_answers() {
    let kit = kit();
    for _ in 0..100 {
        kit.store.once(Verb::Acquire, Fault::DropReply);
        kit.store
            .once(Verb::Release, Fault::Refuse(ErrorCode::ServiceUnavailable));
        assert!(kit.client.try_lock("k").is_err());
        let mut passed = Duration::ZERO;
        eventually("the orphan's end", || {
            kit.clock.advance(Duration::from_millis(10));
            passed += Duration::from_millis(10);
            // Else the end of its lease would end it too.
            assert!(passed < TTL / 2, "it is not undone");
            !kit.is_locked()
        });
    }
}

#[test]
fn a_caller_that_leaves_in_doubt_leaves_no_lock_behind() {
    // One attempt; all retries used; the end of the wait.
    for options in [
        LockOptions::new().acquire_timeout(Duration::ZERO),
        LockOptions::new().max_retries(0),
        LockOptions::new()
            .max_retries(2)
            .retry_delay(Duration::from_millis(1)),
        LockOptions::new().acquire_timeout(Duration::from_millis(1)),
    ] {
        let kit = kit();
        kit.store.once(Verb::Acquire, Fault::DropReply);
        kit.store
            .always(Verb::Acquire, Fault::Refuse(ErrorCode::ServiceUnavailable));
        let answer = kit.moving(|| kit.client.lock_with("k", &options));
        assert!(answer.is_err());
        eventually("the orphan's end", || !kit.is_locked());
    }
    // A cancel between two attempts.
    let kit = kit();
    kit.store.once(Verb::Acquire, Fault::DropReply);
    let token = CancelToken::new();
    let options = asleep_until(&token);
    let client = kit.client.clone();
    let waiter = std::thread::spawn(move || client.lock_with("k", &options).map(drop));
    eventually("the attempt", || kit.is_locked());
    token.cancel();
    let error = ended(waiter).expect_err("cancelled");
    assert_eq!(error.code(), ErrorCode::Aborted);
    eventually("the orphan's end", || !kit.is_locked());
}

#[test]
fn an_acquire_that_arrives_after_its_undoing_is_undone_too() {
    let kit = kit();
    kit.store.once(Verb::Acquire, Fault::DropReply);
    // The release overtakes the acquire, which the store then executes all the same.
    kit.store.once(Verb::Release, Fault::SayAbsent);
    assert!(kit.client.try_lock("k").is_err());
    eventually("the release that came too early", || {
        kit.store.calls(Verb::Release) == 1
    });
    assert!(kit.is_locked());
    eventually("another look", || {
        kit.clock.advance(Duration::from_millis(10));
        !kit.is_locked()
    });
    // What is certainly gone is not looked for again.
    kit.clock.advance(TTL);
    assert_eq!(kit.store.calls(Verb::Release), 2);
}

#[test]
fn an_acquire_is_undone_until_the_lease_of_its_last_attempt_is_over() {
    let kit = kit();
    let token = CancelToken::new();
    kit.store.once(Verb::Acquire, Fault::DropReply);
    kit.store
        .always(Verb::Acquire, Fault::Refuse(ErrorCode::ServiceUnavailable));
    kit.store
        .always(Verb::Release, Fault::Refuse(ErrorCode::ServiceUnavailable));
    let client = kit.client.clone();
    let options = LockOptions::new()
        .retry_delay(Duration::from_millis(1))
        .acquire_timeout(WAIT_LIMIT)
        .cancel(&token);
    let waiter = std::thread::spawn(move || client.lock_with("k", &options).map(drop));
    eventually("the first attempt", || kit.clock.sleepers() > 0);
    // The lock that it took is lost. A later attempt takes it again, and is not answered either.
    kit.store.evict("k").expect("a key");
    kit.store.once(Verb::Acquire, Fault::DropReply);
    kit.clock.advance(TTL * 2 / 3);
    eventually("the last attempt", || kit.is_locked());
    token.cancel();
    drop(waiter.join().expect("no panic").expect_err("cancelled"));
    // The first attempt's lease would be over by now; the last one's is not.
    let before = kit.store.calls(Verb::Release);
    kit.clock.advance(TTL / 2);
    eventually("a release that is refused", || {
        kit.clock.advance(Duration::from_millis(1));
        kit.store.calls(Verb::Release) > before + 1
    });
    kit.store.heal();
    let mut left = 8_000;
    eventually("the release", || {
        // Not so far that the lease ends by itself.
        if left > 0 {
            left -= 1;
            kit.clock.advance(Duration::from_millis(1));
        }
        !kit.is_locked()
    });
}

#[test]
fn an_undo_that_keeps_failing_is_told_to_the_hook() {
    let (tx, rx) = mpsc::channel();
    let tx = Mutex::new(tx);
    let kit = kit_with(
        ClientOptions::new()
            .on_release_error(move |e| drop(tx.lock().map(|tx| tx.send(e.origin.to_string())))),
    );
    kit.store
        .always(Verb::Release, Fault::Refuse(ErrorCode::ServiceUnavailable));
    kit.store.once(Verb::Acquire, Fault::DropReply);
    assert!(kit.client.try_lock("k").is_err());
    eventually("a first try", || kit.store.calls(Verb::Release) >= 1);
    let mut told = None;
    eventually("the hook", || {
        kit.clock.advance(TTL);
        told = rx.recv_timeout(Duration::from_millis(50)).ok();
        told.is_some()
    });
    assert_eq!(told.as_deref(), Some("undo"));
}
