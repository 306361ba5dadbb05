//! Waiting for a lock: the only retry loop.
//!
//! A waiter tries, stands in line (`queue.rs`), and tries again when it is first and the lock may have been freed, or the
//! holder's lease is over, or its backoff delay has passed: polling is the fall-back that is always there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::AcquireOutcome;
use crate::cancel::{Bell, CancelToken, deadline_from};
use crate::client::Client;
use crate::error::{ErrorCode, LockError};
use crate::guard::Bounds;
use crate::key::Key;
use crate::lease::{Acquired, Holder, LockId, Ttl, random_bits};
use crate::options::Checked;
use crate::queue::{Known, Place};

/// What the last attempt of a caller that never became first in line gets, if the wait has used up everything: enough for a
/// store that answers, and little enough that the call ends within 100 ms of its bound.
pub(crate) const LAST_CHANCE: Duration = Duration::from_millis(30);

/// A grant, and what is known of the attempts that led to it.
pub(crate) struct Granted {
    pub(crate) acquired: Acquired,
    /// When the request was sent that it may answer.
    pub(crate) sent: Duration,
    /// Until when an earlier attempt may reach the store: after a release it would take the lock again.
    pub(crate) refused_after: Option<Instant>,
}

/// One `lock` call.
pub(crate) struct Wait<'a> {
    flight: Flight<'a>,
    checked: &'a Checked,
    begun: Instant,
    /// The end of the wait.
    end: Instant,
    /// The end of every attempt, [`last_of`] the call.
    last: Instant,
    attempts: u32,
    /// Backoff delays that passed in vain. Being called is not a retry.
    retries: u32,
    failure: Option<Failure>,
}

/// How an attempt failed that may be repeated.
enum Failure {
    Locked(Option<Holder>),
    Trouble(LockError),
}

/// Why a sleep ended.
enum Awake {
    /// The lock may be free.
    Called,
    /// The time was over; `true` if that counts as a retry.
    Elapsed(bool),
    /// First in line now, with other times to keep.
    Promoted,
    Cancelled,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(
        client: &'a Client,
        key: &'a Key,
        checked: &'a Checked,
        cancel: Option<&'a CancelToken>,
    ) -> Result<Self, LockError> {
        let limit = cancel.and_then(CancelToken::deadline);
        let bounded = |end: Instant| limit.map_or(end, |limit| end.min(limit));
        let begun = Instant::now();
        let end = bounded(deadline_from(begun, checked.acquire_timeout));
        Ok(Self {
            flight: Flight::new(client, key, checked.ttl, cancel)?,
            checked,
            begun,
            end,
            last: bounded(last_of(begun, checked, client.bounds())),
            attempts: 0,
            retries: 0,
            failure: None,
        })
    }

    /// By when the call ends, but for [`LAST_CHANCE`].
    pub(crate) fn last(&self) -> Instant {
        self.last
    }

    pub(crate) fn run(mut self) -> Result<Granted, LockError> {
        let (client, key, cancel) = (self.flight.client, self.flight.key, self.flight.cancel);
        let lone = self.checked.acquire_timeout.is_zero() || self.checked.retry.max == Some(0);
        // Who finds a line joins it: whoever just arrived is not served before those who wait.
        let entry = if lone {
            None
        } else {
            client.queue().enter(key)
        };
        if lone || entry.is_some() {
            if let Some(granted) = self.attempt(None)? {
                if let Some(entry) = entry {
                    entry.granted();
                }
                return Ok(granted);
            }
            if lone {
                return Err(self.give_up());
            }
        }
        let bell = Arc::new(Bell::default());
        let _subscription = cancel.map(|token| token.subscribe(bell.clone()));
        let place = match entry {
            Some(entry) => entry.into_place(bell.clone()),
            None => client.queue().join(key, bell.clone()),
        };
        if let Some(Failure::Trouble(error)) = &self.failure {
            place.note(Some(error));
            if place.is_first() {
                // A store in trouble is given its time.
                place.begin_attempt();
            }
        }
        loop {
            if matches!(self.failure, Some(Failure::Locked(_))) && place.is_first() {
                place.watch(client.backend());
            }
            let Some((until, counts)) = self.pause(&place) else {
                return self.last_chance(&place);
            };
            match self.sleep(&place, &bell, until, counts) {
                Awake::Called => {}
                Awake::Promoted => continue,
                Awake::Elapsed(counts) => {
                    self.retries += u32::from(counts);
                    if !place.is_first() {
                        continue;
                    }
                }
                Awake::Cancelled => {
                    self.flight.undo();
                    return Err(cancelled()
                        .after(self.attempts, self.begun.elapsed())
                        .for_key(key));
                }
            }
            if Instant::now() >= self.last {
                return self.last_chance(&place);
            }
            place.begin_attempt();
            if let Some(granted) = self.attempt(Some(&place))? {
                place.granted();
                return Ok(granted);
            }
        }
    }

