//! [`ClientOptions`]: everything about a client that is not in its URL. It uses `hooks`, `runtime` and `types`.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::options::connections::{AskPassword, CertificateFiles, ConnectRequest, MakeConnection};
use crate::options::hooks::{IncludeRaw, OnClientLost, OnEvent, OnReleaseError, OnWarning};
use crate::runtime::Runtime;
use crate::types::error::LockError;
use crate::types::event::LockEvent;
use crate::types::failed_release::FailedRelease;
use crate::types::fence::FenceSource;
use crate::types::lost_lock::LostLock;

/// The default number of connections.
pub const DEFAULT_POOL_SIZE: usize = 16;
/// The default time to connect, TLS and authentication included.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The default bound of a single operation.
pub const DEFAULT_OPERATION_TIMEOUT: Duration = Duration::from_secs(5);
/// The default bound of the release in `Drop`.
pub const DEFAULT_DISPOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The default prefix of keys in Redis.
pub const DEFAULT_KEY_PREFIX: &str = "syncguard";

/// Everything about a client that is not in its URL. Nothing is checked before it is used.
///
/// ```
/// use std::time::Duration;
/// use syncguard::{Client, ClientOptions};
///
/// # let dir = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}", dir.path().join("locks.db").display());
/// let options = ClientOptions::new().operation_timeout(Duration::from_secs(2)).dispose_timeout(Duration::from_secs(1));
/// let client = Client::open_with(&url, &options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct ClientOptions {
    pub(crate) key_prefix: String,
    pub(crate) schema: Option<String>,
    pub(crate) table_name: Option<String>,
    pub(crate) fence_table_name: Option<String>,
    pub(crate) tls_ca_file: Option<PathBuf>,
    pub(crate) tls_insecure: bool,
    pub(crate) tls_client_cert: Option<CertificateFiles>,
    #[cfg(feature = "tls")]
    pub(crate) tls_config: Option<Arc<rustls::ClientConfig>>,
    pub(crate) password: Option<AskPassword>,
    pub(crate) connector: Option<MakeConnection>,
    pub(crate) pool_size: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) operation_timeout: Duration,
    pub(crate) dispose_timeout: Duration,
    pub(crate) cleanup_in_is_locked: bool,
    pub(crate) fences: FenceSource,
    pub(crate) on_release_error: Option<OnReleaseError>,
    pub(crate) on_warning: Option<OnWarning>,
    pub(crate) on_lost: Option<OnClientLost>,
    pub(crate) on_event: Option<OnEvent>,
    pub(crate) include_raw: IncludeRaw,
    #[cfg(feature = "testkit")]
    pub(crate) clock: Option<Arc<dyn crate::runtime::clock::Clock>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            key_prefix: DEFAULT_KEY_PREFIX.to_owned(),
            schema: None,
            table_name: None,
            fence_table_name: None,
            tls_ca_file: None,
            tls_insecure: false,
            tls_client_cert: None,
            #[cfg(feature = "tls")]
            tls_config: None,
            password: None,
            connector: None,
            pool_size: DEFAULT_POOL_SIZE,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            operation_timeout: DEFAULT_OPERATION_TIMEOUT,
            dispose_timeout: DEFAULT_DISPOSE_TIMEOUT,
            cleanup_in_is_locked: false,
            fences: FenceSource::Counter,
            on_release_error: None,
            on_warning: None,
            on_lost: None,
            on_event: None,
            include_raw: IncludeRaw::Never,
            #[cfg(feature = "testkit")]
            clock: None,
        }
    }
}

