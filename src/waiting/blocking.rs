//! [`Wait`]: one caller's wait for a lock. The policy says what to do next (`policy.rs`); this makes the attempts and tells the
//! policy what happened. [`Wait::run`] is the blocking loop; a [`Waiter`](crate::Waiter) takes the same steps one by one. It uses
//! `attempt`, `core`, `line`, `policy`, `backend`, `options`, `runtime` and `types`.
//!
//! A waiter tries, stands in line (`line.rs`), and tries again when it is first and the lock may have been freed, or the
//! holder's lease is over, or its backoff delay has passed. Polling always remains as the fall-back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::AcquireOutcome;
use crate::options::lock::CheckedLockOptions;
use crate::runtime::cancel::Bell;
use crate::runtime::wake::Wake;
use crate::types::error::{ErrorCode, LockError};
use crate::types::event::{EventReason, LockEventType, UnhashedEvent};
use crate::types::fence::Fence;
use crate::types::holder::Holder;
use crate::types::random::random_bits;
use crate::waiting::attempt::{AcquireAttempt, AttemptTarget, Granted, cancelled};
use crate::waiting::core::Core;
use crate::waiting::line::{LineOutcome, LineTicket};
use crate::waiting::policy::{GiveUpReason, WaitAction, WaitEvent, WaitPolicy};

/// One wait for a lock: its policy, its attempts, and what they came to.
pub(crate) struct Wait {
    policy: WaitPolicy,
    attempts: AcquireAttempt,
    /// The holder that the last answer told of.
    holder: Option<Holder>,
    /// The trouble that the wait ends with, if it ends with one.
    trouble: Option<LockError>,
    /// The last attempt got no answer: whether the lock is free is for the next in line to find out.
    unanswered: bool,
    /// The caller waits on the thread that asked for the lock. Others make their attempts on any thread.
    on_own_thread: bool,
    /// Telemetry was told that the wait is over.
    told: bool,
}

/// What the beginning of a wait came to.
pub(crate) enum Entered {
    Granted(Granted),
    InLine(LineTicket),
}

/// Why the caller asks a [`Waiter`](crate::Waiter) what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaiterEvent {
    /// It begins, its sleep is over, `wake` was called, or an attempt was made.
    Woken,
    /// It does not want the lock any more: the answer is [`ErrorCode::Aborted`].
    Cancelled,
    /// It had no thread for the attempt that it was to make.
    NoThread,
}

impl Wait {
    /// A wait that begins now. It ends by the call's deadline too, if there is one.
    pub(crate) fn new(
        at: AttemptTarget<'_>,
        checked: &CheckedLockOptions,
    ) -> Result<Self, LockError> {
        let (operation, clock) = (at.core.timeouts.operation, at.core.clock());
        let limit = at.call.deadline().map(|limit| clock.to_wait(limit));
        Ok(Self {
            policy: WaitPolicy::new(checked, operation, clock.wait_now(), limit),
            attempts: AcquireAttempt::new(at, checked.ttl)?,
            holder: None,
            trouble: None,
            unanswered: false,
            on_own_thread: false,
            told: false,
        })
    }

    /// By when the call ends, in real time, but for [`LAST_CHANCE`](crate::waiting::policy::LAST_CHANCE).
    pub(crate) fn last(&self, core: &Core) -> Instant {
        core.clock().to_real(self.policy.last())
    }

    /// What to do as things stand.
    pub(crate) fn action(&self) -> WaitAction {
        self.policy.action()
    }

    /// Waits on this thread.
    pub(crate) fn run(self, at: AttemptTarget<'_>) -> Result<Granted, LockError> {
        match &at.core.events {
            None => self.block(at),
            Some(events) => {
                let work = || self.block(at);
                events.in_span(LockEventType::Wait, Some(at.key), None, work)
            }
        }
    }

    fn block(mut self, at: AttemptTarget<'_>) -> Result<Granted, LockError> {
        self.on_own_thread = true;
        let mut bell = None;
        let ticket = match self.enter(at, || bell.insert(Arc::new(Bell::default())).clone())? {
            Entered::Granted(granted) => return Ok(granted),
            Entered::InLine(ticket) => ticket,
        };
        let bell = bell.unwrap_or_default();
        let _subscription = at.call.token().map(|token| token.subscribe(bell.clone()));
        loop {
            let event = if at.call.is_cancelled() {
                WaiterEvent::Cancelled
            } else {
                WaiterEvent::Woken
            };
            match self.next(at.core, &ticket, event) {
                WaitAction::SleepUntil(until) => at.core.clock().sleep(&bell, until),
                WaitAction::Try { .. } => {
                    if let Some(granted) = self.attempt(at, Some(&ticket)) {
                        return Ok(granted);
                    }
                }
                WaitAction::GiveUp(reason) => {
                    self.leave(at);
                    return Err(self.error(at, reason));
                }
                WaitAction::Done => return Err(LockError::internal("a grant was lost")),
            }
        }
    }

