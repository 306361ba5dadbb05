//! Judges the evidence of a round, promise by promise.

mod calls;
mod holding;
mod leavings;

use std::collections::HashMap;

use crate::plan::Fault;
use crate::record::{REMOVED, Record, kind};
use crate::round::{Evidence, Life};

/// How the figures of several rounds, or runs, become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    Largest,
    Smallest,
    Sum,
}

impl Merge {
    pub fn of(self, old: f64, new: f64) -> f64 {
        match self {
            Self::Largest => old.max(new),
            Self::Smallest => old.min(new),
            Self::Sum => old + new,
        }
    }
}

/// What a promise says, what is counted, and what its figure means.
pub struct Promise {
    pub text: &'static str,
    pub counted: &'static str,
    pub figure: &'static str,
    pub merge: Merge,
}

const fn promise(
    text: &'static str,
    counted: &'static str,
    figure: &'static str,
    merge: Merge,
) -> Promise {
    Promise {
        text,
        counted,
        figure,
        merge,
    }
}

pub const PROMISES: [Promise; 13] = [
    promise(
        "no two holders believe at once",
        "beliefs",
        "ms from a belief that ran out to the next, at least",
        Merge::Smallest,
    ),
    promise(
        "the fence of a key grows with every grant",
        "grants",
        "",
        Merge::Largest,
    ),
    promise(
        "a resource that checks fences accepts no write of a former holder",
        "writes",
        "writes of former holders refused",
        Merge::Sum,
    ),
    promise(
        "every call ends by its bound + 100 ms",
        "calls",
        "ms after its bound came the worst",
        Merge::Largest,
    ),
    promise(
        "a cancel ends a call within 100 ms",
        "calls cancelled in flight",
        "ms after its cancel came the worst",
        Merge::Largest,
    ),
    promise(
        "a loss is told before the lease ends, and at the first look after a pause",
        "losses",
        "ms before the end of the lease was the latest callback",
        Merge::Smallest,
    ),
    promise(
        "a dead holder's key is free by TTL + the store's tolerance + 1 s, and not before its lease ends",
        "keys of dead holders",
        "ms after the TTL was the last free",
        Merge::Largest,
    ),
    promise(
        "an acquire whose answer was lost is undone",
        "acquires cancelled or cut off",
        "left to their TTL because the request was delayed, or a crash undid the release",
        Merge::Sum,
    ),
    promise(
        "a release removes its own lock and no other",
        "releases",
        "",
        Merge::Largest,
    ),
    promise(
        "callbacks come once, never after a release returned",
        "callbacks",
        "",
        Merge::Largest,
    ),
    promise(
        "nothing is left: threads, descriptors, memory, locks",
        "workers that ended",
        "bytes of memory more per hold in the worst worker",
        Merge::Largest,
    ),
    promise(
        "a forked child harms no other process",
        "forks",
        "",
        Merge::Largest,
    ),
    promise(
        "no secret in any output",
        "outputs searched",
        "lock ids that none of them had",
        Merge::Sum,
    ),
];

/// What was found about one promise.
#[derive(Clone, Default)]
pub struct Finding {
    pub count: u64,
    pub worst: Option<f64>,
    /// What had the worst figure, where that is one thing.
    pub by: String,
    pub violations: Vec<String>,
    /// How often something would be a violation if nothing were taken off for what the machine or a fault took.
    pub excused: u64,
    /// The most that was taken off in such a case, in milliseconds.
    pub taken_off: f64,
}

/// All promises, and how often what was done.
#[derive(Clone)]
pub struct Verdict {
    pub findings: Vec<Finding>,
    pub faults: HashMap<Fault, u64>,
    pub contended: u64,
    /// Acquires that failed and said that they may have been applied.
    pub unknown: u64,
}

impl Verdict {
    pub fn new() -> Self {
        Self {
            findings: vec![Finding::default(); PROMISES.len()],
            faults: HashMap::new(),
            contended: 0,
            unknown: 0,
        }
    }

