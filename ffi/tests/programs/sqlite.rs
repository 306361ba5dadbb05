//! Runs the C programs of `tests/c` on SQLite: strict C99, plain, under valgrind, and with the address and leak sanitizers.

use std::process::Command;
use std::time::Duration;

use crate::support::programs::{self, contend, program};
use crate::support::{run, scratch, succeed};

/// A store of its own for each run.
fn store(dir: &tempfile::TempDir) -> String {
    format!("sqlite:{}", dir.path().join("locks.db").display())
}

fn plain(name: &str) {
    let dir = scratch();
    succeed(
        Command::new(program(name, "plain", &[])).arg(store(&dir)),
        name,
    );
}

/// No invalid access, no use of what was never set, nothing lost. What lives as long as the process is not lost; valgrind calls
/// "possible" what only an inner pointer keeps, as in every hash table of Rust and every stack of a thread that still runs.
fn valgrind(name: &str) {
    under_valgrind(name, "full");
}

/// In a forked child valgrind takes what only the parent's threads hold for lost. What the parent loses is for the leak sanitizer
/// to find.
fn valgrind_without_leaks(name: &str) {
    under_valgrind(name, "no");
}

fn under_valgrind(name: &str, leaks: &str) {
    let dir = scratch();
    succeed(
        Command::new("valgrind")
            .args([
                "--quiet",
                "--error-exitcode=99",
                &format!("--leak-check={leaks}"),
                "--show-leak-kinds=definite,indirect",
                "--errors-for-leak-kinds=definite,indirect",
                "--child-silent-after-fork=no",
                "--num-callers=30",
            ])
            .arg(program(name, "plain", &[]))
            .arg(store(&dir))
            .env("SLOW", "1")
            .env("RUST_BACKTRACE", "0"),
        &format!("{name} under valgrind"),
    );
}

/// As any user runs it, with all that valgrind counts: what is "possibly lost" too.
fn strict(name: &str) {
    programs::strict_valgrind(name, &store(&scratch()));
}

fn sanitized(name: &str) {
    let dir = scratch();
    succeed(
        programs::sanitized(name).arg(store(&dir)),
        &format!("{name} with sanitizers"),
    );
}

macro_rules! programs {
    ($($name:ident: $($mode:ident)+;)+) => {
        $(mod $name {
            $(#[test]
            fn $mode() {
                super::$mode(stringify!($name));
            })+
        })+
    };
}

programs! {
    basics: plain valgrind sanitized;
    arguments: plain valgrind sanitized;
    callbacks: plain valgrind sanitized;
    threads: plain valgrind sanitized;
    places: plain valgrind sanitized;
    losses: plain valgrind sanitized;
    telemetry: plain valgrind sanitized;
    forked: plain valgrind_without_leaks sanitized;
    limits: plain valgrind sanitized;
    cycles: valgrind sanitized;
    ends: plain strict sanitized;
    details: plain valgrind sanitized;
    lists: plain valgrind sanitized;
    gates: plain valgrind sanitized;
}

// What a debug build recognises; a release build does not look.
#[cfg(debug_assertions)]
programs! {
    misuse: plain valgrind sanitized;
}

/// As many as fit half a minute; `SYNCGUARD_CYCLES` asks for another number.
#[test]
fn cycles_leave_nothing_behind() {
    let dir = scratch();
    let cycles = std::env::var("SYNCGUARD_CYCLES").unwrap_or_else(|_| "20000".to_owned());
    let output = run(
        Command::new(program("cycles", "plain", &[]))
            .arg(store(&dir))
            .arg(&cycles),
        Duration::from_secs(3600),
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    eprintln!("{text}");
}

#[test]
fn c_and_rust_contend_on_sqlite() {
    let dir = scratch();
    contend(&store(&dir));
}
