//! Tests the Postgres store on real servers, behind poolers, and on servers that lie.

mod answers;
mod auth;
mod connections;
mod durability;
mod faults;
mod foreign;
mod interop;
mod pooler;
mod races;
mod roles;
mod setup;
mod startup;
#[path = "../support/mod.rs"]
mod support;
mod verbs;

/// Not a test of its own: the other processes run this.
#[test]
fn stage() {
    support::process::play(
        &[
            answers::STAGES,
            connections::STAGES,
            faults::STAGES,
            setup::STAGES,
        ]
        .concat(),
    );
}
