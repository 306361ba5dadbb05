//! Values: keys, ids, fences, times and errors. No I/O, no clock, no thread; uses no other folder.

pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod failed_release;
pub(crate) mod fence;
pub(crate) mod holder;
pub(crate) mod holder_text;
pub(crate) mod key;
pub(crate) mod liveness;
pub(crate) mod lock_id;
pub(crate) mod lost_lock;
pub(crate) mod random;
mod sealed;
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) mod secret;
#[cfg(feature = "serde")]
mod serde;
pub(crate) mod stored_lock;
pub(crate) mod ttl;
