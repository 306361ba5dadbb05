//! Tests that a check has told all of its warnings when it returns: a program that ends next loses none and breaks no line.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::support::common::redis::RedisServer;
use crate::support::programs::{program, sanitized};
use crate::support::{scratch, succeed};

/// A server that may forget locks and fences, and what a program without a hook says of it.
fn unsafe_server() -> (RedisServer, String) {
    let server = RedisServer::start(&[
        "--appendonly",
        "no",
        "--maxmemory",
        "100mb",
        "--maxmemory-policy",
        "allkeys-lru",
    ]);
    let quiet = syncguard::ClientOptions::new().on_warning(|_| ());
    let client = syncguard::Client::open_with(&server.url(), &quiet).expect("a client");
    let checked = client.check().expect("an answer");
    assert!(checked.warnings.len() >= 2, "{:?}", checked.warnings);
    let lines = checked.warnings.iter();
    let lines = lines.map(|text| format!("syncguard: warning: {text}\n"));
    (server, lines.collect())
}

#[test]
fn a_program_that_checks_and_ends_has_told_all_warnings() {
    let (server, wanted) = unsafe_server();
    let program = program("warnings", "plain", &[]);
    for run in 1..=60 {
        let output = succeed(Command::new(&program).arg(server.url()), "the program");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, wanted, "through a pipe, run {run}");
    }
}

#[test]
fn warnings_to_a_file_are_complete_too() {
    let (server, wanted) = unsafe_server();
    let dir = scratch();
    for run in 1..=10 {
        let path = dir.path().join(run.to_string());
        let mut program = Command::new(program("warnings", "plain", &[]));
        program
            .arg(server.url())
            .stdin(Stdio::null())
            .stderr(File::create(&path).expect("a file"));
        assert!(program.status().expect("the program").success());
        let said = std::fs::read_to_string(&path).expect("a text");
        assert_eq!(said, wanted, "run {run}");
    }
}

#[test]
fn a_hook_has_returned_when_the_check_does() {
    let (server, _) = unsafe_server();
    succeed(sanitized("warnings").args([&server.url(), "hook"]), "hook");
}

#[test]
fn a_hook_that_hangs_delays_a_check_by_the_operation_timeout() {
    let (server, _) = unsafe_server();
    succeed(sanitized("warnings").args([&server.url(), "hang"]), "hang");
}
