//! A store in memory that fails when it is told to.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::ManualClock;
use crate::backend::call::Call;
use crate::backend::limits::Limits;
use crate::backend::{
    Absence, AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome, Watch,
};
use crate::runtime::cancel::deadline_after;
use crate::runtime::clock::{BootClock, Clock, wall_ms};
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::types::error::{ErrorCode, LockError};
use crate::types::fence::Fence;
use crate::types::holder::Holder;
use crate::types::key::Key;
use crate::types::liveness::{CLEANUP_GUARD_MS, is_live};
use crate::types::lock_id::LockId;
use crate::types::stored_lock::Acquired;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

/// An operation that a fault can be injected into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// [`Backend::acquire`].
    Acquire,
    /// [`Backend::release`].
    Release,
    /// [`Backend::extend`].
    Extend,
    /// [`Backend::is_locked`].
    IsLocked,
    /// [`Backend::find`] and [`Backend::lookup`].
    Lookup,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Answers an error of this code; nothing is applied.
    Refuse(ErrorCode),
    /// Applies the operation and loses the answer: `ServiceUnavailable`, of unknown effect.
    DropReply,
    /// Answers only after this long in real time, or `Aborted`/`NetworkTimeout` if the call is ended before; nothing is applied
    /// then.
    Delay(Duration),
    /// Never answers: the call ends with its deadline or its cancel, of unknown effect.
    Hang,
    /// Release and extend answer "absent", reads find nothing, acquire answers "locked"; nothing is applied.
    SayAbsent,
    /// Panics.
    Panic,
}

/// A [`Backend`] in memory with a clock of its own. Clones are the same store, as several clients of one server would be.
#[derive(Clone)]
pub struct MemoryBackend {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    /// Added to the clock, so that times look like Unix time.
    epoch_ms: i64,
    state: Mutex<State>,
    timeout: Duration,
    owner: Owner,
}

#[derive(Default)]
struct State {
    locks: HashMap<Key, StoredLock>,
    ids: HashMap<LockId, Key>,
    fences: HashMap<Key, i64>,
    once: HashMap<Verb, VecDeque<Fault>>,
    always: HashMap<Verb, Fault>,
    calls: HashMap<Verb, u64>,
    watchers: HashMap<u64, (Key, Freed)>,
    last_watcher: u64,
}

type Freed = Arc<dyn Fn() + Send + Sync>;

/// Forgets a watcher.
struct Unwatch(Arc<Shared>, u64);

impl Drop for Unwatch {
    fn drop(&mut self) {
        // In a forked child the mutex may be locked for ever.
        if self.0.owner.is_this_process() {
            self.0.state.lock().watchers.remove(&self.1);
        }
    }
}

impl MemoryBackend {
    /// An empty store on the system's clock.
    pub fn new() -> Self {
        Self::build(Arc::new(BootClock), wall_ms())
    }

    /// An empty store on a clock that the test moves.
    pub fn with_clock(clock: &ManualClock) -> Self {
        Self::build(Arc::new(clock.clone()), 1_700_000_000_000)
    }

    fn build(clock: Arc<dyn Clock>, epoch_ms: i64) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                epoch_ms,
                state: Mutex::new(State::default()),
                timeout: crate::options::client::DEFAULT_OPERATION_TIMEOUT,
                owner: Owner::current(),
            }),
        }
    }

    /// Injects a fault into the next call of `verb` that has none yet. Several queue up.
    pub fn once(&self, verb: Verb, fault: Fault) {
        self.shared
            .state
            .lock()
            .once
            .entry(verb)
            .or_default()
            .push_back(fault);
    }

    /// Injects a fault into every call of `verb`, until [`heal`](Self::heal).
    pub fn always(&self, verb: Verb, fault: Fault) {
        self.shared.state.lock().always.insert(verb, fault);
    }

    /// Takes all faults back.
    pub fn heal(&self) {
        let mut state = self.shared.state.lock();
        state.once.clear();
        state.always.clear();
    }

    /// How often `verb` was called, faults included.
    pub fn calls(&self, verb: Verb) -> u64 {
        self.shared
            .state
            .lock()
            .calls
            .get(&verb)
            .copied()
            .unwrap_or(0)
    }

    /// How many locks are stored, dead ones included.
    pub fn stored(&self) -> usize {
        self.shared.state.lock().locks.len()
    }

    /// Removes the lock of `key`, as if an operator had deleted it. Its fence counter stays.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad key.
    pub fn evict(&self, key: &str) -> Result<(), LockError> {
        let key = Key::new(key)?;
        self.shared.state.lock().remove(&key);
        Ok(())
    }

    /// Sets the fence counter of `key`.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad key.
    pub fn set_fence_counter(&self, key: &str, counter: i64) -> Result<(), LockError> {
        let key = Key::new(key)?;
        self.shared.state.lock().fences.insert(key, counter);
        Ok(())
    }

    fn now_ms(&self) -> i64 {
        self.shared.epoch_ms
            + i64::try_from(self.shared.clock.now().as_millis()).unwrap_or(i64::MAX / 2)
    }

    /// The door of every call: bounds, bookkeeping, faults; then `work`.
    fn call<T>(
        &self,
        verb: Verb,
        call: &Call<'_>,
        absent: impl FnOnce() -> T,
        work: impl FnOnce(&mut State, i64) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        let limits = Limits::enter(self.shared.owner, self.shared.timeout, call)?;
        let fault = {
            let mut state = self.shared.state.lock();
            *state.calls.entry(verb).or_default() += 1;
            let next = state.once.get_mut(&verb).and_then(VecDeque::pop_front);
            next.or_else(|| state.always.get(&verb).copied())
        };
        let mut lose_reply = false;
        match fault {
            None => {}
            Some(Fault::Refuse(code)) => {
                return Err(LockError::new(code, "injected by the test").nothing_applied());
            }
            Some(Fault::SayAbsent) => return Ok(absent()),
            Some(Fault::Panic) => std::panic::panic_any("injected by the test"),
            Some(Fault::DropReply) => lose_reply = true,
            Some(Fault::Delay(delay)) => {
                limits.sleep_until(deadline_after(delay));
                limits.left().map_err(LockError::nothing_applied)?;
            }
            Some(Fault::Hang) => {
                limits.sleep_until(limits.deadline());
                return Err(limits.overrun());
            }
        }
        let mut state = self.shared.state.lock();
        let held = state.locks.len();
        let answer = work(&mut state, self.now_ms());
        // A lock is removed in one place only; whom that may concern is called after the mutex.
        let freed: Vec<Freed> = if state.locks.len() < held {
            state
                .watchers
                .values()
                .map(|(_, freed)| Arc::clone(freed))
                .collect()
        } else {
            Vec::new()
        };
        drop(state);
        freed.iter().for_each(|freed| freed());
        let answer = answer?;
        if lose_reply {
            return Err(LockError::unavailable(
                "the answer was lost; injected by the test",
            ));
        }
        Ok(answer)
    }
}

