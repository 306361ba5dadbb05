//! What stores share: the trait, the bounds of a call, the pool, stored names, telemetry. Uses `types`, `runtime` and `options`.

pub(crate) mod call;
pub(crate) mod events;
pub(crate) mod gate;
pub(crate) mod helper_call;
pub(crate) mod helpers;
pub(crate) mod keyspace;
pub(crate) mod limits;
pub(crate) mod list;
#[cfg(any(feature = "redis", feature = "postgres", feature = "sqlite"))]
pub(crate) mod pool;
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) mod release_listener;
pub(crate) mod store_clock;
pub(crate) mod telemetry;
#[cfg(feature = "tracing")]
mod trace;
#[cfg(any(feature = "redis", all(test, loom)))]
pub(crate) mod trips;
#[cfg(all(test, loom))]
mod trips_model;

use std::fmt;
use std::sync::Arc;

use crate::backend::call::Call;
use crate::backend::gate::GateStore;
use crate::backend::list::{ListOptions, ListPage};
use crate::types::error::LockError;
use crate::types::fence::FenceSource;
use crate::types::holder::Holder;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::Acquired;
use crate::types::stored_lock::{LockInfo, StoredLock};
use crate::types::ttl::Ttl;

/// What an acquire found. Exhaustive: a caller must handle every outcome.
///
/// ```
/// use std::time::Duration;
/// use syncguard::{AcquireOutcome, Backend, Call, Key, LockId, Ttl};
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
///
/// let (key, id) = (Key::new("nightly")?, LockId::random()?);
/// match client.acquire(&key, &id, Ttl::new(Duration::from_secs(30))?, &Call::new())? {
///     AcquireOutcome::Acquired(grant) => println!("held with fence {}", grant.fence),
///     AcquireOutcome::Locked(holder) => println!("held by {holder:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum AcquireOutcome {
    /// The key was free, or this lock id held it already: the lock is granted and stored.
    Acquired(Acquired),
    /// Another lock id holds it, and its lease is alive. The holder is named where the store tells it at no extra trip.
    Locked(Option<Holder>),
}

/// Why a lock was absent. For telemetry only: to a caller all of these are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Absence {
    /// The lock with this id is still stored, and its lease is over.
    Expired,
    /// No lock with this id is stored: it was released, removed or taken over after its lease.
    NotFound,
}

/// What a release found. Exhaustive: a caller must handle every outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum ReleaseOutcome {
    /// The lock was alive and this call removed it.
    Released,
    /// The lock was not alive any more, so nothing was removed: another holder may have worked in the meantime.
    Absent(Absence),
}

impl ReleaseOutcome {
    /// Whether this call removed the lock.
    ///
    /// ```
    /// use syncguard::{Absence, ReleaseOutcome};
    ///
    /// assert!(ReleaseOutcome::Released.is_released());
    /// assert!(!ReleaseOutcome::Absent(Absence::Expired).is_released());
    /// ```
    pub fn is_released(self) -> bool {
        self == Self::Released
    }

    /// For callers that cannot go on if the lock was gone already: another holder may have worked at the same time.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// client.lock("nightly")?.release()?.expect_released();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Unless this call removed the lock.
    #[track_caller]
    pub fn expect_released(self) {
        assert!(
            self.is_released(),
            "the lock was gone before it was released"
        );
    }
}

/// What an extend found. Exhaustive: a caller must handle every outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum ExtendOutcome {
    /// The lock was alive, and its lease now ends at this time of the store's clock (Unix milliseconds).
    Extended(i64),
    /// The lock was not alive any more, so nothing was extended: it is lost.
    Absent(Absence),
}

impl ExtendOutcome {
    /// Whether the lock is held and its lease was set.
    ///
    /// ```
    /// use syncguard::{Absence, ExtendOutcome};
    ///
    /// assert!(ExtendOutcome::Extended(1_700_000_000_000).is_extended());
    /// assert!(!ExtendOutcome::Absent(Absence::NotFound).is_extended());
    /// ```
    pub fn is_extended(self) -> bool {
        matches!(self, Self::Extended(_))
    }

    /// When the lease ends on the store's clock, for callers that cannot go on without the lock.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// let ends_at_ms = guard.extend(Duration::from_secs(60))?.expect_extended();
    /// assert_eq!(ends_at_ms, guard.expires_at_ms());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Unless the lock is held and its lease was set.
    #[track_caller]
    pub fn expect_extended(self) -> i64 {
        match self {
            Self::Extended(at) => at,
            Self::Absent(_) => panic!("the lock was gone before it was extended"),
        }
    }
}

