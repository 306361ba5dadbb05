//! The bounds of one call of this crate's stores: the [`Call`] that the store was given, the deadline that it always has, and
//! what it waits for. It uses `types`, `runtime` and `backend::call`.

use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::runtime::cancel::{deadline_after, deadline_from};
use crate::runtime::process::Owner;
use crate::types::error::{ErrorCode, LockError};

/// A [`Call`] that has passed the check of the process and has a deadline, which goes through all its steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'a> {
    call: Call<'a>,
    deadline: Instant,
    /// How long what ends at the deadline may take in all. For messages.
    allowed: Duration,
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
        call: &Call<'a>,
    ) -> Result<Self, LockError> {
        owner.check()?;
        let now = Instant::now();
        let own = deadline_from(now, timeout);
        let (deadline, allowed) = match call.deadline() {
            Some(limit) if limit < own => {
                let left = limit.saturating_duration_since(now);
                (limit, call.allowed().unwrap_or(left))
            }
            _ => (own, timeout),
        };
        let limits = Self {
            call: call.with_deadline(deadline),
            deadline,
            allowed,
            step: Step::Store,
        };
        if now >= deadline || limits.is_cancelled() {
            return Err(limits.overrun().nothing_applied());
        }
        Ok(limits)
    }

    /// The same call, in a step of its own that lasts at most `timeout`.
    pub(crate) fn within(self, timeout: Duration) -> Self {
        let end = deadline_after(timeout);
        if self.deadline <= end {
            return self;
        }
        Self {
            call: self.call.with_deadline(end),
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

    /// The same call, while it waits for an answer of `server`, to which it is connected.
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
            return self.call.overrun();
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

impl<'a> Deref for Limits<'a> {
    type Target = Call<'a>;

    fn deref(&self) -> &Call<'a> {
        &self.call
    }
}
