//! Runs the examples' late writer, in any language: a holder is really paused (SIGSTOP) past its lease and then writes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::common::redis::RedisServer;

/// A holder in a process of its own, killed with its owner.
struct Holder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn start(program: &Path, url: &str) -> Self {
        let mut child = Command::new(program)
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Self {
            child,
            input,
            output,
        }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn write(&mut self, text: &str) {
        writeln!(self.input, "{text}").expect("it listens");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("a live process");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first holder is paused past its lease, the second one writes, and the first one comes back: it is refused.
pub fn is_refused(program: &Path) {
    let server = RedisServer::start(&[]);
    let mut first = Holder::start(program, &server.url());
    let old = first.hear();
    assert!(old.starts_with("holding 0"), "{old}");
    first.signal(Signal::SIGSTOP);
    let pid = Pid::from_raw(first.child.id() as i32);
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED));
    assert!(
        matches!(stopped, Ok(WaitStatus::Stopped(..))),
        "{stopped:?}"
    );
    let mut second = Holder::start(program, &server.url());
    assert!(second.hear() > old, "the lease is over");
    second.write("by the second");
    assert_eq!(second.hear(), "written");
    first.write("by the first, too late");
    first.signal(Signal::SIGCONT);
    assert_eq!(first.hear(), "refused");
    assert_eq!(server.cli(&["GET", "report:text"]).text(), "by the second");
}
