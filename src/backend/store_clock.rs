//! What time it is in the store, as far as a connection to it can tell. It uses `types` and `backend::limits`.
//!
//! A request carries a time after which the store refuses it, so that one that the network holds back cannot undo what was
//! asked for later.

use std::time::{Duration, Instant};

use crate::backend::limits::Limits;
use crate::types::error::{LockError, NotAfter};

/// For the milliseconds that both sides round off.
const ROUNDING: Duration = Duration::from_millis(2);

/// Two clocks differ by at most one part in so many, as they run. Those of computers differ by a tenth of that.
const DRIFT: u32 = 1000;

/// How often a server may say in one call that its clock has moved.
const CLOCK_READINGS: usize = 4;

/// What a store said to a request that carries the time after which it is refused. For backends of your own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimedReply<T> {
    /// The answer.
    Answer(T),
    /// The store refused the request and changed nothing: by its clock it was too late.
    TooLate {
        /// The store's time, in Unix milliseconds.
        now_ms: i64,
    },
}

/// Sends a request that changes a lease. `send` is given the time after which the store shall refuse it, in Unix milliseconds of
/// the store's clock; `None` as long as that clock is unknown.
///
/// A store whose clock has moved refuses in time too. It says what time it is, and the request is sent again within the same
/// limits: that is the connection's recovery, not a second attempt. The error of a request whose effect is unknown says until
/// when the store may still apply it.
pub(crate) fn send_in_time<T>(
    clock: &mut Option<StoreClock>,
    limits: &Limits<'_>,
    mut send: impl FnMut(Option<i64>) -> Result<TimedReply<T>, LockError>,
) -> Result<T, LockError> {
    send_by(clock, limits.deadline(), |limit| {
        send(limit.map(|limit| limit.store_ms))
    })
}

/// The same by a deadline. `send` is told by when the store's clock has passed that time, too.
pub(crate) fn send_by<T>(
    clock: &mut Option<StoreClock>,
    deadline: Instant,
    mut send: impl FnMut(Option<NotAfter>) -> Result<TimedReply<T>, LockError>,
) -> Result<T, LockError> {
    for _ in 0..CLOCK_READINGS {
        let limit = clock.map(|clock| clock.not_after(deadline));
        let sent = Instant::now();
        let reply = send(limit).map_err(|e| e.refused_after(limit))?;
        match reply {
            TimedReply::Answer(answer) => return Ok(answer),
            TimedReply::TooLate { now_ms } => *clock = Some(StoreClock::read(now_ms, sent)),
        }
    }
    Err(LockError::unavailable(
        "the server's clock moved forward between any two answers; look at its time synchronisation",
    )
    .nothing_applied())
}

/// A reading of a store's clock, which a connection keeps. For backends of your own: [`HelperCall::send_in_time`](crate::HelperCall::send_in_time)
/// makes it.
// As old as the connection, or as its last refusal. Clocks that drift or step make it wrong. One that runs behind costs a trip, because
// the store's refusal brings a new reading; for one that runs ahead there is DRIFT.
#[derive(Clone, Copy, Debug)]
pub struct StoreClock {
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
    use crate::backend::call::Call;
    use crate::runtime::process::Owner;

    #[test]
    fn a_store_that_is_too_late_is_asked_again_with_the_time_that_it_said() {
        let call = Call::new();
        let limits = Limits::enter(Owner::current(), Duration::from_secs(60), &call);
        let limits = limits.expect("time is left");
        let mut clock = None;
        let mut told = Vec::new();
        let answer = send_in_time(&mut clock, &limits, |not_after| {
            told.push(not_after);
            Ok(match told.len() {
                1 => TimedReply::TooLate { now_ms: 5_000_000 },
                _ => TimedReply::Answer("granted"),
            })
        });
        assert_eq!(answer.ok(), Some("granted"));
        assert_eq!(told[0], None);
        assert!(told[1].is_some_and(|ms| (5_000_000..5_070_000).contains(&ms)));
        let mut tries = 0;
        let error = send_in_time(&mut clock, &limits, |_| {
            tries += 1;
            Ok::<TimedReply<()>, _>(TimedReply::TooLate { now_ms: i64::MAX })
        });
        let error = error.expect_err("the clock moves each time");
        assert!(tries == CLOCK_READINGS && !error.may_have_applied());
        let error = send_in_time(&mut clock, &limits, |_| {
            Err::<TimedReply<()>, _>(LockError::unavailable("lost"))
        });
        let error = error.expect_err("the answer was lost");
        assert!(error.not_after().is_some(), "it may be applied later");
    }

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
