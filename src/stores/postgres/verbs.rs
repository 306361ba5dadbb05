//! The verbs of the Postgres store: the parameters of each statement, and what its rows mean. It uses `connection`, `error`,
//! `message`, `session`, `setup`, `transaction`, `backend`, `runtime` and `types`.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Mode;
use super::message::{Param, Row};
use super::rows::{self, ACQUIRE_LATE_COLUMN, EXTEND_LATE_COLUMN};
use super::session::PostgresSessions;
use super::setup;
use super::transaction::NO_SEQSCAN;
use crate::backend::call::Call;
use crate::backend::keyspace::KeySpace;
use crate::backend::limits::Limits;
use crate::backend::list::{ListOptions, ListPage};
use crate::backend::pool::Rank;
use crate::backend::{AcquireOutcome, ExtendOutcome, LookupBy, ReleaseOutcome};
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::fence::{FenceSource, MAX_FENCE};
use crate::types::key::Key;
use crate::types::liveness::{CLEANUP_GUARD_MS, TIME_TOLERANCE_MS};
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

const VERSION: &str = "SELECT pg_catalog.current_setting('server_version')";

pub(crate) struct PostgresVerbs {
    owner: Owner,
    operation_timeout: Duration,
    keys: KeySpace,
    sessions: Arc<PostgresSessions>,
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

    pub(crate) fn fences(&self) -> FenceSource {
        self.sessions.fences
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
        let holder = call
            .holder()
            .and_then(|text| text.bound_to(lock_id.as_str()));
        self.acquire_within(key, lock_id, ttl, holder.as_deref(), &limits)
            .map_err(|e| e.for_key(key))
    }

    fn acquire_within(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        holder: Option<&str>,
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
                    Param::Int8(rows::latest_clock_ms(self.fences())),
                    Param::Text(holder.unwrap_or_default()),
                ];
                let (call, params) = match self.sessions.has_holders() {
                    true => (&sql.acquire_held, &params[..]),
                    false => (&sql.acquire, &params[..params.len() - 1]),
                };
                connection.call_in_time(call, params, ACQUIRE_LATE_COLUMN, limits)
            })?;
        rows::grant(&record, lock_id)
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
        rows::read_release(&rows)
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
        rows::extension(&record)
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
        rows::read_find(&self.read(by, &limits)?, by)
    }

    pub(crate) fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        let request = options.checked()?;
        let limits = self.limits(call)?;
        let rows = self
            .sessions
            .with(Rank::Ordinary, &limits, |connection, sql| {
                let text = sql.list(request.after.is_some(), self.sessions.has_holders());
                let params = rows::list_params(&request, &sql.schema, &self.sessions.names.lock)?;
                connection.transact_with(Mode::Read, &[NO_SEQSCAN], text, &params, &limits)
            })?;
        rows::read_list(&rows, &request)
    }

    pub(crate) fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        let limits = self.limits(call)?;
        self.sessions
            .with(Rank::Ordinary, &limits, |connection, sql| {
                setup::check(connection, sql, &self.sessions.names, &limits)
            })
    }

    pub(crate) fn version(&self, call: &Call<'_>) -> Result<Option<String>, LockError> {
        let limits = self.limits(call)?;
        let rows = self
            .sessions
            .with(Rank::Ordinary, &limits, |connection, _| {
                connection.transact(Mode::Read, VERSION, &[], &limits)
            })?;
        Ok(rows::only(&rows)?.text(0)?.map(str::to_owned))
    }

    pub(crate) fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        let limits = self.limits(call)?;
        self.sessions
            .with(Rank::Ordinary, &limits, |connection, sql| {
                setup::create(connection, sql, &self.sessions.names, &limits)
            })
            .map(|holders| {
                if holders {
                    self.sessions.found_holders()
                }
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
        rows::read_purge(&rows)
    }

    fn is_locked_within(&self, key: &Key, limits: &Limits<'_>) -> Result<bool, LockError> {
        let storage = self.keys.lock(key)?;
        let rows = self
            .sessions
            .with(Rank::Ordinary, limits, |connection, sql| {
                let params = [Param::Text(&storage)];
                connection.call(Mode::Read, &sql.is_locked, &params, limits)
            })?;
        rows::read_is_locked(&rows)
    }

    /// The stored row with the server's time, if there is one.
    fn read(&self, by: LookupBy<'_>, limits: &Limits<'_>) -> Result<Vec<Row>, LockError> {
        let storage;
        let name = match by {
            LookupBy::Key(key) => {
                storage = self.keys.lock(key)?;
                storage.as_str()
            }
            LookupBy::LockId(id) => id.as_str(),
        };
        self.sessions
            .with(Rank::Ordinary, limits, |connection, sql| {
                let look = match by {
                    LookupBy::Key(_) if self.sessions.has_holders() => &sql.by_key_held,
                    LookupBy::Key(_) => &sql.by_key,
                    LookupBy::LockId(_) if self.sessions.has_holders() => &sql.by_id_held,
                    LookupBy::LockId(_) => &sql.by_id,
                };
                connection.call(Mode::Read, look, &[Param::Text(name)], limits)
            })
    }

    pub(super) fn limits<'a>(&self, call: &Call<'a>) -> Result<Limits<'a>, LockError> {
        Limits::enter(self.owner, self.operation_timeout, call)
    }
}
