//! What a caller and the thread that makes its call tell each other. It uses `types`, `runtime`, `backend::call` and
//! `backend::store_clock`.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::backend::store_clock::{StoreClock, TimedReply, send_by};
use crate::runtime::sync::{Condvar, Mutex, MutexGuard};
use crate::runtime::wake::Wake;
use crate::runtime::workers::Job;
use crate::types::error::{ErrorCode, LockError, NotAfter};

/// What the caller and the thread share.
#[derive(Default)]
pub(super) struct HelpedCall {
    state: Mutex<HelpedState>,
    changed: Condvar,
}

#[derive(Default)]
struct HelpedState {
    begun: bool,
    sent: bool,
    done: bool,
    /// The caller has left.
    given_up: bool,
    not_after: Option<NotAfter>,
    unsent: Option<(ErrorCode, String)>,
    afterwards: Vec<Job>,
}

impl HelpedCall {
    /// The thread has the answer. What it is to do afterwards is answered.
    fn finish(&self) -> Vec<Job> {
        let mut state = self.state.lock();
        state.done = true;
        let afterwards = std::mem::take(&mut state.afterwards);
        drop(state);
        self.changed.notify_all();
        afterwards
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// `NetworkTimeout` at the deadline and `Aborted` after a cancel; `RateLimited` if no thread had begun. The thread is told that the
    /// caller has left.
    pub(super) fn wait(&self, call: &Call<'_>, deadline: Instant) -> Result<(), LockError> {
        let mut state = self.state.lock();
        while !state.done && !call.is_over() {
            self.changed.wait_until(&mut state, Some(deadline));
        }
        if state.done {
            return Ok(());
        }
        state.given_up = true;
        if state.sent {
            return Err(call.overrun().refused_after(state.not_after));
        }
        if call.is_cancelled() {
            return Err(call.overrun().nothing_applied());
        }
        if !state.begun {
            return Err(LockError::new(
                ErrorCode::RateLimited,
                "every thread that may call the driver was with it until the deadline; the server does not answer, or the pool is too small",
            )
            .nothing_applied());
        }
        Err(match state.unsent.take() {
            Some((code, text)) => LockError::new(code, text).nothing_applied(),
            None => call.overrun().nothing_applied(),
        })
    }
}

impl Wake for HelpedCall {
    fn wake(&self) {
        // Taken, so that the caller does not begin to wait between its look and this.
        drop(self.state.lock());
        self.changed.notify_all();
    }
}

/// A call, as the helper thread knows it that makes it. For backends of your own.
pub struct HelperCall {
    helped: Arc<HelpedCall>,
    deadline: Instant,
}

impl HelperCall {
    pub(super) fn new(helped: Arc<HelpedCall>, deadline: Instant) -> Self {
        Self { helped, deadline }
    }

    /// By when the caller leaves.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::{Call, HelperThreads};
    ///
    /// let call = Call::new().within(Duration::from_secs(5));
    /// HelperThreads::new(1).run(&call, |call| {
    ///     assert!(call.deadline() > std::time::Instant::now());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How much time is left until then; zero once the caller has left.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::{Call, HelperThreads};
    ///
    /// let call = Call::new().within(Duration::from_secs(5));
    /// HelperThreads::new(1).run(&call, |call| {
    ///     assert!(call.remaining() <= Duration::from_secs(5));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn remaining(&self) -> Duration {
        if self.helped.state.lock().given_up {
            return Duration::ZERO;
        }
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Says what the error is if the deadline passes before anything was [sent](Self::sending), and nothing was applied: why the work
    /// waits now. By default it is [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout).
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::{Call, HelperThreads};
    ///
    /// let call = Call::new().within(Duration::from_secs(5));
    /// HelperThreads::new(1).run(&call, |call| {
    ///     call.waits_because(syncguard::ErrorCode::RateLimited, "every connection of the pool is in use");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn waits_because(&self, code: ErrorCode, message: impl Into<String>) {
        self.helped.state.lock().unsent = Some((code, message.into()));
    }

