//! Runs the examples' late writer, in any language: a holder is really paused (SIGSTOP) past its lease and then writes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::common::postgres::Server;
use super::common::redis::RedisServer;

/// A holder in a process of its own, killed with its owner.
struct Holder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
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

/// Locks and data are in Redis.
pub fn is_refused(program: &Path) {
    let server = RedisServer::start(&[]);
    let _ = comes_late(program, &[&server.url()]);
    assert_eq!(server.cli(&["GET", "report:text"]).text(), "by the second");
}

/// Locks and data are in Postgres, the data behind `syncguard_pass`.
pub fn is_refused_in_postgres(program: &Path) {
    let server = Server::start(&[]);
    let newest = comes_late(program, &[&server.url()]);
    assert_eq!(server.sql("SELECT text FROM report"), "by the second");
    let gate =
        "SELECT lpad(fence::text, 15, '0') FROM syncguard_fence_gates WHERE resource = 'report'";
    assert_eq!(server.sql(gate), newest);
}

/// Locks and data are in two files of SQLite in `dir`.
pub fn is_refused_in_sqlite(program: &Path, dir: &Path) {
    let (locks, data) = (dir.join("locks.db"), dir.join("data.db"));
    let url = format!("sqlite:{}", locks.display());
    let newest = comes_late(program, &[&url, &data.display().to_string()]);
    let data = rusqlite::Connection::open(data).expect("the file");
    let ask = |sql: &str| data.query_row(sql, [], |row| row.get::<_, String>(0));
    assert_eq!(
        ask("SELECT text FROM report").as_deref(),
        Ok("by the second")
    );
    let gate = "SELECT printf('%015d', fence) FROM syncguard_fence_gates WHERE resource = 'report'";
    assert_eq!(ask(gate), Ok(newest));
}

/// The first holder is paused past its lease, the second one writes, and the first one comes back: it is refused. The fence of the
/// second one.
fn comes_late(program: &Path, arguments: &[&str]) -> String {
    let mut first = Holder::start(program, arguments);
    let old = first.hear();
    assert!(old.starts_with("holding 0"), "{old}");
    first.signal(Signal::SIGSTOP);
    let pid = Pid::from_raw(first.child.id() as i32);
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED));
    assert!(
        matches!(stopped, Ok(WaitStatus::Stopped(..))),
        "{stopped:?}"
    );
    let mut second = Holder::start(program, arguments);
    let new = second.hear();
    assert!(new > old, "the lease is over");
    second.write("by the second");
    assert_eq!(second.hear(), "written");
    first.write("by the first, too late");
    first.signal(Signal::SIGCONT);
    assert_eq!(first.hear(), "refused");
    new.trim_start_matches("holding ").to_owned()
}
