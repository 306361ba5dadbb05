//! Getting a lock: the line of waiters, the policy, the attempts, and the undoing of what an attempt may have left.

pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod undo;
pub(crate) mod wait;
