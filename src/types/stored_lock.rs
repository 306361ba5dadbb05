//! Locks as a store holds them: the grant, and what a lookup finds, sanitised and raw. It uses `fence`, `key` and `lock_id`.

use std::fmt;

use crate::types::fence::Fence;
use crate::types::key::hash_key;
use crate::types::lock_id::LockId;

/// A grant, as the store stored it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[non_exhaustive]
pub struct Acquired {
    /// The id the caller minted.
    pub lock_id: LockId,
    /// The fencing token of this grant.
    pub fence: Fence,
    /// When the lease ends, on the store's clock (Unix milliseconds). Compare it with nothing local; see
    /// [`Guard::remaining`](crate::Guard::remaining).
    pub expires_at_ms: i64,
}

impl Acquired {
    /// A grant. For backends of your own.
    ///
    /// ```
    /// use syncguard::{Acquired, Fence, LockId};
    ///
    /// let id = LockId::random()?;
    /// let grant = Acquired::new(id, Fence::new(1)?, 1_700_000_030_000);
    /// assert_eq!(grant.lock_id, id);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn new(lock_id: LockId, fence: Fence, expires_at_ms: i64) -> Self {
        Self {
            lock_id,
            fence,
            expires_at_ms,
        }
    }
}

/// A lock as its store holds it, raw: what [`Backend::find`](crate::Backend::find) answers. `Debug` shows hashes.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StoredLock {
    /// The user's key.
    pub key: String,
    /// The owner's lock id.
    pub lock_id: LockId,
    /// The grant's fence.
    pub fence: Fence,
    /// When the lease ends, on the store's clock (Unix milliseconds).
    pub expires_at_ms: i64,
    /// When it was granted, on the store's clock (Unix milliseconds).
    pub acquired_at_ms: i64,
    /// What the holder says of itself, where the store has it.
    pub holder: Option<String>,
}

impl StoredLock {
    /// What a store found. For backends of your own.
    ///
    /// ```
    /// use syncguard::{Fence, LockId, StoredLock};
    ///
    /// let id = LockId::random()?;
    /// let stored = StoredLock::new("nightly", id, Fence::new(1)?, 1_700_000_030_000, 1_700_000_000_000);
    /// assert_eq!(stored.key, "nightly");
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn new(
        key: &str,
        lock_id: LockId,
        fence: Fence,
        expires_at_ms: i64,
        acquired_at_ms: i64,
    ) -> Self {
        Self {
            key: key.to_owned(),
            lock_id,
            fence,
            expires_at_ms,
            acquired_at_ms,
            holder: None,
        }
    }

    /// The same lock, whose holder says this of itself. For backends of your own.
    ///
    /// ```
    /// use syncguard::{Fence, LockId, StoredLock};
    ///
    /// let stored = StoredLock::new("nightly", LockId::random()?, Fence::new(1)?, 30_000, 0);
    /// assert_eq!(stored.held_by("build-7").holder.as_deref(), Some("build-7"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    #[must_use]
    pub fn held_by(self, holder: impl Into<String>) -> Self {
        self.saying(Some(holder.into()))
    }

    pub(crate) fn saying(mut self, holder: Option<String>) -> Self {
        self.holder = holder;
        self
    }

    /// The same without its secrets.
    ///
    /// ```
    /// use syncguard::{Fence, LockId, StoredLock, hash_key};
    ///
    /// let stored = StoredLock::new("nightly", LockId::random()?, Fence::new(1)?, 30_000, 0);
    /// assert_eq!(stored.info().key_hash, hash_key("nightly"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn info(&self) -> LockInfo {
        LockInfo {
            key_hash: hash_key(&self.key),
            lock_id_hash: self.lock_id.log_hash(),
            expires_at_ms: self.expires_at_ms,
            acquired_at_ms: self.acquired_at_ms,
            fence: self.fence,
        }
    }
}

impl fmt::Debug for StoredLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoredLock").field(&self.info()).finish()
    }
}

/// A live lock without its secrets.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// let guard = client.lock("nightly")?;
/// let info = client.get_by_key("nightly")?.expect("it is held");
/// assert_eq!((info.fence, info.key_hash), (guard.fence(), syncguard::hash_key("nightly")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct LockInfo {
    /// [`hash_key`] of the key.
    pub key_hash: String,
    /// [`hash_key`] of the lock id.
    pub lock_id_hash: String,
    /// When the lease ends, on the store's clock (Unix milliseconds).
    pub expires_at_ms: i64,
    /// When it was granted, on the store's clock (Unix milliseconds).
    pub acquired_at_ms: i64,
    /// The grant's fence.
    pub fence: Fence,
}

/// A live lock with its raw key and lock id. A program that has these can release the lock. `Debug` shows hashes.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// let guard = client.lock("nightly")?;
/// let lock = client.get_by_key_raw("nightly")?.expect("it is held");
/// assert_eq!((lock.key.as_str(), lock.lock_id), ("nightly", *guard.lock_id()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LockInfoDebug {
    /// The sanitised part.
    pub info: LockInfo,
    /// The raw key.
    pub key: String,
    /// The raw lock id.
    pub lock_id: LockId,
    /// What the holder says of itself ([`LockOptions::holder`](crate::LockOptions::holder)), where the store has it. For people: any
    /// program that can write to the store can write any text.
    pub holder: Option<String>,
}

impl fmt::Debug for LockInfoDebug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockInfoDebug").field(&self.info).finish()
    }
}

impl From<StoredLock> for LockInfoDebug {
    fn from(stored: StoredLock) -> Self {
        Self {
            info: stored.info(),
            key: stored.key,
            lock_id: stored.lock_id,
            holder: stored.holder,
        }
    }
}
