//! [`Backend`]: what a store must be able to do, and how it answers.

pub(crate) mod ahead;
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) mod ear;
pub(crate) mod keyspace;
pub(crate) mod limits;
#[cfg(any(feature = "redis", feature = "postgres", feature = "sqlite"))]
pub(crate) mod pool;
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) mod store_clock;
pub(crate) mod telemetry;

use std::fmt;
use std::sync::Arc;

use crate::cancel::CancelToken;
use crate::diagnostics::{LockInfo, StoredLock};
use crate::error::LockError;
use crate::key::Key;
use crate::lease::{Acquired, Holder, LockId, Ttl};

/// What an acquire found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum AcquireOutcome {
    /// The lock is granted and stored.
    Acquired(Acquired),
    /// Somebody else holds it; who, where the store says so at no extra trip.
    Locked(Option<Holder>),
}

/// Why a lock was absent. For telemetry only: to a caller both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It was there, and its time was over.
    Expired,
    /// There was no such lock, or it was somebody else's.
    NotFound,
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ReleaseOutcome {
    /// The lock was ours and is gone.
    Released,
    /// There was nothing of ours to release.
    Absent(Absence),
}

impl ReleaseOutcome {
    /// Whether this call removed the lock.
    pub fn is_released(self) -> bool {
        self == Self::Released
    }

    /// For callers that cannot go on if the lock was gone already: somebody else may have worked at the same time.
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

/// What an extend found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ExtendOutcome {
    /// The lease now ends at this time of the store's clock (Unix milliseconds).
    Extended(i64),
    /// There was nothing of ours to extend.
    Absent(Absence),
}

impl ExtendOutcome {
    /// Whether the lock is held and its lease was set.
    pub fn is_extended(self) -> bool {
        matches!(self, Self::Extended(_))
    }

