//! The bounds of one store call: which process, by when, and who may cancel it.

use std::time::{Duration, Instant};

use crate::cancel::{CancelToken, deadline_after};
use crate::error::{ErrorCode, LockError};
use crate::process::Owner;

/// The door of every call of a store: one deadline and one cancel token that go through all its steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'a> {
    deadline: Instant,
    /// How long what ends at the deadline may take in all. For messages.
    allowed: Duration,
    cancel: Option<&'a CancelToken>,
    /// For messages too.
    step: Step<'a>,
}

/// What a call waits for. A server is named by its host and port, or by its socket's path.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Store,
    Connection(&'a str),
    Answer(&'a str),
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
        let (deadline, allowed) = match cancel.and_then(CancelToken::deadline) {
            Some(limit) if limit < own => (limit, limit.saturating_duration_since(Instant::now())),
            _ => (own, timeout),
        };
        let limits = Self {
            deadline,
            allowed,
            cancel,
            step: Step::Store,
        };
        limits.left().map_err(LockError::nothing_applied)?;
        Ok(limits)
    }

    /// The same call, in a step of its own that lasts at most `timeout`.
    pub(crate) fn within(self, timeout: Duration) -> Self {
        let end = deadline_after(timeout);
        if self.deadline <= end {
            return self;
        }
        Self {
            deadline: end,
            allowed: timeout,
            ..self
        }
    }

    /// The same call, while it connects to `server`.
    pub(crate) fn connecting_to<'b>(&self, server: &'b str) -> Limits<'b>
    where
        'a: 'b,
    {
        Limits {
            step: Step::Connection(server),
            ..*self
        }
    }

    /// The same call, while it talks to `server`, to which it is connected.
    pub(crate) fn talking_to<'b>(&self, server: &'b str) -> Limits<'b>
    where
        'a: 'b,
    {
        Limits {
            step: Step::Answer(server),
            ..*self
        }
    }

    /// The limit, for messages: "200 ms". It counts from the beginning of the call, or of the step that has a limit of its own.
    pub(crate) fn allowed(&self) -> String {
        format!("{} ms", self.allowed.as_nanos().div_ceil(1_000_000).max(1))
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
            return LockError::new(ErrorCode::Aborted, "the call was cancelled");
        }
        let allowed = self.allowed();
        let text = match self.step {
            Step::Store => format!("the store did not answer within the limit of {allowed}"),
            Step::Connection(server) => {
                format!("no connection to {server} was made within the limit of {allowed}")
            }
            Step::Answer(server) => {
                format!("{server} is connected but did not answer within the limit of {allowed}")
            }
        };
        LockError::new(ErrorCode::NetworkTimeout, text)
    }
}