    /// One attempt, from a place in line or before there is one; `None` if it failed in a way that may be repeated.
    fn attempt(&mut self, place: Option<&Place>) -> Result<Option<Granted>, LockError> {
        self.attempts = self.attempts.saturating_add(1);
        let share = match place {
            None => Share::whole(self.begun, self.last),
            // The time in line is gone.
            Some(_) => Share::left(Instant::now(), self.last, self.flight.client.bounds()),
        };
        match self.flight.attempt(share.start, share.limit) {
            Ok(AcquireOutcome::Acquired(grant)) => return Ok(Some(self.flight.granted(grant))),
            Ok(AcquireOutcome::Locked(holder)) => {
                self.failure = Some(Failure::Locked(holder));
                place.inspect(|place| place.note(None));
            }
            Err(error) if share.excuses(&error) => {
                if !matches!(self.failure, Some(Failure::Locked(_))) {
                    self.failure = Some(match place.and_then(Place::known) {
                        Some(Known::Answered) => Failure::Locked(None),
                        Some(Known::Trouble(theirs)) => Failure::Trouble(theirs),
                        None => Failure::Trouble(error),
                    });
                }
            }
            Err(error) if error.code().is_transient() => {
                place.inspect(|place| place.note(Some(&error)));
                self.failure = Some(Failure::Trouble(error));
            }
            Err(error) => {
                self.flight.undo();
                return Err(error
                    .after(self.attempts, self.begun.elapsed())
                    .for_key(self.flight.key));
            }
        }
        Ok(None)
    }

    /// Until when to sleep, and whether that is a retry; `None` to give up.
    fn pause(&self, place: &Place) -> Option<(Instant, bool)> {
        let now = Instant::now();
        let left = self.end.saturating_duration_since(now);
        let delay =
            self.checked
                .retry
                .delay(self.retries.saturating_add(1), left, random_bits())?;
        if !place.is_first() {
            // Another one asks for all. Only who counts retries must look at the clock meanwhile.
            return Some(if self.checked.retry.max.is_some() {
                (now + delay, true)
            } else {
                (self.end, false)
            });
        }
        match &self.failure {
            Some(Failure::Locked(Some(holder))) => match holder.patience() {
                Some(lease) if lease < delay => Some((now + lease, false)),
                _ => Some((now + delay, true)),
            },
            _ => Some((now + delay, true)),
        }
    }

    fn sleep(&self, place: &Place, bell: &Bell, until: Instant, counts: bool) -> Awake {
        let was_first = place.is_first();
        loop {
            if self.flight.cancel.is_some_and(CancelToken::is_cancelled) {
                return Awake::Cancelled;
            }
            if place.is_called() {
                return Awake::Called;
            }
            if Instant::now() >= until {
                return Awake::Elapsed(counts);
            }
            if !was_first && place.is_first() {
                return Awake::Promoted;
            }
            bell.sleep_until(until);
        }
    }

    /// The wait is over. A caller that never became first has not asked yet, and does so once, in what is left of its time or
    /// in [`LAST_CHANCE`].
    fn last_chance(mut self, place: &Place) -> Result<Granted, LockError> {
        if self.attempts == 0
            && let Some(granted) = self.attempt(Some(place))?
        {
            return Ok(granted);
        }
        Err(self.give_up())
    }

    fn give_up(self) -> LockError {
        self.flight.undo();
        let (attempts, waited) = (self.attempts, self.begun.elapsed());
        match self.failure {
            Some(Failure::Trouble(error)) => error,
            other => {
                let holder = other.and_then(|f| if let Failure::Locked(holder) = f { holder } else { None });
                let why = if holder.as_ref().is_some_and(|holder| self.flight.client.is_own(holder)) {
                    "this thread itself took the lock and has not released it; locks are not re-entrant"
                } else {
                    "the lock was held by somebody else for the whole wait"
                };
                let text = format!("{why} (attempts: {attempts}, in {} ms)", waited.as_millis());
                LockError::new(ErrorCode::AcquisitionTimeout, text).held_by(holder).nothing_applied()
            }
        }
        .after(attempts, waited)
        .for_key(self.flight.key)
    }
}

/// By when a call that began at `begun` ends: at the end of the wait, or of the operation timeout if that is later, so that a
/// short wait is no impossible one.
pub(crate) fn last_of(begun: Instant, checked: &Checked, bounds: &Bounds) -> Instant {
    deadline_from(begun, checked.acquire_timeout.max(bounds.operation))
}

