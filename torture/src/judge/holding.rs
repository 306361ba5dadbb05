//! Promises 1, 2, 3, 6, 7, 9 and 10: beliefs, fences, losses and ends.

use std::collections::{BTreeMap, HashMap};

use super::{Before, Hold, Told, Verdict, late_timers_of, ms, overlap, stalls_of};
use crate::clock::MS;
use crate::plan::{Fault, Language};
use crate::record::REMOVED;
use crate::round::{Evidence, Life};
use crate::store::Way;
use crate::worker::{LONG_KEYS, OPERATION_MS, SHORT_KEYS};

/// What a signal or a look may take until it has its effect.
const SLACK: i64 = 50 * MS;
/// What the scheduler may take from a callback, beside the time in which the process is known not to have run.
const SCHEDULED: i64 = 100 * MS;
/// In Go a goroutine is told, and its scheduler takes its time too.
const SCHEDULED_IN_GO: i64 = 250 * MS;
/// What a callback may be late although nothing was seen to keep it: page faults during a fork, interrupts and the machine below count
/// as waiting nowhere.
const UNCOUNTED: i64 = 5 * MS;

/// How long a release waits at least for a callback that runs, less what the judge's clocks may differ by.
const RELEASE_WAITS: i64 = OPERATION_MS as i64 * MS - SLACK;

fn by_key<'a, 'h>(holds: &'a [Hold<'h>]) -> BTreeMap<i64, Vec<&'a Hold<'h>>> {
    let mut keys: BTreeMap<i64, Vec<&Hold<'_>>> = BTreeMap::new();
    for hold in holds {
        keys.entry(hold.grant.key).or_default().push(hold);
    }
    keys
}

/// Whether this worker was dead or stopped at the time.
fn was_gone(evidence: &Evidence, life: &Life, at: i64) -> bool {
    evidence.faults.iter().any(|f| {
        f.incarnation == Some(life.incarnation)
            && match f.fault {
                Fault::WorkerKilled => f.from <= at,
                _ => f.from <= at && at <= f.to,
            }
    })
}

