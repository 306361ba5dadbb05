//! Tests that need processes of their own: holders that die, stop or fork, and what many waiters cost.

mod crowd;
mod holders;
#[path = "../support/mod.rs"]
mod support;

/// Not a test of its own: the other processes run this.
#[test]
fn stage() {
    support::process::play(&[crowd::STAGES, holders::STAGES].concat());
}
