//! When a stored lease ends. It uses `types` alone.
//!
//! The machine's boot-time clock decides. It is one clock for all processes of a kernel, whatever boot id their container
//! shows them, and no step of the wall clock moves it. A reboot starts it anew, and a holder does not outlive a reboot. So a
//! lock can have a holder only while the clock stands between the last write of its lease and the lease's end:
//!
//! - before the write: the clock was started anew since, the holder is gone;
//! - after the end: the lease ran out, or the holder is gone;
//! - between them: the holder may live. If it does not, because of a reboot, the key is free again when the clock reaches the
//!   end, which is at most one TTL later.
//!
//! For a TTL of years that last wait is too long. There the wall clock and the boot id help, together: a row of another boot
//! id that was written before this boot began, by the wall clock, ends after [`LONGEST_AFTER_REBOOT_MS`].

use crate::types::liveness::is_live;

/// How much of a lease counts when the lock seems to come from before a reboot.
pub(super) const LONGEST_AFTER_REBOOT_MS: i64 = 3_600_000;

/// How far the wall clock may be off before it is believed that a row is older than this boot. Clocks that are corrected
/// slowly move by less than a thousandth of the time that passes.
const SLACK_MS: i64 = 60_000;

/// The time, on both clocks.
pub(super) struct Now<'a> {
    pub(super) boot_id: &'a str,
    pub(super) boot_ms: i64,
    pub(super) wall_ms: i64,
}

/// What a row says about its lease.
pub(super) struct StoredLease<'a> {
    pub(super) boot_id: &'a str,
    /// When it was granted or renewed last; older versions did not write it.
    pub(super) written_boot_ms: Option<i64>,
    pub(super) expires_boot_ms: i64,
    pub(super) expires_at_ms: i64,
}

/// What a lease has to go, less than zero in the tolerance; `None` if the lock is dead.
pub(super) fn left_ms(lease: &StoredLease<'_>, now: &Now<'_>) -> Option<i64> {
    let other_id = lease.boot_id != now.boot_id;
    let end = match lease.written_boot_ms {
        Some(written) if now.boot_ms < written => return None,
        Some(written) if other_id && is_older_than_boot(lease, written, now) => lease
            .expires_boot_ms
            .min(written.saturating_add(LONGEST_AFTER_REBOOT_MS)),
        None if other_id && !is_live(lease.expires_at_ms, now.wall_ms) => return None,
        _ => lease.expires_boot_ms,
    };
    is_live(end, now.boot_ms).then(|| end.saturating_sub(now.boot_ms))
}

