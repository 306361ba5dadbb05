//! For every sequence of events: no sleep past the end, no attempt after its bound, retries counted as promised, and an end.

use super::*;
use crate::options::lock::{DEFAULT_ACQUIRE_TIMEOUT, LockOptions};
use crate::options::retry::{Backoff, DEFAULT_MAX_RETRIES, Jitter};
use proptest::prelude::*;

/// What a caller says about retries.
#[derive(Clone, Copy, Debug)]
enum RetrySetting {
    Default,
    Unlimited,
    Max(u32),
}

/// What a caller sets, and what the policy must make of it.
#[derive(Clone, Debug)]
struct Setting {
    acquire: Option<Duration>,
    retries: RetrySetting,
    base: Duration,
    backoff: Backoff,
    jitter: Jitter,
    operation: Duration,
    limit: Option<Duration>,
}

impl Setting {
    fn checked(&self) -> CheckedLockOptions {
        let mut options = LockOptions::new()
            .retry_delay(self.base)
            .backoff(self.backoff)
            .jitter(self.jitter);
        if let Some(timeout) = self.acquire {
            options = options.acquire_timeout(timeout);
        }
        options = match self.retries {
            RetrySetting::Default => options,
            RetrySetting::Unlimited => options.unlimited_retries(),
            RetrySetting::Max(max) => options.max_retries(max),
        };
        options.checked().expect("legal options")
    }

    fn policy(&self, begun: Instant) -> WaitPolicy {
        let limit = self.limit.map(|limit| begun + limit);
        WaitPolicy::new(&self.checked(), self.operation, begun, limit)
    }

    fn acquire(&self) -> Duration {
        self.acquire.unwrap_or(DEFAULT_ACQUIRE_TIMEOUT)
    }

    fn end(&self) -> Duration {
        self.limit
            .map_or(self.acquire(), |limit| limit.min(self.acquire()))
    }

    fn last(&self) -> Duration {
        let last = self.acquire().max(self.operation);
        self.limit.map_or(last, |limit| limit.min(last))
    }

    /// As SPEC says it, told once more: ten, unless the caller says otherwise or sets an acquire timeout.
    fn retries(&self) -> Option<u32> {
        match (self.retries, self.acquire) {
            (RetrySetting::Max(max), _) => Some(max),
            (RetrySetting::Unlimited, _) | (RetrySetting::Default, Some(_)) => None,
            (RetrySetting::Default, None) => Some(DEFAULT_MAX_RETRIES),
        }
    }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn settings() -> impl Strategy<Value = Setting> {
    let acquire = prop_oneof![
        Just(None),
        Just(Some(0)),
        (1u64..3000).prop_map(Some),
        Just(Some(u64::MAX)),
    ];
    let retries = prop_oneof![
        Just(RetrySetting::Default),
        Just(RetrySetting::Unlimited),
        (0u32..5).prop_map(RetrySetting::Max),
    ];
    let shape = (0u64..3000, any::<bool>(), 0usize..3);
    let limit = prop_oneof![3 => Just(None), 1 => (0u64..4000).prop_map(Some)];
    (acquire, retries, shape, 1u64..3000, limit).prop_map(
        |(acquire, retries, (base, fixed, jitter), operation, limit)| Setting {
            acquire: acquire.map(ms),
            retries,
            base: ms(base),
            backoff: if fixed {
                Backoff::Fixed
            } else {
                Backoff::Exponential
            },
            jitter: [Jitter::Equal, Jitter::Full, Jitter::None][jitter],
            operation: ms(operation),
            limit: limit.map(ms),
        },
    )
}

fn reasons() -> impl Strategy<Value = GiveUpReason> {
    prop_oneof![Just(GiveUpReason::Held), Just(GiveUpReason::Trouble)]
}

/// Any event but the cancel.
fn events() -> impl Strategy<Value = WaitEvent> {
    prop_oneof![
        1 => Just(WaitEvent::Entered),
        1 => Just(WaitEvent::Joined),
        1 => Just(WaitEvent::Granted),
        4 => prop::option::of(0u64..2000)
            .prop_map(|free_in| WaitEvent::Locked { free_in: free_in.map(ms) }),
        2 => Just(WaitEvent::Trouble),
        1 => reasons().prop_map(WaitEvent::Unanswered),
        1 => reasons().prop_map(WaitEvent::NotMade),
        1 => Just(WaitEvent::Refused),
        2 => Just(WaitEvent::Called),
        1 => Just(WaitEvent::Promoted),
        4 => any::<bool>().prop_map(|first| WaitEvent::Elapsed { first }),
    ]
}

/// A policy, its clock, and what was seen of it.
struct WatchedPolicy {
    setting: Setting,
    policy: WaitPolicy,
    begun: Instant,
    now: Instant,
    tries: u32,
    outcomes: u32,
}

impl WatchedPolicy {
    fn new(setting: &Setting) -> Self {
        let begun = Instant::now();
        Self {
            setting: setting.clone(),
            policy: setting.policy(begun),
            begun,
            now: begun,
            tries: 0,
            outcomes: 0,
        }
    }

