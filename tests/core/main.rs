//! Tests what no store decides: taking, waiting for, holding and losing a lock, and what the caller is told.

mod guard;
mod hooks;
mod messages;
mod own_store;
mod parsers;
#[path = "../support/mod.rs"]
mod support;
mod taking;
mod tls_roots;
mod waiting;

/// Not a test of its own: the other processes run this.
#[test]
fn stage() {
    support::process::play(&[hooks::STAGES, tls_roots::STAGES].concat());
}
