//! What a user calls: the client opens a store, takes locks and looks at them. Uses every other folder.

mod gate;
pub(crate) mod inspect;
pub(crate) mod report;
pub(crate) mod waiter;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::backend::gate::GateStore;
use crate::backend::list::{ListOptions, ListPage};
use crate::backend::{
    AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome, Watch,
};
use crate::client::waiter::{Turn, Waiter};
use crate::holding::guard::Guard;
use crate::options::client::ClientOptions;
use crate::options::lock::{CheckedLockOptions, LockOptions};
use crate::runtime::cancel::{deadline_after, deadline_from};
use crate::runtime::ending::InUse;
use crate::stores;
use crate::types::error::LockError;
use crate::types::fence::FenceSource;
use crate::types::key::{IntoKey, Key};
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;
use crate::waiting::attempt::{AcquireAttempt, AttemptTarget, Granted};
use crate::waiting::blocking::Wait;
use crate::waiting::core::Core;

/// At most one clean-up per this time, however often `is_locked` is asked.
const CLEANUP_EVERY: Duration = Duration::from_secs(1);
/// How many dead locks one clean-up removes at the most.
const CLEANUP_BATCH: u32 = 64;

/// A store of locks, opened. Cheap to clone; clones share connections. `Send` and `Sync`: one client for a whole program is
/// right.
///
/// The calls block the thread. Inside an async task they are allowed but block its executor: `docs/tokio.md` has wrappers that do
/// not.
///
/// [`lock`](Self::lock) and its kin wait, renew and release. The five verbs underneath are the [`Backend`] trait, which the
/// client implements too: one attempt each, nothing is renewed and nothing is undone.
///
/// In a forked child an inherited client answers errors; one opened in the child works, for `sqlite:` only if no `sqlite:` file
/// was open at the fork.
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
    core: Arc<Core>,
    /// When the last clean-up was begun, in milliseconds of the timer's clock; `None` if clean-up is off.
    last_cleanup: Option<Arc<AtomicU64>>,
    /// Dropped last: the store's threads end when it is dropped.
    in_use: InUse,
}

/// What [`Client::check`] found.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// let checked = client.check()?;
/// for warning in &checked.warnings {
///     eprintln!("{warning}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Checked {
    /// What is not safe about the store, a sentence each.
    pub warnings: Vec<String>,
    /// How many of them `on_warning`, or stderr, had not taken when the operation timeout was over.
    pub undelivered: usize,
}

impl Client {
    /// Opens the store that `url` names, with all defaults: `redis://`, `rediss://`, `redis+unix://`, `redis+sentinel://`,
    /// `redis+cluster://`, `postgres://`, `sqlite:PATH`. Parses and checks only; connections are made when first needed.
    ///
    /// ```
    /// use syncguard::Client;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    /// let client = Client::open(&url)?;
    /// assert!(Client::open("http://127.0.0.1/").is_err());
    /// # drop(client);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a URL that cannot work: correct the URL. The message does not hold
    /// a password.
    pub fn open(url: &str) -> Result<Self, LockError> {
        Self::open_with(url, &ClientOptions::new())
    }

    /// Opens the store that `url` names. An option that is set and that this store does not use (`schema` for Redis,
    /// `tls_ca_file` without TLS) is told to `on_warning`, once.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::{Client, ClientOptions};
    ///
    /// let options = ClientOptions::new().operation_timeout(Duration::from_secs(2));
    /// # let dir = tempfile::tempdir()?;
    /// # let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    /// let client = Client::open_with(&url, &options)?;
    /// # drop(client);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a URL or an option that cannot work: correct what the message
    /// names. It does not hold a password.
    pub fn open_with(url: &str, options: &ClientOptions) -> Result<Self, LockError> {
        let opened = stores::open::open(url, options)?;
        let client = Self::build(opened.backend, options);
        if let Some(warning) = opened.warning {
            client.core.warn(warning);
        }
        Ok(client)
    }

