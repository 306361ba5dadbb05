//! TLS for a socket: which certificates are accepted, and the session itself. It uses `net::descriptor`.

mod binding;
mod der;
mod roots;
mod verify;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use nix::poll::PollFlags;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::backend::limits::Limits;
use crate::net::descriptor::{Descriptor, broken, hung_up, is_not_yet};
use crate::runtime::sync::Mutex;
use crate::types::error::LockError;

use roots::RootsSource;

/// What is asked of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    /// A trusted issuer, and the host's name in it.
    Full,
    /// A trusted issuer; any name.
    Authority,
    /// Nothing. A third party in between can read and change everything.
    Nothing,
}

/// How connections are put under TLS. Clones share the roots.
#[derive(Clone)]
pub(crate) struct Tls {
    shared: Arc<TlsShared>,
}

struct TlsShared {
    verify: Verify,
    ca_file: Option<PathBuf>,
    /// Made at the first session. A failure is not kept: the file may be there the next time.
    config: Mutex<Option<Arc<ClientConfig>>>,
}

impl Tls {
    /// Trusts the certificates in `ca_file`, or the system's. Reads nothing yet.
    pub(crate) fn new(verify: Verify, ca_file: Option<PathBuf>) -> Self {
        Self {
            shared: Arc::new(TlsShared {
                verify,
                ca_file,
                config: Mutex::new(None),
            }),
        }
    }

    fn config(&self, limits: &Limits<'_>) -> Result<Arc<ClientConfig>, LockError> {
        if let Some(config) = &*self.shared.config.lock() {
            return Ok(Arc::clone(config));
        }
        // Not under the mutex: each caller waits for the roots within its own limits.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = Arc::new(self.build(provider, limits)?);
        Ok(Arc::clone(self.shared.config.lock().get_or_insert(config)))
    }

    fn build(
        &self,
        provider: Arc<CryptoProvider>,
        limits: &Limits<'_>,
    ) -> Result<ClientConfig, LockError> {
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| LockError::internal("TLS cannot be set up").with_source(e))?;
        let roots = match self.shared.verify {
            Verify::Nothing => None,
            _ => Some(RootsSource::new(self.shared.ca_file.as_deref()).roots(limits)?),
        };
        let mut config = match (self.shared.verify, roots) {
            (Verify::Full, Some(roots)) => builder.with_root_certificates(roots),
            (_, roots) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verify::Lenient { roots, algorithms })),
        }
        .with_no_client_auth();
        // Connections are pooled: a resumed session would save little.
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("verify", &self.shared.verify)
            .field("ca_file", &self.shared.ca_file)
            .finish()
    }
}

/// A connection under TLS. It does not own the socket. Dropping it sends nothing.
pub(crate) struct TlsSession {
    connection: ClientConnection,
}

impl TlsSession {
    pub(crate) fn handshake(
        descriptor: &mut Descriptor,
        tls: &Tls,
        host: &str,
        limits: &Limits<'_>,
    ) -> Result<Self, LockError> {
        let config = tls.config(limits)?;
        let connection = ClientConnection::new(config, server_name(host)?)
            .map_err(|e| verify::explain(&e, "could not begin").with_source(e))?;
        let mut session = Self { connection };
        while session.connection.is_handshaking() {
            session.flush(descriptor, limits)?;
            if session.connection.is_handshaking()
                && !session
                    .receive(descriptor, limits)
                    .map_err(|e| e.if_silent("it may not speak TLS on this port"))?
            {
                return Err(LockError::unavailable(
                    "the server closed the connection in the TLS handshake; it may not speak TLS on this port",
                ));
            }
        }
        session.flush(descriptor, limits)?;
        Ok(session)
    }

    pub(crate) fn write_all(
        &mut self,
        descriptor: &mut Descriptor,
        bytes: &[u8],
        limits: &Limits<'_>,
    ) -> Result<(), LockError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = io::Write::write(&mut self.connection.writer(), rest).map_err(broken)?;
            rest = &rest[taken..];
            self.flush(descriptor, limits)?;
        }
        Ok(())
    }

    pub(crate) fn read(
        &mut self,
        descriptor: &mut Descriptor,
        into: &mut [u8],
        limits: &Limits<'_>,
    ) -> Result<usize, LockError> {
        loop {
            limits.left()?;
            match io::Read::read(&mut self.connection.reader(), into) {
                Ok(0) => return Err(hung_up()),
                Ok(n) => return Ok(n),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(hung_up()),
                Err(e) if is_not_yet(&e) => {}
                Err(e) => return Err(broken(e)),
            }
            // An answer to the peer's own messages, such as a new key.
            self.flush(descriptor, limits)?;
            if !self.receive(descriptor, limits)? {
                return Err(hung_up());
            }
        }
    }

    /// Whether nothing is to be read but messages of TLS itself: servers send tickets after the handshake.
    pub(crate) fn is_quiet(&mut self, descriptor: &Descriptor) -> bool {
        // A peer that goes on sending such messages is not quiet.
        for _ in 0..4 {
            match self.connection.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() => {
                    return false;
                }
                Ok(_) => {}
                Err(_) => return false,
            }
            match self.connection.read_tls(&mut TlsTransport { descriptor }) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
        false
    }

    pub(crate) fn channel_binding(&self) -> Option<Vec<u8>> {
        binding::end_point(self.connection.peer_certificates()?.first()?)
    }

    /// Sends what TLS has to say.
    fn flush(&mut self, descriptor: &mut Descriptor, limits: &Limits<'_>) -> Result<(), LockError> {
        while self.connection.wants_write() {
            limits.left()?;
            match self.connection.write_tls(&mut TlsTransport { descriptor }) {
                Ok(_) => {}
                Err(e) if is_not_yet(&e) => descriptor.wait(PollFlags::POLLOUT, limits)?,
                Err(e) => return Err(broken(e)),
            }
        }
        Ok(())
    }

    /// Takes in what the peer has sent; `false` at the end of the stream.
    fn receive(
        &mut self,
        descriptor: &mut Descriptor,
        limits: &Limits<'_>,
    ) -> Result<bool, LockError> {
        descriptor.wait(PollFlags::POLLIN, limits)?;
        match self.connection.read_tls(&mut TlsTransport { descriptor }) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(e) if is_not_yet(&e) => return Ok(true),
            Err(e) => return Err(broken(e)),
        }
        let phase = if self.connection.is_handshaking() {
            "handshake failed"
        } else {
            "connection broke"
        };
        if let Err(e) = self.connection.process_new_packets() {
            // The alert tells the peer why. Its end is not waited for.
            let _ = self.connection.write_tls(&mut TlsTransport { descriptor });
            return Err(verify::explain(&e, phase).with_source(e));
        }
        Ok(true)
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, LockError> {
    let bare = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host)
        .trim_end_matches('.');
    ServerName::try_from(bare.to_owned())
        .map_err(|_| LockError::invalid(format!("no TLS certificate can name the host {host:?}")))
}

/// Single attempts on the socket, for rustls.
struct TlsTransport<'a> {
    descriptor: &'a Descriptor,
}

impl io::Read for TlsTransport<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.descriptor.try_recv(into)
    }
}

impl io::Write for TlsTransport<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.descriptor.try_send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
