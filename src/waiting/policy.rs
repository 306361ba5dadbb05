//! The waiting policy: what a caller that waits for a lock does next.
//!
//! It is pure. What happened, the time and the random bits are passed in; it does no I/O, never sleeps and starts no thread. It uses `options`,
//! `types` and one function of `runtime`. The loop of `blocking.rs`, the [`Waiter`](crate::Waiter), C and Go all drive it.

use std::time::{Duration, Instant};

use crate::options::lock::CheckedLockOptions;
use crate::options::retry::Retry;
use crate::runtime::cancel::deadline_from;
use crate::types::error::ErrorCode;

/// What an attempt in line gets at the least: enough for a store that answers, and little enough that the call ends within 100 ms
/// of its bound. It matters to a caller that never became first in line and asks once when its wait is over.
pub(crate) const LAST_CHANCE: Duration = Duration::from_millis(30);

/// What happened to the waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitEvent {
    /// The caller begins, and no local waiter stands before it.
    Entered,
    /// The caller begins, and joins the line without contacting the store.
    Joined,
    /// The attempt took the lock.
    Granted,
    /// The attempt met a holder. Its lock is free after this time if the holder does nothing more.
    Locked { free_in: Option<Duration> },
    /// The attempt met trouble that may pass.
    Trouble,
    /// The attempt had too little time to blame the store. The others in line know this.
    Unanswered(GiveUpReason),
    /// The attempt failed in a way that no repetition mends.
    Refused,
    /// The caller had no thread to make the attempt on.
    NotMade(GiveUpReason),
    /// The waiter is first in line, and the lock may have been freed.
    Called,
    /// The waiter has become first in line.
    Promoted,
    /// The time of the sleep is over.
    Elapsed { first: bool },
    /// The caller does not want the lock any more.
    Cancelled,
}

/// What the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitAction {
    /// Make one attempt that ends by `until`, and tell its outcome.
    Try { until: Instant },
    /// Sleep until then, or until the line wakes the waiter.
    SleepUntil(Instant),
    /// End the wait without the lock.
    GiveUp(GiveUpReason),
    /// The lock is held.
    Done,
}

/// What a wait without a grant ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveUpReason {
    /// Another holder had the lock to the end.
    Held,
    /// The store was in trouble to the end, or refused.
    Trouble,
    Cancelled,
}

/// Where a waiter stands in its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// It asks the store for all that wait here.
    pub(crate) first: bool,
    /// It is first, and the lock may have been freed.
    pub(crate) called: bool,
}

/// The policy of one wait.
#[derive(Debug)]
pub(crate) struct WaitPolicy {
    retry: Retry,
    operation: Duration,
    single: bool,
    begun: Instant,
    /// The end of the wait: no sleep lasts longer.
    end: Instant,
    /// The end of every attempt but a [`LAST_CHANCE`]: the end of the wait, or of the operation timeout if that is later, so that a
    /// short wait is no impossible one.
    last: Instant,
    attempts: u32,
    /// Backoff delays that passed. A wake-up is not a retry.
    retries: u32,
    /// Whether any attempt was called for.
    asked: bool,
    /// What the attempts so far came to.
    reason: Option<GiveUpReason>,
    /// When the lock that the last attempt met is free if its holder has died.
    free_at: Option<Instant>,
    state: WaitState,
}

#[derive(Clone, Copy, Debug)]
enum WaitState {
    Trying {
        until: Instant,
        /// The first attempt at the very beginning of the call: it has all the time that there is.
        whole: bool,
    },
    Asleep {
        until: Instant,
        /// Whether it is a retry when the time is over.
        counts: bool,
        /// Whether the waiter was first in line when the sleep began.
        first: bool,
    },
    Over(WaitAction),
}

impl WaitPolicy {
    /// The policy of a call that began at `begun`. It ends by `limit` too, if there is one.
    pub(crate) fn new(
        checked: &CheckedLockOptions,
        operation: Duration,
        begun: Instant,
        limit: Option<Instant>,
    ) -> Self {
        let bounded = |end: Instant| limit.map_or(end, |limit| end.min(limit));
        let timeout = checked.acquire_timeout;
        Self {
            retry: checked.retry.clone(),
            operation,
            single: timeout.is_zero() || checked.retry.max == Some(0),
            begun,
            end: bounded(deadline_from(begun, timeout)),
            last: bounded(deadline_from(begun, timeout.max(operation))),
            attempts: 0,
            retries: 0,
            asked: false,
            reason: None,
            free_at: None,
            state: WaitState::Asleep {
                until: begun,
                counts: false,
                first: false,
            },
        }
    }

    /// Whether there is exactly one attempt: such a caller does not stand in line.
    pub(crate) fn is_single(&self) -> bool {
        self.single
    }

    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// By when the call ends, but for [`LAST_CHANCE`].
    pub(crate) fn last(&self) -> Instant {
        self.last
    }

    /// How many attempts were made.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// What to do as things stand.
    pub(crate) fn action(&self) -> WaitAction {
        match self.state {
            WaitState::Trying { until, .. } => WaitAction::Try { until },
            WaitState::Asleep { until, .. } => WaitAction::SleepUntil(until),
            WaitState::Over(action) => action,
        }
    }

    /// The time for an attempt that begins at `now`; `None` if none is to be made.
    pub(crate) fn share(&self, now: Instant) -> Option<Share> {
        match self.state {
            WaitState::Trying { until, whole } => Some(Share {
                start: now,
                limit: until,
                cut: !whole && until < deadline_from(now, self.operation / 2),
            }),
            _ => None,
        }
    }

