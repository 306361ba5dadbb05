//! Postgres: tables shared with the TypeScript library, functions that decide on the server, one round trip per verb.

mod connection;
mod error;
mod message;
mod session;
mod setup;
mod sql;
mod startup;
mod transaction;
mod url;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::connection::Mode;
use self::message::{Param, Row};
use self::session::Sessions;
pub(crate) use self::url::is_keyword_dsn;
use crate::backend::call::Call;
use crate::backend::keyspace::KeySpace;
use crate::backend::limits::Limits;
use crate::backend::pool::Rank;
use crate::backend::release_listener::{Ear, Freed, Wire};
use crate::backend::{
    Absence, AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome, Watch,
};
use crate::options::client::ClientOptions;
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::fence::{Fence, MAX_FENCE};
use crate::types::holder::Holder;
use crate::types::key::{Key, hash_key};
use crate::types::liveness::{CLEANUP_GUARD_MS, TIME_TOLERANCE_MS, is_live};
use crate::types::lock_id::LockId;
use crate::types::stored_lock::Acquired;
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
pub struct PostgresBackend(Arc<Inner>, Ear);

struct Inner {
    owner: Owner,
    sessions: Sessions,
    keys: KeySpace,
    operation_timeout: Duration,
}

impl PostgresBackend {
    /// A store for `postgres://user:password@host:5432/database?option=value`, `postgresql://…` or `host=… user=…`. Does no
    /// I/O.
    ///
    /// Options: `sslmode` (`disable`, `prefer`, `require`, `verify-ca`, `verify-full`; default `prefer`), `sslrootcert`,
    /// `channel_binding`, `application_name`, `connect_timeout` (seconds), `target_session_attrs` (`any`, `read-write`,
    /// `primary`), `pooler` (`auto`, `yes`), `host` (also a directory with a unix socket), `port`, `user`, `password`, `dbname`. Several hosts are
    /// tried in order.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL or an option that cannot be right; no part of the URL but an option's name is repeated.
    pub fn open(url: &str, options: &ClientOptions) -> Result<Self, LockError> {
        options.checked()?;
        let owner = Owner::current();
        let inner = Arc::new(Inner {
            owner,
            sessions: Sessions::new(url, options)?,
            keys: KeySpace::table(),
            operation_timeout: options.operation_timeout,
        });
        let sessions = Arc::clone(&inner);
        let dial = move |limits: &Limits<'_>| -> Result<Box<dyn Wire>, LockError> {
            Ok(Box::new(sessions.sessions.listener(limits)?))
        };
        let ear = Ear::new(owner, options.connect_timeout, Box::new(dial));
        Ok(Self(inner, ear))
    }

    /// The SQL that [`setup_schema`](Backend::setup_schema) would run on an empty database, for people who read and run such
    /// things themselves: one transaction that creates the tables and functions with the names in `options`, in their schema
    /// (created too) or in `public`. It fails if they are there. [`check`](Backend::check) then says whether all is well.
    ///
    /// # Errors
    /// `InvalidArgument` for names that cannot be right.
    ///
    /// ```
    /// use syncguard::{ClientOptions, PostgresBackend};
    ///
    /// let sql = PostgresBackend::schema_sql(&ClientOptions::new().schema("app"))?;
    /// assert!(sql.contains(r#"CREATE TABLE "app"."syncguard_locks""#));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn schema_sql(options: &ClientOptions) -> Result<String, LockError> {
        let names = session::table_names(options)?;
        let named = names.schema.as_deref();
        let sql = sql::Sql::new(named.unwrap_or("public"), &names);
        Ok(setup::script(&sql, named.is_some()))
    }
}

impl Inner {
    fn limits<'a>(&self, call: &Call<'a>) -> Result<Limits<'a>, LockError> {
        Limits::enter(self.owner, self.operation_timeout, call)
    }

    fn purge(&self, limit: u32, limits: &Limits<'_>) -> Result<u64, LockError> {
        let params = [Param::Int8(CLEANUP_GUARD_MS), Param::Int8(limit.into())];
        let rows = self
            .sessions
            .with(Rank::Ordinary, limits, |connection, sql| {
                connection.transact(Mode::Write, &sql.purge, &params, limits)
            })?;
        let count = only(rows)?.int8(0)?.unwrap_or(0);
        Ok(count.unsigned_abs())
    }

    fn is_locked(&self, key: &Key, limits: &Limits<'_>) -> Result<bool, LockError> {
        let storage = self.keys.lock(key)?;
        let rows = self
            .sessions
            .with(Rank::Ordinary, limits, |connection, sql| {
                let params = [Param::Text(&storage)];
                connection.call(Mode::Read, &sql.is_locked, &params, limits)
            })?;
        let Some(row) = rows.first() else {
            return Ok(false);
        };
        let (expires, now) = (row.int8(0)?, row.int8(1)?);
        Ok(is_live(
            expires.ok_or_else(foreign)?,
            now.ok_or_else(foreign)?,
        ))
    }

    /// The stored row and the server's time, whether it is alive or not.
    fn read(
        &self,
        by: LookupBy<'_>,
        limits: &Limits<'_>,
    ) -> Result<Option<(Row, i64, i64)>, LockError> {
        let storage;
        let name = match by {
            LookupBy::Key(key) => {
                storage = self.keys.lock(key)?;
                storage.as_str()
            }
            LookupBy::LockId(id) => id.as_str(),
        };
        let rows = self
            .sessions
            .with(Rank::Ordinary, limits, |connection, sql| {
                let look = match by {
                    LookupBy::Key(_) => &sql.by_key,
                    LookupBy::LockId(_) => &sql.by_id,
                };
                connection.call(Mode::Read, look, &[Param::Text(name)], limits)
            })?;
        let Some(row) = rows.into_iter().next() else {
            return Ok(None);
        };
        let expires = row.int8(2)?.ok_or_else(foreign)?;
        let now = row.int8(5)?.ok_or_else(foreign)?;
        Ok(Some((row, expires, now)))
    }
}