    fn finding(&mut self, promise: usize) -> &mut Finding {
        &mut self.findings[promise - 1]
    }

    fn count(&mut self, promise: usize) {
        self.finding(promise).count += 1;
    }

    fn figure(&mut self, promise: usize, value: f64) {
        let merge = PROMISES[promise - 1].merge;
        let finding = self.finding(promise);
        finding.worst = Some(finding.worst.map_or(value, |old| merge.of(old, value)));
    }

    /// A figure, and what had it.
    fn figure_of(&mut self, promise: usize, value: f64, by: impl FnOnce() -> String) {
        let before = self.finding(promise).worst;
        self.figure(promise, value);
        let finding = self.finding(promise);
        if finding.worst != before {
            finding.by = by();
        }
    }

    fn violation(&mut self, promise: usize, text: String) {
        self.finding(promise).violations.push(text);
    }

    /// What would be a violation without what the machine or a fault took.
    fn excuse(&mut self, promise: usize, taken_ns: i64) {
        let finding = self.finding(promise);
        finding.excused += 1;
        finding.taken_off = finding.taken_off.max(ms(taken_ns));
    }

    pub fn violations(&self) -> usize {
        self.findings.iter().map(|f| f.violations.len()).sum()
    }
}

/// Milliseconds, for a reader.
fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// A look that said held.
#[derive(Clone, Copy)]
struct Look {
    at: i64,
    /// Until when the holder believed.
    until: i64,
    /// When the lease ends on the store's clock; 0 if that is not known.
    expires_ms: i64,
}

/// A callback of a loss.
#[derive(Clone, Copy)]
struct Told {
    at: i64,
    why: i64,
    /// How long its thread was ready before, and did not run.
    waited: i64,
}

impl Told {
    fn new(record: &Record) -> Self {
        Self {
            at: record.at,
            why: record.a,
            waited: record.c,
        }
    }
}

/// A lock that a worker held, put together from its records.
struct Hold<'a> {
    life: &'a Life,
    grant: Record,
    is_bare: bool,
    /// Looks that said held.
    looks: Vec<Look>,
    /// When the lease ended on the store's clock by the first look that said lost, or by the last word before a release, and when
    /// that was.
    last_expiry: Option<(i64, i64)>,
    lost: Option<(i64, i64)>,
    releasing: Option<i64>,
    released: Option<(i64, i64)>,
    ended: Option<i64>,
    told: Vec<Told>,
    /// In Go, when the channel of the guard said that it is lost.
    done: Option<i64>,
    absent: Vec<(i64, i64)>,
    again: Vec<i64>,
}

impl Hold<'_> {
    /// Until when the holder believed at the latest, by its clock alone.
    fn deadline(&self) -> i64 {
        let looks = self.looks.iter().map(|look| look.until);
        looks.fold(self.grant.c, i64::max)
    }

    /// What the holder believed at this time.
    fn deadline_at(&self, at: i64) -> i64 {
        let looks = self.looks.iter().filter(|look| look.at <= at);
        looks.map(|look| look.until).fold(self.grant.c, i64::max)
    }

    /// When the belief ended: by the clock, by a look, or because the holder gave the lock back.
    fn end(&self) -> i64 {
        let end = self.deadline();
        let end = self.lost.map_or(end, |(at, _)| end.min(at));
        self.releasing.map_or(end, |at| end.min(at))
    }

    /// Whether the store had forgotten the lock before its holder, which counted on it, gave it back.
    fn was_taken_away(&self) -> bool {
        let removed = |told: &Told| told.why == REMOVED && told.at < self.deadline_at(told.at);
        let absent = |(began, at): &(i64, i64)| *at < self.deadline_at(*began);
        let gone = match (self.releasing, self.released) {
            (Some(began), Some((at, 1))) => at < self.deadline_at(began) && self.lost.is_none(),
            _ => false,
        };
        gone || self.told.iter().any(removed) || self.absent.iter().any(absent)
    }

    fn name(&self) -> String {
        let Life {
            language,
            slot,
            incarnation,
            ..
        } = self.life;
        format!(
            "{language:?} worker {slot} (start {incarnation}), key {}, fence {}, hold {}",
            self.grant.key, self.grant.b, self.grant.id
        )
    }
}

