//! Telemetry.

use std::sync::Arc;
use std::time::Duration;

/// Called for every operation.
pub(crate) type OnEvent = Arc<dyn Fn(&LockEvent) + Send + Sync>;

/// Which operation a [`LockEvent`] is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// One operation and how it went.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockEvent {
    /// Which operation.
    pub kind: LockEventType,
    /// Whether it did what was asked.
    pub ok: bool,
    /// Why not, where the store answered: `locked`, `expired` or `not-found`.
    pub reason: Option<&'static str>,
    /// The hash of the key, where the operation had one.
    pub key_hash: Option<String>,
    /// The hash of the lock id, where the operation had one.
    pub lock_id_hash: Option<String>,
    /// The raw key, if [`IncludeRaw`] says so.
    pub key: Option<String>,
    /// The raw lock id, if [`IncludeRaw`] says so.
    pub lock_id: Option<String>,
    /// How long it took.
    pub duration: Duration,
}

/// Whether events carry raw keys and lock ids.
#[derive(Clone, Default)]
pub enum IncludeRaw {
    /// Never. The default.
    #[default]
    Never,
    /// Always.
    Always,
    /// When the predicate, given the event without them, says so.
    When(Arc<dyn Fn(&LockEvent) -> bool + Send + Sync>),
}

/// Stub.
pub struct Telemetry;