    fn trying(&self) -> bool {
        matches!(self.policy.action(), WaitAction::Try { .. })
    }

    fn over(&self) -> bool {
        matches!(
            self.policy.action(),
            WaitAction::GiveUp(_) | WaitAction::Done
        )
    }

    /// Feeds an event and checks what must be true of every answer.
    fn feed(&mut self, event: WaitEvent, random: u64) -> Result<WaitAction, TestCaseError> {
        use WaitEvent::{Granted, Locked, Refused, Trouble, Unanswered};
        let before = self.policy.action();
        let (was_trying, was_over) = (self.trying(), self.over());
        if was_trying
            && matches!(
                event,
                Granted | Locked { .. } | Trouble | Unanswered(_) | Refused
            )
        {
            self.outcomes += 1;
        }
        let action = self.policy.on(event, self.now, || random);
        prop_assert_eq!(action, self.policy.action());
        if was_over {
            prop_assert_eq!(action, before, "what is over stays over");
        }
        let (end, last) = (
            deadline_from(self.begun, self.setting.end()),
            deadline_from(self.begun, self.setting.last()),
        );
        match action {
            WaitAction::SleepUntil(until) => {
                prop_assert!(until <= end, "a sleep past the end");
                prop_assert!(self.policy.share(self.now).is_none());
            }
            WaitAction::Try { until } if !was_trying => {
                self.tries += 1;
                if self.now >= last {
                    prop_assert_eq!(self.tries, 1, "an attempt after its bound");
                    let least = last.max(deadline_from(self.now, LAST_CHANCE));
                    prop_assert!(until <= least, "a last chance without end");
                } else {
                    let least = last.max(deadline_from(self.now, LAST_CHANCE));
                    prop_assert!(until == last || until == least, "its bound");
                }
                let share = self.policy.share(self.now).expect("an attempt");
                prop_assert_eq!(share.limit, until);
            }
            WaitAction::Try { .. } => prop_assert_eq!(action, before),
            WaitAction::GiveUp(_) | WaitAction::Done => {}
        }
        if self.setting.acquire() == Duration::ZERO {
            prop_assert!(self.tries <= 1, "timeout 0 is one attempt");
        }
        prop_assert_eq!(self.policy.attempts(), self.outcomes);
        Ok(action)
    }

