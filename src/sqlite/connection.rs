//! Connections: how one is opened, how it waits, and the few that are kept.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::Failure;
use super::fork::{self, FileId, Inside};
use super::schema;
use super::sql;
use super::url::beside;
use crate::cancel::CancelToken;
use crate::error::LockError;
use crate::lease::random_bits;
use crate::limits::Limits;
use crate::sync::Mutex;

/// The longest pause of a waiter. It does not grow with the wait: whoever waits longest must not look least often, which is
/// how SQLite's own busy timeout starves every second process.
const PAUSE: Duration = Duration::from_millis(2);
/// How many steps of its machine SQLite makes between two looks at the deadline.
const STEPS: std::ffi::c_int = 2000;
/// Statements of all verbs together, with room to spare.
const STATEMENTS: usize = 24;

/// By when, and until whose cancel, the call that uses a connection may wait. SQLite's handlers look here.
#[derive(Debug, Default)]
pub(super) struct Patience(Mutex<Option<(Instant, Option<CancelToken>)>>);

impl Patience {
    fn begin(&self, limits: &Limits<'_>) {
        *self.0.lock() = Some((limits.deadline(), limits.cancel().cloned()));
    }

    fn end(&self) {
        *self.0.lock() = None;
    }

    /// Pauses for a short random time; false if there is none left. The first pauses are shorter.
    pub(super) fn wait(&self, tries: i32) -> bool {
        let Some((deadline, cancel)) = self.0.lock().clone() else {
            return false;
        };
        let now = Instant::now();
        let cancel = cancel.unwrap_or_default();
        if now >= deadline || cancel.is_cancelled() {
            return false;
        }
        let most = if tries < 2 { PAUSE / 8 } else { PAUSE };
        let pause = most.mul_f64(random_bits() as f64 / u64::MAX as f64);
        cancel.sleep_until(Some(deadline.min(now + pause)));
        !cancel.is_cancelled()
    }

    fn is_over(&self) -> bool {
        match &*self.0.lock() {
            Some((deadline, cancel)) => {
                Instant::now() >= *deadline
                    || cancel.as_ref().is_some_and(CancelToken::is_cancelled)
            }
            None => false,
        }
    }
}

/// An open, checked connection.
pub(super) struct Handle {
    pub(super) sqlite: Connection,
    patience: Arc<Patience>,
    file: FileId,
}

impl Handle {
    /// Takes the right to write, waiting for it.
    pub(super) fn begin(&self) -> Result<(), Failure> {
        self.when_free(|| {
            self.sqlite.prepare_cached(sql::BEGIN)?.execute([])?;
            Ok(())
        })
    }

    /// Runs `work` until nobody is in its way. SQLite asks the busy handler by itself in most cases, but not in all: the
    /// recovery of a log and a switch of the journal mode answer at once.
    pub(super) fn when_free<T>(
        &self,
        work: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        when_free(&self.patience, work)
    }
}

fn when_free<T>(
    patience: &Patience,
    mut work: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut tries = 0;
    loop {
        match work() {
            Err(e) if e.is_busy() && patience.wait(tries) => tries = tries.saturating_add(1),
            done => return done,
        }
    }
}

/// The connections of one backend that nobody uses at the moment.
pub(super) struct Pool {
    path: PathBuf,
    keep: usize,
    idle: Mutex<Vec<Idle>>,
}

impl Pool {
    pub(super) fn new(path: PathBuf, keep: usize) -> Self {
        Self {
            path,
            keep,
            idle: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A connection for one call.
    pub(super) fn take(&self, inside: &Inside, limits: &Limits<'_>) -> Result<Handle, Failure> {
        // Somebody may have moved or deleted the file: whoever opens it now sees another one, and so must we.
        let file = FileId::of(&self.path).ok();
        loop {
            let idle = self.idle.lock().pop();
            match idle.and_then(|mut idle| idle.handle.take()) {
                Some(handle) if Some(handle.file) == file => {
                    handle.patience.begin(limits);
                    return Ok(handle);
                }
                Some(other) => drop(other),
                None => return self.open(inside, limits),
            }
        }
    }

    /// Keeps a connection for the next call.
    pub(super) fn put(&self, handle: Handle) {
        handle.patience.end();
        let mut idle = self.idle.lock();
        if idle.len() < self.keep {
            idle.push(Idle {
                pid: std::process::id(),
                handle: Some(handle),
            });
        }
    }

    /// Closes all idle ones.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.idle.lock());
        drop(all);
    }

    fn open(&self, inside: &Inside, limits: &Limits<'_>) -> Result<Handle, Failure> {
        let patience = Arc::new(Patience::default());
        patience.begin(limits);
        fork::adopt(inside, &self.path, limits, &patience)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut sqlite = Connection::open_with_flags(&self.path, flags)?;
        sqlite.set_prepared_statement_cache_capacity(STATEMENTS);
        let who = Arc::clone(&patience);
        sqlite.busy_handler(Some(move |tries| who.wait(tries)))?;
        let who = Arc::clone(&patience);
        sqlite.progress_handler(STEPS, Some(move || who.is_over()))?;
        // The last one to close would delete the log and its index under a child that was forked and has yet to open them.
        sqlite.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        when_free(&patience, || schema::prepare(&sqlite))?;
        let file = FileId::of(&self.path).map_err(vanished)?;
        let real = std::fs::canonicalize(&self.path).map_err(vanished)?;
        let shm = FileId::of(&beside(&real, "-shm")).map_err(vanished)?;
        fork::note(inside, file, shm);
        Ok(Handle {
            sqlite,
            patience,
            file,
        })
    }
}

fn vanished(e: std::io::Error) -> LockError {
    LockError::unavailable("the lock file was removed while it was being opened")
        .with_source(e)
        .nothing_applied()
}

/// A connection nobody uses. In a forked child it is left open: SQLite must not be asked to close what it did not open.
struct Idle {
    pid: u32,
    handle: Option<Handle>,
}

impl Drop for Idle {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            std::mem::forget(self.handle.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_commit_reaches_the_disk_and_the_log_stays() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let path = dir.path().join("locks.db");
        let pool = Pool::new(path.clone(), 1);
        let limits =
            Limits::enter(std::process::id(), Duration::from_secs(60), None).expect("time");
        let inside = Inside::enter().expect("not forked");
        let handle = pool.take(&inside, &limits).expect("a connection");
        let pragma = |name: &str| {
            let value = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
            handle
                .sqlite
                .query_row(&format!("PRAGMA {name}"), [], value)
                .expect(name)
        };
        assert_eq!(pragma("synchronous"), 2.into());
        assert_eq!(pragma("fullfsync"), 1.into());
        assert_eq!(pragma("journal_mode"), "wal".to_owned().into());
        drop(handle);
        assert!(beside(&path, "-shm").exists() && beside(&path, "-wal").exists());
    }
}