/// What to look for. Exhaustive: a store must serve every way of looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookupBy<'a> {
    /// The lock of this name: the caller knows what is protected.
    Key(&'a Key),
    /// The lock with this id: the caller knows the grant.
    LockId(&'a LockId),
}

/// What a watch calls when a lock may have been freed.
pub(crate) type Freed = Arc<dyn Fn() + Send + Sync>;

/// A [`Backend::watch`] under way. Ends when dropped, without waiting for anything.
pub struct Watch(#[allow(dead_code)] Box<dyn Send>);

impl Watch {
    /// Keeps `what` until the watch ends; its `Drop` ends the watch. For backends of your own.
    ///
    /// ```
    /// use syncguard::Watch;
    ///
    /// struct Subscription; // its Drop ends the watch in your store
    ///
    /// let watch = Watch::new(Subscription);
    /// drop(watch);
    /// ```
    pub fn new(what: impl Send + 'static) -> Self {
        Self(Box::new(what))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// What a store is, and what it can promise.
///
/// The stores of this crate hand out fences and decide by their own clock. A store of your own that cannot do one of these says
/// so here. [`Client::check`](crate::Client::check) then warns of it; locks work as before.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// let store = client.capabilities();
/// assert_eq!((store.backend, store.supports_fencing), ("sqlite", true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Capabilities {
    /// `"redis"`, `"postgres"`, `"sqlite"`, or your own store's name.
    pub backend: &'static str,
    /// Whether grants carry fencing tokens. A store without them grants [`Fence::NONE`](crate::Fence::NONE) each time, and that is what
    /// [`Guard::fence`](crate::Guard::fence) answers over it. Then nothing refuses a holder that was paused past its ttl.
    pub supports_fencing: bool,
    /// Whose clock decides about expiry.
    pub time_authority: TimeAuthority,
    /// Where the fences that this client takes come from.
    pub fence_source: FenceSource,
}

impl Capabilities {
    /// A store with fences and a clock of its own.
    ///
    /// ```
    /// assert_eq!(syncguard::Capabilities::new("my-store").backend, "my-store");
    /// ```
    pub fn new(backend: &'static str) -> Self {
        Self {
            backend,
            supports_fencing: true,
            time_authority: TimeAuthority::Server,
            fence_source: FenceSource::Counter,
        }
    }

    /// The same store, whose fences come from there.
    ///
    /// ```
    /// use syncguard::{Capabilities, FenceSource};
    ///
    /// let store = Capabilities::new("my-store").with_fence_source(FenceSource::Clock);
    /// assert_eq!(store.fence_source, FenceSource::Clock);
    /// ```
    #[must_use]
    pub fn with_fence_source(self, fence_source: FenceSource) -> Self {
        Self {
            fence_source,
            ..self
        }
    }

    /// The same store, which hands out no fences.
    ///
    /// ```
    /// use syncguard::Capabilities;
    ///
    /// assert!(!Capabilities::new("my-store").without_fencing().supports_fencing);
    /// ```
    #[must_use]
    pub fn without_fencing(self) -> Self {
        Self {
            supports_fencing: false,
            ..self
        }
    }

    /// The same store, in which this clock decides about expiry.
    ///
    /// ```
    /// use syncguard::{Capabilities, TimeAuthority};
    ///
    /// let store = Capabilities::new("my-store").with_time_authority(TimeAuthority::Client);
    /// assert_eq!(store.time_authority, TimeAuthority::Client);
    /// ```
    #[must_use]
    pub fn with_time_authority(self, time_authority: TimeAuthority) -> Self {
        Self {
            time_authority,
            ..self
        }
    }

    /// What a user must know before trusting locks to such a store, a sentence each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.supports_fencing {
            warnings.push(
                "the store hands out no fences: what the lock protects cannot refuse a holder that was paused past its ttl"
                    .to_owned(),
            );
        }
        if self.time_authority == TimeAuthority::Client {
            warnings.push(
                "the clocks of the clients decide when a lease ends: if two of them differ by more than a second, a lock may have \
                 two holders; keep them in step"
                    .to_owned(),
            );
        }
        warnings
    }
}

/// Whose clock decides about expiry.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// use syncguard::TimeAuthority;
///
/// assert_eq!(client.capabilities().time_authority, TimeAuthority::Server);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum TimeAuthority {
    /// The store's: clients with wrong clocks cannot shorten or lengthen a lease. Every store of this library.
    Server,
    /// That of the client which looks, because the store has no clock that a request can read. The clocks of all clients must
    /// agree to within [`TIME_TOLERANCE_MS`](crate::TIME_TOLERANCE_MS).
    Client,
}

