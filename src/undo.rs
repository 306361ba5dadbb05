//! Takes back acquires of unknown outcome, so that a lost reply does not lock a key until its TTL.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::backend::{Backend, ReleaseOutcome};
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
/// When a release that found nothing is repeated: the acquire may still be on its way to the store, or wait there for its turn.
const LOOK_AGAIN: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

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
    entries: Vec<Entry>,
    /// Whether a thread works on them.
    working: bool,
    /// When the timer rings for them, if it does.
    alarm: Option<Duration>,
    failures: u32,
}

struct Entry {
    key: Key,
    lock_id: LockId,
    due: Duration,
    /// When the lease has ended by itself.
    until: Duration,
    /// How often a release found nothing.
    looked: usize,
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
        let due = self.runtime.timer.now();
        self.state.lock().entries.push(Entry {
            key,
            lock_id,
            due,
            until,
            looked: 0,
        });
        self.resume();
    }

    fn resume(&self) {
        let idle = !std::mem::replace(&mut self.state.lock().working, true);
        if let (true, Some(me)) = (idle, self.me.upgrade()) {
            self.runtime.run(move || me.work());
        }
    }

    fn work(&self) {
        while let Some(entry) = self.next() {
            // It ignores the caller's cancel: the caller is gone.
            let answer = guarded(|| self.backend.release(&entry.lock_id, None))
                .unwrap_or_else(|| Err(LockError::internal("the store panicked during a release")));
            let over = self.runtime.timer.now() >= entry.until;
            match answer {
                Ok(ReleaseOutcome::Released) => self.state.lock().failures = 0,
                Ok(ReleaseOutcome::Absent(_)) if over => {}
                Ok(ReleaseOutcome::Absent(_)) => self.look_again(entry),
                Err(error) if over => self.give_up(&entry, error),
                Err(_) => self.put_off(entry),
            }
        }
    }

    /// The next one that is due. If there is none the thread ends, and the timer rings when there will be.
    fn next(&self) -> Option<Entry> {
        let now = self.runtime.timer.now();
        let mut state = self.state.lock();
        if let Some(i) = state.entries.iter().position(|entry| entry.due <= now) {
            return Some(state.entries.swap_remove(i));
        }
        state.working = false;
        let due = state.entries.iter().map(|entry| entry.due).min()?;
        if state.alarm.is_none_or(|at| due < at)
            && let Some(me) = self.me.upgrade()
            && self.runtime.timer.set(due, me).is_ok()
        {
            state.alarm = Some(due);
        }
        // Without a timer the next acquire in doubt begins again.
        None
    }

    fn look_again(&self, mut entry: Entry) {
        let mut state = self.state.lock();
        state.failures = 0;
        if let Some(delay) = LOOK_AGAIN.get(entry.looked) {
            entry.looked += 1;
            entry.due = self.runtime.timer.now() + *delay;
            state.entries.push(entry);
        }
    }

    /// The store is in trouble: everything waits.
    fn put_off(&self, mut entry: Entry) {
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        let delay = PACE
            .delay(state.failures, Duration::MAX, random_bits())
            .unwrap_or(PACE.base);
        entry.due = self.runtime.timer.now() + delay;
        let due = entry.due;
        state.entries.push(entry);
        for entry in &mut state.entries {
            entry.due = entry.due.max(due);
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
        self.state.lock().alarm = None;
        self.resume();
        None
    }
}
