//! [`Held`]: what a guard shares with its heartbeat and with the timer. It uses `lifecycle`, `waiting`, `backend`, `options`,
//! `runtime` and `types`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::holding::lifecycle::{Lease, Lifecycle, LostCallback, Ring};
use crate::options::hooks::{OnLost, OnReleaseError};
use crate::options::lock::{CheckedLockOptions, LockOptions};
use crate::runtime::cancel::CancelSubscription;
use crate::runtime::renewals::Renewal;
use crate::runtime::threads;
use crate::runtime::timer::{Alarm, AlarmId};
use crate::runtime::wake::Wake;
use crate::runtime::workers::guarded;
use crate::types::error::{ErrorCode, LockError};
use crate::types::event::{LockEventType, Subject, UnhashedEvent};
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::lost_lock::LostLock;
use crate::types::stored_lock::Acquired;
use crate::types::ttl::Ttl;
use crate::waiting::attempt::Granted;
use crate::waiting::core::Core;

/// How soon a heartbeat that could not be started is tried again.
const START_AGAIN: Duration = Duration::from_millis(50);

/// A lock that is held, as its guard, its heartbeat and the timer see it.
pub(super) struct Held {
    pub(super) core: Arc<Core>,
    pub(super) life: Lifecycle,
    pub(super) granted: Acquired,
    pub(super) key: Key,
    /// How long the caller waited for the grant.
    pub(super) waited: Duration,
    /// When the request was sent that the store granted.
    sent: Duration,
    /// Set once the timer has the first alarm.
    pub(super) alarm_id: OnceLock<AlarmId>,
    late_acquire: Option<LateAcquire>,
    /// How long the release in the drop may take.
    pub(super) dispose_timeout: Duration,
    on_lost: Option<OnLost>,
    pub(super) on_release_error: Option<OnReleaseError>,
    /// The [number](threads::number) of the thread that took the lock.
    thread: u64,
}

/// An attempt of this grant that was not answered may still reach the store: after the release it would take the lock again.
struct LateAcquire {
    ttl: Ttl,
    /// When the store refuses it.
    refused_after: Instant,
}

/// Another for every lock, and the same for all the life of one.
fn early(lock_id: &LockId) -> u8 {
    let bytes = lock_id.as_str().bytes();
    bytes.fold(0, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(byte))
}

impl Held {
    pub(super) fn new(
        core: &Arc<Core>,
        key: Key,
        granted: Granted,
        checked: &CheckedLockOptions,
        options: &LockOptions,
    ) -> Arc<Self> {
        let life = Lifecycle::new(Lease {
            sent: granted.sent,
            ttl: checked.ttl,
            pace: checked.pace,
            early: early(&granted.acquired.lock_id),
            max_hold: options.max_hold_after(),
            expires_at_ms: granted.acquired.expires_at_ms,
            callbacks: [
                options.lost_callback().is_some(),
                core.hooks.on_lost.is_some(),
            ],
        });
        Arc::new(Self {
            core: Arc::clone(core),
            life,
            granted: granted.acquired,
            key,
            waited: granted.waited,
            sent: granted.sent,
            alarm_id: OnceLock::new(),
            late_acquire: granted.refused_after.map(|refused_after| LateAcquire {
                ttl: checked.ttl,
                refused_after,
            }),
            dispose_timeout: options.dispose_within().unwrap_or(core.timeouts.dispose),
            on_lost: options.lost_callback().cloned(),
            on_release_error: core.hooks.with_release_hook(options.release_hook()),
            thread: threads::number(),
        })
    }

    pub(super) fn now(&self) -> Duration {
        self.core.now()
    }

    pub(super) fn remaining(&self) -> Duration {
        self.life.remaining(self.now())
    }

    pub(super) fn set_alarm(self: &Arc<Self>, at: Duration) {
        if let Some(alarm_id) = self.alarm_id.get() {
            self.core
                .runtime
                .timer
                .reset(*alarm_id, at, Arc::clone(self) as Arc<dyn Alarm>);
            // A release may have cleared it since `at` was decided; set again, it would keep the guard and its callback.
            if self.life.alarm().is_none() {
                self.core.runtime.timer.clear(*alarm_id);
            }
        }
    }

    /// Has the renewal that is due sent on a thread of its own; false if there is no thread to be had. What a renewal does is in
    /// `heartbeat.rs`.
    pub(super) fn start_renewal(self: &Arc<Self>, deadline: Duration) -> bool {
        let renewal = Arc::clone(self) as Arc<dyn Renewal>;
        self.core.renewals.add(deadline, renewal)
    }