impl State {
    fn remove(&mut self, key: &Key) {
        if let Some(lock) = self.locks.remove(key) {
            self.ids.remove(&lock.lock_id);
        }
    }

    /// The lock with this id, verified to be its owner's.
    fn owned(&mut self, id: &LockId) -> Option<(Key, &mut StoredLock)> {
        let key = self.ids.get(id)?.clone();
        let lock = self.locks.get_mut(&key).filter(|l| l.lock_id == *id)?;
        Some((key, lock))
    }
}

impl Backend for MemoryBackend {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        self.call(
            Verb::Acquire,
            call,
            || AcquireOutcome::Locked(None),
            |state, now| {
                if let Some(held) = state
                    .locks
                    .get(key)
                    .filter(|l| is_live(l.expires_at_ms, now))
                {
                    if held.lock_id == *lock_id {
                        return Ok(AcquireOutcome::Acquired(Acquired::new(
                            *lock_id,
                            held.fence,
                            held.expires_at_ms,
                        )));
                    }
                    let holder = Holder::with_left(
                        Some(held.lock_id.hash()),
                        Some(held.fence),
                        held.expires_at_ms.saturating_sub(now),
                    );
                    return Ok(AcquireOutcome::Locked(Some(holder)));
                }
                let counter = state.fences.get(key).copied().unwrap_or(0);
                let fence = Fence::after(counter)?;
                state.fences.insert(key.clone(), counter + 1);
                state.remove(key);
                let expires_at_ms = now + ttl.as_millis();
                state.locks.insert(
                    key.clone(),
                    StoredLock::new(key.as_str(), *lock_id, fence, expires_at_ms, now),
                );
                state.ids.insert(*lock_id, key.clone());
                Ok(AcquireOutcome::Acquired(Acquired::new(
                    *lock_id,
                    fence,
                    expires_at_ms,
                )))
            },
        )
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        let absent = || ReleaseOutcome::Absent(Absence::NotFound);
        self.call(Verb::Release, call, absent, |state, now| {
            let Some((key, lock)) = state.owned(lock_id) else {
                return Ok(absent());
            };
            let live = is_live(lock.expires_at_ms, now);
            if live {
                state.remove(&key);
            }
            Ok(if live {
                ReleaseOutcome::Released
            } else {
                ReleaseOutcome::Absent(Absence::Expired)
            })
        })
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        let absent = || ExtendOutcome::Absent(Absence::NotFound);
        self.call(Verb::Extend, call, absent, |state, now| {
            let Some((_, lock)) = state.owned(lock_id) else {
                return Ok(absent());
            };
            if !is_live(lock.expires_at_ms, now) {
                return Ok(ExtendOutcome::Absent(Absence::Expired));
            }
            lock.expires_at_ms = now + ttl.as_millis();
            Ok(ExtendOutcome::Extended(lock.expires_at_ms))
        })
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        self.call(
            Verb::IsLocked,
            call,
            || false,
            |state, now| {
                Ok(state
                    .locks
                    .get(key)
                    .is_some_and(|l| is_live(l.expires_at_ms, now)))
            },
        )
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        self.call(
            Verb::Lookup,
            call,
            || None,
            |state, now| {
                let found = match by {
                    LookupBy::Key(key) => state.locks.get(key).cloned(),
                    LookupBy::LockId(id) => state.owned(id).map(|(_, lock)| lock.clone()),
                };
                Ok(found.filter(|l| is_live(l.expires_at_ms, now)))
            },
        )
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory")
    }

    fn watch(&self, key: &Key, freed: Freed) -> Option<Watch> {
        let mut state = self.shared.state.lock();
        state.last_watcher += 1;
        let id = state.last_watcher;
        state.watchers.insert(id, (key.clone(), Arc::clone(&freed)));
        drop(state);
        freed();
        Some(Watch::new(Unwatch(Arc::clone(&self.shared), id)))
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        Limits::enter(self.shared.owner, self.shared.timeout, call)?;
        let now = self.now_ms();
        let mut state = self.shared.state.lock();
        let dead = state
            .locks
            .iter()
            .filter(|(_, l)| l.expires_at_ms < now - CLEANUP_GUARD_MS);
        let keys: Vec<Key> = dead
            .take(limit as usize)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            state.remove(key);
        }
        Ok(keys.len() as u64)
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("clock", &self.shared.clock)
            .finish_non_exhaustive()
    }
}
