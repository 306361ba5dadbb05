#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

mod connections;
mod literals;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use postgres::Client;
use r2d2::ManageConnection;
use syncguard::format::CLEANUP_GUARD_MS;
use syncguard::format::postgres::{self as format, Param, PostgresStatements};
use syncguard::{
    AcquireOutcome, Backend, Call, Capabilities, ErrorCode, ExtendOutcome, FenceSource, HelperCall,
    HelperThreads, Key, KeySpace, ListOptions, ListPage, LockError, LockId, LookupBy, MAX_FENCE,
    ReleaseOutcome, StoredLock, TIME_TOLERANCE_MS, TimedReply, Ttl,
};

use self::connections::{Answer, Borrowed, Connections, Mode, SharedPool, exchange};

/// Locks in Postgres over the connections of a program's own pool, in one budget with its other work. They are the locks of
/// [`PostgresBackend`](https://docs.rs/syncguard): the same tables, the same functions, the same fences.
///
/// ```no_run
/// use r2d2_postgres::PostgresConnectionManager;
/// use r2d2_postgres::postgres::NoTls;
/// use syncguard::Client;
/// use syncguard_postgres_pool::PostgresPool;
///
/// let manager = PostgresConnectionManager::new("host=localhost user=app".parse()?, NoTls);
/// let pool = r2d2::Pool::builder()
///     .test_on_check_out(false) // its empty query would be a trip more for every call
///     .build(manager)?;
/// let client = Client::from_backend(PostgresPool::new(pool.clone()));
/// client.setup_schema()?; // once per database
/// let guard = client.lock("invoice:42")?;
/// println!("fence {}", guard.fence());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What is weaker than the built-in driver
/// - **Time.** A call ends by its deadline and soon after a cancel, on a server that has stopped, is silent or answers a byte at a
///   time: a thread of the adapter makes it, and the caller leaves that thread alone. The thread and its connection stay with the
///   server until it answers or the connection breaks; the crate `postgres` has no timeout for that. At most
///   [`max_size`](r2d2::Pool::max_size) threads and one more can be stuck at once; a call that finds all of them stuck ends by its
///   deadline with `RateLimited`. A server that runs gives up a little before the deadline itself (`statement_timeout`, `lock_timeout`, for the
///   transaction only). Set `tcp_user_timeout` and keepalives in the connection string, so that connections to a machine that is gone break.
/// - **Latency.** A lock and its release took more than twice as long where both were measured: the way to that thread and back, and the server
///   parses three statements for each call, because a session of the program is not changed.
/// - **Standbys.** With synchronous replication, a commit that is told to wait no longer, by `pg_cancel_backend`, is taken for one that the standbys
///   have: the server says so in a warning only, which the driver gives to the program.
/// - **Waiting.** Nothing listens for releases: a waiter asks the store again after its retry delay.
/// - **Renewals** go before other calls of the adapter, but no connection is kept for them: size the pool so that the program's own
///   work leaves one free, or locks are lost.
/// - **Hosts** are those of the pool: a standby is an error.
/// - **Gates** (`Client::setup_fence_gate` and its kin) are not there. [`gate::postgres`](syncguard::gate) has their statements, for your own
///   transactions.
/// - **Fork.** The pool's threads are not in a forked child: open another pool there.
///
/// `docs/own-pools.md` in the repository has the figures beside those of the built-in driver.
///
/// # Connections
/// Each call is one transaction and one round trip, also behind PgBouncer in transaction mode, and leaves nothing in the session. A
/// connection that was dropped while it idled costs no call: the call goes on, within its deadline, on another one. The exception is a
/// release whose answer was lost and whose repetition finds nothing: that is an error of unknown effect. A connection on which reading or writing
/// has failed is closed by the crate `postgres`, and the pool drops it.
///
/// `Send` and `Sync`. Calls from inside asynchronous code work, and block.
pub struct PostgresPool {
    connections: Arc<dyn Connections>,
    threads: HelperThreads,
    keys: KeySpace,
    tables: Arc<Tables>,
    fences: FenceSource,
}

/// Where the tables are, as far as is known.
#[derive(Default)]
struct Tables {
    schema: Option<String>,
    table: Option<String>,
    fence_table: Option<String>,
    found: Mutex<Option<Found>>,
}

#[derive(Clone)]
struct Found {
    sql: Arc<PostgresStatements>,
    /// Whether texts of holders can be stored.
    holders: bool,
}

