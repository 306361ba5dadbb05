//! The verbs of the SQLite store: the statements of each, in a transaction of `transaction`.

use std::sync::OnceLock;
use std::time::Duration;

use rusqlite::params;

use super::files;
use super::session::SqliteSessions;
use super::setup;
use super::sql::{self, Stored};
use super::transaction::{Boot, next_fence};
use super::url::SqliteUrl;
use super::volume;
use crate::backend::call::Call;
use crate::backend::keyspace::KeySpace;
use crate::backend::limits::Limits;
use crate::backend::pool::Rank;
use crate::backend::{Absence, AcquireOutcome, ExtendOutcome, LookupBy, ReleaseOutcome};
use crate::options::client::ClientOptions;
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::holder::Holder;
use crate::types::key::Key;
use crate::types::liveness::CLEANUP_GUARD_MS;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::{Acquired, StoredLock};
use crate::types::ttl::Ttl;

pub(super) struct SqliteVerbs {
    pub(super) owner: Owner,
    pub(super) operation_timeout: Duration,
    keys: KeySpace,
    pub(super) sessions: SqliteSessions,
    pub(super) boot: OnceLock<Boot>,
}

impl SqliteVerbs {
    pub(super) fn new(owner: Owner, url: SqliteUrl, options: &ClientOptions) -> Self {
        Self {
            owner,
            operation_timeout: options.operation_timeout,
            keys: KeySpace::table(),
            sessions: SqliteSessions::new(owner, url, options.pool_size),
            boot: OnceLock::new(),
        }
    }

    pub(super) fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let name = self.keys.lock(key)?;
        let counter = self.keys.fence(&name)?;
        self.write(Rank::Ordinary, call, |sqlite, now| {
            if let Some(Stored::Live(held)) =
                self.find_one(sqlite, sql::BY_KEY, &name, Some(now))?
            {
                let lock = held.lock;
                return Ok(if lock.lock_id == *lock_id {
                    // The first grant may have been read back from a log whose sync failed. A grant that is answered is on
                    // the disk: this commit takes it there.
                    sqlite.execute(sql::WRITE_AGAIN, [&held.key, lock_id.as_str()])?;
                    AcquireOutcome::Acquired(Acquired::new(
                        *lock_id,
                        lock.fence,
                        lock.expires_at_ms,
                    ))
                } else {
                    AcquireOutcome::Locked(Some(Holder::with_left(
                        Some(lock.lock_id.log_hash()),
                        Some(lock.fence),
                        held.left_ms,
                    )))
                });
            }
            let fence = next_fence(sqlite, &counter)?;
            let number = i64::try_from(fence.get()).unwrap_or(i64::MAX);
            let expires_at_ms = now.wall_ms.saturating_add(ttl.as_millis());
            let expires_boot_ms = now.boot_ms.saturating_add(ttl.as_millis());
            sqlite.execute(sql::WRITE_FENCE, params![counter, number])?;
            let grant = || {
                sqlite.execute(
                    sql::GRANT,
                    params![
                        name,
                        lock_id.as_str(),
                        expires_at_ms,
                        now.wall_ms,
                        number,
                        key.as_str(),
                        now.boot_id,
                        expires_boot_ms,
                        now.boot_ms
                    ],
                )
            };
            match grant() {
                Err(e)
                    if e.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) =>
                {
                    self.free_id(sqlite, lock_id, now)?;
                    grant()?;
                }
                done => {
                    done?;
                }
            }
            Ok(AcquireOutcome::Acquired(Acquired::new(
                *lock_id,
                fence,
                expires_at_ms,
            )))
        })
    }

    pub(super) fn release(
        &self,
        lock_id: &LockId,
        call: &Call<'_>,
    ) -> Result<ReleaseOutcome, LockError> {
        self.write(Rank::Upkeep, call, |sqlite, now| {
            let held = match self.find_one(sqlite, sql::BY_ID, lock_id.as_str(), Some(now))? {
                Some(Stored::Live(held)) if held.lock.lock_id == *lock_id => held,
                other => return Ok(ReleaseOutcome::Absent(absence(&other))),
            };
            let gone = sqlite.execute(sql::DELETE, params![held.key, lock_id.as_str()])?;
            Ok(if gone == 1 {
                ReleaseOutcome::Released
            } else {
                ReleaseOutcome::Absent(Absence::NotFound)
            })
        })
    }

    pub(super) fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        self.write(Rank::Upkeep, call, |sqlite, now| {
            let held = match self.find_one(sqlite, sql::BY_ID, lock_id.as_str(), Some(now))? {
                Some(Stored::Live(held)) if held.lock.lock_id == *lock_id => held,
                other => return Ok(ExtendOutcome::Absent(absence(&other))),
            };
            let expires_at_ms = now.wall_ms.saturating_add(ttl.as_millis());
            let changed = sqlite.execute(
                sql::EXTEND,
                params![
                    held.key,
                    lock_id.as_str(),
                    expires_at_ms,
                    now.boot_ms.saturating_add(ttl.as_millis()),
                    now.boot_ms,
                    now.boot_id
                ],
            )?;
            Ok(if changed == 1 {
                ExtendOutcome::Extended(expires_at_ms)
            } else {
                ExtendOutcome::Absent(Absence::NotFound)
            })
        })
    }

    pub(super) fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        Ok(self
            .read(sql::BY_KEY, &self.keys.lock(key)?, call)?
            .is_some())
    }

    pub(super) fn find(
        &self,
        by: LookupBy<'_>,
        call: &Call<'_>,
    ) -> Result<Option<StoredLock>, LockError> {
        let found = match by {
            LookupBy::Key(key) => self.read(sql::BY_KEY, &self.keys.lock(key)?, call)?,
            LookupBy::LockId(id) => self.read(sql::BY_ID, id.as_str(), call)?,
        };
        Ok(found.map(|live| live.lock))
    }

    pub(super) fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        self.setup_schema(call)?;
        let url = self.sessions.url();
        let mut found = files::warnings(url);
        found.extend(volume::warning(&url.path));
        Ok(found)
    }

    pub(super) fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        let limits = Limits::enter(self.owner, self.operation_timeout, call)?;
        // Creating takes the right to write also where there is nothing to create: a file that may only be read shows.
        self.with_connection(Rank::Ordinary, &limits, |connection| {
            connection.when_free(|| setup::create(&connection.sqlite))
        })
    }

    pub(super) fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        self.write(Rank::Ordinary, call, |sqlite, now| {
            let cut = now.boot_ms.saturating_sub(CLEANUP_GUARD_MS);
            let wall_cut = now.wall_ms.saturating_sub(CLEANUP_GUARD_MS);
            let gone = sqlite.execute(
                sql::PURGE,
                params![now.boot_id, cut, limit, now.boot_ms, wall_cut],
            )?;
            Ok(gone as u64)
        })
    }
}

fn absence(found: &Option<Stored>) -> Absence {
    match found {
        Some(Stored::Dead) => Absence::Expired,
        _ => Absence::NotFound,
    }
}