fn holds(evidence: &Evidence) -> Vec<Hold<'_>> {
    let mut all = Vec::new();
    for life in &evidence.lives {
        let mut by_id: HashMap<i64, Hold<'_>> = HashMap::new();
        let mut early: HashMap<i64, Vec<Told>> = HashMap::new();
        for record in &life.records {
            if matches!(record.kind, kind::GRANT | kind::GRANT_BARE) {
                let told = early.remove(&record.id).unwrap_or_default();
                by_id.insert(
                    record.id,
                    Hold {
                        life,
                        grant: *record,
                        is_bare: record.kind == kind::GRANT_BARE,
                        looks: Vec::new(),
                        last_expiry: None,
                        lost: None,
                        releasing: None,
                        released: None,
                        ended: None,
                        told,
                        done: None,
                        absent: Vec::new(),
                        again: Vec::new(),
                    },
                );
                continue;
            }
            let Some(hold) = by_id.get_mut(&record.id) else {
                // A callback may come before the caller has written its grant down.
                if record.kind == kind::TOLD {
                    let told = early.entry(record.id).or_default();
                    told.push(Told::new(record));
                }
                continue;
            };
            note(hold, record);
        }
        all.extend(by_id.into_values());
    }
    all.sort_by_key(|hold| hold.grant.at);
    all
}

fn note(hold: &mut Hold<'_>, record: &Record) {
    match record.kind {
        kind::HELD => hold.looks.push(Look {
            at: record.at,
            until: record.c,
            expires_ms: record.d,
        }),
        kind::LOST => {
            hold.lost = hold.lost.or(Some((record.at, record.a)));
            hold.last_expiry = hold.last_expiry.or(Some((record.at, record.d)));
        }
        kind::RELEASING => {
            hold.releasing = Some(record.at);
            hold.last_expiry = hold.last_expiry.or(Some((record.at, record.d)));
        }
        kind::RELEASED => hold.released = Some((record.at, record.a)),
        kind::ENDED => hold.ended = Some(record.at),
        kind::TOLD => hold.told.push(Told::new(record)),
        kind::DONE => hold.done = Some(record.at),
        kind::ABSENT => hold.absent.push((record.a, record.at)),
        kind::AGAIN => hold.again.push(record.a),
        _ => {}
    }
}

/// How much of this time is covered by the spans, which may overlap.
fn overlap(spans: impl Iterator<Item = (i64, i64)>, from: i64, to: i64) -> i64 {
    let mut inside: Vec<(i64, i64)> = spans
        .map(|(begin, end)| (begin.max(from), end.min(to)))
        .filter(|(begin, end)| begin < end)
        .collect();
    inside.sort_unstable();
    let (mut sum, mut reached) = (0, from);
    for (begin, end) in inside {
        sum += (end - begin.max(reached)).max(0);
        reached = reached.max(end);
    }
    sum
}

/// When this worker was stopped.
fn pauses_of<'a>(evidence: &'a Evidence, life: &'a Life) -> impl Iterator<Item = (i64, i64)> + 'a {
    let paused = evidence
        .faults
        .iter()
        .filter(|f| f.fault == Fault::WorkerPaused && f.incarnation == Some(life.incarnation));
    paused.map(|f| (f.from, f.over))
}

/// When the timer of the library waited for a processor, and when the worker did not run at all.
fn late_timers_of<'a>(
    evidence: &'a Evidence,
    life: &'a Life,
) -> impl Iterator<Item = (i64, i64)> + 'a {
    let timer = life.records.iter().filter(|r| r.kind == kind::TIMER);
    timer.map(|r| (r.a, r.at)).chain(stalls_of(evidence, life))
}

