//! [`FailedRelease`]: what the hook for failed releases is told. It uses `error`, `key` and `lock_id`.

use std::fmt;

use crate::types::error::LockError;
use crate::types::key::Key;
use crate::types::lock_id::LockId;

/// A release that failed and has no caller to answer to: in `Drop`, or in the undoing of an acquire of unknown outcome.
///
/// The key and the lock id are raw here, so that a hook can act on them: it may release the lock by its id, or tell an operator.
/// `Debug` shows their hashes, and so does every log line made from it.
///
/// ```
/// use syncguard::ClientOptions;
///
/// let options = ClientOptions::new().on_release_error(|failed| {
///     eprintln!("lock #{} was not released in {}: {}", failed.key.log_hash(), failed.origin, failed.error);
/// });
/// # drop(options);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedRelease {
    /// What went wrong.
    pub error: LockError,
    /// The key, with its raw text.
    pub key: Key,
    /// The lock id, with its raw text.
    pub lock_id: LockId,
    /// Which part of the library tried to release.
    pub origin: ReleaseOrigin,
}

/// Which part of the library tried a release that has no caller to answer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOrigin {
    /// The drop of a [`Guard`](crate::Guard), or the end of [`with_lock`](crate::Client::with_lock).
    Drop,
    /// The undoing of an acquire whose answer did not arrive.
    Undo,
}

impl ReleaseOrigin {
    /// `"drop"` or `"undo"`, as C and Go are told it.
    ///
    /// ```
    /// assert_eq!(syncguard::ReleaseOrigin::Undo.as_str(), "undo");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Undo => "undo",
        }
    }
}

impl fmt::Display for ReleaseOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
