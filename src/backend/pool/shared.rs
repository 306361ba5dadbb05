//! Connections that callers share: one for each rank, and slots for those that end or are used alone. It uses `runtime` and
//! `types`.

use std::sync::Arc;
use std::time::Duration;

use super::{Rank, SlotCounts, SlotWaiter};
use crate::backend::limits::Limits;
use crate::runtime::sync::Mutex;
use crate::runtime::wake::Wake;
use crate::types::error::LockError;

/// How long a caller waits for another one that connects, before it does so itself: that one's thread may be stopped. At most a fourth
/// of the time that the caller has.
const LONGEST_WAIT_FOR_A_CONNECTION: Duration = Duration::from_secs(1);

/// At most `size` connections, one of them kept for upkeep if there are two. It makes none and closes none.
pub(crate) struct SharedPool<C> {
    state: Mutex<SharedState<C>>,
}

struct SharedState<C> {
    slots: SlotCounts,
    /// By rank. A pool of one has the same for both.
    shared: [Option<Arc<C>>; 2],
    /// How many callers connect for all of a rank.
    opening: [usize; 2],
    /// Each is told of every change, and looks again.
    waiting: Vec<Arc<SlotWaiter>>,
}

/// What a caller of the pool is given.
pub(crate) enum Entrance<'a, C> {
    /// A connection that others may use too.
    Shared(Arc<C>),
    /// That of ordinary callers, for upkeep that has none of its own: only while no other caller uses it.
    Borrowed(Arc<C>),
    /// A connection that has left the pool. It is to be retired; then the pool is asked again.
    Left(Arc<C>),
    /// A free slot.
    Slot(OpenSlot<'a, C>),
}

/// What a caller asks the pool for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A shared connection, or any that is idle.
    Any,
    /// A shared connection of its own rank.
    OfItsRank,
    /// A slot for a connection that is not shared.
    Slot,
}

impl<C> SharedState<C> {
    fn at(&self, rank: Rank) -> usize {
        usize::from(rank == Rank::Upkeep && self.slots.size > 1)
    }

    fn wake_all(&mut self) -> Vec<Arc<SlotWaiter>> {
        std::mem::take(&mut self.waiting)
    }
}

fn wake(waiters: Vec<Arc<SlotWaiter>>) {
    for waiter in waiters {
        waiter.grant();
    }
}

impl<C> SharedPool<C> {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            state: Mutex::new(SharedState {
                slots: SlotCounts::new(size),
                shared: [None, None],
                opening: [0, 0],
                waiting: Vec::new(),
            }),
        }
    }

    /// A connection or a slot, waiting for one within `limits`. One caller of a rank connects; the others wait for it, for some time.
    ///
    /// # Errors
    /// `RateLimited` if all slots were taken to the deadline, `NetworkTimeout` if another caller was still
    /// connecting then, `Aborted` if cancelled. Nothing was sent.
    pub(crate) fn enter(
        &self,
        rank: Rank,
        wanted: Wanted,
        limits: &Limits<'_>,
        usable: impl Fn(&C) -> bool,
    ) -> Result<Entrance<'_, C>, LockError> {
        let mut patient = true;
        loop {
            let mut state = self.state.lock();
            let at = state.at(rank);
            if wanted == Wanted::Slot {
                if state.slots.has_free(rank) {
                    return Ok(self.occupy(&mut state, rank, None));
                }
                if let Some(shared) = state.shared[at].take() {
                    return Ok(Entrance::Left(shared));
                }
            } else {
                if let Some(shared) = &state.shared[at] {
                    if usable(shared) {
                        return Ok(Entrance::Shared(Arc::clone(shared)));
                    }
                    return Ok(state.shared[at].take().map_or_else(
                        || unreachable!("it was there under the same mutex"),
                        Entrance::Left,
                    ));
                }
                if let (Wanted::Any, Some(ordinary)) = (wanted, &state.shared[0])
                    && usable(ordinary)
                {
                    return Ok(Entrance::Borrowed(Arc::clone(ordinary)));
                }
                if (state.opening[at] == 0 || !patient) && state.slots.has_free(rank) {
                    return Ok(self.occupy(&mut state, rank, Some(at)));
                }
            }
            let full = !state.slots.has_free(rank);
            let waiter = Arc::new(SlotWaiter::default());
            state.waiting.push(Arc::clone(&waiter));
            drop(state);
            let turn = if patient && !full {
                limits.within(
                    LONGEST_WAIT_FOR_A_CONNECTION.min(limits.left().unwrap_or_default() / 4),
                )
            } else {
                *limits
            };
            if !wait(&waiter, &turn) {
                let mut state = self.state.lock();
                state.waiting.retain(|w| !Arc::ptr_eq(w, &waiter));
                drop(state);
                if limits.left().is_err() {
                    return Err(self.without(full, limits));
                }
                patient = false;
            }
        }
    }

    fn occupy<'a>(
        &'a self,
        state: &mut SharedState<C>,
        rank: Rank,
        at: Option<usize>,
    ) -> Entrance<'a, C> {
        state.slots.occupy(rank);
        if let Some(at) = at {
            state.opening[at] += 1;
        }
        Entrance::Slot(OpenSlot {
            pool: self,
            rank,
            at,
            kept: false,
        })
    }

    /// Lets callers of this rank no longer have `connection`.
    pub(crate) fn remove(&self, connection: &Arc<C>) -> bool {
        let mut removed = None;
        let mut state = self.state.lock();
        for shared in &mut state.shared {
            if shared.as_ref().is_some_and(|c| Arc::ptr_eq(c, connection)) {
                removed = shared.take();
            }
        }
        let waiters = state.wake_all();
        drop(state);
        wake(waiters);
        removed.is_some()
    }

    /// A connection of this rank was closed.
    pub(crate) fn give_back(&self, rank: Rank) {
        let mut state = self.state.lock();
        state.slots.vacate(rank);
        let waiters = state.wake_all();
        drop(state);
        wake(waiters);
    }

    fn without(&self, full: bool, limits: &Limits<'_>) -> LockError {
        if full && !limits.is_cancelled() {
            let size = self.state.lock().slots.size;
            return super::exhausted(size);
        }
        limits.overrun().nothing_applied()
    }
}

fn wait(waiter: &Arc<SlotWaiter>, limits: &Limits<'_>) -> bool {
    let _subscription = limits
        .token()
        .map(|token| token.subscribe(Arc::clone(waiter) as Arc<dyn Wake>));
    waiter.wait(limits)
}

/// The right to make one connection. Dropped without [`share`](Self::share), the slot is free again.
pub(crate) struct OpenSlot<'a, C> {
    pool: &'a SharedPool<C>,
    rank: Rank,
    /// Where the connection will be shared, if it will be.
    at: Option<usize>,
    kept: bool,
}

impl<C> OpenSlot<'_, C> {
    /// The connection is made, and callers go on with it. It has the slot until [`SharedPool::give_back`]. If another caller was faster,
    /// that one's connection is answered: it is to be retired.
    pub(crate) fn share(mut self, connection: &Arc<C>) -> Option<Arc<C>> {
        let at = self.at?;
        self.kept = true;
        let mut state = self.pool.state.lock();
        state.opening[at] -= 1;
        let before = state.shared[at].replace(Arc::clone(connection));
        let waiters = state.wake_all();
        drop(state);
        wake(waiters);
        before
    }
}

impl<C> Drop for OpenSlot<'_, C> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if let Some(at) = self.at {
            self.pool.state.lock().opening[at] -= 1;
        }
        self.pool.give_back(self.rank);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
