//! What the tests of the command share: the program itself, started and waited for.
// Every test uses a part.
#![allow(dead_code)]

#[path = "../../../tests/support/common/mod.rs"]
pub mod common;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a test waits for what must happen: far longer than it takes, for machines that are busy.
pub const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The command on a store, with nothing of the tester's in its way.
pub fn syncguard(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncguard"));
    command
        .args(args)
        .env("SYNCGUARD_URL", url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The same in a session of its own, without a terminal, whatever the tester has.
pub fn without_terminal(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new("setsid");
    command
        .arg(env!("CARGO_BIN_EXE_syncguard"))
        .args(args)
        .env("SYNCGUARD_URL", url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end.
pub fn output(url: &str, args: &[&str]) -> Output {
    syncguard(url, args).output().expect("the command runs")
}

#[track_caller]
pub fn code(output: &Output) -> i32 {
    let err = String::from_utf8_lossy(&output.stderr);
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("a signal: {err}"))
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// Waits until `what` holds.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT_LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "it did not happen in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The text of a file once it has one.
#[track_caller]
pub fn text_of(path: &Path) -> String {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    eventually("a file with a line", || read().ends_with('\n'));
    read().trim().to_owned()
}

/// The fields of a process behind its name, as the kernel counts them.
pub fn fields(pid: i32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(") ").map(|(_, rest)| rest);
    let fields = rest.unwrap_or_default().split_whitespace();
    fields.map(str::to_owned).collect()
}

/// Whether the process is stopped.
pub fn is_stopped(pid: i32) -> bool {
    fields(pid).first().is_some_and(|state| state == "T")
}

/// The process that started it.
pub fn parent_of(pid: i32) -> i32 {
    fields(pid)[1].parse().expect("a pid")
}

/// The process group that has the terminal of the process.
pub fn foreground(pid: i32) -> Option<i32> {
    fields(pid).get(5).and_then(|group| group.parse().ok())
}

pub fn is_alive(pid: i32) -> bool {
    // A zombie has ended.
    fields(pid).first().is_some_and(|state| state != "Z")
}

/// The first `count` numbers of a file, a line each.
#[track_caller]
pub fn pids_of(path: &Path, count: usize) -> Vec<i32> {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    eventually("the pids", || read().matches('\n').count() >= count);
    let parse = |line: &str| line.parse().expect("a pid");
    read().lines().take(count).map(parse).collect()
}

pub fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a pid"))
}

pub fn signal(child: &Child, signal: Signal) {
    kill(pid(child), signal).expect("a process");
}

/// How it ended, and what it said. It must end by itself.
#[track_caller]
pub fn end(mut child: Child) -> (Option<i32>, String) {
    eventually("the end of the command", || {
        child.try_wait().expect("a child").is_some()
    });
    let mut said = String::new();
    if let Some(mut pipe) = child.stderr.take() {
        let _ = pipe.read_to_string(&mut said);
    }
    (child.wait().expect("a child").code(), said)
}
