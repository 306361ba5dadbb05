//! Pure arithmetic: attempt, jitter and time left give the delay before the next attempt. It uses `retry` alone.

use std::time::Duration;

use crate::options::retry::{Backoff, Jitter, Retry};

/// No delay grows beyond this, unless the base itself is longer.
const CAP: Duration = Duration::from_secs(2);
/// No delay is shorter, so that a zero base does not spin.
const FLOOR: Duration = Duration::from_millis(1);

impl Retry {
    /// The delay after failed attempt number `attempt` (from 1) with `left` of the wait to go; `None` to give up.
    /// `random` is any 64 random bits.
    pub(crate) fn delay(&self, attempt: u32, left: Duration, random: u64) -> Option<Duration> {
        if left.is_zero() || self.max.is_some_and(|max| attempt > max) {
            return None;
        }
        let base = self.base.max(FLOOR);
        let cap = base.max(CAP);
        let grown = match self.backoff {
            Backoff::Fixed => base,
            Backoff::Exponential => 1u32
                .checked_shl(attempt.saturating_sub(1))
                .and_then(|f| base.checked_mul(f))
                .map_or(cap, |d| d.min(cap)),
        };
        let blurred = match self.jitter {
            Jitter::None => grown,
            Jitter::Equal => grown / 2 + part(grown - grown / 2, random),
            Jitter::Full => part(grown, random),
        };
        Some(blurred.max(FLOOR).min(left))
    }
}

/// A random part of `whole`.
fn part(whole: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
    let scaled = (u128::from(nanos) * u128::from(random)) >> 64;
    Duration::from_nanos(u64::try_from(scaled).unwrap_or(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn retry(max: Option<u32>, base: Duration, backoff: Backoff, jitter: Jitter) -> Retry {
        Retry {
            max,
            base,
            backoff,
            jitter,
        }
    }

    const FOREVER: Duration = Duration::MAX;

    #[test]
    fn doubles_up_to_two_seconds() {
        let r = retry(
            None,
            Duration::from_millis(100),
            Backoff::Exponential,
            Jitter::None,
        );
        let delays: Vec<u128> = (1..=7)
            .filter_map(|n| r.delay(n, FOREVER, 0))
            .map(|d| d.as_millis())
            .collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(r.delay(u32::MAX, FOREVER, u64::MAX), Some(CAP));
    }

    #[test]
    fn a_long_base_is_its_own_cap() {
        let hour = Duration::from_secs(3600);
        for attempt in [1, 2, 33, u32::MAX] {
            assert_eq!(
                retry(None, hour, Backoff::Exponential, Jitter::None).delay(attempt, FOREVER, 0),
                Some(hour)
            );
        }
        assert_eq!(
            retry(None, Duration::MAX, Backoff::Exponential, Jitter::Full).delay(3, hour, u64::MAX),
            Some(hour)
        );
    }

    #[test]
    fn gives_up_after_the_last_retry_and_when_time_is_up() {
        let r = retry(
            Some(2),
            Duration::from_millis(1),
            Backoff::Fixed,
            Jitter::None,
        );
        assert!(r.delay(2, FOREVER, 0).is_some() && r.delay(3, FOREVER, 0).is_none());
        assert!(
            retry(Some(0), Duration::ZERO, Backoff::Fixed, Jitter::None)
                .delay(1, FOREVER, 0)
                .is_none()
        );
        assert!(r.delay(1, Duration::ZERO, 0).is_none());
    }

    proptest! {
        #[test]
        fn stays_within_bounds(attempt in any::<u32>(), base_ms in 0u64..4_000_000, left_ms in 1u64..10_000_000, random in any::<u64>(), kind in 0..6) {
            let backoff = if kind % 2 == 0 { Backoff::Fixed } else { Backoff::Exponential };
            let jitter = [Jitter::Equal, Jitter::Full, Jitter::None][kind as usize / 2];
            let (base, left) = (Duration::from_millis(base_ms), Duration::from_millis(left_ms));
            let delay = retry(None, base, backoff, jitter).delay(attempt, left, random).expect("no limit");
            prop_assert!(delay <= base.max(CAP).min(left) && delay >= FLOOR);
            if jitter == Jitter::Equal && left > base.max(CAP) {
                prop_assert!(delay >= base / 2);
            }
        }
    }
}
