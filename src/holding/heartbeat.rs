//! The renewals of a guard: sends one when it is due, and writes down what came of it. It uses `held` and `lifecycle`.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::call::Call;
use crate::backend::{Absence, ExtendOutcome};
use crate::holding::held::Held;
use crate::holding::lifecycle::{Effect, Extension};
use crate::runtime::renewals::Renewal;
use crate::runtime::unwinding::on_panic;
use crate::runtime::workers::guarded;
use crate::types::error::LockError;
use crate::types::ttl::Ttl;

/// How soon a failed renewal is tried again, at the least.
const RETRY: Duration = Duration::from_millis(10);

impl Renewal for Held {
    fn renew(self: Arc<Self>) {
        if guarded(|| renew_while_due(&self)).is_none() {
            let lost_now = self.life.broken();
            self.after_loss(lost_now);
        }
        // What the user gave must not be dropped on a thread that other guards wait for.
        let runtime = self.core.runtime.clone();
        runtime.drop_elsewhere(self);
    }
}

fn renew_while_due(held: &Arc<Held>) {
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
    let subject = held.subject();
    let call = call.about(subject.as_ref());
    let answer = on_panic(
        || {
            settle(held, sent, ttl, &unknown);
        },
        || (*held.core.backend).extend(&held.granted.lock_id, ttl, &call),
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
        lost_now,
        alarm,
    } = held.life.end_extend(now, sent, ttl, how, retry);
    held.after_loss(lost_now);
    if let Some(at) = alarm {
        held.set_alarm(at);
    }
    still
}
