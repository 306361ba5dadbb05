//! Promises 4 and 5: calls end by their bounds, and by their cancels.

use super::{Verdict, ms, overlap, pauses_of, stalls_of};
use crate::clock::MS;
use crate::plan::Language;
use crate::record::kind;
use crate::round::Evidence;
use crate::worker::VERBS;

const ALLOWED: i64 = 100 * MS;
/// In Go the waits of its own scheduler cannot be told from the library's.
const ALLOWED_IN_GO: i64 = 250 * MS;

pub fn bounds(evidence: &Evidence, verdict: &mut Verdict) {
    for life in &evidence.lives {
        let allowed = match life.language {
            Language::Go => ALLOWED_IN_GO,
            _ => ALLOWED,
        };
        for call in life.records.iter().filter(|r| r.kind == kind::CALL) {
            let by_bound = call.a + call.b;
            let cancelled = call.c > 0 && call.c < by_bound;
            let promise = if cancelled { 5 } else { 4 };
            let due = if cancelled { call.c } else { by_bound };
            verdict.count(promise);
            if call.at <= due {
                continue;
            }
            // A wait in the kernel goes on with the time it had left when the process was stopped, so a pause before the bound
            // counts too. Of what the machine took, only that after it does.
            let begun = if cancelled { due } else { call.a };
            let paused = overlap(pauses_of(evidence, life), begun, call.at);
            let stalled = overlap(stalls_of(evidence, life), due, call.at);
            let over = call.at - due;
            let taken = stalled.max(paused).max(call.d.min(over));
            let late = (over - taken).max(0);
            let name = || {
                format!(
                    "{} of {:?} worker {} (start {}), key {}",
                    VERBS.get(call.id as usize).unwrap_or(&"a call"),
                    life.language,
                    life.slot,
                    life.incarnation,
                    call.key
                )
            };
            verdict.figure_of(promise, ms(late), name);
            if over > allowed && late <= allowed {
                verdict.excuse(promise, taken);
            }
            if late > allowed {
                let text = format!(
                    "{}: {:.0} ms after it was due, at {}",
                    name(),
                    ms(late),
                    call.at
                );
                verdict.violation(promise, text);
            }
        }
    }
}
