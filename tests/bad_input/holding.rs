//! Tests what a program can do wrong with a lock that it holds.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Barrier, mpsc};
use std::time::Instant;

use super::*;
use support::stopwatch::{Stopwatch, worst_of_three};
use support::{WAIT_LIMIT, eventually};
use syncguard::testkit::{Fault, Verb};
use syncguard::{Call, CancelToken};

#[test]
fn row_53_inside_an_async_runtime() {
    for store in stores() {
        let client = &store.client;
        for runtime in [
            tokio::runtime::Builder::new_current_thread().build(),
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .build(),
        ] {
            let runtime = runtime.expect("a runtime");
            let fence = runtime.block_on(async {
                let guard = client.lock("k").expect("a lock");
                let task = tokio::spawn({
                    let client = client.clone();
                    async move { client.try_lock("k").map(|g| g.is_some()) }
                });
                assert!(!task.await.expect("no panic").expect("an answer"));
                let moved = client.clone();
                let blocking = tokio::task::spawn_blocking(move || {
                    let options = LockOptions::new().acquire_timeout(WAIT_LIMIT);
                    moved.lock_with("k", &options).map(|g| g.fence())
                });
                // Held across an await, dropped inside a task.
                tokio::task::yield_now().await;
                assert!(guard.extend(TTL).expect("an answer").is_extended());
                drop(guard);
                blocking.await.expect("no panic").expect("the lock")
            });
            assert!(fence.get() >= 2);
            assert!(!is_locked(client, "k"));
        }
    }
}

#[test]
fn row_53_inside_a_pool_of_threads() {
    use rayon::iter::{IntoParallelIterator, ParallelIterator};
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(4)
        .build()
        .expect("a pool");
    let client = Store::memory().client;
    let options = LockOptions::new()
        .acquire_timeout(WAIT_LIMIT)
        .retry_delay(Duration::from_millis(1));
    let mut fences: Vec<u64> = pool.install(|| {
        (0..40)
            .into_par_iter()
            .map(|_| {
                let guard = client.lock_with("k", &options).expect("the lock");
                guard.fence().get()
            })
            .collect()
    });
    fences.sort_unstable();
    assert_eq!(fences, (1..=40).collect::<Vec<_>>());
}

#[test]
fn row_54_a_panic_in_the_closure_releases() {
    for store in stores() {
        let client = &store.client;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            client.with_lock("k", |_| panic!("planted"))
        }));
        assert!(panicked.is_err());
        assert!(!is_locked(client, "k"));
    }
}

/// Panics while it is dropped, as a payload of a panic.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("planted in a payload");
        }
    }
}

#[test]
fn row_54_a_callback_whose_panic_panics_again() {
    // The release does not wait for a callback that has ended; were it still counted as running, it would, for a second.
    let took = worst_of_three(|| {
        let kit = kit();
        let (tx, rx) = mpsc::channel();
        let guard = kit.lock_with(LockOptions::new().no_heartbeat().on_lost(move |_| {
            tx.send(()).expect("a listener");
            std::panic::panic_any(Bomb);
        }));
        kit.clock.advance(TTL);
        rx.recv_timeout(WAIT_LIMIT).expect("the callback");
        let watch = Stopwatch::start();
        let _ = guard.release();
        watch.stop()
    });
    assert!(took < Duration::from_millis(900), "{took:?}");
}

#[test]
fn row_54_a_store_that_panics_in_an_extend_wedges_nothing() {
    let kit = kit();
    let guard = kit.lock_with(LockOptions::new());
    kit.store.once(Verb::Extend, Fault::Panic);
    assert!(catch_unwind(AssertUnwindSafe(|| guard.extend(TTL))).is_err());
    // Neither the next extend nor the release waits for the one that is gone.
    assert!(guard.extend(TTL).expect("an answer").is_extended());
    kit.store.once(Verb::Extend, Fault::Panic);
    assert!(catch_unwind(AssertUnwindSafe(|| guard.extend(TTL))).is_err());
    assert!(guard.release().expect("an answer").is_released());
    assert!(!kit.is_locked());
}

#[test]
fn row_54_a_store_that_panics_while_it_is_undone_wedges_nothing() {
    let kit = kit();
    for _ in 0..2 {
        kit.store.once(Verb::Acquire, Fault::DropReply);
        kit.store.once(Verb::Release, Fault::Panic);
        assert!(kit.client.try_lock("k").is_err());
        eventually("the orphan's end", || {
            kit.clock.advance(Duration::from_millis(10));
            !kit.is_locked()
        });
    }
    assert!(kit.clock.now() < TTL, "undone, and not run out");
}

