//! [`Telemetry`]: a store around a store that tells what happened. Costs nothing where it is not used. It uses `backend`, `call`,
//! `events`, `gate`, `list`, `options` and `types`.

use std::fmt;
use std::sync::Arc;

use crate::backend::call::Call;
use crate::backend::events::EventSink;
use crate::backend::gate::GateStore;
use crate::backend::list::{ListOptions, ListPage};
use crate::backend::{
    Absence, AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome, Watch,
};
use crate::options::hooks::IncludeRaw;
use crate::types::error::LockError;
use crate::types::event::{EventReason, LockEvent, LockEventType, UnhashedEvent};
use crate::types::holder::Holder;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

/// A [`Backend`] around a [`Backend`] that emits a [`LockEvent`] per operation.
///
/// Events go through a bounded queue to one thread: a callback that is slow, panics or hangs delays no operation and fails
/// none. What does not fit the queue is [counted](Self::dropped), not waited for.
///
/// ```
/// use syncguard::{Backend, Call, ClientOptions, IncludeRaw, Key, SqliteBackend, Telemetry};
///
/// # let dir = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}", dir.path().join("locks.db").display());
/// let store = SqliteBackend::open(&url, &ClientOptions::new())?;
/// let store = Telemetry::new(store, IncludeRaw::Never, |event| println!("{event:?}"));
/// store.is_locked(&Key::new("nightly")?, &Call::new())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Telemetry<B> {
    inner: B,
    events: Arc<EventSink>,
}

impl<B: Backend> Telemetry<B> {
    /// Wraps `inner`.
    ///
    /// ```
    /// use syncguard::testkit::MemoryBackend;
    /// use syncguard::{Client, IncludeRaw, Telemetry};
    ///
    /// let store = Telemetry::new(MemoryBackend::new(), IncludeRaw::Never, |event| println!("{event:?}"));
    /// let client = Client::from_backend(store);
    /// # drop(client);
    /// ```
    pub fn new(
        inner: B,
        include_raw: IncludeRaw,
        callback: impl Fn(&LockEvent) + Send + Sync + 'static,
    ) -> Self {
        let backend = inner.capabilities().backend;
        let events = EventSink::new(Arc::new(callback), include_raw, backend);
        Self::around(inner, events)
    }

    /// Wraps `inner`; its events go where those of its client go.
    pub(crate) fn around(inner: B, events: Arc<EventSink>) -> Self {
        Self { inner, events }
    }

    /// How many events were dropped because the callback was too slow, or no thread was to be had for it.
    ///
    /// ```
    /// use syncguard::testkit::MemoryBackend;
    /// use syncguard::{IncludeRaw, Telemetry};
    ///
    /// let store = Telemetry::new(MemoryBackend::new(), IncludeRaw::Never, |event| println!("{event:?}"));
    /// assert_eq!(store.dropped(), 0);
    /// ```
    pub fn dropped(&self) -> u64 {
        self.events.dropped()
    }
}

impl<B: Backend> fmt::Debug for Telemetry<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("backend", &self.inner.capabilities().backend)
            .field("dropped", &self.dropped())
            .finish_non_exhaustive()
    }
}

fn absent(event: &mut UnhashedEvent, why: Absence) {
    event.reason = Some(match why {
        Absence::Expired => EventReason::Expired,
        Absence::NotFound => EventReason::NotFound,
    });
}

impl<B: Backend> Backend for Telemetry<B> {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        self.events.observe(
            || UnhashedEvent::new(LockEventType::Acquire, Some(key), Some(lock_id), None),
            || self.inner.acquire(key, lock_id, ttl, call),
            |outcome, event| match outcome {
                AcquireOutcome::Acquired(grant) => {
                    event.ok = true;
                    event.fence = Some(grant.fence);
                }
                AcquireOutcome::Locked(holder) => {
                    event.reason = Some(EventReason::Locked);
                    event.holder = holder.as_ref().and_then(Holder::text).map(str::to_owned);
                }
            },
        )
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        self.events.observe(
            || UnhashedEvent::new(LockEventType::Release, None, Some(lock_id), call.subject()),
            || self.inner.release(lock_id, call),
            |outcome, event| match outcome {
                ReleaseOutcome::Released => event.ok = true,
                ReleaseOutcome::Absent(why) => absent(event, *why),
            },
        )
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        self.events.observe(
            || UnhashedEvent::new(LockEventType::Extend, None, Some(lock_id), call.subject()),
            || self.inner.extend(lock_id, ttl, call),
            |outcome, event| match outcome {
                ExtendOutcome::Extended(_) => event.ok = true,
                ExtendOutcome::Absent(why) => absent(event, *why),
            },
        )
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        self.events.observe(
            || UnhashedEvent::new(LockEventType::IsLocked, Some(key), None, None),
            || self.inner.is_locked(key, call),
            |_, event| event.ok = true,
        )
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let (key, lock_id) = match by {
            LookupBy::Key(key) => (Some(key), None),
            LookupBy::LockId(id) => (None, Some(id)),
        };
        self.events.observe(
            || UnhashedEvent::new(LockEventType::Lookup, key, lock_id, None),
            || self.inner.find(by, call),
            |found, event| {
                event.ok = found.is_some();
                event.holder = found.as_ref().and_then(|lock| lock.holder.clone());
            },
        )
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        self.inner.check(call)
    }

    fn version(&self, call: &Call<'_>) -> Result<Option<String>, LockError> {
        self.inner.version(call)
    }

    fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        self.inner.setup_schema(call)
    }

    fn gate(&self) -> Option<&dyn GateStore> {
        self.inner.gate()
    }

    fn watch(&self, key: &Key, freed: Arc<dyn Fn() + Send + Sync>) -> Option<Watch> {
        self.inner.watch(key, freed)
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        self.inner.purge_expired(limit, call)
    }

    fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        self.inner.list(options, call)
    }
}
