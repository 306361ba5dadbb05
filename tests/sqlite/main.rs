//! Tests the SQLite store, in one process and between processes.

mod processes;
#[path = "../support/mod.rs"]
mod support;
mod verbs;
