//! Starts processes of a test: this binary again, with the stage to play in the environment, and children forked from one.
//!
//! A program that uses this has a test `stage` in its main file that hands its stages to [`play`].

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, alarm, fork};

const STAGE: &str = "SYNCGUARD_TEST_STAGE";
const DIR: &str = "SYNCGUARD_TEST_DIR";
/// What a stage says stands behind this; the test harness writes to the same stream.
const SAYS: &str = "@> ";
/// Far longer than anything takes.
const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// How long a forked child may live.
const CHILD_SECONDS: u32 = 20;

/// The name of a stage, and what it does with the folder that it works in.
pub type Entry = (&'static str, fn(&Path));

/// Another process, ended with its owner.
pub struct Stage {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    said: Receiver<String>,
}

impl Stage {
    /// Starts the stage `name` with `dir` to work in.
    pub fn start(name: &str, dir: &Path) -> Self {
        Self::start_with(name, dir, &[])
    }

    /// The same with more in its environment.
    pub fn start_with(name: &str, dir: &Path, env: &[(&str, &Path)]) -> Self {
        let program = Command::new(std::env::current_exe().expect("this binary"));
        Self::start_by(program, name, dir, env)
    }

    /// The same in a process in which std does not report stack overflows. Where it does, every thread takes a mutex of std when
    /// it starts, and a child that inherits this mutex locked can start no thread, whatever the library does (ADR 4).
    pub fn start_without_stack_reports(name: &str, dir: &Path) -> Self {
        let mut program = Command::new("sh");
        // std leaves signals alone that have an action already, and an ignored signal stays ignored over exec.
        program
            .args(["-c", "trap '' SEGV BUS; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().expect("this binary"));
        Self::start_by(program, name, dir, &[])
    }

    /// The same as PID 1 of a pid namespace of its own, in which it may make others.
    pub fn start_as_pid_1(name: &str, dir: &Path) -> Self {
        let mut program = Command::new("unshare");
        // Without privileges a user namespace gives the right to make the other one.
        if !nix::unistd::geteuid().is_root() {
            program.args(["--user", "--map-root-user"]);
        }
        program
            .args(["--pid", "--fork", "--kill-child", "--"])
            .arg(std::env::current_exe().expect("this binary"));
        Self::start_by(program, name, dir, &[])
    }

    fn start_by(mut program: Command, name: &str, dir: &Path, env: &[(&str, &Path)]) -> Self {
        let mut child = program
            .args(["--exact", "stage", "--nocapture", "--test-threads=1"])
            .env(STAGE, name)
            .env(DIR, dir)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let (tell, said) = channel();
        // Ends with the stage: its end of the pipe is closed then.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some((_, words)) = line.split_once(SAYS) {
                    let _ = tell.send(words.to_owned());
                }
            }
        });
        Self {
            name: name.to_owned(),
            child,
            stdin,
            said,
        }
    }

    /// Waits until the stage says `word` and answers what follows it.
    #[track_caller]
    pub fn expect(&mut self, word: &str) -> String {
        match self.said.recv_timeout(WAIT_LIMIT) {
            Ok(line) => match line.strip_prefix(word) {
                Some(rest) => rest.trim().to_owned(),
                None => panic!("{} said {line:?} in place of {word:?}", self.name),
            },
            Err(RecvTimeoutError::Timeout) => panic!("{} does not say {word:?}", self.name),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("{} ended before it said {word:?}", self.name)
            }
        }
    }

    /// Tells the stage a line.
    #[track_caller]
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{line}").expect("an open pipe");
        stdin.flush().expect("an open pipe");
    }

    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("a live process");
    }

    /// Waits until the kernel reports the process as stopped.
    pub fn wait_stopped(&self) {
        let stat = format!("/proc/{}/stat", self.child.id());
        let end = Instant::now() + WAIT_LIMIT;
        // The state is the first word after the command's name in brackets.
        while !std::fs::read_to_string(&stat)
            .is_ok_and(|s| s.rsplit(')').next().is_some_and(|s| s.starts_with(" T")))
        {
            assert!(Instant::now() < end, "{} is not stopped", self.name);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the stage's end, which must be a good one.
    #[track_caller]
    pub fn finish(mut self) {
        let status = self.status();
        assert!(status.success(), "{}: {status}", self.name);
    }

    /// Waits for the stage's end, whatever it is.
    #[track_caller]
    pub fn status(&mut self) -> ExitStatus {
        drop(self.stdin.take());
        let end = Instant::now() + WAIT_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("its status") {
                return status;
            }
            assert!(Instant::now() < end, "{} hangs", self.name);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the stage `name` in a process of its own, for tests that count what a whole process has or uses.
#[track_caller]
pub fn run_alone(name: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    Stage::start(name, dir.path()).finish();
}

/// Plays the stage that the environment names; does nothing in the test itself. Does not return from a stage.
pub fn play(stages: &[Entry]) {
    let Ok(name) = std::env::var(STAGE) else {
        return;
    };
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).expect("a death signal");
    let dir = PathBuf::from(std::env::var_os(DIR).expect("a directory"));
    let (_, body) = stages
        .iter()
        .find(|(n, _)| *n == name)
        .unwrap_or_else(|| panic!("no stage {name}"));
    body(&dir);
    std::process::exit(0);
}

/// Says a line to the test, from a stage.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{SAYS}{line}").expect("an open pipe");
    out.flush().expect("an open pipe");
}

/// Waits for a line from the test, in a stage. A test that is gone ends the stage.
pub fn hear() -> String {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(n) if n > 0 => line.trim_end().to_owned(),
        _ => std::process::exit(0),
    }
}

