//! Tests holding a lock: renewal, loss and release, on the test kit's store and clock.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::kit::{Kit, THIRD, TTL, counter, kit, kit_with};
use crate::support::passing::{Done, Passing};
use crate::support::stopwatch::{Stopwatch, worst_of_three};
use crate::support::{WAIT_LIMIT, eventually};
use syncguard::testkit::{Fault, MemoryBackend, Verb};
use syncguard::{
    Backend, Call, Client, ClientOptions, ErrorCode, Guard, Key, LockError, LockOptions, LookupBy,
    LossReason, Ttl,
};

#[test]
fn a_guard_renews_for_as_long_as_it_is_held() {
    let kit = kit();
    let guard = kit.lock();
    for _ in 0..12 {
        kit.renew(&guard);
        assert!(!guard.is_lost());
    }
    assert_eq!(kit.store.calls(Verb::Extend), 12);
    drop(guard);
    assert!(!kit.is_locked());
}

#[test]
fn a_short_hold_starts_no_heartbeat_and_sends_no_renewal() {
    let kit = kit();
    for _ in 0..100 {
        drop(kit.lock());
    }
    kit.clock.advance(TTL);
    assert_eq!(
        (
            kit.store.calls(Verb::Acquire),
            kit.store.calls(Verb::Release),
            kit.store.calls(Verb::Extend)
        ),
        (100, 100, 0)
    );
}

#[test]
fn loss_is_known_at_once_and_needs_no_store() {
    let kit = kit();
    let (count, callback) = counter();
    let guard = kit.lock_with(LockOptions::new().on_lost(callback));
    for verb in [Verb::Extend, Verb::Release, Verb::Acquire] {
        kit.store.always(verb, Fault::Hang);
    }
    kit.clock.advance(TTL);
    assert!(guard.is_lost() && guard.remaining().is_zero() && guard.wait_lost());
    eventually("the callback", || count.load(SeqCst) == 1);
    kit.clock.advance(TTL * 10);
    assert!(guard.is_lost());
    kit.store.heal();
    drop(guard);
    assert_eq!(count.load(SeqCst), 1);
}

#[test]
fn the_local_deadline_comes_before_the_stores_by_a_margin() {
    let kit = kit();
    let guard = kit.lock_with(LockOptions::new().no_heartbeat());
    assert_eq!(
        guard.remaining(),
        TTL - TTL / 100 - Duration::from_millis(2)
    );
    kit.clock
        .advance(guard.remaining() - Duration::from_nanos(1));
    assert!(!guard.is_lost());
    kit.clock.advance(Duration::from_nanos(1));
    assert!(guard.is_lost());
    assert!(kit.is_locked());
}

#[test]
fn a_suspended_machine_wakes_up_with_its_lock_lost() {
    let kit = kit();
    let guard = kit.lock();
    let calls = kit.store.calls(Verb::Extend);
    kit.store.always(Verb::Extend, Fault::Hang);
    kit.clock.advance(Duration::from_secs(60));
    assert!(guard.is_lost());
    assert_eq!(
        kit.store.calls(Verb::Extend),
        calls,
        "known before any request"
    );
    kit.store.heal();
}

#[test]
fn one_failed_renewal_is_not_the_end() {
    let kit = kit();
    let guard = kit.lock();
    kit.store
        .once(Verb::Extend, Fault::Refuse(ErrorCode::ServiceUnavailable));
    kit.store.once(Verb::Extend, Fault::DropReply);
    kit.clock.advance(THIRD);
    for wanted in 1..=3 {
        eventually("another renewal", || {
            // In small steps: the lease must outlast a heartbeat that the machine keeps waiting.
            kit.store.calls(Verb::Extend) >= wanted || {
                kit.clock.advance(Duration::from_millis(10));
                false
            }
        });
    }
    eventually("a renewal that succeeds", || {
        guard.remaining() > TTL - THIRD
    });
    assert!(!guard.is_lost());
}

