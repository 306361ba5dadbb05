//! Tests TTLs, timeouts and retries that are wrong or extreme.

use std::time::Instant;

use super::*;
use support::{WAIT_LIMIT, eventually};
use syncguard::testkit::{Fault, Verb};
use syncguard::{Backoff, Call, CancelToken, Jitter, Ttl};

fn bad_ttl(ttl: Duration) {
    refused(Ttl::new(ttl));
    for store in stores() {
        let client = &store.client;
        refused(client.lock_with("k", &LockOptions::new().ttl(ttl)));
        refused(client.try_lock_with("k", &LockOptions::new().ttl(ttl)));
        let guard = take(client, "k");
        assert_eq!(guard.fence().get(), 1, "no fence was burnt");
        let before = guard.remaining();
        refused(guard.extend(ttl));
        assert!(!guard.is_lost() && guard.remaining() <= before);
        assert!(guard.remaining() > Duration::ZERO);
    }
}

#[test]
fn row_16_ttl_zero() {
    bad_ttl(Duration::ZERO);
    // Nor can any other of a guard's durations be.
    let client = Store::memory().client;
    for options in [
        LockOptions::new().heartbeat(Duration::ZERO),
        LockOptions::new().heartbeat(TTL).ttl(TTL),
        LockOptions::new().max_hold(Duration::ZERO),
        LockOptions::new().dispose_timeout(Duration::ZERO),
    ] {
        refused(client.lock_with("k", &options));
    }
}

#[test]
fn row_18_tiny_ttls_with_a_heartbeat() {
    for ms in 1..=3 {
        let store = MemoryBackend::new();
        let client = Client::from_backend(store.clone());
        let options = LockOptions::new().ttl(Duration::from_millis(ms));
        let begun = Instant::now();
        let guard = client.lock_with("k", &options).expect("a lock");
        // A busy machine loses it sooner or later; the renewals up to then keep their pace.
        let lost = guard.wait_lost_for(Duration::from_millis(300));
        let most = begun.elapsed().as_millis() as u64 * 3 / ms + 3;
        let renewals = store.calls(Verb::Extend);
        assert!(
            renewals <= most,
            "{renewals} renewals with a ttl of {ms} ms"
        );
        assert_eq!(lost, guard.is_lost());
    }
}

#[test]
fn row_18_a_tiny_heartbeat_does_not_spin() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let options = LockOptions::new().heartbeat(Duration::from_nanos(1));
    let begun = Instant::now();
    let guard = client.lock_with("k", &options).expect("a lock");
    eventually("some renewals", || store.calls(Verb::Extend) >= 20);
    assert!(guard.release().expect("an answer").is_released());
    let most = begun.elapsed().as_millis() as u64 + 2;
    let renewals = store.calls(Verb::Extend);
    assert!(renewals <= most, "{renewals} renewals in {most} ms");
}

#[test]
fn row_19_absurd_ttls() {
    for ttl in [
        Duration::from_millis(100_000_000_000_000),
        Duration::from_millis(1 << 53),
        Duration::from_millis(i64::MAX as u64),
        Duration::from_millis(u64::MAX),
        Duration::MAX,
    ] {
        bad_ttl(ttl);
    }
}

#[test]
fn row_20_fractions_of_a_millisecond_are_rounded_up() {
    for (given, kept) in [(1_500, 2), (400, 1), (1, 1), (2_000, 2), (2_001, 3)] {
        let ttl = Ttl::new(Duration::from_micros(given)).expect("a ttl");
        assert_eq!(ttl.as_millis(), kept);
    }
    assert_eq!(
        Ttl::new(Duration::from_nanos(1)).map(Ttl::as_millis).ok(),
        Some(1)
    );
}