pub fn beliefs(evidence: &Evidence, holds: &[Hold<'_>], verdict: &mut Verdict) {
    for (key, holds) in by_key(holds) {
        let mut last: Option<&Hold<'_>> = None;
        for hold in holds {
            verdict.count(1);
            if key < (SHORT_KEYS + LONG_KEYS) as i64 {
                verdict.contended += 1;
            }
            let (begin, end) = (hold.grant.at, hold.end());
            if end <= begin {
                continue;
            }
            if let Some(former) = last {
                let ran_out = former.end() == former.deadline();
                if ran_out {
                    verdict.figure(1, ms(begin - former.end()));
                }
                if begin < former.end() {
                    let text = format!(
                        "{:.1} ms too early: {} believed until {}; {} was granted at {}",
                        ms(former.end() - begin),
                        former.name(),
                        former.end(),
                        hold.name(),
                        begin
                    );
                    let gone = was_gone(evidence, former.life, begin);
                    verdict.violation(if gone { 7 } else { 1 }, text);
                }
            }
            if last.is_none_or(|former| former.end() < end) {
                last = Some(hold);
            }
        }
    }
}

pub fn fences(holds: &[Hold<'_>], before: &mut Before, verdict: &mut Verdict) {
    for (key, holds) in by_key(holds) {
        let largest_before = before.fences.get(&key).copied().unwrap_or(0);
        // Grants in the order of their answers; a call that began after an answer must get more.
        let mut by_begin: Vec<&Hold<'_>> = holds.clone();
        by_begin.sort_by_key(|hold| hold.grant.a);
        let mut answered = holds.iter().peekable();
        let mut largest = largest_before;
        for hold in by_begin {
            while let Some(earlier) = answered.next_if(|other| other.grant.at < hold.grant.a) {
                largest = largest.max(earlier.grant.b);
            }
            verdict.count(2);
            if hold.grant.b <= largest {
                verdict.violation(2, format!("{} came after fence {largest}", hold.name()));
            }
        }
        let mut seen: HashMap<i64, &Hold<'_>> = HashMap::new();
        for hold in &holds {
            if let Some(other) = seen.insert(hold.grant.b, hold) {
                let text = format!("one fence twice: {} and {}", other.name(), hold.name());
                verdict.violation(2, text);
            }
        }
        let largest = holds.iter().map(|hold| hold.grant.b).max().unwrap_or(0);
        before.fences.insert(key, largest.max(largest_before));
    }
}

pub fn writes(evidence: &Evidence, holds: &[Hold<'_>], verdict: &mut Verdict) {
    let by_id: HashMap<i64, &Hold<'_>> = holds.iter().map(|h| (h.grant.id, h)).collect();
    // By key, the latest begin of a grant whose write was accepted.
    let mut newest: HashMap<i64, &Hold<'_>> = HashMap::new();
    for write in &evidence.writes {
        verdict.count(3);
        let Some(hold) = by_id.get(&write.hold).copied() else {
            continue;
        };
        if write.accepted {
            match newest.get(&write.key) {
                Some(later) if later.grant.a > hold.grant.at => verdict.violation(
                    3,
                    format!("a write of {} after one of {}", hold.name(), later.name()),
                ),
                Some(later) if later.grant.a > hold.grant.a => {}
                _ => {
                    newest.insert(write.key, hold);
                }
            }
            continue;
        }
        let holds_now = hold.releasing.is_none_or(|at| write.at < at)
            && hold.lost.is_none_or(|(at, _)| write.at < at)
            && write.at < hold.deadline_at(write.at);
        if holds_now {
            let text = format!(
                "a write of {} was refused, and it held the lock",
                hold.name()
            );
            verdict.violation(3, text);
        } else {
            verdict.figure(3, 1.0);
        }
    }
}

/// The times in which no renewal of this worker could be confirmed.
fn isolations<'a>(evidence: &'a Evidence, life: &'a Life) -> impl Iterator<Item = (i64, i64)> {
    use Fault::*;
    let faults = evidence.faults.iter().filter(|f| match f.fault {
        ServerKilled | ServerStopped | FileLocked => true,
        HalfOpen | Delayed | AnswersLost | AnswersCut | Refused => life.way == Way::Proxied,
        PoolerKilled => life.way == Way::Pooled,
        // The half that arrives may be a whole answer, and bytes that trickle arrive.
        AnswersTorn | Trickle => false,
        // A new connection works at once.
        Reset | RequestsDelayed | SessionsEnded | QueriesCancelled | ScriptsFlushed => false,
        // The holder itself, and what it does not look at.
        WorkerKilled | WorkerPaused | ClockStepped => false,
    });
    faults.map(|f| (f.from + SLACK, f.to))
}

pub fn losses(evidence: &Evidence, holds: &[Hold<'_>], verdict: &mut Verdict) {
    for hold in holds.iter().filter(|hold| !hold.is_bare) {
        if hold.lost.is_some() || !hold.told.is_empty() {
            verdict.count(6);
        }
        let ttl = hold.grant.d;
        after_pauses(evidence, hold, verdict);
        for (from, to) in isolations(evidence, hold.life) {
            // No confirmation can be younger, so the lease ends by then.
            let end = from + ttl;
            if hold.grant.at > from || end > to {
                continue;
            }
            let believed = hold.looks.iter().find(|look| (end..to).contains(&look.at));
            if let Some(at) = believed.map(|look| look.at) {
                let text = format!(
                    "{}: a look said held {:.0} ms after its lease ended, at {at}",
                    hold.name(),
                    ms(at - end)
                );
                verdict.violation(6, text);
            }
            must_be_told(evidence, hold, end, to, verdict);
        }
        told_in_time(evidence, hold, verdict);
    }
}

/// Whether no renewal was confirmed after the last look that said held: then the deadline of that look is the one that passed.
fn deadline_is_known(hold: &Hold<'_>) -> bool {
    let last = hold.looks.last().map(|look| look.expires_ms);
    let end = hold.last_expiry.map(|(_, expires)| expires);
    last.is_some() && last == end
}

/// What of a callback's lateness its process could not help: it did not run, or the timer or the thread of the callback waited for
/// a processor.
fn not_run(evidence: &Evidence, hold: &Hold<'_>, from: i64, told: &Told) -> i64 {
    overlap(late_timers_of(evidence, hold.life), from, told.at) + told.waited
}

/// A holder whose lease ended was called before that, unless the machine did not let it run.
fn told_in_time(evidence: &Evidence, hold: &Hold<'_>, verdict: &mut Verdict) {
    if !deadline_is_known(hold) {
        return;
    }
    let deadline = hold.deadline();
    let lease_end = deadline + hold.grant.d / 100 + 2 * MS;
    let allowed = match hold.life.language {
        Language::Go => SCHEDULED_IN_GO,
        _ => UNCOUNTED,
    };
    let Some(told) = hold.told.first() else {
        // A callback that had not begun when the release did never comes, so only one that is far too late is known to be.
        let stalls = late_timers_of(evidence, hold.life);
        if let Some((at, why)) = hold.lost
            && why != REMOVED
            && at - lease_end - overlap(stalls, deadline, at) > SCHEDULED.max(allowed)
        {
            let text = format!(
                "{}: lost at {at}, and no callback since its lease ended at {lease_end}",
                hold.name()
            );
            verdict.violation(6, text);
        }
        return;
    };
    // A renewal may have been confirmed after the last word of one that released.
    let seen = hold.lost.is_some() || hold.releasing.is_none_or(|at| told.at <= at);
    if told.why == REMOVED || told.at < deadline || !seen {
        return;
    }
    let taken = not_run(evidence, hold, deadline, told);
    if taken < MS {
        // The figure is of holders that ran; after a pause it is the first look that counts.
        verdict.figure_of(6, ms(lease_end - told.at), || hold.name());
    }
    let late = told.at - lease_end;
    if late - taken > allowed {
        let text = format!(
            "{}: called {:.1} ms after its lease ended, at {}, of which the machine took {:.1} ms",
            hold.name(),
            ms(late),
            told.at,
            ms(taken)
        );
        verdict.violation(6, text);
    } else if late > 0 {
        verdict.excuse(6, taken);
    }
}

/// After a pause that outlasted the lease, every look says lost.
fn after_pauses(evidence: &Evidence, hold: &Hold<'_>, verdict: &mut Verdict) {
    let pauses = evidence
        .faults
        .iter()
        .filter(|f| f.fault == Fault::WorkerPaused && f.incarnation == Some(hold.life.incarnation));
    for pause in pauses {
        let outlasted = pause.to - pause.from > hold.grant.d + SLACK;
        if !outlasted || hold.grant.at > pause.from {
            continue;
        }
        let looked = hold.looks.iter().map(|look| look.at);
        if let Some(at) = looked.clone().find(|at| *at > pause.to) {
            let text = format!(
                "{}: a look at {at} said held after a pause of {:.0} ms",
                hold.name(),
                ms(pause.to - pause.from)
            );
            verdict.violation(6, text);
        }
    }
}

/// A holder that keeps its lock past the end of the lease is called by then.
fn must_be_told(evidence: &Evidence, hold: &Hold<'_>, end: i64, to: i64, verdict: &mut Verdict) {
    let stalled = overlap(stalls_of(evidence, hold.life), end - hold.grant.d, to);
    let scheduled = match hold.life.language {
        Language::Go => SCHEDULED_IN_GO,
        _ => SCHEDULED,
    };
    let limit = end + scheduled + stalled;
    let killed = evidence.faults.iter().any(|f| {
        f.fault == Fault::WorkerKilled
            && f.incarnation == Some(hold.life.incarnation)
            && f.from < limit + SLACK
    });
    let released = hold.releasing.is_some_and(|at| at < limit);
    let told = hold.told.iter().any(|told| told.at < limit)
        && (hold.life.language != Language::Go || hold.done.is_some_and(|at| at < limit));
    if limit < to && !killed && !released && !told {
        let text = format!("{}: no callback by {limit}, its lease ended", hold.name());
        verdict.violation(6, text);
    }
}

pub fn takeovers(evidence: &Evidence, verdict: &mut Verdict) {
    let downs = || {
        let faults = evidence.faults.iter().filter(|f| {
            matches!(
                f.fault,
                Fault::ServerKilled
                    | Fault::ServerStopped
                    | Fault::FileLocked
                    | Fault::Delayed
                    | Fault::RequestsDelayed
            )
        });
        let faults = faults.map(|f| (f.from - SLACK, f.over));
        faults.chain(evidence.stalls.iter().copied())
    };
    let away = || {
        let faults = evidence.faults.iter().filter(|f| {
            matches!(
                f.fault,
                Fault::ServerKilled | Fault::ServerStopped | Fault::FileLocked
            )
        });
        let faults = faults.map(|f| (f.from - SLACK, f.over));
        faults.chain(evidence.stalls.iter().copied())
    };
    for dead in &evidence.takeovers {
        verdict.count(7);
        let allowed = evidence.kind.tolerance() + 1_000 * MS;
        let mut late = dead.free - dead.look - dead.killed - dead.ttl;
        // The figure is of keys whose server was there and whose look was not held up, and nothing is taken off it.
        if overlap(away(), dead.killed, dead.free) == 0 {
            verdict.figure(7, ms(late));
        }
        if late > allowed {
            let taken = overlap(downs(), dead.killed, dead.free);
            late -= taken;
            if late <= allowed {
                verdict.excuse(7, taken);
            }
        }
        if late > allowed {
            let text = format!(
                "key {} was still held {:.0} ms after the TTL of its dead holder, killed at {}",
                dead.key,
                ms(late),
                dead.killed
            );
            verdict.violation(7, text);
        }
    }
}

pub fn releases(holds: &[Hold<'_>], verdict: &mut Verdict) {
    for hold in holds {
        if let (Some(began), Some((at, outcome))) = (hold.releasing, hold.released) {
            verdict.count(9);
            // The answer may come late; what counts is that the lease was good when it came.
            let held = at < hold.deadline_at(began) && hold.lost.is_none();
            if outcome == 1 && held && hold.told.is_empty() {
                let text = format!("{} was gone when it was released at {began}", hold.name());
                verdict.violation(9, text);
            }
        }
        for (began, at) in &hold.absent {
            if *at < hold.deadline_at(*began) && hold.told.is_empty() {
                let text = format!("{} was gone when it was extended at {at}", hold.name());
                verdict.violation(9, text);
            }
        }
        let removed = hold.told.iter().find(|told| told.why == REMOVED);
        let removed = removed.map(|told| told.at);
        if let Some(at) = removed.filter(|at| *at < hold.deadline_at(*at)) {
            let text = format!(
                "{} was removed before its lease ended, at {at}",
                hold.name()
            );
            verdict.violation(9, text);
        }
        for outcome in &hold.again {
            verdict.count(9);
            if *outcome == 0 && hold.released.is_some_and(|(_, first)| first == 0) {
                verdict.violation(9, format!("{} was released twice", hold.name()));
            }
        }
    }
}

pub fn callbacks(evidence: &Evidence, holds: &[Hold<'_>], verdict: &mut Verdict) {
    for hold in holds.iter().filter(|hold| !hold.told.is_empty()) {
        verdict.count(10);
        if hold.told.len() > 1 {
            let text = format!("{} was told {} times", hold.name(), hold.told.len());
            verdict.violation(10, text);
        }
        let Some(ended) = hold.ended else { continue };
        // A release waits for a callback, but not for ever: only if the callback could not run for that long may it come later.
        let began = hold.releasing.unwrap_or(ended);
        for told in hold.told.iter().filter(|told| told.at > ended) {
            let taken = overlap(stalls_of(evidence, hold.life), began, ended) + told.waited;
            if taken >= RELEASE_WAITS {
                verdict.excuse(10, taken);
                continue;
            }
            let text = format!(
                "{} was told at {}, after it ended at {ended}",
                hold.name(),
                told.at
            );
            verdict.violation(10, text);
        }
    }
}
