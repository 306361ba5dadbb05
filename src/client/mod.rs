//! [`Client`]: opens a store and takes locks in it.

pub(crate) mod inspect;
pub(crate) mod waiter;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::backend::telemetry::Telemetry;
use crate::backend::{
    AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome, Watch,
};
use crate::client::waiter::{Turn, Waiter};
use crate::holding::guard::{Bounds, Guard, Held, LateAcquire};
use crate::holding::lifecycle::{Lease, Lifecycle};
use crate::options::client::ClientOptions;
use crate::options::hooks::Hooks;
use crate::options::lock::{Checked as CheckedOptions, LockOptions};
use crate::runtime::Runtime;
use crate::runtime::cancel::{deadline_after, deadline_from};
use crate::runtime::ending::InUse;
use crate::runtime::process::Owner;
use crate::runtime::threads;
use crate::stores;
use crate::types::error::LockError;
use crate::types::fence::WARN_FENCE;
use crate::types::holder::Holder;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;
use crate::waiting::policy::LAST_CHANCE;
use crate::waiting::queue::Queue;
use crate::waiting::undo::Undo;
use crate::waiting::wait::{Flight, Granted, Target, Wait};

/// At most one clean-up per this time, however often `is_locked` is asked.
const CLEANUP_EVERY: Duration = Duration::from_secs(1);
/// How many dead locks one clean-up removes at the most.
const CLEANUP_BATCH: u32 = 64;

/// A store of locks, opened. Cheap to clone; clones share connections. `Send` and `Sync`: one client for a whole program is
/// right.
///
/// The calls block the thread. Inside an async task they are allowed but block its executor: use your runtime's
/// `spawn_blocking`.
///
/// [`lock`](Self::lock) and its kin wait, renew and release. The five verbs underneath are the [`Backend`] trait, which the
/// client implements too: one attempt each, nothing is renewed and nothing is undone.
///
/// In a forked child an inherited client answers errors; one opened in the child works.
///
/// ```
/// use syncguard::Client;
///
/// # let dir = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}", dir.path().join("locks.db").display());
/// let client = Client::open(&url)?; // redis:// rediss:// postgres:// sqlite:PATH
/// let guard = client.lock("invoice:42")?;
/// println!("{}", guard.fence());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

/// What [`Client::check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// What is not safe about the store, a sentence each.
    pub warnings: Vec<String>,
    /// How many of them `on_warning`, or stderr, had not taken when the operation timeout was over.
    pub undelivered: usize,
}

struct Inner {
    backend: Arc<dyn Backend>,
    runtime: Runtime,
    bounds: Bounds,
    hooks: Hooks,
    undo: Arc<Undo>,
    queue: Arc<Queue>,
    renewing: Arc<AtomicBool>,
    /// Whether the caller was told that a guard was lost when it was granted. Once is enough.
    warned_of_loss: AtomicBool,
    /// When the last clean-up was begun, in milliseconds of the timer's clock; `None` if clean-up is off.
    cleaned: Option<AtomicU64>,
    owner: Owner,
    /// Dropped last: the store's threads end when it is dropped.
    in_use: InUse,
}

impl Client {
    /// Opens the store that `url` names, with all defaults: `redis://`, `rediss://`, `redis+unix://`, `redis+sentinel://`,
    /// `redis+cluster://`, `postgres://`, `sqlite:PATH`. Parses and checks only; connections are made when first needed.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL that cannot work. The message does not hold a password.
    pub fn open(url: &str) -> Result<Self, LockError> {
        Self::open_with(url, &ClientOptions::new())
    }

    /// Opens the store that `url` names.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL or an option that cannot work. The message does not hold a password.
    pub fn open_with(url: &str, options: &ClientOptions) -> Result<Self, LockError> {
        Ok(Self::build(stores::open::open(url, options)?, options))
    }

    /// A client of a store of your own, with all defaults.
    pub fn with_backend(backend: impl Backend + 'static) -> Self {
        Self::build(Arc::new(backend), &ClientOptions::new())
    }