/// Whether the wall clock says that the lease was written before this boot began.
fn is_older_than_boot(lease: &StoredLease<'_>, written: i64, now: &Now<'_>) -> bool {
    let ttl = lease.expires_boot_ms.saturating_sub(written);
    let written_wall = lease.expires_at_ms.saturating_sub(ttl);
    let boot_began = now.wall_ms.saturating_sub(now.boot_ms);
    let drift = now.boot_ms.saturating_sub(written) / 1000;
    written_wall < boot_began.saturating_sub(SLACK_MS).saturating_sub(drift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1000;
    const HOUR: i64 = 3600 * SECOND;
    const YEAR: i64 = 365 * 24 * HOUR;
    /// When the first boot of every case began, by a wall clock that is right.
    const BEGAN: i64 = 50 * YEAR;

    const TTLS: [i64; 5] = [1, 30 * SECOND, HOUR, 30 * HOUR, 10 * YEAR];
    /// How long the machine had been up when the lease was written, and is up when it is looked at.
    const UPTIMES: [i64; 6] = [
        5 * SECOND,
        20 * SECOND,
        50 * SECOND,
        2 * HOUR,
        48 * HOUR,
        YEAR,
    ];
    const STEPS: [i64; 7] = [-BEGAN, -24 * HOUR, -SECOND, 0, SECOND, 24 * HOUR, 70 * YEAR];

    fn written<'a>(boot_id: &'a str, at: i64, wall: i64, ttl: i64) -> StoredLease<'a> {
        StoredLease {
            boot_id,
            written_boot_ms: Some(at),
            expires_boot_ms: at + ttl,
            expires_at_ms: wall + ttl,
        }
    }

    /// On one kernel a lock lives for its TTL and the tolerance, whatever the boot ids and the wall clock are. The one
    /// exception is the stated limit of the long leases.
    #[test]
    fn on_one_kernel_only_the_boot_clock_counts() {
        let mut limited = 0;
        for ttl in TTLS {
            for at in UPTIMES {
                for later in [0, 1, ttl - 1, ttl, ttl + 999, ttl + 1000, ttl + YEAR] {
                    for (step, other) in STEPS.iter().flat_map(|s| [(*s, false), (*s, true)]) {
                        let lease = written("a", at, BEGAN + at, ttl);
                        let now = Now {
                            boot_id: if other { "b" } else { "a" },
                            boot_ms: at + later,
                            wall_ms: BEGAN + at + later + step,
                        };
                        let expected = (later < ttl + 1000).then_some(ttl - later);
                        let case = format!("ttl {ttl} at {at} later {later} step {step} {other}");
                        let found = left_ms(&lease, &now);
                        if found != expected {
                            assert!(other && ttl > LONGEST_AFTER_REBOOT_MS, "{case}: {found:?}");
                            assert!(step > at, "{case}: the step is shorter than the uptime");
                            let cut = expected.expect(&case) - (ttl - LONGEST_AFTER_REBOOT_MS);
                            assert_eq!(found, (cut > -1000).then_some(cut), "{case}");
                            limited += 1;
                        }
                    }
                }
            }
        }
        assert!(limited > 0, "the limit of the long leases is not reached");
    }

    /// After a reboot the time during which a key seems taken is never longer than the TTL and the tolerance, also with a
    /// boot id that repeats and a wall clock that is wrong.
    #[test]
    fn a_reboot_frees_every_key() {
        for ttl in TTLS {
            for at in UPTIMES {
                for (step, other) in STEPS.iter().flat_map(|s| [(*s, false), (*s, true)]) {
                    let lease = written("a", at, BEGAN + at, ttl);
                    let left = |up: i64| {
                        let now = Now {
                            boot_id: if other { "b" } else { "a" },
                            boot_ms: up,
                            wall_ms: BEGAN + at + 90 * SECOND + up + step,
                        };
                        left_ms(&lease, &now)
                    };
                    let case = format!("ttl {ttl} at {at} step {step} {other}");
                    for up in UPTIMES.into_iter().filter(|up| *up < at) {
                        assert_eq!(left(up), None, "{case} up {up}");
                    }
                    assert_eq!(left(at + ttl + 1000), None, "{case}");
                    assert!(left(at).is_none_or(|left| left <= ttl), "{case}");
                    // Another id and a clock that is right: a long lease is cut.
                    if other && step >= 0 {
                        let most = ttl.min(LONGEST_AFTER_REBOOT_MS);
                        assert_eq!(left(at + most + 1000), None, "{case}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_of_an_older_version_ends_by_the_first_clock_of_the_two() {
        for (other, boot_left, wall_left, alive) in [
            (false, 5 * SECOND, 5 * SECOND, true),
            (false, 5 * SECOND, -HOUR, true),
            (false, -HOUR, 5 * SECOND, false),
            (true, 5 * SECOND, 5 * SECOND, true),
            (true, YEAR, 5 * SECOND, true),
            (true, YEAR, -2 * SECOND, false),
            (true, -2 * SECOND, YEAR, false),
        ] {
            let now = Now {
                boot_id: if other { "b" } else { "a" },
                boot_ms: 2 * HOUR,
                wall_ms: BEGAN,
            };
            let lease = StoredLease {
                boot_id: "a",
                written_boot_ms: None,
                expires_boot_ms: now.boot_ms + boot_left,
                expires_at_ms: BEGAN + wall_left,
            };
            let found = left_ms(&lease, &now);
            assert_eq!(found.is_some(), alive, "{other} {boot_left} {wall_left}");
        }
    }

    #[test]
    fn extreme_numbers_do_not_overflow() {
        for n in [i64::MIN, -1, 0, 1, i64::MAX] {
            for m in [i64::MIN, 0, i64::MAX] {
                for written in [Some(n), Some(m), None] {
                    let lease = StoredLease {
                        boot_id: "a",
                        written_boot_ms: written,
                        expires_boot_ms: m,
                        expires_at_ms: n,
                    };
                    for boot_id in ["a", "b"] {
                        let (boot_ms, wall_ms) = (m, n);
                        let _ = left_ms(
                            &lease,
                            &Now {
                                boot_id,
                                boot_ms,
                                wall_ms,
                            },
                        );
                    }
                }
            }
        }
    }
}
