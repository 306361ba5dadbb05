//! The sessions of one store: which servers, how many at once, and the SQL that fits the tables found there. It uses the pool of
//! `backend` and `startup`.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::connection::{Mode, PostgresConnection};
use super::error::garbled;
use super::message::Param;
use super::sql::{GREET, Sql};
use super::startup;
use super::url::{PostgresUrl, SslMode};
use super::watch::PostgresListener;
use crate::backend::keyspace::TableNames;
use crate::backend::limits::Limits;
use crate::backend::pool::{Pool, Rank, Slot};
use crate::backend::store_clock::StoreClock;
use crate::net::uri::Endpoint;
use crate::options::client::ClientOptions;
use crate::types::error::{ErrorCode, LockError};

pub(crate) struct PostgresSessions {
    url: PostgresUrl,
    #[cfg(feature = "tls")]
    tls: crate::net::tls::Tls,
    pub(crate) names: TableNames,
    /// Known from the start if the options name a schema, else from the first connection's search_path on: a path that
    /// changes later moves nothing.
    sql: OnceLock<Sql>,
    pool: Pool<PostgresConnection>,
    connect_timeout: Duration,
    /// Whether a pooler is in between, as far as is known: then no session is ever taken for our own.
    pooled: AtomicBool,
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
        let url = PostgresUrl::parse(url)?;
        let names = table_names(options)?;
        let sql = OnceLock::new();
        if let Some(schema) = &names.schema {
            let _ = sql.set(Sql::new(schema, &names));
        }
        Ok(Self {
            #[cfg(feature = "tls")]
            tls: tls(&url, options),
            connect_timeout: url.connect_timeout.unwrap_or(options.connect_timeout),
            pooled: AtomicBool::new(url.pooler),
            url,
            names,
            sql,
            pool: Pool::new(options.pool_size),
        })
    }

    /// Whether the URL lets a connection be encrypted. A unix socket never is.
    pub(crate) fn may_use_tls(&self) -> bool {
        let remote = |host: &Endpoint| !matches!(host, Endpoint::Unix(_));
        cfg!(feature = "tls")
            && self.url.ssl != SslMode::Disable
            && self.url.hosts.iter().any(remote)
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
        let mut last = None;
        for endpoint in &self.url.hosts {
            if let Err(over) = limits.left() {
                // The error of a host tells more than that time is over.
                return Err(last.filter(|_| !limits.is_cancelled()).unwrap_or(over));
            }
            match self.connect_to(endpoint, &limits.within(self.connect_timeout)) {
                Err(e) if is_elsewhere_better(&e) && !limits.is_cancelled() => last = Some(e),
                result => return result,
            }
        }
        Err(last.unwrap_or_else(|| LockError::internal("no host to connect to")))
    }

    fn connect_to(
        &self,
        endpoint: &Endpoint,
        limits: &Limits<'_>,
    ) -> Result<PostgresConnection, LockError> {
        let session = startup::start(
            &self.url,
            #[cfg(feature = "tls")]
            &self.tls,
            endpoint,
            limits,
        )?;
        let mut connection = PostgresConnection::new(session);
        // No process has this number: nothing is set for the session.
        let process = match self.pooled.load(Ordering::Relaxed) {
            true => -1,
            false => connection.process().into(),
        };
        let about = [Param::Text(&self.names.lock), Param::Int8(process)];
        let sent = Instant::now();
        let rows = connection.transact(Mode::Read, GREET, &about, limits)?;
        let row = rows.first().ok_or_else(garbled)?;
        if self.url.writable_only && row.bool(0)? {
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
fn tls(url: &PostgresUrl, options: &ClientOptions) -> crate::net::tls::Tls {
    use crate::net::tls::{Tls, Verify};
    let roots = url
        .root_cert
        .clone()
        .or_else(|| options.tls_ca_file.clone());
    let verify = match url.ssl {
        _ if options.tls_insecure => Verify::Nothing,
        SslMode::VerifyFull => Verify::Full,
        SslMode::VerifyCa => Verify::Authority,
        // As everywhere in Postgres: roots that the caller names are used.
        SslMode::Require if roots.is_some() => Verify::Authority,
        _ => Verify::Nothing,
    };
    Tls::new(verify, roots)
}

impl fmt::Debug for PostgresSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSessions")
            .field("url", &self.url)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}
