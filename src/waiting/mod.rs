//! Getting a lock: the line of waiters, the policy, the attempts, and the undoing of what an attempt may have left. Uses the folders
//! before it, not `holding` and not `client`.

pub(crate) mod attempt;
pub(crate) mod blocking;
pub(crate) mod core;
pub(crate) mod line;
pub(crate) mod policy;
pub(crate) mod undo;