/// When this worker did not run: pauses, and what it noticed itself.
fn stalls_of<'a>(evidence: &'a Evidence, life: &'a Life) -> impl Iterator<Item = (i64, i64)> + 'a {
    let own = life.records.iter().filter(|r| r.kind == kind::STALL);
    own.map(|r| (r.a, r.at)).chain(pauses_of(evidence, life))
}

/// What the rounds of a run hand on: the largest fence of each key.
#[derive(Default)]
pub struct Before {
    fences: HashMap<i64, i64>,
}

pub fn judge(evidence: &Evidence, before: &mut Before, verdict: &mut Verdict) {
    for happened in &evidence.faults {
        if happened.to > 0 {
            *verdict.faults.entry(happened.fault).or_default() += 1;
        }
    }
    let holds = holds(evidence);
    holding::beliefs(evidence, &holds, verdict);
    holding::fences(&holds, before, verdict);
    holding::writes(evidence, &holds, verdict);
    holding::losses(evidence, &holds, verdict);
    holding::takeovers(evidence, verdict);
    holding::releases(&holds, verdict);
    holding::callbacks(evidence, &holds, verdict);
    calls::bounds(evidence, verdict);
    leavings::unknown_acquires(evidence, verdict);
    leavings::left(evidence, verdict);
    leavings::memory(evidence, verdict);
    leavings::forks(evidence, &holds, verdict);
    leavings::secrets(evidence, verdict);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MS;
    use crate::gate::Arrived;
    use crate::plan::Language;
    use crate::round::{Happened, Takeover};
    use crate::store::{Kind, Way};

    /// Times in these tests are milliseconds.
    fn record(kind: i64, id: i64, at: i64, a: i64, b: i64, c: i64, d: i64) -> Record {
        Record {
            kind,
            id,
            key: 1,
            at: at * MS,
            a,
            b,
            c,
            d,
        }
    }

    /// A grant with a lease of a second that was asked for 10 ms earlier.
    fn grant(id: i64, at: i64, fence: i64) -> Record {
        let asked = at - 10;
        let until = (asked + 988) * MS;
        record(kind::GRANT, id, at, asked * MS, fence, until, 1000 * MS)
    }

    fn end(id: i64, at: i64) -> [Record; 3] {
        [
            record(kind::RELEASING, id, at, 0, 0, 0, 0),
            record(kind::RELEASED, id, at + 1, 0, 0, 0, 0),
            record(kind::ENDED, id, at + 2, 0, 0, 0, 0),
        ]
    }

    fn life(incarnation: i64, records: Vec<Record>) -> Life {
        Life {
            incarnation,
            slot: 0,
            language: Language::Rust,
            way: Way::Direct,
            records,
            trouble: None,
        }
    }

    /// A worker that held a key, and another that held it afterwards. All is well.
    fn sound() -> Evidence {
        let first = [vec![grant(1, 5_000, 1)], end(1, 5_200).to_vec()].concat();
        let second = [vec![grant(2, 5_300, 2)], end(2, 5_500).to_vec()].concat();
        let write = |at: i64, hold: i64| Arrived {
            at: at * MS,
            key: 1,
            hold,
            accepted: true,
        };
        let exit = |at| record(kind::EXIT, 0, at, 0, 0, 0, 0);
        Evidence {
            kind: Kind::Redis,
            lives: vec![
                life(1, [first, vec![exit(9_000)]].concat()),
                life(2, [second, vec![exit(9_000)]].concat()),
            ],
            faults: Vec::new(),
            writes: vec![write(5_100, 1), write(5_400, 2)],
            takeovers: Vec::new(),
            held: Vec::new(),
            secrets: Vec::new(),
            lock_ids: 0,
            stalls: Vec::new(),
        }
    }

    /// The promises of which violations are found.
    fn broken(evidence: &Evidence) -> Vec<usize> {
        let mut verdict = Verdict::new();
        judge(evidence, &mut Before::default(), &mut verdict);
        let findings = verdict.findings.iter().enumerate();
        let broken = findings.filter(|(_, finding)| !finding.violations.is_empty());
        broken.map(|(n, _)| n + 1).collect()
    }

    fn pause(from: i64, to: i64) -> Happened {
        Happened {
            fault: Fault::WorkerPaused,
            incarnation: Some(1),
            from: from * MS,
            to: to * MS,
            over: to * MS,
        }
    }

    fn late_call(cancelled: i64) -> Record {
        record(
            kind::CALL,
            1,
            6_500,
            6_000 * MS,
            300 * MS,
            cancelled * MS,
            0,
        )
    }

    type Crime = fn(&mut Evidence);

    #[test]
    fn every_promise_that_is_broken_is_named_and_no_other() {
        assert_eq!(broken(&sound()), [0; 0]);
        let crimes: [(usize, Crime); 16] = [
            (1, |e| e.lives[1].records[0] = grant(2, 5_150, 2)),
            (2, |e| e.lives[1].records[0].b = 1),
            (3, |e| e.writes.swap(0, 1)),
            (3, |e| e.writes[0].accepted = false),
            (4, |e| e.lives[0].records.push(late_call(0))),
            (5, |e| e.lives[0].records.push(late_call(6_100))),
            (6, |e| {
                e.faults.push(pause(5_050, 6_200));
                e.lives[0].records.truncate(1);
                let until = 7_000 * MS;
                let look = record(kind::HELD, 1, 6_210, 0, 1, until, 0);
                e.lives[0].records.push(look);
                e.lives.remove(1);
                e.writes.clear();
            }),
            (7, |e| {
                e.takeovers.push(Takeover {
                    key: 5,
                    killed: 5_000 * MS,
                    ttl: 1_000 * MS,
                    free: 7_100 * MS,
                    look: 0,
                });
            }),
            (7, |e| {
                // The first is killed in its hold, and the second is granted the lock at once.
                e.lives[0].records.truncate(1);
                let mut killed = pause(5_100, 5_100);
                killed.fault = Fault::WorkerKilled;
                e.faults.push(killed);
            }),
            (8, |e| {
                let mut unknown = record(kind::UNKNOWN, 0, 6_000, 5_900 * MS, 1, 0, 0);
                unknown.key = 2_000_000;
                e.lives[0].records.push(unknown);
                e.held.push(2_000_000);
            }),
            (9, |e| e.lives[0].records[2].a = 1),
            (9, |e| {
                e.lives[0]
                    .records
                    .push(record(kind::AGAIN, 1, 5_600, 0, 0, 0, 0));
            }),
            (10, |e| {
                e.lives[0]
                    .records
                    .push(record(kind::TOLD, 1, 5_210, 3, 0, 0, 0));
            }),
            (11, |e| {
                e.lives[0]
                    .records
                    .push(record(kind::LEFT, 0, 9_000, 1, 0, 0, 0));
            }),
            (12, |e| {
                e.lives[0]
                    .records
                    .push(record(kind::FORKED, 0, 5_100, 1, 0, 0, 0));
            }),
            (13, |e| e.secrets.push("a password".to_owned())),
        ];
        for (n, (promise, crime)) in crimes.iter().enumerate() {
            let mut evidence = sound();
            crime(&mut evidence);
            assert_eq!(broken(&evidence), [*promise], "number {n}");
        }
    }

    fn look(at: i64, until: i64, expires_ms: i64) -> Record {
        record(kind::HELD, 1, at, 0, 1, until * MS, expires_ms)
    }

    /// The first holder's lease ends at 5 990; it believes until 5 978, and is called when the crime says so.
    fn called_late(told: i64, waited: i64) -> Evidence {
        let mut evidence = sound();
        evidence.lives[0].records.truncate(1);
        let mut told = record(kind::TOLD, 1, told, 1, 0, waited * MS, 0);
        told.key = 1;
        let lost = record(kind::LOST, 1, 6_070, 1, 1, 0, 77);
        evidence.lives[0]
            .records
            .extend([look(5_100, 5_978, 77), told, lost]);
        evidence.lives.remove(1);
        evidence.writes.clear();
        evidence
    }

    #[test]
    fn a_callback_after_the_lease_is_late_unless_the_machine_explains_it() {
        assert_eq!(broken(&called_late(5_985, 0)), [0; 0]);
        assert_eq!(broken(&called_late(6_050, 0)), [6]);
        // A renewal that no look has seen moves the end of the lease.
        let mut renewed = called_late(6_050, 0);
        renewed.lives[0].records[1].d = 76;
        assert_eq!(broken(&renewed), [0; 0]);
        assert_eq!(broken(&called_late(6_050, 54)), [6]);
        assert_eq!(broken(&called_late(6_050, 56)), [0; 0]);
        for what in [kind::STALL, kind::TIMER] {
            for (to, promises) in [(6_033, &[6][..]), (6_045, &[])] {
                let mut stalled = called_late(6_050, 0);
                let stall = record(what, 0, to, 5_980 * MS, 0, 0, 0);
                stalled.lives[0].records.push(stall);
                assert_eq!(broken(&stalled), promises);
            }
        }
        let mut silent = called_late(6_050, 0);
        silent.lives[0].records.remove(2);
        assert_eq!(broken(&silent), [0; 0]);
        silent.lives[0].records[2].at = 6_150 * MS;
        assert_eq!(broken(&silent), [6]);
    }

    /// In these times no answer comes, so that the lease ends and a look must say so.
    #[test]
    fn a_holder_that_no_answer_can_reach_must_be_told() {
        use Fault::*;
        for (fault, way, isolates) in [
            (ServerKilled, Way::Direct, true),
            (FileLocked, Way::Direct, true),
            (Refused, Way::Proxied, true),
            (AnswersCut, Way::Proxied, true),
            (Refused, Way::Pooled, false),
            (PoolerKilled, Way::Pooled, true),
            (PoolerKilled, Way::Proxied, false),
            (SessionsEnded, Way::Proxied, false),
        ] {
            let mut evidence = sound();
            evidence.lives.remove(1);
            evidence.writes.clear();
            evidence.lives[0].way = way;
            evidence.lives[0].records.truncate(1);
            evidence.lives[0].records.push(look(6_900, 7_400, 1));
            let mut happened = pause(5_100, 7_000);
            (happened.fault, happened.incarnation) = (fault, None);
            evidence.faults.push(happened);
            let promises: &[usize] = if isolates { &[6] } else { &[] };
            assert_eq!(broken(&evidence), promises, "{fault:?} {way:?}");
        }
    }

    #[test]
    fn an_undo_is_forgotten_only_by_a_postgres_that_is_killed_soon_after() {
        let cases = [
            (Kind::Postgres, 5_100, &[][..]),
            (Kind::Postgres, 6_500, &[8]),
            (Kind::Postgres, 4_900, &[8]),
            (Kind::Redis, 5_100, &[8]),
        ];
        for (store, killed, promises) in cases {
            let mut evidence = sound();
            let mut unknown = record(kind::UNKNOWN, 0, 5_000, 4_990 * MS, 1, 0, 0);
            unknown.key = 2_000_000;
            evidence.lives[0].records.push(unknown);
            (evidence.kind, evidence.held) = (store, vec![2_000_000]);
            let mut happened = pause(killed, killed + 100);
            (happened.fault, happened.incarnation) = (Fault::ServerKilled, None);
            evidence.faults.push(happened);
            assert_eq!(broken(&evidence), promises, "{store:?} {killed}");
        }
    }

    #[test]
    fn a_callback_after_the_release_is_excused_only_by_a_stall_as_long_as_a_release_waits() {
        for (stall, promises) in [(700, &[10][..]), (760, &[])] {
            let mut evidence = sound();
            evidence.lives.remove(1);
            evidence.writes.truncate(1);
            let records = &mut evidence.lives[0].records;
            records[3].at = 6_300 * MS;
            records.push(record(kind::TOLD, 1, 6_310, 3, 0, 0, 0));
            records.push(record(kind::STALL, 0, 5_300 + stall, 5_300 * MS, 0, 0, 0));
            assert_eq!(broken(&evidence), promises, "{stall}");
        }
    }

    #[test]
    fn memory_that_every_hold_leaves_is_found_and_a_single_jump_is_not() {
        let worker = |kb: fn(i64) -> i64| {
            let mut evidence = sound();
            evidence.lives[0].records.extend(
                (0..40).map(|n| record(kind::MEMORY, 0, 5_000 + n * 250, kb(n), n * 300, 0, 0)),
            );
            broken(&evidence)
        };
        assert_eq!(worker(|_| 9_000), [0; 0]);
        assert_eq!(worker(|n| 9_000 + n * 300), [11]);
        assert_eq!(worker(|n| if n < 30 { 9_000 } else { 30_000 }), [0; 0]);
    }

    /// Only what a thread waited for a processor after its call was due is taken off, and it is told how much that was.
    #[test]
    fn what_is_taken_off_is_told() {
        let mut evidence = sound();
        let mut call = late_call(0);
        call.d = 5_000 * MS;
        evidence.lives[0].records.push(call);
        let mut verdict = Verdict::new();
        judge(&evidence, &mut Before::default(), &mut verdict);
        let calls = &verdict.findings[3];
        assert!(calls.violations.is_empty());
        assert_eq!((calls.excused, calls.taken_off), (1, 200.0));
    }

    /// Bytes that a half-open connection swallows never arrive: they delay nothing.
    #[test]
    fn only_what_delays_requests_excuses_a_lock_that_was_not_undone() {
        for (fault, promises) in [(Fault::HalfOpen, &[8][..]), (Fault::Delayed, &[])] {
            let mut evidence = sound();
            let mut unknown = record(kind::UNKNOWN, 0, 6_000, 5_900 * MS, 1, 0, 0);
            unknown.key = 2_000_000;
            evidence.lives[0].records.push(unknown);
            evidence.lives[0].way = Way::Proxied;
            evidence.held.push(2_000_000);
            let mut happened = pause(5_950, 6_100);
            (happened.fault, happened.incarnation) = (fault, None);
            evidence.faults.push(happened);
            assert_eq!(broken(&evidence), promises, "{fault:?}");
        }
    }

    #[test]
    fn a_lock_that_is_gone_after_a_fork_is_the_childs_doing() {
        let mut evidence = sound();
        let forked = record(kind::FORKED, 1, 5_050, 0, 0, 0, 0);
        evidence.lives[0].records.push(forked);
        assert_eq!(broken(&evidence), [0; 0]);
        evidence.lives[0].records[2].a = 1;
        assert_eq!(broken(&evidence), [9, 12]);
    }

    /// A call is not late by the time in which its process did not run.
    #[test]
    fn a_pause_is_taken_off_a_late_call() {
        let mut evidence = sound();
        evidence.lives[0].records.push(late_call(0));
        assert_eq!(broken(&evidence), [4]);
        evidence.faults.push(pause(6_050, 6_250));
        assert_eq!(broken(&evidence), [0; 0]);
    }

    #[test]
    fn overlapping_spans_are_counted_once() {
        let spans = [(0, 10), (5, 20), (30, 40), (35, 36)];
        assert_eq!(overlap(spans.into_iter(), 8, 38), 20);
        assert_eq!(overlap(spans.into_iter(), 20, 30), 0);
    }
}
