//! Looking at locks: what is stored, sanitised and raw. For people and dashboards, never a guard before a mutation: between
//! the look and the act the lock may change hands.

use crate::backend::call::Call;
use crate::backend::{Backend, LookupBy};
use crate::client::Client;
use crate::types::error::LockError;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::{LockInfo, LockInfoDebug};

/// Diagnostics. **Never a guard before a mutation**: acquire, extend and release decide by themselves, atomically.
impl Client {
    /// The live lock of `key`, sanitised; `None` if it is free.
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
