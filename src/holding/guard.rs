//! [`Guard`]: a lock that is held. It uses `heartbeat`, `held`, `lifecycle`, `waiting`, `backend`, `options`, `runtime` and
//! `types`.

#[cfg(all(test, not(loom), feature = "testkit"))]
mod tests;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::backend::{Absence, ExtendOutcome, ReleaseOutcome};
use crate::holding::heartbeat;
use crate::holding::held::Held;
use crate::holding::lifecycle::{ExtendTurn, ReleaseTurn};
use crate::options::hooks::report_failed_release;
use crate::options::lock::{CheckedLockOptions, LockOptions};
use crate::runtime::cancel::deadline_after;
use crate::runtime::ending::InUse;
use crate::runtime::timer::{Alarm, AlarmId};
use crate::runtime::unwinding::on_panic;
use crate::runtime::wake::WakeFd;
use crate::runtime::workers::guarded;
use crate::types::error::{ErrorCode, LockError, LossReason};
use crate::types::event::Subject;
use crate::types::failed_release::{FailedRelease, ReleaseOrigin};
use crate::types::fence::Fence;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::ttl::Ttl;
use crate::waiting::attempt::Granted;
use crate::waiting::core::Core;
use crate::waiting::policy::LAST_CHANCE;

/// A lock that is held: renewed in the background, released when dropped.
///
/// `Send` and `Sync`; every method takes `&self` and may be called from any thread, several at once.
///
/// **Check the fence where it matters.** A holder that was paused past its TTL does not know it: only the resource itself,
/// by refusing an older [`fence`](Self::fence), can be safe from it. [`is_lost`](Self::is_lost) tells at once, without I/O, that
/// this process can no longer count on the lock.
///
/// In a forked child an inherited guard answers errors, and its drop sends nothing: the lock stays the parent's.
///
/// **What is not dropped is not released**: a guard in a `static`, one given to `mem::forget`, and every guard when the program
/// ends in `process::exit` or in a panic with `panic = "abort"`. A process that has ended renews nothing, so its locks are free
/// after their TTL; for a guard that outlives its use in a running one set [`max_hold`](crate::LockOptions::max_hold).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// let guard = client.lock("invoice:42")?;
/// println!("write with fence {}", guard.fence());
/// assert!(!guard.is_lost());
/// guard.release()?.expect_released(); // or just drop it
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a guard that is not kept releases its lock at once"]
pub struct Guard {
    held: Arc<Held>,
    alarm_id: AlarmId,
    /// The descriptor of [`Guard::lost_fd`], once asked for.
    fd: OnceLock<Arc<WakeFd>>,
    /// The drop has done its work.
    disposed: bool,
    /// By when the drop ends, if disposing of the guard began before it.
    dispose_by: OnceLock<Instant>,
    /// Dropped last: a guard may outlive its client.
    _in_use: InUse,
}

/// What ended [`Guard::wait_lost_with`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// use std::time::Duration;
/// use syncguard::{Call, WaitEnd};
///
/// let guard = client.lock("nightly")?;
/// match guard.wait_lost_with(&Call::new().within(Duration::from_millis(1))) {
///     WaitEnd::Lost(why) => eprintln!("stop working: {why}"),
///     WaitEnd::TimeOver => println!("still held: go on"),
///     _ => println!("released or cancelled"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
#[non_exhaustive]
pub enum WaitEnd {
    /// The lock is lost, for this reason: stop working.
    Lost(LossReason),
    /// The guard is released, or its release has begun.
    Released,
    /// The token of the call was cancelled. The lock is held.
    Cancelled,
    /// The deadline of the call has passed. The lock is held.
    TimeOver,
}

