//! When to try again: how often, and after which delay. It uses nothing else of the crate.

use std::time::Duration;

/// The default number of retries.
pub const DEFAULT_MAX_RETRIES: u32 = 10;
/// The default delay before the first retry.
pub const DEFAULT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How the delay between attempts grows.
///
/// ```
/// use std::time::Duration;
/// use syncguard::{Backoff, LockOptions};
///
/// let options = LockOptions::new().backoff(Backoff::Fixed).retry_delay(Duration::from_millis(20));
/// # drop(options);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backoff {
    /// Doubles with every attempt, up to the larger of the base delay and 2 s. The default.
    #[default]
    Exponential,
    /// Stays as it is. For short waits in which every attempt counts.
    Fixed,
}

/// How the delay between attempts is blurred, so that waiters do not come back together.
///
/// ```
/// use syncguard::{Jitter, LockOptions};
///
/// let options = LockOptions::new().jitter(Jitter::Full);
/// # drop(options);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Jitter {
    /// Half of the delay is fixed, half is random. The default.
    #[default]
    Equal,
    /// All of the delay is random. For very many waiters on one key.
    Full,
    /// The delay is as computed. For tests, and for a single waiter.
    None,
}

/// When to try again; the arithmetic is in `backoff.rs`.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    pub(crate) max: Option<u32>,
    pub(crate) base: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) jitter: Jitter,
}
