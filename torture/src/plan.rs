//! The faults of a round and their times. The seed decides all of it: the same seed, store and number of seconds make the same plan.

use std::fmt;

use crate::random::Random;
use crate::store::Kind;

/// The workers of a round: the language of each.
pub const SLOTS: [Language; 5] = [
    Language::Rust,
    Language::Rust,
    Language::C,
    Language::Go,
    Language::Rust,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Rust,
    C,
    Go,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// SIGKILL of a worker, and another in its place.
    WorkerKilled,
    /// SIGSTOP of a worker, and SIGCONT later.
    WorkerPaused,
    /// SIGKILL of the server, and a start later.
    ServerKilled,
    /// SIGSTOP of the server, and SIGCONT later.
    ServerStopped,
    /// Another process has SQLite's file locked.
    FileLocked,
    /// Every connection is reset.
    Reset,
    /// Nothing passes, and nothing is closed.
    HalfOpen,
    /// Requests arrive, and the connection is closed in place of the answer.
    AnswersCut,
    /// Requests arrive, and the connection is closed in the middle of the answer.
    AnswersTorn,
    /// Requests arrive, and answers do not. Nothing is closed.
    AnswersLost,
    /// Answers come a byte at a time.
    Trickle,
    /// Requests and answers are kept, and delivered later.
    Delayed,
    /// Requests on the connections of now are kept, and delivered after what later connections send.
    RequestsDelayed,
    /// New connections are closed at once, and old ones at the next word.
    Refused,
    /// PgBouncer is killed, and started later.
    PoolerKilled,
    /// Redis forgets its scripts.
    ScriptsFlushed,
    /// The server ends every session.
    SessionsEnded,
    /// The server cancels every query.
    QueriesCancelled,
    /// The workers' wall clock jumps by hours.
    ClockStepped,
}

impl Fault {
    /// Every fault, for a reader.
    pub const TEXTS: [(Self, &str); 19] = [
        (Self::WorkerKilled, "worker killed (SIGKILL)"),
        (Self::WorkerPaused, "worker stopped and continued (SIGSTOP)"),
        (Self::ServerKilled, "server killed and started again"),
        (Self::ServerStopped, "server stopped and continued"),
        (Self::Reset, "all connections reset"),
        (Self::HalfOpen, "connections half-open"),
        (
            Self::AnswersCut,
            "connections closed in place of the answer",
        ),
        (
            Self::AnswersTorn,
            "connections closed in the middle of the answer",
        ),
        (Self::AnswersLost, "answers lost, connections open"),
        (Self::Refused, "connections refused"),
        (Self::Trickle, "answers a byte at a time"),
        (Self::Delayed, "requests and answers delayed"),
        (Self::RequestsDelayed, "requests overtaken by later ones"),
        (Self::SessionsEnded, "all sessions ended by the server"),
        (
            Self::QueriesCancelled,
            "all queries cancelled by the server",
        ),
        (Self::PoolerKilled, "PgBouncer killed and started again"),
        (Self::ScriptsFlushed, "scripts flushed"),
        (Self::FileLocked, "file locked by another process"),
        (
            Self::ClockStepped,
            "wall clock of the workers stepped by hours",
        ),
    ];

