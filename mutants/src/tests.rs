//! Builds and runs tests in the copy, within a limit.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::copy::{target, tree};

/// What a run of tests came to.
#[derive(Debug)]
pub enum Outcome {
    Passed,
    /// With the names of the tests that failed.
    Failed(String),
    /// No test has one of the names.
    NoneRun,
    NotCompiled(String),
    LimitReached,
}

/// A build takes long on a busy machine, and is no part of what is judged.
const BUILD: Duration = Duration::from_secs(1800);

/// The test programs of `ffi/tests`.
const OF_FFI: [&str; 4] = ["programs", "shipped", "go", "overshoot"];

/// The test programs of `cli/tests`.
const OF_CLI: [&str; 1] = ["command"];

/// The crates in `adapters`, without what all their names begin with.
const OF_ADAPTERS: [&str; 2] = ["redis-pool", "postgres-pool"];

/// Runs the tests of `program` that `names` begins.
pub fn run(program: &str, names: &str, limit: u64) -> Outcome {
    let mut build = cargo(program);
    build.arg("--no-run");
    if !ended(&mut build, BUILD).is_some_and(|status| status.success()) {
        return Outcome::NotCompiled(last_lines());
    }
    // The tests of ffi use the library as a program has it, which is a build of its own.
    if OF_FFI.contains(&program) {
        let mut library = base();
        library.args(["build", "-p", "syncguard-ffi", "--lib"]);
        if !ended(&mut library, BUILD).is_some_and(|status| status.success()) {
            return Outcome::NotCompiled(last_lines());
        }
    }
    let mut tests = cargo(program);
    if program == "go" {
        tests
            .env("GO_RUN", names)
            .args(["--", "race", "--nocapture"]);
    } else {
        tests.arg("--").args(names.split(' '));
    }
    let Some(status) = ended(&mut tests, Duration::from_secs(limit)) else {
        return Outcome::LimitReached;
    };
    judge(status)
}

fn judge(status: ExitStatus) -> Outcome {
    let told = fs::read_to_string(log()).unwrap_or_default();
    let is_not_compiled = told.contains("[build failed]")
        || told
            .lines()
            .any(|line| line.contains("syncguard.hpp:") && line.contains(" error: "));
    let has_run = told.lines().any(|line| {
        line.strip_prefix("running ")
            .is_some_and(|rest| !rest.starts_with("0 tests"))
    });
    if is_not_compiled {
        Outcome::NotCompiled(last_lines())
    } else if !status.success() {
        Outcome::Failed(failed(&told))
    } else if !has_run || told.contains("[no tests to run]") {
        Outcome::NoneRun
    } else {
        Outcome::Passed
    }
}

/// The names of the tests that failed, as Rust's and Go's test programs print them.
fn failed(told: &str) -> String {
    let rust = told.lines().filter_map(|line| {
        line.strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
    });
    let go = told.lines().filter_map(|line| {
        let name = line.trim_start().strip_prefix("--- FAIL: ")?;
        name.split(' ').next()
    });
    let mut names: Vec<&str> = go.chain(rust).collect();
    names.dedup();
    match names.len() {
        0 => format!("the program as a whole: {}", last_lines()),
        1..=3 => names.join(", "),
        n => format!("{} and {} others", names[..3].join(", "), n - 3),
    }
}

fn base() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(tree()).env("CARGO_TARGET_DIR", target());
    // Set by the cargo that runs this program. A build script that sees another value builds again.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_") && name != "CARGO_HOME" {
            cargo.env_remove(name);
        }
    }
    cargo.env("CARGO_TARGET_DIR", target());
    cargo
}

fn cargo(program: &str) -> Command {
    let mut cargo = base();
    cargo.args(["test", "--all-features"]);
    match program {
        "lib" => cargo.arg("--lib"),
        "ffi-lib" => cargo.args(["-p", "syncguard-ffi", "--lib"]),
        name if OF_FFI.contains(&name) => cargo.args(["-p", "syncguard-ffi", "--test", name]),
        name if OF_ADAPTERS.contains(&name) => cargo.args([
            "-p",
            &format!("syncguard-{name}"),
            "--lib",
            "--test",
            "pool",
        ]),
        name if OF_CLI.contains(&name) => cargo.args(["-p", "syncguard-cli", "--test", name]),
        name => cargo.args(["--test", name]),
    };
    cargo
}

fn log() -> PathBuf {
    target().with_file_name("log")
}

fn last_lines() -> String {
    let told = fs::read_to_string(log()).unwrap_or_default();
    let lines: Vec<&str> = told.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// Runs it with its output in the log; `None` if it has not ended in time.
fn ended(command: &mut Command, limit: Duration) -> Option<ExitStatus> {
    let out = File::create(log()).expect("a file for the output");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out.try_clone().expect("a descriptor"))
        .stderr(out)
        // Of its own, so that what the tests started ends with them.
        .process_group(0)
        .spawn()
        .expect("cargo");
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("its status") {
            return Some(status);
        }
        if Instant::now() > end {
            kill(&mut child);
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn kill(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    let _ = child.wait();
}
