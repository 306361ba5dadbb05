//! The command that `run` starts: a process group of its own, supervised by a second process, with the terminal while it runs.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, close, getpgrp, getpid, getppid};

use crate::args::ExecArgs;
use crate::exit::{Failure, NOT_EXECUTABLE, NOT_FOUND, SOFTWARE};
use crate::signals::Signals;
use crate::store::URL_VARIABLE;
use crate::supervisor::{Supervisor, own_program};
use crate::terminal::{Terminal, is_interactive};

/// How a command ended, once no process of its group is left.
#[derive(Clone, Copy)]
pub struct Ended {
    /// Its exit code, or 128 and the number of its signal.
    pub status: u8,
    /// A person at the terminal interrupted it.
    pub interrupted: bool,
}

/// A command that was started, with all processes of its group.
pub struct Child {
    group: Pid,
    /// How the command itself ended, if it has.
    ended: Option<Ended>,
    terminal: Terminal,
    stopped: bool,
    /// A SIGTSTP to this program was passed on: when the command stops, so does this program.
    asked_to_stop: bool,
    supervisor: Option<Supervisor>,
    /// Has a byte if there is no such command, or it cannot be executed.
    failure: OwnedFd,
}

impl Child {
    /// Starts `command` through this program itself, which ties it to its parent first: that has to happen between the fork and the
    /// exec. `left` is how long it may live unless [`allow`](Self::allow) says more.
    pub fn start(
        command: &[OsString],
        key: &str,
        fence: &str,
        left: Duration,
    ) -> Result<Self, Failure> {
        adopt_orphans();
        let failed = |e| Failure::new(SOFTWARE, format!("cannot start a process: {e}"));
        let terminal = Terminal::open();
        let foreground = terminal.is_ours() && is_interactive();
        let supervisor = Supervisor::start()?;
        let (failure, report) = pipe().map_err(|e| failed(e.into()))?;
        fcntl(&report, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|e| failed(e.into()))?;
        let child = own_program()?
            .arg("__exec")
            .arg(getpid().to_string())
            .arg(if foreground { "yes" } else { "no" })
            .arg(report.as_raw_fd().to_string())
            .arg("--")
            .args(command)
            .env("SYNCGUARD_KEY", key)
            .env("SYNCGUARD_FENCE", fence)
            .env_remove(URL_VARIABLE)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
        let mut child = Self {
            group: Pid::from_raw(pid),
            ended: None,
            terminal,
            stopped: false,
            asked_to_stop: false,
            supervisor: Some(supervisor),
            failure,
        };
        child.allow(left);
        Ok(child)
    }

