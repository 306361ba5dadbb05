//! The types that a guard's lifecycle begins with, is asked with and answers with.

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
    pub(crate) max_hold: Option<Duration>,
    pub(crate) expires_at_ms: i64,
    pub(crate) wants_report: bool,
}

/// What the timer must do after it rang.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// Nothing, ever again.
    Never,
    /// Ring again then.
    At(Duration),
    /// Start the heartbeat thread, and ring again then.
    Start(Duration),
    /// The guard was lost just now; `report` asks for its callback.
    Lost { report: bool },
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
    /// Whether the lost callback must be queued.
    pub(crate) report: bool,
    /// When the timer must ring.
    pub(crate) alarm: Option<Duration>,
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

/// The time by which the local belief ends before the store's: what clocks may drift and calls may take.
fn margin(ttl: Ttl) -> Duration {
    ttl.as_duration() / 100 + Duration::from_millis(2)
}

/// Until when a lease whose request was sent at `sent` may be believed in.
pub(super) fn believed_until(sent: Duration, ttl: Ttl) -> Duration {
    (sent + ttl.as_duration()).saturating_sub(margin(ttl))
}