impl Guard {
    /// Takes a grant into care: from here on it is renewed, and lost if that fails. `by` is when the caller's call ends.
    ///
    /// # Errors
    /// If the timer cannot be started. The lock was given back.
    pub(crate) fn new(
        core: &Arc<Core>,
        in_use: &InUse,
        key: Key,
        granted: Granted,
        by: Instant,
        checked: &CheckedLockOptions,
        options: &LockOptions,
    ) -> Result<Self, LockError> {
        let (sent, refused_after) = (granted.sent, granted.refused_after);
        let held = Held::new(core, key, granted, checked, options);
        let at = held.life.alarm().unwrap_or_default();
        let alarm = Arc::clone(&held) as Arc<dyn Alarm>;
        let alarm_id = core.runtime.timer.set(at, alarm).map_err(|error| {
            give_back(&held, by, checked.ttl, refused_after);
            error.for_key(&held.key)
        })?;
        warn_if_lost(&held, sent, checked);
        Ok(Self::with_alarm(held, in_use.clone(), alarm_id, at))
    }

    /// The guard of a grant whose first alarm was set for `at`.
    fn with_alarm(held: Arc<Held>, in_use: InUse, alarm_id: AlarmId, at: Duration) -> Self {
        let _ = held.alarm_id.set(alarm_id);
        // The heartbeat may have been faster: it had no alarm_id to set the alarm of the next renewal with. The loop ends when
        // no renewal came in between.
        let mut set = at;
        while let Some(at) = held.life.alarm().filter(|at| *at != set) {
            let alarm = Arc::clone(&held) as Arc<dyn Alarm>;
            held.core.runtime.timer.reset(alarm_id, at, alarm);
            set = at;
        }
        Self {
            held,
            alarm_id,
            fd: OnceLock::new(),
            disposed: false,
            dispose_by: OnceLock::new(),
            _in_use: in_use,
        }
    }

