//! Tests what no store decides: taking, waiting for, holding and losing a lock, and what the caller is told.

mod connections;
mod guard;
mod hooks;
mod manual_clock;
mod messages;
mod own_store;
mod parsers;
mod secrets;
#[path = "../support/mod.rs"]
mod support;
mod taking;
mod telemetry;
mod tls_roots;
mod values_as_json;
mod waiting;
mod weak_store;

/// Not a test of its own: the other processes run this.
#[test]
fn stage() {
    support::process::play(&[connections::STAGES, hooks::STAGES, tls_roots::STAGES].concat());
}
