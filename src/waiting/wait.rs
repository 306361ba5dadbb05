//! Waiting for a lock: the only retry loop. What to do next is the policy's to say (`policy.rs`); this makes the attempts, sleeps, and
//! tells the policy what happened.
//!
//! A waiter tries, stands in line (`queue.rs`), and tries again when it is first and the lock may have been freed, or the
//! holder's lease is over, or its backoff delay has passed: polling is the fall-back that is always there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::AcquireOutcome;
use crate::backend::call::Call;
use crate::client::Client;
use crate::options::lock::Checked;
use crate::runtime::cancel::Bell;
use crate::runtime::wake::Wake;
use crate::types::error::{ErrorCode, LockError};
use crate::types::holder::Holder;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::random::random_bits;
use crate::types::stored_lock::Acquired;
use crate::types::ttl::Ttl;
use crate::waiting::policy::{GiveUpReason, WaitAction, WaitEvent, WaitPolicy};
use crate::waiting::queue::{Known, Place};

/// A grant, and what is known of the attempts that led to it.
pub(crate) struct Granted {
    pub(crate) acquired: Acquired,
    /// When the request was sent that it may answer.
    pub(crate) sent: Duration,
    /// Until when an earlier attempt may reach the store: after a release it would take the lock again.
    pub(crate) refused_after: Option<Instant>,
}

/// Where an attempt is made: the lock of which key, with which client, and what ends it.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) client: &'a Client,
    pub(crate) key: &'a Key,
    pub(crate) call: Call<'a>,
}

/// One wait for a lock: its policy, its attempts, and what they came to.
pub(crate) struct Wait {
    policy: WaitPolicy,
    flight: Flight,
    /// The holder that the last answer told of.
    holder: Option<Holder>,
    /// The trouble that the wait ends with, if it ends with one.
    trouble: Option<LockError>,
    /// The last attempt got no answer: whether the lock is free is for the next in line to find out.
    unanswered: bool,
    /// The caller waits on the thread that asked for the lock. Others make their attempts on any thread.
    on_own_thread: bool,
}

/// What the beginning of a wait came to.
pub(crate) enum Entered {
    Granted(Granted),
    InLine(Place),
}

/// Why the caller asks a [`Waiter`](crate::Waiter) what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaiterEvent {
    /// It begins, its sleep is over, `wake` was called, or an attempt was made.
    Woken,
    /// It does not want the lock any more: the answer is `Aborted`.
    Cancelled,
    /// It had no thread for the attempt that it was to make.
    NoThread,
}

impl Wait {
    /// A wait that begins now. It ends by the call's deadline too, if there is one.
    pub(crate) fn new(at: Target<'_>, checked: &Checked) -> Result<Self, LockError> {
        let operation = at.client.bounds().operation;
        Ok(Self {
            policy: WaitPolicy::new(checked, operation, Instant::now(), at.call.deadline()),
            flight: Flight::new(at, checked.ttl)?,
            holder: None,
            trouble: None,
            unanswered: false,
            on_own_thread: false,
        })
    }

    /// By when the call ends, but for [`LAST_CHANCE`](crate::waiting::policy::LAST_CHANCE).
    pub(crate) fn last(&self) -> Instant {
        self.policy.last()
    }

    /// What to do as things stand.
    pub(crate) fn action(&self) -> WaitAction {
        self.policy.action()
    }

