//! The embedded store: one SQLite file, for programs on one machine. No server, the same contract.

mod connection;
mod error;
mod files;
mod fork;
mod lease_end;
mod session;
mod setup;
mod sql;
mod transaction;
mod url;
mod volume;
mod watch;

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use rusqlite::params;

use self::session::Pool;
use self::sql::Stored;
use self::transaction::{Boot, next_fence};
use self::watch::{Eye, Freed};
use crate::backend::call::Call;
use crate::backend::keyspace::KeySpace;
use crate::backend::limits::Limits;
use crate::backend::pool::Rank;
use crate::backend::{
    Absence, AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome, Watch,
};
use crate::options::client::ClientOptions;
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::holder::Holder;
use crate::types::key::Key;
use crate::types::liveness::CLEANUP_GUARD_MS;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::Acquired;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

/// Locks in an SQLite file: `sqlite:PATH`.
///
/// For the processes of one machine that share a local disk, and for trying the library without a server; programs on several
/// machines need a shared store. Never on a network file system.
///
/// The file is made at first use, with `-wal` and `-shm` beside it that belong to it and stay. Every grant is on the disk
/// before it is answered. Leases are counted on the machine's boot-time clock, also between containers on one machine:
/// setting the wall clock neither frees nor freezes a lock. A reboot frees all of them (their holders are gone), most at once
/// and each after its TTL at the latest, and never a fence.
///
/// New files can be opened by their owner alone (0600), whatever the umask; `sqlite:PATH?mode=0660` asks for another mode.
/// Files that exist keep theirs, and [`check`](Backend::check) warns about wider ones.
///
/// In a forked child an inherited backend answers an error. A new one works if no `sqlite:` store was open at the fork, in this
/// process or one it was forked from; otherwise its calls answer an error too, and only a new program, by `exec`, can use one.
pub struct SqliteBackend {
    owner: Owner,
    pool: Pool,
    eye: Eye,
    keys: KeySpace,
    timeout: Duration,
    boot: OnceLock<Boot>,
}

impl SqliteBackend {
    /// The store that `url` names. Does no I/O: the file is opened, and made, by the first call.
    ///
    /// Uses [`ClientOptions::operation_timeout`] and [`ClientOptions::pool_size`]: how many calls use the
    /// file at a time, one of them a renewal or a release; further ones wait, within their own timeout.
    ///
    /// # Errors
    /// `InvalidArgument` for a URL that names no file, or bad options.
    pub fn open(url: &str, options: &ClientOptions) -> Result<Self, LockError> {
        options.checked()?;
        let owner = Owner::current();
        let target = url::parse(url)?;
        Ok(Self {
            owner,
            eye: Eye::new(owner, &target.path),
            pool: Pool::new(owner, target, options.pool_size),
            keys: KeySpace::table(),
            timeout: options.operation_timeout,
            boot: OnceLock::new(),
        })
    }
}

impl Backend for SqliteBackend {
    fn acquire(
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
                        Some(lock.lock_id.hash()),
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

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
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

    fn extend(
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

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        Ok(self
            .read(sql::BY_KEY, &self.keys.lock(key)?, call)?
            .is_some())
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let found = match by {
            LookupBy::Key(key) => self.read(sql::BY_KEY, &self.keys.lock(key)?, call)?,
            LookupBy::LockId(id) => self.read(sql::BY_ID, id.as_str(), call)?,
        };
        Ok(found.map(|live| live.lock))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("sqlite")
    }

    /// A thread looks for changes of the file while somebody waits.
    fn watch(&self, _key: &Key, freed: Freed) -> Option<Watch> {
        self.eye.watch(freed)
    }

    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        self.setup_schema(call)?;
        let target = self.pool.target();
        let mut found = files::warnings(target);
        found.extend(volume::warning(&target.path));
        Ok(found)
    }

    fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        let limits = Limits::enter(self.owner, self.timeout, call)?;
        // Creating takes the right to write also where there is nothing to create: a file that may only be read shows.
        self.with_connection(Rank::Ordinary, &limits, |handle| {
            handle.when_free(|| setup::create(&handle.sqlite))
        })
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
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

impl Drop for SqliteBackend {
    fn drop(&mut self) {
        // In a child the connections are left alone, one by one.
        if self.owner.is_this_process() {
            self.pool.clear();
        }
    }
}

impl fmt::Debug for SqliteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBackend")
            .field("path", &self.pool.target().path)
            .finish_non_exhaustive()
    }
}
