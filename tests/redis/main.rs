//! Tests the Redis store on real servers, alone, under Sentinel and in a cluster.

mod connections;
mod faults;
mod interop;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod topologies;
mod trips;
mod verbs;
mod way_of_a_lock;

/// Not a test of its own: the other processes run this.
#[test]
fn stage() {
    support::process::play(
        &[
            faults::STAGES,
            trips::STAGES,
            verbs::STAGES,
            way_of_a_lock::STAGES,
        ]
        .concat(),
    );
}
