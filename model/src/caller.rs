//! A caller: what it believes, and what it does about answers that do not come.

use crate::protocol::{Action, LockId, Outcome, Reply, Request, Verb};
use crate::rules::{CALL, LONG, MARGIN, Mistake, Rules, SHORT, Tick, Wants};

/// A lock that the caller asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    id: LockId,
    /// The caller's clock before the first request.
    first_sent: Tick,
    /// The request that is not answered yet. `None` after the caller gave it up.
    waits_for: Option<u8>,
    /// Until when the store may meet the last request, on the store's clock. It may meet none of the earlier ones later.
    not_after: Option<Tick>,
    /// Whether the caller gave up a request, which the store may have met, or may meet yet.
    unknown: bool,
}

/// An extend of unknown outcome, which may have shortened the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Doubt {
    /// What the holder may count on at most.
    cap: Tick,
    /// Until when the store may still meet the extend, on the store's clock.
    not_after: Option<Tick>,
}

/// An extend on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Extend {
    serial: u8,
    sent: Tick,
    ttl: Tick,
    not_after: Option<Tick>,
}

/// A lock that the caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    id: LockId,
    /// The end of the belief, on the caller's clock.
    until: Tick,
    extend: Option<Extend>,
    doubt: Option<Doubt>,
    /// Until when the store may meet an acquire that was given up and repeated, on the store's clock.
    acquire_not_after: Option<Tick>,
}

impl Held {
    /// An extend on its way may have shortened the lease.
    fn counted_on_until(&self, rules: &Rules) -> Tick {
        match self.extend {
            Some(extend) if rules.mistake != Some(Mistake::ShortExtendInFlight) => {
                self.until.min(lease_end(rules, extend.sent, extend.ttl))
            }
            _ => self.until,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Acquiring(Attempt),
    Holding(Held),
}

/// An acquire or a release whose effect is not known. The library goes on with it while the caller does something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Undoing {
    id: LockId,
    /// Until when the store may still meet the acquire, on the store's clock.
    not_after: Option<Tick>,
    ended: bool,
}

/// All releases of an id are the same message: an answer to any of them is as good.
const RELEASE: u8 = u8::MAX;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) clock: Tick,
    phase: Phase,
    /// What the caller has not done yet.
    wants: Wants,
    /// The number of its next id.
    number: u8,
    /// The number of the next request.
    serial: u8,
    undoings: Vec<Undoing>,
}

impl Caller {
    pub(crate) fn new(wants: &Wants) -> Self {
        Self {
            clock: 0,
            phase: Phase::Idle,
            wants: *wants,
            number: 0,
            serial: 0,
            undoings: Vec::new(),
        }
    }

    pub(crate) fn believes(&self, rules: &Rules) -> bool {
        matches!(&self.phase, Phase::Holding(held) if self.clock < held.counted_on_until(rules))
    }

    /// Whether the caller takes it for certain that `id` has no lock and gets none.
    pub(crate) fn has_ended(&self, id: LockId) -> bool {
        self.undoings.iter().any(|u| u.id == id && u.ended)
    }

    pub(crate) fn has_undone(&self) -> bool {
        self.undoings.iter().any(|u| u.ended)
    }

    pub(crate) fn actions(&self, rules: &Rules, n: u8, actions: &mut Vec<Action>) {
        match &self.phase {
            Phase::Idle if self.wants.locks > 0 => actions.push(Action::Acquire(n)),
            Phase::Idle => {}
            Phase::Acquiring(attempt) => {
                if attempt.waits_for.is_some() {
                    actions.push(Action::GiveUp(n));
                } else {
                    actions.push(Action::Leave(n));
                    if self.wants.repeats > 0 {
                        actions.push(Action::Repeat(n));
                    }
                }
            }
            Phase::Holding(held) => {
                actions.push(Action::Release(n));
                if held.extend.is_some() {
                    actions.push(Action::GiveUp(n));
                } else if self.wants.extends > 0 && self.believes(rules) {
                    // A guard that is lost extends no more.
                    actions.push(Action::Extend(n, SHORT));
                    actions.push(Action::Extend(n, LONG));
                }
            }
        }
        let open = self.undoings.iter().filter(|u| !u.ended);
        actions.extend(open.map(|u| Action::Undo(n, u.id)));
    }

