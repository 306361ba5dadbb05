//! Runs the examples' worker, in any language.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rust_syncguard::{Backend, Call, Client};

/// While one works a second does not start; when its lock is taken away it stops.
pub fn stops_when_robbed(program: &Path, url: &str) {
    let (mut long, lines) = start(program, url);
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).last());
    let second = Command::new(program)
        .args([url, "2"])
        .output()
        .expect("a second worker");
    assert_eq!(second.status.code(), Some(2), "{second:?}");

    let client = Client::open(url).expect("a client");
    let found = client.get_by_key_raw("nightly-report").expect("a look");
    let lock_id = found.expect("the worker's lock").lock_id;
    let _ = Backend::release(&client, &lock_id, &Call::new()).expect("a release");
    let status = ended(&mut long);
    assert_eq!(
        status.code(),
        Some(3),
        "{}: {:?}",
        program.display(),
        rest.join()
    );
}

/// It gives its lock back when it is told to stop. On a machine that stands still for seconds it may lose the lock first: best of
/// three.
pub fn stops_when_told(program: &Path, url: &str) {
    let client = Client::open(url).expect("a client");
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (mut long, lines) = start(program, url);
        let rest = std::thread::spawn(move || lines.map_while(Result::ok).last());
        let pid = i32::try_from(long.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("a signal");
        let status = ended(&mut long);
        let left = client.get_by_key("nightly-report").expect("a look");
        if status.success() && left.is_none() {
            return;
        }
        seen.push((status, left, rest.join()));
    }
    panic!("{}: {seen:?}", program.display());
}

/// A worker that has its lock and goes on for long, and the lines that it says further.
fn start(program: &Path, url: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut long = Command::new(program)
        .args([url, "100000"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a worker");
    let mut lines = BufReader::new(long.stdout.take().expect("its output")).lines();
    let first = lines.next().expect("a line").expect("a text");
    assert!(first.starts_with("working with fence"), "{first}");
    (long, lines)
}

fn ended(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if Instant::now() >= end {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