    /// A client of a store of your own. Of the options only the timeouts and hooks apply.
    ///
    /// # Errors
    /// `InvalidArgument` for an option that cannot work.
    pub fn with_backend_and(
        backend: impl Backend + 'static,
        options: &ClientOptions,
    ) -> Result<Self, LockError> {
        options.checked()?;
        Ok(Self::build(Arc::new(backend), options))
    }

    fn build(backend: Arc<dyn Backend>, options: &ClientOptions) -> Self {
        let backend = match &options.on_event {
            Some(hook) => Arc::new(Telemetry::shared(
                backend,
                options.include_raw.clone(),
                Arc::clone(hook),
            )),
            None => backend,
        };
        let runtime = options.runtime();
        let hooks = Hooks::new(options.on_warning.clone(), options.on_release_error.clone());
        let bounds = Bounds {
            operation: options.operation_timeout,
            dispose: options.dispose_timeout,
        };
        let undo = Undo::new(
            Arc::clone(&backend),
            bounds,
            runtime.clone(),
            hooks.with_release_hook(None),
        );
        Self {
            inner: Arc::new(Inner {
                backend,
                runtime,
                bounds,
                hooks,
                undo,
                queue: Arc::default(),
                renewing: Arc::new(AtomicBool::new(true)),
                warned_of_loss: AtomicBool::new(false),
                cleaned: options.cleanup_in_is_locked.then(AtomicU64::default),
                owner: Owner::current(),
                in_use: InUse::new(),
            }),
        }
    }

    /// Takes the lock of `key`, waiting up to 5 s and ten retries for it. Held for 30 s and renewed every 10 s until the guard
    /// is released, dropped or lost.
    ///
    /// # Errors
    /// `AcquisitionTimeout` if somebody held it to the end; `InvalidArgument` for a bad key; the store's trouble, when it
    /// outlasted the wait.
    pub fn lock(&self, key: &str) -> Result<Guard, LockError> {
        self.lock_with(key, &LockOptions::new())
    }

    /// Takes the lock of `key` as `options` say.
    ///
    /// Returns within the larger of the acquire timeout and the operation timeout, counted from the beginning of the call, plus
    /// at most 100 ms. A caller that stood in line to the end, and so has not asked the store yet, asks once in what is left of
    /// that, or within 30 ms.
    ///
    /// # Errors
    /// As [`lock`](Self::lock); `Aborted` if the options' token was cancelled; `InvalidArgument` for a bad option.
    pub fn lock_with(&self, key: &str, options: &LockOptions) -> Result<Guard, LockError> {
        self.refuse_inherited()?;
        let (key, checked) = (Key::new(key)?, options.checked()?);
        let at = Target {
            client: self,
            key: &key,
            call: Call::of(options),
        };
        let wait = Wait::new(at, &checked)?;
        let last = wait.last();
        let granted = wait.run(at)?;
        self.guard(key, granted, last, &checked, options)
    }

    /// Takes the lock of `key` if it is free: one attempt.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad key; the store's trouble.
    pub fn try_lock(&self, key: &str) -> Result<Option<Guard>, LockError> {
        self.try_lock_with(key, &LockOptions::new())
    }

