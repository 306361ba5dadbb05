//! Noticing releases by other processes: a thread looks at the log file's size and time, often at first and ever less often,
//! for as long as somebody waits. Whoever waits in this process is called directly and does not need it.
//!
//! `stat` is enough, and all that is allowed: opening and closing the file would drop SQLite's own locks on it.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::files::real_path;
use super::url::beside;
use crate::backend::Watch;
use crate::runtime::cancel::{CancelToken, deadline_after};
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::runtime::threads;
use crate::runtime::workers::guarded;
use crate::types::random::random_bits;

/// How soon it looks again after a change.
const SHORTEST: Duration = Duration::from_millis(1);
/// How seldom it looks when nothing happens.
const LONGEST: Duration = Duration::from_millis(20);
/// Two commits within one tick of the kernel's clock may leave the same time: a change this young is looked at twice.
const TICK: Duration = Duration::from_millis(10);

pub(super) type Freed = Arc<dyn Fn() + Send + Sync>;

/// The eye of one backend.
pub(super) struct Eye(Arc<Shared>);

struct Shared {
    owner: Owner,
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watchers: HashMap<u64, Freed>,
    last_id: u64,
    running: bool,
}

impl Eye {
    pub(super) fn new(owner: Owner, file: &Path) -> Self {
        Self(Arc::new(Shared {
            owner,
            file: file.to_owned(),
            state: Mutex::default(),
        }))
    }

    /// Has `freed` called after every change of the file.
    pub(super) fn watch(&self, freed: Freed) -> Option<Watch> {
        if !self.0.owner.is_this_process() {
            return None;
        }
        let mut state = self.0.state.lock();
        if !state.running {
            let shared = Arc::clone(&self.0);
            threads::spawn("syncguard-eye", move || shared.look()).ok()?;
            state.running = true;
        }
        state.last_id += 1;
        let id = state.last_id;
        state.watchers.insert(id, Arc::clone(&freed));
        drop(state);
        guarded(|| freed());
        Some(Watch::new(Watcher(Arc::clone(&self.0), id)))
    }
}

struct Watcher(Arc<Shared>, u64);

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.0.owner.is_this_process() {
            self.0.state.lock().watchers.remove(&self.1);
        }
    }
}

impl Shared {
    fn look(&self) {
        let mut seen = None;
        let mut pause = SHORTEST;
        loop {
            let (mark, young) = self.mark();
            let watchers: Vec<Freed> = {
                let mut state = self.state.lock();
                if state.watchers.is_empty() {
                    state.running = false;
                    return;
                }
                state.watchers.values().map(Arc::clone).collect()
            };
            if young || seen != Some(mark) {
                seen = Some(mark);
                pause = SHORTEST;
                for freed in watchers {
                    // The caller's own code, where it uses `watch` itself: its panic is not the others' loss.
                    guarded(|| freed());
                }
            } else {
                pause = (pause * 5 / 4).min(LONGEST);
            }
            // A half to all of it, so that several processes do not look in step.
            let blur = random_bits() % u64::try_from(pause.as_micros() / 2).unwrap_or(1).max(1);
            CancelToken::new().sleep_until(Some(deadline_after(
                pause / 2 + Duration::from_micros(blur),
            )));
        }
    }

    /// What a commit changes, and whether that was only just now.
    fn mark(&self) -> ((u64, i64, i64, u64), bool) {
        // The log lies beside the file itself, not beside a link to it, and a link may be changed.
        let log = real_path(&self.file).map(|file| beside(&file, "-wal"));
        let Ok(meta) = log.and_then(std::fs::metadata) else {
            return ((0, 0, 0, 0), false);
        };
        let age = meta
            .modified()
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        (
            (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size()),
            age.is_some_and(|age| age < TICK),
        )
    }
}