    /// Makes one of the caller's own steps. Answers the request that it sends.
    pub(crate) fn step(&mut self, rules: &Rules, action: Action, store: Tick) -> Option<Request> {
        match action {
            Action::Acquire(n) => self.acquire(rules, n, store),
            Action::Repeat(_) => self.repeat(rules, store),
            Action::GiveUp(_) => {
                self.give_up(rules);
                None
            }
            Action::Leave(_) => {
                self.leave(rules);
                None
            }
            Action::Extend(_, ttl) => self.extend(rules, ttl, store),
            Action::Release(_) => self.release(),
            Action::Undo(_, id) => Some(release_of(id)),
            _ => None,
        }
    }

    fn acquire(&mut self, rules: &Rules, caller: u8, store: Tick) -> Option<Request> {
        let id = LockId {
            caller,
            number: self.number,
        };
        self.number += 1;
        self.wants.locks -= 1;
        let request = self.request(id, Verb::Acquire, acquire_limit(rules, store));
        self.phase = Phase::Acquiring(Attempt {
            id,
            first_sent: self.clock,
            waits_for: Some(request.serial),
            not_after: request.not_after,
            unknown: false,
        });
        Some(request)
    }

    fn repeat(&mut self, rules: &Rules, store: Tick) -> Option<Request> {
        let Phase::Acquiring(mut attempt) = self.phase else {
            return None;
        };
        let request = self.request(attempt.id, Verb::Acquire, acquire_limit(rules, store));
        attempt.waits_for = Some(request.serial);
        self.wants.repeats -= 1;
        attempt.not_after = request.not_after;
        if rules.mistake == Some(Mistake::CountsFromTheRepeat) {
            attempt.first_sent = self.clock;
        }
        self.phase = Phase::Acquiring(attempt);
        Some(request)
    }

    /// The call ends without an answer: its effect is unknown.
    fn give_up(&mut self, rules: &Rules) {
        match &mut self.phase {
            Phase::Idle => {}
            Phase::Acquiring(attempt) => {
                attempt.waits_for = None;
                attempt.unknown = true;
            }
            Phase::Holding(held) => {
                if let Some(extend) = held.extend.take() {
                    let cap = lease_end(rules, extend.sent, extend.ttl);
                    held.until = held.until.min(cap);
                    let cap = held.doubt.map_or(cap, |doubt| doubt.cap.min(cap));
                    held.doubt = Some(Doubt {
                        cap,
                        not_after: extend.not_after,
                    });
                }
            }
        }
    }

    fn leave(&mut self, rules: &Rules) {
        let Phase::Acquiring(attempt) = self.phase else {
            return;
        };
        self.phase = Phase::Idle;
        self.undo(attempt.id, attempt.not_after);
        if rules.mistake == Some(Mistake::NoUndo) {
            self.undoings.iter_mut().for_each(|u| u.ended = true);
        }
    }

    fn extend(&mut self, rules: &Rules, ttl: Tick, store: Tick) -> Option<Request> {
        let Phase::Holding(held) = self.phase else {
            return None;
        };
        self.wants.extends -= 1;
        let not_after = match rules.mistake {
            Some(Mistake::LateExtend) => None,
            _ => Some(store + CALL),
        };
        let request = self.request(held.id, Verb::Extend { ttl }, not_after);
        self.phase = Phase::Holding(Held {
            extend: Some(Extend {
                serial: request.serial,
                sent: self.clock,
                ttl,
                not_after,
            }),
            ..held
        });
        Some(request)
    }

    fn release(&mut self) -> Option<Request> {
        let Phase::Holding(held) = self.phase else {
            return None;
        };
        self.phase = Phase::Idle;
        // A request that was given up may still be on its way: the library looks again until its time has passed.
        self.undo(held.id, held.acquire_not_after);
        Some(release_of(held.id))
    }