    /// Tries at once if no local waiter exists; otherwise joins the line without contacting the store.
    pub(crate) fn enter<W: Wake + 'static>(
        &mut self,
        at: AttemptTarget<'_>,
        wake: impl FnOnce() -> Arc<W>,
    ) -> Result<Entered, LockError> {
        let lines = &at.core.lines;
        let single = self.policy.is_single();
        let first_attempt = if single { None } else { lines.enter(at.key) };
        if !single && first_attempt.is_none() {
            return Ok(Entered::InLine(self.join(at, wake())));
        }
        let begun = self.policy.begun();
        self.policy.on(WaitEvent::Entered, begun, random_bits);
        if let Some(granted) = self.attempt(at, None) {
            if let Some(first_attempt) = first_attempt {
                first_attempt.granted();
            }
            return Ok(Entered::Granted(granted));
        }
        let action = self.policy.action();
        let Some(first_attempt) =
            first_attempt.filter(|_| !matches!(action, WaitAction::GiveUp(_)))
        else {
            return Err(self.over(at));
        };
        let ticket = first_attempt.into_ticket(wake());
        ticket.note(self.trouble.as_ref());
        if self.unanswered {
            // A store in trouble is given its time.
            ticket.begin_attempt();
        } else {
            ticket.watch(&*at.core.backend);
        }
        Ok(Entered::InLine(ticket))
    }

    /// Joins the line without contacting the store.
    pub(crate) fn join<W: Wake + 'static>(
        &mut self,
        at: AttemptTarget<'_>,
        wake: Arc<W>,
    ) -> LineTicket {
        let ticket = at.core.lines.join(at.key, wake);
        self.policy
            .on(WaitEvent::Joined, self.policy.begun(), random_bits);
        ticket
    }

    /// What to do next, from a ticket in line.
    pub(crate) fn next(
        &mut self,
        core: &Core,
        ticket: &LineTicket,
        event: WaiterEvent,
    ) -> WaitAction {
        let now = core.clock().wait_now();
        let event = match event {
            WaiterEvent::Cancelled => Some(WaitEvent::Cancelled),
            WaiterEvent::NoThread => self.not_made(ticket, now),
            WaiterEvent::Woken => self.policy.woken(ticket.standing(), now),
        };
        match event {
            Some(event) => self.policy.on(event, now, random_bits),
            None => self.policy.action(),
        }
    }

    fn not_made(&mut self, ticket: &LineTicket, now: Instant) -> Option<WaitEvent> {
        let share = self.policy.share(now)?;
        let error = LockError::new(
            ErrorCode::RateLimited,
            "all calls that this client may make at once are waiting for the store",
        )
        .nothing_applied();
        Some(WaitEvent::NotMade(if share.excuses(error.code(), now) {
            self.excuse(Some(ticket), error)
        } else {
            self.trouble = Some(error);
            GiveUpReason::Trouble
        }))
    }

    /// One attempt, from a ticket in line or before there is one, if the policy calls for it. Tells the policy the outcome.
    pub(crate) fn attempt(
        &mut self,
        at: AttemptTarget<'_>,
        ticket: Option<&LineTicket>,
    ) -> Option<Granted> {
        let clock = at.core.clock();
        let now = match ticket {
            None => self.policy.begun(),
            // The time in line is gone.
            Some(_) => clock.wait_now(),
        };
        let share = self.policy.share(now)?;
        if let Some(ticket) = ticket {
            ticket.begin_attempt();
        }
        self.unanswered = true;
        let (start, limit) = (clock.to_real(share.start), clock.to_real(share.limit));
        let event = match self.attempts.attempt(at, start, limit) {
            Ok(AcquireOutcome::Acquired(grant)) => {
                self.unanswered = false;
                self.policy.on(WaitEvent::Granted, now, || 0);
                ticket.inspect(|ticket| ticket.granted());
                let waited = self.waited(at);
                self.tell(at, waited, Ok(grant.fence));
                return Some(self.attempts.granted(grant, waited));
            }
            Ok(AcquireOutcome::Locked(holder)) => {
                self.unanswered = false;
                let free_in = holder.as_ref().and_then(Holder::time_until_free);
                (self.holder, self.trouble) = (holder, None);
                ticket.inspect(|ticket| {
                    ticket.note(None);
                    ticket.watch(&*at.core.backend);
                });
                WaitEvent::Locked { free_in }
            }
            Err(error) if share.excuses(error.code(), clock.wait_now()) => {
                WaitEvent::Unanswered(self.excuse(ticket, error))
            }
            Err(error) => {
                ticket.inspect(|ticket| ticket.note(Some(&error)));
                let passes = error.code().is_transient();
                self.trouble = Some(error);
                if passes {
                    WaitEvent::Trouble
                } else {
                    WaitEvent::Refused
                }
            }
        };
        self.policy.on(event, clock.wait_now(), random_bits);
        None
    }

    /// What to end with after an attempt that had too little time: what the others in line met, if that is known.
    fn excuse(&mut self, ticket: Option<&LineTicket>, error: LockError) -> GiveUpReason {
        self.trouble = Some(match ticket.and_then(LineTicket::last_outcome) {
            Some(LineOutcome::Answered) => return GiveUpReason::Held,
            Some(LineOutcome::Trouble(theirs)) => theirs,
            None => error,
        });
        GiveUpReason::Trouble
    }

    /// The caller leaves its ticket in line without the lock.
    pub(crate) fn leave(&mut self, at: AttemptTarget<'_>) {
        self.attempts.undo(at);
        if std::mem::take(&mut self.unanswered) {
            at.core.lines.freed(at.key);
        }
    }

    /// The error of a wait that is over.
    pub(crate) fn over(&mut self, at: AttemptTarget<'_>) -> LockError {
        match self.policy.action() {
            WaitAction::GiveUp(reason) => self.error(at, reason),
            _ => LockError::invalid("this wait is over"),
        }
    }

    /// The caller gave the wait up, if it was not over.
    pub(crate) fn abandon(&mut self, at: AttemptTarget<'_>) {
        self.leave(at);
        self.tell(at, self.waited(at), Err(ErrorCode::Aborted));
    }

    /// How long the wait has lasted.
    fn waited(&self, at: AttemptTarget<'_>) -> Duration {
        let now = at.core.clock().wait_now();
        now.saturating_duration_since(self.policy.begun())
    }

    /// Tells telemetry, once, how the wait has ended.
    fn tell(&mut self, at: AttemptTarget<'_>, waited: Duration, how: Result<Fence, ErrorCode>) {
        let events = at.core.events.as_ref();
        let Some(events) = events.filter(|events| events.is_listened_to()) else {
            return;
        };
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let lock_id = how.ok().map(|_| self.attempts.lock_id());
        let mut event = UnhashedEvent::new(LockEventType::Wait, Some(at.key), lock_id, None);
        match how {
            Ok(fence) => (event.ok, event.fence) = (true, Some(fence)),
            Err(code) => {
                event.code = Some(code);
                let held = code == ErrorCode::AcquisitionTimeout;
                event.reason = held.then_some(EventReason::Locked);
                let holder = self.holder.as_ref().filter(|_| held);
                event.holder = holder.and_then(Holder::text).map(str::to_owned);
            }
        }
        event.attempts = Some(self.policy.attempts());
        event.duration = waited;
        event.waited = Some(waited);
        events.emit(event);
    }

    /// The error of a wait that ends for `reason`.
    pub(crate) fn error(&mut self, at: AttemptTarget<'_>, reason: GiveUpReason) -> LockError {
        self.attempts.undo(at);
        let (attempts, waited) = (self.policy.attempts(), self.waited(at));
        let error = match reason {
            GiveUpReason::Cancelled => cancelled(),
            GiveUpReason::Trouble => self
                .trouble
                .take()
                .unwrap_or_else(|| LockError::invalid("this wait is over")),
            GiveUpReason::Held => {
                let holder = self.holder.clone();
                let own = |holder: &Holder| self.on_own_thread && at.core.is_own(holder);
                let why = if holder.as_ref().is_some_and(own) {
                    "this thread itself took the lock and has not released it; locks are not re-entrant"
                } else {
                    "the lock was held by somebody else for the whole wait"
                };
                let text = format!("{why} (attempts: {attempts}, in {} ms)", waited.as_millis());
                LockError::new(ErrorCode::AcquisitionTimeout, text).held_by(holder)
            }
        }
        // Of the whole wait: the last attempt may be answered while an earlier one is still on its way.
        .applied_perhaps(self.attempts.may_have_applied())
        .after(attempts, waited)
        .for_key(at.key);
        self.tell(at, waited, Err(error.code()));
        error
    }
}