/// A store of locks. One attempt and one round trip per call: no retry, no sleep, no policy.
///
/// Contention and absence are outcomes; only trouble is a [`LockError`]. Every verb is given a [`Call`] and ends by its deadline,
/// with `NetworkTimeout`, and soon after its cancel, with `Aborted`. If that happens before anything is sent, the error says that
/// nothing was applied; in flight the effect is unknown ([`LockError::may_have_applied`]). Verbs are called from many threads at
/// once.
///
/// A client gives its store a deadline with every call, so it is bounded over every store that keeps it. A call without a
/// deadline comes only from a caller that uses the store without a client: give it one of the store's own.
///
/// What every implementation promises:
/// - [`acquire`](Self::acquire) is atomic; the fence of a key grows with every grant, for ever, also after release and expiry.
/// - Repeating an acquire with the same key and lock id while the lease lives answers the stored grant: the caller may not
///   have heard the first answer.
/// - Only the store's clock decides which lock is alive, by [`is_live`](crate::is_live).
/// - A store that cannot promise the fence or the clock says so in its [`capabilities`](Self::capabilities).
/// - Release and extend check the owner themselves and never revive a dead lease.
/// - Locked, absent and `None` never tell a raw key or lock id.
///
/// A store of your own, whole. It ends each call by its deadline, and a cancel wakes it:
///
#[doc = concat!("```\n", include_str!("../../examples/own_store.rs"), "```")]
pub trait Backend: Send + Sync {
    /// Grants `key` to `lock_id` for `ttl` if it is free, with the next fence.
    ///
    /// # Errors
    /// A lock that is held is no error. [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable),
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot
    /// answer now; [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair
    /// it first. [`Aborted`](crate::ErrorCode::Aborted) after a cancel. [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a
    /// key that this store cannot keep. If [`LockError::may_have_applied`] is true, the request may have left a lock behind: repeat
    /// it with the same lock id, or release that id.
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError>;

    /// Removes the live lock with this id.
    ///
    /// # Errors
    /// A lock that is absent is no error. [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable),
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot
    /// answer now; [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair
    /// it first. [`Aborted`](crate::ErrorCode::Aborted) after a cancel. Until a repeated release is answered, the lock may be held up
    /// to its ttl.
    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError>;

    /// Sets the expiry of the live lock with this id to now + `ttl`. Replaces, never adds, never revives.
    ///
    /// # Errors
    /// A lock that is absent is no error. [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable),
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot
    /// answer now; [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair
    /// it first. [`Aborted`](crate::ErrorCode::Aborted) after a cancel. Until a repeated extend is answered, count on the shorter of
    /// the two leases.
    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError>;

    /// Whether `key` is held. A pure read.
    ///
    /// # Errors
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now; [`AuthFailed`](crate::ErrorCode::AuthFailed) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first. [`Aborted`](crate::ErrorCode::Aborted) after a
    /// cancel.
    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError>;

    /// The live lock with this name or id, raw. A pure read; expired and missing are both `None`.
    ///
    /// For implementers: [`lookup`](Self::lookup) and the diagnostics of a client are made of it. Callers take
    /// [`Client::get_by_key`](crate::Client::get_by_key) and its kin; those that need the raw key or lock id take
    /// [`get_by_key_raw`](crate::Client::get_by_key_raw) or [`get_by_id_raw`](crate::Client::get_by_id_raw), so that a reader of
    /// the code sees where raw values come from.
    ///
    /// # Errors
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now; [`AuthFailed`](crate::ErrorCode::AuthFailed) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first. [`Aborted`](crate::ErrorCode::Aborted) after a
    /// cancel.
    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError>;

    /// The same, sanitised: hashes in place of the key and the lock id.
    ///
    /// # Errors
    /// As [`find`](Self::find): [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable),
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot
    /// answer now; [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair
    /// it first. [`Aborted`](crate::ErrorCode::Aborted) after a cancel.
    fn lookup(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<LockInfo>, LockError> {
        Ok(self.find(by, call)?.as_ref().map(StoredLock::info))
    }

    /// What the store is. No I/O.
    fn capabilities(&self) -> Capabilities;

    /// Whether the store is reachable, allowed and set up; what is not safe about it comes back as warnings. Default: nothing
    /// to check.
    ///
    /// # Errors
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now; [`AuthFailed`](crate::ErrorCode::AuthFailed) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first. [`Aborted`](crate::ErrorCode::Aborted) after a
    /// cancel. [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a store that is not set up: run
    /// [`setup_schema`](Self::setup_schema).
    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        let _ = call;
        Ok(Vec::new())
    }

    /// What the server says of its version, for people: `7.2.4`. Default: `None`, which means that it does not say.
    ///
    /// # Errors
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now; [`AuthFailed`](crate::ErrorCode::AuthFailed) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first. [`Aborted`](crate::ErrorCode::Aborted) after a
    /// cancel.
    fn version(&self, call: &Call<'_>) -> Result<Option<String>, LockError> {
        let _ = call;
        Ok(None)
    }

