//! The connections of a backend: a few, kept between calls.

use super::connection::Handle;
use super::error::Failure;
use super::files::FileId;
use super::url::Target;
use crate::backend::limits::Limits;
use crate::backend::pool::{self, Rank};
use crate::runtime::process::Owner;
use crate::types::error::{ErrorCode, LockError};

/// The connections of one backend. More would only wait for each other: SQLite has one writer.
pub(super) struct Pool {
    owner: Owner,
    target: Target,
    slots: pool::Pool<Idle>,
}

/// The right to one connection.
pub(super) type Slot<'a> = pool::Slot<'a, Idle>;

impl Pool {
    pub(super) fn new(owner: Owner, target: Target, most: usize) -> Self {
        Self {
            owner,
            target,
            slots: pool::Pool::new(most),
        }
    }

    /// Waits until fewer than all connections are in use. One is kept for renewals and releases.
    pub(super) fn slot(&self, rank: Rank, limits: &Limits<'_>) -> Result<Slot<'_>, LockError> {
        self.slots.slot(rank, limits).map_err(|e| match e.code() {
            // The file was busy, if only with calls of our own.
            ErrorCode::RateLimited => limits.overrun().nothing_applied(),
            _ => e,
        })
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// A connection for one call.
    pub(super) fn take(&self, slot: &mut Slot<'_>, limits: &Limits<'_>) -> Result<Handle, Failure> {
        // Somebody may have moved or deleted the file: whoever opens it now sees another one, and so must we.
        let file = FileId::of(&self.target.path).ok();
        match slot.take().and_then(|mut idle| idle.handle.take()) {
            Some(handle) if Some(handle.file()) == file => {
                handle.begin_call(limits);
                Ok(handle)
            }
            Some(other) => {
                drop(other);
                self.clear();
                Handle::open(self.owner, &self.target, limits)
            }
            None => Handle::open(self.owner, &self.target, limits),
        }
    }

    /// Keeps a connection for the next call.
    pub(super) fn put(&self, slot: &mut Slot<'_>, handle: Handle) {
        handle.end_call();
        slot.put(Idle {
            owner: self.owner,
            handle: Some(handle),
        });
    }

    /// Closes all idle ones.
    pub(super) fn clear(&self) {
        self.slots.clear();
    }
}

/// A connection nobody uses. In a forked child it is left open: SQLite must not be asked to close what it did not open.
pub(super) struct Idle {
    owner: Owner,
    handle: Option<Handle>,
}

impl Drop for Idle {
    fn drop(&mut self) {
        if self.handle.is_some() && !self.owner.is_this_process() {
            std::mem::forget(self.handle.take());
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
        let target = Target {
            path: path.clone(),
            mode: 0o600,
        };
        let pool = Pool::new(Owner::current(), target, 1);
        let limits =
            Limits::enter(Owner::current(), Duration::from_secs(60), &Call::new()).expect("time");
        let mut slot = pool.slot(Rank::Ordinary, &limits).expect("a slot");
        let handle = pool.take(&mut slot, &limits);
        let handle = handle.expect("a connection");
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
        let target = Target {
            path: "/nowhere".into(),
            mode: 0o600,
        };
        let pool = Pool::new(Owner::current(), target, 2);
        let enter = |ms, call| {
            Limits::enter(Owner::current(), Duration::from_millis(ms), call).expect("time")
        };
        let token = CancelToken::new();
        let (plain, cancellable) = (Call::new(), Call::new().cancelled_by(&token));
        let ordinary = |limits: &Limits<'_>| pool.slot(Rank::Ordinary, limits).map(drop);
        let long = enter(60_000, &plain);
        let slot = pool.slot(Rank::Ordinary, &long).expect("the only one");
        let timed_out = ordinary(&enter(20, &plain)).expect_err("none left");
        assert_eq!(timed_out.code(), ErrorCode::NetworkTimeout);
        assert!(!timed_out.may_have_applied());
        let kept = pool.slot(Rank::Upkeep, &long);
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
