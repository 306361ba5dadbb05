//! The sessions of one store: which servers, how many at once, and the SQL that fits the tables found there. It uses
//! `connection`, `startup`, `sql`, `watch` and the pool of `backend`.

use std::fmt;
#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::connection::{Mode, PostgresConnection};
use super::error::garbled;
use super::libpq::{self, Destination, Service, ThisProcess};
use super::message::Param;
use super::sql::{GREET, Sql, held_function_name};
use super::startup::{self, Way};
use super::url::{PostgresUrl, RawOptions, SslMode};
use super::watch::PostgresListener;
use crate::backend::keyspace::TableNames;
use crate::backend::limits::Limits;
use crate::backend::pool::{Pool, Rank, Slot};
use crate::backend::store_clock::StoreClock;
use crate::net::dialer::Dialer;
use crate::net::password::{PasswordProvider, TWO_PASSWORDS};
#[cfg(feature = "tls")]
use crate::net::tls::{Tls, Verify};
use crate::net::uri::Endpoint;
use crate::options::client::ClientOptions;
#[cfg(feature = "tls")]
use crate::options::connections::CertificateFiles;
use crate::types::error::{ErrorCode, LockError};
use crate::types::fence::FenceSource;
use crate::types::secret::Secret;

/// Where the first answer of a session says whether texts of holders can be stored.
const HOLDERS_COLUMN: usize = 4;

pub(crate) struct PostgresSessions {
    /// Known from the start, or from the first connection on if a service file says where.
    place: OnceLock<Place>,
    service: Option<Box<Service>>,
    #[cfg(feature = "tls")]
    tls: TlsOptions,
    password: Option<Arc<PasswordProvider>>,
    dialer: Dialer,
    pub(crate) names: TableNames,
    /// Known from the start if the options name a schema, else from the first connection's search_path on: a path that
    /// changes later moves nothing.
    sql: OnceLock<Sql>,
    pool: Pool<PostgresConnection>,
    connect_timeout: Duration,
    pub(crate) fences: FenceSource,
    /// Whether a pooler is in between, as far as is known: then no session is ever taken for our own.
    pooled: AtomicBool,
    /// Whether texts of holders can be stored, as the last session that was made has found it.
    holders: AtomicBool,
}

/// Where the servers are, and how they are spoken to.
struct Place {
    url: PostgresUrl,
    #[cfg(feature = "tls")]
    tls: Tls,
}

/// What the options of the client say of TLS.
#[cfg(feature = "tls")]
struct TlsOptions {
    insecure: bool,
    ca_file: Option<PathBuf>,
    client_cert: Option<CertificateFiles>,
    config: Option<Arc<rustls::ClientConfig>>,
}

pub(crate) fn table_names(options: &ClientOptions) -> Result<TableNames, LockError> {
    TableNames::new(
        options.schema.as_deref(),
        options.table_name.as_deref(),
        options.fence_table_name.as_deref(),
    )
}

impl PostgresSessions {
    pub(crate) fn new(url: &str, options: &ClientOptions) -> Result<Self, LockError> {
        let said = RawOptions::read(url)?;
        if options.password.is_some() && said.get("password").is_some_and(|p| !p.is_empty()) {
            return Err(LockError::invalid(TWO_PASSWORDS));
        }
        let names = table_names(options)?;
        let sql = OnceLock::new();
        if let Some(schema) = &names.schema {
            let _ = sql.set(Sql::new(schema, &names));
        }
        let mut sessions = Self {
            place: OnceLock::new(),
            service: None,
            #[cfg(feature = "tls")]
            tls: TlsOptions {
                insecure: options.tls_insecure,
                ca_file: options.tls_ca_file.clone(),
                client_cert: options.tls_client_cert.clone(),
                config: options.tls_config.clone(),
            },
            password: options.password.clone().map(PasswordProvider::new),
            dialer: Dialer::new(options.connector.clone()),
            connect_timeout: options.connect_timeout,
            fences: said.fences()?.unwrap_or(options.fences),
            pooled: AtomicBool::new(said.pooler()?),
            holders: AtomicBool::new(false),
            names,
            sql,
            pool: Pool::new(options.pool_size),
        };
        match libpq::destination(url, &ThisProcess)? {
            Destination::Known(url) => {
                let place = sessions.place_of(*url)?;
                let _ = sessions.place.set(place);
            }
            Destination::Service(service) => sessions.service = Some(service),
        }
        Ok(sessions)
    }

