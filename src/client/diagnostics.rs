//! Looking at locks: what is stored, sanitised and raw. For people and dashboards, never a guard before a mutation: between
//! the look and the act the lock may change hands.

use std::fmt;

use crate::backend::call::Call;
use crate::backend::{Backend, LookupBy};
use crate::client::Client;
use crate::types::error::LockError;
use crate::types::key::{Key, hash_key};
use crate::types::lease::{Fence, LockId};

/// A lock as its store holds it, raw: what [`Backend::find`] answers. `Debug` shows hashes.
#[derive(Clone, PartialEq, Eq)]
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
}

impl StoredLock {
    /// What a store found. For backends of your own.
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
        }
    }

    /// The same without its secrets.
    pub fn info(&self) -> LockInfo {
        LockInfo {
            key_hash: hash_key(&self.key),
            lock_id_hash: self.lock_id.hash(),
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
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// A live lock with its raw key and lock id: who has it can release the lock. `Debug` shows hashes.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfoDebug {
    /// The sanitised part.
    pub info: LockInfo,
    /// The raw key.
    pub key: String,
    /// The raw lock id.
    pub lock_id: LockId,
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
        }
    }
}

/// Diagnostics. **Never a guard before a mutation**: acquire, extend and release decide by themselves, atomically.
impl Client {
    /// The live lock of `key`, sanitised; `None` if nobody holds it.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad key; the store's trouble.
    pub fn get_by_key(&self, key: &str) -> Result<Option<LockInfo>, LockError> {
        self.lookup(LookupBy::Key(&Key::new(key)?), &Call::new())
    }

    /// The live lock with this id, sanitised; `None` if there is none.
    ///
    /// # Errors
    /// `InvalidArgument` for a text that is no lock id; the store's trouble.
    pub fn get_by_id(&self, lock_id: &str) -> Result<Option<LockInfo>, LockError> {
        self.lookup(LookupBy::LockId(&LockId::parse(lock_id)?), &Call::new())
    }

    /// As [`get_by_key`](Self::get_by_key), with the raw key and lock id.
    ///
    /// # Errors
    /// As there.
    pub fn get_by_key_raw(&self, key: &str) -> Result<Option<LockInfoDebug>, LockError> {
        Ok(self
            .find(LookupBy::Key(&Key::new(key)?), &Call::new())?
            .map(Into::into))
    }

    /// As [`get_by_id`](Self::get_by_id), with the raw key and lock id.
    ///
    /// # Errors
    /// As there.
    pub fn get_by_id_raw(&self, lock_id: &str) -> Result<Option<LockInfoDebug>, LockError> {
        Ok(self
            .find(LookupBy::LockId(&LockId::parse(lock_id)?), &Call::new())?
            .map(Into::into))
    }

    /// Whether the lock with this id is alive.
    ///
    /// # Errors
    /// `InvalidArgument` for a text that is no lock id; the store's trouble.
    pub fn owns(&self, lock_id: &str) -> Result<bool, LockError> {
        Ok(self.get_by_id(lock_id)?.is_some())
    }
}