#[test]
fn row_24_a_timeout_of_zero_is_one_attempt() {
    let kit = kit();
    let _held = kit.lock_with(LockOptions::new());
    let options = LockOptions::new()
        .acquire_timeout(Duration::ZERO)
        .unlimited_retries();
    let error = kit.client.lock_with("k", &options).expect_err("held");
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
    assert_eq!((error.attempts(), kit.store.calls(Verb::Acquire)), (1, 2));
    assert!(kit.client.lock_with("free", &options).is_ok());
}

#[test]
fn row_24_a_wait_that_ends_in_contention_says_so() {
    let client = Store::memory().client;
    let held = take(&client, "k");
    for ms in [1, 20, 60, 150] {
        let options = LockOptions::new()
            .acquire_timeout(Duration::from_millis(ms))
            .retry_delay(Duration::from_millis(7));
        let error = client.lock_with("k", &options).expect_err("held");
        assert_eq!(error.code(), ErrorCode::AcquisitionTimeout, "{ms}: {error}");
        assert_eq!(error.holder().and_then(|h| h.fence), Some(held.fence()));
        assert!(error.waited() >= Some(Duration::from_millis(ms)));
    }
}

#[test]
fn row_25_a_wait_without_end() {
    let client = Client::from_backend_with(
        MemoryBackend::new(),
        &ClientOptions::new()
            .operation_timeout(Duration::MAX)
            .dispose_timeout(Duration::MAX)
            .connect_timeout(Duration::MAX),
    )
    .expect("legal options");
    for endless in [Duration::MAX, Duration::from_millis(u64::MAX)] {
        let held = take(&client, "k");
        let (other, token) = (client.clone(), CancelToken::new());
        let options = LockOptions::new()
            .acquire_timeout(endless)
            .max_hold(endless)
            .dispose_timeout(endless)
            .cancel(&token);
        let waiter = std::thread::spawn(move || {
            let guard = other.lock_with("k", &options)?;
            assert!(!guard.wait_lost_for(Duration::ZERO));
            Ok::<_, LockError>(guard.fence().get())
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished(), "it waits");
        let next = held.fence().get() + 1;
        drop(held);
        assert_eq!(waiter.join().expect("no panic").expect("the lock"), next);
    }
    let lost = take(&client, "lost");
    let releaser = std::thread::spawn({
        let (client, id) = (client.clone(), *lost.lock_id());
        move || client.release(&id, &Call::new()).expect("an answer")
    });
    assert!(releaser.join().expect("no panic").is_released());
    assert!(!lost.extend(TTL).expect("an answer").is_extended());
    assert!(lost.wait_lost_for(Duration::MAX));
}

#[test]
fn row_26_no_retry_and_retries_without_number() {
    let kit = kit();
    let _held = kit.lock_with(LockOptions::new());
    let once = LockOptions::new()
        .max_retries(0)
        .acquire_timeout(WAIT_LIMIT);
    let error = kit.client.lock_with("k", &once).expect_err("held");
    assert_eq!(
        (error.code(), error.attempts()),
        (ErrorCode::AcquisitionTimeout, 1)
    );
    let hour = Duration::from_secs(3600);
    for base in [Duration::from_millis(1), hour, Duration::MAX] {
        for backoff in [Backoff::Exponential, Backoff::Fixed] {
            let many = LockOptions::new()
                .max_retries(u32::MAX)
                .retry_delay(base)
                .backoff(backoff)
                .jitter(Jitter::None)
                .acquire_timeout(Duration::MAX);
            for attempt in [1, 2, 31, 32, 33, 64, 1 << 31, u32::MAX] {
                let delay = many.delay_after(attempt, hour * 2).expect("legal options");
                let most = base.max(Duration::from_secs(2)).min(hour * 2);
                assert!(delay.is_some_and(|d| d <= most && !d.is_zero()));
            }
        }
    }
    let token = CancelToken::new();
    let patient = LockOptions::new()
        .max_retries(u32::MAX)
        .retry_delay(hour)
        .cancel(&token)
        .acquire_timeout(Duration::MAX);
    let (client, calls) = (kit.client.clone(), kit.store.calls(Verb::Acquire));
    let waiter = std::thread::spawn(move || client.lock_with("k", &patient).map(drop));
    eventually("an attempt", || kit.store.calls(Verb::Acquire) > calls);
    token.cancel();
    let error = waiter.join().expect("no panic").expect_err("cancelled");
    assert_eq!(error.code(), ErrorCode::Aborted);
}

#[test]
fn row_27_a_retry_delay_of_zero_does_not_spin() {
    let client = Store::memory().client;
    let _held = take(&client, "k");
    for jitter in [Jitter::None, Jitter::Equal, Jitter::Full] {
        let options = LockOptions::new()
            .retry_delay(Duration::ZERO)
            .backoff(Backoff::Fixed)
            .jitter(jitter)
            .acquire_timeout(Duration::from_millis(50));
        let error = client.lock_with("k", &options).expect_err("held");
        let most = error.waited().expect("a wait").as_millis() as u32 + 2;
        assert!(
            error.attempts() <= most,
            "{} in {most} ms",
            error.attempts()
        );
    }
}

#[test]
fn row_60_a_machine_that_was_suspended() {
    let kit = kit();
    let (count, callback) = counter();
    let guard = kit.lock_with(LockOptions::new().on_lost(callback));
    // A store that never answers again: whatever is known, is known without it.
    for verb in [Verb::Acquire, Verb::Extend, Verb::Release, Verb::Lookup] {
        kit.store.always(verb, Fault::Hang);
    }
    kit.clock.advance(Duration::from_secs(60));
    assert!(guard.is_lost() && guard.remaining().is_zero());
    assert!(guard.wait_lost());
    assert!(!guard.extend(TTL).expect("no request").is_extended());
    assert_eq!(kit.store.calls(Verb::Extend), 0);
    eventually("the callback", || count.load(SeqCst) == 1);
    kit.store.heal();
    // The lease is over in the store too: another caller may have it, and the old guard changes nothing.
    let next = take(&kit.client, "k");
    assert!(next.fence() > guard.fence());
    drop(guard);
    assert!(kit.is_locked());
}

#[test]
fn row_61_an_extend_may_shorten() {
    for store in stores() {
        let options = LockOptions::new().no_heartbeat().ttl(TTL);
        let guard = store.client.lock_with("k", &options).expect("a lock");
        let (before, shown) = (guard.remaining(), guard.expires_at_ms());
        let shorter = TTL / 2;
        assert!(guard.extend(shorter).expect("an answer").is_extended());
        assert!(guard.remaining() < shorter && guard.remaining() < before);
        assert!(guard.expires_at_ms() < shown);
        let stored = store.client.get_by_key("k").expect("an answer");
        assert_eq!(stored.expect("live").expires_at_ms, guard.expires_at_ms());
    }
    let kit = kit();
    let guard = kit.lock_with(LockOptions::new().no_heartbeat());
    assert!(
        guard
            .extend(Duration::from_secs(1))
            .expect("an answer")
            .is_extended()
    );
    kit.clock.advance(Duration::from_secs(1));
    assert!(guard.is_lost());
}

#[test]
fn row_61_a_slow_answer_counts_from_when_it_was_asked_for() {
    let kit = kit();
    let guard = Arc::new(kit.lock_with(LockOptions::new().no_heartbeat()));
    kit.store
        .once(Verb::Extend, Fault::Delay(Duration::from_millis(300)));
    let other = Arc::clone(&guard);
    let extend = std::thread::spawn(move || other.extend(TTL));
    eventually("the extend in flight", || {
        kit.store.calls(Verb::Extend) == 1
    });
    kit.clock.advance(Duration::from_secs(5));
    let outcome = extend.join().expect("no panic").expect("an answer");
    assert!(outcome.is_extended());
    let margin = TTL / 100 + Duration::from_millis(2);
    assert_eq!(guard.remaining(), TTL - margin - Duration::from_secs(5));
}