impl ClientOptions {
    /// All defaults.
    ///
    /// ```
    /// use syncguard::{Client, ClientOptions};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    /// let client = Client::open_with(&url, &ClientOptions::new())?; // as Client::open(&url)
    /// # drop(client);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Redis: what stands before every stored key. Default `"syncguard"`; trailing colons do not count, so `"a"` and `"a:"`
    /// are the same. Prefixes of clients that share a database must not nest (`"app"` and `"app:x"`).
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().key_prefix("billing");
    /// # drop(options);
    /// ```
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Postgres: the schema of the tables and functions. Default: the first one of the connection's `search_path`.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().schema("app");
    /// # drop(options);
    /// ```
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// Postgres: the table of locks. Default `"syncguard_locks"`.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().table_name("app_locks");
    /// # drop(options);
    /// ```
    pub fn table_name(mut self, name: impl Into<String>) -> Self {
        self.table_name = Some(name.into());
        self
    }

    /// Postgres: the table of fence counters. Default `"syncguard_fence_counters"`.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().fence_table_name("app_fences");
    /// # drop(options);
    /// ```
    pub fn fence_table_name(mut self, name: impl Into<String>) -> Self {
        self.fence_table_name = Some(name.into());
        self
    }

    /// TLS: the roots to trust, as PEM, in place of the system's. A regular file of up to 16 MiB.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().tls_ca_file("/etc/ssl/company.pem");
    /// # drop(options);
    /// ```
    pub fn tls_ca_file(mut self, path: impl AsRef<Path>) -> Self {
        self.tls_ca_file = Some(path.as_ref().to_owned());
        self
    }

    /// TLS: accepts any certificate of any host. **Unsafe on every network you do not own**: a machine in between can read
    /// the password and grant locks.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().tls_danger_accept_invalid_certs(true);
    /// # drop(options);
    /// ```
    pub fn tls_danger_accept_invalid_certs(mut self, accept: bool) -> Self {
        self.tls_insecure = accept;
        self
    }

    /// TLS: the certificate that the client shows the server, and its key, as PEM: the certificate first, then those of the authorities
    /// that the server may not know; the key as PKCS#8, PKCS#1 or SEC1 without a passphrase. Default: none. `sslcert` and `sslkey` in a
    /// Postgres URL win over it.
    ///
    /// Both are read before every connection, within the call's time, so that they may be replaced while the program runs. A key that
    /// other users may read is refused: 0600 or stricter, or 0640 or stricter if it is root's.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().tls_client_cert("/etc/app/client.pem", "/etc/app/client.key");
    /// # drop(options);
    /// ```
    pub fn tls_client_cert(mut self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        self.tls_client_cert = Some(CertificateFiles {
            certificate: certificate.as_ref().to_owned(),
            key: key.as_ref().to_owned(),
        });
        self
    }

    /// TLS: a configuration of your own, for keys in hardware, other roots or other ciphers. It decides alone what is verified and what
    /// certificate the client shows; `sslmode` of a Postgres URL still says whether there is TLS. With it, the options and the parts of
    /// a URL that name certificates are refused. [`rustls`](crate::rustls) is the version that it must be of.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use syncguard::{ClientOptions, rustls};
    ///
    /// let provider = Arc::new(rustls::crypto::ring::default_provider());
    /// let config = rustls::ClientConfig::builder_with_provider(provider)
    ///     .with_safe_default_protocol_versions()?
    ///     .with_root_certificates(rustls::RootCertStore::empty())
    ///     .with_no_client_auth();
    /// let options = ClientOptions::new().tls_config(Arc::new(config));
    /// # drop(options);
    /// # Ok::<(), rustls::Error>(())
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls_config(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.tls_config = Some(config);
        self
    }

