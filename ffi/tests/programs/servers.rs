//! Runs each C program on a private Redis and a private Postgres.

use std::process::Command;
use std::time::Duration;

use crate::support::common::postgres::Server;
use crate::support::common::redis::RedisServer;
use crate::support::programs::{contend, program, strict_valgrind};
use crate::support::{run, succeed};

const PROGRAMS: [&str; 9] = [
    "basics",
    "arguments",
    "callbacks",
    "threads",
    "losses",
    "forked",
    "details",
    "gates",
    "lists",
];

fn passes(name: &str, url: &str) {
    succeed(Command::new(program(name, "plain", &[])).arg(url), name);
}

#[test]
fn on_redis() {
    let server = RedisServer::start(&[]);
    for name in PROGRAMS {
        passes(name, &server.url());
    }
}

#[test]
fn on_postgres() {
    let server = Server::shared();
    for name in PROGRAMS {
        passes(name, &server.url());
    }
}

/// The program stops the server and lets it go on; if it dies between the two, the server is killed all the same.
#[test]
fn on_redis_a_failed_call_says_whether_it_may_have_been_applied() {
    let server = RedisServer::start(&[]);
    succeed(
        Command::new(program("details", "plain", &[]))
            .args([&server.url(), "applied_perhaps"])
            .env("SERVER_PID", server.pid().as_raw().to_string()),
        "details",
    );
}

#[test]
fn on_redis_the_last_free_leaves_no_thread_behind() {
    let server = RedisServer::start_tcp(&[]);
    // A name, so that it is resolved.
    strict_valgrind("ends", &server.tcp_url().replace("127.0.0.1", "localhost"));
}

#[test]
fn on_postgres_the_last_free_leaves_no_thread_behind() {
    let server = Server::shared();
    strict_valgrind("ends", &server.url().replace("127.0.0.1", "localhost"));
}

#[test]
fn c_and_rust_contend_on_redis() {
    contend(&RedisServer::start(&[]).url());
}

#[test]
fn c_and_rust_contend_on_postgres() {
    contend(&Server::shared().url());
}

/// `SYNCGUARD_CYCLES` asks for another number: `make cycles` for a million.
#[test]
fn cycles_on_redis_leave_nothing_behind() {
    let server = RedisServer::start(&[]);
    let cycles = std::env::var("SYNCGUARD_CYCLES").unwrap_or_else(|_| "100000".to_owned());
    let output = run(
        Command::new(program("cycles", "plain", &[]))
            .arg(server.url())
            .arg(&cycles),
        Duration::from_secs(7200),
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    eprintln!("{text}");
}

#[test]
fn a_host_with_the_default_sigpipe_outlives_its_server() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let mut server = RedisServer::start(&[]);
    let mut host = Command::new(program("sigpipe", "plain", &[]))
        .arg(server.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the C program");
    let mut says = BufReader::new(host.stdout.take().expect("its output")).lines();
    assert_eq!(says.next().and_then(Result::ok).as_deref(), Some("holding"));
    server.kill();
    writeln!(host.stdin.take().expect("its input")).expect("a line");
    assert_eq!(says.next().and_then(Result::ok).as_deref(), Some("alive"));
    assert!(host.wait().expect("its end").success());
}
