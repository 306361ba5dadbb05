//! The state of the model and its steps, as the checker sees them.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use crate::caller::Caller;
use crate::rules::{Mistake, Rules, Tick, TwoSteps};
use crate::store::Store;

/// Names one grant that a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId {
    pub(crate) caller: u8,
    pub(crate) number: u8,
}

/// What a caller asks of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Gives the key to the id, if it is free.
    Acquire,
    /// Sets the end of the lease to `ttl` from now.
    Extend {
        /// The new lease.
        ttl: Tick,
    },
    /// Frees the key.
    Release,
}

/// A message to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request {
    pub(crate) id: LockId,
    pub(crate) verb: Verb,
    /// Tells a caller's requests apart.
    pub(crate) serial: u8,
    /// The last time of the store's clock at which the store may meet the request.
    pub(crate) not_after: Option<Tick>,
}

/// A request that the store has begun: what it saw before it had the lock on the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Begun {
    pub(crate) request: Request,
    pub(crate) clock: Tick,
    pub(crate) found: bool,
}

/// What the store says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The key is the id's, or its lease was extended.
    Done,
    /// The key is taken; or the id has no lock.
    Refused,
    /// The request came after its time and changed nothing.
    TooLate,
}

/// A message to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reply {
    pub(crate) request: Request,
    pub(crate) outcome: Outcome,
    /// The store's clock when it answered.
    pub(crate) at: Tick,
}

/// The whole state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) store: Store,
    pub(crate) callers: Vec<Caller>,
    pub(crate) requests: BTreeSet<Request>,
    pub(crate) begun: BTreeSet<Begun>,
    pub(crate) replies: BTreeSet<Reply>,
    pub(crate) crashes: u8,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes for all, but not for the clock of the caller that is named.
    Tick(Option<u8>),
    /// The store's state goes to its disk.
    Sync,
    /// The store crashes and restarts.
    Crash,
    /// The store begins a request.
    Begin(Request),
    /// The store meets a request and answers.
    Apply(Begun),
    /// A caller reads an answer.
    Read(Reply),
    /// A caller begins to acquire.
    Acquire(u8),
    /// A caller gives up the call that it made, and takes its outcome for unknown.
    GiveUp(u8),
    /// A caller repeats an acquire that it gave up.
    Repeat(u8),
    /// A caller leaves an acquire that it gave up to its library, which undoes it.
    Leave(u8),
    /// A holder extends its lease.
    Extend(u8, Tick),
    /// A holder releases its lock.
    Release(u8),
    /// A caller's library tries to undo an acquire.
    Undo(u8, LockId),
}

impl World {
    fn new(rules: &Rules) -> Self {
        Self {
            store: Store::default(),
            callers: rules.callers.iter().map(Caller::new).collect(),
            requests: BTreeSet::new(),
            begun: BTreeSet::new(),
            replies: BTreeSet::new(),
            crashes: 0,
        }
    }

    /// Keeps the number of states down.
    fn forget_what_has_no_effect(&mut self) {
        let callers = &self.callers;
        let awaited = |r: &Request| callers[usize::from(r.id.caller)].waits_for(r);
        // An answer to a call that was given up is thrown away with its connection.
        self.replies.retain(|reply| awaited(&reply.request));
        // So is the answer to a request that comes too late, which changes nothing.
        let now = self.store.clock;
        let in_time = |r: &Request| r.not_after.is_none_or(|end| now <= end);
        self.requests.retain(|r| in_time(r) || awaited(r));
    }

    fn apply(&mut self, rules: &Rules, begun: &Begun) {
        self.begun.remove(begun);
        let request = begun.request;
        let outcome = self.store.apply(rules, begun);
        // Of two answers to the releases of one id the later one says more.
        self.replies.retain(|reply| reply.request != request);
        self.replies.insert(Reply {
            request,
            outcome,
            at: self.store.clock,
        });
    }
}

impl Model for Rules {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.store.clock < self.ticks {
            actions.push(Action::Tick(None));
            for (n, caller) in (0..).zip(&world.callers) {
                if world.store.clock - caller.clock < self.drift {
                    actions.push(Action::Tick(Some(n)));
                }
            }
        }
        if self.mistake == Some(Mistake::ForgetsAnswers) && world.store.can_sync() {
            actions.push(Action::Sync);
        }
        if world.crashes < self.crashes {
            actions.push(Action::Crash);
        }
        actions.extend(world.requests.iter().map(|r| Action::Begin(*r)));
        actions.extend(world.begun.iter().map(|b| Action::Apply(*b)));
        actions.extend(world.replies.iter().map(|r| Action::Read(*r)));
        for (n, caller) in (0..).zip(&world.callers) {
            caller.actions(self, n, actions);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Tick(slow) => {
                world.store.clock += 1;
                for (n, caller) in (0..).zip(&mut world.callers) {
                    if slow != Some(n) {
                        caller.clock += 1;
                    }
                }
            }
            Action::Sync => world.store.sync(),
            Action::Crash => {
                world.crashes += 1;
                world.store.restart(self);
                // What was begun is rolled back. A request that is still on its way may arrive after the restart.
                world.begun.clear();
            }
            Action::Begin(request) => {
                world.requests.remove(&request);
                let begun = world.store.begin(request);
                let two_steps = match self.two_steps {
                    TwoSteps::Never => false,
                    TwoSteps::Extends => matches!(request.verb, Verb::Extend { .. }),
                    TwoSteps::Always => true,
                };
                if two_steps {
                    world.begun.insert(begun);
                } else {
                    world.apply(self, &begun);
                }
            }
            Action::Apply(begun) => world.apply(self, &begun),
            Action::Read(reply) => {
                world.replies.remove(&reply);
                world.callers[usize::from(reply.request.id.caller)].read(self, &reply);
            }
            Action::Acquire(n)
            | Action::GiveUp(n)
            | Action::Repeat(n)
            | Action::Leave(n)
            | Action::Extend(n, _)
            | Action::Release(n)
            | Action::Undo(n, _) => {
                let clock = world.store.clock;
                let request = world.callers[usize::from(n)].step(self, action, clock);
                world.requests.extend(request);
            }
        }
        world.forget_what_has_no_effect();
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no two holders believe at once", |rules, world: &World| {
                let believing = world.callers.iter().filter(|c| c.believes(rules));
                believing.count() < 2
            }),
            Property::always("the fence grows with every grant", |_, world: &World| {
                !world.store.fence_went_back
            }),
            Property::always(
                "an acquire whose answer was lost is undone",
                |_, world: &World| {
                    let held = world.store.live_id();
                    !world
                        .callers
                        .iter()
                        .any(|c| held.is_some_and(|id| c.has_ended(id)))
                },
            ),
            Property::sometimes(
                "a lock passes from one holder to another",
                |rules, world: &World| {
                    world.store.fence > 1 && world.callers.iter().any(|c| c.believes(rules))
                },
            ),
            Property::sometimes("an undoing ends", |_, world: &World| {
                world.callers.iter().any(Caller::has_undone)
            }),
        ]
    }
}
