//! x
use crate::*;
/// Sqlite.
pub struct SqliteBackend;
impl SqliteBackend {
    /// Opens.
    pub fn open(_: &str, _: &ClientOptions) -> Result<Self, LockError> {
        Err(LockError::invalid(""))
    }
}
impl Backend for SqliteBackend {
    fn acquire(
        &self,
        _: &Key,
        _: &LockId,
        _: Ttl,
        _: Option<&CancelToken>,
    ) -> Result<AcquireOutcome, LockError> {
        todo!()
    }
    fn release(&self, _: &LockId, _: Option<&CancelToken>) -> Result<ReleaseOutcome, LockError> {
        todo!()
    }
    fn extend(
        &self,
        _: &LockId,
        _: Ttl,
        _: Option<&CancelToken>,
    ) -> Result<ExtendOutcome, LockError> {
        todo!()
    }
    fn is_locked(&self, _: &Key, _: Option<&CancelToken>) -> Result<bool, LockError> {
        todo!()
    }
    fn find(
        &self,
        _: LookupBy<'_>,
        _: Option<&CancelToken>,
    ) -> Result<Option<StoredLock>, LockError> {
        todo!()
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("sqlite")
    }
}
