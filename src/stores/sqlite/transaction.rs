//! [`Transactions`]: how a verb uses the file: one connection, one transaction, one look at the clock. It uses `session`, `sql` and
//! `lease_end`.

use std::sync::OnceLock;
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};

use super::connection::SqliteConnection;
use super::error::{self, Failure};
use super::lease_end::Now;
use super::session::SqliteSessions;
use super::sql::{self, Live, Stored};
use super::url::SqliteUrl;
use crate::backend::call::Call;
use crate::backend::limits::Limits;
use crate::backend::pool::Rank;
use crate::options::client::ClientOptions;
use crate::runtime::clock;
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::fence::{Fence, FenceSource};
use crate::types::lock_id::LockId;

/// What a process has to know once to read the machine's boot-time clock.
struct Boot {
    id: String,
    offset: clock::BootOffset,
}

impl Boot {
    fn read() -> std::io::Result<Self> {
        Ok(Self {
            id: clock::boot_id()?,
            offset: clock::boot_offset()?,
        })
    }
}

/// One file, as the verbs and the gate use it.
pub(super) struct Transactions {
    owner: Owner,
    operation_timeout: Duration,
    sessions: SqliteSessions,
    boot: OnceLock<Boot>,
}

impl Transactions {
    pub(super) fn new(owner: Owner, url: SqliteUrl, options: &ClientOptions) -> Self {
        Self {
            owner,
            operation_timeout: options.operation_timeout,
            sessions: SqliteSessions::new(owner, url, options.pool_size),
            boot: OnceLock::new(),
        }
    }

    pub(super) fn url(&self) -> &SqliteUrl {
        self.sessions.url()
    }

    /// The limits of a call, if it may begin.
    pub(super) fn limits<'a>(&self, call: &'a Call<'_>) -> Result<Limits<'a>, LockError> {
        Limits::enter(self.owner, self.operation_timeout, call)
    }

    /// Runs `work` on a connection of its own.
    pub(super) fn with_connection<T>(
        &self,
        rank: Rank,
        limits: &Limits<'_>,
        work: impl FnOnce(&SqliteConnection) -> Result<T, Failure>,
    ) -> Result<T, LockError> {
        let mut slot = self.sessions.slot(rank, limits)?;
        let connection = self
            .sessions
            .take(&mut slot, limits)
            .map_err(|e| e.into_error(limits))?;
        let result = work(&connection);
        let spared = result
            .as_ref()
            .err()
            .is_none_or(Failure::spares_the_connection);
        if spared && connection.sqlite.is_autocommit() {
            self.sessions.put(&mut slot, connection);
        }
        result.map_err(|e| e.into_error(limits))
    }

    /// The same for what writes, which takes its turn among the calls of this client.
    pub(super) fn with_writer<T>(
        &self,
        rank: Rank,
        limits: &Limits<'_>,
        work: impl FnOnce(&SqliteConnection) -> Result<T, Failure>,
    ) -> Result<T, LockError> {
        let _turn = self.sessions.writer(rank, limits)?;
        self.with_connection(rank, limits, work)
    }

    /// Runs `work` as the only writer. The clock is read when that is certain: a wait must not count against a lease.
    pub(super) fn write<T>(
        &self,
        rank: Rank,
        call: &Call<'_>,
        work: impl FnOnce(&Connection, &Now<'_>) -> Result<T, Failure>,
    ) -> Result<T, LockError> {
        let limits = self.limits(call)?;
        self.with_writer(rank, &limits, |connection| {
            connection.begin()?;
            let sqlite = &connection.sqlite;
            let done = limits
                .left()
                .map_err(Failure::from)
                .and_then(|_| work(sqlite, &self.now()?));
            match done {
                Ok(value) => match sqlite.execute(sql::COMMIT, []) {
                    Ok(_) => Ok(value),
                    Err(e) => {
                        // The log may hold the commit although its sync failed: the recovery after a crash would find it.
                        let error = error::from_sqlite(e, &limits).effect_unknown();
                        if !sqlite.is_autocommit() {
                            let _ = sqlite.execute_batch(sql::ROLLBACK);
                        }
                        Err(Failure::Commit(error))
                    }
                },
                Err(e) => {
                    if !sqlite.is_autocommit() {
                        sqlite.execute(sql::ROLLBACK, [])?;
                    }
                    Err(e)
                }
            }
        })
    }

    /// The one live lock that `statement` finds. A read of its own, without the right to write.
    pub(super) fn read(
        &self,
        statement: &str,
        argument: &str,
        call: &Call<'_>,
    ) -> Result<Option<Live>, LockError> {
        let limits = self.limits(call)?;
        self.with_connection(Rank::Ordinary, &limits, |connection| {
            connection.when_free(|| self.find_one(&connection.sqlite, statement, argument, None))
        })
        .map(|found| found.and_then(Stored::live))
    }

    /// Without `now`, the clock is read after the row.
    pub(super) fn find_one(
        &self,
        sqlite: &Connection,
        statement: &str,
        argument: &str,
        now: Option<&Now<'_>>,
    ) -> Result<Option<Stored>, Failure> {
        let mut statement = sqlite.prepare(statement)?;
        let mut rows = statement.query([argument])?;
        match (rows.next()?, now) {
            (None, _) => Ok(None),
            (Some(row), Some(now)) => Ok(Some(sql::judge(row, now)?)),
            (Some(row), None) => Ok(Some(sql::judge(row, &self.now()?)?)),
        }
    }

    pub(super) fn now(&self) -> Result<Now<'_>, LockError> {
        let boot = match self.boot.get() {
            Some(boot) => boot,
            None => {
                let boot = Boot::read().map_err(|e| {
                    let error = if error::out_of_descriptors() {
                        LockError::unavailable(error::NO_DESCRIPTORS)
                    } else {
                        LockError::internal("the system does not say which boot this is")
                    };
                    error.with_source(e).nothing_applied()
                })?;
                self.boot.get_or_init(|| boot)
            }
        };
        Ok(Now {
            boot_id: &boot.id,
            boot_ms: clock::machine_boot_ms(boot.offset),
            wall_ms: clock::wall_ms(),
        })
    }

    /// An id is stored once. A dead lock that has it is removed.
    pub(super) fn free_id(
        &self,
        sqlite: &Connection,
        id: &LockId,
        now: &Now<'_>,
    ) -> Result<(), Failure> {
        if let Some(Stored::Live(_)) =
            self.find_one(sqlite, sql::FIND_BY_ID, id.as_str(), Some(now))?
        {
            return Err(LockError::invalid(
                "this lock id holds another key already; mint a new one for every lock",
            )
            .into());
        }
        sqlite.execute(sql::DELETE_ID, [id.as_str()])?;
        Ok(())
    }
}

/// The fence after the stored counter, before anything is written.
pub(super) fn next_fence(
    sqlite: &Connection,
    counter: &str,
    source: FenceSource,
    now: &Now<'_>,
) -> Result<Fence, Failure> {
    let stored = sqlite
        .query_row(sql::READ_FENCE, [counter], |row| {
            Ok(match row.get_ref(0)? {
                ValueRef::Integer(n) => n,
                // Not a counter: `after` refuses it as it does every negative one.
                _ => -1,
            })
        })
        .optional()?;
    let stored = stored.unwrap_or(0);
    Ok(match source {
        FenceSource::Counter => Fence::after(stored)?,
        FenceSource::Clock => Fence::after_by_clock(stored, now.wall_ms)?,
    })
}
