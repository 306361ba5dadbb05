//! The bounds of one call of this crate's stores: the [`Call`] that the store was given, with the deadline that it always has.

use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::cancel::{deadline_after, deadline_from};
use crate::error::LockError;
use crate::process::Owner;

/// A [`Call`] that has passed the check of the process and has a deadline, which goes through all its steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'a> {
    call: Call<'a>,
    deadline: Instant,
}

impl<'a> Limits<'a> {
    /// Begins a call that lasts at most `timeout`, in the process that opened the store.
    ///
    /// The process is checked first of all: in a forked child any mutex may be locked for ever.
    pub(crate) fn enter(
        owner: Owner,
        timeout: Duration,
        call: &Call<'a>,
    ) -> Result<Self, LockError> {
        if !owner.is_this_process() {
            return Err(LockError::forked());
        }
        let now = Instant::now();
        let limits = Self::narrow(*call, deadline_from(now, timeout));
        if now >= limits.deadline || limits.is_cancelled() {
            return Err(limits.overrun().nothing_applied());
        }
        Ok(limits)
    }

    /// The same call, in a step of its own that lasts at most `timeout`.
    pub(crate) fn within(self, timeout: Duration) -> Self {
        Self::narrow(self.call, deadline_after(timeout))
    }

    fn narrow(call: Call<'a>, deadline: Instant) -> Self {
        let deadline = call.deadline().map_or(deadline, |own| own.min(deadline));
        Self {
            call: call.with_deadline(deadline),
            deadline,
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The time left.
    ///
    /// # Errors
    /// As [`Call::check`], if there is none or the token was cancelled.
    pub(crate) fn left(&self) -> Result<Duration, LockError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || self.is_cancelled() {
            Err(self.overrun())
        } else {
            Ok(left)
        }
    }
}

impl<'a> Deref for Limits<'a> {
    type Target = Call<'a>;

    fn deref(&self) -> &Call<'a> {
        &self.call
    }
}
