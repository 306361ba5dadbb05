//! The bounds of one store call: which process, by when, and who may cancel it.

use std::time::{Duration, Instant};

use crate::cancel::{CancelToken, deadline_after};
use crate::error::{ErrorCode, LockError};
use crate::process::Owner;

/// The door of every call of a store: one deadline and one cancel token that go through all its steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'a> {
    deadline: Instant,
    cancel: Option<&'a CancelToken>,
}

impl<'a> Limits<'a> {
    /// Begins a call that lasts at most `timeout`, in the process that opened the store.
    ///
    /// The process is checked first of all: in a forked child any mutex may be locked for ever.
    pub(crate) fn enter(
        owner: Owner,
        timeout: Duration,
        cancel: Option<&'a CancelToken>,
    ) -> Result<Self, LockError> {
        if !owner.is_this_process() {
            return Err(LockError::forked());
        }
        let own = deadline_after(timeout);
        let deadline = cancel
            .and_then(CancelToken::deadline)
            .map_or(own, |limit| limit.min(own));
        let limits = Self { deadline, cancel };
        limits.left().map_err(LockError::nothing_applied)?;
        Ok(limits)
    }

    /// The same call, in a step of its own that lasts at most `timeout`.
    pub(crate) fn within(self, timeout: Duration) -> Self {
        Self {
            deadline: self.deadline.min(deadline_after(timeout)),
            ..self
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn cancel(&self) -> Option<&'a CancelToken> {
        self.cancel
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(CancelToken::is_cancelled)
    }

    /// The time left.
    ///
    /// # Errors
    /// [`overrun`](Self::overrun) if there is none, or the token was cancelled.
    pub(crate) fn left(&self) -> Result<Duration, LockError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || self.is_cancelled() {
            Err(self.overrun())
        } else {
            Ok(left)
        }
    }

    /// Why the call ended without an answer. Its effect is unknown unless the caller knows better.
    pub(crate) fn overrun(&self) -> LockError {
        if self.is_cancelled() {
            LockError::new(ErrorCode::Aborted, "the call was cancelled")
        } else {
            LockError::new(
                ErrorCode::NetworkTimeout,
                "the store did not answer within the operation's time",
            )
        }
    }
}
