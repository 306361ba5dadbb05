//! For tests of your own code: a store in memory, a clock the test moves, faults it injects. No server, no waiting.
//! For authors of stores: the [contract](mod@contract) of a store, as [tests](contract!). It uses `clock`, `fault`,
//! `verbs`, `backend`, `options`, `runtime` and `types`.
//!
//! ```
//! use std::time::Duration;
//! use syncguard::testkit::{Fault, ManualClock, MemoryBackend, Verb};
//! use syncguard::{Client, ClientOptions, ErrorCode};
//!
//! let clock = ManualClock::new();
//! let store = MemoryBackend::with_clock(&clock);
//! let client = Client::from_backend_with(store.clone(), &ClientOptions::new().clock(&clock))?;
//!
//! // A holder that is cut off from its store knows that it lost the lock, without any I/O.
//! let guard = client.lock("invoice:42")?;
//! store.always(Verb::Extend, Fault::Refuse(ErrorCode::ServiceUnavailable));
//! clock.advance(Duration::from_secs(30));
//! assert!(guard.is_lost());
//! # Ok::<(), syncguard::LockError>(())
//! ```

mod clock;
pub mod contract;
mod fault;
mod verbs;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::verbs::MemoryState;
use crate::backend::call::Call;
use crate::backend::limits::Limits;
use crate::backend::list::{ListOptions, ListPage};
use crate::backend::{
    Absence, AcquireOutcome, Backend, Capabilities, ExtendOutcome, Freed, LookupBy, ReleaseOutcome,
    Watch,
};
use crate::runtime::cancel::deadline_after;
use crate::runtime::clock::{BootClock, Clock, wall_ms};
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::types::error::LockError;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

pub use self::clock::ManualClock;
pub use self::fault::{Fault, Verb};
#[doc(inline)]
pub use crate::__contract as contract;

/// A [`Backend`] in memory with a clock of its own. Clones are the same store, as several clients of one server would be.
///
/// ```
/// use syncguard::Client;
/// use syncguard::testkit::MemoryBackend;
///
/// let store = MemoryBackend::new();
/// let (one, other) = (Client::from_backend(store.clone()), Client::from_backend(store));
/// let guard = one.lock("nightly")?;
/// assert!(other.try_lock("nightly")?.is_none());
/// # drop(guard);
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Clone)]
pub struct MemoryBackend {
    shared: Arc<MemoryShared>,
}

struct MemoryShared {
    clock: Arc<dyn Clock>,
    /// Added to the clock, so that times look like Unix time.
    epoch_ms: i64,
    state: Mutex<MemoryState>,
    timeout: Duration,
    owner: Owner,
}

/// Ends a watch when it is dropped.
struct MemoryWatcher {
    shared: Arc<MemoryShared>,
    id: u64,
}

impl Drop for MemoryWatcher {
    fn drop(&mut self) {
        // In a forked child the mutex may be locked for ever.
        if self.shared.owner.is_this_process() {
            self.shared.state.lock().watchers.remove(&self.id);
        }
    }
}

