//! Runs C programs on every store, also while the store is in trouble: strict C99, plain, under valgrind and with sanitizers.

// The servers' files know the crate by its own name.
extern crate rust_syncguard as syncguard;

mod connections;
mod passwords;
mod servers;
mod sqlite;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
mod warnings;