    fn place_of(&self, url: PostgresUrl) -> Result<Place, LockError> {
        Ok(Place {
            #[cfg(feature = "tls")]
            tls: self.tls.of(&url)?,
            url,
        })
    }

    /// Where the servers are. A service file is read once: a client has one place for its locks.
    fn place(&self, limits: &Limits<'_>) -> Result<&Place, LockError> {
        if let (None, Some(service)) = (self.place.get(), &self.service) {
            let place = self.place_of(service.resolve(limits)?)?;
            return Ok(self.place.get_or_init(|| place));
        }
        self.place
            .get()
            .ok_or_else(|| LockError::internal("the servers are not known"))
    }

    /// The password for a connection to `endpoint` that is to be made now.
    fn password(
        &self,
        url: &PostgresUrl,
        endpoint: &Endpoint,
        limits: &Limits<'_>,
    ) -> Result<Option<Arc<Secret>>, LockError> {
        if let Some(provider) = &self.password {
            return provider.password(limits).map(Some);
        }
        match (&url.password, &url.password_file) {
            (Some(password), file) if !password.is_empty() || file.is_none() => {
                let bytes = password.as_bytes().to_vec();
                Ok(Some(Arc::new(Secret::new(bytes))))
            }
            (_, Some(file)) => libpq::password(file, url, endpoint, limits),
            _ => Ok(None),
        }
    }

    /// Whether texts of holders can be stored.
    pub(crate) fn has_holders(&self) -> bool {
        self.holders.load(Ordering::Relaxed)
    }

    /// Notes that a set-up has made the place for them.
    pub(crate) fn found_holders(&self) {
        self.holders.store(true, Ordering::Relaxed);
    }

    /// Whether the URL lets a connection be encrypted. A unix socket never is.
    pub(crate) fn may_use_tls(&self) -> bool {
        let remote = |host: &Endpoint| !matches!(host, Endpoint::Unix(_));
        let may =
            |place: &Place| place.url.ssl != SslMode::Disable && place.url.hosts.iter().any(remote);
        // What a service file will say is not known yet.
        cfg!(feature = "tls") && self.place.get().is_none_or(may)
    }

    /// Runs `call` on a session of the pool, and keeps the session if that ended well.
    pub(crate) fn with<T>(
        &self,
        rank: Rank,
        limits: &Limits<'_>,
        call: impl FnOnce(&mut PostgresConnection, &Sql) -> Result<T, LockError>,
    ) -> Result<T, LockError> {
        let mut slot = self.pool.slot(rank, limits)?;
        let mut connection = self
            .session(&mut slot, limits)
            .map_err(LockError::nothing_applied)?;
        let sql = self.sql.get().ok_or_else(no_schema)?;
        let result = call(&mut connection, sql);
        if connection.reached_another_session() {
            self.pooled.store(true, Ordering::Relaxed);
        }
        // A server that cannot serve, a standby for one, is asked for no more: the next call looks for a better one.
        let unfit = matches!(&result, Err(e) if e.code() == ErrorCode::ServiceUnavailable);
        if connection.is_clean() && !unfit {
            slot.put(connection);
        }
        result
    }

    fn session(
        &self,
        slot: &mut Slot<'_, PostgresConnection>,
        limits: &Limits<'_>,
    ) -> Result<PostgresConnection, LockError> {
        if let Some(mut connection) = slot.take()
            && connection.is_usable()
        {
            return Ok(connection);
        }
        self.connect(limits)
    }

    /// A session outside the pool that hears of releases.
    pub(crate) fn listener(&self, limits: &Limits<'_>) -> Result<PostgresListener, LockError> {
        let connection = self.connect(limits)?;
        PostgresListener::new(connection, self.sql.get().ok_or_else(no_schema)?, limits)
    }

