//! Slots are handed out in order, within a deadline, and kept for upkeep.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::backend::call::Call;
use crate::runtime::cancel::CancelToken;
use crate::runtime::process::Owner;

const AMPLE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

fn within(timeout: Duration) -> Limits<'static> {
    Limits::enter(Owner::current(), timeout, &Call::new()).expect("time is left")
}

fn queued<C>(pool: &Pool<C>, rank: Rank, n: usize) {
    let deadline = Instant::now() + AMPLE;
    while pool.state.lock().queue(rank).len() != n {
        assert!(Instant::now() < deadline, "there is no waiter");
        thread::sleep(Duration::from_millis(1));
    }
}

fn ordinary<C: Send>(pool: &Pool<C>) -> Slot<'_, C> {
    pool.slot(Rank::Ordinary, &within(AMPLE)).expect("a slot")
}

fn upkeep<C: Send>(pool: &Pool<C>) -> Slot<'_, C> {
    pool.slot(Rank::Upkeep, &within(AMPLE)).expect("a slot")
}

#[test]
fn what_is_put_back_is_reused_the_latest_first() {
    let pool = Pool::new(4);
    let (mut a, mut b) = (ordinary(&pool), ordinary(&pool));
    assert!(a.take().is_none() && b.take().is_none());
    a.put('a');
    b.put('b');
    drop(a);
    drop(b);
    let (mut first, mut second, mut third) = (ordinary(&pool), ordinary(&pool), ordinary(&pool));
    assert_eq!(
        (first.take(), second.take(), third.take()),
        (Some('b'), Some('a'), None)
    );
    second.put('a');
    drop((first, second, third));
    // The one that was taken and not put back is gone.
    assert_eq!(pool.state.lock().idle, ['a']);
}

#[test]
fn one_slot_is_kept_for_upkeep() {
    let pool = Pool::<()>::new(3);
    let _busy = (ordinary(&pool), ordinary(&pool));
    let begun = Instant::now();
    let error = pool.slot(Rank::Ordinary, &within(SHORT)).err();
    let error = error.expect("exhausted");
    assert_eq!(error.code(), ErrorCode::RateLimited);
    assert!(!error.may_have_applied());
    assert!(begun.elapsed() >= SHORT);
    let last = upkeep(&pool);
    assert!(pool.slot(Rank::Upkeep, &within(SHORT)).is_err());
    drop(last);
    drop(upkeep(&pool));
    assert!(pool.state.lock().ordinary.is_empty() && pool.state.lock().upkeep.is_empty());
}

#[test]
fn upkeep_may_have_every_slot_and_ordinary_callers_wait() {
    let pool = Pool::<()>::new(2);
    let (a, b) = (upkeep(&pool), upkeep(&pool));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| drop(ordinary(&pool)));
        queued(&pool, Rank::Ordinary, 1);
        drop(a);
        waiting.join().expect("it got the slot");
    });
    drop(b);
}

#[test]
fn a_freed_ordinary_slot_goes_to_upkeep_first() {
    let pool = Pool::<()>::new(2);
    let (busy, kept) = (ordinary(&pool), upkeep(&pool));
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            let _slot = ordinary(&pool);
            order.lock().push(Rank::Ordinary);
        });
        queued(&pool, Rank::Ordinary, 1);
        scope.spawn(|| {
            let _slot = upkeep(&pool);
            order.lock().push(Rank::Upkeep);
        });
        queued(&pool, Rank::Upkeep, 1);
        drop(busy);
    });
    drop(kept);
    assert_eq!(*order.lock(), [Rank::Upkeep, Rank::Ordinary]);
}

#[test]
fn a_freed_upkeep_slot_does_not_go_over_the_ordinary_limit() {
    let pool = Pool::<()>::new(2);
    let (busy, kept) = (ordinary(&pool), upkeep(&pool));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| drop(ordinary(&pool)));
        queued(&pool, Rank::Ordinary, 1);
        drop(kept);
        assert_eq!(pool.state.lock().ordinary.len(), 1);
        drop(busy);
        waiting.join().expect("it got the slot");
    });
}

#[test]
fn a_pool_of_one_serves_both() {
    for size in [0, 1] {
        let pool = Pool::<()>::new(size);
        drop(ordinary(&pool));
        drop(upkeep(&pool));
    }
}