    /// Creates what the verbs need in the store; may be repeated, and run by many processes at once. Default: nothing to do.
    ///
    /// # Errors
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now; [`AuthFailed`](crate::ErrorCode::AuthFailed) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first. [`Aborted`](crate::ErrorCode::Aborted) after a
    /// cancel. [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a store that holds something else under these names: choose
    /// other names.
    fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        let _ = call;
        Ok(())
    }

    /// The gate of the store, for data that is kept there too. Default: none. No I/O.
    fn gate(&self) -> Option<&dyn GateStore> {
        None
    }

    /// Has `freed` called whenever the lock of `key` may have been freed, by any client, until the watch is dropped; and once as
    /// soon as the store listens, because it does not hear what was freed before. The calls come from a thread of the store's,
    /// and may come although the lock is not free. Does no I/O on the caller's thread. Default: `None`. A waiter asks the store
    /// now and then in any case, so a call that gets lost costs time and nothing else.
    fn watch(&self, key: &Key, freed: Arc<dyn Fn() + Send + Sync>) -> Option<Watch> {
        let _ = (key, freed);
        None
    }

    /// Removes at most `limit` locks that expired more than two seconds ago, never a fence counter, and says how many.
    /// Default: none.
    ///
    /// # Errors
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now; [`AuthFailed`](crate::ErrorCode::AuthFailed) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first. [`Aborted`](crate::ErrorCode::Aborted) after a
    /// cancel.
    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        let _ = (limit, call);
        Ok(0)
    }

    /// Live locks, raw, one page per call. A pure read, which examines about as many stored entries as `options` allow and then answers,
    /// found or not. Default: [`InvalidArgument`](crate::ErrorCode::InvalidArgument), because the store cannot list.
    ///
    /// For implementers: callers take [`Client::list`](crate::Client::list) and [`Client::list_raw`](crate::Client::list_raw).
    ///
    /// # Errors
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now; [`AuthFailed`](crate::ErrorCode::AuthFailed) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first. [`Aborted`](crate::ErrorCode::Aborted) after a
    /// cancel. [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for options that cannot be right, for a store that cannot list, and
    /// for a cursor that is not good any more: begin the listing anew.
    fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        let _ = (options, call);
        Err(LockError::invalid("this store cannot list its locks").nothing_applied())
    }
}

/// A store behind a pointer is a store.
macro_rules! forward_to_the_store_behind {
    ($pointer:ty) => {
        impl<B: Backend + ?Sized> Backend for $pointer {
            fn acquire(
                &self,
                key: &Key,
                lock_id: &LockId,
                ttl: Ttl,
                call: &Call<'_>,
            ) -> Result<AcquireOutcome, LockError> {
                (**self).acquire(key, lock_id, ttl, call)
            }

            fn release(
                &self,
                lock_id: &LockId,
                call: &Call<'_>,
            ) -> Result<ReleaseOutcome, LockError> {
                (**self).release(lock_id, call)
            }

            fn extend(
                &self,
                lock_id: &LockId,
                ttl: Ttl,
                call: &Call<'_>,
            ) -> Result<ExtendOutcome, LockError> {
                (**self).extend(lock_id, ttl, call)
            }

            fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
                (**self).is_locked(key, call)
            }

            fn find(
                &self,
                by: LookupBy<'_>,
                call: &Call<'_>,
            ) -> Result<Option<StoredLock>, LockError> {
                (**self).find(by, call)
            }

            fn lookup(
                &self,
                by: LookupBy<'_>,
                call: &Call<'_>,
            ) -> Result<Option<LockInfo>, LockError> {
                (**self).lookup(by, call)
            }

            fn capabilities(&self) -> Capabilities {
                (**self).capabilities()
            }

            fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
                (**self).check(call)
            }

            fn version(&self, call: &Call<'_>) -> Result<Option<String>, LockError> {
                (**self).version(call)
            }

            fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
                (**self).setup_schema(call)
            }

            fn gate(&self) -> Option<&dyn GateStore> {
                (**self).gate()
            }

            fn watch(&self, key: &Key, freed: Arc<dyn Fn() + Send + Sync>) -> Option<Watch> {
                (**self).watch(key, freed)
            }

            fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
                (**self).purge_expired(limit, call)
            }

            fn list(
                &self,
                options: &ListOptions,
                call: &Call<'_>,
            ) -> Result<ListPage<StoredLock>, LockError> {
                (**self).list(options, call)
            }
        }
    };
}

forward_to_the_store_behind!(Arc<B>);
forward_to_the_store_behind!(Box<B>);