impl MemoryBackend {
    /// An empty store on the system's clock.
    ///
    /// ```
    /// use syncguard::Client;
    /// use syncguard::testkit::MemoryBackend;
    ///
    /// let store = MemoryBackend::new();
    /// let client = Client::from_backend(store.clone());
    /// assert!(client.try_lock("nightly")?.is_some());
    /// # drop(store);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn new() -> Self {
        Self::build(Arc::new(BootClock), wall_ms())
    }

    /// An empty store on a clock that the test moves.
    ///
    /// ```
    /// use syncguard::testkit::{ManualClock, MemoryBackend};
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryBackend::with_clock(&clock);
    /// assert_eq!(store.stored(), 0);
    /// ```
    pub fn with_clock(clock: &ManualClock) -> Self {
        Self::build(Arc::new(clock.clone()), 1_700_000_000_000)
    }

    fn build(clock: Arc<dyn Clock>, epoch_ms: i64) -> Self {
        Self {
            shared: Arc::new(MemoryShared {
                clock,
                epoch_ms,
                state: Mutex::default(),
                timeout: crate::options::client::DEFAULT_OPERATION_TIMEOUT,
                owner: Owner::current(),
            }),
        }
    }

    /// Injects a fault into the next call of `verb` that has none yet. Several queue up.
    ///
    /// ```
    /// use syncguard::testkit::{Fault, MemoryBackend, Verb};
    /// use syncguard::{Client, ErrorCode};
    ///
    /// let store = MemoryBackend::new();
    /// let client = Client::from_backend(store.clone());
    /// store.once(Verb::Acquire, Fault::Refuse(ErrorCode::RateLimited));
    /// assert!(client.try_lock("nightly").is_err());
    /// assert!(client.try_lock("nightly")?.is_some());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
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
    ///
    /// ```
    /// use syncguard::testkit::{Fault, MemoryBackend, Verb};
    /// use syncguard::{Client, ErrorCode};
    ///
    /// let store = MemoryBackend::new();
    /// let client = Client::from_backend(store.clone());
    /// store.always(Verb::Acquire, Fault::Refuse(ErrorCode::RateLimited));
    /// assert!(client.try_lock("nightly").is_err());
    /// assert!(client.try_lock("nightly").is_err());
    /// ```
    pub fn always(&self, verb: Verb, fault: Fault) {
        self.shared.state.lock().always.insert(verb, fault);
    }

    /// Takes all faults back.
    ///
    /// ```
    /// use syncguard::testkit::{Fault, MemoryBackend, Verb};
    /// use syncguard::{Client, ErrorCode};
    ///
    /// let store = MemoryBackend::new();
    /// let client = Client::from_backend(store.clone());
    /// store.always(Verb::Acquire, Fault::Refuse(ErrorCode::RateLimited));
    /// store.heal();
    /// assert!(client.try_lock("nightly")?.is_some());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn heal(&self) {
        let mut state = self.shared.state.lock();
        state.once.clear();
        state.always.clear();
    }

    /// How often `verb` was called, faults included.
    ///
    /// ```
    /// use syncguard::Client;
    /// use syncguard::testkit::{MemoryBackend, Verb};
    ///
    /// let store = MemoryBackend::new();
    /// let client = Client::from_backend(store.clone());
    /// drop(client.lock("nightly")?);
    /// assert_eq!((store.calls(Verb::Acquire), store.calls(Verb::Release)), (1, 1));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
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
    ///
    /// ```
    /// use syncguard::Client;
    /// use syncguard::testkit::MemoryBackend;
    ///
    /// let store = MemoryBackend::new();
    /// let client = Client::from_backend(store.clone());
    /// let guard = client.lock("nightly")?;
    /// assert_eq!(store.stored(), 1);
    /// drop(guard);
    /// assert_eq!(store.stored(), 0);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn stored(&self) -> usize {
        self.shared.state.lock().locks.len()
    }

    /// Removes the lock of `key`, as if an operator had deleted it. Its fence counter stays.
    ///
    /// ```
    /// use syncguard::Client;
    /// use syncguard::testkit::MemoryBackend;
    ///
    /// let store = MemoryBackend::new();
    /// let client = Client::from_backend(store.clone());
    /// let guard = client.lock("nightly")?;
    /// store.evict("nightly")?;
    /// assert!(!guard.release()?.is_released());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad key: use another one.
    pub fn evict(&self, key: &str) -> Result<(), LockError> {
        let key = Key::new(key)?;
        self.shared.state.lock().remove(&key);
        Ok(())
    }

    /// Sets the fence counter of `key`.
    ///
    /// ```
    /// use syncguard::Client;
    /// use syncguard::testkit::MemoryBackend;
    ///
    /// let store = MemoryBackend::new();
    /// let client = Client::from_backend(store.clone());
    /// store.set_fence_counter("nightly", 41)?;
    /// assert_eq!(client.lock("nightly")?.fence().get(), 42);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad key: use another one.
    pub fn set_fence_counter(&self, key: &str, counter: i64) -> Result<(), LockError> {
        let key = Key::new(key)?;
        self.shared.state.lock().fences.insert(key, counter);
        Ok(())
    }

    fn now_ms(&self) -> i64 {
        self.shared.epoch_ms
            + i64::try_from(self.shared.clock.now().as_millis()).unwrap_or(i64::MAX / 2)
    }

    /// What every call does: bounds, counting, faults; then `work`.
    fn call<T>(
        &self,
        verb: Verb,
        call: &Call<'_>,
        absent: impl FnOnce() -> T,
        work: impl FnOnce(&mut MemoryState, i64) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        let limits = Limits::enter(self.shared.owner, self.shared.timeout, call)?;
        let fault = {
            let mut state = self.shared.state.lock();
            *state.calls.entry(verb).or_default() += 1;
            let next = state
                .once
                .get_mut(&verb)
                .and_then(std::collections::VecDeque::pop_front);
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
        // Watchers are called without the mutex: they may use the store.
        let freed: Vec<Freed> = if state.locks.len() < held {
            state.watchers.values().map(Arc::clone).collect()
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

impl Backend for MemoryBackend {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let absent = || AcquireOutcome::Locked(None);
        self.call(Verb::Acquire, call, absent, |state, now| {
            state.acquire(key, lock_id, ttl, call.holder(), now)
        })
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        let absent = || ReleaseOutcome::Absent(Absence::NotFound);
        self.call(Verb::Release, call, absent, |state, now| {
            Ok(state.release(lock_id, now))
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
            Ok(state.extend(lock_id, ttl, now))
        })
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let absent = || false;
        self.call(Verb::IsLocked, call, absent, |state, now| {
            Ok(state.find(LookupBy::Key(key), now).is_some())
        })
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let absent = || None;
        self.call(Verb::Lookup, call, absent, |state, now| {
            Ok(state.find(by, now))
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("memory")
    }

    fn watch(&self, _key: &Key, freed: Freed) -> Option<Watch> {
        let mut state = self.shared.state.lock();
        state.last_watcher += 1;
        let id = state.last_watcher;
        state.watchers.insert(id, Arc::clone(&freed));
        drop(state);
        freed();
        Some(Watch::new(MemoryWatcher {
            shared: Arc::clone(&self.shared),
            id,
        }))
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        Limits::enter(self.shared.owner, self.shared.timeout, call)?;
        let now = self.now_ms();
        Ok(self.shared.state.lock().purge_expired(limit, now))
    }

    fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        let request = options.checked()?;
        let absent = || ListPage::new(Vec::new(), None);
        self.call(Verb::Lookup, call, absent, |state, now| {
            state.list(&request, now)
        })
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