impl PostgresPool {
    /// Locks over the connections of `pool`, in the tables that their `search_path` finds. No I/O.
    ///
    /// The pool may be of `r2d2_postgres::PostgresConnectionManager`, with any TLS, or of any manager that makes [`postgres::Client`]s. With
    /// [`test_on_check_out`](r2d2::Pool::test_on_check_out), the default of r2d2, every call makes a trip more;
    /// [`check`](Backend::check) warns of it.
    ///
    /// ```no_run
    /// use r2d2_postgres::PostgresConnectionManager;
    /// use r2d2_postgres::postgres::NoTls;
    /// use syncguard_postgres_pool::PostgresPool;
    ///
    /// let manager = PostgresConnectionManager::new("host=localhost user=app".parse()?, NoTls);
    /// let store = PostgresPool::new(r2d2::Pool::builder().test_on_check_out(false).build(manager)?);
    /// # drop(store);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new<M>(pool: r2d2::Pool<M>) -> Self
    where
        M: ManageConnection<Connection = Client>,
    {
        Self {
            threads: HelperThreads::new(pool.max_size() as usize + 1),
            connections: Arc::new(SharedPool::new(pool)),
            keys: KeySpace::table(),
            tables: Arc::default(),
            fences: FenceSource::Counter,
        }
    }

    /// The same with tables in this schema, whatever the `search_path` is.
    ///
    /// ```no_run
    /// # use r2d2_postgres::{PostgresConnectionManager, postgres::NoTls};
    /// # let pool = r2d2::Pool::new(PostgresConnectionManager::new("host=localhost".parse()?, NoTls))?;
    /// let store = syncguard_postgres_pool::PostgresPool::new(pool).with_schema("app")?;
    /// # drop(store);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorCode::InvalidArgument) for a name that is not letters, digits and `_`, or is too long: choose another one.
    pub fn with_schema(self, schema: &str) -> Result<Self, LockError> {
        let tables = Tables {
            schema: Some(schema.to_owned()),
            ..self.tables.names()
        };
        self.with(tables)
    }

    /// The same with tables of these names.
    ///
    /// ```no_run
    /// # use r2d2_postgres::{PostgresConnectionManager, postgres::NoTls};
    /// # let pool = r2d2::Pool::new(PostgresConnectionManager::new("host=localhost".parse()?, NoTls))?;
    /// let store = syncguard_postgres_pool::PostgresPool::new(pool).with_tables("locks", "fences")?;
    /// # drop(store);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorCode::InvalidArgument) for names that are not letters, digits and `_`, are too long, or are the same: choose other
    /// ones.
    pub fn with_tables(self, table: &str, fence_table: &str) -> Result<Self, LockError> {
        let tables = Tables {
            table: Some(table.to_owned()),
            fence_table: Some(fence_table.to_owned()),
            ..self.tables.names()
        };
        self.with(tables)
    }

    /// The same with fences from this source. The default is [`FenceSource::Counter`].
    ///
    /// ```no_run
    /// # use r2d2_postgres::{PostgresConnectionManager, postgres::NoTls};
    /// # let pool = r2d2::Pool::new(PostgresConnectionManager::new("host=localhost".parse()?, NoTls))?;
    /// let store = syncguard_postgres_pool::PostgresPool::new(pool).with_fences(syncguard::FenceSource::Clock);
    /// # drop(store);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_fences(self, fences: FenceSource) -> Self {
        Self { fences, ..self }
    }

    /// How many threads of the adapter are with the server now. While the server has stopped, they are stuck there, each with a
    /// connection of the pool.
    ///
    /// ```no_run
    /// # use r2d2_postgres::{PostgresConnectionManager, postgres::NoTls};
    /// # let pool = r2d2::Pool::new(PostgresConnectionManager::new("host=localhost".parse()?, NoTls))?;
    /// let store = syncguard_postgres_pool::PostgresPool::new(pool);
    /// assert_eq!(store.threads_at_work(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn threads_at_work(&self) -> usize {
        self.threads.at_work()
    }

    fn with(self, tables: Tables) -> Result<Self, LockError> {
        // Checks the names.
        PostgresStatements::new(
            tables.schema.as_deref().unwrap_or("public"),
            tables.table.as_deref(),
            tables.fence_table.as_deref(),
        )?;
        Ok(Self {
            tables: Arc::new(tables),
            ..self
        })
    }

    /// Has a thread do `send` on a connection, once it is known where the tables are.
    fn run<T: Send + 'static>(
        &self,
        upkeep: bool,
        call: &Call<'_>,
        send: impl Fn(&mut Borrowed<'_>, &Found) -> Result<T, LockError> + Send + 'static,
    ) -> Result<Answer<T>, LockError> {
        let (connections, tables) = (Arc::clone(&self.connections), Arc::clone(&self.tables));
        let work = move |helper: &HelperCall| {
            exchange(&connections, helper, |connection| {
                let found = tables.find(connection)?;
                send(connection, &found)
            })
        };
        match upkeep {
            true => self.threads.run_first(call, work),
            false => self.threads.run(call, work),
        }
    }
}

