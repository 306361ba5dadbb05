//! [`LostLock`]: what the client's hook for lost guards is told. It uses `error`, `fence`, `key` and `lock_id`.

use std::time::Duration;

use crate::types::error::LockError;
use crate::types::fence::Fence;
use crate::types::key::Key;
use crate::types::lock_id::LockId;

/// A guard that was lost, as [`ClientOptions::on_lost`](crate::ClientOptions::on_lost) is told of it.
///
/// The key and the lock id are raw here, so that a hook can act on them. `Debug` shows their hashes, and so does every log line
/// made from it.
///
/// ```
/// use syncguard::ClientOptions;
///
/// let options = ClientOptions::new().on_lost(|lost| {
///     eprintln!("lock #{} was lost after {:?}: {}", lost.key.log_hash(), lost.held, lost.error);
/// });
/// # drop(options);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct LostLock {
    /// What the guard's own callback is told: the code is [`ErrorCode::Lost`](crate::ErrorCode::Lost), and
    /// [`loss_reason`](LockError::loss_reason) says why.
    pub error: LockError,
    /// The key, with its raw text.
    pub key: Key,
    /// The lock id, with its raw text.
    pub lock_id: LockId,
    /// The fence of the grant.
    pub fence: Fence,
    /// How long the lock was held, as in [`LockEvent::held`](crate::LockEvent::held).
    pub held: Duration,
}
