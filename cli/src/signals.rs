//! The signals that this program is sent, as values to wait for.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, raise};

/// Those that a terminal, a shell or a service manager sends to have a program end or stop.
const REQUESTS: [Signal; 5] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGHUP,
    Signal::SIGTSTP,
];

/// Signals that were sent since the last look, and a pipe that wakes a wait.
pub struct Signals {
    arrived: Vec<(Signal, Arc<AtomicBool>)>,
    continued: Arc<AtomicBool>,
    pipe: UnixStream,
    writer: UnixStream,
}

/// What signals ask for.
pub struct Requests {
    /// To end: the first of such signals.
    pub end: Option<Signal>,
    /// To stop until SIGCONT.
    pub stop: bool,
}

impl Signals {
    /// Takes over those that ask for something, and those about children. One that this program was started to ignore, as by `nohup`
    /// or in the background of a script, stays ignored, and the command ignores it too.
    pub fn take() -> std::io::Result<Self> {
        let (pipe, writer) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let mut arrived = Vec::new();
        let take = |signal: Signal| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal as i32, Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(signal as i32, writer.try_clone()?)?;
            std::io::Result::Ok(flag)
        };
        for signal in REQUESTS {
            if !is_ignored(signal) {
                arrived.push((signal, take(signal)?));
            }
        }
        take(Signal::SIGCHLD)?;
        let continued = take(Signal::SIGCONT)?;
        Ok(Self {
            arrived,
            continued,
            pipe,
            writer,
        })
    }

    /// Something to write to, to end a wait.
    pub fn waker(&self) -> std::io::Result<UnixStream> {
        self.writer.try_clone()
    }

    /// Waits for a signal, a wake-up or the end of the time.
    pub fn wait(&mut self, time: Duration) {
        let ms = u16::try_from(time.as_millis().max(1)).unwrap_or(u16::MAX);
        let mut fds = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        // An interrupted wait is a wake-up.
        let _ = poll(&mut fds, PollTimeout::from(ms));
        let mut bytes = [0; 64];
        while matches!(self.pipe.read(&mut bytes), Ok(n) if n > 0) {}
    }

    /// The signals that were sent since the last call.
    pub fn arrived(&self) -> Vec<Signal> {
        let was_sent = |(signal, flag): &(Signal, Arc<AtomicBool>)| {
            flag.swap(false, Ordering::AcqRel).then_some(*signal)
        };
        self.arrived.iter().filter_map(was_sent).collect()
    }

    /// What the signals ask for that were sent since the last call.
    pub fn requests(&self) -> Requests {
        let arrived = self.arrived();
        Requests {
            end: arrived.iter().find(|s| **s != Signal::SIGTSTP).copied(),
            stop: arrived.contains(&Signal::SIGTSTP),
        }
    }

    /// Stops this program until SIGCONT, and says whether it was stopped. At a terminal it is only if a shell is there to continue it:
    /// that is the kernel's rule for SIGTTIN, which stops no group that is orphaned.
    pub fn stop_self(&self, at_terminal: bool) -> bool {
        self.continued.store(false, Ordering::Release);
        let _ = raise(match at_terminal {
            true => Signal::SIGTTIN,
            false => Signal::SIGSTOP,
        });
        self.continued.load(Ordering::Acquire)
    }
}

/// Has every signal do nothing that would end or stop this program and can be handled.
pub fn disregard() -> std::io::Result<()> {
    for signal in REQUESTS {
        signal_hook::flag::register(signal as i32, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// Whether this program was started with the signal ignored.
#[allow(unsafe_code)]
fn is_ignored(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<nix::libc::sigaction>::uninit();
    // SAFETY: without a new action the call changes nothing; it fills `action` if it succeeds, and `action` is read only then.
    unsafe {
        let asked = nix::libc::sigaction(signal as i32, std::ptr::null(), action.as_mut_ptr()) == 0;
        asked && action.assume_init().sa_sigaction == nix::libc::SIG_IGN
    }
}