#[test]
fn a_renewal_that_hangs_leaves_time_for_another() {
    let took = worst_of_three(|| {
        let kit = kit();
        let options = LockOptions::new()
            .ttl(Duration::from_secs(3))
            .heartbeat(Duration::from_millis(2500));
        let guard = kit.lock_with(options);
        kit.store.once(Verb::Extend, Fault::Hang);
        kit.clock.advance(Duration::from_millis(2500));
        eventually("the renewal in flight", || {
            kit.store.calls(Verb::Extend) == 1
        });
        // The clock stands still and the lease does not end: the renewal's own bound is what ends it, half of half a second.
        let watch = Stopwatch::start();
        match guard.extend(TTL) {
            Ok(outcome) if outcome.is_extended() => watch.stop(),
            _ => Duration::MAX,
        }
    });
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_loss_that_an_extend_finds_out_is_told() {
    let kit = kit();
    for _ in 0..200 {
        let (count, callback) = counter();
        let options = LockOptions::new().no_heartbeat().on_lost(callback);
        let guard = kit.lock_with(options);
        kit.clock.advance(TTL);
        // The timer, which would tell too, is mostly slower.
        assert!(!guard.extend(TTL).expect("no I/O").is_extended());
        eventually("the callback", || count.load(SeqCst) == 1);
    }
}

#[test]
fn a_lock_that_the_store_no_longer_has_is_lost_with_the_next_renewal() {
    let kit = kit();
    let (count, callback) = counter();
    let guard = kit.lock_with(LockOptions::new().on_lost(callback));
    kit.store.evict("k").expect("a key");
    kit.clock.advance(THIRD);
    assert!(guard.wait_lost_for(WAIT_LIMIT));
    eventually("the callback", || count.load(SeqCst) == 1);
    assert!(!guard.extend(TTL).expect("no I/O").is_extended());
    assert_eq!(kit.store.calls(Verb::Extend), 1);
}

#[test]
fn a_panicking_store_loses_the_lock_and_not_the_process() {
    let kit = kit();
    let guard = kit.lock();
    kit.store.once(Verb::Extend, Fault::Panic);
    kit.clock.advance(THIRD);
    assert!(guard.wait_lost_for(WAIT_LIMIT));
    kit.store.once(Verb::Release, Fault::Panic);
    drop(guard);
    kit.store.once(Verb::Acquire, Fault::Panic);
    let client = kit.client.clone();
    assert!(std::panic::catch_unwind(move || client.try_lock("other").map(|_| ())).is_err());
}

#[test]
fn max_hold_ends_the_renewals() {
    let kit = kit();
    let guard = kit.lock_with(LockOptions::new().max_hold(THIRD * 2));
    kit.renew(&guard);
    // Renewed beside it, to be certain that the timer has rung for both.
    let other = kit.client.lock("other").expect("a free lock");
    for calls in 2..=3 {
        kit.renew(&other);
        // Another renewal would be on its way by now, as a rule.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(kit.store.calls(Verb::Extend), calls);
    }
    kit.renew(&other);
    assert!(guard.wait_lost_for(WAIT_LIMIT) && !other.is_lost());
}

#[test]
fn a_forgotten_guard_ends_with_max_hold() {
    let kit = kit();
    std::mem::forget(kit.lock_with(LockOptions::new().max_hold(Duration::from_secs(1))));
    kit.clock.advance(TTL + Duration::from_secs(2));
    assert!(kit.client.try_lock("k").expect("an answer").is_some());
}

#[test]
fn an_extend_replaces_the_lease_and_the_pace() {
    let kit = kit();
    let guard = kit.lock();
    assert!(
        guard
            .extend(Duration::from_secs(3))
            .expect("an answer")
            .is_extended(),
        "shorter than what remains is legal"
    );
    assert!(guard.remaining() < Duration::from_secs(3));
    kit.clock.advance(Duration::from_secs(1));
    eventually("a renewal at a third of the new ttl", || {
        kit.store.calls(Verb::Extend) == 2
    });
    eventually("the answer", || {
        guard.remaining() > Duration::from_millis(2900)
    });
    assert!(guard.extend(TTL).expect("an answer").is_extended());
    assert!(guard.remaining() > Duration::from_secs(29));
}

#[test]
fn an_extend_of_unknown_outcome_counts_as_the_shorter_lease() {
    let kit = kit();
    let guard = kit.lock_with(LockOptions::new().no_heartbeat());
    kit.store.once(Verb::Extend, Fault::DropReply);
    assert_eq!(
        guard
            .extend(Duration::from_secs(1))
            .expect_err("the reply is lost")
            .code(),
        ErrorCode::ServiceUnavailable
    );
    assert!(guard.remaining() < Duration::from_secs(1));
    kit.store.once(Verb::Extend, Fault::DropReply);
    let before = guard.remaining();
    assert!(guard.extend(TTL).is_err());
    assert_eq!(
        guard.remaining(),
        before,
        "an unknown longer lease is not believed in"
    );
    kit.store
        .once(Verb::Extend, Fault::Refuse(ErrorCode::ServiceUnavailable));
    assert!(guard.extend(Duration::from_millis(500)).is_err());
    assert_eq!(
        guard.remaining(),
        before,
        "what was refused changed nothing"
    );
    assert!(guard.extend(TTL).expect("an answer").is_extended());
    assert!(guard.remaining() > Duration::from_secs(29));
}

#[test]
fn an_answer_that_comes_after_the_deadline_revives_nothing() {
    let (kit, answer) = late();
    let guard = Arc::new(kit.lock_with(LockOptions::new().no_heartbeat()));
    let other = Arc::clone(&guard);
    let extend = std::thread::spawn(move || other.extend(TTL));
    eventually("the extend in flight", || {
        kit.store.calls(Verb::Extend) == 1
    });
    kit.clock.advance(TTL);
    answer.send(()).expect("a receiver");
    let outcome = extend.join().expect("no panic").expect("an answer");
    assert!(!outcome.is_extended());
    assert!(guard.is_lost() && guard.remaining().is_zero());
    assert!(kit.is_locked(), "the store has extended it");
}

#[test]
fn a_renewed_lease_counts_from_the_request_and_not_from_the_answer() {
    let (kit, answer) = late();
    let guard = Arc::new(kit.lock_with(LockOptions::new().no_heartbeat()));
    let other = Arc::clone(&guard);
    let extend = std::thread::spawn(move || other.extend(TTL));
    eventually("the extend in flight", || {
        kit.store.calls(Verb::Extend) == 1
    });
    let on_its_way = Duration::from_secs(5);
    kit.clock.advance(on_its_way);
    answer.send(()).expect("a receiver");
    let outcome = extend.join().expect("no panic").expect("an answer");
    assert!(outcome.is_extended());
    assert_eq!(
        guard.remaining(),
        TTL - TTL / 100 - Duration::from_millis(2) - on_its_way
    );
}

#[test]
fn an_extend_of_unknown_outcome_is_followed_by_a_renewal_in_time() {
    let kit = kit();
    let guard = kit.lock();
    kit.store.once(Verb::Extend, Fault::DropReply);
    assert!(guard.extend(Duration::from_secs(1)).is_err());
    // The lease may be over in a second; the renewal of the first one would be due in ten.
    assert!(guard.remaining() <= Duration::from_secs(1));
    kit.clock.advance(Duration::from_millis(500));
    eventually("the renewal", || guard.remaining() > THIRD);
    kit.clock.advance(Duration::from_secs(2));
    assert!(!guard.is_lost());
}

#[test]
fn a_release_is_not_sent_beside_an_extend() {
    let (kit, answer) = late();
    let guard = Arc::new(kit.lock());
    let (one, other) = (Arc::clone(&guard), Arc::clone(&guard));
    let extend = std::thread::spawn(move || one.extend(TTL));
    eventually("the extend in flight", || {
        kit.store.calls(Verb::Extend) == 1
    });
    // The store might execute the extend after the release and, were it another store than ours, bring the lock back.
    let release = std::thread::spawn(move || other.release());
    // From then on the guard is not held, whatever the extend is answered.
    eventually("the release begins", || guard.remaining().is_zero());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(kit.store.calls(Verb::Release), 0);
    answer.send(()).expect("a receiver");
    let released = release.join().expect("no panic").expect("an answer");
    assert!(released.is_released());
    let outcome = extend.join().expect("no panic").expect("an answer");
    assert!(!outcome.is_extended());
    assert!(!kit.is_locked());
}

/// A kit whose extends are applied at once and answered when something is sent, whatever the caller's token says.
fn late() -> (Kit, mpsc::Sender<()>) {
    let mut kit = kit();
    let (answer, hold) = mpsc::channel();
    let options = ClientOptions::new()
        .clock(&kit.clock)
        .operation_timeout(WAIT_LIMIT);
    let hold = Mutex::new(hold);
    let store = Passing::new(kit.store.clone(), move |done| {
        if done == Done::Extend {
            let hold = hold.lock().expect("not poisoned");
            hold.recv_timeout(WAIT_LIMIT).expect("the test's word");
        }
    });
    kit.client = Client::from_backend_with(store, &options).expect("legal options");
    (kit, answer)
}

#[test]
fn release_reports_once_and_sends_once() {
    let kit = kit();
    let guard = kit.lock();
    assert!(guard.release().expect("an answer").is_released());
    assert!(!guard.release().expect("no I/O").is_released());
    assert!(!guard.extend(TTL).expect("no I/O").is_extended());
    assert!(!guard.is_lost() && guard.remaining().is_zero() && !guard.wait_lost());
    drop(guard);
    assert_eq!(
        (
            kit.store.calls(Verb::Release),
            kit.store.calls(Verb::Extend)
        ),
        (1, 0)
    );
}

#[test]
fn a_release_of_unknown_outcome_is_tried_again() {
    let kit = kit();
    let guard = kit.lock();
    kit.store.once(Verb::Release, Fault::DropReply);
    kit.store
        .once(Verb::Release, Fault::Refuse(ErrorCode::ServiceUnavailable));
    assert!(guard.release().is_err() && guard.release().is_err());
    drop(guard);
    assert_eq!(kit.store.calls(Verb::Release), 3);
    assert!(!kit.is_locked());
}

#[test]
fn a_lost_guard_still_sends_its_release() {
    let kit = kit();
    let guard = kit.lock_with(LockOptions::new().no_heartbeat());
    kit.clock.advance(guard.remaining());
    assert!(guard.is_lost() && kit.is_locked());
    drop(guard);
    assert!(!kit.is_locked());
}

#[test]
fn release_interrupts_a_renewal_in_flight() {
    let kit = kit();
    let took = worst_of_three(|| {
        let guard = kit.lock();
        kit.store.once(Verb::Extend, Fault::Hang);
        let calls = kit.store.calls(Verb::Extend);
        kit.clock.advance(THIRD);
        eventually("the renewal in flight", || {
            kit.store.calls(Verb::Extend) > calls
        });
        let watch = Stopwatch::start();
        assert!(guard.release().expect("an answer").is_released());
        watch.stop()
    });
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn drop_is_bounded_and_tells_the_hook() {
    let (tx, rx) = mpsc::channel();
    let tx = Mutex::new(tx);
    let kit = kit_with(
        ClientOptions::new()
            .dispose_timeout(Duration::from_millis(200))
            .on_release_error(move |e| {
                let told = (
                    e.error.code(),
                    e.key.as_str().to_owned(),
                    e.lock_id.as_str().len(),
                    e.origin.to_string(),
                    format!("{e:?}"),
                );
                drop(tx.lock().map(|tx| tx.send(told)));
            }),
    );
    kit.store.always(Verb::Release, Fault::Hang);
    // Nothing releases them: each run has a key of its own.
    let mut keys = ["k", "k2", "k3"].into_iter();
    let took = worst_of_three(|| {
        let guard = keys.next().map(|key| kit.client.lock(key).expect("a lock"));
        let watch = Stopwatch::start();
        drop(guard);
        let (took, lost) = watch.stop_after(Duration::from_millis(200));
        assert!(took >= Duration::from_millis(200), "{took:?}");
        took.saturating_sub(lost)
    });
    assert!(took < Duration::from_millis(300), "{took:?}");
    let (code, key, id_len, source, shown) = rx.recv_timeout(WAIT_LIMIT).expect("the hook");
    assert_eq!(
        (code, key.as_str(), id_len, source.as_str()),
        (ErrorCode::NetworkTimeout, "k", 22, "drop")
    );
    assert!(!shown.contains("\"k\""), "{shown}");
}

#[test]
fn an_absent_lock_is_no_error_for_the_hook() {
    let (count, callback) = counter();
    let kit = kit();
    let options = LockOptions::new().on_release_error(move |e| callback(&e.error));
    let guard = kit.lock_with(options);
    kit.store.evict("k").expect("a key");
    drop(guard);
    assert_eq!(count.load(SeqCst), 0);
}

#[test]
fn no_callback_after_release() {
    for _ in 0..200 {
        let kit = kit();
        let released = Arc::new(AtomicUsize::new(0));
        let late = Arc::new(AtomicUsize::new(0));
        let (r, l) = (Arc::clone(&released), Arc::clone(&late));
        let guard = kit.lock_with(LockOptions::new().no_heartbeat().on_lost(move |_| {
            l.fetch_add(r.load(SeqCst), SeqCst);
        }));
        let clock = kit.clock.clone();
        let start = Arc::new(Barrier::new(2));
        let other = Arc::clone(&start);
        let mover = std::thread::spawn(move || {
            other.wait();
            clock.advance(TTL);
        });
        start.wait();
        let begun = Instant::now();
        guard.release().expect("an answer").expect_released();
        // It waits a second at the most for a callback that is running; one that was kept from the processor for longer
        // than that proves nothing.
        if begun.elapsed() < Duration::from_millis(500) {
            released.store(1, SeqCst);
        }
        mover.join().expect("no panic");
        drop(guard);
        assert_eq!(late.load(SeqCst), 0);
    }
}

#[test]
fn a_release_waits_for_a_lost_callback_that_runs() {
    let kit = kit();
    let (begins, begun) = mpsc::channel();
    let ended = Arc::new(AtomicUsize::new(0));
    let (begins, end) = (Mutex::new(begins), Arc::clone(&ended));
    let guard = kit.lock_with(LockOptions::new().no_heartbeat().on_lost(move |_| {
        drop(begins.lock().map(|begins| begins.send(())));
        std::thread::sleep(Duration::from_millis(200));
        end.store(1, SeqCst);
    }));
    kit.clock.advance(TTL);
    begun.recv_timeout(WAIT_LIMIT).expect("the callback");
    let release = Instant::now();
    drop(guard.release());
    // A callback that takes longer than a second is not waited for.
    assert!(ended.load(SeqCst) == 1 || release.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_callback_may_release_and_drop_its_own_guard() {
    let kit = kit();
    let slot: Arc<Mutex<Option<Guard>>> = Arc::default();
    let (tx, rx) = mpsc::channel();
    let (inner, tx) = (Arc::clone(&slot), Mutex::new(tx));
    let guard = kit.lock_with(LockOptions::new().on_lost(move |_| {
        let guard = inner.lock().expect("a slot").take();
        let released = guard.as_ref().map(Guard::release);
        drop(guard);
        drop(tx.lock().map(|tx| tx.send(released.is_some())));
    }));
    *slot.lock().expect("a slot") = Some(guard);
    kit.store
        .always(Verb::Extend, Fault::Refuse(ErrorCode::ServiceUnavailable));
    kit.clock.advance(TTL);
    assert_eq!(rx.recv_timeout(WAIT_LIMIT), Ok(true));
}

#[test]
fn a_slow_callback_delays_no_other_guard() {
    let kit = kit();
    let (hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let slow = kit
        .client
        .lock_with(
            "slow",
            &LockOptions::new()
                .no_heartbeat()
                .on_lost(move |_| drop(held.lock().map(|h| h.recv()))),
        )
        .expect("a lock");
    let (count, callback) = counter();
    let quick = kit
        .client
        .lock_with(
            "quick",
            &LockOptions::new().no_heartbeat().on_lost(callback),
        )
        .expect("a lock");
    kit.clock.advance(TTL);
    eventually("the other callback", || count.load(SeqCst) == 1);
    assert!(quick.is_lost() && slow.is_lost());
    drop(hold);
}

#[test]
fn a_panicking_callback_breaks_nothing() {
    let kit = kit();
    let (count, callback) = counter();
    let guard = kit.lock_with(LockOptions::new().no_heartbeat().on_lost(move |why| {
        callback(why);
        panic!("planted");
    }));
    kit.clock.advance(TTL);
    eventually("the callback", || count.load(SeqCst) == 1);
    drop(guard);
    assert!(kit.client.try_lock("k").expect("an answer").is_some() || kit.is_locked());
}

#[test]
fn lost_fd_becomes_readable() {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::BorrowedFd;
    fn readable(fd: BorrowedFd<'_>) -> bool {
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).expect("poll") == 1
    }
    let kit = kit();
    let guard = kit.lock_with(LockOptions::new().no_heartbeat());
    assert!(!readable(guard.lost_fd().expect("a descriptor")));
    kit.clock.advance(TTL);
    assert!(guard.is_lost() && readable(guard.lost_fd().expect("a descriptor")));
    let late = kit
        .client
        .lock_with("late", &LockOptions::new().no_heartbeat())
        .expect("a lock");
    kit.clock.advance(TTL);
    assert!(
        late.is_lost() && readable(late.lost_fd().expect("a descriptor")),
        "also when asked for afterwards"
    );
}

#[test]
fn eight_threads_extend_and_release_one_guard() {
    for _ in 0..50 {
        let kit = kit();
        let (count, callback) = counter();
        let guard = Arc::new(kit.lock_with(LockOptions::new().on_lost(callback)));
        let start = Arc::new(Barrier::new(8));
        let workers: Vec<_> = (0..8)
            .map(|n| {
                let (guard, start) = (Arc::clone(&guard), Arc::clone(&start));
                std::thread::spawn(move || {
                    start.wait();
                    if n % 2 == 0 {
                        guard
                            .release()
                            .map(|outcome| usize::from(outcome.is_released()))
                    } else {
                        guard.extend(TTL).map(|_| 0)
                    }
                })
            })
            .collect();
        let answers: Vec<_> = workers
            .into_iter()
            .map(|w| w.join().expect("no panic"))
            .collect();
        let released: usize = answers.iter().flatten().sum();
        assert_eq!(released, 1, "one winner: {answers:?}");
        kit.clock.advance(TTL);
        assert!(!guard.is_lost());
        assert_eq!(count.load(SeqCst), 0);
        assert!(!kit.is_locked());
    }
}

/// An extend that was answered sets the guard's alarm. If a release was faster there must be none: it would keep the guard's
/// memory, and what its callbacks hold, until the lease would have ended.
#[test]
fn a_guard_that_is_released_beside_an_extend_leaves_nothing() {
    let kit = kit();
    let (begin, end) = (Barrier::new(2), Barrier::new(2));
    let shared: Mutex<Option<Arc<Guard>>> = Mutex::new(None);
    let get = || shared.lock().expect("no panic").clone();
    let mut marks = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0u32.. {
                begin.wait();
                let Some(guard) = get() else { break };
                for _ in 0..(round % 64) * 40 {
                    std::hint::spin_loop();
                }
                assert!(guard.release().is_ok());
                drop(guard);
                end.wait();
            }
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            let mark = Arc::new(());
            marks.push(Arc::downgrade(&mark));
            let options = LockOptions::new().no_heartbeat();
            let guard = kit.lock_with(options.on_lost(move |_| drop(Arc::clone(&mark))));
            *shared.lock().expect("no panic") = Some(Arc::new(guard));
            begin.wait();
            let extended = get().map(|guard| guard.extend(TTL));
            assert!(matches!(extended, Some(Ok(_))));
            end.wait();
            *shared.lock().expect("no panic") = None;
        }
        begin.wait();
    });
    eventually("the end of every guard", || {
        marks.iter().all(|mark| mark.strong_count() == 0)
    });
}

#[test]
fn with_lock_releases_also_when_the_work_panics() {
    let kit = kit();
    assert_eq!(
        kit.client
            .with_lock("k", |g| g.fence().get())
            .expect("a lock"),
        1
    );
    let client = kit.client.clone();
    assert!(
        std::panic::catch_unwind(move || client.with_lock("k", |_| panic!("planted"))).is_err()
    );
    assert!(!kit.is_locked());
    assert_eq!(
        kit.client
            .with_lock("k", |g| g.fence().get())
            .expect("a lock"),
        3
    );
}

#[test]
fn dropping_the_client_first_is_fine() {
    let Kit {
        clock,
        store,
        client,
    } = kit();
    let guard = client.lock("k").expect("a lock");
    drop(client);
    clock.advance(THIRD);
    eventually("a renewal", || store.calls(Verb::Extend) == 1);
    assert!(guard.release().expect("an answer").is_released());
}

#[test]
fn ttls_of_a_few_milliseconds_neither_spin_nor_overflow() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    for ms in 1..=3 {
        let guard = client
            .lock_with("tiny", &LockOptions::new().ttl(Duration::from_millis(ms)))
            .expect("a lock");
        assert!(guard.wait_lost_for(WAIT_LIMIT));
        drop(guard);
    }
    assert!(
        store.calls(Verb::Extend) < 20,
        "{}",
        store.calls(Verb::Extend)
    );
}

