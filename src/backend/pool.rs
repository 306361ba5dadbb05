//! A bounded number of connections, handed out as slots; the user of a slot connects under its own deadline. It uses `types` and
//! `runtime`. `shared.rs` has the connections that callers share.

#[cfg(feature = "redis")]
pub(crate) mod shared;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::backend::limits::Limits;
use crate::runtime::sync::{Condvar, Mutex};
use crate::runtime::wake::Wake;
use crate::types::error::{ErrorCode, LockError};

/// What a slot is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// A renewal or a release: served first, and one slot is kept for it.
    Upkeep,
    Ordinary,
}

/// Slots for at most `size` connections. It makes none, tests none and drops none that was put back.
pub(crate) struct Pool<C> {
    size: usize,
    state: Mutex<PoolState<C>>,
}

struct PoolState<C> {
    /// The most recently used is last. Never more than the slots that are free.
    idle: Vec<C>,
    slots: SlotCounts,
    /// A queue is empty whenever its rank could have a slot: what becomes free is handed over under the lock.
    upkeep: VecDeque<Arc<SlotWaiter>>,
    ordinary: VecDeque<Arc<SlotWaiter>>,
}

/// How many slots are in use, and which may still be.
struct SlotCounts {
    size: usize,
    used: usize,
    used_by_ordinary: usize,
}

impl SlotCounts {
    /// At least one slot.
    fn new(size: usize) -> Self {
        Self {
            size: size.max(1),
            used: 0,
            used_by_ordinary: 0,
        }
    }

    fn has_free(&self, rank: Rank) -> bool {
        // A pool of one has nothing to keep.
        let kept = usize::from(self.size > 1);
        self.used < self.size && (rank == Rank::Upkeep || self.used_by_ordinary < self.size - kept)
    }

    fn occupy(&mut self, rank: Rank) {
        self.used += 1;
        self.used_by_ordinary += usize::from(rank == Rank::Ordinary);
    }

    fn vacate(&mut self, rank: Rank) {
        self.used -= 1;
        self.used_by_ordinary -= usize::from(rank == Rank::Ordinary);
    }
}

impl<C> PoolState<C> {
    fn queue(&mut self, rank: Rank) -> &mut VecDeque<Arc<SlotWaiter>> {
        match rank {
            Rank::Upkeep => &mut self.upkeep,
            Rank::Ordinary => &mut self.ordinary,
        }
    }

    /// Gives what is free to its waiters, in the order in which they came.
    fn hand_over(&mut self) {
        for rank in [Rank::Upkeep, Rank::Ordinary] {
            while self.slots.has_free(rank) {
                let Some(waiter) = self.queue(rank).pop_front() else {
                    break;
                };
                self.slots.occupy(rank);
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
            state: Mutex::new(PoolState {
                idle: Vec::new(),
                slots: SlotCounts::new(size),
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
        if state.slots.has_free(rank) {
            state.slots.occupy(rank);
            let connection = state.idle.pop();
            return Ok(self.fill(rank, connection));
        }
        let waiter = Arc::new(SlotWaiter::default());
        state.queue(rank).push_back(Arc::clone(&waiter));
        drop(state);

        let granted = {
            let _subscription = limits
                .token()
                .map(|token| token.subscribe(Arc::clone(&waiter) as Arc<dyn Wake>));
            waiter.wait(limits)
        };
        let mut state = self.state.lock();
        // It may have been granted since; then it is ours, and no other waiter was woken for it.
        if !granted && !waiter.is_granted() {
            state.queue(rank).retain(|w| !Arc::ptr_eq(w, &waiter));
            return Err(self.exhausted(limits));
        }
        let connection = state.idle.pop();
        Ok(self.fill(rank, connection))
    }

    /// Drops the connections that are not in use.
    #[cfg(feature = "sqlite")]
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut self.state.lock().idle);
        // After the mutex: closing one may take its time.
        drop(all);
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
        exhausted(self.size)
    }
}

/// All connections were in use to the deadline.
fn exhausted(size: usize) -> LockError {
    LockError::new(
        ErrorCode::RateLimited,
        format!(
            "all {size} connections of the pool were busy for the operation's whole time; raise pool_size or call from fewer threads"
        ),
    )
    .nothing_applied()
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
        state.slots.vacate(self.rank);
        if let Some(connection) = self.connection.take() {
            state.idle.push(connection);
        }
        state.hand_over();
    }
}

/// A caller in a queue. Its mutex is taken inside the pool's, never the other way round.
#[derive(Default)]
struct SlotWaiter {
    granted: Mutex<bool>,
    changed: Condvar,
}

impl SlotWaiter {
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

impl Wake for SlotWaiter {
    fn wake(&self) {
        // Taking the mutex makes sure that the waiter either sees the cancel or is already waiting.
        drop(self.granted.lock());
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