    /// Leaves `id` to the library, which releases it until an answer shows that it can have no lock any more.
    fn undo(&mut self, id: LockId, not_after: Option<Tick>) {
        self.undoings.retain(|u| u.id != id);
        self.undoings.push(Undoing {
            id,
            not_after,
            ended: false,
        });
    }

    /// Whether the caller does anything with this answer.
    pub(crate) fn waits_for(&self, request: &Request) -> bool {
        if request.verb == Verb::Release {
            return self.undoings.iter().any(|u| u.id == request.id && !u.ended);
        }
        match self.phase {
            Phase::Idle => false,
            Phase::Acquiring(attempt) => attempt.waits_for == Some(request.serial),
            Phase::Holding(held) => held.extend.is_some_and(|e| e.serial == request.serial),
        }
    }

    fn request(&mut self, id: LockId, verb: Verb, not_after: Option<Tick>) -> Request {
        let serial = self.serial;
        self.serial += 1;
        Request {
            id,
            verb,
            serial,
            not_after,
        }
    }

    /// Reads an answer that the caller waits for.
    pub(crate) fn read(&mut self, rules: &Rules, reply: &Reply) {
        if reply.request.verb == Verb::Release {
            let open = self.undoings.iter_mut().find(|u| u.id == reply.request.id);
            if let Some(undoing) = open {
                let over = undoing.not_after.is_none_or(|end| reply.at > end);
                undoing.ended |= over || rules.mistake == Some(Mistake::UndoLooksOnce);
            }
            return;
        }
        match self.phase {
            Phase::Idle => {}
            Phase::Acquiring(attempt) => self.acquired(rules, attempt, reply.outcome),
            Phase::Holding(held) => {
                if let Some(extend) = held.extend {
                    self.extended(rules, held, extend, reply);
                }
            }
        }
    }

    fn acquired(&mut self, rules: &Rules, attempt: Attempt, outcome: Outcome) {
        if outcome != Outcome::Done {
            self.phase = Phase::Idle;
            // An earlier request of the same id may still be on its way.
            if attempt.unknown {
                self.undo(attempt.id, attempt.not_after);
            }
            return;
        }
        let sent = match rules.mistake {
            Some(Mistake::CountsFromTheAnswer) => self.clock,
            _ => attempt.first_sent,
        };
        self.phase = Phase::Holding(Held {
            id: attempt.id,
            until: lease_end(rules, sent, LONG),
            extend: None,
            doubt: None,
            acquire_not_after: attempt.not_after.filter(|_| attempt.unknown),
        });
    }

    fn extended(&mut self, rules: &Rules, mut held: Held, extend: Extend, reply: &Reply) {
        // What is lost stays lost.
        let lost = self.clock >= held.counted_on_until(rules);
        held.extend = None;
        if lost {
            held.until = 0;
            self.phase = Phase::Holding(held);
            return;
        }
        match reply.outcome {
            Outcome::Done => {
                held.until = lease_end(rules, extend.sent, extend.ttl);
                match held.doubt {
                    // The store answered later than it may meet the extend in doubt, or it needs no such limit.
                    Some(doubt) if doubt.not_after.is_none_or(|end| reply.at > end) => {
                        held.doubt = None;
                    }
                    Some(doubt) => held.until = held.until.min(doubt.cap),
                    None => {}
                }
            }
            // The lock is lost.
            Outcome::Refused => held.until = 0,
            Outcome::TooLate => {}
        }
        self.phase = Phase::Holding(held);
    }
}

fn release_of(id: LockId) -> Request {
    Request {
        id,
        verb: Verb::Release,
        serial: RELEASE,
        not_after: None,
    }
}

fn acquire_limit(rules: &Rules, store: Tick) -> Option<Tick> {
    match rules.mistake {
        Some(Mistake::LateAcquire) => None,
        _ => Some(store + CALL),
    }
}

/// When a lease ends for its holder, on the holder's clock.
fn lease_end(rules: &Rules, sent: Tick, ttl: Tick) -> Tick {
    match rules.mistake {
        Some(Mistake::NoMargin) => sent + ttl,
        _ => sent + ttl - MARGIN,
    }
}