/// What a guard whose lock goes as `lose` makes it go says of that: to the callback, when asked, and in the end of `with_lock`.
fn said_of(
    options: LockOptions,
    renewals: Option<Fault>,
    lose: impl Fn(&Kit, &Guard),
) -> LossReason {
    let kit = kit();
    if let Some(fault) = renewals {
        kit.store.always(Verb::Extend, fault);
    }
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let options = options.on_lost(move |why| {
        let said = (why.code(), why.loss_reason());
        let _ = tell.lock().map(|tell| tell.send(said));
    });
    let error = kit
        .client
        .with_lock_with("k", &options, |guard| {
            assert_eq!(guard.loss(), None);
            lose(&kit, guard);
            let (code, why) = told.recv_timeout(WAIT_LIMIT).expect("the callback");
            assert_eq!(code, ErrorCode::Lost);
            assert!(guard.is_lost() && guard.loss() == why);
            assert!(!guard.extend(TTL).expect("no I/O").is_extended());
        })
        .expect_err("lost");
    assert_eq!(error.code(), ErrorCode::Lost, "{error}");
    assert!(error.key_hash().is_some() && !error.may_have_applied());
    error.loss_reason().expect("a reason")
}

#[test]
fn a_loss_says_why_everywhere() {
    let refused = Fault::Refuse(ErrorCode::ServiceUnavailable);
    let over = |kit: &Kit, guard: &Guard| {
        eventually("the loss", || {
            kit.clock.advance(TTL / 10);
            guard.is_lost()
        });
    };
    assert_eq!(
        said_of(LockOptions::new(), Some(refused), over),
        LossReason::Unconfirmed
    );
    assert_eq!(
        said_of(LockOptions::new().no_heartbeat(), None, over),
        LossReason::NotRenewed
    );
    let limited = LockOptions::new().max_hold(Duration::from_secs(1));
    assert_eq!(said_of(limited, None, over), LossReason::MaxHold);
    let removed = |kit: &Kit, _: &Guard| {
        kit.store.evict("k").expect("a key");
        kit.clock.advance(THIRD);
    };
    assert_eq!(
        said_of(LockOptions::new(), None, removed),
        LossReason::Removed
    );
    let renewed = |kit: &Kit, _: &Guard| kit.clock.advance(THIRD);
    assert_eq!(
        said_of(LockOptions::new(), Some(Fault::Panic), renewed),
        LossReason::HeartbeatFailed
    );
}