impl Tables {
    /// The same names, before anything was found.
    fn names(&self) -> Self {
        Self {
            schema: self.schema.clone(),
            table: self.table.clone(),
            fence_table: self.fence_table.clone(),
            found: Mutex::default(),
        }
    }

    /// Asks a session once. If there was no place for texts of holders, each new session is asked again: there may be one by now.
    fn find(&self, connection: &mut Borrowed<'_>) -> Result<Found, LockError> {
        let known = self.known();
        if let Some(found) = known
            .clone()
            .filter(|found| found.holders || connection.clock().is_some())
        {
            return Ok(found);
        }
        let (table, fence_table) = (self.table.as_deref(), self.fence_table.as_deref());
        let rows = format::greet(self.schema.as_deref(), table, fence_table, |sql, params| {
            connection.run(Mode::Read, sql, params)
        })?
        .map_err(LockError::nothing_applied)?;
        let greeting = format::read_greeting(&rows)?;
        let sql = match (known, &self.schema, greeting.schema) {
            (Some(known), ..) => known.sql,
            (None, Some(schema), _) => {
                Arc::new(PostgresStatements::new(schema, table, fence_table)?)
            }
            (None, None, Some(schema)) => {
                let sql = PostgresStatements::in_found_schema(&schema, table, fence_table)?;
                Arc::new(sql)
            }
            (None, None, None) => {
                return Err(LockError::new(
                    ErrorCode::InvalidArgument,
                    "the role's search_path names no schema that exists; name one with PostgresPool::with_schema",
                ));
            }
        };
        let holders = greeting.holders;
        Ok(self.remember(Found { sql, holders }))
    }

    fn known(&self) -> Option<Found> {
        let found = self.found.lock();
        found.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, found: Found) -> Found {
        let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(found.clone());
        found
    }
}