    /// Takes back the lock that an earlier attempt may take after the release.
    pub(super) fn watch_for_late_acquire(&self) {
        if let Some(late) = &self.late_acquire
            && Instant::now() < late.refused_after
        {
            let lock_id = self.granted.lock_id;
            self.core
                .undo_later(&self.key, lock_id, late.ttl, late.refused_after);
        }
    }

    /// A cancel must end the wait for the guard's other calls too.
    pub(super) fn wake_on_cancel(self: &Arc<Self>, call: &Call<'_>) -> Option<CancelSubscription> {
        let token = call.token()?;
        Some(token.subscribe(Arc::new(WakeCalls(Arc::clone(self)))))
    }

    /// How long the lock has been held.
    pub(super) fn held_for(&self) -> Duration {
        self.now().saturating_sub(self.sent)
    }

    /// What telemetry is to know of the lock; `None` if nothing listens.
    pub(super) fn subject(&self) -> Option<Subject<'_>> {
        let events = self.core.events.as_ref();
        events
            .filter(|events| events.is_listened_to())
            .map(|_| Subject {
                key: &self.key,
                fence: Some(self.granted.fence),
                held: None,
            })
    }

    /// If the guard was lost just now: tells of it and queues the lost callbacks.
    pub(super) fn after_loss(self: &Arc<Self>, lost_now: bool) {
        if !lost_now {
            return;
        }
        let held = self.held_for();
        self.tell_loss(held);
        let callbacks = [self.on_lost.is_some(), self.core.hooks.on_lost.is_some()];
        for (which, is_set) in LostCallback::ALL.into_iter().zip(callbacks) {
            if is_set {
                let me = Arc::clone(self);
                self.core.runtime.run(move || me.report(which, held));
            }
        }
    }

    fn tell_loss(&self, held: Duration) {
        if let (Some(events), Some(subject)) = (&self.core.events, self.subject()) {
            let lock_id = Some(&self.granted.lock_id);
            let known = Some(&subject);
            let mut event = UnhashedEvent::new(LockEventType::Loss, None, lock_id, known);
            event.held = Some(held);
            event.code = Some(ErrorCode::Lost);
            event.loss = self.life.loss();
            // This may be the timer's thread.
            events.emit_elsewhere(&self.core.runtime, event);
        }
    }

    fn report(&self, which: LostCallback, held: Duration) {
        if !self.life.begin_report(which) {
            return;
        }
        if let Some(why) = self.life.loss() {
            // A panic is the user's; the guard's state must go on in any case.
            guarded(|| {
                let error = LockError::lost(why).for_key(&self.key);
                match which {
                    LostCallback::Guard => {
                        self.on_lost.iter().for_each(|callback| callback(&error));
                    }
                    LostCallback::Client => {
                        let lost = LostLock {
                            error,
                            key: self.key.clone(),
                            lock_id: self.granted.lock_id,
                            fence: self.granted.fence,
                            held,
                        };
                        let hook = &self.core.hooks.on_lost;
                        hook.iter().for_each(|callback| callback(&lost));
                    }
                }
            });
        }
        self.life.end_report(which);
    }
}

impl Alarm for Held {
    fn is_of(&self, thread: u64, lock_id_hash: &str) -> bool {
        self.thread == thread && self.granted.lock_id.log_hash() == lock_id_hash
    }

    fn ring(self: Arc<Self>, now: Duration) -> Option<Duration> {
        if !self.core.renewing.load(Ordering::Acquire) {
            self.life.stop_renewing();
        }
        match self.life.ring(now) {
            Ring::Never => None,
            Ring::At(at) => Some(at),
            Ring::Start(at) if self.start_renewal(at) => Some(at),
            Ring::Ready(at) => {
                self.core.runtime.workers.expect_job();
                Some(at)
            }
            Ring::Start(_) => self.life.not_started(now + START_AGAIN),
            Ring::Lost => {
                self.after_loss(true);
                None
            }
        }
    }

    fn done(self: Arc<Self>) {
        let runtime = self.core.runtime.clone();
        runtime.drop_elsewhere(self);
    }
}

/// Wakes the calls that wait for their turn with a guard.
struct WakeCalls(Arc<Held>);

impl Wake for WakeCalls {
    fn wake(&self) {
        self.0.life.wake();
    }
}
