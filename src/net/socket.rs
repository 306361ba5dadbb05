//! A connection with a deadline, plain or under TLS. It knows no protocol, and uses `descriptor`, `dialer` and `tls`.
//!
//! The descriptor never blocks; every wait is a `ppoll` bounded by the call's [`Limits`], beside the descriptor that the cancel
//! token raises. A signal interrupts nothing, and a peer that went away raises none.

use nix::poll::PollFlags;

use crate::backend::limits::Limits;
use crate::net::descriptor::{Descriptor, broken, hung_up, is_not_yet};
use crate::net::dialer::Dialer;
#[cfg(feature = "tls")]
use crate::net::tls::{Tls, TlsSession};
use crate::net::uri::Endpoint;
use crate::types::error::LockError;

/// A connection, plain or under TLS. Dropping it closes the descriptor and sends nothing.
pub(crate) struct Socket {
    pub(super) descriptor: Descriptor,
    /// The endpoint, for messages.
    pub(super) server: Box<str>,
    #[cfg(feature = "tls")]
    pub(super) session: Option<Box<TlsSession>>,
}

impl Socket {
    /// Connects, name resolution included.
    ///
    /// # Errors
    /// `ServiceUnavailable` if the server cannot be reached, `NetworkTimeout` or `Aborted` by the limits, `RateLimited`
    /// without a free descriptor, `AuthFailed` without the right to a unix socket, `InvalidArgument` for a path that cannot
    /// be one, and for what a user's function gave and is no connection. Nothing was sent in any case.
    pub(crate) fn connect(
        endpoint: &Endpoint,
        dialer: &Dialer,
        limits: &Limits<'_>,
    ) -> Result<Self, LockError> {
        let server = endpoint.to_string().into_boxed_str();
        let limits = &limits.connecting_to(&server);
        let descriptor = dialer.connect(endpoint, limits);
        Ok(Self {
            descriptor: descriptor.map_err(LockError::nothing_applied)?,
            server,
            #[cfg(feature = "tls")]
            session: None,
        })
    }

    /// Puts the connection under TLS; what is written and read from now on goes through it.
    ///
    /// # Errors
    /// `AuthFailed` for a certificate that is refused (or if the server refuses ours), `ServiceUnavailable` for a
    /// handshake that broke or a server that speaks no TLS, `InvalidArgument` for roots that cannot be read or a host no
    /// certificate can name. No request was sent in any case, and the connection is of no more use.
    #[cfg(feature = "tls")]
    pub(crate) fn encrypt(
        &mut self,
        tls: &Tls,
        host: &str,
        limits: &Limits<'_>,
    ) -> Result<(), LockError> {
        let limits = &limits.talking_to(&self.server);
        match TlsSession::handshake(&mut self.descriptor, tls, host, limits) {
            Ok(session) => {
                self.session = Some(Box::new(session));
                Ok(())
            }
            Err(e) => {
                // A caller that goes on in spite of the error must not send a password in the clear.
                self.descriptor.shut();
                Err(e.nothing_applied())
            }
        }
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// `ServiceUnavailable` if the connection is lost, `NetworkTimeout` or `Aborted` by the limits: any part may have been
    /// sent. `RateLimited` without a descriptor for a cancellable call: nothing of `bytes` was.
    pub(crate) fn write_all(&mut self, bytes: &[u8], limits: &Limits<'_>) -> Result<(), LockError> {
        let limits = &limits.talking_to(&self.server);
        self.descriptor.prepare(limits)?;
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return session.write_all(&mut self.descriptor, bytes, limits);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            limits.left()?;
            let sent = self.descriptor.send(rest, limits)?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    /// Reads what is there, at least one byte.
    ///
    /// # Errors
    /// `ServiceUnavailable` at the end of the stream or a reset, `NetworkTimeout` or `Aborted` by the limits.
    pub(crate) fn read(
        &mut self,
        into: &mut [u8],
        limits: &Limits<'_>,
    ) -> Result<usize, LockError> {
        let limits = &limits.talking_to(&self.server);
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return session.read(&mut self.descriptor, into, limits);
        }
        loop {
            // Waiting first saves a call: a reply is never there when its request has just been sent.
            self.descriptor.wait(PollFlags::POLLIN, limits)?;
            match self.descriptor.try_recv(into) {
                Ok(0) => return Err(hung_up()),
                Ok(n) => return Ok(n),
                Err(e) if is_not_yet(&e) => {}
                Err(e) => return Err(broken(e)),
            }
        }
    }

    /// Ends the connection before it is dropped.
    #[cfg(feature = "redis")]
    pub(crate) fn shut(&self) {
        self.descriptor.shut();
    }

    /// Where it leads, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Whether there is nothing to read and the peer has not hung up: a pooled connection may be used again.
    pub(crate) fn is_quiet(&mut self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut self.session {
            return session.is_quiet(&self.descriptor);
        }
        self.descriptor.is_quiet()
    }

    /// The `tls-server-end-point` hash of RFC 5929, for SCRAM; `None` if the connection is plain or the certificate's
    /// signature names no hash.
    pub(crate) fn channel_binding(&self) -> Option<Vec<u8>> {
        #[cfg(feature = "tls")]
        return self.session.as_ref().and_then(|s| s.channel_binding());
        #[cfg(not(feature = "tls"))]
        None
    }
}
