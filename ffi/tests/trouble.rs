//! What a C program sees of servers that refuse, lie, hang or live in another year: this side makes the trouble, and a C program
//! meets it. Functions are named after their rows in the list of bad inputs.
#![cfg(all(
    feature = "redis",
    feature = "postgres",
    feature = "sqlite",
    feature = "tls"
))]

// The servers' files know the crate by its own name.
extern crate rust_syncguard as syncguard;

#[path = "trouble/clocks.rs"]
mod clocks;
#[path = "trouble/in_postgres.rs"]
mod in_postgres;
#[path = "trouble/in_redis.rs"]
mod in_redis;
#[path = "../../tests/support/limit.rs"]
mod limit;
#[path = "trouble/places.rs"]
mod places;
#[path = "../../tests/support/postgres.rs"]
mod postgres;
#[path = "../../tests/support/redis.rs"]
mod redis;
#[path = "trouble/strangers.rs"]
mod strangers;
mod support;
#[path = "trouble/under_tls.rs"]
mod under_tls;

use std::process::Command;

use support::programs::{program, sanitized};
use support::succeed;

/// Runs `tests/c/probe.c`, which explains the words, with sanitizers: an error is the path where something is forgotten.
#[track_caller]
fn probe(url: &str, words: &[&str]) {
    succeed(
        sanitized("probe").arg(url).args(words),
        &format!("the probe {words:?}"),
    );
}

/// Another C program, plain.
fn plain(name: &str) -> Command {
    Command::new(program(name, "plain", &[]))
}

const IA: &str = "invalid argument";
const REFUSED: &str = "authentication failed";
const DOWN: &str = "service unavailable";
const FULL: &str = "rate limited";
const INTERNAL: &str = "internal error";

/// `name=value`, as the probe wants it.
fn word(name: &str, value: &str) -> String {
    format!("{name}={value}")
}
