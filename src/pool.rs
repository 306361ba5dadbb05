//! A bounded number of connections, handed out as slots that their user fills under its own deadline.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::{ErrorCode, LockError};
use crate::limits::Limits;
use crate::sync::{Condvar, Mutex};
use crate::wake::Wake;

/// Who asks for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// A renewal or a release: served first, and one slot is kept for it.
    Upkeep,
    Ordinary,
}

/// Slots for at most `size` connections. It makes none, tests none and drops none that was put back.
pub(crate) struct Pool<C> {
    size: usize,
    state: Mutex<State<C>>,
}

struct State<C> {
    /// The most recently used is last. Never more than the slots that are free.
    idle: Vec<C>,
    used: usize,
    used_by_ordinary: usize,
    /// A queue is empty whenever its rank could have a slot: what becomes free is handed over under the lock.
    upkeep: VecDeque<Arc<Waiter>>,
    ordinary: VecDeque<Arc<Waiter>>,
}

impl<C> State<C> {
    fn has_room(&self, rank: Rank, size: usize) -> bool {
        // A pool of one has nothing to keep.
        let kept = usize::from(size > 1);
        self.used < size && (rank == Rank::Upkeep || self.used_by_ordinary < size - kept)
    }

    fn occupy(&mut self, rank: Rank) {
        self.used += 1;
        self.used_by_ordinary += usize::from(rank == Rank::Ordinary);
    }

    fn vacate(&mut self, rank: Rank) {
        self.used -= 1;
        self.used_by_ordinary -= usize::from(rank == Rank::Ordinary);
    }

    fn queue(&mut self, rank: Rank) -> &mut VecDeque<Arc<Waiter>> {
        match rank {
            Rank::Upkeep => &mut self.upkeep,
            Rank::Ordinary => &mut self.ordinary,
        }
    }

    /// Gives what is free to those who wait for it, the first come first.
    fn hand_over(&mut self, size: usize) {
        for rank in [Rank::Upkeep, Rank::Ordinary] {
            while self.has_room(rank, size) {
                let Some(waiter) = self.queue(rank).pop_front() else {
                    break;
                };
                self.occupy(rank);
                waiter.grant();
            }
        }
    }
}

impl<C: Send> Pool<C> {
    /// A pool of `size` slots, at least one. Ordinary callers have one less, if there are two.
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size: size.max(1),
            state: Mutex::new(State {
                idle: Vec::new(),
                used: 0,
                used_by_ordinary: 0,
                upkeep: VecDeque::new(),
                ordinary: VecDeque::new(),
            }),
        }
    }

    /// A slot, waiting for one within `limits`.
    ///
    /// # Errors
    /// [`ErrorCode::RateLimited`] if there was none to the deadline, [`ErrorCode::Aborted`] if cancelled; nothing was
    /// sent in either case.
    pub(crate) fn slot(&self, rank: Rank, limits: &Limits<'_>) -> Result<Slot<'_, C>, LockError> {
        let mut state = self.state.lock();
        if state.has_room(rank, self.size) {
            state.occupy(rank);
            let connection = state.idle.pop();
            return Ok(self.fill(rank, connection));
        }
        let waiter = Arc::new(Waiter::default());
        state.queue(rank).push_back(Arc::clone(&waiter));
        drop(state);

        let granted = {
            let _subscription = limits
                .cancel()
                .map(|token| token.subscribe(Arc::clone(&waiter) as Arc<dyn Wake>));
            waiter.wait(limits)
        };
        let mut state = self.state.lock();
        // It may have been granted since; then it is ours, and nobody else was woken for it.
        if !granted && !waiter.is_granted() {
            state.queue(rank).retain(|w| !Arc::ptr_eq(w, &waiter));
            return Err(self.exhausted(limits));
        }
        let connection = state.idle.pop();
        Ok(self.fill(rank, connection))
    }

    fn fill(&self, rank: Rank, connection: Option<C>) -> Slot<'_, C> {
        Slot {
            pool: self,
            rank,
            connection,
        }
    }

    fn exhausted(&self, limits: &Limits<'_>) -> LockError {
        if limits.is_cancelled() {
            return limits.overrun().nothing_applied();
        }
        LockError::new(
            ErrorCode::RateLimited,
            format!(
                "all {} connections of the pool were busy for the operation's whole time; raise pool_size or call from fewer threads",
                self.size
            ),
        )
        .nothing_applied()
    }
}

