//! The life of a guard: held, renewed, lost, released. All of it is decided here, under one mutex and without I/O or a clock
//! of its own, so that `lifecycle_model.rs` can try every interleaving. It uses `terms`, `backend`, `options`, `runtime` and
//! `types`.
//!
//! What must never happen: a lost callback that starts once a release has begun, a renewal that is sent after that, a second
//! callback, two extends in flight, a lease believed in for longer than the store promised.

mod terms;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::terms::{
    Effect, ExtendTurn, Extension, Lease, LostCallback, ReleaseTurn, Ring,
};
use self::terms::{InDoubt, believed_until, renewed_after};
use crate::backend::call::Call;
use crate::options::lock::Pace;
use crate::runtime::cancel::CancelToken;
use crate::runtime::sync::{Condvar, Mutex, MutexGuard, ThreadId, current_thread};
use crate::runtime::wake::{Wake, WakeFd};
use crate::types::error::LossReason;
use crate::types::ttl::Ttl;

/// How long a release waits for a lost callback that is running: the callback is the user's, and may never end.
const CALLBACK_LIMIT: Duration = Duration::from_secs(1);

/// With less than this left of a lease, a failed renewal is not repeated: its answer would come too late.
const SHORTEST_RETRY: Duration = Duration::from_millis(2);

/// How long before the end of a lease a thread is made ready for the lost callbacks. While the process forks, or the machine is
/// busy, starting one can take longer than is left between the local deadline and the store's.
const READY_BEFORE: Duration = Duration::from_millis(50);

pub(crate) struct Lifecycle {
    state: Mutex<LifecycleState>,
    /// Notified at every change that a caller may wait for.
    changed: Condvar,
}

struct LifecycleState {
    phase: Phase,
    lost: Option<LossReason>,
    /// When the lease must be taken for gone, on the local clock, as far as the store has answered.
    deadline: Duration,
    /// The same, if the store has applied the extend in flight.
    deadline_if_applied: Option<Duration>,
    ttl: Ttl,
    pace: Pace,
    early: u8,
    /// When the next renewal is due; none if there will be none.
    renew_at: Option<Duration>,
    /// The end of the lease for which a thread was made ready.
    ready_for: Option<Duration>,
    /// A renewal is due and has not begun.
    due: bool,
    hold_until: Option<Duration>,
    expires_at_ms: i64,
    beat: Beat,
    /// The extend in flight, by the token that ends it.
    extending: Option<CancelToken>,
    /// What a delayed extend may still do to the lease.
    in_doubt: Option<InDoubt>,
    /// By [`LostCallback`].
    reports: [Report; 2],
    lost_fd: Option<Arc<WakeFd>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    /// A release is on its way.
    Releasing,
    /// A release was tried, and its outcome is not known.
    Unknown,
    /// A release was answered.
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Beat {
    None,
    /// A renewal waits for its thread.
    Starting,
    Running,
}

/// What became of a lost callback.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Report {
    /// There is one, and no reason to call it yet.
    Wanted,
    Queued,
    Running(ThreadId),
    /// It ran, was discarded, or never existed.
    Done,
}