    /// Says that from here on the store may do what was asked: an error that the caller gets is then one of unknown effect.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::{Call, HelperThreads};
    ///
    /// let call = Call::new().within(Duration::from_secs(5));
    /// HelperThreads::new(1).run(&call, |call| {
    ///     call.sending()?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or [`Aborted`](crate::ErrorCode::Aborted) if the time is over or the caller
    /// has left: send nothing, and answer this.
    pub fn sending(&self) -> Result<(), LockError> {
        self.note(None)
    }

    /// Sends a request that changes a lease, with the time after which the store shall refuse it, so that one which the network holds
    /// back cannot undo what was asked for later. `send` is given that time in Unix milliseconds of the store's clock, and says
    /// whether the store refused for it. It calls the driver each time.
    ///
    /// `clock` belongs to the connection. As long as it is `None` the time is 0: the store refuses such a request, changes nothing and says what
    /// time it is, and the request is sent again. So is one that a clock which has moved refused.
    ///
    /// ```
    /// use syncguard::{Call, HelperThreads, TimedReply};
    ///
    /// let sent = HelperThreads::new(1).run(&Call::new(), |call| {
    ///     let mut clock = None; // of a new connection
    ///     call.send_in_time(&mut clock, |not_after_ms| {
    ///         // A store whose clock shows 1 790 000 000 000.
    ///         Ok(match not_after_ms < 1_790_000_000_000 {
    ///             true => TimedReply::TooLate { now_ms: 1_790_000_000_000 },
    ///             false => TimedReply::Answer(not_after_ms),
    ///         })
    ///     })
    /// })?;
    /// assert!(sent > 1_790_000_000_000);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// Those of `send`, and [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) or [`Aborted`](crate::ErrorCode::Aborted) as
    /// [`sending`](Self::sending).
    pub fn send_in_time<T>(
        &self,
        clock: &mut Option<StoreClock>,
        mut send: impl FnMut(i64) -> Result<TimedReply<T>, LockError>,
    ) -> Result<T, LockError> {
        send_by(clock, self.deadline, |limit| match limit {
            Some(limit) => {
                self.note(Some(limit))?;
                send(limit.store_ms)
            }
            // It asks for the time, and cannot be granted.
            None => match send(0).map_err(LockError::nothing_applied)? {
                TimedReply::Answer(answer) => Ok(TimedReply::Answer(answer)),
                TimedReply::TooLate { now_ms } => Ok(TimedReply::TooLate { now_ms }),
            },
        })
    }

    /// Has `work` done on this thread after the caller has its answer: what cleans up and may take long.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::{Call, HelperThreads};
    ///
    /// let call = Call::new().within(Duration::from_secs(5));
    /// HelperThreads::new(1).run(&call, |call| {
    ///     call.afterwards(|| println!("the caller has its answer"));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn afterwards(&self, work: impl FnOnce() + Send + 'static) {
        self.helped.state.lock().afterwards.push(Box::new(work));
    }

    /// The thread begins with it.
    ///
    /// # Errors
    /// `NetworkTimeout` if the time is over or the caller has left.
    pub(super) fn begin(&self) -> Result<(), LockError> {
        self.still_wanted()?.begun = true;
        Ok(())
    }

    /// The caller is told that its answer is there. What is to be done afterwards is answered.
    pub(super) fn finish(&self) -> Vec<Job> {
        self.helped.finish()
    }

    fn note(&self, limit: Option<NotAfter>) -> Result<(), LockError> {
        let mut state = self.still_wanted()?;
        state.sent = true;
        // An earlier request may still be on its way.
        let passed_by = |limit: &NotAfter| limit.passed_by;
        state.not_after = [state.not_after, limit]
            .into_iter()
            .flatten()
            .max_by_key(passed_by);
        Ok(())
    }

    fn still_wanted(&self) -> Result<MutexGuard<'_, HelpedState>, LockError> {
        let state = self.helped.state.lock();
        if state.given_up || Instant::now() >= self.deadline {
            return Err(Call::new()
                .with_deadline(self.deadline)
                .overrun()
                .nothing_applied());
        }
        Ok(state)
    }
}

impl fmt::Debug for HelperCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelperCall")
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
