//! A connection that one caller writes to while another one reads. It uses `socket` and `descriptor`.
//!
//! Only single attempts are made under the mutex of a TLS session; every wait is outside it.

use std::io;

use nix::poll::PollFlags;

use crate::backend::limits::Limits;
pub(crate) use crate::net::descriptor::CancelWaker;
use crate::net::descriptor::{Descriptor, broken, hung_up, is_not_yet};
use crate::net::socket::Socket;
#[cfg(feature = "tls")]
use crate::net::tls::TlsSession;
#[cfg(feature = "tls")]
use crate::runtime::sync::Mutex;
use crate::types::error::LockError;

/// A [`Socket`] for a writer and a reader at once. Dropping it closes the descriptor and sends nothing.
pub(crate) struct SharedSocket {
    descriptor: Descriptor,
    server: Box<str>,
    #[cfg(feature = "tls")]
    session: Option<Mutex<Box<TlsSession>>>,
}

impl SharedSocket {
    pub(crate) fn new(socket: Socket) -> Self {
        Self {
            descriptor: socket.descriptor,
            server: socket.server,
            #[cfg(feature = "tls")]
            session: socket.session.map(Mutex::new),
        }
    }

    /// Where it leads, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Sends some of `bytes` without waiting; `None` if the buffers are full. `unflushed` says whether something that was taken is still
    /// to be sent, with no more bytes if there are none.
    pub(crate) fn try_send(
        &self,
        bytes: &[u8],
        unflushed: &mut bool,
    ) -> Result<Option<usize>, LockError> {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.session {
            return session.lock().try_send(&self.descriptor, bytes, unflushed);
        }
        *unflushed = false;
        loop {
            match self.descriptor.try_send(bytes) {
                Ok(n) => return Ok(Some(n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_not_yet(&e) => return Ok(None),
                Err(e) => return Err(broken(e)),
            }
        }
    }

    /// Waits until something can be sent.
    pub(crate) fn wait_to_send(
        &self,
        waker: &mut CancelWaker,
        limits: &Limits<'_>,
    ) -> Result<(), LockError> {
        let limits = limits.talking_to(&self.server);
        self.descriptor
            .wait_beside(waker, PollFlags::POLLOUT, &limits)
    }

    /// Reads what is there, at least one byte.
    pub(crate) fn read(
        &self,
        into: &mut [u8],
        waker: &mut CancelWaker,
        limits: &Limits<'_>,
    ) -> Result<usize, LockError> {
        let limits = &limits.talking_to(&self.server);
        #[cfg(feature = "tls")]
        if let Some(session) = &self.session {
            loop {
                let read = session.lock().try_read(&self.descriptor, into)?;
                if let Some(n) = read {
                    return Ok(n);
                }
                self.descriptor
                    .wait_beside(waker, PollFlags::POLLIN, limits)?;
            }
        }
        loop {
            // Waiting first saves a call: a reply is never there when its request has just been sent.
            self.descriptor
                .wait_beside(waker, PollFlags::POLLIN, limits)?;
            match self.descriptor.try_recv(into) {
                Ok(0) => return Err(hung_up()),
                Ok(n) => return Ok(n),
                Err(e) if is_not_yet(&e) => {}
                Err(e) => return Err(broken(e)),
            }
        }
    }

    /// Makes what a wait with the limits' token needs, before anything is sent whose effect would then be unknown.
    pub(crate) fn prepare(waker: &mut CancelWaker, limits: &Limits<'_>) -> Result<(), LockError> {
        waker.prepare(limits)
    }

    /// Whether there is nothing to read and the peer has not hung up. Only while no caller reads.
    pub(crate) fn is_quiet(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(session) = &self.session {
            return session.lock().is_quiet(&self.descriptor);
        }
        self.descriptor.is_quiet()
    }

    /// Ends the connection, for the callers that wait on it too.
    pub(crate) fn shut(&self) {
        self.descriptor.shut();
    }
}
