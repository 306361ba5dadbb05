//! [`Telemetry`]: a store around a store that tells what happened. Costs nothing where it is not used.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::backend::{
    Absence, AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome, Watch,
};
use crate::options::hooks::{IncludeRaw, OnEvent};
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::runtime::threads;
use crate::runtime::workers::guarded;
use crate::types::error::LockError;
use crate::types::event::{LockEvent, LockEventType};
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

/// How many events may wait for a slow callback.
const QUEUE: usize = 1024;

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
    callback: OnEvent,
    include_raw: IncludeRaw,
    /// Made with the first event.
    queue: Mutex<Option<SyncSender<UnhashedEvent>>>,
    dropped: Arc<AtomicU64>,
    owner: Owner,
}

/// An event before it is hashed, which the operation's thread does not do.
struct UnhashedEvent {
    kind: LockEventType,
    ok: bool,
    reason: Option<&'static str>,
    key: Option<Key>,
    lock_id: Option<LockId>,
    duration: Duration,
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
        Self::shared(inner, include_raw, Arc::new(callback))
    }

    pub(crate) fn shared(inner: B, include_raw: IncludeRaw, callback: OnEvent) -> Self {
        Self {
            inner,
            callback,
            include_raw,
            queue: Mutex::new(None),
            dropped: Arc::new(AtomicU64::new(0)),
            owner: Owner::current(),
        }
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
        self.dropped.load(Ordering::Relaxed)
    }

    /// Does `work` and tells of it.
    fn observe<T>(
        &self,
        kind: LockEventType,
        key: Option<&Key>,
        lock_id: Option<&LockId>,
        work: impl FnOnce() -> Result<T, LockError>,
        judge: impl FnOnce(&T) -> (bool, Option<&'static str>),
    ) -> Result<T, LockError> {
        // In a forked child the queue's mutex may be locked for ever, and the store refuses anyway.
        if !self.owner.is_this_process() {
            return work();
        }
        let start = Instant::now();
        let answer = work();
        let duration = start.elapsed();
        let (ok, reason) = answer.as_ref().map_or((false, None), judge);
        self.emit(UnhashedEvent {
            kind,
            ok,
            reason,
            key: key.cloned(),
            lock_id: lock_id.copied(),
            duration,
        });
        answer
    }

    fn emit(&self, event: UnhashedEvent) {
        let mut queue = self.queue.lock();
        if queue.is_none() {
            *queue = self.start();
        }
        // try_send never waits; a full queue is the callback's fault, a missing one the system's.
        let sent = queue.as_ref().is_some_and(|q| q.try_send(event).is_ok());
        if !sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn start(&self) -> Option<SyncSender<UnhashedEvent>> {
        let (sender, receiver) = sync_channel(QUEUE);
        let (callback, include_raw) = (Arc::clone(&self.callback), self.include_raw.clone());
        threads::spawn("syncguard-events", move || {
            tell(&receiver, &callback, &include_raw)
        })
        .ok()?;
        Some(sender)
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

impl<B> Drop for Telemetry<B> {
    fn drop(&mut self) {
        // Closing the queue takes a mutex of its own, which a forked child may have inherited locked.
        if !self.owner.is_this_process() {
            std::mem::forget(self.queue.get_mut().take());
        }
    }
}

/// Ends when the last sender is gone, after the events that were queued by then.
fn tell(events: &Receiver<UnhashedEvent>, callback: &OnEvent, include_raw: &IncludeRaw) {
    while let Ok(raw) = events.recv() {
        guarded(|| {
            let mut event = LockEvent {
                kind: raw.kind,
                ok: raw.ok,
                reason: raw.reason,
                key_hash: raw.key.as_ref().map(Key::log_hash),
                lock_id_hash: raw.lock_id.as_ref().map(LockId::log_hash),
                key: None,
                lock_id: None,
                duration: raw.duration,
            };
            let include = match include_raw {
                IncludeRaw::Never => false,
                IncludeRaw::Always => true,
                IncludeRaw::When(predicate) => predicate(&event),
            };
            if include {
                event.key = raw.key.map(|k| k.as_str().to_owned());
                event.lock_id = raw.lock_id.map(|id| id.as_str().to_owned());
            }
            callback(&event);
        });
    }
}

fn absence(why: Absence) -> (bool, Option<&'static str>) {
    match why {
        Absence::Expired => (false, Some("expired")),
        Absence::NotFound => (false, Some("not-found")),
    }
}

impl<B: Backend> Backend for Telemetry<B> {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        self.observe(
            LockEventType::Acquire,
            Some(key),
            Some(lock_id),
            || self.inner.acquire(key, lock_id, ttl, call),
            |outcome| match outcome {
                AcquireOutcome::Acquired(_) => (true, None),
                AcquireOutcome::Locked(_) => (false, Some("locked")),
            },
        )
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        self.observe(
            LockEventType::Release,
            None,
            Some(lock_id),
            || self.inner.release(lock_id, call),
            |outcome| match outcome {
                ReleaseOutcome::Released => (true, None),
                ReleaseOutcome::Absent(why) => absence(*why),
            },
        )
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        self.observe(
            LockEventType::Extend,
            None,
            Some(lock_id),
            || self.inner.extend(lock_id, ttl, call),
            |outcome| match outcome {
                ExtendOutcome::Extended(_) => (true, None),
                ExtendOutcome::Absent(why) => absence(*why),
            },
        )
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        self.observe(
            LockEventType::IsLocked,
            Some(key),
            None,
            || self.inner.is_locked(key, call),
            |_| (true, None),
        )
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let (key, lock_id) = match by {
            LookupBy::Key(key) => (Some(key), None),
            LookupBy::LockId(id) => (None, Some(id)),
        };
        self.observe(
            LockEventType::Lookup,
            key,
            lock_id,
            || self.inner.find(by, call),
            |found| (found.is_some(), None),
        )
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        self.inner.check(call)
    }

    fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        self.inner.setup_schema(call)
    }

    fn watch(&self, key: &Key, freed: Arc<dyn Fn() + Send + Sync>) -> Option<Watch> {
        self.inner.watch(key, freed)
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        self.inner.purge_expired(limit, call)
    }
}
