//! Looking at locks: what is stored, sanitised and raw, and removing what is dead. For people and dashboards, never a guard
//! before a mutation: between the look and the act the lock may change hands. It uses `client`, `backend` and `types`.

use crate::backend::call::Call;
use crate::backend::list::{ListOptions, ListPage};
use crate::backend::{Backend, Capabilities, LookupBy};
use crate::client::Client;
use crate::types::error::LockError;
use crate::types::key::IntoKey;
use crate::types::lock_id::{IntoLockId, LockId};
use crate::types::stored_lock::{LockInfo, LockInfoDebug};

/// Diagnostics. **Never a guard before a mutation**: acquire, extend and release decide by themselves, atomically.
///
/// Each is one round trip, bounded by the operation timeout. They may be called from any thread.
impl Client {
    /// Whether `key` is held by any caller. A pure read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// assert!(client.is_locked("nightly")?);
    /// assert!(!client.is_locked("another")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad key: use another one.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: ask again later.
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair the store
    /// or its settings first; the message says what.
    pub fn is_locked(&self, key: impl IntoKey) -> Result<bool, LockError> {
        self.is_locked_with(key, &Call::new())
    }

    /// As [`is_locked`](Self::is_locked), within the bounds of `call`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// let call = Call::new().within(Duration::from_secs(1));
    /// assert!(!client.is_locked_with("nightly", &call)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`is_locked`](Self::is_locked); [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the deadline of `call` has
    /// passed: allow more time. [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn is_locked_with(&self, key: impl IntoKey, call: &Call<'_>) -> Result<bool, LockError> {
        Backend::is_locked(self, &self.key(key)?, call)
    }

    /// The live lock of `key`, sanitised; `None` if it is free.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// let found = client.get_by_key("nightly")?;
    /// assert_eq!(found.map(|lock| lock.fence), Some(guard.fence()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad key: use another one.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: ask again later.
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair the store
    /// or its settings first; the message says what.
    pub fn get_by_key(&self, key: impl IntoKey) -> Result<Option<LockInfo>, LockError> {
        self.get_by_key_with(key, &Call::new())
    }

    /// As [`get_by_key`](Self::get_by_key), within the bounds of `call`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// let call = Call::new().within(Duration::from_secs(1));
    /// assert!(client.get_by_key_with("nightly", &call)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get_by_key`](Self::get_by_key); [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the deadline of `call` has
    /// passed: allow more time. [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn get_by_key_with(
        &self,
        key: impl IntoKey,
        call: &Call<'_>,
    ) -> Result<Option<LockInfo>, LockError> {
        self.lookup(LookupBy::Key(&self.key(key)?), call)
    }

    /// The live lock with this id, sanitised; `None` if there is none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// let found = client.get_by_id(guard.lock_id())?;
    /// assert_eq!(found.map(|lock| lock.key_hash), Some(syncguard::hash_key("nightly")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a text that is no lock id: there is no such lock.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: ask again later.
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair the store
    /// or its settings first; the message says what.
    pub fn get_by_id(&self, lock_id: impl IntoLockId) -> Result<Option<LockInfo>, LockError> {
        self.get_by_id_with(lock_id, &Call::new())
    }

    /// As [`get_by_id`](Self::get_by_id), within the bounds of `call`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// let call = Call::new().within(Duration::from_secs(1));
    /// let guard = client.lock("nightly")?;
    /// assert!(client.get_by_id_with(guard.lock_id(), &call)?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get_by_id`](Self::get_by_id); [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the deadline of `call` has
    /// passed: allow more time. [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn get_by_id_with(
        &self,
        lock_id: impl IntoLockId,
        call: &Call<'_>,
    ) -> Result<Option<LockInfo>, LockError> {
        self.lookup(LookupBy::LockId(&self.id(lock_id)?), call)
    }

    /// As [`get_by_key`](Self::get_by_key), with the raw key and lock id. Keep them out of logs.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// let found = client.get_by_key_raw("nightly")?;
    /// assert_eq!(found.map(|lock| lock.lock_id), Some(*guard.lock_id()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad key: use another one.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: ask again later.
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair the store
    /// or its settings first; the message says what.
    pub fn get_by_key_raw(&self, key: impl IntoKey) -> Result<Option<LockInfoDebug>, LockError> {
        self.get_by_key_raw_with(key, &Call::new())
    }

    /// As [`get_by_key_raw`](Self::get_by_key_raw), within the bounds of `call`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// let call = Call::new().within(Duration::from_secs(1));
    /// assert!(client.get_by_key_raw_with("nightly", &call)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get_by_key_raw`](Self::get_by_key_raw); [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the deadline of
    /// `call` has passed: allow more time. [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn get_by_key_raw_with(
        &self,
        key: impl IntoKey,
        call: &Call<'_>,
    ) -> Result<Option<LockInfoDebug>, LockError> {
        let key = self.key(key)?;
        Ok(self.find(LookupBy::Key(&key), call)?.map(Into::into))
    }

    /// As [`get_by_id`](Self::get_by_id), with the raw key and lock id. Keep them out of logs.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// let found = client.get_by_id_raw(guard.lock_id())?;
    /// assert_eq!(found.map(|lock| lock.key).as_deref(), Some("nightly"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a text that is no lock id: there is no such lock.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: ask again later.
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair the store
    /// or its settings first; the message says what.
    pub fn get_by_id_raw(
        &self,
        lock_id: impl IntoLockId,
    ) -> Result<Option<LockInfoDebug>, LockError> {
        self.get_by_id_raw_with(lock_id, &Call::new())
    }

    /// As [`get_by_id_raw`](Self::get_by_id_raw), within the bounds of `call`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// let call = Call::new().within(Duration::from_secs(1));
    /// let guard = client.lock("nightly")?;
    /// assert!(client.get_by_id_raw_with(guard.lock_id(), &call)?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get_by_id_raw`](Self::get_by_id_raw); [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the deadline of `call`
    /// has passed: allow more time. [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn get_by_id_raw_with(
        &self,
        lock_id: impl IntoLockId,
        call: &Call<'_>,
    ) -> Result<Option<LockInfoDebug>, LockError> {
        let lock_id = self.id(lock_id)?;
        Ok(self.find(LookupBy::LockId(&lock_id), call)?.map(Into::into))
    }

    /// Whether the lock with this id is alive.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// assert!(client.owns(guard.lock_id())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a text that is no lock id: there is no such lock.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: ask again later.
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair the store
    /// or its settings first; the message says what.
    pub fn owns(&self, lock_id: impl IntoLockId) -> Result<bool, LockError> {
        self.owns_with(lock_id, &Call::new())
    }

    /// As [`owns`](Self::owns), within the bounds of `call`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// let call = Call::new().within(Duration::from_secs(1));
    /// let guard = client.lock("nightly")?;
    /// assert!(client.owns_with(guard.lock_id(), &call)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`owns`](Self::owns); [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the deadline of `call` has passed: allow
    /// more time. [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn owns_with(&self, lock_id: impl IntoLockId, call: &Call<'_>) -> Result<bool, LockError> {
        Ok(self.get_by_id_with(lock_id, call)?.is_some())
    }

    /// Live locks, one page per call, without raw keys. For people and dashboards, never a guard before a mutation.
    ///
    /// One call examines a bounded number of stored entries ([`ListOptions::examine`]), so a page can be empty although more follow:
    /// go on until [`next`](ListPage::next) is `None`. A lock that is taken, renewed or released meanwhile can be missing or come twice.
    ///
    /// ```
    /// use syncguard::ListOptions;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let _guard = client.lock("invoice:42")?;
    /// let mut options = ListOptions::new().prefix("invoice:");
    /// loop {
    ///     let page = client.list(&options)?;
    ///     for lock in &page.locks {
    ///         println!("{} {}", lock.key_hash, lock.fence);
    ///     }
    ///     let Some(next) = page.next else { break };
    ///     options = options.after(next);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for options that cannot be right, for a store that cannot list, and for a
    /// cursor that is not good any more: begin the listing anew. [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable),
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer
    /// now: try again. [`AuthFailed`](crate::ErrorCode::AuthFailed) (on Redis a listing needs the right to `SCAN`) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first.
    pub fn list(&self, options: &ListOptions) -> Result<ListPage<LockInfo>, LockError> {
        self.list_with(options, &Call::new())
    }

    /// [`list`](Self::list), with bounds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::{Call, ListOptions};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let page = client.list_with(&ListOptions::new(), &Call::new().within(Duration::from_secs(60)))?;
    /// assert!(page.locks.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for options that cannot be right, for a store that cannot list, and for a
    /// cursor that is not good any more: begin the listing anew. [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable),
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer
    /// now: try again. [`AuthFailed`](crate::ErrorCode::AuthFailed) (on Redis a listing needs the right to `SCAN`) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first. [`Aborted`](crate::ErrorCode::Aborted) if the token of
    /// `call` was cancelled.
    pub fn list_with(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<LockInfo>, LockError> {
        let page = Backend::list(self, options, call)?;
        Ok(page.map(|lock| lock.info()))
    }

    /// [`list`](Self::list) with raw keys, lock ids and texts of holders. A program that has these can release the locks.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let _guard = client.lock("invoice:42")?;
    /// let page = client.list_raw(&syncguard::ListOptions::new())?;
    /// assert_eq!(page.locks[0].key, "invoice:42");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for options that cannot be right, for a store that cannot list, and for a
    /// cursor that is not good any more: begin the listing anew. [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable),
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer
    /// now: try again. [`AuthFailed`](crate::ErrorCode::AuthFailed) (on Redis a listing needs the right to `SCAN`) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first.
    pub fn list_raw(&self, options: &ListOptions) -> Result<ListPage<LockInfoDebug>, LockError> {
        self.list_raw_with(options, &Call::new())
    }

    /// [`list_raw`](Self::list_raw), with bounds.
    ///
    /// ```
    /// use syncguard::{Call, ListOptions};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let page = client.list_raw_with(&ListOptions::new(), &Call::new())?;
    /// assert!(page.next.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for options that cannot be right, for a store that cannot list, and for a
    /// cursor that is not good any more: begin the listing anew. [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable),
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer
    /// now: try again. [`AuthFailed`](crate::ErrorCode::AuthFailed) (on Redis a listing needs the right to `SCAN`) or
    /// [`Internal`](crate::ErrorCode::Internal) if a person has to repair it first. [`Aborted`](crate::ErrorCode::Aborted) if the token of
    /// `call` was cancelled.
    pub fn list_raw_with(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<LockInfoDebug>, LockError> {
        Ok(Backend::list(self, options, call)?.map(Into::into))
    }

    /// Removes at most `limit` locks that expired more than two seconds ago, never a fence counter, and says how many. Redis
    /// removes dead locks by itself: there it is always 0.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// assert_eq!(client.purge_expired(1_000)?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the store cannot answer now: ask again later.
    /// [`AuthFailed`](crate::ErrorCode::AuthFailed) or [`Internal`](crate::ErrorCode::Internal) if a person has to repair the store
    /// or its settings first; the message says what.
    pub fn purge_expired(&self, limit: u32) -> Result<u64, LockError> {
        self.purge_expired_with(limit, &Call::new())
    }

    /// As [`purge_expired`](Self::purge_expired), within the bounds of `call`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// let call = Call::new().within(Duration::from_secs(1));
    /// assert_eq!(client.purge_expired_with(1_000, &call)?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`purge_expired`](Self::purge_expired); [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the deadline of `call`
    /// has passed: allow more time. [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled.
    pub fn purge_expired_with(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        Backend::purge_expired(self, limit, call)
    }

    /// What the store is: its name, and what it promises. No I/O.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// assert_eq!(client.capabilities().backend, "sqlite");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn capabilities(&self) -> Capabilities {
        Backend::capabilities(self)
    }

    /// The lock id that a caller named, in the process that opened the client.
    fn id(&self, lock_id: impl IntoLockId) -> Result<LockId, LockError> {
        self.core.refuse_inherited()?;
        lock_id.into_lock_id()
    }
}
