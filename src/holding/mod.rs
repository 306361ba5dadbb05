//! Keeping a lock: the guard, its heartbeat, and every state between a grant and its end. Uses the folders before it, not `client`.

pub(crate) mod guard;
mod heartbeat;
mod held;
mod lifecycle;
#[cfg(all(test, loom))]
mod lifecycle_model;