    /// The first host that answers, in the order of the URL.
    fn connect(&self, limits: &Limits<'_>) -> Result<PostgresConnection, LockError> {
        let place = self.place(limits)?;
        let mut last = None;
        for endpoint in &place.url.hosts {
            if let Err(over) = limits.left() {
                // The error of a host tells more than that time is over.
                return Err(last.filter(|_| !limits.is_cancelled()).unwrap_or(over));
            }
            let timeout = place.url.connect_timeout.unwrap_or(self.connect_timeout);
            match self.connect_to(place, endpoint, &limits.within(timeout)) {
                Err(e) if is_elsewhere_better(&e) && !limits.is_cancelled() => last = Some(e),
                result => return result,
            }
        }
        Err(last.unwrap_or_else(|| LockError::internal("no host to connect to")))
    }

    fn connect_to(
        &self,
        place: &Place,
        endpoint: &Endpoint,
        limits: &Limits<'_>,
    ) -> Result<PostgresConnection, LockError> {
        // Before the connection: a server waits only so long for a login.
        let password = self.password(&place.url, endpoint, limits)?;
        let way = Way {
            endpoint,
            dialer: &self.dialer,
            #[cfg(feature = "tls")]
            tls: &place.tls,
        };
        let session = startup::start(&place.url, password, way, limits)?;
        let mut connection = PostgresConnection::new(session);
        // No process has this number: nothing is set for the session.
        let process = match self.pooled.load(Ordering::Relaxed) {
            true => -1,
            false => connection.process().into(),
        };
        let held_function = held_function_name(&self.names);
        let about = [
            Param::Text(&self.names.lock),
            Param::Int8(process),
            Param::Text(&held_function),
            Param::Text(self.names.schema.as_deref().unwrap_or_default()),
        ];
        let sent = Instant::now();
        let rows = connection.transact(Mode::Read, GREET, &about, limits)?;
        let row = rows.first().ok_or_else(garbled)?;
        if place.url.writable_only && row.bool(0)? {
            return Err(LockError::unavailable(
                "the server is a standby, and target_session_attrs asks for one that writes",
            ));
        }
        if self.sql.get().is_none() {
            let schema = row.text(1)?.ok_or_else(no_schema)?;
            self.sql.get_or_init(|| Sql::new(schema, &self.names));
        }
        if row.bool(2)? {
            connection.own();
        }
        // A server that does not say has none.
        let holders = row.bool(HOLDERS_COLUMN).unwrap_or(false);
        self.holders.store(holders, Ordering::Relaxed);
        if let Some(now_ms) = row.int8(3)? {
            connection.clock = Some(StoreClock::read(now_ms, sent));
        }
        Ok(connection)
    }
}

/// Whether another host may do what this one could not.
fn is_elsewhere_better(error: &LockError) -> bool {
    matches!(
        error.code(),
        ErrorCode::ServiceUnavailable | ErrorCode::NetworkTimeout
    )
}

fn no_schema() -> LockError {
    LockError::invalid(
        "the role's search_path names no schema that exists; name one with ClientOptions::schema",
    )
}

#[cfg(feature = "tls")]
impl TlsOptions {
    fn of(&self, url: &PostgresUrl) -> Result<Tls, LockError> {
        if let Some(config) = &self.config {
            if url.root_cert.is_some() || url.client_cert.is_some() {
                return Err(LockError::invalid(
                    "tls_config is set, and the URL names certificates: the configuration decides alone",
                ));
            }
            return Ok(Tls::own(Arc::clone(config)));
        }
        let roots = url.root_cert.clone().or_else(|| self.ca_file.clone());
        let verify = match url.ssl {
            _ if self.insecure => Verify::Nothing,
            SslMode::VerifyFull => Verify::Full,
            SslMode::VerifyCa => Verify::Authority,
            // As everywhere in Postgres: roots that the caller names are used.
            SslMode::Require if roots.is_some() => Verify::Authority,
            _ => Verify::Nothing,
        };
        let client_cert = url.client_cert.clone().or_else(|| self.client_cert.clone());
        Ok(Tls::new(verify, roots, client_cert))
    }
}

impl fmt::Debug for PostgresSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSessions")
            .field("url", &self.place.get().map(|place| &place.url))
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}
