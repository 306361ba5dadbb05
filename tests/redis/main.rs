//! Tests the Redis store on real servers, alone, under Sentinel and in a cluster.

mod faults;
mod interop;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod topologies;
mod verbs;

/// Not a test of its own: the other processes run this.
#[test]
fn stage() {
    support::process::play(&[faults::STAGES, verbs::STAGES].concat());
}