    /// Takes the lock of `key` if it is free: one attempt, whatever the options say of waiting.
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock); `Aborted` if the options' token was cancelled; `InvalidArgument` for a bad option.
    pub fn try_lock_with(
        &self,
        key: &str,
        options: &LockOptions,
    ) -> Result<Option<Guard>, LockError> {
        self.refuse_inherited()?;
        let (key, checked) = (Key::new(key)?, options.checked()?);
        let at = Target {
            client: self,
            key: &key,
            call: Call::of(options),
        };
        let mut flight = Flight::new(at, checked.ttl)?;
        let begun = Instant::now();
        let limit = deadline_from(begun, self.inner.bounds.operation);
        match flight.attempt(at, begun, limit) {
            Ok(AcquireOutcome::Acquired(grant)) => {
                self.inner.queue.granted(&key);
                let granted = flight.granted(grant);
                self.guard(key, granted, limit, &checked, options).map(Some)
            }
            Ok(AcquireOutcome::Locked(_)) => Ok(None),
            Err(error) => {
                flight.undo(at);
                Err(error.for_key(&key))
            }
        }
    }

    /// Joins the line of those who wait for `key` here, without blocking and without contacting the store: for a caller that cannot
    /// make an attempt now. The rest is as in [`lock_or_wait`](Self::lock_or_wait).
    ///
    /// # Errors
    /// `InvalidArgument` for a bad key or option.
    pub fn waiter(
        &self,
        key: &str,
        options: &LockOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Waiter, LockError> {
        Waiter::join(self, key, options, wake)
    }

    /// Takes the lock of `key`, in one attempt, if no local waiter exists and it is free; else a place in line, for a caller that
    /// waits by itself. A caller that finds others in line does not contact the store. See [`Waiter`].
    ///
    /// `wake` is called, on any thread, when the place becomes the first one and when the lock may have been freed. It must not
    /// block; if it panics, the panic goes no further. The options' token ends this call only.
    ///
    /// # Errors
    /// As [`lock_with`](Self::lock_with), for what ends the wait at once.
    pub fn lock_or_wait(
        &self,
        key: &str,
        options: &LockOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Turn, LockError> {
        Waiter::enter(self, key, options, wake)
    }

    /// Whether somebody of this client waits for `key`: who comes now should join the line. No I/O.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad key.
    pub fn is_waited_for(&self, key: &str) -> Result<bool, LockError> {
        self.refuse_inherited()?;
        Ok(self.inner.queue.is_waited_for(&Key::new(key)?))
    }

    /// Runs `work` under the lock of `key` and releases it afterwards, also if `work` panics. A release that fails goes to
    /// `on_release_error`: the work is done by then.
    ///
    /// If the lock was lost while `work` ran, the answer is an error, whatever `work` made: somebody else may have worked at the
    /// same time. Work that must know earlier asks [`Guard::is_lost`], or takes `on_lost`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let fence = client.with_lock("nightly", |guard| guard.fence())?;
    /// assert_eq!(fence.get(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock), and then `work` was not run. `Lost` if the lock was lost while it ran.
    pub fn with_lock<R>(&self, key: &str, work: impl FnOnce(&Guard) -> R) -> Result<R, LockError> {
        self.with_lock_and(key, &LockOptions::new(), work)
    }

    /// As [`with_lock`](Self::with_lock), with options.
    ///
    /// # Errors
    /// As [`lock_with`](Self::lock_with), and then `work` was not run. `Lost` if the lock was lost while it ran.
    pub fn with_lock_and<R>(
        &self,
        key: &str,
        options: &LockOptions,
        work: impl FnOnce(&Guard) -> R,
    ) -> Result<R, LockError> {
        let guard = self.lock_with(key, options)?;
        let result = work(&guard);
        guard.finish()?;
        Ok(result)
    }

    pub(crate) fn guard(
        &self,
        key: Key,
        granted: Granted,
        by: Instant,
        checked: &CheckedOptions,
        options: &LockOptions,
    ) -> Result<Guard, LockError> {
        let inner = &self.inner;
        let grant = granted.acquired;
        let life = Lifecycle::new(Lease {
            sent: granted.sent,
            ttl: checked.ttl,
            pace: checked.pace,
            max_hold: options.max_hold_after(),
            expires_at_ms: grant.expires_at_ms,
            wants_report: options.lost_callback().is_some(),
        });
        let held = Arc::new(Held {
            life,
            backend: Arc::clone(&inner.backend),
            granted: grant,
            key,
            ticket: OnceLock::new(),
            queue: Arc::clone(&inner.queue),
            late_acquire: granted.refused_after.map(|refused_after| LateAcquire {
                undo: Arc::clone(&inner.undo),
                ttl: checked.ttl,
                refused_after,
            }),
            bounds: Bounds {
                dispose: options.dispose_within().unwrap_or(inner.bounds.dispose),
                ..inner.bounds
            },
            runtime: inner.runtime.clone(),
            renewing: Arc::clone(&inner.renewing),
            on_lost: options.lost_callback().cloned(),
            on_release_error: inner.hooks.with_release_hook(options.release_hook()),
            owner: inner.owner,
            thread: threads::number(),
        });
        let guard = Guard::new(Arc::clone(&held), inner.in_use.clone()).map_err(|error| {
            // Nobody would notice its loss: give it back at once, and until that is answered.
            let lock_id = held.granted.lock_id;
            // What the call has left is all that this may take.
            let limit = by.max(deadline_after(LAST_CHANCE));
            let call = Call::new()
                .with_deadline(limit)
                .within(inner.bounds.operation);
            if inner.backend.release(&lock_id, &call).is_err() {
                self.undo(&held.key, lock_id, checked.ttl, granted.refused_after);
            } else {
                held.watch_for_late_acquire();
            }
            inner.queue.freed(&held.key);
            error.for_key(&held.key)
        })?;
        // With a ttl that is longer than any call the clock need not be read: this is on the path of every lock.
        let longest = checked.acquire_timeout.max(inner.bounds.operation);
        if checked.ttl.as_duration() / 2 < longest
            && held.remaining().is_zero()
            && !inner.warned_of_loss.swap(true, Ordering::Relaxed)
        {
            self.warn(lost_when_granted(
                checked.ttl,
                held.now().saturating_sub(granted.sent),
            ));
        }
        Ok(guard)
    }

    /// Looks whether the store is reachable, allowed and set up, in one trip. What is not safe about it goes to `on_warning`,
    /// or to stderr, and comes back.
    ///
    /// The hook has returned, or the lines are written, when this returns. A hook that hangs delays it by the operation timeout
    /// at the most; [`Checked::undelivered`] says how many warnings it did not take.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let checked = client.check()?;
    /// for warning in &checked.warnings {
    ///     println!("not safe: {warning}");
    /// }
    /// assert_eq!(checked.undelivered, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Whatever would keep locks from working.
    pub fn check(&self) -> Result<Checked, LockError> {
        self.check_with(&Call::new())
    }

    /// As [`check`](Self::check), within the bounds of `call`. Ended while the hook is told, it answers what it found, with what
    /// was not delivered.
    ///
    /// # Errors
    /// As there, and `Aborted`.
    pub fn check_with(&self, call: &Call<'_>) -> Result<Checked, LockError> {
        let warnings = self.inner.backend.check(&self.bounded(call)?)?;
        let runtime = &self.inner.runtime;
        let own = deadline_after(self.inner.bounds.operation);
        let limit = call.deadline().map_or(own, |deadline| deadline.min(own));
        let undelivered = self.inner.hooks.warn_and_wait(
            &runtime.workers,
            &runtime.timer,
            &warnings,
            call.token(),
            limit,
        );
        Ok(Checked {
            warnings,
            undelivered,
        })
    }

    /// The same call, which ends by the operation timeout, in the process that opened the client.
    fn bounded<'a>(&self, call: &Call<'a>) -> Result<Call<'a>, LockError> {
        self.refuse_inherited()?;
        Ok(call.within(self.inner.bounds.operation))
    }

    /// Creates what the store needs (tables and functions; nothing in Redis). Idempotent; many processes may do it at once.
    ///
    /// # Errors
    /// Trouble, or a store that holds something else under our names.
    pub fn setup_schema(&self) -> Result<(), LockError> {
        Backend::setup_schema(self, &Call::new())
    }

    /// Stops renewing the guards of this client and of its clones, for good, without releasing them: their leases run out
    /// unless they are extended or released. For a program that ends while work under a lock still runs.
    pub fn stop_renewing(&self) {
        self.inner.renewing.store(false, Ordering::Release);
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.inner.queue
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.inner.backend
    }

    /// One attempt, in the process that opened the client.
    pub(crate) fn attempt(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let outcome = self.inner.backend.acquire(key, lock_id, ttl, call)?;
        self.note_fence(key, &outcome);
        Ok(outcome)
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.inner.bounds
    }

    pub(crate) fn now(&self) -> Duration {
        self.inner.runtime.timer.now()
    }

    /// Whether this thread itself took the lock of `holder`, and has not released it. Only said if it is certain: the store must
    /// name the holder.
    pub(crate) fn is_own(&self, holder: &Holder) -> bool {
        holder.lock_id_hash.as_deref().is_some_and(|hash| {
            let timer = &self.inner.runtime.timer;
            timer.has_lock_of(threads::number(), hash)
        })
    }

    /// Sees to it that what an acquire of unknown outcome may have left is released.
    pub(crate) fn undo(
        &self,
        key: &Key,
        lock_id: LockId,
        ttl: Ttl,
        refused_after: Option<Instant>,
    ) {
        self.inner
            .undo
            .add(key.clone(), lock_id, ttl, refused_after);
    }

    fn warn(&self, message: String) {
        self.inner.hooks.warn(
            &self.inner.runtime.workers,
            &self.inner.runtime.timer,
            message,
        );
    }

    /// Asked before anything else is: a store of a user's own may not check for a fork, and its mutexes may be locked for ever.
    pub(crate) fn refuse_inherited(&self) -> Result<(), LockError> {
        if self.inner.owner.is_this_process() {
            Ok(())
        } else {
            Err(LockError::forked())
        }
    }

    /// Removes dead locks on a thread of the library, now and then.
    fn clean_up(&self) {
        let Some(cleaned) = &self.inner.cleaned else {
            return;
        };
        let now = u64::try_from(self.inner.runtime.timer.now().as_millis()).unwrap_or(u64::MAX);
        let last = cleaned.load(Ordering::Relaxed);
        let due = last == 0 || now.saturating_sub(last) >= CLEANUP_EVERY.as_millis() as u64;
        if due
            && cleaned
                .compare_exchange(last, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let (backend, bounds) = (Arc::clone(&self.inner.backend), self.inner.bounds);
            // If it fails, the next one may not.
            self.inner.runtime.run(move || {
                let call = Call::new().within(bounds.operation);
                drop(backend.purge_expired(CLEANUP_BATCH, &call));
            });
        }
    }

    fn note_fence(&self, key: &Key, outcome: &AcquireOutcome) {
        if let AcquireOutcome::Acquired(grant) = outcome
            && grant.fence.get() > WARN_FENCE
        {
            self.warn(format!(
                "the fence counter of key #{} has passed {WARN_FENCE} and nears its limit",
                key.hash()
            ));
        }
    }
}