    /// Does what the policy says, with a store that answers `answer`, in a line whose first is this one or not, to the end.
    fn follow(&mut self, answer: WaitEvent, first: bool, random: u64) -> Result<(), TestCaseError> {
        // A sleep lasts a millisecond at the least, or ends with the lease that the one attempt before it met.
        let left = self
            .setting
            .end()
            .saturating_sub(self.now.duration_since(self.begun));
        let most = left.as_millis().min(5000) * 4 + 12;
        for _ in 0..most {
            let event = match self.policy.action() {
                WaitAction::GiveUp(_) | WaitAction::Done => return Ok(()),
                WaitAction::Try { .. } => answer,
                WaitAction::SleepUntil(until) => {
                    self.now = self.now.max(until);
                    WaitEvent::Elapsed { first }
                }
            };
            self.feed(event, random)?;
        }
        prop_assert!(
            self.over() || left > ms(5000),
            "a wait without end: {:?}",
            self.policy
        );
        Ok(())
    }
}

type Steps = Vec<(WaitEvent, u64, u64)>;

fn steps() -> impl Strategy<Value = Steps> {
    prop::collection::vec((events(), 0u64..400, any::<u64>()), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Any events in any order, and then a caller that does as it is told: every sleep, every attempt and the end are within bounds.
    #[test]
    fn bounds_hold_for_every_sequence_of_events(
        setting in settings(),
        joins in any::<bool>(),
        steps in steps(),
        answer in events(),
        first in any::<bool>(),
        random in any::<u64>(),
    ) {
        let mut seen = WatchedPolicy::new(&setting);
        seen.feed(if joins { WaitEvent::Joined } else { WaitEvent::Entered }, random)?;
        for (event, advance, random) in steps {
            seen.now += ms(advance);
            seen.feed(event, random)?;
        }
        let answer = match answer {
            WaitEvent::Locked { .. } | WaitEvent::Trouble | WaitEvent::Unanswered(_) | WaitEvent::NotMade(_) => answer,
            _ => WaitEvent::Trouble,
        };
        seen.follow(answer, first, random)?;
        // Two events more are enough once all of the time is over: a last chance, and the end.
        if !seen.over() {
            seen.now = seen.now.max(deadline_from(seen.begun, setting.last()));
            for _ in 0..4 {
                let event = if seen.trying() { WaitEvent::Trouble } else { WaitEvent::Elapsed { first } };
                seen.feed(event, random)?;
            }
            prop_assert!(seen.over(), "{:?}", seen.policy);
        }
        prop_assert!(seen.tries >= 1, "a caller that was not cancelled asks at least once");
    }

    /// A cancel ends every wait at once, wherever it stands.
    #[test]
    fn a_cancel_ends_the_wait(setting in settings(), steps in steps()) {
        let mut seen = WatchedPolicy::new(&setting);
        for (event, advance, random) in steps {
            seen.now += ms(advance);
            seen.feed(event, random)?;
        }
        let was = (seen.over(), seen.policy.action());
        let action = seen.feed(WaitEvent::Cancelled, 0)?;
        prop_assert_eq!(action, if was.0 { was.1 } else { WaitAction::GiveUp(GiveUpReason::Cancelled) });
    }

    /// Attempts are the first one, one for each retry, and one for each wake-up, which is no retry; as is the end of a lease. The time
    /// ends the wait if the retries do not.
    #[test]
    fn retries_are_delays_that_passed(
        setting in settings(),
        wakes in prop::collection::vec(0u8..4, 0..40),
        trouble in any::<bool>(),
        random in any::<u64>(),
    ) {
        let mut seen = WatchedPolicy::new(&setting);
        let (mut called, mut leases, mut delays) = (0u32, 0u32, 0u32);
        seen.feed(WaitEvent::Entered, random)?;
        let mut wakes = wakes.into_iter();
        let mut met = None;
        for _ in 0..2000 {
            match seen.policy.action() {
                WaitAction::GiveUp(_) | WaitAction::Done => break,
                WaitAction::Try { .. } => {
                    // A lease that is shorter than every delay ends the sleep.
                    met = if trouble { None } else { wakes.next().filter(|w| *w == 0).map(|_| Duration::from_micros(10)) };
                    seen.feed(if trouble { WaitEvent::Trouble } else { WaitEvent::Locked { free_in: met } }, random)?;
                }
                WaitAction::SleepUntil(until) => match wakes.next() {
                    Some(1) => {
                        called += 1;
                        seen.feed(WaitEvent::Called, random)?;
                    }
                    Some(2) => {
                        // It sleeps on.
                        let action = seen.feed(WaitEvent::Elapsed { first: true }, random)?;
                        prop_assert!(seen.now >= until || action == WaitAction::SleepUntil(until));
                        if seen.now >= until {
                            if met.take().is_some() { leases += 1 } else { delays += 1 }
                        }
                    }
                    _ => {
                        seen.now = seen.now.max(until);
                        seen.feed(WaitEvent::Elapsed { first: true }, random)?;
                        if met.take().is_some() { leases += 1 } else { delays += 1 }
                    }
                },
            }
        }
        // The last delay may have ended the wait in place of an attempt, if all of the time was over.
        prop_assert!(seen.tries <= 1 + called + leases + delays && seen.tries + 1 >= 1 + called + leases + delays);
        if setting.acquire() == Duration::ZERO || setting.limit == Some(Duration::ZERO) {
            prop_assert_eq!(seen.tries, 1);
        } else if let Some(max) = setting.retries() {
            prop_assert!(delays <= max, "{} retries of {}", delays, max);
            if seen.over() && seen.now < seen.begun + setting.end() {
                prop_assert_eq!(delays, max, "a wake-up is not a retry");
            }
        } else if seen.over() {
            prop_assert!(seen.now >= seen.begun + setting.end(), "only the time ends it");
        }
    }
}

/// The settings of a caller that says nothing.
fn defaults() -> Setting {
    Setting {
        acquire: None,
        retries: RetrySetting::Default,
        base: ms(1),
        backoff: Backoff::Fixed,
        jitter: Jitter::None,
        operation: ms(5000),
        limit: None,
    }
}

const HELD: WaitEvent = WaitEvent::Locked { free_in: None };

#[test]
fn ten_retries_unless_an_acquire_timeout_is_set() {
    let mut plain = WatchedPolicy::new(&defaults());
    plain.feed(WaitEvent::Entered, 0).expect("in bounds");
    plain.follow(HELD, true, 0).expect("an end");
    assert_eq!(plain.tries, 1 + DEFAULT_MAX_RETRIES);
    let mut timed = WatchedPolicy::new(&Setting {
        acquire: Some(ms(100)),
        ..defaults()
    });
    timed.feed(WaitEvent::Entered, 0).expect("in bounds");
    timed.follow(HELD, true, 0).expect("an end");
    assert_eq!(timed.tries, 101, "one per millisecond, and the first");
    let mut both = WatchedPolicy::new(&Setting {
        acquire: Some(ms(100)),
        retries: RetrySetting::Max(3),
        ..defaults()
    });
    both.feed(WaitEvent::Entered, 0).expect("in bounds");
    both.follow(HELD, true, 0).expect("an end");
    assert_eq!(both.tries, 4);
}

#[test]
fn a_caller_that_was_never_first_asks_once_at_the_end() {
    let setting = Setting {
        acquire: Some(ms(100)),
        operation: ms(80),
        ..defaults()
    };
    let mut seen = WatchedPolicy::new(&setting);
    let action = seen.feed(WaitEvent::Joined, 0).expect("in bounds");
    assert_eq!(action, WaitAction::SleepUntil(seen.begun + ms(100)));
    seen.now += ms(101);
    let action = seen
        .feed(WaitEvent::Elapsed { first: false }, 0)
        .expect("in bounds");
    let until = seen.now + LAST_CHANCE;
    assert_eq!(action, WaitAction::Try { until });
    let share = seen.policy.share(seen.now).expect("an attempt");
    assert!(share.excuses(ErrorCode::NetworkTimeout, until));
    assert!(!share.excuses(ErrorCode::AuthFailed, until));
    let event = WaitEvent::Unanswered(GiveUpReason::Held);
    let action = seen.feed(event, 0).expect("in bounds");
    assert_eq!(action, WaitAction::GiveUp(GiveUpReason::Held));
}

#[test]
fn no_attempt_lasts_longer_than_the_callers_deadline() {
    let setting = Setting {
        acquire: Some(ms(100)),
        operation: ms(80),
        limit: Some(ms(50)),
        ..defaults()
    };
    let mut seen = WatchedPolicy::new(&setting);
    let action = seen.feed(WaitEvent::Entered, 0).expect("in bounds");
    let until = seen.begun + ms(50);
    assert_eq!(action, WaitAction::Try { until });
}

#[test]
fn a_dead_holder_is_not_waited_for() {
    let setting = Setting {
        base: ms(3000),
        ..defaults()
    };
    let mut seen = WatchedPolicy::new(&setting);
    seen.feed(WaitEvent::Entered, 0).expect("in bounds");
    let free_in = Some(ms(70));
    let action = seen
        .feed(WaitEvent::Locked { free_in }, 0)
        .expect("in bounds");
    assert_eq!(action, WaitAction::SleepUntil(seen.begun + ms(70)));
    assert_eq!(
        seen.policy.woken(Standing::default(), seen.begun + ms(69)),
        None
    );
    let standing = Standing {
        first: true,
        called: false,
    };
    assert_eq!(
        seen.policy.woken(standing, seen.begun + ms(70)),
        Some(WaitEvent::Elapsed { first: true })
    );
}

/// What woke a waiter is asked of its standing, and in this order: a call, the clock, the line.
#[test]
fn a_wake_up_is_told_from_a_standing() {
    let mut seen = WatchedPolicy::new(&Setting {
        acquire: Some(ms(100)),
        ..defaults()
    });
    seen.feed(WaitEvent::Joined, 0).expect("in bounds");
    let (called, first, behind) = (
        Standing {
            first: true,
            called: true,
        },
        Standing {
            first: true,
            called: false,
        },
        Standing::default(),
    );
    let (early, late) = (seen.begun, seen.begun + ms(100));
    let woken = |standing, now| seen.policy.woken(standing, now);
    assert_eq!(woken(called, late), Some(WaitEvent::Called));
    assert_eq!(woken(first, late), Some(WaitEvent::Elapsed { first: true }));
    assert_eq!(woken(first, early), Some(WaitEvent::Promoted));
    assert_eq!(woken(behind, early), None);
    assert_eq!(
        woken(behind, late),
        Some(WaitEvent::Elapsed { first: false })
    );
}
