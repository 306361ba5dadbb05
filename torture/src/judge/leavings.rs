//! Promises 8, 11, 12 and 13: what is left behind, in the store, in the process, by a child, and in outputs.

use std::collections::{HashMap, HashSet};

use super::{Hold, Verdict, overlap};
use crate::clock::MS;
use crate::plan::Fault;
use crate::record::{Record, kind};
use crate::round::{Evidence, Happened, Life};
use crate::store::{Kind, Way};
use crate::worker::OPERATION_MS;

/// What a worker's memory may grow by beside what its holds leave: pools, buffers and arenas that fill.
const VARIES_KB: f64 = 6.0 * 1024.0;
/// Fewer holds than these say nothing about one.
const HOLDS: i64 = 1_000;
/// A worker has opened its connections and started its threads by then.
const WARM: i64 = 1_000 * MS;

fn ended(life: &Life) -> bool {
    life.records.iter().any(|r| r.kind == kind::EXIT)
}

/// An acquire that arrives after its undo may hold until its TTL, as the documents say: a stopped server and a slow network delay
/// requests.
fn may_be_delayed(evidence: &Evidence, life: &Life, from: i64, to: i64) -> bool {
    let delays = evidence.faults.iter().filter(|f| match f.fault {
        Fault::ServerStopped => true,
        Fault::Delayed | Fault::RequestsDelayed => life.way == Way::Proxied,
        _ => false,
    });
    overlap(delays.map(|f| (f.from, f.over)), from, to) > 0
}

/// A release that Postgres has answered may not be on its disk for three times `wal_writer_delay`. A server that is killed by then has
/// forgotten it, and the lock is there again. No record says when the acquire was undone: by its bound, if the server was there.
fn may_be_forgotten(evidence: &Evidence, call: &Record) -> bool {
    let undone_by = call.at + OPERATION_MS as i64 * MS;
    let kills = |f: &Happened| {
        f.fault == Fault::ServerKilled && (call.at..undone_by + 600 * MS).contains(&f.from)
    };
    evidence.kind == Kind::Postgres && evidence.faults.iter().any(kills)
}

pub fn unknown_acquires(evidence: &Evidence, verdict: &mut Verdict) {
    let held: HashSet<i64> = evidence.held.iter().copied().collect();
    for life in evidence.lives.iter().filter(|life| ended(life)) {
        for call in life.records.iter().filter(|r| r.kind == kind::UNKNOWN) {
            verdict.count(8);
            if call.b > 0 {
                verdict.unknown += 1;
            }
            if !held.contains(&call.key) {
                continue;
            }
            let delayed = may_be_delayed(evidence, life, call.a, call.at);
            if delayed || may_be_forgotten(evidence, call) {
                verdict.figure(8, 1.0);
            } else {
                verdict.violation(
                    8,
                    format!(
                        "{:?} worker {} (start {}): key {} is still held; its acquire failed at {}",
                        life.language, life.slot, life.incarnation, call.key, call.at
                    ),
                );
            }
        }
    }
}

pub fn left(evidence: &Evidence, verdict: &mut Verdict) {
    for life in &evidence.lives {
        let name = format!(
            "{:?} worker {} (start {})",
            life.language, life.slot, life.incarnation
        );
        if let Some(trouble) = &life.trouble {
            verdict.violation(11, format!("{name} ended in another way: {trouble}"));
        }
        for left in life.records.iter().filter(|r| r.kind == kind::LEFT) {
            verdict.count(11);
            if left.a > 0 || left.b > 0 {
                verdict.violation(
                    11,
                    format!("{name} left {} threads and {} descriptors", left.a, left.b),
                );
            }
        }
    }
    // The keys of acquires that failed are those of promise 8.
    for key in evidence.held.iter().filter(|key| **key < 1_000_000) {
        verdict.violation(
            11,
            format!("key {key} is held after the end of all workers"),
        );
    }
}

/// By how many kilobytes the memory of a worker grows with each hold, and how many holds there were from the first sample to the last.
/// Three quarters of all pairs of samples say at least so much, which a single jump does not bring about.
fn growth(life: &Life) -> Option<(f64, i64)> {
    let samples = life.records.iter().filter(|r| r.kind == kind::MEMORY);
    let warm = samples.clone().next()?.at + WARM;
    let samples: Vec<_> = samples.filter(|r| r.at >= warm).collect();
    let mut slopes = Vec::new();
    for (n, early) in samples.iter().enumerate() {
        for late in samples[n + 1..].iter().filter(|late| late.b > early.b) {
            slopes.push((late.a - early.a) as f64 / (late.b - early.b) as f64);
        }
    }
    slopes.sort_by(f64::total_cmp);
    let slope = *slopes.get(slopes.len() / 4)?;
    Some((slope, samples.last()?.b - samples.first()?.b))
}

/// Memory that every hold leaves behind, also of workers that were killed in the end.
pub fn memory(evidence: &Evidence, verdict: &mut Verdict) {
    for life in &evidence.lives {
        let Some((kb, holds)) = growth(life) else {
            continue;
        };
        if holds < HOLDS {
            continue;
        }
        let name = || {
            format!(
                "{:?} worker {} (start {})",
                life.language, life.slot, life.incarnation
            )
        };
        verdict.figure_of(11, kb * 1024.0, name);
        if kb * holds as f64 > VARIES_KB {
            let bytes = kb * 1024.0;
            let text = format!(
                "{} grew by {bytes:.0} bytes with each of {holds} holds",
                name()
            );
            verdict.violation(11, text);
        }
    }
}

pub fn forks(evidence: &Evidence, holds: &[Hold<'_>], verdict: &mut Verdict) {
    let by_id: HashMap<i64, &Hold<'_>> = holds.iter().map(|h| (h.grant.id, h)).collect();
    for life in &evidence.lives {
        for child in life.records.iter().filter(|r| r.kind == kind::FORKED) {
            verdict.count(12);
            if let Some(hold) = by_id.get(&child.id).filter(|hold| hold.was_taken_away()) {
                let text = format!("{} was gone after the fork of a child", hold.name());
                verdict.violation(12, text);
            }
            if child.a != 0 {
                verdict.violation(
                    12,
                    format!(
                        "a child of {:?} worker {} (start {}) ended with {}, key {}",
                        life.language, life.slot, life.incarnation, child.a, child.key
                    ),
                );
            }
        }
    }
}

pub fn secrets(evidence: &Evidence, verdict: &mut Verdict) {
    verdict.finding(13).count += evidence.lives.len() as u64;
    verdict.figure(13, evidence.lock_ids as f64);
    for line in &evidence.secrets {
        verdict.violation(13, line.clone());
    }
}
