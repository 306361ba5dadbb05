//! Values: keys, ids, fences, times and errors. No I/O, no clock, no thread; uses no other folder.

pub(crate) mod error;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod liveness;
