//! Takes back acquires of unknown outcome, so that a lost reply does not lock a key until its TTL. It uses `backend`, `options`,
//! `runtime` and `types`.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::backend::{Backend, ReleaseOutcome};
use crate::options::hooks::{OnReleaseError, report_failed_release};
use crate::options::retry::{Backoff, Jitter, Retry};
use crate::runtime::Runtime;
use crate::runtime::ending::InUse;
use crate::runtime::sync::Mutex;
use crate::runtime::timer::Alarm;
use crate::runtime::workers::guarded;
use crate::types::error::LockError;
use crate::types::event::Subject;
use crate::types::failed_release::{FailedRelease, ReleaseOrigin};
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::random::random_bits;
use crate::types::ttl::Ttl;

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
    operation_timeout: Duration,
    runtime: Runtime,
    hook: Option<OnReleaseError>,
    state: Mutex<UndoState>,
}

#[derive(Default)]
struct UndoState {
    entries: Vec<Doubtful>,
    /// Whether a thread works on them.
    working: bool,
    /// When the timer rings for them, if it does.
    alarm: Option<Duration>,
    failures: u32,
    /// What is not undone yet needs the library's threads, also when the client is gone.
    in_use: Option<InUse>,
}

/// An acquire of unknown outcome.
struct Doubtful {
    key: Key,
    lock_id: LockId,
    due: Duration,
    /// When the lease has ended by itself.
    until: Duration,
    /// When the store refuses the acquire if it has not met it by then; `None` if that is not known.
    settled: Option<Duration>,
    /// How often a release found nothing.
    looked: usize,
}

impl Doubtful {
    /// When to look again after a look that found nothing; `None` if the acquire will hardly come any more. The time at which
    /// the store refuses it is one more look, not the last one: a store that met it in time may still be committing it.
    fn next_look(&self, now: Duration) -> Option<Duration> {
        let soon = LOOK_AGAIN.get(self.looked).map(|delay| now + *delay);
        match self.settled {
            Some(settled) if now < settled => Some(soon.map_or(settled, |soon| soon.min(settled))),
            _ => soon,
        }
    }
}

impl Undo {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        operation_timeout: Duration,
        runtime: Runtime,
        hook: Option<OnReleaseError>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            backend,
            operation_timeout,
            runtime,
            hook,
            state: Mutex::new(UndoState::default()),
        })
    }

    /// Sees to it that what an acquire of `lock_id` for `ttl` may have left behind is released. It may have been applied as
    /// late as now; until `refused_after` the store may apply it still.
    pub(crate) fn add(&self, key: Key, lock_id: LockId, ttl: Ttl, refused_after: Option<Instant>) {
        let now = self.runtime.timer.now();
        self.push(key, lock_id, ttl, now, refused_after);
    }

    /// The lock was released, and an earlier attempt to acquire it may be on its way until `refused_after`: looks then.
    pub(crate) fn look_later(&self, key: Key, lock_id: LockId, ttl: Ttl, refused_after: Instant) {
        let due = self.on_the_timer(refused_after);
        self.push(key, lock_id, ttl, due, Some(refused_after));
    }

    fn push(
        &self,
        key: Key,
        lock_id: LockId,
        ttl: Ttl,
        due: Duration,
        refused_after: Option<Instant>,
    ) {
        let settled = refused_after.map(|at| self.on_the_timer(at));
        let applied = self.runtime.timer.now().max(settled.unwrap_or_default());
        let mut state = self.state.lock();
        state.in_use.get_or_insert_with(InUse::new);
        state.entries.push(Doubtful {
            key,
            lock_id,
            due,
            until: applied + ttl.as_duration(),
            settled,
            looked: 0,
        });
        drop(state);
        self.resume();
    }

    /// A time of the process's clock as one of the timer's.
    fn on_the_timer(&self, at: Instant) -> Duration {
        self.runtime.timer.now() + at.saturating_duration_since(Instant::now())
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
            let subject = Subject {
                key: &entry.key,
                fence: None,
                held: None,
            };
            let call = Call::new()
                .within(self.operation_timeout)
                .about(Some(&subject));
            let answer = guarded(|| self.backend.release(&entry.lock_id, &call))
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
    fn next(&self) -> Option<Doubtful> {
        let now = self.runtime.timer.now();
        let mut state = self.state.lock();
        if let Some(i) = state.entries.iter().position(|entry| entry.due <= now) {
            return Some(state.entries.swap_remove(i));
        }
        state.working = false;
        let Some(due) = state.entries.iter().map(|entry| entry.due).min() else {
            let unused = state.in_use.take();
            // The drop of the last use takes other mutexes.
            drop(state);
            drop(unused);
            return None;
        };
        if state.alarm.is_none_or(|at| due < at)
            && let Some(me) = self.me.upgrade()
            && self.runtime.timer.set(due, me).is_ok()
        {
            state.alarm = Some(due);
        }
        // Without a timer the next acquire in doubt begins again.
        None
    }

    fn look_again(&self, mut entry: Doubtful) {
        let mut state = self.state.lock();
        state.failures = 0;
        let now = self.runtime.timer.now();
        if let Some(due) = entry.next_look(now) {
            // The looks before the store refuses it do not count against those after.
            let settles = entry
                .settled
                .is_some_and(|settled| now < settled && due >= settled);
            entry.looked = if settles { 0 } else { entry.looked + 1 };
            entry.due = due;
            state.entries.push(entry);
        }
    }

    /// The store is in trouble: everything waits.
    fn put_off(&self, mut entry: Doubtful) {
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

    fn give_up(&self, entry: &Doubtful, error: LockError) {
        let failed = FailedRelease {
            error: error.for_key(&entry.key),
            key: entry.key.clone(),
            lock_id: entry.lock_id,
            origin: ReleaseOrigin::Undo,
        };
        report_failed_release(
            failed,
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

    fn done(self: Arc<Self>) {
        let runtime = self.runtime.clone();
        runtime.drop_elsewhere(self);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
