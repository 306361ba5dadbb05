//! [`AcquireAttempt`]: the attempts of one wait, under one lock id, and what they may have left in the store. It uses `core`,
//! `backend`, `runtime` and `types`.

use std::time::{Duration, Instant};

use crate::backend::AcquireOutcome;
use crate::backend::call::Call;
use crate::runtime::unwinding::on_panic;
use crate::types::error::{ErrorCode, LockError};
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::Acquired;
use crate::types::ttl::Ttl;
use crate::waiting::core::Core;

/// A grant, and what is known of the attempts that led to it.
pub(crate) struct Granted {
    pub(crate) acquired: Acquired,
    /// When the request was sent that it may answer.
    pub(crate) sent: Duration,
    /// Until when an earlier attempt may reach the store: after a release it would take the lock again.
    pub(crate) refused_after: Option<Instant>,
    /// How long the caller waited for it.
    pub(crate) waited: Duration,
}

/// Where an attempt is made: the lock of which key, with which client's core, and what ends it.
#[derive(Clone, Copy)]
pub(crate) struct AttemptTarget<'a> {
    pub(crate) core: &'a Core,
    pub(crate) key: &'a Key,
    pub(crate) call: Call<'a>,
}

/// The attempts of one wait, under one lock id: an acquire whose reply was lost is recognised when it is repeated.
pub(crate) struct AcquireAttempt {
    ttl: Ttl,
    lock_id: LockId,
    /// When the request was sent that a grant may answer.
    sent: Duration,
    /// Whether an earlier attempt may have been applied.
    in_doubt: bool,
    /// As `in_doubt`, also after the undoing has begun: it does not say when it is done.
    may_have_applied: bool,
    /// Until when such an attempt may still reach the store, where that is known.
    refused_after: Option<Instant>,
}

impl AcquireAttempt {
    pub(crate) fn new(at: AttemptTarget<'_>, ttl: Ttl) -> Result<Self, LockError> {
        if at.call.is_cancelled() {
            return Err(cancelled().nothing_applied().for_key(at.key));
        }
        Ok(Self {
            ttl,
            lock_id: LockId::random()?,
            sent: Duration::ZERO,
            in_doubt: false,
            may_have_applied: false,
            refused_after: None,
        })
    }

    /// One attempt at `start` that ends by `limit`.
    pub(crate) fn attempt(
        &mut self,
        at: AttemptTarget<'_>,
        start: Instant,
        limit: Instant,
    ) -> Result<AcquireOutcome, LockError> {
        let now = at.core.now();
        // A grant of the doubtful attempt would be spent by now: begin anew under another id.
        if self.in_doubt && now >= self.sent + self.ttl.as_duration() {
            let fresh = LockId::random()?;
            self.undo(at);
            self.lock_id = fresh;
            self.refused_after = None;
        }
        // While in doubt a grant may be the first attempt's, and its lease counts from then.
        if !self.in_doubt {
            self.sent = now;
        }
        let operation = at.core.timeouts.operation;
        let call = at.call.within_since(start, operation).with_deadline(limit);
        // Until the store has answered, a panic of its code leaves the outcome unknown too.
        let (lock_id, ttl, refused_after) = (self.lock_id, self.ttl, self.refused_after);
        let answer = on_panic(
            || at.core.undo(at.key, lock_id, ttl, refused_after),
            || at.core.attempt(at.key, &lock_id, ttl, &call),
        );
        if let Err(error) = &answer {
            self.in_doubt |= error.may_have_applied();
            self.may_have_applied |= self.in_doubt;
            let limit = error.not_after().map(|limit| limit.passed_by);
            self.refused_after = self.refused_after.max(limit);
        }
        answer
    }

    /// The grant, of a wait that took `waited`. There is nothing to undo from here on: the lock belongs to a guard.
    pub(crate) fn granted(&mut self, acquired: Acquired, waited: Duration) -> Granted {
        self.in_doubt = false;
        Granted {
            acquired,
            sent: self.sent,
            refused_after: self.refused_after,
            waited,
        }
    }

    /// Whether an attempt that was not granted may have taken effect, or still may.
    pub(crate) fn may_have_applied(&self) -> bool {
        self.may_have_applied
    }

    pub(crate) fn lock_id(&self) -> &LockId {
        &self.lock_id
    }

    /// Takes back what the attempts may have left, once.
    pub(crate) fn undo(&mut self, at: AttemptTarget<'_>) {
        if std::mem::take(&mut self.in_doubt) {
            at.core
                .undo(at.key, self.lock_id, self.ttl, self.refused_after);
        }
    }
}

pub(super) fn cancelled() -> LockError {
    LockError::new(ErrorCode::Aborted, "the wait for the lock was cancelled")
}
