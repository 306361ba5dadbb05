//! Is a stored lock alive? One predicate and one constant, for every backend and operation. It uses nothing else of the crate.

use std::time::Duration;

/// How long after its expiry a lock still counts as taken, to forgive clocks that disagree.
///
/// Redis deletes at the TTL, so there it never shows; on Postgres and SQLite a lock stays taken up to a second longer.
pub const TIME_TOLERANCE_MS: i64 = 1000;

/// How long a lock must have been expired before a read may remove it.
pub const CLEANUP_GUARD_MS: i64 = 2000;

/// Whether a lock that expires at `expires_at_ms` is alive at `now_ms`, both on the store's clock.
///
/// ```
/// assert!(syncguard::is_live(1_001, 2_000));
/// assert!(!syncguard::is_live(1_000, 2_000));
/// ```
pub fn is_live(expires_at_ms: i64, now_ms: i64) -> bool {
    is_live_within(expires_at_ms, now_ms, TIME_TOLERANCE_MS)
}

/// How long until a live lock can be taken whose lease has `left_ms` to go, if it is not renewed. Never zero.
pub(crate) fn free_in(left_ms: i64) -> Duration {
    let ms = left_ms.saturating_add(TIME_TOLERANCE_MS);
    Duration::from_millis(u64::try_from(ms).unwrap_or(0).max(1))
}

pub(crate) fn is_live_within(expires_at_ms: i64, now_ms: i64, tolerance_ms: i64) -> bool {
    expires_at_ms > now_ms.saturating_sub(tolerance_ms)
}
