//! Runs `examples/late_writer.rs`: a holder is really paused (SIGSTOP) past its lease and then writes.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Once;

use crate::support::postgres::Server;
use crate::support::redis::RedisServer;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// A holder in a process of its own, killed with its owner.
struct Holder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn start(arguments: &[String]) -> Self {
        let mut child = Command::new(example())
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

    fn holding(&mut self) -> u64 {
        let line = self.hear();
        let fence = line.strip_prefix("holding ");
        fence.and_then(|n| n.parse().ok()).expect("a fence")
    }

    fn write(&mut self, text: &str) {
        writeln!(self.input, "{text}").expect("it listens");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    fn pause(&self) {
        kill(self.pid(), Signal::SIGSTOP).expect("a live process");
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED));
        assert!(
            matches!(stopped, Ok(WaitStatus::Stopped(..))),
            "{stopped:?}"
        );
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The example, built as this test was. `cargo test` with the name of one program builds no examples.
fn example() -> PathBuf {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let built = Command::new(env!("CARGO"))
            .args(["build", "-q", "--all-features", "--example", "late_writer"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.expect("cargo").success());
    });
    let test = std::env::current_exe().expect("this binary");
    let folder = test.ancestors().nth(2).expect("the folder of the build");
    folder.join("examples/late_writer")
}

/// The first holder is paused past its lease, the second one writes, and the first one comes back.
fn comes_late(arguments: &[String]) {
    let mut first = Holder::start(arguments);
    let old = first.holding();
    first.pause();
    let mut second = Holder::start(arguments);
    assert!(second.holding() > old, "the lease is over");
    second.write("by the second");
    assert_eq!(second.hear(), "written");
    first.write("by the first, too late");
    kill(first.pid(), Signal::SIGCONT).expect("a live process");
    assert_eq!(first.hear(), "refused");
}

#[test]
fn a_late_writer_is_refused_in_sqlite() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name| dir.path().join(name).display().to_string();
    comes_late(&[format!("sqlite:{}", path("locks.db")), path("data.db")]);
    let db = rusqlite::Connection::open(path("data.db")).expect("the file");
    let text = db.query_row("SELECT text FROM report", [], |row| row.get::<_, String>(0));
    assert_eq!(text.expect("a row"), "by the second");
}

#[test]
fn a_late_writer_is_refused_over_compare_and_set() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name| dir.path().join(name).display().to_string();
    let locks = format!("sqlite:{}", path("locks.db"));
    comes_late(&[locks, "versions".to_owned(), path("data.db")]);
    let db = rusqlite::Connection::open(path("data.db")).expect("the file");
    let text = db.query_row("SELECT text FROM report", [], |row| row.get::<_, String>(0));
    assert_eq!(text.expect("a row"), "by the second");
}

#[test]
fn a_late_writer_with_a_script_of_its_own_is_refused_in_redis() {
    let server = RedisServer::start(&[]);
    let socket = server.socket().display().to_string();
    let words = [server.url()].into_iter();
    let words = words.chain(["script", "redis-cli", "-s", &socket].map(str::to_owned));
    comes_late(&words.collect::<Vec<_>>());
    assert_eq!(server.cli(&["GET", "report:text"]).text(), "by the second");
}

#[test]
fn a_late_writer_is_refused_in_redis() {
    let server = RedisServer::start(&[]);
    comes_late(&[server.url()]);
    assert_eq!(server.cli(&["GET", "report:text"]).text(), "by the second");
}

#[test]
fn a_late_writer_is_refused_in_postgres() {
    in_postgres(&[]);
}

#[test]
fn a_late_writer_is_refused_by_the_counter_in_postgres() {
    in_postgres(&["share"]);
}

fn in_postgres(form: &[&str]) {
    let server = Server::start(&[]);
    let socket = server.path().display().to_string();
    let port = server.port.to_string();
    let psql = [
        "psql", "-U", "postgres", "-d", "postgres", "-h", &socket, "-p", &port,
    ];
    let words = form.iter().chain(&psql).map(|word| (*word).to_owned());
    let arguments = [server.url()].into_iter().chain(words);
    comes_late(&arguments.collect::<Vec<_>>());
    assert_eq!(server.sql("SELECT text FROM report"), "by the second");
}