    /// The command may live so long from now on: the second process kills it then.
    pub fn allow(&mut self, left: Duration) {
        if self.supervisor.is_none() && !left.is_zero() {
            // The second process was killed. Without another one this program still ends the command in time.
            self.supervisor = Supervisor::start().ok();
        }
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.allow(self.group, left);
        }
    }

    /// Sends a signal that is to end the group to each of its processes. One that is stopped goes on, to see it.
    pub fn signal(&self, signal: Signal) {
        // The group may be empty by now.
        let _ = killpg(self.group, signal);
        if signal != Signal::SIGKILL {
            let _ = killpg(self.group, Signal::SIGCONT);
        }
    }

    /// Takes note of what has happened to the children. The signal that stopped the command since the last call, if it is stopped.
    pub fn look(&mut self) -> Option<Signal> {
        let mut stopped = None;
        loop {
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED;
            match waitpid(None, Some(flags)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.group => {
                    let status = u8::try_from(code).unwrap_or(u8::MAX);
                    self.note_end(status);
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.group => {
                    self.note_end(128 + u8::try_from(signal as i32).unwrap_or(127));
                }
                Ok(WaitStatus::Stopped(pid, signal)) if pid == self.group => {
                    stopped = Some(signal);
                    self.stopped = true;
                }
                Ok(WaitStatus::Continued(pid)) if pid == self.group => {
                    stopped = None;
                    self.stopped = false;
                }
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _))
                    if self.supervisor.as_ref().is_some_and(|s| s.pid() == pid) =>
                {
                    self.supervisor = None;
                }
                Ok(WaitStatus::StillAlive) | Err(_) => break,
                Ok(_) => {}
            }
        }
        stopped
    }

    fn note_end(&mut self, status: u8) {
        let by_key = [Signal::SIGINT, Signal::SIGQUIT].map(|signal| 128 + signal as u8);
        self.ended = Some(Ended {
            status,
            // Shells and many other programs exit with this code where others die by the signal.
            interrupted: by_key.contains(&status) && self.terminal.is_of(self.group),
        });
    }

    /// How the command ended, once no process of its group is left.
    pub fn ended(&mut self) -> Option<Ended> {
        let empty = || killpg(self.group, None) == Err(Errno::ESRCH);
        let ended = self.ended.filter(|_| empty())?;
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.end();
        }
        Some(ended)
    }

    /// Whether the command itself has ended, whatever it has left behind.
    pub fn leader_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether there was no command to start: it never ran.
    pub fn never_ran(&self) -> bool {
        let mut byte = [0];
        matches!(nix::unistd::read(&self.failure, &mut byte), Ok(1))
    }

    /// Passes a SIGTSTP on. This program stops when the command has.
    pub fn ask_to_stop(&mut self, signals: &Signals, may_go_on: impl Fn() -> bool) {
        if self.stopped {
            self.stop_with_it(signals, false, may_go_on);
        } else {
            self.asked_to_stop = true;
            let _ = killpg(self.group, Signal::SIGTSTP);
        }
    }

    /// The command was stopped. This program stops with it if it was asked to, or if a shell can continue both: renewals end then.
    /// Otherwise the lock is held on.
    pub fn was_stopped(&mut self, by: Signal, signals: &Signals, may_go_on: impl Fn() -> bool) {
        let needs_terminal = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        let by_key = by == Signal::SIGTSTP;
        let asked = std::mem::take(&mut self.asked_to_stop) && by_key;
        if !asked && !(self.terminal.is_there() && (needs_terminal || by_key)) {
            return;
        }
        // A shell has put this program into the foreground since the command was started or continued.
        if needs_terminal && (self.terminal.is_ours() || self.terminal.is_of(self.group)) {
            if self.terminal.is_of(self.group) || self.terminal.give(self.group) {
                self.go_on(may_go_on);
            }
            return;
        }
        // Without a shell that could continue it the kernel would not have let a key stop the command.
        self.stop_with_it(signals, by_key, may_go_on);
    }

    /// Stops this program so that its shell sees it, and goes on with the command afterwards; `always` also if it was not stopped.
    fn stop_with_it(&mut self, signals: &Signals, always: bool, may_go_on: impl Fn() -> bool) {
        let had_terminal = self.terminal.is_of(self.group);
        self.take_terminal_back();
        if signals.stop_self(self.terminal.is_there()) || always {
            if self.terminal.is_ours() && (had_terminal || is_interactive()) {
                self.terminal.give(self.group);
            }
            self.go_on(may_go_on);
        }
    }

    /// Continues the command, unless the lock is not held any more: such a command never runs again.
    fn go_on(&mut self, may_go_on: impl Fn() -> bool) {
        if may_go_on() {
            self.stopped = false;
            let _ = killpg(self.group, Signal::SIGCONT);
        } else {
            let _ = killpg(self.group, Signal::SIGKILL);
        }
    }

    /// The terminal is this program's again, if it is the command's.
    pub fn take_terminal_back(&self) {
        if self.terminal.is_of(self.group) {
            self.terminal.give(getpgrp());
        }
    }
}

/// A pipe whose ends no command inherits, and whose reader never waits.
fn pipe() -> nix::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = nix::unistd::pipe()?;
    for end in [&read, &write] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((read, write))
}

/// What `run` starts: ties itself to its parent and becomes the command.
pub fn become_command(args: &ExecArgs) -> Result<u8, Failure> {
    end_with_parent();
    let report = reopened(args.report);
    if getppid() != Pid::from_raw(args.parent) {
        return Err(Failure::silent(128 + 9)); // the parent is gone already
    }
    if args.foreground == "yes" {
        Terminal::open().give(getpgrp());
    }
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(Failure::new(NOT_FOUND, "no command"));
    };
    let error = Command::new(program).args(arguments).exec();
    if let Some(mut report) = report {
        let _ = report.write_all(b"x");
    }
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    Err(Failure::new(
        code,
        format!("cannot run {}: {error}", name(program)),
    ))
}

/// The descriptor `fd` of the parent as one that the command does not inherit.
fn reopened(fd: i32) -> Option<File> {
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(format!("/dev/fd/{fd}"));
    let _ = close(fd);
    file.ok()
}

fn name(program: &OsStr) -> String {
    crate::locks::shown(&program.to_string_lossy())
}

/// The kernel kills the command when this program dies, also before the second process knows of it.
#[cfg(target_os = "linux")]
fn end_with_parent() {
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent() {}

/// Processes that the command leaves behind become children of this program, which so learns of their end.
#[cfg(target_os = "linux")]
fn adopt_orphans() {
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() {}
