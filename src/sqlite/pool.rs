//! The connections of a backend: a few, kept between calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::connection::Handle;
use super::error::Failure;
use super::fork::{FileId, Inside};
use crate::error::LockError;
use crate::limits::Limits;
use crate::sync::{Condvar, Mutex};
use crate::wake::Wake;

/// The connections of one backend.
pub(super) struct Pool {
    pid: u32,
    path: PathBuf,
    /// How many there may be at a time. More would only wait for each other: SQLite has one writer.
    most: usize,
    idle: Mutex<Vec<Idle>>,
    users: Arc<Users>,
}

/// How many calls have a connection, or are about to.
#[derive(Default)]
struct Users {
    count: Mutex<usize>,
    fewer: Condvar,
}

impl Wake for Users {
    fn wake(&self) {
        // Under the mutex, so that it does not fall between a waiter's look and its sleep.
        let _count = self.count.lock();
        self.fewer.notify_all();
    }
}

/// The right to one connection.
pub(super) struct Slot<'a>(&'a Users);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.fewer.notify_one();
    }
}

impl Pool {
    pub(super) fn new(pid: u32, path: PathBuf, most: usize) -> Self {
        Self {
            pid,
            path,
            most,
            idle: Mutex::new(Vec::new()),
            users: Arc::default(),
        }
    }

    /// Waits until fewer than all connections are in use.
    pub(super) fn slot(&self, limits: &Limits<'_>) -> Result<Slot<'_>, LockError> {
        let mut count = self.users.count.lock();
        if *count >= self.most {
            drop(count);
            let users: Arc<dyn Wake> = Arc::<Users>::clone(&self.users);
            let _woken_by_cancel = limits.cancel().map(|token| token.subscribe(users));
            count = self.users.count.lock();
            while *count >= self.most {
                if let Err(e) = limits.left() {
                    drop(count);
                    // The notification that this waiter may have used up is for another one.
                    self.users.fewer.notify_one();
                    return Err(e.nothing_applied());
                }
                self.users
                    .fewer
                    .wait_until(&mut count, Some(limits.deadline()));
            }
            *count += 1;
            drop(count);
            return Ok(Slot(&self.users));
        }
        *count += 1;
        drop(count);
        Ok(Slot(&self.users))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A connection for one call.
    pub(super) fn take(
        &self,
        _: &Slot<'_>,
        inside: &Inside,
        limits: &Limits<'_>,
    ) -> Result<Handle, Failure> {
        // Somebody may have moved or deleted the file: whoever opens it now sees another one, and so must we.
        let file = FileId::of(&self.path).ok();
        loop {
            let idle = self.idle.lock().pop();
            match idle.and_then(|mut idle| idle.handle.take()) {
                Some(handle) if Some(handle.file()) == file => {
                    handle.begin_call(limits);
                    return Ok(handle);
                }
                Some(other) => drop(other),
                None => return Handle::open(&self.path, inside, limits),
            }
        }
    }

    /// Keeps a connection for the next call.
    pub(super) fn put(&self, handle: Handle) {
        handle.end_call();
        self.idle.lock().push(Idle {
            pid: self.pid,
            handle: Some(handle),
        });
    }

    /// Closes all idle ones.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.idle.lock());
        drop(all);
    }
}

/// A connection nobody uses. In a forked child it is left open: SQLite must not be asked to close what it did not open.
struct Idle {
    pid: u32,
    handle: Option<Handle>,
}

impl Drop for Idle {
    fn drop(&mut self) {
        if self.handle.is_some() && std::process::id() != self.pid {
            std::mem::forget(self.handle.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::CancelToken;
    use crate::sqlite::url::beside;
    use std::time::Duration;

    #[test]
    fn every_commit_reaches_the_disk_and_the_log_stays() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let path = dir.path().join("locks.db");
        let pool = Pool::new(std::process::id(), path.clone(), 1);
        let limits =
            Limits::enter(std::process::id(), Duration::from_secs(60), None).expect("time");
        let inside = Inside::enter(std::process::id()).expect("not forked");
        let slot = pool.slot(&limits).expect("a slot");
        let handle = pool.take(&slot, &inside, &limits).expect("a connection");
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

    #[test]
    fn a_call_without_a_slot_waits_for_one_its_deadline_or_a_cancel() {
        let pool = Pool::new(0, PathBuf::from("/nowhere"), 1);
        let enter = |ms, token| {
            Limits::enter(std::process::id(), Duration::from_millis(ms), token).expect("time")
        };
        let long = enter(60_000, None);
        let slot = pool.slot(&long).expect("the only one");
        let timed_out = pool
            .slot(&enter(20, None))
            .map(|_| ())
            .expect_err("none left");
        assert_eq!(timed_out.code(), crate::ErrorCode::NetworkTimeout);
        assert!(!timed_out.may_have_applied());
        let token = CancelToken::new();
        let cancellable = enter(60_000, Some(&token));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pool.slot(&cancellable).map(|_| ()));
            let gets = scope.spawn(|| pool.slot(&long).map(|_| ()));
            token.cancel();
            let cancelled = waits.join().expect("no panic").expect_err("cancelled");
            assert_eq!(cancelled.code(), crate::ErrorCode::Aborted);
            drop(slot);
            gets.join().expect("no panic").expect("the slot");
        });
        pool.slot(&long).map(|_| ()).expect("free again");
    }
}
