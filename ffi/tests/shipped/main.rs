//! Tests what a user gets: the headers, the ABI, the installed files, the examples and the programs in the documents.

// The servers' files know the crate by its own name.
extern crate rust_syncguard as syncguard;

mod connections_page;
mod cpp;
mod examples;
mod header;
mod install;
mod readme;
mod rows;
#[path = "../support/mod.rs"]
mod support;
mod symbols;
mod telemetry_page;