    /// A client of a store of your own, with all defaults.
    ///
    /// ```
    /// use syncguard::{Client, ClientOptions, SqliteBackend, Telemetry, IncludeRaw};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    /// let store = SqliteBackend::open(&url, &ClientOptions::new())?;
    /// let client = Client::from_backend(Telemetry::new(store, IncludeRaw::Never, |event| println!("{event:?}")));
    /// assert!(client.try_lock("nightly")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_backend(backend: impl Backend + 'static) -> Self {
        Self::build(Arc::new(backend), &ClientOptions::new())
    }

    /// A client of a store of your own. Of the options only `operation_timeout`, `dispose_timeout`, `cleanup_in_is_locked` and the
    /// hooks apply. The others are not warned of: your store may have been opened with them. One is: `fences`, if the store counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::{Client, ClientOptions, SqliteBackend};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    /// let options = ClientOptions::new().operation_timeout(Duration::from_secs(1));
    /// let store = SqliteBackend::open(&url, &options)?;
    /// let client = Client::from_backend_with(store, &options)?;
    /// assert!(client.try_lock("nightly")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for an option that cannot work: correct the option that the message
    /// names.
    pub fn from_backend_with(
        backend: impl Backend + 'static,
        options: &ClientOptions,
    ) -> Result<Self, LockError> {
        options.checked()?;
        let counts_unasked = options.fences == FenceSource::Clock
            && backend.capabilities().fence_source == FenceSource::Counter;
        let client = Self::build(Arc::new(backend), options);
        if counts_unasked {
            client.core.warn(
                "fences=clock has no effect: the store was opened without it and counts. Open the store with the same options"
                    .to_owned(),
            );
        }
        Ok(client)
    }

    fn build(backend: Arc<dyn Backend>, options: &ClientOptions) -> Self {
        Self {
            core: Core::new(backend, options),
            last_cleanup: options.cleanup_in_is_locked.then(Arc::default),
            in_use: InUse::new(),
        }
    }

    /// Takes the lock of `key`, waiting up to 5 s and ten retries for it. Held for 30 s and renewed every 10 s until the guard
    /// is released, dropped or lost. `key` is a `&str`, a `String` or a [`Key`]: see [`IntoKey`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("invoice:42")?;
    /// println!("write with fence {}", guard.fence());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AcquisitionTimeout`](crate::ErrorCode::AcquisitionTimeout) if another caller held it to the end: do the work later, or wait
    /// longer with [`lock_with`](Self::lock_with). [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad key: use another
    /// one. [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the trouble of the store outlasted the wait: try again later.
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal), at once, if a person has to repair
    /// the store or its settings first; the message says what.
    pub fn lock(&self, key: impl IntoKey) -> Result<Guard, LockError> {
        self.lock_with(key, &LockOptions::new())
    }

    /// Takes the lock of `key` as `options` say.
    ///
    /// Returns within the larger of the acquire timeout and the operation timeout, counted from the beginning of the call, plus
    /// at most 100 ms. A caller that stood in line to the end, and so has not asked the store yet, asks once in what is left of
    /// that, or within 30 ms.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().ttl(Duration::from_secs(10)).acquire_timeout(Duration::from_secs(60));
    /// let guard = client.lock_with("report", &options)?;
    /// assert!(guard.remaining() <= Duration::from_secs(10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock). [`InvalidArgument`](crate::ErrorCode::InvalidArgument) also for a bad option: correct it.
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the [`deadline`](LockOptions::deadline) ended an attempt.
    /// [`Aborted`](crate::ErrorCode::Aborted) if the token of the options was cancelled. An attempt that the store may have granted
    /// is undone.
    pub fn lock_with(&self, key: impl IntoKey, options: &LockOptions) -> Result<Guard, LockError> {
        self.lock_key(self.key(key)?, options)
    }

    /// The key that a caller named, in the process that opened the client.
    fn key(&self, key: impl IntoKey) -> Result<Key, LockError> {
        self.core.refuse_inherited()?;
        key.into_key()
    }

    fn lock_key(&self, key: Key, options: &LockOptions) -> Result<Guard, LockError> {
        let checked = options.checked()?;
        let at = AttemptTarget {
            core: &self.core,
            key: &key,
            call: Call::of(options).or_held_by(checked.holder.as_ref()),
        };
        let wait = Wait::new(at, &checked)?;
        let last = wait.last(&self.core);
        let granted = wait.run(at)?;
        self.guard(key, granted, last, &checked, options)
    }

    /// Takes the lock of `key` if it is free: one attempt. `None` if another caller holds it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let first = client.try_lock("nightly")?;
    /// assert!(first.is_some());
    /// assert!(client.try_lock("nightly")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A lock that is held is no error. [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad key: use another one.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: ask again later.
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair the store
    /// or its settings first; the message says what. An attempt that the store may have granted is undone.
    pub fn try_lock(&self, key: impl IntoKey) -> Result<Option<Guard>, LockError> {
        self.try_lock_with(key, &LockOptions::new())
    }

    /// Takes the lock of `key` if it is free: one attempt, whatever the options say of waiting.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().ttl(Duration::from_secs(10)).no_heartbeat();
    /// assert!(client.try_lock_with("nightly", &options)?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock). [`InvalidArgument`](crate::ErrorCode::InvalidArgument) also for a bad option: correct it.
    /// [`Aborted`](crate::ErrorCode::Aborted) if the token of the options was cancelled.
    pub fn try_lock_with(
        &self,
        key: impl IntoKey,
        options: &LockOptions,
    ) -> Result<Option<Guard>, LockError> {
        self.try_lock_key(self.key(key)?, options)
    }

    fn try_lock_key(&self, key: Key, options: &LockOptions) -> Result<Option<Guard>, LockError> {
        let checked = options.checked()?;
        let at = AttemptTarget {
            core: &self.core,
            key: &key,
            call: Call::of(options).or_held_by(checked.holder.as_ref()),
        };
        let mut attempt = AcquireAttempt::new(at, checked.ttl)?;
        let begun = Instant::now();
        let limit = deadline_from(begun, self.core.timeouts.operation);
        match attempt.attempt(at, begun, limit) {
            Ok(AcquireOutcome::Acquired(grant)) => {
                self.core.lines.granted(&key);
                let granted = attempt.granted(grant, begun.elapsed());
                self.guard(key, granted, limit, &checked, options).map(Some)
            }
            Ok(AcquireOutcome::Locked(_)) => Ok(None),
            Err(error) => {
                attempt.undo(at);
                Err(error.for_key(&key))
            }
        }
    }

    /// Joins the line of those that wait for `key` here, without blocking and without contacting the store: for a caller that cannot
    /// make an attempt now. The rest is as in [`lock_or_wait`](Self::lock_or_wait).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use syncguard::{LockOptions, WaiterEvent, WaiterStep};
    ///
    /// let waiter = client.waiter("nightly", &LockOptions::new(), || println!("ask again"))?;
    /// assert!(matches!(waiter.next(WaiterEvent::Woken), WaiterStep::Try { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad key or option: correct it.
    /// [`Internal`](crate::ErrorCode::Internal) in a forked child: open a client there.
    pub fn waiter(
        &self,
        key: impl IntoKey,
        options: &LockOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Waiter, LockError> {
        Waiter::join(self, self.key(key)?, options, wake)
    }

    /// Takes the lock of `key`, in one attempt, if no local waiter exists and it is free; else a place in line, for a caller that
    /// waits by itself. A caller that finds others in line does not contact the store. See [`Waiter`].
    ///
    /// `wake` is called, on any thread, when the place becomes the first one and when the lock may have been freed. It must not
    /// block; if it panics, the panic goes no further. The options' token ends this call only.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use syncguard::{LockOptions, Turn};
    ///
    /// let turn = client.lock_or_wait("nightly", &LockOptions::new(), || println!("ask again"))?;
    /// assert!(matches!(turn, Turn::Held(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad key or option: correct it.
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair the store
    /// first. [`Aborted`](crate::ErrorCode::Aborted) if the token of the options was cancelled. If the options allow no second
    /// attempt, also [`AcquisitionTimeout`](crate::ErrorCode::AcquisitionTimeout) for a lock that is held, and
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: try again later. Otherwise these end in a place
    /// in line.
    pub fn lock_or_wait(
        &self,
        key: impl IntoKey,
        options: &LockOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Turn, LockError> {
        Waiter::enter(self, self.key(key)?, options, wake)
    }

    /// Whether a caller of this client waits for `key`. A caller that comes now should join the line. No I/O.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// assert!(!client.is_waited_for("nightly")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad key: use another one.
    /// [`Internal`](crate::ErrorCode::Internal) in a forked child: open a client there.
    pub fn is_waited_for(&self, key: impl IntoKey) -> Result<bool, LockError> {
        Ok(self.core.lines.is_waited_for(&self.key(key)?))
    }

    /// Runs `work` under the lock of `key` and releases it afterwards, also if `work` panics. A release that fails goes to
    /// `on_release_error`: the work is done by then.
    ///
    /// If the lock was lost while `work` ran, the answer is an error, whatever `work` made: another holder may have worked at the
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
    /// As [`lock`](Self::lock), for example [`AcquisitionTimeout`](crate::ErrorCode::AcquisitionTimeout), and then `work` was not
    /// run. [`Lost`](crate::ErrorCode::Lost) if the lock was lost while it ran: another holder may have worked at the same time, so
    /// check or repeat what `work` did.
    pub fn with_lock<R>(
        &self,
        key: impl IntoKey,
        work: impl FnOnce(&Guard) -> R,
    ) -> Result<R, LockError> {
        self.with_lock_with(key, &LockOptions::new(), work)
    }

    /// As [`with_lock`](Self::with_lock), with options.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().acquire_timeout(Duration::from_secs(60));
    /// client.with_lock_with("report", &options, |guard| println!("{:?} left", guard.remaining()))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`lock_with`](Self::lock_with), for example [`AcquisitionTimeout`](crate::ErrorCode::AcquisitionTimeout), and then `work`
    /// was not run. [`Lost`](crate::ErrorCode::Lost) if the lock was lost while it ran, as in [`with_lock`](Self::with_lock).
    pub fn with_lock_with<R>(
        &self,
        key: impl IntoKey,
        options: &LockOptions,
        work: impl FnOnce(&Guard) -> R,
    ) -> Result<R, LockError> {
        let guard = self.lock_with(key, options)?;
        let result = work(&guard);
        guard.finish()?;
        Ok(result)
    }

    /// Takes a grant into care; `by` is when the caller's call ends.
    fn guard(
        &self,
        key: Key,
        granted: Granted,
        by: Instant,
        checked: &CheckedLockOptions,
        options: &LockOptions,
    ) -> Result<Guard, LockError> {
        let Self { core, in_use, .. } = self;
        Guard::new(core, in_use, key, granted, by, checked, options)
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
    /// What would keep locks from working. [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if tables or functions are missing
    /// or are not ours: run [`setup_schema`](Self::setup_schema), or choose other names. [`AuthFailed`](crate::ErrorCode::AuthFailed)
    /// if a right is missing: grant it. [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable),
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot
    /// answer now: ask again later. [`Internal`](crate::ErrorCode::Internal) for anything else.
    pub fn check(&self) -> Result<Checked, LockError> {
        self.check_with(&Call::new())
    }

    /// As [`check`](Self::check), within the bounds of `call`. Ended while the hook is told, it answers what it found, with what
    /// was not delivered.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// let checked = client.check_with(&Call::new().within(Duration::from_secs(1)))?;
    /// println!("{} warnings", checked.warnings.len());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check); [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the deadline of `call` has passed:
    /// allow more time. [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn check_with(&self, call: &Call<'_>) -> Result<Checked, LockError> {
        let mut warnings = self.core.backend.check(&self.bounded(call)?)?;
        for warning in Backend::capabilities(self).warnings() {
            // A client over a client has been told already.
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        let runtime = &self.core.runtime;
        let own = deadline_after(self.core.timeouts.operation);
        let limit = call.deadline().map_or(own, |deadline| deadline.min(own));
        let undelivered = self.core.hooks.warn_and_wait(
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
        self.core.refuse_inherited()?;
        Ok(call.within(self.core.timeouts.operation))
    }

    /// Creates what the store needs (tables and functions; nothing in Redis). Idempotent; many processes may do it at once.
    ///
    /// To a table of an earlier version it adds the column for what holders say of themselves. In Postgres it waits one second for
    /// that: if the table is in use for longer, by a dump for one, the column is left out, [`check`](Self::check) warns of it, and a
    /// later call adds it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// client.setup_schema()?;
    /// client.setup_schema()?; // changes nothing
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the store holds something else under these names: choose other
    /// names. [`AuthFailed`](crate::ErrorCode::AuthFailed) if a right is missing: grant it, or have an administrator run this.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: run it again, it may be repeated.
    /// [`Internal`](crate::ErrorCode::Internal) for anything else.
    pub fn setup_schema(&self) -> Result<(), LockError> {
        self.setup_schema_with(&Call::new())
    }

    /// As [`setup_schema`](Self::setup_schema), within the bounds of `call`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// client.setup_schema_with(&Call::new().within(Duration::from_secs(1)))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`setup_schema`](Self::setup_schema); [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the deadline of `call`
    /// has passed: allow more time. [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn setup_schema_with(&self, call: &Call<'_>) -> Result<(), LockError> {
        Backend::setup_schema(self, call)
    }

    /// How many events [`on_event`](ClientOptions::on_event) was not told of, because it was too slow or no thread was to be had for it.
    /// Counts for this client and its clones; 0 without the hook.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    /// use syncguard::{Client, ClientOptions};
    ///
    /// let client = Client::open_with(&url, &ClientOptions::new().on_event(|event| println!("{event:?}")))?;
    /// client.lock("nightly")?.release()?.expect_released();
    /// assert_eq!(client.events_dropped(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn events_dropped(&self) -> u64 {
        let events = self.core.events.as_ref();
        events.map_or(0, |events| events.dropped())
    }

    /// Stops renewing the guards of this client and of its clones, for good, without releasing them: their leases run out
    /// unless they are extended or released. For a program that ends while work under a lock still runs.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// client.stop_renewing();
    /// assert!(!guard.is_lost()); // not yet: its ttl of 30 s runs
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop_renewing(&self) {
        self.core.renewing.store(false, Ordering::Release);
    }

    /// Removes dead locks on a thread of the library, now and then.
    fn clean_up(&self) {
        let Some(cleaned) = &self.last_cleanup else {
            return;
        };
        let now = u64::try_from(self.core.runtime.timer.now().as_millis()).unwrap_or(u64::MAX);
        let last = cleaned.load(Ordering::Relaxed);
        let due = last == 0 || now.saturating_sub(last) >= CLEANUP_EVERY.as_millis() as u64;
        if due
            && cleaned
                .compare_exchange(last, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            let (backend, bounds) = (Arc::clone(&self.core.backend), self.core.timeouts);
            // If it fails, the next one may not.
            self.core.runtime.run(move || {
                let call = Call::new().within(bounds.operation);
                drop(backend.purge_expired(CLEANUP_BATCH, &call));
            });
        }
    }
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
        self.core.attempt(key, lock_id, ttl, &self.bounded(call)?)
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        self.core.backend.release(lock_id, &self.bounded(call)?)
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        self.core.backend.extend(lock_id, ttl, &self.bounded(call)?)
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let locked = self.core.backend.is_locked(key, &self.bounded(call)?)?;
        self.clean_up();
        Ok(locked)
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        self.core.backend.find(by, &self.bounded(call)?)
    }

    fn capabilities(&self) -> Capabilities {
        self.core.backend.capabilities()
    }

    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        Ok(self.check_with(call)?.warnings)
    }

    fn version(&self, call: &Call<'_>) -> Result<Option<String>, LockError> {
        self.core.backend.version(&self.bounded(call)?)
    }

    fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        self.core.backend.setup_schema(&self.bounded(call)?)
    }

    fn gate(&self) -> Option<&dyn GateStore> {
        self.core.backend.gate()
    }

    fn watch(&self, key: &Key, freed: Arc<dyn Fn() + Send + Sync>) -> Option<Watch> {
        self.core.refuse_inherited().ok()?;
        self.core.backend.watch(key, freed)
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        self.core.backend.purge_expired(limit, &self.bounded(call)?)
    }

    fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        self.core.backend.list(options, &self.bounded(call)?)
    }
}

/// A panic in user code leaves a client whole: what its mutexes guard is consistent whenever they are free.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("backend", &self.core.backend.capabilities().backend)
            .finish_non_exhaustive()
    }
}
