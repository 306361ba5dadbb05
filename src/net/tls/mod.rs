//! TLS for a socket: which certificates are accepted, and the session itself. It uses `net::descriptor`.

mod binding;
mod der;
mod identity;
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
use crate::options::connections::CertificateFiles;
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
    identity: Option<CertificateFiles>,
    /// The user's own, or made at the first session. A failure is not kept: the file may be there the next time.
    config: Mutex<Option<Arc<ClientConfig>>>,
}

impl Tls {
    /// Trusts the certificates in `ca_file`, or the system's, and shows the server the certificate of `identity`. Reads nothing yet.
    pub(crate) fn new(
        verify: Verify,
        ca_file: Option<PathBuf>,
        identity: Option<CertificateFiles>,
    ) -> Self {
        Self::with(verify, ca_file, identity, None)
    }

    /// As the user's own configuration says.
    pub(crate) fn own(config: Arc<ClientConfig>) -> Self {
        Self::with(Verify::Full, None, None, Some(config))
    }

    fn with(
        verify: Verify,
        ca_file: Option<PathBuf>,
        identity: Option<CertificateFiles>,
        config: Option<Arc<ClientConfig>>,
    ) -> Self {
        Self {
            shared: Arc::new(TlsShared {
                verify,
                ca_file,
                identity,
                config: Mutex::new(config),
            }),
        }
    }

    fn config(&self, limits: &Limits<'_>) -> Result<Arc<ClientConfig>, LockError> {
        // Not under the mutex: each caller waits for files within its own limits.
        let known = self.shared.config.lock().clone();
        let config = match known {
            Some(config) => config,
            None => {
                let config = Arc::new(self.build(provider(), limits)?);
                Arc::clone(self.shared.config.lock().get_or_insert(config))
            }
        };
        let Some(files) = &self.shared.identity else {
            return Ok(config);
        };
        let mut config = ClientConfig::clone(&config);
        config.client_auth_cert_resolver = identity::read(files, &provider(), limits)?;
        Ok(Arc::new(config))
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
            .field("identity", &self.shared.identity)
            .finish()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
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

    /// Takes and sends some of `bytes` without waiting; `None` if the buffers are full.
    #[cfg(feature = "redis")]
    pub(crate) fn try_send(
        &mut self,
        descriptor: &Descriptor,
        bytes: &[u8],
        unflushed: &mut bool,
    ) -> Result<Option<usize>, LockError> {
        // First what was taken before: this bounds what the session keeps.
        if !self.try_flush(descriptor)? {
            *unflushed = true;
            return Ok(None);
        }
        let taken = io::Write::write(&mut self.connection.writer(), bytes).map_err(broken)?;
        *unflushed = !self.try_flush(descriptor)?;
        Ok(Some(taken))
    }

    /// Sends what TLS has to say without waiting, and answers whether that was all.
    #[cfg(feature = "redis")]
    fn try_flush(&mut self, descriptor: &Descriptor) -> Result<bool, LockError> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut TlsTransport { descriptor }) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_not_yet(&e) => return Ok(false),
                Err(e) => return Err(broken(e)),
            }
        }
        Ok(true)
    }

    /// Reads without waiting; `None` if nothing is there yet.
    #[cfg(feature = "redis")]
    pub(crate) fn try_read(
        &mut self,
        descriptor: &Descriptor,
        into: &mut [u8],
    ) -> Result<Option<usize>, LockError> {
        loop {
            match io::Read::read(&mut self.connection.reader(), into) {
                Ok(0) => return Err(hung_up()),
                Ok(n) => return Ok(Some(n)),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(hung_up()),
                Err(e) if is_not_yet(&e) => {}
                Err(e) => return Err(broken(e)),
            }
            // An answer to the peer's own messages, such as a new key. What does not go now goes before the next request.
            self.try_flush(descriptor)?;
            match self.connection.read_tls(&mut TlsTransport { descriptor }) {
                Ok(0) => return Err(hung_up()),
                Ok(_) => self.process(descriptor, "connection broke")?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_not_yet(&e) => return Ok(None),
                Err(e) => return Err(broken(e)),
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
                Err(e) => return Err(self.farewell(descriptor).unwrap_or_else(|| broken(e))),
            }
        }
        Ok(())
    }

    /// Why the peer has ended the connection, if it said so before it did: a server of TLS 1.3 refuses the client's certificate after
    /// the handshake, while the client sends already.
    fn farewell(&mut self, descriptor: &Descriptor) -> Option<LockError> {
        while let Ok(1..) = self.connection.read_tls(&mut TlsTransport { descriptor }) {
            if let Err(e) = self.connection.process_new_packets() {
                return Some(verify::explain(&e, "connection broke").with_source(e));
            }
        }
        None
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
        self.process(descriptor, phase)?;
        Ok(true)
    }

    fn process(&mut self, descriptor: &Descriptor, phase: &str) -> Result<(), LockError> {
        if let Err(e) = self.connection.process_new_packets() {
            // The alert tells the peer why. Its end is not waited for.
            let _ = self.connection.write_tls(&mut TlsTransport { descriptor });
            return Err(verify::explain(&e, phase).with_source(e));
        }
        Ok(())
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
