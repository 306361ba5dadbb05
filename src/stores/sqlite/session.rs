//! The connections of one store: a few, kept between calls in the pool of `backend`. It uses `connection`, `error`, `files`, `url`,
//! `backend`, `runtime` and `types`.

use super::connection::SqliteConnection;
use super::error::Failure;
use super::files::FileId;
use super::url::SqliteUrl;
use crate::backend::limits::Limits;
use crate::backend::pool::{Pool, Rank, Slot};
use crate::runtime::process::Owner;
use crate::types::error::{ErrorCode, LockError};

/// How many calls of a client write or wait for the file at a time, one of them a renewal or a release. SQLite has one writer: further
/// callers stand in line here, in order, and need no connection, whose memory a client would keep.
const WRITERS: usize = 6;

/// The connections of one store.
pub(super) struct SqliteSessions {
    owner: Owner,
    url: SqliteUrl,
    writers: Pool<()>,
    pool: Pool<IdleConnection>,
}

/// The right to one connection.
pub(super) type SqliteSlot<'a> = Slot<'a, IdleConnection>;

/// The right to wait for the file and to write to it.
pub(super) type WriterTurn<'a> = Slot<'a, ()>;

impl SqliteSessions {
    pub(super) fn new(owner: Owner, url: SqliteUrl, size: usize) -> Self {
        Self {
            owner,
            url,
            writers: Pool::new(WRITERS.min(size)),
            pool: Pool::new(size),
        }
    }

    /// Waits until fewer than [`WRITERS`] callers of this client write or wait for the file.
    pub(super) fn writer(
        &self,
        rank: Rank,
        limits: &Limits<'_>,
    ) -> Result<WriterTurn<'_>, LockError> {
        self.writers.slot(rank, limits).map_err(|e| busy(e, limits))
    }

    /// Waits until fewer than all connections are in use. One is kept for renewals and releases.
    pub(super) fn slot(
        &self,
        rank: Rank,
        limits: &Limits<'_>,
    ) -> Result<SqliteSlot<'_>, LockError> {
        self.pool.slot(rank, limits).map_err(|e| busy(e, limits))
    }

    pub(super) fn url(&self) -> &SqliteUrl {
        &self.url
    }

    /// A connection for one call.
    pub(super) fn take(
        &self,
        slot: &mut SqliteSlot<'_>,
        limits: &Limits<'_>,
    ) -> Result<SqliteConnection, Failure> {
        // The file may have been moved or deleted: a process that opens it now sees another one, and so must this one.
        let file = FileId::of(&self.url.path).ok();
        match slot.take().and_then(|mut idle| idle.connection.take()) {
            Some(connection) if Some(connection.file()) == file => {
                connection.begin_call(limits);
                Ok(connection)
            }
            Some(other) => {
                drop(other);
                self.clear();
                SqliteConnection::open(self.owner, &self.url, limits)
            }
            None => SqliteConnection::open(self.owner, &self.url, limits),
        }
    }

    /// Keeps a connection for the next call.
    pub(super) fn put(&self, slot: &mut SqliteSlot<'_>, connection: SqliteConnection) {
        connection.end_call();
        slot.put(IdleConnection {
            owner: self.owner,
            connection: Some(connection),
        });
    }

    /// Closes all idle connections.
    fn clear(&self) {
        self.pool.clear();
    }
}

/// The file was busy, if only with calls of our own.
fn busy(error: LockError, limits: &Limits<'_>) -> LockError {
    match error.code() {
        ErrorCode::RateLimited => limits.overrun().nothing_applied(),
        _ => error,
    }
}

/// A connection between two calls. In a forked child it is left open: SQLite must not be asked to close what it did not open.
pub(super) struct IdleConnection {
    owner: Owner,
    connection: Option<SqliteConnection>,
}

impl Drop for IdleConnection {
    fn drop(&mut self) {
        if self.connection.is_some() && !self.owner.is_this_process() {
            std::mem::forget(self.connection.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::call::Call;
    use crate::runtime::cancel::CancelToken;
    use crate::stores::sqlite::url::beside;
    use std::time::Duration;

    #[test]
    fn every_commit_reaches_the_disk_and_the_log_stays() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let path = dir.path().join("locks.db");
        let url = SqliteUrl {
            path: path.clone(),
            mode: 0o600,
            fences: None,
        };
        let sessions = SqliteSessions::new(Owner::current(), url, 1);
        let limits =
            Limits::enter(Owner::current(), Duration::from_secs(60), &Call::new()).expect("time");
        let mut slot = sessions.slot(Rank::Ordinary, &limits).expect("a slot");
        let connection = sessions.take(&mut slot, &limits);
        let connection = connection.expect("a connection");
        let pragma = |name: &str| {
            let value = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
            connection
                .sqlite
                .query_row(&format!("PRAGMA {name}"), [], value)
                .expect(name)
        };
        assert_eq!(pragma("synchronous"), 2.into());
        assert_eq!(pragma("fullfsync"), 1.into());
        assert_eq!(pragma("journal_mode"), "wal".to_owned().into());
        // Pages, where a negative number would be kilobytes.
        assert_eq!(pragma("cache_size"), 20.into());
        drop(connection);
        assert!(beside(&path, "-shm").exists() && beside(&path, "-wal").exists());
    }

    #[test]
    fn a_call_without_a_slot_waits_for_one_its_deadline_or_a_cancel() {
        let url = SqliteUrl {
            path: "/nowhere".into(),
            mode: 0o600,
            fences: None,
        };
        let sessions = SqliteSessions::new(Owner::current(), url, 2);
        let enter = |ms, call| {
            Limits::enter(Owner::current(), Duration::from_millis(ms), call).expect("time")
        };
        let token = CancelToken::new();
        let (plain, cancellable) = (Call::new(), Call::new().cancelled_by(&token));
        let ordinary = |limits: &Limits<'_>| sessions.slot(Rank::Ordinary, limits).map(drop);
        let long = enter(60_000, &plain);
        let slot = sessions.slot(Rank::Ordinary, &long).expect("the only one");
        let timed_out = ordinary(&enter(20, &plain)).expect_err("none left");
        assert_eq!(timed_out.code(), ErrorCode::NetworkTimeout);
        assert!(!timed_out.may_have_applied());
        let kept = sessions.slot(Rank::Upkeep, &long);
        kept.map(drop).expect("kept for renewals and releases");
        let cancellable = enter(60_000, &cancellable);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ordinary(&cancellable));
            let gets = scope.spawn(|| ordinary(&long));
            let begun = std::time::Instant::now();
            token.cancel();
            let cancelled = waits.join().expect("no panic").expect_err("cancelled");
            assert!(begun.elapsed() < Duration::from_secs(30), "it timed out");
            assert_eq!(cancelled.code(), ErrorCode::Aborted);
            drop(slot);
            gets.join().expect("no panic").expect("the slot");
        });
        ordinary(&long).expect("free again");
    }
}
