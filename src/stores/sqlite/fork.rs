//! Refuses SQLite in a process that was forked while an ancestor had a connection open. It uses `runtime` and `types`.
//!
//! SQLite keeps one table of open files and their locks per process, and a child has a copy of it. The locks themselves are
//! POSIX locks, which no child inherits: a child that used its copy would believe in locks that it does not have, and two
//! callers could hold one key. SQLite's mutexes may also be locked for ever in the child.
//!
//! Every file counts, not only the one that the child opens. SQLite has some of its mutexes once for all files, and one
//! number needs no list of files, whose mutex a child could inherit locked.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::runtime::process::Owner;
use crate::types::error::LockError;

/// The number of a process in the upper half, and how many connections it has open in the lower half. One word, so that a fork
/// cannot fall between the two. A child that finds its parent's number and a count never changes it.
static OPEN: AtomicU64 = AtomicU64::new(0);
const COUNT: u64 = u32::MAX as u64;

/// Counts one connection: made before SQLite is asked to open it, dropped after it was closed.
pub(super) struct OpenConnection(());

impl OpenConnection {
    /// Counts a connection of the process `owner`. The caller has checked already that this is that process.
    ///
    /// # Errors
    /// `Internal` in a child that was forked while an ancestor had a connection open.
    pub(super) fn count(owner: Owner) -> Result<Self, LockError> {
        let process = u64::from(owner.number()) << 32;
        let mut seen = OPEN.load(Ordering::Acquire);
        loop {
            let next = if seen & !COUNT == process {
                seen + 1
            } else if seen & COUNT == 0 {
                process | 1
            } else {
                return Err(refused());
            };
            match OPEN.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(Self(())),
                Err(now) => seen = now,
            }
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::AcqRel);
    }
}

fn refused() -> LockError {
    LockError::internal(
        "this process was forked from one that had an sqlite: store open, and cannot use one itself; open the first sqlite: \
         client after the fork, or close all of them before it, or exec a new program after it (if this process was not forked: \
         it closed descriptors that are not its own, or copies of them; start it anew)",
    )
    .nothing_applied()
}
