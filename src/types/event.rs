//! [`LockEvent`]: what telemetry tells of one operation.

use std::fmt;
use std::time::Duration;

/// Which operation a [`LockEvent`] is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockEventType {
    /// [`Backend::acquire`](crate::Backend::acquire).
    Acquire,
    /// [`Backend::release`](crate::Backend::release).
    Release,
    /// [`Backend::extend`](crate::Backend::extend).
    Extend,
    /// [`Backend::is_locked`](crate::Backend::is_locked).
    IsLocked,
    /// [`Backend::lookup`](crate::Backend::lookup) and [`Backend::find`](crate::Backend::find).
    Lookup,
}

/// One operation and how it went. `Debug` leaves the raw fields out.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockEvent {
    /// Which operation.
    pub kind: LockEventType,
    /// Whether it did what was asked. A lookup that found nothing did not, without a [`reason`](Self::reason); an `is_locked`
    /// that was answered always did.
    pub ok: bool,
    /// Why not, where the store answered: `locked`, `expired` or `not-found`.
    pub reason: Option<&'static str>,
    /// The hash of the key, where the operation had one.
    pub key_hash: Option<String>,
    /// The hash of the lock id, where the operation had one.
    pub lock_id_hash: Option<String>,
    /// The raw key, if [`IncludeRaw`](crate::IncludeRaw) says so.
    pub key: Option<String>,
    /// The raw lock id, if [`IncludeRaw`](crate::IncludeRaw) says so.
    pub lock_id: Option<String>,
    /// How long it took.
    pub duration: Duration,
}

impl fmt::Debug for LockEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockEvent")
            .field("kind", &self.kind)
            .field("ok", &self.ok)
            .field("reason", &self.reason)
            .field("key_hash", &self.key_hash)
            .field("lock_id_hash", &self.lock_id_hash)
            .field("duration", &self.duration)
            .finish_non_exhaustive()
    }
}
