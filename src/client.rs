//! x
use crate::*;
/// Client.
pub struct Client {
    backend: std::sync::Arc<dyn Backend>,
}
impl Client {
    /// lookup
    pub fn lookup(
        &self,
        by: LookupBy<'_>,
        c: Option<&CancelToken>,
    ) -> Result<Option<LockInfo>, LockError> {
        self.backend.lookup(by, c)
    }
    /// find
    pub fn find(
        &self,
        by: LookupBy<'_>,
        c: Option<&CancelToken>,
    ) -> Result<Option<StoredLock>, LockError> {
        self.backend.find(by, c)
    }
}