/// The time that one attempt gets.
pub(crate) struct Share {
    pub(crate) start: Instant,
    pub(crate) limit: Instant,
    /// It is too little to blame the store if it runs out.
    cut: bool,
}

impl Share {
    /// For a first attempt at the very beginning of the call.
    pub(crate) fn whole(begun: Instant, last: Instant) -> Self {
        Self {
            start: begun,
            limit: last,
            cut: false,
        }
    }

    /// For an attempt at `now` by a caller that stood in line and must end by `last`.
    pub(crate) fn left(now: Instant, last: Instant, bounds: &Bounds) -> Self {
        let limit = last.max(deadline_from(now, LAST_CHANCE));
        Self {
            start: now,
            limit,
            cut: limit < deadline_from(now, bounds.operation / 2),
        }
    }

    /// Whether `error` only says that the wait is over, which is no trouble of the store's.
    pub(crate) fn excuses(&self, error: &LockError) -> bool {
        use ErrorCode::{NetworkTimeout, RateLimited};
        // A Postgres server ends a statement this much earlier than we would.
        const NEARLY: Duration = Duration::from_millis(100);
        self.cut
            && matches!(error.code(), NetworkTimeout | RateLimited)
            && self.limit <= Instant::now() + NEARLY
    }
}

/// The attempts of one `lock`, under one lock id: an acquire whose reply was lost is recognised when it is repeated.
pub(crate) struct Flight<'a> {
    client: &'a Client,
    key: &'a Key,
    ttl: Ttl,
    cancel: Option<&'a CancelToken>,
    lock_id: LockId,
    /// When the request was sent that a grant may answer.
    sent: Duration,
    /// Whether an earlier attempt may have been applied.
    in_doubt: bool,
    /// Until when such an attempt may still reach the store, where that is known.
    refused_after: Option<Instant>,
}

impl<'a> Flight<'a> {
    pub(crate) fn new(
        client: &'a Client,
        key: &'a Key,
        ttl: Ttl,
        cancel: Option<&'a CancelToken>,
    ) -> Result<Self, LockError> {
        if cancel.is_some_and(CancelToken::is_cancelled) {
            return Err(cancelled().nothing_applied().for_key(key));
        }
        Ok(Self {
            client,
            key,
            ttl,
            cancel,
            lock_id: LockId::random()?,
            sent: Duration::ZERO,
            in_doubt: false,
            refused_after: None,
        })
    }

    /// One attempt at `start` that ends by `limit`.
    pub(crate) fn attempt(
        &mut self,
        start: Instant,
        limit: Instant,
    ) -> Result<AcquireOutcome, LockError> {
        let now = self.client.now();
        // A grant of the doubtful attempt would be spent by now: begin anew under another id.
        if self.in_doubt && now >= self.sent + self.ttl.as_duration() {
            let fresh = LockId::random()?;
            self.undo();
            self.lock_id = fresh;
            self.in_doubt = false;
            self.refused_after = None;
        }
        // While in doubt a grant may be the first attempt's, and its lease counts from then.
        if !self.in_doubt {
            self.sent = now;
        }
        let narrower = self.client.bounds().token(self.cancel, start, limit);
        let cancel = narrower.as_ref().or(self.cancel);
        // Until the store has answered, a panic of its code leaves the outcome unknown too.
        let doubt = Doubt(self);
        let answer = doubt
            .0
            .client
            .attempt(doubt.0.key, &doubt.0.lock_id, doubt.0.ttl, cancel);
        std::mem::forget(doubt);
        if let Err(error) = &answer {
            self.in_doubt |= error.may_have_applied();
            let limit = error.not_after().map(|limit| limit.passed_by);
            self.refused_after = self.refused_after.max(limit);
        }
        answer
    }

    pub(crate) fn granted(&self, acquired: Acquired) -> Granted {
        Granted {
            acquired,
            sent: self.sent,
            refused_after: self.refused_after,
        }
    }

    /// Takes back what the attempts may have left.
    pub(crate) fn undo(&self) {
        if self.in_doubt {
            self.client
                .undo(self.key, self.lock_id, self.ttl, self.refused_after);
        }
    }
}

/// Undoes the attempt if the store panics in it.
struct Doubt<'a, 'b>(&'b mut Flight<'a>);

impl Drop for Doubt<'_, '_> {
    fn drop(&mut self) {
        self.0.in_doubt = true;
        self.0.undo();
    }
}

fn cancelled() -> LockError {
    LockError::new(ErrorCode::Aborted, "the wait for the lock was cancelled")
}
