//! What time it is in the store, as far as a connection to it can tell. A request carries a time after which the store refuses
//! it, so that one that the network holds back cannot undo what was asked for later.

use std::time::{Duration, Instant};

use crate::types::error::{LockError, NotAfter};

/// For the milliseconds that both sides round off.
const ROUNDING: Duration = Duration::from_millis(2);

/// Two clocks differ by at most one part in so many, as they run. Those of computers differ by a tenth of that.
const DRIFT: u32 = 1000;

/// How often a server may say in one call that its clock has moved.
pub(crate) const CLOCK_READINGS: usize = 4;

/// What is said of a server whose clock moved each time it was read.
pub(crate) fn clock_keeps_moving() -> LockError {
    LockError::unavailable(
        "the server's clock moved forward between any two answers; look at its time synchronisation",
    )
    .nothing_applied()
}

/// A reading of the store's clock: as old as the connection, or as its last refusal. Clocks that drift or step make it wrong. One
/// that runs behind costs a trip, because the store's refusal brings a new reading; for one that runs ahead there is [`DRIFT`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreClock {
    store_ms: i64,
    /// The store read its clock between these two.
    sent: Instant,
    received: Instant,
}

impl StoreClock {
    /// The answer to a request of `sent` has just said that it is `store_ms` (Unix milliseconds).
    pub(crate) fn read(store_ms: i64, sent: Instant) -> Self {
        Self {
            store_ms,
            sent,
            received: Instant::now(),
        }
    }

    /// The latest that the store's clock can show at `deadline`, and by when it has passed that for certain.
    pub(crate) fn not_after(&self, deadline: Instant) -> NotAfter {
        let ahead = deadline.saturating_duration_since(self.sent) + ROUNDING;
        let ahead_ms = i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX);
        NotAfter {
            store_ms: self.store_ms.saturating_add(ahead_ms),
            passed_by: self.received + ahead + ahead / DRIFT + ROUNDING,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_in_time_is_never_too_late_and_a_late_one_always_is() {
        let sent = Instant::now() - Duration::from_millis(300);
        let deadline = Instant::now() + Duration::from_secs(5);
        // The store may have read its clock at any moment between the two.
        let clock = StoreClock::read(1_000_000, sent);
        let received = clock.received;
        let limit = clock.not_after(deadline);
        for read_at in [sent, sent + Duration::from_millis(150), received] {
            let store_ms = |at: Instant| {
                let since = at.saturating_duration_since(read_at).as_millis();
                1_000_000 + i64::try_from(since).expect("a short time")
            };
            assert!(store_ms(deadline) <= limit.store_ms);
            assert!(store_ms(limit.passed_by) > limit.store_ms);
        }
        assert!(limit.passed_by <= deadline + Duration::from_millis(1_500));
    }
}