    /// The fencing token: larger than that of every earlier grant of this key. [`Fence::NONE`] over a store of your own without
    /// [fencing](crate::Capabilities::supports_fencing).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// println!("UPDATE account SET … WHERE fence <= {}", i64::from(guard.fence()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fence(&self) -> Fence {
        self.held.granted.fence
    }

    /// The id of this grant. A program that knows it can release or extend the lock, from any process or language.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// println!("held as #{}", guard.lock_id().log_hash());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lock_id(&self) -> &LockId {
        &self.held.granted.lock_id
    }

    /// The key. `guard.key().as_str()` is the normalised text.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// assert_eq!(guard.key().as_str(), "nightly");
    /// assert!(client.is_locked(guard.key())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(&self) -> &Key {
        &self.held.key
    }

    /// When the lease ends, on the store's clock (Unix milliseconds), as of the last renewal. For display; decide by
    /// [`remaining`](Self::remaining).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// println!("the lease ends at {} on the store's clock", guard.expires_at_ms());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expires_at_ms(&self) -> i64 {
        if self.is_inherited() {
            return self.held.granted.expires_at_ms;
        }
        self.held.life.expires_at_ms()
    }

    /// How long the call that took the lock went on until the store granted it: the time in line, the sleeps and the attempts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// println!("waited for {:?}", guard.waited());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waited(&self) -> Duration {
        self.held.waited
    }

    /// How much longer this process may count on the lock: less than the store grants, by a margin. Zero once lost or
    /// released. No I/O.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// if guard.remaining() < Duration::from_secs(5) {
    ///     println!("too little time is left for the next step");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remaining(&self) -> Duration {
        if self.is_inherited() {
            Duration::ZERO
        } else {
            self.held.remaining()
        }
    }

    /// Whether this process can no longer count on the lock: it could not be renewed in time, or the store no longer has it.
    /// For good. No I/O; compares the clock at the moment of the call. A released guard is not lost, unless it was before.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// for step in 0..3 {
    ///     if guard.is_lost() {
    ///         break; // another holder may work already
    ///     }
    ///     println!("step {step}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_lost(&self) -> bool {
        if self.is_inherited() {
            return true;
        }
        let (lost, lost_now) = self.held.life.is_lost(self.held.now());
        self.held.after_loss(lost_now);
        lost
    }

    /// Why the lock was lost; `None` while it is held, and if it was released before it could be lost. No I/O; compares the
    /// clock at the moment of the call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// if let Some(why) = guard.loss() {
    ///     eprintln!("stop working: {why}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn loss(&self) -> Option<LossReason> {
        if self.is_inherited() {
            return Some(LossReason::Forked);
        }
        if self.is_lost() {
            self.held.life.loss()
        } else {
            None
        }
    }

    /// Waits until the lock is lost (true) or released (false), however long that takes. From any thread, any number at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// std::thread::scope(|scope| {
    ///     let watcher = scope.spawn(|| guard.wait_lost());
    ///     guard.release()?.expect_released();
    ///     assert!(!watcher.join().unwrap());
    ///     Ok::<(), syncguard::LockError>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_lost(&self) -> bool {
        matches!(self.wait_lost_with(&Call::new()), WaitEnd::Lost(_))
    }

    /// As [`wait_lost`](Self::wait_lost), at most for `timeout`; false too if that has passed. A `timeout` of [`Duration::MAX`]
    /// is without end.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    ///
    /// let guard = client.lock("nightly")?;
    /// assert!(!guard.wait_lost_for(Duration::from_millis(5)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_lost_for(&self, timeout: Duration) -> bool {
        let call = Call::new().within(timeout);
        matches!(self.wait_lost_with(&call), WaitEnd::Lost(_))
    }

    /// Waits until the lock is lost or released, the token of `call` is cancelled, or its deadline has passed, and says which
    /// of them it was: the pause of a worker that repeats its work under a lock. No I/O. Where several are true, the first of
    /// the list in [`WaitEnd`] is answered. From any thread, any number at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// use std::time::Duration;
    /// use syncguard::{Call, CancelToken, WaitEnd};
    ///
    /// let shutdown = CancelToken::new();
    /// let guard = client.lock("nightly")?;
    /// loop {
    ///     println!("one step of the work");
    ///     # shutdown.cancel();
    ///     let pause = Call::new().within(Duration::from_secs(10)).cancelled_by(&shutdown);
    ///     match guard.wait_lost_with(&pause) {
    ///         WaitEnd::TimeOver => continue,
    ///         WaitEnd::Lost(why) => eprintln!("stop working: {why}"),
    ///         _ => println!("shutting down"),
    ///     }
    ///     break;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_lost_with(&self, call: &Call<'_>) -> WaitEnd {
        if self.is_inherited() {
            return WaitEnd::Lost(LossReason::Forked);
        }
        let held = &self.held;
        // Looks at the clock: the timer's thread may be late.
        if !self.is_lost() {
            let _wake = held.wake_on_cancel(call);
            held.life.wait_lost(call);
        }
        match self.loss() {
            Some(why) => WaitEnd::Lost(why),
            None if !held.life.is_held() => WaitEnd::Released,
            None if call.is_cancelled() => WaitEnd::Cancelled,
            None => WaitEnd::TimeOver,
        }
    }

    /// A descriptor that becomes readable when the lock is lost, for `poll` and `epoll`. It belongs to the guard; do not read
    /// from it and do not close it.
    ///
    /// ```
    /// use std::os::fd::AsRawFd;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// let fd = guard.lost_fd()?;
    /// println!("give {} to poll or epoll", fd.as_raw_fd());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if the process has no descriptor left: close some, or use
    /// [`wait_lost`](Self::wait_lost). [`Lost`](crate::ErrorCode::Lost) in a forked child.
    pub fn lost_fd(&self) -> Result<BorrowedFd<'_>, LockError> {
        if self.is_inherited() {
            return Err(LockError::lost(LossReason::Forked));
        }
        if let Some(fd) = self.fd.get() {
            return Ok(fd.as_fd());
        }
        let fresh = WakeFd::new().map_err(|e| {
            LockError::new(ErrorCode::RateLimited, "no descriptor is left for lost_fd")
                .with_source(e)
        })?;
        let fd = self.fd.get_or_init(|| Arc::new(fresh));
        self.held.life.raise_on_loss(fd);
        Ok(fd.as_fd())
    }

    /// Sets the lease to `ttl` from now, and renews with that from now on. Less than what remains shortens it.
    ///
    /// Answers [`Absent`](ExtendOutcome::Absent), without I/O, once the guard is lost or released. Only one extend of a guard is
    /// in flight at a time: this one waits for a renewal under way.
    ///
    /// [`remaining`](Self::remaining) says how long the lock may be counted on. It may be less than `ttl` after an earlier extend
    /// whose outcome is unknown: until the store refuses that one, it could still shorten the lease. The heartbeat sees to it;
    /// without one, extend again.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// guard.extend(Duration::from_secs(60))?.expect_extended();
    /// assert!(guard.remaining() > Duration::from_secs(50));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad ttl: the lease is as it was.
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout),
    /// [`RateLimited`](crate::ErrorCode::RateLimited), [`AuthFailed`](crate::ErrorCode::AuthFailed) or
    /// [`Internal`](crate::ErrorCode::Internal) if the store did not confirm it: the lease counts as the shorter of what it was and
    /// what was asked for. Look at [`remaining`](Self::remaining), and extend again while that is not zero.
    /// [`Lost`](crate::ErrorCode::Lost) in a forked child: stop working.
    pub fn extend(&self, ttl: Duration) -> Result<ExtendOutcome, LockError> {
        self.extend_with(ttl, &Call::new())
    }

    /// As [`extend`](Self::extend), within the bounds of `call`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// let call = Call::new().within(Duration::from_secs(1));
    /// guard.extend_with(Duration::from_secs(60), &call)?.expect_extended();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`extend`](Self::extend); [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the deadline of `call` has passed:
    /// allow more time. [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled. After both the effect is
    /// unknown.
    pub fn extend_with(&self, ttl: Duration, call: &Call<'_>) -> Result<ExtendOutcome, LockError> {
        self.refuse_inherited()?;
        let ttl = Ttl::new(ttl)?;
        let held = &self.held;
        let call = call.within(held.core.timeouts.operation);
        let _wake = held.wake_on_cancel(&call);
        let (leave, lost_now) = held.life.begin_extend(held.now(), ttl, &call);
        held.after_loss(lost_now);
        match leave {
            ExtendTurn::Send(ttl, token) => {
                match heartbeat::extend(held, ttl, &call.cancelled_by(&token)) {
                    // Not the caller but a release, or the loss of the lock, has ended it: there is nothing left to extend.
                    Err(e) if e.code() == ErrorCode::Aborted && !call.is_cancelled() => {
                        Ok(ExtendOutcome::Absent(Absence::NotFound))
                    }
                    answer => answer,
                }
            }
            ExtendTurn::Absent => Ok(ExtendOutcome::Absent(Absence::NotFound)),
            ExtendTurn::Stopped => Err(stopped(&call).nothing_applied().for_key(&held.key)),
        }
    }

    /// Ends the heartbeat and releases the lock, whatever this process believes of it. Answers whether this call removed it;
    /// [`Absent`](ReleaseOutcome::Absent) if it was gone already, and then another holder may have worked at the same time.
    /// May be repeated: once the store has answered, no more is sent; after an error it is tried again.
    ///
    /// The outcome must be looked at; this does not compile:
    ///
    /// ```compile_fail
    /// #![deny(unused_must_use)]
    /// # fn unlock(guard: syncguard::Guard) -> Result<(), syncguard::LockError> {
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// and this does:
    ///
    /// ```
    /// #![deny(unused_must_use)]
    /// # fn unlock(guard: syncguard::Guard) -> Result<(), syncguard::LockError> {
    /// guard.release()?.expect_released();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ServiceUnavailable`](crate::ErrorCode::ServiceUnavailable), [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout),
    /// [`RateLimited`](crate::ErrorCode::RateLimited), [`AuthFailed`](crate::ErrorCode::AuthFailed) or
    /// [`Internal`](crate::ErrorCode::Internal) if the store did not confirm it: the lock may be held until its ttl has passed.
    /// Release again, or leave it to the drop. [`Lost`](crate::ErrorCode::Lost) in a forked child: the lock is its parent's.
    pub fn release(&self) -> Result<ReleaseOutcome, LockError> {
        self.release_with(&Call::new())
    }

    /// As [`release`](Self::release), within the bounds of `call`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock("nightly")?;
    /// let call = Call::new().within(Duration::from_secs(1));
    /// guard.release_with(&call)?.expect_released();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`release`](Self::release); [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) also if the deadline of `call` has passed:
    /// allow more time. [`Aborted`](crate::ErrorCode::Aborted) if the token of `call` was cancelled. After both, release again or
    /// leave it to the drop.
    pub fn release_with(&self, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        self.refuse_inherited()?;
        let answer = self.release_within(&call.within(self.held.core.timeouts.operation))?;
        Ok(answer.unwrap_or(ReleaseOutcome::Absent(Absence::NotFound)))
    }

    /// The store's answer; `None` if it has answered another release before.
    fn release_within(&self, call: &Call<'_>) -> Result<Option<ReleaseOutcome>, LockError> {
        let held = &self.held;
        if call.is_cancelled() {
            return Err(stopped(call).nothing_applied().for_key(&held.key));
        }
        let _wake = held.wake_on_cancel(call);
        match held.life.begin_release(call) {
            ReleaseTurn::Send => {}
            ReleaseTurn::Known => return Ok(None),
            ReleaseTurn::Stopped => return Err(stopped(call).nothing_applied().for_key(&held.key)),
        }
        held.core.runtime.timer.clear(self.alarm_id);
        // The next waiter of this client asks as soon as its request is sure to come after this one.
        let called = OnceLock::new();
        let call_next = || {
            called.get_or_init(|| held.core.lines.releasing(&held.key));
        };
        let subject = held.subject().map(|known| Subject {
            held: Some(held.held_for()),
            ..known
        });
        let mut call = call
            .within(held.core.timeouts.operation)
            .about(subject.as_ref());
        if held.core.lines.is_waited_for(&held.key) {
            call = call.when_ordered(&call_next);
        }
        // Whatever happens in the store's code, the guard must not stay in the middle of a release.
        let answer = on_panic(
            || held.life.end_release(false),
            || (*held.core.backend).release(&held.granted.lock_id, &call),
        );
        held.life.end_release(answer.is_ok());
        held.watch_for_late_acquire();
        held.core.lines.released(&held.key, called.get().copied());
        answer.map(Some).map_err(|e| e.for_key(&held.key))
    }

    /// Releases within the dispose timeout, for an owner that shares the guard and gives it up. The drop that follows has only
    /// what is left of that time: an owner that is the last one after all does not wait twice.
    #[doc(hidden)]
    pub fn dispose(&self) {
        if !self.is_inherited() {
            let limit = *self
                .dispose_by
                .get_or_init(|| deadline_after(self.held.dispose_timeout));
            let _ = guarded(|| self.release_within(&Call::new().with_deadline(limit)));
        }
    }

    /// Whether this is a forked child's copy. Asked before any mutex is touched.
    fn is_inherited(&self) -> bool {
        !self.held.core.owner.is_this_process()
    }

    fn refuse_inherited(&self) -> Result<(), LockError> {
        if self.is_inherited() {
            Err(LockError::lost(LossReason::Forked))
        } else {
            Ok(())
        }
    }
}

