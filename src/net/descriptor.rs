//! The descriptor of a connection: single attempts, and the wait between them. It uses `runtime` and `backend::limits`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};

use crate::backend::limits::Limits;
use crate::runtime::cancel::CancelSubscription;
use crate::runtime::wake::WakeFd;
use crate::types::error::{ErrorCode, LockError};

/// A descriptor that never blocks.
pub(crate) struct Descriptor {
    fd: socket2::Socket,
    waker: CancelWaker,
}

impl Descriptor {
    pub(super) fn new(fd: socket2::Socket, waker: CancelWaker) -> Self {
        Self { fd, waker }
    }

    /// Makes what a wait with the limits' token needs, before anything is sent whose effect would then be unknown.
    pub(super) fn prepare(&mut self, limits: &Limits<'_>) -> Result<(), LockError> {
        self.waker.prepare(limits)
    }

    /// Waits until the socket has one of `events` or an error to report.
    pub(crate) fn wait(&mut self, events: PollFlags, limits: &Limits<'_>) -> Result<(), LockError> {
        wait(&self.fd, &mut self.waker, events, limits)
    }

    /// The same for one of several callers that use the connection at once, each with a waker of its own.
    #[cfg(feature = "redis")]
    pub(super) fn wait_beside(
        &self,
        waker: &mut CancelWaker,
        events: PollFlags,
        limits: &Limits<'_>,
    ) -> Result<(), LockError> {
        wait(&self.fd, waker, events, limits)
    }

    /// Sends some of `bytes`, waiting if the socket's buffer is full.
    pub(crate) fn send(&mut self, bytes: &[u8], limits: &Limits<'_>) -> Result<usize, LockError> {
        loop {
            match self.try_send(bytes) {
                Ok(n) => return Ok(n),
                Err(e) if is_not_yet(&e) => self.wait(PollFlags::POLLOUT, limits)?,
                Err(e) => return Err(broken(e)),
            }
        }
    }

    pub(crate) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const FLAGS: i32 = nix::libc::MSG_NOSIGNAL;
        // Where the flag is missing, socket2 has set SO_NOSIGPIPE.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const FLAGS: i32 = 0;
        self.fd.send_with_flags(bytes, FLAGS)
    }

    pub(crate) fn try_recv(&self, into: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut &self.fd, into)
    }

    /// Ends the connection: nothing can be sent any more, and what waits on it is woken.
    #[cfg(any(feature = "tls", feature = "redis"))]
    pub(super) fn shut(&self) {
        let _ = self.fd.shutdown(std::net::Shutdown::Both);
    }

    #[cfg(test)]
    pub(super) fn wake_for_test(&self) {
        use crate::runtime::wake::Wake;
        self.waker.fd.iter().for_each(|fd| fd.wake());
    }

    pub(super) fn is_quiet(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        loop {
            match self.fd.peek(&mut byte) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
                // Bytes without a request, or the end of the stream.
                Ok(_) => return false,
            }
        }
    }
}

/// Waits until the socket has one of `events` or an error to report.
fn wait(
    socket: &socket2::Socket,
    waker: &mut CancelWaker,
    events: PollFlags,
    limits: &Limits<'_>,
) -> Result<(), LockError> {
    let watch = waker.watch(limits).map_err(broken)?;
    loop {
        let left = limits.left()?;
        let socket = PollFd::new(socket.as_fd(), events);
        let ready = match watch.fd() {
            None => {
                let mut fds = [socket];
                poll(&mut fds, left)?;
                is_ready(&fds[0])
            }
            Some(cancel) => {
                let mut fds = [socket, PollFd::new(cancel, PollFlags::POLLIN)];
                poll(&mut fds, left)?;
                watch.settle(&fds[1]);
                is_ready(&fds[0])
            }
        };
        if ready {
            return Ok(());
        }
    }
}

/// The descriptor a cancel token raises. Made when it is first needed; it lives as long as the connection.
#[derive(Default)]
pub(crate) struct CancelWaker {
    fd: Option<Arc<WakeFd>>,
}

impl CancelWaker {
    pub(super) fn prepare(&mut self, limits: &Limits<'_>) -> Result<(), LockError> {
        if limits.token().is_some() {
            self.fd().map_err(|e| {
                LockError::new(
                    ErrorCode::RateLimited,
                    format!("no file descriptor is free for a call that can be cancelled: {e}"),
                )
                .with_source(e)
            })?;
        }
        Ok(())
    }

    /// Subscribes to the limits' token, if there is one.
    pub(super) fn watch(&mut self, limits: &Limits<'_>) -> io::Result<CancelWatch<'_>> {
        let Some(token) = limits.token() else {
            return Ok(CancelWatch { armed: None });
        };
        let fd = self.fd()?;
        let subscription = token.subscribe(Arc::clone(fd) as Arc<_>);
        Ok(CancelWatch {
            armed: Some(ArmedFd {
                fd,
                _subscription: subscription,
            }),
        })
    }

    fn fd(&mut self) -> io::Result<&Arc<WakeFd>> {
        Ok(match &mut self.fd {
            Some(fd) => fd,
            none => none.insert(Arc::new(WakeFd::new()?)),
        })
    }
}

/// A subscription for the time of one wait; none without a token.
pub(super) struct CancelWatch<'a> {
    armed: Option<ArmedFd<'a>>,
}

/// A descriptor that the token raises as long as this lives.
struct ArmedFd<'a> {
    fd: &'a WakeFd,
    _subscription: CancelSubscription,
}

impl CancelWatch<'_> {
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.armed.as_ref().map(|armed| armed.fd.as_fd())
    }

    /// Takes a wake-up back. It may be a late one of an earlier call's token: a caller that waits looks at its own token again, and
    /// so the descriptor need not be cleared before each wait.
    pub(super) fn settle(&self, polled: &PollFd<'_>) {
        if let Some(armed) = &self.armed
            && is_ready(polled)
        {
            armed.fd.clear();
        }
    }
}

/// Whether `poll` reported anything, an error included.
pub(super) fn is_ready(polled: &PollFd<'_>) -> bool {
    // `None` stands for an event that nix does not know.
    polled.any().unwrap_or(true)
}

/// Waits at most `timeout`. It may return early and without an event: a signal came, or memory was short.
pub(super) fn poll(fds: &mut [PollFd<'_>], timeout: Duration) -> Result<(), LockError> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let polled = nix::poll::ppoll(fds, Some(timeout.into()), None);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let polled = {
        let ms = timeout.as_nanos().div_ceil(1_000_000);
        let timeout = nix::poll::PollTimeout::try_from(ms).unwrap_or(nix::poll::PollTimeout::MAX);
        nix::poll::poll(fds, timeout)
    };
    match polled {
        Ok(_) => Ok(()),
        // Then no events are written: callers pass new entries each time and so read none.
        Err(Errno::EINTR | Errno::EAGAIN) => Ok(()),
        Err(e) => {
            Err(LockError::internal("waiting for a socket failed").with_source(io::Error::from(e)))
        }
    }
}

/// Whether a single attempt has to be made again after a wait.
pub(crate) fn is_not_yet(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The end of the stream where an answer was due.
pub(crate) fn hung_up() -> LockError {
    LockError::unavailable("the server closed the connection")
}

/// A connection that was lost in use.
pub(crate) fn broken(e: io::Error) -> LockError {
    LockError::unavailable(format!("the connection to the server broke: {e}")).with_source(e)
}
