//! Tests `run` as a job of an interactive shell: Ctrl-Z, `bg`, `fg`, Ctrl-C, and the terminal that goes from one to the other.

use std::path::Path;

use syncguard::{Client, LockOptions};

use crate::support::common::redis::RedisServer;
use crate::support::{
    end, eventually, foreground, is_alive, is_stopped, parent_of, pids_of, text_of,
};
use crate::terminal::Terminal;

/// An interactive shell in a directory of its own.
struct Shell {
    server: RedisServer,
    dir: tempfile::TempDir,
    terminal: Terminal,
    pid: i32,
}

impl Shell {
    fn start() -> Self {
        let server = RedisServer::start(&[]);
        let dir = tempfile::tempdir().expect("a directory");
        let mut terminal = Terminal::start_program(
            &server.url(),
            "bash",
            &["--norc", "--noprofile", "-i"],
            None,
        );
        let pid = dir.path().join("shell");
        terminal.types(&format!(
            "cd {}; unset HISTFILE; echo $$ > shell\n",
            dir.path().display()
        ));
        let pid = text_of(&pid).parse().expect("a pid");
        Self {
            server,
            dir,
            terminal,
            pid,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a script of the shell, to type only its name.
    fn script(&self, text: &str) {
        std::fs::write(self.path("work"), text).expect("a script");
    }

    fn has_terminal(&self, group: i32) -> bool {
        foreground(self.pid) == Some(group)
    }

    /// That the shell reads what is typed, and nothing else does.
    #[track_caller]
    fn answers(&mut self, word: &str) {
        self.terminal.types(&format!("echo {word} > {word}\n"));
        assert_eq!(text_of(&self.path(word)), word);
    }

    fn ends(mut self) {
        self.terminal.types("exit\n");
        assert_eq!(end(self.terminal.child).0, Some(0));
    }
}

fn worker(path: &Path) -> i32 {
    pids_of(path, 1)[0]
}

#[test]
fn a_key_stops_both_and_bg_and_fg_continue_them() {
    let mut shell = Shell::start();
    shell.script("echo $$ > pid; exec sleep 600");
    shell
        .terminal
        .types("syncguard run --ttl 10m k -- bash work; echo code-$? > code\n");
    let pid = worker(&shell.path("pid"));
    eventually("the command has the terminal", || shell.has_terminal(pid));
    shell.terminal.types("\x1a");
    eventually("the command stopped", || is_stopped(pid));
    eventually("the shell has the terminal", || {
        shell.has_terminal(shell.pid)
    });
    shell.answers("one");
    shell.terminal.types("bg\n");
    eventually("the command goes on", || !is_stopped(pid));
    // In the background: the terminal stays the shell's.
    shell.answers("two");
    assert!(shell.has_terminal(shell.pid) && is_alive(pid));
    shell.terminal.types("fg\n");
    eventually("the job has the terminal", || {
        !shell.has_terminal(shell.pid)
    });
    shell.terminal.types("\x03");
    eventually("its end", || !is_alive(pid));
    shell.answers("three");
    shell.ends();
}

#[test]
fn a_job_of_the_background_gets_the_terminal_with_fg() {
    let mut shell = Shell::start();
    shell.script(
        "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; read line; echo \"$line\" > read",
    );
    shell
        .terminal
        .types("syncguard run --ttl 10m k -- bash work &\n");
    let pid = worker(&shell.path("pid"));
    shell.answers("one");
    assert!(shell.has_terminal(shell.pid) && !is_stopped(pid));
    // It reads in the background, which stops it and the job.
    std::fs::write(shell.path("go"), "").expect("a file");
    eventually("the command stopped", || is_stopped(pid));
    // A shell that does not know yet that a job stops puts it into the foreground without continuing it.
    eventually("the job stopped", || is_stopped(parent_of(pid)));
    shell.answers("two");
    shell.terminal.types("fg\n");
    eventually("the command has the terminal", || shell.has_terminal(pid));
    shell.terminal.types("words for the command\n");
    assert_eq!(text_of(&shell.path("read")), "words for the command");
    shell.answers("three");
    shell.ends();
}

#[test]
fn a_job_that_still_runs_gets_the_terminal_when_it_reads() {
    let mut shell = Shell::start();
    shell.script(
        "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; read line; echo \"$line\" > read",
    );
    shell
        .terminal
        .types("syncguard run --ttl 10m k -- bash work &\n");
    let pid = worker(&shell.path("pid"));
    shell.terminal.types("fg\n");
    eventually("the job has the terminal", || {
        !shell.has_terminal(shell.pid)
    });
    std::fs::write(shell.path("go"), "").expect("a file");
    eventually("the command has the terminal", || shell.has_terminal(pid));
    shell.terminal.types("words\n");
    assert_eq!(text_of(&shell.path("read")), "words");
    shell.answers("one");
    shell.ends();
}

#[test]
fn a_program_behind_a_pipe_keeps_the_terminal() {
    let mut shell = Shell::start();
    shell.script("read line < /dev/tty; echo \"$line\" > read");
    // The command runs on until the pager has read.
    let command = "echo shown; while [ ! -e read ]; do sleep 0.02; done";
    shell.terminal.types(&format!(
        "syncguard run k -- bash -c '{command}' | (read line; echo $line > piped; bash work)\n"
    ));
    assert_eq!(text_of(&shell.path("piped")), "shown");
    shell.terminal.types("for the pager\n");
    assert_eq!(text_of(&shell.path("read")), "for the pager");
    shell.answers("one");
    shell.ends();
}

#[test]
fn a_key_stops_a_wait() {
    let mut shell = Shell::start();
    let client = Client::open(&shell.server.url()).expect("a client");
    let options = LockOptions::new().holder("build-7");
    let guard = client.lock_with("k", &options).expect("a lock");
    shell
        .terminal
        .types("syncguard run -w 10m k -- bash -c 'echo ran > ran'\n");
    shell.terminal.shows("waiting for k: held by build-7");
    shell.terminal.types("\x1a");
    shell.answers("one");
    assert!(!shell.path("ran").exists());
    shell.terminal.types("fg\n");
    guard.release().expect("an answer").expect_released();
    assert_eq!(text_of(&shell.path("ran")), "ran");
    shell.ends();
}

#[test]
fn a_key_ends_a_leader_election() {
    let mut shell = Shell::start();
    shell.script("echo $$ >> pid; exec sleep 600");
    shell
        .terminal
        .types("syncguard run --forever k -- bash work; echo $? > code\n");
    let pid = worker(&shell.path("pid"));
    eventually("the command has the terminal", || shell.has_terminal(pid));
    shell.terminal.types("\x03");
    eventually("its end", || !is_alive(pid));
    shell.answers("one");
    let runs = std::fs::read_to_string(shell.path("pid")).expect("pids");
    assert_eq!(runs.lines().count(), 1, "it ran again");
    shell.ends();
}

#[test]
fn without_a_shell_a_key_does_not_stop_the_command() {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    let pid = dir.path().join("pid");
    let script = format!("echo $$ > {}; read line; echo got $line", pid.display());
    let mut terminal = Terminal::start(&server.url(), &["run", "k", "--", "bash", "-c", &script]);
    worker(&pid);
    terminal.types("\x1a");
    terminal.types("words\n");
    terminal.shows("got words");
    assert_eq!(end(terminal.child).0, Some(0));
}
