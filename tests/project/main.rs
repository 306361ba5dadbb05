//! Tests the project itself: its documents, its package, its scripts and its test programs.

mod architecture;
mod compat;
mod documents;
mod layout;
mod limit;
mod mutants;
mod package;
mod scripts;
mod security;
#[path = "../support/mod.rs"]
mod support;
mod wire_format;
