//! The types that a guard's lifecycle begins with, is asked with and answers with. It uses `options`, `runtime` and `types`.

use std::time::Duration;

use crate::options::lock::Pace;
use crate::runtime::cancel::CancelToken;
use crate::types::ttl::Ttl;

/// What a guard starts with.
pub(crate) struct Lease {
    /// When the request was sent that the store granted.
    pub(crate) sent: Duration,
    pub(crate) ttl: Ttl,
    pub(crate) pace: Pace,
    /// How early this guard renews: 255 is nearly a tenth of the interval. Guards that were granted together, or whose renewals
    /// failed together, do not renew together for ever.
    pub(crate) early: u8,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) expires_at_ms: i64,
    /// Which of the lost callbacks are set, by [`LostCallback`].
    pub(crate) callbacks: [bool; 2],
}

/// The two callbacks of a lost guard. Both obey the same rules; neither waits for the other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LostCallback {
    /// The guard's own.
    Guard,
    /// The one of its client.
    Client,
}

impl LostCallback {
    pub(crate) const ALL: [Self; 2] = [Self::Guard, Self::Client];
}

/// What the timer must do after it rang.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// Nothing, ever again.
    Never,
    /// Ring again then.
    At(Duration),
    /// Start a thread for the renewal that is due, and ring again then, when the lease is lost.
    Start(Duration),
    /// Have a thread ready for the lost callbacks, and ring again then.
    Ready(Duration),
    /// Queue the lost callbacks: the guard was lost just now.
    Lost,
}

/// How an extend went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    Extended(i64),
    Absent,
    /// It may have been applied, or may be later: the store refuses it once its clock has passed `not_after_ms` (Unix
    /// milliseconds). `None` if nothing can arrive late, or the store was not told.
    Unknown {
        not_after_ms: Option<i64>,
    },
    /// It certainly was not applied.
    Refused,
}

/// Extends of unknown outcome that the store may still apply: each of them would set the lease to its own TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InDoubt {
    /// The shortest of their TTLs.
    pub(super) ttl: Ttl,
    /// The store refuses all of them once its clock has passed this (Unix milliseconds).
    pub(super) not_after_ms: i64,
}

impl InDoubt {
    /// These and one more.
    pub(super) fn and(before: Option<Self>, ttl: Ttl, not_after_ms: i64) -> Self {
        match before {
            None => Self { ttl, not_after_ms },
            Some(before) => Self {
                ttl: before.ttl.min(ttl),
                not_after_ms: before.not_after_ms.max(not_after_ms),
            },
        }
    }
}

/// What follows from an extend.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Whether the caller may believe in the lease.
    pub(crate) held: bool,
    /// Whether the guard was lost by it: then the lost callbacks must be queued.
    pub(crate) lost_now: bool,
    /// When the timer must ring.
    pub(crate) alarm: Option<Duration>,
}

impl Effect {
    pub(super) const LOST: Self = Self {
        held: false,
        lost_now: true,
        alarm: None,
    };
}

/// ExtendTurn to send an extend.
pub(crate) enum ExtendTurn {
    /// Send it, with this token.
    Send(Ttl, CancelToken),
    /// Do not: the guard is lost or released.
    Absent,
    /// Do not: the caller's own token or time ended the wait for another extend.
    Stopped,
}

/// ExtendTurn to send a release.
pub(crate) enum ReleaseTurn {
    Send,
    /// Another one was answered.
    Known,
    /// The caller's own token or time ended the wait before the guard came to rest.
    Stopped,
}

/// How long after a request was sent the lease is renewed; `None` if it is not. An interval that the caller chose is kept.
pub(super) fn renewed_after(pace: Pace, early: u8, ttl: Ttl) -> Option<Duration> {
    let every = pace.interval(ttl)?;
    let earlier = match pace {
        Pace::Third => every * u32::from(early) / 2560,
        Pace::Every(_) | Pace::Never => Duration::ZERO,
    };
    Some(every.saturating_sub(earlier))
}

/// The time by which the local belief ends before the store's: what clocks may drift and calls may take.
fn margin(ttl: Ttl) -> Duration {
    ttl.as_duration() / 100 + Duration::from_millis(2)
}

/// Until when a lease whose request was sent at `sent` may be believed in.
pub(super) fn believed_until(sent: Duration, ttl: Ttl) -> Duration {
    (sent + ttl.as_duration()).saturating_sub(margin(ttl))
}
