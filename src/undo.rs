//! Takes back acquires of unknown outcome, so that a lost reply does not lock a key until its TTL.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::backend::Backend;
use crate::callbacks::{FailedRelease, guarded};
use crate::error::LockError;
use crate::key::Key;
use crate::lease::{LockId, random_bits};
use crate::options::{Backoff, Jitter, OnReleaseError, Retry};
use crate::runtime::Runtime;
use crate::sync::Mutex;
use crate::timer::Alarm;

/// How a release that was not answered is repeated: soon at first, then every two seconds.
const PACE: Retry = Retry {
    max: None,
    base: Duration::from_millis(50),
    backoff: Backoff::Exponential,
    jitter: Jitter::Equal,
};

/// The undoing of one client: at most one thread, however many acquires are in doubt.
pub(crate) struct Undo {
    me: Weak<Self>,
    backend: Arc<dyn Backend>,
    runtime: Runtime,
    hook: Option<OnReleaseError>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Entry>,
    /// Whether a thread works on the queue or an alarm is set for it.
    active: bool,
    failures: u32,
}

struct Entry {
    key: Key,
    lock_id: LockId,
    /// When the lease has ended by itself.
    until: Duration,
}

impl Undo {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        runtime: Runtime,
        hook: Option<OnReleaseError>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            backend,
            runtime,
            hook,
            state: Mutex::new(State::default()),
        })
    }

    /// Sees to it that what an acquire of `lock_id` may have left behind is released, until `until`.
    pub(crate) fn add(&self, key: Key, lock_id: LockId, until: Duration) {
        let mut state = self.state.lock();
        state.queue.push_back(Entry {
            key,
            lock_id,
            until,
        });
        let idle = !std::mem::replace(&mut state.active, true);
        drop(state);
        if idle {
            self.resume();
        }
    }

    fn resume(&self) {
        if let Some(me) = self.me.upgrade() {
            self.runtime.run(move || me.work());
        }
    }

    fn work(&self) {
        loop {
            let mut state = self.state.lock();
            let Some(entry) = state.queue.pop_front() else {
                state.active = false;
                state.failures = 0;
                return;
            };
            drop(state);
            // It ignores the caller's cancel: the caller is gone.
            let answer = guarded(|| self.backend.release(&entry.lock_id, None))
                .unwrap_or_else(|| Err(LockError::internal("the store panicked during a release")));
            match answer {
                Ok(_) => self.state.lock().failures = 0,
                Err(error) if self.runtime.timer.now() >= entry.until => {
                    self.give_up(&entry, error)
                }
                Err(_) => {
                    self.put_off(entry);
                    return;
                }
            }
        }
    }

    /// The store is in trouble: everything waits.
    fn put_off(&self, entry: Entry) {
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        let delay = PACE
            .delay(state.failures, Duration::MAX, random_bits())
            .unwrap_or(PACE.base);
        state.queue.push_back(entry);
        drop(state);
        let set = self
            .me
            .upgrade()
            .map(|me| self.runtime.timer.set(self.runtime.timer.now() + delay, me));
        if !matches!(set, Some(Ok(_))) {
            // Without a timer the next acquire in doubt begins again.
            self.state.lock().active = false;
        }
    }

    fn give_up(&self, entry: &Entry, error: LockError) {
        let failed = FailedRelease {
            error: error.for_key(&entry.key),
            key: entry.key.as_str().to_owned(),
            lock_id: entry.lock_id.as_str().to_owned(),
            source: "undo",
        };
        failed.report(
            self.hook.clone(),
            &self.runtime.workers,
            &self.runtime.timer,
        );
    }
}

impl Alarm for Undo {
    fn ring(self: Arc<Self>, _now: Duration) -> Option<Duration> {
        self.resume();
        None
    }
}
