//! Tests C programs on servers that refuse, lie, hang or have a wrong clock. The tests here make the trouble, and a C program meets it.
//! Functions are named after their rows in the list of bad inputs.

mod clocks;
mod in_postgres;
mod in_redis;
mod places;
mod strangers;
mod under_tls;

use std::process::Command;

use crate::support::programs::{program, sanitized};
use crate::support::{scratch, succeed};

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
