//! The Postgres store: tables shared with the TypeScript library, functions that decide on the server, one round trip per verb. It
//! uses `net`, `backend`, `options`, `runtime` and `types`.

mod connection;
mod error;
pub mod format;
pub mod gate;
mod libpq;
mod message;
mod rows;
mod session;
mod setup;
mod sql;
mod startup;
mod transaction;
mod url;
mod verbs;
mod watch;

use std::fmt;
use std::sync::Arc;

use self::session::PostgresSessions;
pub(crate) use self::url::is_keyword_dsn;
use self::verbs::PostgresVerbs;
use crate::backend::call::Call;
use crate::backend::gate::GateStore;
use crate::backend::list::{ListOptions, ListPage};
use crate::backend::release_listener::ReleaseListener;
use crate::backend::{
    AcquireOutcome, Backend, Capabilities, ExtendOutcome, Freed, LookupBy, ReleaseOutcome, Watch,
};
use crate::options::client::ClientOptions;
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

/// Locks in a Postgres database, in tables that [`setup_schema`](Backend::setup_schema) creates.
///
/// Every verb is one round trip and one transaction; nothing about it depends on the role's or the database's settings, and
/// it works behind PgBouncer in transaction mode. Calls may come from any number of threads; each uses a connection of a
/// bounded pool for its own time. The docs list the least grants.
///
/// ```no_run
/// use syncguard::{Backend, Call, ClientOptions, PostgresBackend};
///
/// let store = PostgresBackend::open("postgres://app:secret@db.example/app?sslmode=verify-full", &ClientOptions::new())?;
/// store.setup_schema(&Call::new())?;
/// # Ok::<(), syncguard::LockError>(())
/// ```
pub struct PostgresBackend {
    verbs: PostgresVerbs,
    listener: ReleaseListener,
}

impl PostgresBackend {
    /// A store for `postgres://user:password@host:5432/database?option=value`, `postgresql://…` or `host=… user=…`. Does no
    /// I/O.
    ///
    /// Options: `sslmode` (`disable`, `prefer`, `require`, `verify-ca`, `verify-full`; default `prefer`), `sslrootcert`, `sslcert`
    /// and `sslkey`, `passfile`, `service` and `servicefile`, `env` (`0`, `1`: whether `PG…` variables count; default `0`),
    /// `channel_binding`, `application_name`, `connect_timeout` (seconds), `target_session_attrs` (`any`, `read-write`,
    /// `primary`), `pooler` (`auto`, `yes`), `fences` (`counter`, `clock`), `host` (also a directory with a unix socket), `port`, `user`, `password`, `dbname`. Several hosts are
    /// tried in order.
    ///
    /// ```
    /// use syncguard::{ClientOptions, PostgresBackend};
    ///
    /// let store = PostgresBackend::open("postgres://app@127.0.0.1/app", &ClientOptions::new())?;
    /// # drop(store);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a URL or an option that cannot be right: correct what the message
    /// names. No part of the URL but an option's name is repeated.
    pub fn open(url: &str, options: &ClientOptions) -> Result<Self, LockError> {
        options.checked()?;
        let owner = Owner::current();
        let sessions = Arc::new(PostgresSessions::new(url, options)?);
        let listening = Arc::clone(&sessions);
        let listener = ReleaseListener::new(
            owner,
            options.connect_timeout,
            Box::new(move |limits| Ok(Box::new(listening.listener(limits)?))),
        );
        Ok(Self {
            verbs: PostgresVerbs::new(owner, options.operation_timeout, sessions),
            listener,
        })
    }

    /// Whether the URL lets a connection be encrypted.
    pub(crate) fn may_use_tls(&self) -> bool {
        self.verbs.sessions().may_use_tls()
    }

    /// The SQL that [`setup_schema`](Backend::setup_schema) would run on an empty database, to be read and run by
    /// hand: one transaction that creates the tables and functions with the names in `options`, in their schema
    /// (created too) or in `public`. It fails if they are there. [`check`](Backend::check) then says whether all is well.
    ///
    /// ```
    /// use syncguard::{ClientOptions, PostgresBackend};
    ///
    /// let sql = PostgresBackend::schema_sql(&ClientOptions::new().schema("app"))?;
    /// assert!(sql.contains(r#"CREATE TABLE "app"."syncguard_locks""#));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for names that cannot be right: choose names that the message allows.
    pub fn schema_sql(options: &ClientOptions) -> Result<String, LockError> {
        let names = session::table_names(options)?;
        let named = names.schema.as_deref();
        let sql = sql::Sql::new(named.unwrap_or("public"), &names);
        Ok(setup::script(&sql, named.is_some()))
    }
}

impl Backend for PostgresBackend {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        self.verbs.acquire(key, lock_id, ttl, call)
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        self.verbs.release(lock_id, call)
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        self.verbs.extend(lock_id, ttl, call)
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        self.verbs.is_locked(key, call)
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        self.verbs.find(by, call)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("postgres").with_fence_source(self.verbs.fences())
    }

    fn gate(&self) -> Option<&dyn GateStore> {
        Some(&self.verbs)
    }

    /// One session listens for all waiters. Behind a pooler waiters poll.
    fn watch(&self, key: &Key, freed: Freed) -> Option<Watch> {
        self.listener.watch(self.verbs.lock_name(key).ok()?, freed)
    }

    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        self.verbs.check(call)
    }

    fn version(&self, call: &Call<'_>) -> Result<Option<String>, LockError> {
        self.verbs.version(call)
    }

    fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        self.verbs.setup_schema(call)
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        self.verbs.purge_expired(limit, call)
    }

    fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        self.verbs.list(options, call)
    }
}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresBackend")
            .field(self.verbs.sessions())
            .finish()
    }
}