/// The right to one connection of the pool, until it is dropped.
pub(crate) struct Slot<'a, C> {
    pool: &'a Pool<C>,
    rank: Rank,
    connection: Option<C>,
}

impl<C> Slot<'_, C> {
    /// The pooled connection; `None` if the slot is empty and its user must make one. What is not put back is dropped.
    pub(crate) fn take(&mut self) -> Option<C> {
        self.connection.take()
    }

    /// Gives a connection to the next user. Only after a clean exchange: one that saw a timeout, an EOF or a protocol
    /// error is dropped instead.
    pub(crate) fn put(&mut self, connection: C) {
        self.connection = Some(connection);
    }
}

impl<C> Drop for Slot<'_, C> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.vacate(self.rank);
        if let Some(connection) = self.connection.take() {
            state.idle.push(connection);
        }
        state.hand_over(self.pool.size);
    }
}

/// Somebody in a queue. Its mutex is taken inside the pool's, never the other way round.
#[derive(Default)]
struct Waiter {
    granted: Mutex<bool>,
    changed: Condvar,
}

impl Waiter {
    fn grant(&self) {
        *self.granted.lock() = true;
        self.changed.notify_one();
    }

    fn is_granted(&self) -> bool {
        *self.granted.lock()
    }

    /// Whether it was granted a slot before the limits ended the wait.
    fn wait(&self, limits: &Limits<'_>) -> bool {
        let mut granted = self.granted.lock();
        while !*granted && limits.left().is_ok() {
            self.changed
                .wait_until(&mut granted, Some(limits.deadline()));
        }
        *granted
    }
}

impl Wake for Waiter {
    fn wake(&self) {
        // Taking the mutex makes sure that the waiter either sees the cancel or is already waiting.
        drop(self.granted.lock());
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::cancel::CancelToken;

    const AMPLE: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(50);

    fn within(timeout: Duration) -> Limits<'static> {
        Limits::enter(std::process::id(), timeout, None).expect("time is left")
    }

    fn queued<C>(pool: &Pool<C>, rank: Rank, n: usize) {
        let deadline = Instant::now() + AMPLE;
        while pool.state.lock().queue(rank).len() != n {
            assert!(Instant::now() < deadline, "nobody waits");
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
        let (mut first, mut second, mut third) =
            (ordinary(&pool), ordinary(&pool), ordinary(&pool));
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
                let limits = Limits::enter(std::process::id(), AMPLE, Some(&token));
                let slot = pool.slot(Rank::Ordinary, &limits.expect("time is left"));
                slot.map(drop).expect_err("a cancel")
            });
            queued(&pool, Rank::Ordinary, 1);
            let other = scope.spawn(|| drop(ordinary(&pool)));
            queued(&pool, Rank::Ordinary, 2);
            token.cancel();
            let error = cancelled.join().expect("it ends");
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
                        let patience = match (i + round) % 3 {
                            1 => Duration::from_micros(50 + i * 7),
                            _ => AMPLE,
                        };
                        let Ok(limits) = Limits::enter(std::process::id(), patience, Some(&token))
                        else {
                            continue;
                        };
                        if (i + round) % 3 == 2 {
                            let canceller = token.clone();
                            scope.spawn(move || canceller.cancel());
                        }
                        let Ok(mut slot) = pool.slot(rank, &limits) else {
                            continue;
                        };
                        most.fetch_max(in_use.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        let connection = slot.take().unwrap_or_else(|| {
                            made.fetch_add(1, Ordering::SeqCst);
                        });
                        thread::yield_now();
                        in_use.fetch_sub(1, Ordering::SeqCst);
                        slot.put(connection);
                    }
                });
            }
        });
        let state = pool.state.lock();
        assert_eq!((state.used, state.used_by_ordinary), (0, 0));
        assert!(state.upkeep.is_empty() && state.ordinary.is_empty());
        assert_eq!(state.idle.len(), made.into_inner());
        assert!(state.idle.len() <= SIZE && most.into_inner() <= SIZE);
    }
}