thread_local! {
    static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

#[test]
fn row_54_a_guard_in_a_thread_local_is_released_with_its_thread() {
    for store in stores() {
        let client = store.client.clone();
        let keeper = std::thread::spawn(move || {
            KEPT.with(|slot| *slot.borrow_mut() = Some(take(&client, "k")));
            assert!(is_locked(&client, "k"));
        });
        keeper.join().expect("no panic");
        eventually("the release", || !is_locked(&store.client, "k"));
    }
}

#[test]
fn row_54_a_forgotten_guard_ends_with_max_hold() {
    let kit = kit();
    let options = LockOptions::new().max_hold(TTL);
    std::mem::forget(kit.lock_with(options));
    // It is renewed for as long as it may be,
    kit.clock.advance(TTL / 3);
    eventually("a renewal", || kit.store.calls(Verb::Extend) == 1);
    // and no longer.
    eventually("the end", || {
        kit.clock.advance(TTL / 10);
        kit.client.try_lock("k").expect("an answer").is_some()
    });
    assert!(kit.clock.now() < TTL * 3);
}

#[test]
fn row_55_a_guard_that_changes_threads() {
    for store in stores() {
        let guard = take(&store.client, "k");
        let elsewhere = std::thread::spawn(move || {
            assert!(guard.extend(TTL).expect("an answer").is_extended());
            drop(guard);
        });
        elsewhere.join().expect("no panic");
        assert!(!is_locked(&store.client, "k"));
    }
}

#[test]
fn row_55_released_and_dropped_during_another_threads_extend() {
    let kit = kit();
    let guard = Arc::new(kit.lock_with(LockOptions::new()));
    kit.store.once(Verb::Extend, Fault::Hang);
    let other = Arc::clone(&guard);
    let extend = std::thread::spawn(move || {
        let answer = other.extend(TTL);
        // The last reference may be this one: the drop is here then.
        drop(other);
        answer
    });
    eventually("the extend in flight", || {
        kit.store.calls(Verb::Extend) == 1
    });
    assert!(guard.release().expect("an answer").is_released());
    drop(guard);
    let outcome = extend.join().expect("no panic");
    assert!(!outcome.is_ok_and(|o| o.is_extended()));
    assert!(!kit.is_locked());
}

#[test]
fn row_55_a_cancel_ends_the_wait_of_a_release() {
    let took = worst_of_three(|| {
        let kit = kit();
        let guard = Arc::new(kit.lock_with(LockOptions::new()));
        // Ends by its own timeout after five seconds, or when the test cancels it.
        kit.store.once(Verb::Release, Fault::Hang);
        let (hung, token) = (CancelToken::new(), CancelToken::new());
        let first = std::thread::spawn({
            let (guard, hung) = (Arc::clone(&guard), hung.clone());
            move || guard.release_with(&Call::new().cancelled_by(&hung))
        });
        eventually("the release in flight", || {
            kit.store.calls(Verb::Release) == 1
        });
        let second = std::thread::spawn({
            let (guard, token) = (Arc::clone(&guard), token.clone());
            move || guard.release_with(&Call::new().cancelled_by(&token))
        });
        // Long enough for it to wait, as a rule; the answer is the same if not.
        std::thread::sleep(Duration::from_millis(20));
        let watch = Stopwatch::start();
        token.cancel();
        let error = second.join().expect("no panic").expect_err("cancelled");
        let took = watch.stop();
        assert_eq!(error.code(), ErrorCode::Aborted);
        hung.cancel();
        assert!(first.join().expect("no panic").is_err());
        assert!(
            guard.release().expect("an answer").is_released(),
            "may be tried again"
        );
        took
    });
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn row_62_extends_and_releases_of_eight_threads() {
    for round in 0..40 {
        let kit = kit();
        let released = Arc::new(AtomicUsize::new(0));
        let (late, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (r, l, c) = (Arc::clone(&released), Arc::clone(&late), Arc::clone(&calls));
        let options = LockOptions::new().on_lost(move |_| {
            l.fetch_add(r.load(SeqCst), SeqCst);
            c.fetch_add(1, SeqCst);
        });
        let guard = Arc::new(kit.lock_with(options));
        // Half of the rounds have an extend in flight that only a release ends, and half lose the lease at the same time.
        if round % 2 == 0 {
            kit.store.once(Verb::Extend, Fault::Hang);
        }
        let start = Arc::new(Barrier::new(9));
        let workers: Vec<_> = (0..8)
            .map(|n| {
                let (guard, start) = (Arc::clone(&guard), Arc::clone(&start));
                let released = Arc::clone(&released);
                std::thread::spawn(move || {
                    start.wait();
                    if n % 2 == 1 {
                        return (guard.extend(TTL).map(|_| false), Duration::ZERO);
                    }
                    let begun = Instant::now();
                    let answer = guard.release();
                    released.store(1, SeqCst);
                    (answer.map(|o| o.is_released()), begun.elapsed())
                })
            })
            .collect();
        start.wait();
        if round % 4 < 2 {
            kit.clock.advance(TTL);
        }
        let answers: Vec<_> = workers
            .into_iter()
            .map(|w| w.join().expect("no panic"))
            .collect();
        let wins = answers
            .iter()
            .filter(|(a, _)| matches!(a, Ok(true)))
            .count();
        // The store's tolerance keeps the lock alive at the end of its lease: one release removes it.
        assert_eq!(wins, 1, "{answers:?}");
        assert!(!kit.is_locked());
        let before = calls.load(SeqCst);
        kit.clock.advance(TTL * 2);
        let lost = guard.is_lost();
        drop(guard);
        assert!(calls.load(SeqCst) <= 1);
        assert!(lost || calls.load(SeqCst) == 0);
        // A release waits for a callback that runs, but not for ever: one that did not run within a second may be late.
        if answers
            .iter()
            .all(|(_, took)| *took < Duration::from_secs(1))
        {
            assert_eq!(
                late.load(SeqCst),
                0,
                "a callback began after a release had returned"
            );
            assert_eq!(calls.load(SeqCst), before);
        }
    }
}

#[test]
fn row_62_a_queued_callback_is_discarded_by_a_release() {
    let kit = kit();
    let (count, callback) = counter();
    let guard = Arc::new(kit.lock_with(LockOptions::new().on_lost(callback)));
    kit.store.once(Verb::Extend, Fault::Hang);
    let other = Arc::clone(&guard);
    let extend = std::thread::spawn(move || other.extend(TTL));
    eventually("the extend in flight", || {
        kit.store.calls(Verb::Extend) == 1
    });
    assert!(guard.release().expect("an answer").is_released());
    drop(extend.join().expect("no panic"));
    // The end of the lease comes after the release: no callback is told.
    kit.clock.advance(TTL * 2);
    assert!(!guard.is_lost() && !guard.wait_lost());
    drop(guard);
    assert_eq!(count.load(SeqCst), 0);
}

#[test]
fn row_62_no_heartbeat_means_none_also_after_a_failed_extend() {
    let kit = kit();
    let guard = kit.lock_with(LockOptions::new().no_heartbeat());
    kit.store
        .once(Verb::Extend, Fault::Refuse(ErrorCode::ServiceUnavailable));
    assert!(guard.extend(TTL).is_err());
    // The timer rings in order: when this one is renewed, every earlier alarm has rung.
    let other = kit.client.lock("other").expect("a lock");
    kit.clock.advance(TTL / 2);
    eventually("the other's renewal", || kit.store.calls(Verb::Extend) > 1);
    std::thread::sleep(Duration::from_millis(50));
    kit.clock.advance(TTL / 2);
    assert!(guard.wait_lost_for(WAIT_LIMIT));
    assert!(other.release().is_ok());
    assert!(guard.remaining().is_zero());
    let renewed = kit.client.get_by_id(guard.lock_id().as_str());
    let end = renewed.expect("an answer").map(|l| l.expires_at_ms);
    assert_eq!(
        end,
        Some(guard.expires_at_ms()),
        "the lease as it was granted"
    );
}

#[test]
fn row_63_the_same_key_twice_in_one_thread() {
    for store in stores() {
        let client = &store.client;
        let first = take(client, "k");
        assert!(client.try_lock("k").expect("an answer").is_none());
        assert!(client.clone().try_lock("k").expect("an answer").is_none());
        let options = LockOptions::new().acquire_timeout(Duration::from_millis(30));
        let error = client.lock_with("k", &options).expect_err("no re-entrance");
        assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
        let inner = client.with_lock_with("k", &options, |_| panic!("the work was run"));
        assert_eq!(
            inner.expect_err("held").code(),
            ErrorCode::AcquisitionTimeout
        );
        assert!(first.release().expect("an answer").is_released());
        drop(take(client, "k"));
    }
}
