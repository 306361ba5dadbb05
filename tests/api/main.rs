//! Tests the shape of the public interface: conversions, names, waits, and what a caller is told of its options.

mod client;
mod conversions;
mod errors;
mod examples;
mod guide;
mod guidelines;
mod listing;
mod on_tokio;
#[path = "../support/mod.rs"]
mod support;
mod surface;
mod unused_options;
mod waits;