    /// A function that gives the password, for one that changes: a token of IAM, or a secret that is rotated. It is asked before every
    /// connection is made, and the URL names the user and no password.
    ///
    /// It runs on a thread of the library, one call at a time for a client; the connections that are to be made meanwhile wait for the
    /// same answer. One that hangs costs each call its own time and is not called again before it has ended. A panic is
    /// [`Internal`](crate::ErrorCode::Internal), an error [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable) with that error as
    /// its source: keep secrets out of it; a [`LockError`] keeps its code and
    /// message. The answer, at most 65534 bytes without a NUL, is shown nowhere. The sentinels of Redis
    /// are not asked with it: `sentinel_password` is theirs.
    ///
    /// ```
    /// use syncguard::{Client, ClientOptions};
    ///
    /// let options = ClientOptions::new().password(|| Ok(std::fs::read_to_string("/run/secrets/redis")?));
    /// let client = Client::open_with("redis://app@127.0.0.1/", &options)?;
    /// # drop(client);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn password(
        mut self,
        provider: impl Fn() -> Result<String, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        self.password = Some(Arc::new(provider));
        self
    }

    /// A function that connects: through a tunnel or a proxy, or with a socket that a supervisor gives. It is given the server and the
    /// deadline, and answers a connected stream socket, which is the library's from then on: it logs in over it, with TLS if the URL
    /// asks for that. Names are not resolved before. Every connection is made by it: to sentinels and nodes of a cluster, the one that
    /// listens for releases, the one that cancels a query of Postgres.
    ///
    /// It runs on a thread of the library, also several times at once. One that hangs costs the call its own time; until it has ended no
    /// other one is begun to the same server, and calls to that server wait for its answer. A panic is
    /// [`Internal`](crate::ErrorCode::Internal); an error has the code that a refused connection has, and is its source.
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().connector(|_| Ok(UnixStream::connect("/run/tunnel/redis.sock")?.into()));
    /// # drop(options);
    /// ```
    pub fn connector(
        mut self,
        connect: impl Fn(&ConnectRequest<'_>) -> io::Result<OwnedFd> + Send + Sync + 'static,
    ) -> Self {
        self.connector = Some(Arc::new(connect));
        self
    }

    /// How many connections the client may have; one of them is kept for renewals and releases. At least 2; default 16.
    ///
    /// On Redis callers share two connections, and there are more only while one that a call has given up still serves others.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().pool_size(4);
    /// # drop(options);
    /// ```
    pub fn pool_size(mut self, size: usize) -> Self {
        self.pool_size = size;
        self
    }

    /// How long connecting may take, TLS and authentication included. Default 2 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().connect_timeout(Duration::from_secs(1));
    /// # drop(options);
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a single operation may take, everything included. Default 5 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().operation_timeout(Duration::from_secs(2));
    /// # drop(options);
    /// ```
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// How long the release in `Drop` may take. Default 5 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().dispose_timeout(Duration::from_secs(1));
    /// # drop(options);
    /// ```
    pub fn dispose_timeout(mut self, timeout: Duration) -> Self {
        self.dispose_timeout = timeout;
        self
    }

    /// Lets `is_locked` remove, later and elsewhere, locks that expired more than two seconds ago. Default off.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().cleanup_in_is_locked(true);
    /// # drop(options);
    /// ```
    pub fn cleanup_in_is_locked(mut self, cleanup: bool) -> Self {
        self.cleanup_in_is_locked = cleanup;
        self
    }

    /// Where fences come from; `fences=` in the URL wins over it. Default [`FenceSource::Counter`]. With [`FenceSource::Clock`] they
    /// grow also after a failover or a restored backup has lost acknowledged writes, under the conditions stated there.
    ///
    /// ```
    /// use syncguard::{ClientOptions, FenceSource};
    ///
    /// let options = ClientOptions::new().fences(FenceSource::Clock);
    /// # drop(options);
    /// ```
    pub fn fences(mut self, source: FenceSource) -> Self {
        self.fences = source;
        self
    }

    /// Called on a thread of the library when a release fails that has no caller to answer to. Default: to stderr in debug
    /// builds or with `SYNCGUARD_DEBUG=true`, without key or id; silent otherwise.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().on_release_error(|failed| eprintln!("{failed:?}"));
    /// # drop(options);
    /// ```
    pub fn on_release_error(
        mut self,
        hook: impl Fn(&FailedRelease) + Send + Sync + 'static,
    ) -> Self {
        self.on_release_error = Some(Arc::new(hook));
        self
    }

    /// Called on a thread of the library with what an operator should know: a store that is not safe, a fence near its limit, a
    /// ttl so short that a lock was lost already when it was granted, an option that the opened store does not use. Default: to
    /// stderr.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().on_warning(|text| eprintln!("locks: {text}"));
    /// # drop(options);
    /// ```
    pub fn on_warning(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_warning = Some(Arc::new(hook));
        self
    }

    /// Called on a thread of the library when a guard of the client is lost: at most once per guard, and not once its release has
    /// begun, as the guard's own [`on_lost`](crate::LockOptions::on_lost). The two do not wait for each other. It may take its time;
    /// a release waits up to a second for it to end. Default: none.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().on_lost(|lost| eprintln!("fence {}: {}", lost.fence, lost.error));
    /// # drop(options);
    /// ```
    pub fn on_lost(mut self, hook: impl Fn(&LostLock) + Send + Sync + 'static) -> Self {
        self.on_lost = Some(Arc::new(hook));
        self
    }

    /// Called on a thread of the library for every operation, every wait that has ended and every loss of a guard. What it cannot keep
    /// up with is dropped and [counted](crate::Client::events_dropped). Default: none, at no cost.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    ///
    /// let options = ClientOptions::new().on_event(|event| println!("{event:?}"));
    /// # drop(options);
    /// ```
    pub fn on_event(mut self, hook: impl Fn(&LockEvent) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Arc::new(hook));
        self
    }

    /// Whether events carry the raw key and lock id. Default never.
    ///
    /// ```
    /// use syncguard::{ClientOptions, IncludeRaw};
    ///
    /// let options = ClientOptions::new().events_include_raw(IncludeRaw::Always);
    /// # drop(options);
    /// ```
    pub fn events_include_raw(mut self, include: IncludeRaw) -> Self {
        self.include_raw = include;
        self
    }

    pub(crate) fn checked(&self) -> Result<(), LockError> {
        if self.pool_size < 2 {
            return Err(LockError::invalid(
                "pool_size is under 2: one connection is kept for renewals and releases",
            ));
        }
        #[cfg(feature = "tls")]
        if self.tls_config.is_some() {
            for (set, name) in [
                (self.tls_ca_file.is_some(), "tls_ca_file"),
                (self.tls_insecure, "tls_danger_accept_invalid_certs"),
                (self.tls_client_cert.is_some(), "tls_client_cert"),
            ] {
                if set {
                    return Err(LockError::invalid(format!(
                        "tls_config and {name} are both set: the configuration decides alone"
                    )));
                }
            }
        }
        for (name, value) in [
            ("connect_timeout", self.connect_timeout),
            ("operation_timeout", self.operation_timeout),
            ("dispose_timeout", self.dispose_timeout),
        ] {
            if value.is_zero() {
                return Err(LockError::invalid(format!("{name} is zero")));
            }
        }
        Ok(())
    }

    /// How long the calls of the client may take.
    pub(crate) fn timeouts(&self) -> CallTimeouts {
        CallTimeouts {
            operation: self.operation_timeout,
            dispose: self.dispose_timeout,
        }
    }

    /// What the client's guards are timed by.
    pub(crate) fn runtime(&self) -> Runtime {
        #[cfg(feature = "testkit")]
        if let Some(clock) = &self.clock {
            return Runtime::with_clock(Arc::clone(clock));
        }
        Runtime::shared()
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("key_prefix", &self.key_prefix)
            .field("schema", &self.schema)
            .field("table_name", &self.table_name)
            .field("fence_table_name", &self.fence_table_name)
            .field("pool_size", &self.pool_size)
            .field("connect_timeout", &self.connect_timeout)
            .field("operation_timeout", &self.operation_timeout)
            .field("dispose_timeout", &self.dispose_timeout)
            .field("fences", &self.fences)
            .finish_non_exhaustive()
    }
}

/// How long the calls of a client may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimeouts {
    /// A single operation.
    pub(crate) operation: Duration,
    /// The release in a drop.
    pub(crate) dispose: Duration,
}
