//! Tests the project itself: its documents, its package, its scripts and its test programs.

mod architecture;
mod compat;
mod documents;
mod layout;
mod limit;
mod package;
mod scripts;
#[path = "../support/mod.rs"]
mod support;