fn lost_when_granted(ttl: Ttl, took: Duration) -> String {
    format!(
        "a lock was lost already when it was granted: its ttl is {} ms, the grant took {} ms, and a margin of 2 ms and a hundredth of the ttl is kept; use a longer ttl",
        ttl.as_duration().as_millis(),
        took.as_millis()
    )
}

/// The bare verbs: one attempt, one round trip. A guard does more for you; these are for bindings and for owners in several
/// processes.
impl Backend for Client {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        self.attempt(key, lock_id, ttl, &self.bounded(call)?)
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        self.inner.backend.release(lock_id, &self.bounded(call)?)
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        self.inner
            .backend
            .extend(lock_id, ttl, &self.bounded(call)?)
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let locked = self.inner.backend.is_locked(key, &self.bounded(call)?)?;
        self.clean_up();
        Ok(locked)
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        self.inner.backend.find(by, &self.bounded(call)?)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.backend.capabilities()
    }

    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        Ok(self.check_with(call)?.warnings)
    }

    fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        self.inner.backend.setup_schema(&self.bounded(call)?)
    }

    fn watch(&self, key: &Key, freed: Arc<dyn Fn() + Send + Sync>) -> Option<Watch> {
        self.refuse_inherited().ok()?;
        self.inner.backend.watch(key, freed)
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        self.inner
            .backend
            .purge_expired(limit, &self.bounded(call)?)
    }
}

/// A panic in user code leaves a client whole: what its mutexes guard is consistent whenever they are free.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("backend", &self.inner.backend.capabilities().backend)
            .finish_non_exhaustive()
    }
}
