//! Keeping a lock: the guard, its heartbeat, and every state between a grant and its end.

pub(crate) mod guard;
pub(crate) mod heartbeat;
pub(crate) mod lifecycle;
#[cfg(all(test, loom))]
mod lifecycle_model;