/// Releases a grant whose loss no timer would notice. What the call has left is all that this may take; if the store does not
/// answer, the undoing goes on.
fn give_back(held: &Held, by: Instant, ttl: Ttl, refused_after: Option<Instant>) {
    let core = &held.core;
    let lock_id = held.granted.lock_id;
    let subject = held.subject();
    let call = Call::new()
        .with_deadline(by.max(deadline_after(LAST_CHANCE)))
        .within(core.timeouts.operation)
        .about(subject.as_ref());
    if core.backend.release(&lock_id, &call).is_err() {
        core.undo(&held.key, lock_id, ttl, refused_after);
    } else {
        held.watch_for_late_acquire();
    }
    core.lines.freed(&held.key);
}

/// Warns, once per client, of a ttl so short that the lock is lost already.
fn warn_if_lost(held: &Held, sent: Duration, checked: &CheckedLockOptions) {
    let core = &held.core;
    // With a ttl that is longer than any call the clock need not be read: this is on the path of every lock.
    let longest = checked.acquire_timeout.max(core.timeouts.operation);
    if checked.ttl.as_duration() / 2 < longest
        && held.remaining().is_zero()
        && !core.warned_of_loss.swap(true, Ordering::Relaxed)
    {
        core.warn(format!(
            "a lock was lost already when it was granted: its ttl is {} ms, the grant took {} ms, and a margin of 2 ms and a hundredth of the ttl is kept; use a longer ttl",
            checked.ttl.as_duration().as_millis(),
            held.now().saturating_sub(sent).as_millis()
        ));
    }
}

