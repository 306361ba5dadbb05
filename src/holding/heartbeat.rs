//! The thread of a guard: waits until a renewal is due, sends it, writes down what came of it.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::call::Call;
use crate::backend::{Absence, ExtendOutcome};
use crate::holding::held::Held;
use crate::holding::lifecycle::{Effect, Extension};
use crate::runtime::threads;
use crate::runtime::unwinding::on_panic;
use crate::runtime::workers::guarded;
use crate::types::error::LockError;
use crate::types::ttl::Ttl;

/// How soon a failed renewal is tried again, at the least.
const RETRY: Duration = Duration::from_millis(10);

/// Starts the heartbeat of a guard; false if there is no thread to be had.
pub(super) fn start(held: &Arc<Held>) -> bool {
    let held = Arc::clone(held);
    threads::spawn("syncguard-beat", move || {
        if guarded(|| beat(&held)).is_none() {
            let report = held.life.broken();
            held.after_loss(report);
        }
    })
    .is_ok()
}

fn beat(held: &Arc<Held>) {
    while let Some((ttl, token)) = held.life.next_renewal() {
        // Half of what is left at the most: if this one is swallowed, there is time for another on a new connection.
        let half = held.remaining() / 2;
        let call = Call::new()
            .within(half.min(held.core.timeouts.operation))
            .cancelled_by(&token);
        // The outcome is the lifecycle's to judge; a failed renewal is not the end.
        let _ = extend(held, ttl, &call);
    }
}

/// Sends one extend and applies its outcome, for the heartbeat and for [`Guard::extend`](crate::Guard::extend) alike.
pub(super) fn extend(
    held: &Arc<Held>,
    ttl: Ttl,
    call: &Call<'_>,
) -> Result<ExtendOutcome, LockError> {
    let sent = held.now();
    if let Some(sooner) = held.life.send_extend(sent, ttl) {
        held.set_alarm(sooner);
    }
    // Whatever happens in the store's code, no later extend or release may wait for this one.
    let unknown = Extension::Unknown { not_after_ms: None };
    let answer = on_panic(
        || {
            settle(held, sent, ttl, &unknown);
        },
        || (*held.core.backend).extend(&held.granted.lock_id, ttl, call),
    );
    let how = match &answer {
        Ok(ExtendOutcome::Extended(at)) => Extension::Extended(*at),
        Ok(ExtendOutcome::Absent(_)) => Extension::Absent,
        Err(e) if e.may_have_applied() => Extension::Unknown {
            not_after_ms: e.not_after().map(|late| late.store_ms),
        },
        Err(_) => Extension::Refused,
    };
    let still = settle(held, sent, ttl, &how);
    match answer {
        // The lease ended before the answer came.
        Ok(ExtendOutcome::Extended(_)) if !still => Ok(ExtendOutcome::Absent(Absence::Expired)),
        Ok(outcome) => Ok(outcome),
        Err(e) => Err(e.for_key(&held.key)),
    }
}

/// Writes down what came of an extend; answers whether the lock is still held.
fn settle(held: &Arc<Held>, sent: Duration, ttl: Ttl, how: &Extension) -> bool {
    let now = held.now();
    let retry = now + (ttl.as_duration() / 30).max(RETRY);
    let Effect {
        held: still,
        report,
        alarm,
    } = held.life.end_extend(now, sent, ttl, how, retry);
    held.after_loss(report);
    if let Some(at) = alarm {
        held.set_alarm(at);
    }
    still
}
