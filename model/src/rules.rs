//! How large a model is, and which rule of the protocol it leaves out.

/// All times of the model are ticks.
pub type Tick = u8;

/// The lease of an acquire and of a long extend.
pub const LONG: Tick = 4;
/// The lease of a short extend.
pub const SHORT: Tick = 2;
/// What a holder takes off its lease for clocks that drift.
pub const MARGIN: Tick = 1;
/// How long a call may take.
pub const CALL: Tick = 2;

/// The bounds of a model. Within them every state is visited.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Where the store's clock stops.
    pub ticks: u8,
    /// The callers that want the key.
    pub callers: &'static [Wants],
    /// How many ticks a caller's clock may fall behind the store's.
    pub drift: Tick,
    /// How often the store crashes and restarts.
    pub crashes: u8,
    /// Which requests the store meets in two steps, a look without locks and the change under locks, as a database does.
    pub two_steps: TwoSteps,
    /// What is wrong with the protocol, if anything.
    pub mistake: Option<Mistake>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            ticks: 5,
            callers: &[Wants::ONE_LOCK, Wants::ONE_LOCK],
            drift: 0,
            crashes: 0,
            two_steps: TwoSteps::Never,
            mistake: None,
        }
    }
}

/// Which requests the store meets in two steps. Other requests may come between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TwoSteps {
    /// None of them, as in Redis.
    Never,
    /// Extends. The other requests look at one row and no more, so that their two steps say less and have many more states.
    Extends,
    /// All of them.
    Always,
}

/// What one caller does at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wants {
    /// How many locks it asks for, one after the other.
    pub locks: u8,
    /// How often it repeats an acquire that was not answered.
    pub repeats: u8,
    /// How often it extends.
    pub extends: u8,
}

impl Wants {
    /// One lock, neither repeated nor extended.
    pub const ONE_LOCK: Self = Self {
        locks: 1,
        repeats: 0,
        extends: 0,
    };
}

/// One rule of the protocol that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The store reads its clock before it has the lock on the row, as the reference does.
    ClockBeforeTheLock,
    /// An extend looks for the lock by its id, and changes what it finds under the key later, as in the reference.
    NoSecondLook,
    /// An extend carries no time after which the store refuses it.
    LateExtend,
    /// An acquire carries no such time.
    LateAcquire,
    /// A holder counts on the longer lease until an extend that shortens it is answered.
    ShortExtendInFlight,
    /// The undoing ends with the first answer, although the acquire may still be on its way.
    UndoLooksOnce,
    /// A caller does not undo an acquire that it gave up.
    NoUndo,
    /// A holder counts its lease from the answer, not from the request.
    CountsFromTheAnswer,
    /// A holder counts the lease of a repeated acquire from the last request, not from the first.
    CountsFromTheRepeat,
    /// A holder takes no margin off its lease.
    NoMargin,
    /// A release does not compare the id of the lock.
    ReleasesAnyLock,
    /// A restart loses what the store had answered.
    ForgetsAnswers,
}
