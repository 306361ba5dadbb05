//! Notices releases by other processes: a thread looks at the size and time of SQLite's write-ahead log, often at first and ever
//! less often, for as long as there is a waiter. Waiters of this process are called directly and do not need it. It uses `files`,
//! `url`, `backend`, `runtime` and `types`.
//!
//! `stat` is enough, and all that is allowed: opening and closing the file would drop SQLite's own locks on it.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::files::real_path;
use super::url::beside;
use crate::backend::{Freed, Watch};
use crate::runtime::cancel::{CancelToken, deadline_after};
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::runtime::threads;
use crate::runtime::workers::guarded;
use crate::types::random::random_bits;

/// How soon the poller looks again after a change.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// How seldom it looks when nothing happens.
const MAX_PAUSE: Duration = Duration::from_millis(20);
/// Two commits within one tick of the kernel's clock may leave the same time: a change this young is looked at twice.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// Looks for changes of the log of one store.
pub(super) struct WalPoller {
    shared: Arc<PollerShared>,
}

struct PollerShared {
    owner: Owner,
    file: PathBuf,
    state: Mutex<PollerState>,
}

#[derive(Default)]
struct PollerState {
    watchers: HashMap<u64, Freed>,
    last_id: u64,
    running: bool,
}

/// What a commit changes in the log. All zero without a log.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct WalMark {
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
    size: u64,
}

/// One look at the log.
#[derive(Default)]
struct WalLook {
    mark: WalMark,
    /// Whether the last change is so young that another one may have left the same mark.
    is_young: bool,
}

impl WalPoller {
    pub(super) fn new(owner: Owner, file: &Path) -> Self {
        Self {
            shared: Arc::new(PollerShared {
                owner,
                file: file.to_owned(),
                state: Mutex::default(),
            }),
        }
    }

    /// Calls `freed` after every change of the file, until the watch is dropped.
    pub(super) fn watch(&self, freed: Freed) -> Option<Watch> {
        if !self.shared.owner.is_this_process() {
            return None;
        }
        let mut state = self.shared.state.lock();
        if !state.running {
            let shared = Arc::clone(&self.shared);
            threads::spawn("syncguard-poll", move || shared.poll()).ok()?;
            state.running = true;
        }
        state.last_id += 1;
        let id = state.last_id;
        state.watchers.insert(id, Arc::clone(&freed));
        drop(state);
        guarded(|| freed());
        Some(Watch::new(FileWatcher {
            shared: Arc::clone(&self.shared),
            id,
        }))
    }
}

/// Ends a watch when it is dropped.
struct FileWatcher {
    shared: Arc<PollerShared>,
    id: u64,
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        if self.shared.owner.is_this_process() {
            self.shared.state.lock().watchers.remove(&self.id);
        }
    }
}

impl PollerShared {
    fn poll(&self) {
        let mut seen = None;
        let mut pause = MIN_PAUSE;
        loop {
            let WalLook { mark, is_young } = self.look();
            let watchers: Vec<Freed> = {
                let mut state = self.state.lock();
                if state.watchers.is_empty() {
                    state.running = false;
                    return;
                }
                state.watchers.values().map(Arc::clone).collect()
            };
            if is_young || seen != Some(mark) {
                seen = Some(mark);
                pause = MIN_PAUSE;
                for freed in watchers {
                    // It may be a user's own code, through `Backend::watch`: its panic must not keep the others from being
                    // called.
                    guarded(|| freed());
                }
            } else {
                pause = (pause * 5 / 4).min(MAX_PAUSE);
            }
            // A half to all of it, so that several processes do not look in step.
            let blur = random_bits() % u64::try_from(pause.as_micros() / 2).unwrap_or(1).max(1);
            CancelToken::new().sleep_until(Some(deadline_after(
                pause / 2 + Duration::from_micros(blur),
            )));
        }
    }

    fn look(&self) -> WalLook {
        // The log lies beside the file itself, not beside a link to it, and a link may be changed.
        let log = real_path(&self.file).map(|file| beside(&file, "-wal"));
        let Ok(meta) = log.and_then(std::fs::metadata) else {
            return WalLook::default();
        };
        let age = meta
            .modified()
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        WalLook {
            mark: WalMark {
                inode: meta.ino(),
                seconds: meta.mtime(),
                nanoseconds: meta.mtime_nsec(),
                size: meta.size(),
            },
            is_young: age.is_some_and(|age| age < CLOCK_TICK),
        }
    }
}