#[test]
fn with_lock_says_that_the_lock_was_gone_at_its_end() {
    let kit = kit();
    // No renewal has found out: the release does.
    let error = kit
        .client
        .with_lock("k", |_| kit.store.evict("k").expect("a key"))
        .expect_err("another holder may have worked meanwhile");
    assert_eq!(error.loss_reason(), Some(LossReason::Removed));
    // Work that releases by itself has had its answer.
    let outcome = kit.client.with_lock("k", |guard| guard.release());
    outcome
        .expect("not lost")
        .expect("an answer")
        .expect_released();
    // A release that fails is the hook's, and tried once.
    let before = kit.store.calls(Verb::Release);
    kit.store
        .once(Verb::Release, Fault::Refuse(ErrorCode::ServiceUnavailable));
    assert_eq!(kit.client.with_lock("k", |_| 7).expect("the work's"), 7);
    assert_eq!(kit.store.calls(Verb::Release), before + 1);
}

#[test]
fn a_store_of_ones_own_is_given_the_deadline_of_every_call() {
    let kit = kit_with(
        ClientOptions::new()
            .operation_timeout(Duration::from_millis(100))
            .dispose_timeout(Duration::from_millis(100)),
    );
    let (store, client) = (&kit.store, &kit.client);
    let key = Key::new("k").expect("a key");
    let id = *kit.lock().lock_id();
    let ttl = Ttl::new(TTL).expect("a ttl");
    let guard = kit.lock();
    for verb in [
        Verb::Acquire,
        Verb::Release,
        Verb::Extend,
        Verb::IsLocked,
        Verb::Lookup,
    ] {
        store.always(verb, Fault::Hang);
    }
    // By itself the store would take its own five seconds.
    let bounded = |name: &str, call: &dyn Fn() -> Result<(), LockError>| {
        let begun = Instant::now();
        let error = call().expect_err("no answer");
        assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{name}");
        assert!(
            begun.elapsed() < Duration::from_secs(4),
            "{name} took {:?}",
            begun.elapsed()
        );
    };
    bounded("acquire", &|| {
        client.acquire(&key, &id, ttl, &Call::new()).map(drop)
    });
    bounded("release", &|| client.release(&id, &Call::new()).map(drop));
    bounded("extend", &|| {
        client.extend(&id, ttl, &Call::new()).map(drop)
    });
    bounded("is_locked", &|| {
        client.is_locked_with(&key, &Call::new()).map(drop)
    });
    bounded("find", &|| {
        client.find(LookupBy::Key(&key), &Call::new()).map(drop)
    });
    bounded("get_by_key", &|| client.get_by_key("k").map(drop));
    bounded("try_lock", &|| client.try_lock("other").map(drop));
    bounded("guard.extend", &|| guard.extend(TTL).map(drop));
    bounded("guard.release", &|| guard.release().map(drop));
    let begun = Instant::now();
    drop(guard);
    assert!(begun.elapsed() < Duration::from_secs(4));
}

#[test]
fn with_lock_takes_its_own_lost_release_for_no_loss() {
    let kit = kit();
    let outcome = kit.client.with_lock("k", |guard| {
        // It is applied, and its answer is lost.
        kit.store.once(Verb::Release, Fault::DropReply);
        guard.release().map(drop)
    });
    assert!(outcome.expect("not lost").is_err());
}