    /// When the lease ends on the store's clock, for callers that cannot go on without the lock.
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

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub enum LookupBy<'a> {
    /// The lock of this name.
    Key(&'a Key),
    /// The lock with this id.
    LockId(&'a LockId),
}

/// A [`Backend::watch`] under way. Ends when dropped, without waiting for anything.
pub struct Watch(#[allow(dead_code)] Box<dyn Send>);

impl Watch {
    /// Keeps `what` until the watch ends; its `Drop` ends the watch. For backends of your own.
    pub fn new(what: impl Send + 'static) -> Self {
        Self(Box::new(what))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// What a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// `"redis"`, `"postgres"`, `"sqlite"`, or your own store's name.
    pub backend: &'static str,
    /// Whether grants carry fencing tokens. Always, for the stores of this crate.
    pub supports_fencing: bool,
    /// Whose clock decides about expiry. Always the store's, for the stores of this crate.
    pub time_authority: TimeAuthority,
}

impl Capabilities {
    /// A store with fences and a clock of its own.
    pub fn new(backend: &'static str) -> Self {
        Self {
            backend,
            supports_fencing: true,
            time_authority: TimeAuthority::Server,
        }
    }
}

/// Whose clock decides about expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeAuthority {
    /// The store's.
    Server,
}

/// A store of locks. One attempt and one round trip per call: no retry, no sleep, no policy.
///
/// Contention and absence are outcomes; only trouble is a [`LockError`]. Every call takes an optional token: cancelled
/// before anything is sent it answers `Aborted`; in flight it ends the call, with an unknown effect
/// ([`LockError::may_have_applied`]). Calls come from many threads at once and must return within a bound of the store's own.
///
/// What every implementation promises:
/// - [`acquire`](Self::acquire) is atomic; the fence of a key grows with every grant, for ever, also after release and expiry.
/// - Repeating an acquire with the same key and lock id while the lease lives answers the stored grant: the caller may not
///   have heard the first answer.
/// - Only the store's clock decides who is alive, by [`is_live`](crate::is_live).
/// - Release and extend check the owner themselves and never revive a dead lease.
/// - Locked, absent and `None` never tell a raw key or lock id.
///
/// A store of your own, whole:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::Instant;
/// use syncguard::*;
///
/// struct Lease { id: LockId, fence: Fence, acquired: i64, expires: i64 }
///
/// /// Locks between the threads of one process.
/// struct Local { start: Instant, state: Mutex<(HashMap<Key, Lease>, HashMap<Key, i64>)> }
///
/// impl Local {
///     fn now(&self) -> i64 { self.start.elapsed().as_millis() as i64 }
/// }
///
/// impl Backend for Local {
///     fn acquire(&self, key: &Key, id: &LockId, ttl: Ttl, _: Option<&CancelToken>) -> Result<AcquireOutcome, LockError> {
///         let (locks, fences) = &mut *self.state.lock().unwrap();
///         let now = self.now();
///         if let Some(held) = locks.get(key).filter(|l| is_live(l.expires, now)) {
///             return Ok(if held.id == *id {
///                 AcquireOutcome::Acquired(Acquired::new(*id, held.fence, held.expires))
///             } else {
///                 AcquireOutcome::Locked(None)
///             });
///         }
///         let counter = fences.entry(key.clone()).or_insert(0);
///         let fence = Fence::after(*counter)?; // checked before anything is written
///         *counter += 1;
///         let expires = now + ttl.as_millis();
///         locks.insert(key.clone(), Lease { id: *id, fence, acquired: now, expires });
///         Ok(AcquireOutcome::Acquired(Acquired::new(*id, fence, expires)))
///     }
///
///     fn release(&self, id: &LockId, _: Option<&CancelToken>) -> Result<ReleaseOutcome, LockError> {
///         let (locks, _) = &mut *self.state.lock().unwrap();
///         let Some(key) = locks.iter().find(|(_, l)| l.id == *id).map(|(k, _)| k.clone()) else {
///             return Ok(ReleaseOutcome::Absent(Absence::NotFound));
///         };
///         let live = locks.remove(&key).is_some_and(|l| is_live(l.expires, self.now()));
///         Ok(if live { ReleaseOutcome::Released } else { ReleaseOutcome::Absent(Absence::Expired) })
///     }
///
///     fn extend(&self, id: &LockId, ttl: Ttl, _: Option<&CancelToken>) -> Result<ExtendOutcome, LockError> {
///         let (locks, _) = &mut *self.state.lock().unwrap();
///         let now = self.now();
///         match locks.values_mut().find(|l| l.id == *id) {
///             None => Ok(ExtendOutcome::Absent(Absence::NotFound)),
///             Some(l) if !is_live(l.expires, now) => Ok(ExtendOutcome::Absent(Absence::Expired)),
///             Some(l) => {
///                 l.expires = now + ttl.as_millis();
///                 Ok(ExtendOutcome::Extended(l.expires))
///             }
///         }
///     }
///
///     fn is_locked(&self, key: &Key, _: Option<&CancelToken>) -> Result<bool, LockError> {
///         let (locks, _) = &*self.state.lock().unwrap();
///         Ok(locks.get(key).is_some_and(|l| is_live(l.expires, self.now())))
///     }
///
///     fn find(&self, by: LookupBy<'_>, _: Option<&CancelToken>) -> Result<Option<StoredLock>, LockError> {
///         let (locks, _) = &*self.state.lock().unwrap();
///         let found = match by {
///             LookupBy::Key(key) => locks.get_key_value(key),
///             LookupBy::LockId(id) => locks.iter().find(|(_, l)| l.id == *id),
///         };
///         Ok(found.filter(|(_, l)| is_live(l.expires, self.now())).map(|(key, l)| StoredLock::new(
///             key.as_str(), l.id, l.fence, l.expires, l.acquired,
///         )))
///     }
///
///     fn capabilities(&self) -> Capabilities { Capabilities::new("local") }
/// }
///
/// let client = Client::with_backend(Local { start: Instant::now(), state: Default::default() });
/// let guard = client.lock("report")?;
/// assert_eq!(guard.fence().get(), 1);
/// assert!(client.try_lock("report")?.is_none());
/// # Ok::<(), LockError>(())
/// ```
pub trait Backend: Send + Sync {
    /// Grants `key` to `lock_id` for `ttl` if nobody holds it, with the next fence.
    ///
    /// # Errors
    /// Trouble only; an error whose [`LockError::may_have_applied`] is true may have left a lock behind.
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        cancel: Option<&CancelToken>,
    ) -> Result<AcquireOutcome, LockError>;

    /// Removes the live lock with this id.
    ///
    /// # Errors
    /// Trouble only.
    fn release(
        &self,
        lock_id: &LockId,
        cancel: Option<&CancelToken>,
    ) -> Result<ReleaseOutcome, LockError>;

    /// Sets the expiry of the live lock with this id to now + `ttl`. Replaces, never adds, never revives.
    ///
    /// # Errors
    /// Trouble only.
    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        cancel: Option<&CancelToken>,
    ) -> Result<ExtendOutcome, LockError>;

    /// Whether somebody holds `key`. A pure read.
    ///
    /// # Errors
    /// Trouble only.
    fn is_locked(&self, key: &Key, cancel: Option<&CancelToken>) -> Result<bool, LockError>;

    /// The live lock with this name or id, raw. A pure read; expired and missing are both `None`.
    ///
    /// # Errors
    /// Trouble only.
    fn find(
        &self,
        by: LookupBy<'_>,
        cancel: Option<&CancelToken>,
    ) -> Result<Option<StoredLock>, LockError>;

    /// The same, sanitised: hashes in place of the key and the lock id.
    ///
    /// # Errors
    /// Trouble only.
    fn lookup(
        &self,
        by: LookupBy<'_>,
        cancel: Option<&CancelToken>,
    ) -> Result<Option<LockInfo>, LockError> {
        Ok(self.find(by, cancel)?.as_ref().map(StoredLock::info))
    }

    /// What the store is. No I/O.
    fn capabilities(&self) -> Capabilities;

    /// Whether the store is reachable, allowed and set up; what is not safe about it comes back as warnings. Default: nothing
    /// to check.
    ///
    /// # Errors
    /// Whatever would keep the verbs from working.
    fn check(&self, cancel: Option<&CancelToken>) -> Result<Vec<String>, LockError> {
        let _ = cancel;
        Ok(Vec::new())
    }

    /// Creates what the verbs need in the store; may be repeated, and run by many processes at once. Default: nothing to do.
    ///
    /// # Errors
    /// Trouble, or a store that holds something else under our names.
    fn setup_schema(&self, cancel: Option<&CancelToken>) -> Result<(), LockError> {
        let _ = cancel;
        Ok(())
    }

    /// Has `freed` called whenever the lock of `key` may have been freed, by whomever, until the watch is dropped; and once as
    /// soon as the store listens, because what was freed before is not heard. Calls come from a thread of the store's, and
    /// must be allowed to come in vain. Does no I/O on the caller's thread. Default: `None`, and whoever waits asks now and
    /// then; it does so in any case, so a call that gets lost costs time and nothing else.
    fn watch(&self, key: &Key, freed: Arc<dyn Fn() + Send + Sync>) -> Option<Watch> {
        let _ = (key, freed);
        None
    }

    /// Removes at most `limit` locks that expired more than two seconds ago, never a fence counter, and says how many.
    /// Default: none.
    ///
    /// # Errors
    /// Trouble only.
    fn purge_expired(&self, limit: u32, cancel: Option<&CancelToken>) -> Result<u64, LockError> {
        let _ = (limit, cancel);
        Ok(0)
    }
}

impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        cancel: Option<&CancelToken>,
    ) -> Result<AcquireOutcome, LockError> {
        (**self).acquire(key, lock_id, ttl, cancel)
    }

    fn release(
        &self,
        lock_id: &LockId,
        cancel: Option<&CancelToken>,
    ) -> Result<ReleaseOutcome, LockError> {
        (**self).release(lock_id, cancel)
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        cancel: Option<&CancelToken>,
    ) -> Result<ExtendOutcome, LockError> {
        (**self).extend(lock_id, ttl, cancel)
    }

    fn is_locked(&self, key: &Key, cancel: Option<&CancelToken>) -> Result<bool, LockError> {
        (**self).is_locked(key, cancel)
    }

    fn find(
        &self,
        by: LookupBy<'_>,
        cancel: Option<&CancelToken>,
    ) -> Result<Option<StoredLock>, LockError> {
        (**self).find(by, cancel)
    }

    fn lookup(
        &self,
        by: LookupBy<'_>,
        cancel: Option<&CancelToken>,
    ) -> Result<Option<LockInfo>, LockError> {
        (**self).lookup(by, cancel)
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn check(&self, cancel: Option<&CancelToken>) -> Result<Vec<String>, LockError> {
        (**self).check(cancel)
    }

    fn setup_schema(&self, cancel: Option<&CancelToken>) -> Result<(), LockError> {
        (**self).setup_schema(cancel)
    }

    fn watch(&self, key: &Key, freed: Arc<dyn Fn() + Send + Sync>) -> Option<Watch> {
        (**self).watch(key, freed)
    }

    fn purge_expired(&self, limit: u32, cancel: Option<&CancelToken>) -> Result<u64, LockError> {
        (**self).purge_expired(limit, cancel)
    }
}