fn only(rows: Vec<Row>) -> Result<Row, LockError> {
    rows.into_iter().next().ok_or_else(error::garbled)
}

fn foreign() -> LockError {
    LockError::internal("the stored row of this lock is not one of ours")
}

impl Backend for PostgresBackend {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let limits = self.0.limits(call)?;
        self.0
            .acquire(key, lock_id, ttl, &limits)
            .map_err(|e| e.for_key(key))
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        let limits = self.0.limits(call)?;
        let rows = self
            .0
            .sessions
            .with(Rank::Upkeep, &limits, |connection, sql| {
                let params = [
                    Param::Text(lock_id.as_str()),
                    Param::Int8(TIME_TOLERANCE_MS),
                ];
                connection.call(Mode::Write, &sql.release, &params, &limits)
            })?;
        let record = only(rows)?.record()?;
        Ok(match (record.bool(0)?, record.bool(1)?) {
            (_, true) => ReleaseOutcome::Released,
            (true, false) => ReleaseOutcome::Absent(Absence::Expired),
            (false, false) => ReleaseOutcome::Absent(Absence::NotFound),
        })
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        let limits = self.0.limits(call)?;
        let record = self
            .0
            .sessions
            .with(Rank::Upkeep, &limits, |connection, sql| {
                let params = [
                    Param::Text(lock_id.as_str()),
                    Param::Int8(ttl.as_millis()),
                    Param::Int8(TIME_TOLERANCE_MS),
                ];
                connection.call_in_time(&sql.extend, &params, 2, &limits)
            })?;
        Ok(match (record.bool(0)?, record.int8(1)?) {
            (_, Some(expires)) => ExtendOutcome::Extended(expires),
            (true, None) => ExtendOutcome::Absent(Absence::Expired),
            (false, None) => ExtendOutcome::Absent(Absence::NotFound),
        })
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let limits = self.0.limits(call)?;
        self.0.is_locked(key, &limits).map_err(|e| e.for_key(key))
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let limits = self.0.limits(call)?;
        let Some((row, expires, now)) = self.0.read(by, &limits)? else {
            return Ok(None);
        };
        if !is_live(expires, now) {
            return Ok(None);
        }
        let text = |i| row.text(i)?.ok_or_else(foreign);
        let id = LockId::parse(text(0)?).map_err(|_| foreign())?;
        if matches!(by, LookupBy::LockId(wanted) if *wanted != id) {
            return Ok(None);
        }
        let fence = Fence::parse(text(1)?).map_err(|_| foreign())?;
        let acquired = row.int8(3)?.ok_or_else(foreign)?;
        Ok(Some(StoredLock::new(
            text(4)?,
            id,
            fence,
            expires,
            acquired,
        )))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("postgres")
    }

    /// One session listens for all who wait. Behind a pooler waiters poll.
    fn watch(&self, key: &Key, freed: Freed) -> Option<Watch> {
        self.1.watch(self.0.keys.lock(key).ok()?, freed)
    }

    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        let limits = self.0.limits(call)?;
        self.0
            .sessions
            .with(Rank::Ordinary, &limits, |connection, sql| {
                setup::check(connection, sql, &self.0.sessions.names, &limits)
            })
    }

    fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        let limits = self.0.limits(call)?;
        self.0
            .sessions
            .with(Rank::Ordinary, &limits, |connection, sql| {
                setup::create(connection, sql, &self.0.sessions.names, &limits)
            })
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        self.0.purge(limit, &self.0.limits(call)?)
    }
}

impl Inner {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        limits: &Limits<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let storage = self.keys.lock(key)?;
        let fence_key = self.keys.fence(&storage)?;
        let record = self
            .sessions
            .with(Rank::Ordinary, limits, |connection, sql| {
                let params = [
                    Param::Text(&storage),
                    Param::Text(&fence_key),
                    Param::Text(key.as_str()),
                    Param::Text(lock_id.as_str()),
                    Param::Int8(ttl.as_millis()),
                    Param::Int8(TIME_TOLERANCE_MS),
                    Param::Int8(MAX_FENCE as i64),
                ];
                connection.call_in_time(&sql.acquire, &params, 5, limits)
            })?;
        let (granted, owner) = (record.bool(0)?, record.text(1)?);
        let fence = record.text(2)?.and_then(|text| Fence::parse(text).ok());
        let (expires, now) = (record.int8(3)?, record.int8(4)?.ok_or_else(foreign)?);
        if granted {
            return match (fence, expires) {
                (Some(fence), Some(expires)) if owner == Some(lock_id.as_str()) => Ok(
                    AcquireOutcome::Acquired(Acquired::new(*lock_id, fence, expires)),
                ),
                _ => Err(foreign()),
            };
        }
        let hash = owner.map(hash_key);
        Ok(AcquireOutcome::Locked(Some(match expires {
            Some(at) => Holder::with_left(hash, fence, at.saturating_sub(now)),
            None => Holder::new(hash, fence, None),
        })))
    }
}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresBackend")
            .field(&self.0.sessions)
            .finish()
    }
}