#[test]
fn a_cancel_ends_the_wait_of_its_caller_alone() {
    let pool = Pool::<()>::new(2);
    let busy = ordinary(&pool);
    let token = CancelToken::new();
    thread::scope(|scope| {
        let cancelled = scope.spawn(|| {
            let limits = Limits::enter(Owner::current(), AMPLE, &Call::new().cancelled_by(&token));
            let slot = pool.slot(Rank::Ordinary, &limits.expect("time is left"));
            slot.map(drop).expect_err("a cancel")
        });
        queued(&pool, Rank::Ordinary, 1);
        let other = scope.spawn(|| drop(ordinary(&pool)));
        queued(&pool, Rank::Ordinary, 2);
        let begun = Instant::now();
        token.cancel();
        let error = cancelled.join().expect("it ends");
        assert!(begun.elapsed() < AMPLE / 2, "the deadline ended it");
        assert_eq!(error.code(), ErrorCode::Aborted);
        assert!(!error.may_have_applied());
        queued(&pool, Rank::Ordinary, 1);
        drop(busy);
        other.join().expect("it got the slot");
    });
}

/// Waits that time out and are cancelled at the moment they are granted lose no slot and no wake-up.
#[test]
fn nothing_is_lost_in_a_crowd() {
    const SIZE: usize = 4;
    let pool = Pool::new(SIZE);
    let (made, in_use, most) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    thread::scope(|scope| {
        for i in 0..24_u64 {
            let (pool, made, in_use, most) = (&pool, &made, &in_use, &most);
            scope.spawn(move || {
                let rank = if i % 4 == 0 {
                    Rank::Upkeep
                } else {
                    Rank::Ordinary
                };
                for round in 0..400 {
                    let token = CancelToken::new();
                    // A third waits patiently, a third runs out of time, a third is cancelled.
                    let time_limit = match (i + round) % 3 {
                        1 => Duration::from_micros(50 + i * 7),
                        _ => AMPLE,
                    };
                    let Ok(limits) = Limits::enter(
                        Owner::current(),
                        time_limit,
                        &Call::new().cancelled_by(&token),
                    ) else {
                        continue;
                    };
                    if (i + round) % 3 == 2 {
                        let canceller = token.clone();
                        scope.spawn(move || canceller.cancel());
                    }
                    let patient = (i + round) % 3 == 0;
                    let mut slot = match pool.slot(rank, &limits) {
                        Ok(slot) => slot,
                        // A slot that was lost is missing to one that waits long: this fails, and does not hang.
                        Err(error) => {
                            assert!(!patient, "a slot was lost: {error}");
                            continue;
                        }
                    };
                    most.fetch_max(in_use.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let connection = slot
                        .take()
                        .unwrap_or_else(|| made.fetch_add(1, Ordering::SeqCst));
                    thread::yield_now();
                    in_use.fetch_sub(1, Ordering::SeqCst);
                    slot.put(connection);
                }
            });
        }
    });
    let state = pool.state.lock();
    assert_eq!((state.slots.used, state.slots.used_by_ordinary), (0, 0));
    assert!(state.upkeep.is_empty() && state.ordinary.is_empty());
    let mut all = state.idle.clone();
    all.sort_unstable();
    assert!(
        all.into_iter().eq(0..made.into_inner()),
        "each is there once"
    );
    assert!(state.idle.len() <= SIZE && most.into_inner() <= SIZE);
}

/// A wait ends without a slot, and before its caller has left the queue it is handed one: the slot is its caller's.
#[test]
fn a_slot_that_is_handed_to_a_caller_that_gives_up_is_not_lost() {
    // In most rounds the wait has ended when the slot comes.
    for _ in 0..20 {
        let pool = Pool::<()>::new(2);
        std::mem::forget(ordinary(&pool));
        let token = CancelToken::new();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let call = Call::new().cancelled_by(&token);
                let limits = Limits::enter(Owner::current(), AMPLE, &call).expect("time is left");
                pool.slot(Rank::Ordinary, &limits).map(drop)
            });
            queued(&pool, Rank::Ordinary, 1);
            // As when a slot is dropped, but with the cancel in the middle.
            let mut state = pool.state.lock();
            token.cancel();
            thread::sleep(Duration::from_millis(5));
            state.slots.vacate(Rank::Ordinary);
            state.hand_over();
            drop(state);
            assert!(waiting.join().expect("it ends").is_ok(), "it was lost");
        });
        assert_eq!(pool.state.lock().slots.used, 0);
    }
}