/// Forks. The child runs `body` and exits: 0, or 101 if it panics; SIGALRM ends it if it hangs. Only in a stage: its one test
/// runs on the main thread.
pub fn in_child(body: impl FnOnce()) -> Pid {
    match unsafe { fork() }.expect("a child") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            alarm::set(CHILD_SECONDS);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            std::process::exit(if done.is_ok() { 0 } else { 101 });
        }
    }
}

/// [`in_child`] in a new pid namespace, where the child is PID 1. Its alarm does not end it there; [`wait_child`] gives up.
pub fn in_child_as_pid_1(body: impl FnOnce()) -> Pid {
    let own = std::fs::File::open("/proc/self/ns/pid").expect("the pid namespace");
    unshare(CloneFlags::CLONE_NEWPID).expect(
        "a new pid namespace: run this test as root, or allow user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces, user.max_pid_namespaces)",
    );
    let child = in_child(body);
    // Threads that this one starts must be in the namespace of its process.
    setns(own, CloneFlags::CLONE_NEWPID).expect("the own pid namespace");
    child
}

/// Waits for a forked child; `Err` says how else it ended.
pub fn wait_child(pid: Pid) -> Result<i32, String> {
    let end = Instant::now() + WAIT_LIMIT;
    loop {
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(code),
            Ok(WaitStatus::StillAlive) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(WaitStatus::Signaled(_, Signal::SIGALRM, _)) => return Err("it hung".to_owned()),
            other => return Err(format!("{other:?}")),
        }
    }
}

/// The environment of a stage whose wall clock is moved by what [`set_wall_clock`] says.
pub struct WallClock {
    shim: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    /// For stages that work in `dir`; what is loaded into them is built in `place`.
    pub fn build(dir: &Path, place: &Path) -> Self {
        let (source, shim) = (place.join("wall_clock.c"), place.join("wall_clock.so"));
        std::fs::write(&source, include_str!("wall_clock.c")).expect("the source");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&shim, &source])
            .status()
            .expect("a C compiler");
        assert!(built.success());
        let offset = offset_file(dir);
        std::fs::write(&offset, 0i64.to_ne_bytes()).expect("the offset");
        Self { shim, offset }
    }

    pub fn env(&self) -> [(&str, &Path); 2] {
        [
            ("LD_PRELOAD", &self.shim),
            ("WALL_CLOCK_OFFSET", &self.offset),
        ]
    }
}

/// Moves the boot-time clock of the stages in `dir`, by seconds from the true one.
pub fn set_boot_clock(dir: &Path, seconds: i64) {
    use std::os::unix::fs::FileExt;
    std::fs::OpenOptions::new()
        .write(true)
        .open(offset_file(dir))
        .and_then(|f| f.write_all_at(&seconds.to_ne_bytes(), size_of::<i64>() as u64))
        .expect("the offset");
}

fn offset_file(dir: &Path) -> PathBuf {
    dir.join("wall_clock.offset")
}

/// Moves the wall clock of the stages in `dir`, by seconds from the true one.
pub fn set_wall_clock(dir: &Path, seconds: i64) {
    use std::os::unix::fs::FileExt;
    // In place: the shim has the file mapped.
    std::fs::OpenOptions::new()
        .write(true)
        .open(offset_file(dir))
        .and_then(|f| f.write_all_at(&seconds.to_ne_bytes(), 0))
        .expect("the offset");
}