impl Lifecycle {
    pub(crate) fn new(lease: Lease) -> Self {
        let renew_at =
            renewed_after(lease.pace, lease.early, lease.ttl).map(|after| lease.sent + after);
        Self {
            state: Mutex::new(LifecycleState {
                phase: Phase::Held,
                lost: None,
                deadline: believed_until(lease.sent, lease.ttl),
                deadline_if_applied: None,
                ttl: lease.ttl,
                pace: lease.pace,
                early: lease.early,
                renew_at,
                ready_for: None,
                due: false,
                hold_until: lease.max_hold.map(|d| lease.sent.saturating_add(d)),
                expires_at_ms: lease.expires_at_ms,
                beat: Beat::None,
                extending: None,
                in_doubt: None,
                reports: lease.callbacks.map(
                    |is_set| {
                        if is_set { Report::Wanted } else { Report::Done }
                    },
                ),
                lost_fd: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// When the timer must ring next.
    pub(crate) fn alarm(&self) -> Option<Duration> {
        self.state.lock().alarm()
    }

    /// The timer rang: lose the lease if its time is over, have it renewed if that is due.
    pub(crate) fn ring(&self, now: Duration) -> Ring {
        let mut state = self.state.lock();
        if !state.is_held() {
            return Ring::Never;
        }
        if now >= state.counted_on_until() {
            self.lose_overdue(&mut state, now);
            return Ring::Lost;
        }
        if state.ready_at().is_some_and(|at| now >= at) {
            state.ready_for = Some(state.counted_on_until());
            return state.alarm().map_or(Ring::Never, Ring::Ready);
        }
        let mut start = false;
        if state.renew_at.is_some_and(|at| now >= at) {
            state.renew_at = None;
            if state.hold_until.is_none_or(|end| now < end) {
                state.due = true;
                start = state.beat == Beat::None;
                if start {
                    state.beat = Beat::Starting;
                }
                self.changed.notify_all();
            }
        }
        match (start, state.alarm()) {
            (true, Some(at)) => Ring::Start(at),
            (_, Some(at)) => Ring::At(at),
            (_, None) => Ring::Never,
        }
    }

    /// No renewal is sent from here on. The lease runs out by itself unless it is extended or released.
    pub(crate) fn stop_renewing(&self) {
        let mut state = self.state.lock();
        state.pace = Pace::Never;
        state.renew_at = None;
        state.due = false;
    }

    /// The heartbeat thread could not be started; it is tried again at `again`.
    pub(crate) fn not_started(&self, again: Duration) -> Option<Duration> {
        let mut state = self.state.lock();
        state.beat = Beat::None;
        state.due = false;
        if state.is_held() {
            state.renew_at = Some(again);
        }
        self.changed.notify_all();
        state.alarm()
    }

    /// The renewal that is due, for the thread that was started for it; `None` if there is none.
    pub(crate) fn next_renewal(&self) -> Option<(Ttl, CancelToken)> {
        let mut state = self.state.lock();
        // A manual extend in flight does the renewal's work; if it fails, the timer rings again at once.
        if state.is_held() && state.due && state.extending.is_none() {
            state.beat = Beat::Running;
            state.due = false;
            let token = CancelToken::new();
            state.extending = Some(token.clone());
            return Some((state.ttl, token));
        }
        state.beat = Beat::None;
        self.changed.notify_all();
        None
    }

    /// The heartbeat panicked: the lease is not renewed any more. Answers whether the guard was lost by that.
    pub(crate) fn broken(&self) -> bool {
        let mut state = self.state.lock();
        state.beat = Beat::None;
        state.extending = None;
        state.deadline_if_applied = None;
        let lost_now = state.is_held();
        if lost_now {
            self.lose(&mut state, LossReason::HeartbeatFailed);
        }
        self.changed.notify_all();
        lost_now
    }

    /// Waits for the turn of a manual extend, at most until `call` is over (a cancel must wake us). Answers as well whether the
    /// guard was lost just now.
    pub(crate) fn begin_extend(
        &self,
        now: Duration,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> (ExtendTurn, bool) {
        let mut state = self.state.lock();
        loop {
            if state.is_held() && now >= state.counted_on_until() {
                self.lose_overdue(&mut state, now);
                return (ExtendTurn::Absent, true);
            }
            if !state.is_held() {
                return (ExtendTurn::Absent, false);
            }
            if call.is_over() {
                return (ExtendTurn::Stopped, false);
            }
            if state.extending.is_none() {
                let token = call
                    .token()
                    .map_or_else(CancelToken::new, CancelToken::child);
                state.extending = Some(token.clone());
                return (ExtendTurn::Send(ttl, token), false);
            }
            self.changed.wait_until(&mut state, call.deadline());
        }
    }

    /// An extend for `ttl` leaves at `sent`. If it shortens the lease, the store may do that at any time from now on, and the
    /// answer may take longer than the new lease. So the shorter of the two counts until then. Answers when the timer must ring,
    /// if that is sooner than before.
    pub(crate) fn send_extend(&self, sent: Duration, ttl: Ttl) -> Option<Duration> {
        let mut state = self.state.lock();
        let applied = believed_until(sent, ttl);
        if applied >= state.deadline {
            return None;
        }
        state.deadline_if_applied = Some(applied);
        state.alarm()
    }

    /// An extend for `ttl` that was sent at `sent` has ended; `retry` is when the heartbeat tries again if it failed.
    pub(crate) fn end_extend(
        &self,
        now: Duration,
        sent: Duration,
        ttl: Ttl,
        how: &Extension,
        retry: Duration,
    ) -> Effect {
        let mut state = self.state.lock();
        state.extending = None;
        self.changed.notify_all();
        if !state.is_held() {
            return Effect {
                held: false,
                lost_now: false,
                alarm: None,
            };
        }
        // A lease that ran out while the answer was on its way stays lost: the caller may have acted on that already.
        if now >= state.counted_on_until() {
            self.lose_overdue(&mut state, now);
            return Effect::LOST;
        }
        state.deadline_if_applied = None;
        let mut held = true;
        match how {
            Extension::Extended(expires_at_ms) => {
                let lease = state.settle_doubt(ttl, *expires_at_ms);
                state.deadline = believed_until(sent, lease);
                state.ttl = ttl;
                state.expires_at_ms = *expires_at_ms;
                state.due = false;
                state.renew_at =
                    renewed_after(state.pace, state.early, lease).map(|after| sent + after);
            }
            Extension::Absent => {
                self.lose(&mut state, LossReason::Removed);
                return Effect::LOST;
            }
            // It may have shortened the lease: believe in the shorter one of the two.
            Extension::Unknown { not_after_ms } => {
                state.deadline = state.deadline.min(believed_until(sent, ttl));
                if let Some(not_after_ms) = *not_after_ms {
                    state.in_doubt = Some(InDoubt::and(state.in_doubt, ttl, not_after_ms));
                }
                held = false;
            }
            Extension::Refused => held = false,
        }
        let urgent = matches!(how, Extension::Unknown { .. }) || state.renew_at.is_none();
        if !held && state.due {
            // The thread that was started for this renewal may have left meanwhile.
            if state.beat == Beat::None {
                state.due = false;
                state.renew_at = Some(now);
            }
        } else if !held && urgent && state.pace != Pace::Never {
            state.retry_by(now, retry);
        }
        // A new lease may be over already, if the answer took that long.
        if now >= state.counted_on_until() {
            self.lose_overdue(&mut state, now);
            return Effect::LOST;
        }
        Effect {
            held,
            lost_now: false,
            alarm: state.alarm(),
        }
    }

    /// The callback's turn has come; false if a release was faster.
    pub(crate) fn begin_report(&self, which: LostCallback) -> bool {
        let mut state = self.state.lock();
        if state.reports[which as usize] == Report::Queued && state.phase == Phase::Held {
            state.reports[which as usize] = Report::Running(current_thread());
            return true;
        }
        false
    }

    pub(crate) fn end_report(&self, which: LostCallback) {
        self.state.lock().reports[which as usize] = Report::Done;
        self.changed.notify_all();
    }

    /// Waits for the turn of a release and brings the guard to rest: no renewal is in flight or to come, and no callback
    /// starts, once this has answered. Waits at most until `call` is over (a cancel must wake us).
    pub(crate) fn begin_release(&self, call: &Call<'_>) -> ReleaseTurn {
        let mut state = self.state.lock();
        while state.phase == Phase::Releasing {
            if call.is_over() {
                return ReleaseTurn::Stopped;
            }
            self.changed.wait_until(&mut state, call.deadline());
        }
        if state.phase == Phase::Gone {
            return ReleaseTurn::Known;
        }
        state.phase = Phase::Releasing;
        for report in &mut state.reports {
            if *report == Report::Queued {
                *report = Report::Done;
            }
        }
        if let Some(token) = &state.extending {
            token.cancel();
        }
        self.changed.notify_all();
        // A renewal that has not begun finds the guard released, whenever its thread comes to it.
        while state.beat == Beat::Running || state.extending.is_some() {
            if call.is_over() {
                state.phase = Phase::Unknown;
                self.changed.notify_all();
                return ReleaseTurn::Stopped;
            }
            self.changed.wait_until(&mut state, call.deadline());
        }
        // The clock is not read for nothing: every release comes by here.
        let mut limit = None;
        while state.runs_a_callback_elsewhere() {
            let now = Instant::now();
            let until = *limit.get_or_insert(now + CALLBACK_LIMIT);
            if now >= until || call.is_over() {
                break;
            }
            let until = call.deadline().map_or(until, |end| end.min(until));
            self.changed.wait_until(&mut state, Some(until));
        }
        ReleaseTurn::Send
    }

    /// The release was answered, or not.
    pub(crate) fn end_release(&self, answered: bool) {
        self.state.lock().phase = if answered {
            Phase::Gone
        } else {
            Phase::Unknown
        };
        self.changed.notify_all();
    }

    /// Whether the guard is lost at `now`, and whether that was found out just now.
    pub(crate) fn is_lost(&self, now: Duration) -> (bool, bool) {
        let mut state = self.state.lock();
        if state.is_held() && now >= state.counted_on_until() {
            self.lose_overdue(&mut state, now);
            return (true, true);
        }
        (state.lost.is_some(), false)
    }

    /// What is left of the lease; zero once lost or released.
    pub(crate) fn remaining(&self, now: Duration) -> Duration {
        let state = self.state.lock();
        if state.is_held() {
            state.counted_on_until().saturating_sub(now)
        } else {
            Duration::ZERO
        }
    }

    /// Whether it is held, as far as is known: neither lost nor the subject of a release.
    pub(crate) fn is_held(&self) -> bool {
        self.state.lock().is_held()
    }

    pub(crate) fn expires_at_ms(&self) -> i64 {
        self.state.lock().expires_at_ms
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.state.lock().lost
    }

    /// Waits until lost or released, at most until `call` is over (a cancel must wake us).
    pub(crate) fn wait_lost(&self, call: &Call<'_>) {
        let mut state = self.state.lock();
        while state.is_held() && !call.is_over() {
            self.changed.wait_until(&mut state, call.deadline());
        }
    }

    /// Has `fd` raised on loss, at once if that has happened.
    pub(crate) fn raise_on_loss(&self, fd: &Arc<WakeFd>) {
        let mut state = self.state.lock();
        if state.lost.is_some() {
            fd.wake();
        }
        state.lost_fd = Some(Arc::clone(fd));
    }

    /// The local deadline has passed.
    fn lose_overdue(&self, state: &mut MutexGuard<'_, LifecycleState>, now: Duration) {
        let why = if state.hold_until.is_some_and(|end| now >= end) {
            LossReason::MaxHold
        } else if state.pace == Pace::Never {
            LossReason::NotRenewed
        } else {
            LossReason::Unconfirmed
        };
        self.lose(state, why);
    }

    /// The guard is lost, which it can be once. The caller queues the callbacks.
    fn lose(&self, state: &mut MutexGuard<'_, LifecycleState>, why: LossReason) {
        state.lost = Some(why);
        if let Some(token) = &state.extending {
            token.cancel();
        }
        if let Some(fd) = &state.lost_fd {
            fd.wake();
        }
        self.changed.notify_all();
        for report in &mut state.reports {
            if *report == Report::Wanted {
                *report = Report::Queued;
            }
        }
    }
}

impl Wake for Lifecycle {
    /// A caller that waits here must look again. The mutex is taken so that a waiter on its way to sleep is not missed.
    fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }
}

impl LifecycleState {
    fn is_held(&self) -> bool {
        self.phase == Phase::Held && self.lost.is_none()
    }

    /// When the lease must be taken for gone, whatever the store does with an extend in flight.
    fn counted_on_until(&self) -> Duration {
        let applied = self.deadline_if_applied.unwrap_or(self.deadline);
        self.deadline.min(applied)
    }

    /// When a thread must be made ready for the lost callbacks; `None` if there are none, or it has been.
    fn ready_at(&self) -> Option<Duration> {
        let end = self.counted_on_until();
        let is_needed = self.reports.contains(&Report::Wanted) && self.ready_for != Some(end);
        is_needed.then(|| end.saturating_sub(READY_BEFORE))
    }

    fn runs_a_callback_elsewhere(&self) -> bool {
        let elsewhere =
            |report: &Report| matches!(report, Report::Running(t) if *t != current_thread());
        self.reports.iter().any(elsewhere)
    }

    /// How long a lease for `ttl` that was just answered may be counted on. A delayed extend that the store may still apply
    /// would cut it to that extend's own TTL, counted from then: until the store's clock has passed its time, the shorter TTL
    /// counts.
    fn settle_doubt(&mut self, ttl: Ttl, expires_at_ms: i64) -> Ttl {
        let Some(doubt) = self.in_doubt else {
            return ttl;
        };
        let store_now_ms = expires_at_ms.saturating_sub(ttl.as_millis());
        if store_now_ms > doubt.not_after_ms {
            self.in_doubt = None;
            return ttl;
        }
        ttl.min(doubt.ttl)
    }

    /// Has a failed extend followed by a renewal at `retry`, or sooner if the lease would be over by then and there is time.
    fn retry_by(&mut self, now: Duration, retry: Duration) {
        let left = self.deadline.saturating_sub(now);
        let at = if retry < self.deadline {
            retry
        } else if left > SHORTEST_RETRY {
            now + left / 2
        } else {
            return;
        };
        self.renew_at = Some(self.renew_at.map_or(at, |before| before.min(at)));
    }

    fn alarm(&self) -> Option<Duration> {
        if !self.is_held() {
            return None;
        }
        let times = [self.renew_at, self.ready_at()];
        let end = self.counted_on_until();
        Some(times.into_iter().flatten().fold(end, Duration::min))
    }
}
