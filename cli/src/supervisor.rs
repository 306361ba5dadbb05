//! A second process that kills the command when `run` cannot: because `run` was killed, is stopped, or does not get on in time.
//!
//! `run` writes a line with the group of the command and the moment until which it may live, again and again. The end of the lines
//! without the word `over` means that `run` has ended.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, read};

use crate::exit::{Failure, SOFTWARE};
use crate::signals;
use crate::store::URL_VARIABLE;

/// The clock of leases: it goes on while the machine sleeps, where the system has such a clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LEASE_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const LEASE_CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;
/// The longest wait: a wait does not go on while the machine sleeps, and leases do.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const OVER: &str = "over";

/// The time on the clock of leases.
pub fn now() -> Duration {
    clock_gettime(LEASE_CLOCK).map_or(Duration::ZERO, Duration::from)
}

/// This program itself, to start it again: also if another version was installed over it meanwhile.
pub fn own_program() -> Result<Command, Failure> {
    let path = match cfg!(target_os = "linux") {
        true => "/proc/self/exe".into(),
        false => std::env::current_exe()
            .map_err(|e| Failure::new(SOFTWARE, format!("cannot find this program: {e}")))?,
    };
    let mut command = Command::new(path);
    command.arg0("syncguard");
    Ok(command)
}

/// The second process, as `run` sees it.
pub struct Supervisor {
    pid: Pid,
    lines: Option<ChildStdin>,
}

impl Supervisor {
    pub fn start() -> Result<Self, Failure> {
        let failed = |e| Failure::new(SOFTWARE, format!("cannot start a process: {e}"));
        // A group of its own: what stops or ends the group of `run` must not reach it.
        let mut child = own_program()?
            .arg("__supervise")
            .env_remove(URL_VARIABLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let lines = child.stdin.take();
        if let Some(lines) = &lines {
            // One that does not read must not block this program.
            never_block(lines).map_err(|e| failed(e.into()))?;
        }
        Ok(Self {
            pid: Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX)),
            lines,
        })
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The group may live so long from now on.
    pub fn allow(&mut self, group: Pid, time: Duration) {
        let until = (now() + time).as_nanos();
        self.tell(&format!("{group} {until}\n"));
    }

    /// The group is empty: its number may soon be another's.
    pub fn end(&mut self) {
        self.tell(&format!("{OVER}\n"));
        self.lines = None;
    }

    fn tell(&mut self, line: &str) {
        if let Some(lines) = &mut self.lines {
            // One that was killed gets nothing, and this program sees its end.
            let _ = lines.write_all(line.as_bytes());
        }
    }
}

fn never_block(fd: &impl AsFd) -> nix::Result<()> {
    let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop)
}

/// What the second process does.
pub fn supervise() -> Result<u8, Failure> {
    let cannot = |e| Failure::new(SOFTWARE, format!("cannot supervise: {e}"));
    signals::disregard()?;
    let input = std::io::stdin();
    never_block(&input).map_err(cannot)?;
    let mut text = Vec::new();
    let mut allowed: Option<(Pid, Duration)> = None;
    loop {
        let open = read_all(&input, &mut text);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if line.trim_end() == OVER {
                return Ok(0);
            }
            allowed = parse(line.trim_end()).or(allowed);
        }
        let left = allowed.map(|(_, until)| until.saturating_sub(now()));
        let reason = match left {
            _ if !open => Some("run was killed"),
            Some(Duration::ZERO) => Some("the lease ends and run does not act"),
            _ => None,
        };
        if let Some(reason) = reason {
            if let Some((group, _)) = allowed
                && killpg(group, Signal::SIGKILL).is_ok()
            {
                let text = format!("{reason}; the command was killed");
                return Err(Failure::new(SOFTWARE, text));
            }
            return Ok(0);
        }
        let time = left.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        let ms = u16::try_from(time.as_millis() + 1).unwrap_or(u16::MAX);
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        // An interrupted wait is a wake-up.
        let _ = poll(&mut fds, PollTimeout::from(ms));
    }
}

/// Reads what is there, and says whether more can come.
fn read_all(input: &impl AsFd, text: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match read(input, &mut bytes) {
            Ok(0) => return false,
            Ok(n) => text.extend_from_slice(&bytes[..n]),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return true,
            Err(_) => return false,
        }
    }
}

fn parse(line: &str) -> Option<(Pid, Duration)> {
    let (group, until) = line.split_once(' ')?;
    let group: i32 = group.parse().ok()?;
    let until: u64 = until.parse().ok()?;
    // The numbers 0 and 1 mean other processes than those of a command.
    (group > 1).then(|| (Pid::from_raw(group), Duration::from_nanos(until)))
}
