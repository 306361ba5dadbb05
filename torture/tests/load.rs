//! Runs the load for a few seconds: no lock is lost while its server is killed, and a lock that is lost is noticed.

#[path = "../../tests/support/common/limit.rs"]
mod limit;

use std::process::{Command, Output};

/// Runs the program; `timeout` ends it if it hangs.
fn load(arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", "300", env!("CARGO_BIN_EXE_load"), "run"])
        .args(arguments);
    command.output().expect("the load runs")
}

fn assert_nothing_is_lost(store: &str) {
    let output = load(&["--store", store, "--count", "200", "--seconds", "15"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{complaint}");
    assert!(text.contains("200 locks that renew"), "{text}");
}

#[test]
fn nothing_is_lost_on_redis() {
    assert_nothing_is_lost("redis");
}

#[test]
fn nothing_is_lost_on_postgres() {
    assert_nothing_is_lost("postgres");
}

#[test]
fn nothing_is_lost_on_sqlite() {
    assert_nothing_is_lost("sqlite");
}

/// The lease is shorter than the time in which the server is away.
#[test]
fn a_lock_that_is_lost_is_noticed() {
    let output = load(&["--store", "redis", "--count", "20", "--seconds", "1"]);
    assert!(!output.status.success());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        complaint.contains("lost locks or failed calls"),
        "{complaint}"
    );
}