fn stopped(call: &Call<'_>) -> LockError {
    if call.is_cancelled() {
        LockError::new(ErrorCode::Aborted, "the call was cancelled")
    } else {
        LockError::new(
            ErrorCode::NetworkTimeout,
            "the guard's other call did not end within the operation's time",
        )
    }
}

impl Guard {
    /// Releases the lock at the end of the work that it protected; an error if it was lost meanwhile. A release that fails goes
    /// to the hook, as that of a drop does.
    pub(crate) fn finish(mut self) -> Result<(), LockError> {
        // A guard that was released no longer looks at the clock. A release by the work itself may have been applied without
        // an answer: then that is why the lock is gone.
        let (lost, untouched) = (self.loss(), self.held.life.is_held());
        let answer = self.release_once();
        match (lost, answer) {
            (Some(why), _) => Err(LockError::lost(why).for_key(&self.held.key)),
            (None, Some(ReleaseOutcome::Absent(_))) if untouched => {
                Err(LockError::lost(LossReason::Removed).for_key(&self.held.key))
            }
            (None, _) => Ok(()),
        }
    }

    /// Releases the lock within the dispose timeout, once, and reports what fails. `None` if the store did not answer, or had
    /// answered before.
    fn release_once(&mut self) -> Option<ReleaseOutcome> {
        if self.is_inherited() || std::mem::replace(&mut self.disposed, true) {
            return None;
        }
        let limit = match self.dispose_by.get() {
            Some(begun) => (*begun).max(deadline_after(LAST_CHANCE)),
            None => deadline_after(self.held.dispose_timeout),
        };
        let answer = guarded(|| self.release_within(&Call::new().with_deadline(limit)));
        let error = match answer {
            Some(Ok(answer)) => return answer,
            Some(Err(error)) => error,
            None => {
                LockError::internal("the store panicked during a release").for_key(&self.held.key)
            }
        };
        let failed = FailedRelease {
            error,
            key: self.held.key.clone(),
            lock_id: self.held.granted.lock_id,
            origin: ReleaseOrigin::Drop,
        };
        self.held.core.runtime.timer.clear(self.alarm_id);
        report_failed_release(
            failed,
            self.held.on_release_error.clone(),
            &self.held.core.runtime.workers,
            &self.held.core.runtime.timer,
        );
        None
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.release_once();
    }
}

/// As for [`Client`](crate::Client): a panic in user code leaves a guard whole.
impl UnwindSafe for Guard {}
impl RefUnwindSafe for Guard {}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.held.key)
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
