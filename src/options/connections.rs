//! What a user sets about connections: the function that gives the password, the one that connects, and the files of a client
//! certificate. It uses `types`.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a password provider has no password.
pub(crate) type ProviderError = Box<dyn Error + Send + Sync>;
/// What is asked for the password.
pub(crate) type AskPassword = Arc<dyn Fn() -> Result<String, ProviderError> + Send + Sync>;
/// What is asked for a connection.
pub(crate) type MakeConnection =
    Arc<dyn Fn(&ConnectRequest<'_>) -> io::Result<OwnedFd> + Send + Sync>;

/// The files of a client certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CertificateFiles {
    /// The certificate, and those of the authorities between it and a root that the server knows.
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Which server a [connector](crate::ClientOptions::connector) is to reach, and by when.
///
/// ```
/// use std::net::TcpStream;
/// use std::os::fd::OwnedFd;
/// use syncguard::{ClientOptions, ConnectRequest};
///
/// fn connect(to: &ConnectRequest<'_>) -> std::io::Result<OwnedFd> {
///     let address = (to.host(), to.port());
///     Ok(TcpStream::connect(address)?.into())
/// }
/// let options = ClientOptions::new().connector(connect);
/// # drop(options);
/// ```
#[derive(Clone, Copy)]
pub struct ConnectRequest<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) deadline: Instant,
}

impl<'a> ConnectRequest<'a> {
    /// The host, as the URL, a sentinel or a node of a cluster names it; the path of a unix socket where that is what was named.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().connector(|to| Err(std::io::Error::other(format!("{} is not known", to.host()))));
    /// # drop(options);
    /// ```
    pub fn host(&self) -> &'a str {
        self.host
    }

    /// The port; 0 for a unix socket.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().connector(|to| Err(std::io::Error::other(format!("port {}", to.port()))));
    /// # drop(options);
    /// ```
    pub fn port(&self) -> u16 {
        self.port
    }

    /// When the call that wants the connection ends. A connection that comes later is of use only to a call that waits for the same
    /// server by then.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().connector(|to| Err(std::io::Error::other(format!("{:?}", to.deadline()))));
    /// # drop(options);
    /// ```
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How much time is left until the deadline: zero once it has passed.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().connector(|to| Err(std::io::Error::other(format!("{:?}", to.remaining()))));
    /// # drop(options);
    /// ```
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl fmt::Debug for ConnectRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectRequest")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("remaining", &self.remaining())
            .finish()
    }
}