    /// Whether it ends connections that are in use.
    pub fn is_cut(self) -> bool {
        matches!(
            self,
            Self::Reset
                | Self::HalfOpen
                | Self::AnswersCut
                | Self::AnswersTorn
                | Self::AnswersLost
                | Self::Refused
                | Self::SessionsEnded
                | Self::PoolerKilled
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Milliseconds after the begin of the round.
    pub at: u64,
    pub fault: Fault,
    /// How long it lasts; for a step of the clock, to how many hours from now (100 is none).
    pub ms: u64,
}

/// Each lane is done in order, all lanes at once.
pub struct Plan {
    pub server: Vec<Step>,
    pub network: Vec<Step>,
    pub store: Vec<Step>,
    pub workers: Vec<Vec<Step>>,
}

/// The last fault of a round begins so long before its end, and all are over when the workers stop.
const CALM: u64 = 3_000;

impl Plan {
    pub fn new(kind: Kind, seed: u64, round_ms: u64) -> Self {
        use Fault::*;
        let mut random = Random::new(seed);
        let end = round_ms.saturating_sub(CALM);
        let lane = |gaps: (u64, u64), choice: &[(Fault, u64, u64)], random: &mut Random| {
            let mut steps = Vec::new();
            let mut at = random.between(gaps.0 / 2, gaps.1);
            // Like cards: each comes before one comes again, so that a short round has them all.
            let mut deck = Vec::new();
            while at < end && !choice.is_empty() {
                if deck.is_empty() {
                    deck.extend_from_slice(choice);
                }
                let card = random.next() % deck.len() as u64;
                let (fault, from, to) = deck.swap_remove(card as usize);
                let ms = random.between(from, to);
                steps.push(Step { at, fault, ms });
                at += random.between(gaps.0, gaps.1);
                if fault != ClockStepped {
                    at += ms;
                }
            }
            steps
        };
        let server: &[_] = match kind {
            Kind::Sqlite => &[(FileLocked, 50, 2_500)],
            _ => &[
                (ServerKilled, 0, 1_000),
                (ServerStopped, 100, 2_500),
                (ServerKilled, 0, 100),
            ],
        };
        let network: &[_] = match kind {
            Kind::Sqlite => &[],
            _ => &[
                (Reset, 0, 0),
                (HalfOpen, 100, 2_000),
                (HalfOpen, 100, 300),
                (AnswersCut, 20, 1_200),
                (AnswersTorn, 20, 300),
                (AnswersLost, 20, 1_200),
                (Reset, 0, 0),
                (Trickle, 100, 600),
                (Delayed, 50, 1_000),
                (RequestsDelayed, 50, 800),
                (Refused, 20, 1_200),
            ],
        };
        let store: &[_] = match kind {
            Kind::Sqlite => &[(ClockStepped, 76, 124)],
            Kind::Redis => &[
                (ClockStepped, 76, 124),
                (ScriptsFlushed, 0, 0),
                (SessionsEnded, 0, 0),
            ],
            Kind::Postgres => &[
                (ClockStepped, 76, 124),
                (SessionsEnded, 0, 0),
                (QueriesCancelled, 0, 0),
                (PoolerKilled, 0, 1_000),
            ],
        };
        let worker: &[_] = &[
            (WorkerKilled, 0, 0),
            (WorkerKilled, 0, 0),
            (WorkerPaused, 50, 400),
            (WorkerPaused, 400, 2_500),
            (WorkerPaused, 1_200, 2_500),
        ];
        Self {
            server: lane((1_000, 2_500), server, &mut random),
            network: lane((80, 300), network, &mut random),
            store: lane((300, 1_200), store, &mut random),
            workers: SLOTS
                .iter()
                .map(|_| lane((600, 2_500), worker, &mut random))
                .collect(),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = [
            ("server", &self.server),
            ("network", &self.network),
            ("store", &self.store),
        ];
        let fixed = fixed.map(|(name, steps)| (name.to_owned(), steps));
        let workers = self.workers.iter().zip(SLOTS).enumerate();
        let workers = workers.map(|(n, (steps, language))| (format!("{language:?} {n}"), steps));
        for (name, steps) in fixed.into_iter().chain(workers) {
            for step in steps {
                let Step { at, fault, ms } = step;
                writeln!(f, "{name:10} {at:6} ms  {fault:?} {ms}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_plan_and_another_makes_another() {
        for kind in [Kind::Redis, Kind::Postgres, Kind::Sqlite] {
            let plan = |seed| Plan::new(kind, seed, 30_000).to_string();
            assert_eq!(plan(7), plan(7));
            assert_ne!(plan(7), plan(8));
            assert!(plan(7).lines().count() > 20);
        }
    }
}
