//! The verbs of the SQLite store: the statements of each, in a transaction of `transaction`. It uses `error`, `files`, `setup`,
//! `sql`, `transaction`, `url`, `volume`, `backend`, `options`, `runtime` and `types`.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement, ToSql, params, params_from_iter};

use super::error::Failure;
use super::files;
use super::setup;
use super::sql::{self, Stored};
use super::transaction::{Transactions, next_fence};
use super::url::SqliteUrl;
use super::volume;
use crate::backend::call::Call;
use crate::backend::keyspace::KeySpace;
use crate::backend::list::{ListCursor, ListOptions, ListPage};
use crate::backend::pool::Rank;
use crate::backend::{Absence, AcquireOutcome, ExtendOutcome, LookupBy, ReleaseOutcome};
use crate::options::client::ClientOptions;
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::fence::FenceSource;
use crate::types::holder::Holder;
use crate::types::holder_text::HolderText;
use crate::types::key::Key;
use crate::types::liveness::CLEANUP_GUARD_MS;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::{Acquired, StoredLock};
use crate::types::ttl::Ttl;

pub(super) struct SqliteVerbs {
    keys: KeySpace,
    pub(super) fences: FenceSource,
    pub(super) file: Transactions,
}

impl SqliteVerbs {
    pub(super) fn new(owner: Owner, url: SqliteUrl, options: &ClientOptions) -> Self {
        Self {
            keys: KeySpace::table(),
            fences: url.fences.unwrap_or(options.fences),
            file: Transactions::new(owner, url, options),
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
        self.file.write(Rank::Ordinary, call, |sqlite, now| {
            if let Some(Stored::Live(held)) =
                self.file
                    .find_one(sqlite, sql::FIND_BY_KEY, &name, Some(now))?
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
                    AcquireOutcome::Locked(Some(
                        Holder::with_left(
                            Some(lock.lock_id.log_hash()),
                            Some(lock.fence),
                            held.left_ms,
                        )
                        .saying(lock.holder),
                    ))
                });
            }
            let fence = next_fence(sqlite, &counter, self.fences, now)?;
            let number = i64::try_from(fence.get()).unwrap_or(i64::MAX);
            let expires_at_ms = now.wall_ms.saturating_add(ttl.as_millis());
            let expires_boot_ms = now.boot_ms.saturating_add(ttl.as_millis());
            sqlite.execute(sql::WRITE_FENCE, params![counter, number])?;
            let mut grant = Granting::new(sqlite, call.holder(), lock_id)?;
            let mut grant = || {
                grant.statement.execute(params_from_iter(
                    [
                        &name as &dyn ToSql,
                        &lock_id.as_str(),
                        &expires_at_ms,
                        &now.wall_ms,
                        &number,
                        &key.as_str(),
                        &now.boot_id,
                        &expires_boot_ms,
                        &now.boot_ms,
                    ]
                    .into_iter()
                    .chain(grant.holder.as_ref().map(|text| text as &dyn ToSql)),
                ))
            };
            match grant() {
                Err(e)
                    if e.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) =>
                {
                    self.file.free_id(sqlite, lock_id, now)?;
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
        self.file.write(Rank::Upkeep, call, |sqlite, now| {
            let held =
                match self
                    .file
                    .find_one(sqlite, sql::FIND_BY_ID, lock_id.as_str(), Some(now))?
                {
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
        self.file.write(Rank::Upkeep, call, |sqlite, now| {
            let held =
                match self
                    .file
                    .find_one(sqlite, sql::FIND_BY_ID, lock_id.as_str(), Some(now))?
                {
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
            .file
            .read(sql::FIND_BY_KEY, &self.keys.lock(key)?, call)?
            .is_some())
    }

    pub(super) fn find(
        &self,
        by: LookupBy<'_>,
        call: &Call<'_>,
    ) -> Result<Option<StoredLock>, LockError> {
        let found = match by {
            LookupBy::Key(key) => self
                .file
                .read(sql::FIND_BY_KEY, &self.keys.lock(key)?, call)?,
            LookupBy::LockId(id) => self.file.read(sql::FIND_BY_ID, id.as_str(), call)?,
        };
        Ok(found.map(|live| live.lock))
    }

    pub(super) fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        let request = options.checked()?;
        let after = request.after.map(ListCursor::key).transpose()?;
        let (statement, from) = match after {
            None => (sql::LIST_FROM, request.prefix.as_str()),
            Some(key) => (sql::LIST_AFTER, key),
        };
        let limits = self.file.limits(call)?;
        self.file
            .with_connection(Rank::Ordinary, &limits, |connection| {
                connection.when_free(|| {
                    let mut statement = connection.sqlite.prepare(statement)?;
                    let mut rows = statement.query(params![from, request.examine])?;
                    let now = self.file.now()?;
                    let (mut locks, mut examined, mut last) = (Vec::new(), 0, None);
                    while let Some(row) = rows.next()? {
                        examined += 1;
                        let key = match row.get_ref(sql::KEY_COLUMN)? {
                            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                                Ok(key) => key.to_owned(),
                                Err(_) => continue, // another program's
                            },
                            // Another program's, and no key of ours is behind it: SQLite orders such values behind all texts.
                            _ => return Ok(ListPage::new(locks, None)),
                        };
                        if !key.starts_with(&request.prefix) {
                            return Ok(ListPage::new(locks, None));
                        }
                        // A row that is not one of ours is not in the way of a list.
                        if let Ok(Stored::Live(live)) = sql::judge(row, &now) {
                            locks.push(live.lock);
                        }
                        last = Some(key);
                    }
                    let more = last.filter(|_| examined == request.examine);
                    let next = more.map(|key| ListCursor::after_key(&key));
                    Ok(ListPage::new(locks, next))
                })
            })
    }

    pub(super) fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        self.set_up(call, false)?;
        let url = self.file.url();
        let mut found = files::warnings(url);
        found.extend(volume::warning(&url.path));
        Ok(found)
    }

    pub(super) fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        self.set_up(call, true)
    }

    fn set_up(&self, call: &Call<'_>, add_holder: bool) -> Result<(), LockError> {
        let limits = self.file.limits(call)?;
        // Creating takes the right to write also where there is nothing to create: a file that may only be read shows.
        self.file
            .with_writer(Rank::Ordinary, &limits, |connection| {
                connection.when_free(|| setup::create(&connection.sqlite, add_holder))
            })
    }

    pub(super) fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        self.file.write(Rank::Ordinary, call, |sqlite, now| {
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

/// The statement that stores a grant: with the holder's text if there is one and the file has its column.
struct Granting<'a> {
    statement: Statement<'a>,
    holder: Option<String>,
}

impl<'a> Granting<'a> {
    fn new(
        sqlite: &'a Connection,
        holder: Option<&HolderText>,
        id: &LockId,
    ) -> Result<Self, Failure> {
        if let Some(holder) = holder.and_then(|text| text.bound_to(id.as_str())) {
            match sqlite.prepare(sql::GRANT_HELD) {
                Ok(statement) => {
                    return Ok(Self {
                        statement,
                        holder: Some(holder),
                    });
                }
                // The message is the only thing in which a missing column differs from another mistake.
                Err(e) if e.to_string().contains(sql::HOLDER_COLUMN) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Self {
            statement: sqlite.prepare(sql::GRANT)?,
            holder: None,
        })
    }
}

fn absence(found: &Option<Stored>) -> Absence {
    match found {
        Some(Stored::Dead) => Absence::Expired,
        _ => Absence::NotFound,
    }
}
