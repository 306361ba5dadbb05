//! The C tests in `tests/c`: strict C99, run plain, under valgrind, and with the address and leak sanitizers.

mod support;

use std::process::Command;
use std::time::Duration;

use support::programs::{contend, program};
use support::{run, scratch, succeed};

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
    let dir = scratch();
    succeed(
        Command::new("valgrind")
            .args([
                "--quiet",
                "--error-exitcode=99",
                "--leak-check=full",
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

fn sanitized(name: &str) {
    let dir = scratch();
    let program = program(
        name,
        "asan",
        &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    );
    succeed(
        Command::new(program)
            .arg(store(&dir))
            .env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0")
            .env("SLOW", "1"),
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
    forked: plain sanitized;
    limits: plain;
}

/// What a debug build recognises; a release build does not look.
#[test]
#[cfg(debug_assertions)]
fn misuse_is_recognised() {
    plain("misuse");
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
fn c_and_rust_contend_for_one_key() {
    contend(&store(&scratch()));
}