/// Runs a function that changes a lease. The last parameter is the time after which the server refuses it.
fn run_in_time<T>(
    connection: &mut Borrowed<'_>,
    sql: &str,
    params: &[Param<'_>],
    read: impl Fn(&[format::Row]) -> Result<TimedReply<T>, LockError>,
) -> Result<T, LockError> {
    let mut clock = connection.clock();
    let helper = connection.helper();
    let answer = helper.send_in_time(&mut clock, |not_after| {
        let params = [params, &[Param::Int8(not_after)]].concat();
        read(&connection.run(Mode::Write, sql, &params)?)
    });
    connection.set_clock(clock);
    answer
}

impl Backend for PostgresPool {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let storage = self.keys.lock(key)?;
        let (fence_key, named) = (self.keys.fence(&storage)?, key.clone());
        let latest = format::latest_clock_ms(self.fences);
        let text = call
            .holder()
            .and_then(|text| text.bound_to(lock_id.as_str()));
        let (id, text) = (*lock_id, text.unwrap_or_default());
        let answer = self.run(false, call, move |connection, found| {
            let params = [
                Param::Text(&storage),
                Param::Text(&fence_key),
                Param::Text(named.as_str()),
                Param::Text(id.as_str()),
                Param::Int8(ttl.as_millis()),
                Param::Int8(TIME_TOLERANCE_MS),
                Param::Int8(MAX_FENCE as i64),
                Param::Int8(latest),
                Param::Text(&text),
            ];
            let (sql, params) = match found.holders {
                true => (found.sql.acquire_held(), &params[..]),
                false => (found.sql.acquire(), &params[..params.len() - 1]),
            };
            run_in_time(connection, sql, params, |rows| {
                format::read_acquire(rows, &id)
            })
        });
        answer
            .map(|answer| answer.value)
            .map_err(|e| e.for_key(key))
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        let id = *lock_id;
        let answer = self.run(true, call, move |connection, found| {
            let params = [Param::Text(id.as_str()), Param::Int8(TIME_TOLERANCE_MS)];
            connection.helper().sending()?;
            let rows = connection.run(Mode::Write, found.sql.release(), &params)?;
            format::read_release(&rows)
        })?;
        match answer.lost {
            // The first request may have released it.
            Some(lost) if !answer.value.is_released() && lost.may_have_applied() => Err(lost),
            _ => Ok(answer.value),
        }
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        let id = *lock_id;
        let answer = self.run(true, call, move |connection, found| {
            let params = [
                Param::Text(id.as_str()),
                Param::Int8(ttl.as_millis()),
                Param::Int8(TIME_TOLERANCE_MS),
            ];
            run_in_time(connection, found.sql.extend(), &params, format::read_extend)
        })?;
        Ok(answer.value)
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let storage = self.keys.lock(key)?;
        let answer = self.run(false, call, move |connection, found| {
            let params = [Param::Text(&storage)];
            connection.helper().sending()?;
            let rows = connection.run(Mode::Read, found.sql.is_locked(), &params)?;
            format::read_is_locked(&rows)
        });
        answer
            .map(|answer| answer.value)
            .map_err(|e| e.for_key(key))
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let (name, id) = match by {
            LookupBy::Key(key) => (self.keys.lock(key)?, None),
            LookupBy::LockId(id) => (id.as_str().to_owned(), Some(*id)),
        };
        let key = match by {
            LookupBy::Key(key) => Some(key.clone()),
            LookupBy::LockId(_) => None,
        };
        let answer = self.run(false, call, move |connection, found| {
            let sql = match (id, found.holders) {
                (None, true) => found.sql.find_by_key_held(),
                (None, false) => found.sql.find_by_key(),
                (Some(_), true) => found.sql.find_by_id_held(),
                (Some(_), false) => found.sql.find_by_id(),
            };
            connection.helper().sending()?;
            let rows = connection.run(Mode::Read, sql, &[Param::Text(&name)])?;
            match (&id, &key) {
                (Some(id), _) => format::read_find(&rows, LookupBy::LockId(id)),
                (None, Some(key)) => format::read_find(&rows, LookupBy::Key(key)),
                (None, None) => unreachable!("one of them is there"),
            }
        })?;
        Ok(answer.value)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("postgres-pool").with_fence_source(self.fences)
    }

    /// Looks at tables, functions, rights and settings; warns of a pool that tests its connections with a trip.
    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        let answer = self.run(false, call, |connection, found| {
            let ms = connection.server_ms();
            let findings = found.sql.check(connection, ms);
            let ended = connection.roll_back();
            let findings = findings?;
            ended.map(|()| findings)
        })?;
        let mut warnings = answer.value;
        if self.connections.tests_on_check_out() {
            warnings.push(
                "the pool tests each connection that it hands out (test_on_check_out), which is a trip more for every call; build it \
                 with test_on_check_out(false)"
                    .to_owned(),
            );
        }
        Ok(warnings)
    }

    /// As that of the built-in driver: creates what is missing, in one transaction. Give it a role that may create tables and functions.
    fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        let tables = Arc::clone(&self.tables);
        let answer = self.run(false, call, move |connection, found| {
            connection.helper().sending()?;
            let ms = connection.server_ms();
            let holders = found.sql.set_up(connection, ms).inspect_err(|_| {
                // Whatever is said of that, the error is the first one.
                let _ = connection.roll_back();
            })?;
            tables.remember(Found {
                holders,
                ..found.clone()
            });
            Ok(())
        });
        answer.map(|_| ())
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        let answer = self.run(false, call, move |connection, found| {
            let params = [Param::Int8(CLEANUP_GUARD_MS), Param::Int8(limit.into())];
            connection.helper().sending()?;
            let rows = connection.run(Mode::Write, found.sql.purge_expired(), &params)?;
            format::read_purge(&rows)
        })?;
        Ok(answer.value)
    }

    fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        let options = options.clone();
        options.checked()?;
        let answer = self.run(false, call, move |connection, found| {
            let request = options.checked()?;
            let sql = found.sql.list(request.after.is_some(), found.holders);
            let params = format::list_params(&request, found.sql.schema(), found.sql.table())?;
            connection.helper().sending()?;
            let rows = connection.run(Mode::Read, sql, &params)?;
            format::read_list(&rows, &request)
        })?;
        Ok(answer.value)
    }
}

impl fmt::Debug for PostgresPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresPool")
            .field("schema", &self.tables.schema)
            .field("fences", &self.fences)
            .finish_non_exhaustive()
    }
}
