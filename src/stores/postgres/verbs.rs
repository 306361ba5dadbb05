//! The verbs of the Postgres store: the parameters of each statement, and what its rows mean.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Mode;
use super::error;
use super::message::{Param, Row};
use super::session::PostgresSessions;
use super::setup;
use crate::backend::call::Call;
use crate::backend::keyspace::KeySpace;
use crate::backend::limits::Limits;
use crate::backend::pool::Rank;
use crate::backend::{Absence, AcquireOutcome, ExtendOutcome, LookupBy, ReleaseOutcome};
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::fence::{Fence, MAX_FENCE};
use crate::types::holder::Holder;
use crate::types::key::{Key, hash_key};
use crate::types::liveness::{CLEANUP_GUARD_MS, TIME_TOLERANCE_MS, is_live};
use crate::types::lock_id::LockId;
use crate::types::stored_lock::{Acquired, StoredLock};
use crate::types::ttl::Ttl;

/// Where the functions say that a request came too late: `o_late_ms` in functions.sql.
const ACQUIRE_LATE_COLUMN: usize = 5;
const EXTEND_LATE_COLUMN: usize = 2;

pub(crate) struct PostgresVerbs {
    owner: Owner,
    operation_timeout: Duration,
    keys: KeySpace,
    sessions: Arc<PostgresSessions>,
}

/// A row of the lock table, whether the lock lives or not.
struct StoredRow {
    row: Row,
    expires: i64,
    /// The server's time.
    now: i64,
}

impl PostgresVerbs {
    pub(crate) fn new(
        owner: Owner,
        operation_timeout: Duration,
        sessions: Arc<PostgresSessions>,
    ) -> Self {
        Self {
            owner,
            operation_timeout,
            keys: KeySpace::table(),
            sessions,
        }
    }

    pub(crate) fn sessions(&self) -> &PostgresSessions {
        &self.sessions
    }

    /// The name under which the lock of `key` is stored.
    pub(crate) fn lock_name(&self, key: &Key) -> Result<String, LockError> {
        self.keys.lock(key)
    }

    pub(crate) fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let limits = self.limits(call)?;
        self.acquire_within(key, lock_id, ttl, &limits)
            .map_err(|e| e.for_key(key))
    }

    fn acquire_within(
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
                connection.call_in_time(&sql.acquire, &params, ACQUIRE_LATE_COLUMN, limits)
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

    pub(crate) fn release(
        &self,
        lock_id: &LockId,
        call: &Call<'_>,
    ) -> Result<ReleaseOutcome, LockError> {
        let limits = self.limits(call)?;
        let rows = self
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

    pub(crate) fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        let limits = self.limits(call)?;
        let record = self
            .sessions
            .with(Rank::Upkeep, &limits, |connection, sql| {
                let params = [
                    Param::Text(lock_id.as_str()),
                    Param::Int8(ttl.as_millis()),
                    Param::Int8(TIME_TOLERANCE_MS),
                ];
                connection.call_in_time(&sql.extend, &params, EXTEND_LATE_COLUMN, &limits)
            })?;
        Ok(match (record.bool(0)?, record.int8(1)?) {
            (_, Some(expires)) => ExtendOutcome::Extended(expires),
            (true, None) => ExtendOutcome::Absent(Absence::Expired),
            (false, None) => ExtendOutcome::Absent(Absence::NotFound),
        })
    }

    pub(crate) fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let limits = self.limits(call)?;
        self.is_locked_within(key, &limits)
            .map_err(|e| e.for_key(key))
    }

    pub(crate) fn find(
        &self,
        by: LookupBy<'_>,
        call: &Call<'_>,
    ) -> Result<Option<StoredLock>, LockError> {
        let limits = self.limits(call)?;
        let Some(StoredRow { row, expires, now }) = self.read(by, &limits)? else {
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

    pub(crate) fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        let limits = self.limits(call)?;
        self.sessions
            .with(Rank::Ordinary, &limits, |connection, sql| {
                setup::check(connection, sql, &self.sessions.names, &limits)
            })
    }

    pub(crate) fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        let limits = self.limits(call)?;
        self.sessions
            .with(Rank::Ordinary, &limits, |connection, sql| {
                setup::create(connection, sql, &self.sessions.names, &limits)
            })
    }

    pub(crate) fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        let limits = &self.limits(call)?;
        let params = [Param::Int8(CLEANUP_GUARD_MS), Param::Int8(limit.into())];
        let rows = self
            .sessions
            .with(Rank::Ordinary, limits, |connection, sql| {
                connection.transact(Mode::Write, &sql.purge, &params, limits)
            })?;
        let count = only(rows)?.int8(0)?.unwrap_or(0);
        Ok(count.unsigned_abs())
    }

    fn is_locked_within(&self, key: &Key, limits: &Limits<'_>) -> Result<bool, LockError> {
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

    /// The stored row and the server's time.
    fn read(&self, by: LookupBy<'_>, limits: &Limits<'_>) -> Result<Option<StoredRow>, LockError> {
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
        Ok(Some(StoredRow { row, expires, now }))
    }

    fn limits<'a>(&self, call: &Call<'a>) -> Result<Limits<'a>, LockError> {
        Limits::enter(self.owner, self.operation_timeout, call)
    }
}

fn only(rows: Vec<Row>) -> Result<Row, LockError> {
    rows.into_iter().next().ok_or_else(error::garbled)
}

fn foreign() -> LockError {
    LockError::internal("the stored row of this lock is not one of ours")
}