    /// What ended the sleep of a waiter that stands there at `now`; `None` if it sleeps on.
    pub(crate) fn woken(&self, standing: Standing, now: Instant) -> Option<WaitEvent> {
        let WaitState::Asleep { until, first, .. } = self.state else {
            return None;
        };
        if standing.called {
            Some(WaitEvent::Called)
        } else if now >= until {
            Some(WaitEvent::Elapsed {
                first: standing.first,
            })
        } else if standing.first && !first {
            Some(WaitEvent::Promoted)
        } else {
            None
        }
    }

    /// Takes an event in and says what to do. An event that makes no sense as things stand changes nothing.
    pub(crate) fn on(
        &mut self,
        event: WaitEvent,
        now: Instant,
        random: impl FnOnce() -> u64,
    ) -> WaitAction {
        self.state = match self.state {
            WaitState::Over(_) => self.state,
            _ if event == WaitEvent::Cancelled => over(GiveUpReason::Cancelled),
            WaitState::Trying { .. } => self.tried(event, now, random),
            WaitState::Asleep { until, counts, .. } => match event {
                WaitEvent::Entered if !self.asked => self.attempt(self.last, true),
                WaitEvent::Joined => self.pause(now, false, random),
                WaitEvent::Called => self.try_or_end(now),
                WaitEvent::Promoted => self.pause(now, true, random),
                WaitEvent::Elapsed { first } if now >= until => {
                    self.retries = self.retries.saturating_add(u32::from(counts));
                    if first {
                        self.try_or_end(now)
                    } else {
                        self.pause(now, false, random)
                    }
                }
                _ => self.state,
            },
        };
        self.action()
    }

    fn tried(&mut self, event: WaitEvent, now: Instant, random: impl FnOnce() -> u64) -> WaitState {
        use WaitEvent::{Granted, Locked, NotMade, Refused, Trouble, Unanswered};
        match event {
            Granted | Locked { .. } | Trouble | Unanswered(_) | Refused => {
                self.attempts = self.attempts.saturating_add(1);
            }
            NotMade(_) => {}
            _ => return self.state,
        }
        // Without an answer nothing is known of the holder any more.
        self.free_at = None;
        match event {
            Granted => return WaitState::Over(WaitAction::Done),
            Refused => return over(GiveUpReason::Trouble),
            Locked { free_in } => {
                self.reason = Some(GiveUpReason::Held);
                self.free_at = free_in.map(|time| deadline_from(now, time));
            }
            // An answer of its own tells the caller more than what others know.
            Unanswered(known) | NotMade(known) if self.reason != Some(GiveUpReason::Held) => {
                self.reason = Some(known);
            }
            Trouble => self.reason = Some(GiveUpReason::Trouble),
            _ => {}
        }
        // Only the first in line asks more than once.
        self.pause(now, true, random)
    }

    /// The sleep before the next attempt, or the end.
    fn pause(&mut self, now: Instant, first: bool, random: impl FnOnce() -> u64) -> WaitState {
        let left = self.end.saturating_duration_since(now);
        let Some(delay) = self
            .retry
            .delay(self.retries.saturating_add(1), left, random())
        else {
            return self.last_chance(now);
        };
        let retry_at = now + delay;
        let (until, counts) = match self.free_at {
            // Another one asks for all. Only a caller that counts retries looks at the clock meanwhile.
            _ if !first && self.retry.max.is_none() => (self.end, false),
            // Nothing calls when a holder dies.
            Some(free_at) if first && free_at < retry_at => (free_at.max(now), false),
            _ => (retry_at, true),
        };
        WaitState::Asleep {
            until,
            counts,
            first,
        }
    }

    fn try_or_end(&mut self, now: Instant) -> WaitState {
        if now < self.last {
            let until = self.last.max(deadline_from(now, LAST_CHANCE));
            self.attempt(until, false)
        } else {
            self.last_chance(now)
        }
    }

    /// The wait is over. A caller that never became first has not asked yet, and does so once, in what is left of its time or in
    /// [`LAST_CHANCE`].
    fn last_chance(&mut self, now: Instant) -> WaitState {
        if self.asked {
            return over(self.reason.unwrap_or(GiveUpReason::Held));
        }
        let until = self.last.max(deadline_from(now, LAST_CHANCE));
        self.attempt(until, false)
    }

    fn attempt(&mut self, until: Instant, whole: bool) -> WaitState {
        self.asked = true;
        WaitState::Trying { until, whole }
    }
}

fn over(reason: GiveUpReason) -> WaitState {
    WaitState::Over(WaitAction::GiveUp(reason))
}

/// The time that one attempt gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) start: Instant,
    pub(crate) limit: Instant,
    /// It is too little to blame the store if it runs out.
    cut: bool,
}

impl Share {
    /// Whether an attempt that ended with `code` at `now` only shows that the wait is over, which is no trouble of the store's.
    pub(crate) fn excuses(&self, code: ErrorCode, now: Instant) -> bool {
        use ErrorCode::{NetworkTimeout, RateLimited};
        // A Postgres server ends a statement this much earlier than we would.
        const NEARLY: Duration = Duration::from_millis(100);
        self.cut && matches!(code, NetworkTimeout | RateLimited) && self.limit <= now + NEARLY
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