    /// Waits on this thread.
    pub(crate) fn run(mut self, at: Target<'_>) -> Result<Granted, LockError> {
        self.on_own_thread = true;
        let mut bell = None;
        let place = match self.enter(at, || bell.insert(Arc::new(Bell::default())).clone())? {
            Entered::Granted(granted) => return Ok(granted),
            Entered::InLine(place) => place,
        };
        let bell = bell.unwrap_or_default();
        let _subscription = at.call.token().map(|token| token.subscribe(bell.clone()));
        loop {
            let event = if at.call.is_cancelled() {
                WaiterEvent::Cancelled
            } else {
                WaiterEvent::Woken
            };
            match self.next(&place, event) {
                WaitAction::SleepUntil(until) => bell.sleep_until(until),
                WaitAction::Try { .. } => {
                    if let Some(granted) = self.attempt(at, Some(&place)) {
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
        at: Target<'_>,
        wake: impl FnOnce() -> Arc<W>,
    ) -> Result<Entered, LockError> {
        let queue = at.client.queue();
        let single = self.policy.is_single();
        let entry = if single { None } else { queue.enter(at.key) };
        if !single && entry.is_none() {
            return Ok(Entered::InLine(self.join(at, wake())));
        }
        let begun = self.policy.begun();
        self.policy.on(WaitEvent::Entered, begun, random_bits);
        if let Some(granted) = self.attempt(at, None) {
            if let Some(entry) = entry {
                entry.granted();
            }
            return Ok(Entered::Granted(granted));
        }
        let action = self.policy.action();
        let Some(entry) = entry.filter(|_| !matches!(action, WaitAction::GiveUp(_))) else {
            return Err(self.over(at));
        };
        let place = entry.into_place(wake());
        place.note(self.trouble.as_ref());
        if self.unanswered {
            // A store in trouble is given its time.
            place.begin_attempt();
        } else {
            place.watch(at.client.backend());
        }
        Ok(Entered::InLine(place))
    }

    /// Joins the line without contacting the store.
    pub(crate) fn join<W: Wake + 'static>(&mut self, at: Target<'_>, wake: Arc<W>) -> Place {
        let place = at.client.queue().join(at.key, wake);
        self.policy
            .on(WaitEvent::Joined, self.policy.begun(), random_bits);
        place
    }

    /// What to do next, from a place in line.
    pub(crate) fn next(&mut self, place: &Place, event: WaiterEvent) -> WaitAction {
        let now = Instant::now();
        let event = match event {
            WaiterEvent::Cancelled => Some(WaitEvent::Cancelled),
            WaiterEvent::NoThread => self.not_made(place, now),
            WaiterEvent::Woken => self.policy.woken(place.standing(), now),
        };
        match event {
            Some(event) => self.policy.on(event, now, random_bits),
            None => self.policy.action(),
        }
    }

    fn not_made(&mut self, place: &Place, now: Instant) -> Option<WaitEvent> {
        let share = self.policy.share(now)?;
        let error = LockError::new(
            ErrorCode::RateLimited,
            "all calls that this client may make at once are waiting for the store",
        )
        .nothing_applied();
        Some(WaitEvent::NotMade(if share.excuses(error.code(), now) {
            self.excuse(Some(place), error)
        } else {
            self.trouble = Some(error);
            GiveUpReason::Trouble
        }))
    }

    /// One attempt, from a place in line or before there is one, if the policy calls for it. Tells the policy the outcome.
    pub(crate) fn attempt(&mut self, at: Target<'_>, place: Option<&Place>) -> Option<Granted> {
        let now = match place {
            None => self.policy.begun(),
            // The time in line is gone.
            Some(_) => Instant::now(),
        };
        let share = self.policy.share(now)?;
        if let Some(place) = place {
            place.begin_attempt();
        }
        self.unanswered = true;
        let event = match self.flight.attempt(at, share.start, share.limit) {
            Ok(AcquireOutcome::Acquired(grant)) => {
                self.unanswered = false;
                self.policy.on(WaitEvent::Granted, now, || 0);
                place.inspect(|place| place.granted());
                return Some(self.flight.granted(grant));
            }
            Ok(AcquireOutcome::Locked(holder)) => {
                self.unanswered = false;
                let free_in = holder.as_ref().and_then(Holder::patience);
                (self.holder, self.trouble) = (holder, None);
                place.inspect(|place| {
                    place.note(None);
                    place.watch(at.client.backend());
                });
                WaitEvent::Locked { free_in }
            }
            Err(error) if share.excuses(error.code(), Instant::now()) => {
                WaitEvent::Unanswered(self.excuse(place, error))
            }
            Err(error) => {
                place.inspect(|place| place.note(Some(&error)));
                let passes = error.code().is_transient();
                self.trouble = Some(error);
                if passes {
                    WaitEvent::Trouble
                } else {
                    WaitEvent::Refused
                }
            }
        };
        self.policy.on(event, Instant::now(), random_bits);
        None
    }

    /// What to end with after an attempt that had too little time: what the others in line met, if that is known.
    fn excuse(&mut self, place: Option<&Place>, error: LockError) -> GiveUpReason {
        self.trouble = Some(match place.and_then(Place::known) {
            Some(Known::Answered) => return GiveUpReason::Held,
            Some(Known::Trouble(theirs)) => theirs,
            None => error,
        });
        GiveUpReason::Trouble
    }

    /// The caller leaves its place in line without the lock.
    pub(crate) fn leave(&mut self, at: Target<'_>) {
        self.flight.undo(at);
        if std::mem::take(&mut self.unanswered) {
            at.client.queue().freed(at.key);
        }
    }

    /// The error of a wait that is over.
    pub(crate) fn over(&mut self, at: Target<'_>) -> LockError {
        match self.policy.action() {
            WaitAction::GiveUp(reason) => self.error(at, reason),
            _ => LockError::invalid("this wait is over"),
        }
    }

    /// The error of a wait that ends for `reason`.
    pub(crate) fn error(&mut self, at: Target<'_>, reason: GiveUpReason) -> LockError {
        self.flight.undo(at);
        let (attempts, waited) = (self.policy.attempts(), self.policy.begun().elapsed());
        match reason {
            GiveUpReason::Cancelled => cancelled(),
            GiveUpReason::Trouble => self
                .trouble
                .take()
                .unwrap_or_else(|| LockError::invalid("this wait is over")),
            GiveUpReason::Held => {
                let holder = self.holder.take();
                let own = |holder: &Holder| self.on_own_thread && at.client.is_own(holder);
                let why = if holder.as_ref().is_some_and(own) {
                    "this thread itself took the lock and has not released it; locks are not re-entrant"
                } else {
                    "the lock was held by somebody else for the whole wait"
                };
                let text = format!("{why} (attempts: {attempts}, in {} ms)", waited.as_millis());
                LockError::new(ErrorCode::AcquisitionTimeout, text)
                    .held_by(holder)
                    .nothing_applied()
            }
        }
        .after(attempts, waited)
        .for_key(at.key)
    }
}

/// The attempts of one wait, under one lock id: an acquire whose reply was lost is recognised when it is repeated.
pub(crate) struct Flight {
    ttl: Ttl,
    lock_id: LockId,
    /// When the request was sent that a grant may answer.
    sent: Duration,
    /// Whether an earlier attempt may have been applied.
    in_doubt: bool,
    /// Until when such an attempt may still reach the store, where that is known.
    refused_after: Option<Instant>,
}

impl Flight {
    pub(crate) fn new(at: Target<'_>, ttl: Ttl) -> Result<Self, LockError> {
        if at.call.is_cancelled() {
            return Err(cancelled().nothing_applied().for_key(at.key));
        }
        Ok(Self {
            ttl,
            lock_id: LockId::random()?,
            sent: Duration::ZERO,
            in_doubt: false,
            refused_after: None,
        })
    }

    /// One attempt at `start` that ends by `limit`.
    pub(crate) fn attempt(
        &mut self,
        at: Target<'_>,
        start: Instant,
        limit: Instant,
    ) -> Result<AcquireOutcome, LockError> {
        let now = at.client.now();
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
        let operation = at.client.bounds().operation;
        let call = at.call.within_since(start, operation).with_deadline(limit);
        // Until the store has answered, a panic of its code leaves the outcome unknown too.
        let doubt = Doubt { flight: self, at };
        let flight = &*doubt.flight;
        let answer = at
            .client
            .attempt(at.key, &flight.lock_id, flight.ttl, &call);
        std::mem::forget(doubt);
        if let Err(error) = &answer {
            self.in_doubt |= error.may_have_applied();
            let limit = error.not_after().map(|limit| limit.passed_by);
            self.refused_after = self.refused_after.max(limit);
        }
        answer
    }

    /// The grant. There is nothing to undo from here on: the lock belongs to a guard.
    pub(crate) fn granted(&mut self, acquired: Acquired) -> Granted {
        self.in_doubt = false;
        Granted {
            acquired,
            sent: self.sent,
            refused_after: self.refused_after,
        }
    }

    /// Takes back what the attempts may have left, once.
    pub(crate) fn undo(&mut self, at: Target<'_>) {
        if std::mem::take(&mut self.in_doubt) {
            at.client
                .undo(at.key, self.lock_id, self.ttl, self.refused_after);
        }
    }
}

/// Undoes the attempt if the store panics in it.
struct Doubt<'a, 'b> {
    flight: &'b mut Flight,
    at: Target<'a>,
}

impl Drop for Doubt<'_, '_> {
    fn drop(&mut self) {
        self.flight.in_doubt = true;
        self.flight.undo(self.at);
    }
}

fn cancelled() -> LockError {
    LockError::new(ErrorCode::Aborted, "the wait for the lock was cancelled")
}
