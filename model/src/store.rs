//! The store: one lock, one fence counter, one clock.

use crate::protocol::{Begun, LockId, Outcome, Request, Verb};
use crate::rules::{LONG, Mistake, Rules, Tick};

/// What is stored under the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stored {
    id: LockId,
    expires: Tick,
}

/// What a crash may lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Contents {
    lock: Option<Stored>,
    fence: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    pub(crate) clock: Tick,
    lock: Option<Stored>,
    pub(crate) fence: u8,
    /// What a restart finds, where answers are not durable.
    disk: Contents,
    /// The largest fence that was ever granted. No store remembers it; the property does.
    highest: u8,
    pub(crate) fence_went_back: bool,
}

impl Store {
    /// The id that has the lock now.
    pub(crate) fn live_id(&self) -> Option<LockId> {
        self.live(self.clock).map(|lock| lock.id)
    }

    fn live(&self, now: Tick) -> Option<Stored> {
        self.lock.filter(|lock| lock.expires > now)
    }

    /// The look that needs no lock.
    pub(crate) fn begin(&self, request: Request) -> Begun {
        Begun {
            request,
            clock: self.clock,
            found: self.live(self.clock).is_some_and(|l| l.id == request.id),
        }
    }

    /// The change, under the lock on the row.
    pub(crate) fn apply(&mut self, rules: &Rules, begun: &Begun) -> Outcome {
        let now = match rules.mistake {
            Some(Mistake::ClockBeforeTheLock) => begun.clock,
            _ => self.clock,
        };
        let Request {
            id,
            verb,
            not_after,
            ..
        } = begun.request;
        if not_after.is_some_and(|end| now > end) {
            return Outcome::TooLate;
        }
        let live = self.live(now);
        let owns = live.is_some_and(|lock| lock.id == id);
        match verb {
            Verb::Acquire if owns => Outcome::Done,
            Verb::Acquire if live.is_some() => Outcome::Refused,
            Verb::Acquire => {
                self.fence += 1;
                self.fence_went_back |= self.fence <= self.highest;
                self.highest = self.highest.max(self.fence);
                let expires = now + LONG;
                self.lock = Some(Stored { id, expires });
                Outcome::Done
            }
            Verb::Extend { ttl } => {
                let found = match rules.mistake {
                    Some(Mistake::NoSecondLook) => begun.found,
                    _ => owns,
                };
                match &mut self.lock {
                    Some(lock) if found => {
                        lock.expires = now + ttl;
                        Outcome::Done
                    }
                    _ => Outcome::Refused,
                }
            }
            Verb::Release if owns || rules.mistake == Some(Mistake::ReleasesAnyLock) => {
                self.lock = None;
                Outcome::Done
            }
            Verb::Release => Outcome::Refused,
        }
    }

    pub(crate) fn can_sync(&self) -> bool {
        self.disk != self.contents()
    }

    pub(crate) fn sync(&mut self) {
        self.disk = self.contents();
    }

    pub(crate) fn restart(&mut self, rules: &Rules) {
        if rules.mistake == Some(Mistake::ForgetsAnswers) {
            self.lock = self.disk.lock;
            self.fence = self.disk.fence;
        }
    }

    fn contents(&self) -> Contents {
        Contents {
            lock: self.lock,
            fence: self.fence,
        }
    }
}
