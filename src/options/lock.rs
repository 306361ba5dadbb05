//! [`LockOptions`]: how to wait for a lock and how to hold it. Checked once, when the call begins. It uses `hooks`, `retry`,
//! `runtime` and `types`.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::options::hooks::{OnLost, OnReleaseError};
use crate::options::retry::{Backoff, DEFAULT_MAX_RETRIES, DEFAULT_RETRY_DELAY, Jitter, Retry};
use crate::runtime::cancel::CancelToken;
use crate::types::error::LockError;
use crate::types::failed_release::FailedRelease;
use crate::types::holder_text::HolderText;
use crate::types::random::random_bits;
use crate::types::ttl::Ttl;

/// The default time to live of a lease.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// The default length of a whole wait.
pub const DEFAULT_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// No guard renews more often, so that a mistake in units does not spin.
const MIN_HEARTBEAT: Duration = Duration::from_millis(1);

/// How to wait for a lock and how to hold it. Cheap to clone and to reuse; nothing is checked before it is used.
///
/// ```
/// use std::time::{Duration, Instant};
/// use syncguard::LockOptions;
///
/// let options = LockOptions::new()
///     .ttl(Duration::from_secs(10))
///     .acquire_timeout(Duration::from_secs(60))
///     .on_lost(|why| eprintln!("stop working: {why}"));
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct LockOptions {
    ttl: Option<Duration>,
    acquire_timeout: Option<Duration>,
    retry_limit: RetryLimit,
    retry_delay: Option<Duration>,
    backoff: Backoff,
    jitter: Jitter,
    pace: Pace,
    max_hold: Option<Duration>,
    dispose_timeout: Option<Duration>,
    cancel: Option<CancelToken>,
    deadline: Option<Instant>,
    on_lost: Option<OnLost>,
    on_release_error: Option<OnReleaseError>,
    holder: Option<Arc<str>>,
}

impl LockOptions {
    /// All defaults: ttl 30 s, wait up to 5 s and ten retries, renewal every 10 s.
    ///
    /// ```
    /// use syncguard::{Client, LockOptions};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let guard = client.lock_with("nightly", &LockOptions::new())?; // as client.lock("nightly")
    /// # drop(guard);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the lease lasts if it is not renewed. Whole milliseconds, rounded up; default 30 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().ttl(Duration::from_secs(10));
    /// # drop(options);
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long to wait for the lock at most; zero is exactly one attempt. Default 5 s. Set, it lifts the default limit of
    /// ten retries.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().acquire_timeout(Duration::from_secs(60));
    /// # drop(options);
    /// ```
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.acquire_timeout = Some(timeout);
        self
    }

    /// Waits for the lock however long that takes, as often as it takes. A cancel of the [token](Self::cancel) and the
    /// [`deadline`](Self::deadline) still end the wait; an error that can pass does not. Short for an
    /// [`acquire_timeout`](Self::acquire_timeout) of [`Duration::MAX`] with [`unlimited_retries`](Self::unlimited_retries); of
    /// these calls the last one counts.
    ///
    /// ```
    /// use syncguard::{CancelToken, LockOptions};
    ///
    /// let shutdown = CancelToken::new();
    /// let options = LockOptions::new().wait_forever().cancel(&shutdown);
    /// # drop(options);
    /// ```
    pub fn wait_forever(self) -> Self {
        self.acquire_timeout(Duration::MAX).unlimited_retries()
    }

    /// How often to try again after the first attempt. Default 10, or without limit if an `acquire_timeout` was set.
    /// Being woken because the lock was freed is not a retry.
    ///
    /// ```
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().max_retries(3);
    /// # drop(options);
    /// ```
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.retry_limit = RetryLimit::AtMost(retries);
        self
    }

    /// Tries again until the `acquire_timeout`, however often.
    ///
    /// ```
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().unlimited_retries();
    /// # drop(options);
    /// ```
    pub fn unlimited_retries(mut self) -> Self {
        self.retry_limit = RetryLimit::None;
        self
    }

    /// The delay before the first retry. Default 100 ms; at least 1 ms.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().retry_delay(Duration::from_millis(20));
    /// # drop(options);
    /// ```
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.retry_delay = Some(delay);
        self
    }

    /// How the delay grows. Default exponential.
    ///
    /// ```
    /// use syncguard::{Backoff, LockOptions};
    ///
    /// let options = LockOptions::new().backoff(Backoff::Fixed);
    /// # drop(options);
    /// ```
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// How the delay is blurred. Default equal.
    ///
    /// ```
    /// use syncguard::{Jitter, LockOptions};
    ///
    /// let options = LockOptions::new().jitter(Jitter::Full);
    /// # drop(options);
    /// ```
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// How often the guard renews. Default a third of the ttl; must be shorter than the ttl; at least 1 ms.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().ttl(Duration::from_secs(10)).heartbeat(Duration::from_secs(2));
    /// # drop(options);
    /// ```
    pub fn heartbeat(mut self, every: Duration) -> Self {
        self.pace = Pace::Every(every);
        self
    }

    /// Never renews: the lease ends with its ttl unless you [`extend`](crate::Guard::extend) it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().ttl(Duration::from_secs(10)).no_heartbeat();
    /// # drop(options);
    /// ```
    pub fn no_heartbeat(mut self) -> Self {
        self.pace = Pace::Never;
        self
    }

    /// Stops renewing this long after the grant, so that a worker that hangs, or a guard that was forgotten, does not hold
    /// the lock for ever. Default none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().max_hold(Duration::from_secs(3600));
    /// # drop(options);
    /// ```
    pub fn max_hold(mut self, max: Duration) -> Self {
        self.max_hold = Some(max);
        self
    }

    /// How long `Drop` may take to release. Default: the client's, 5 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().dispose_timeout(Duration::from_secs(1));
    /// # drop(options);
    /// ```
    pub fn dispose_timeout(mut self, timeout: Duration) -> Self {
        self.dispose_timeout = Some(timeout);
        self
    }

    /// Ends the wait when the token is cancelled. The guard does not keep it.
    ///
    /// ```
    /// use syncguard::{CancelToken, LockOptions};
    ///
    /// let shutdown = CancelToken::new();
    /// let options = LockOptions::new().cancel(&shutdown);
    /// # drop(options);
    /// ```
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// Ends the wait, and an attempt that is under way, by `deadline`. Default none: [`acquire_timeout`](Self::acquire_timeout)
    /// and the operation timeout bound them. For a caller that must be done by a fixed time; the guard does not keep it.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().deadline(Instant::now() + Duration::from_secs(2));
    /// # drop(options);
    /// ```
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Called at most once, on a thread of the library, when the guard is lost. It may take its time and may use the guard's
    /// client; it is not called once a release has begun.
    ///
    /// ```
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().on_lost(|why| eprintln!("stop working: {why}"));
    /// # drop(options);
    /// ```
    pub fn on_lost(mut self, callback: impl Fn(&LockError) + Send + Sync + 'static) -> Self {
        self.on_lost = Some(Arc::new(callback));
        self
    }

    /// Called on a thread of the library when the release in `Drop` fails. Default: the client's hook.
    ///
    /// ```
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().on_release_error(|failed| eprintln!("{failed:?}"));
    /// # drop(options);
    /// ```
    pub fn on_release_error(
        mut self,
        callback: impl Fn(&FailedRelease) + Send + Sync + 'static,
    ) -> Self {
        self.on_release_error = Some(Arc::new(callback));
        self
    }

    /// What is stored beside the lock of its holder, for people that look at it: at most 200 bytes of printable UTF-8. Default
    /// `host/pid/program`; an empty text stores nothing.
    ///
    /// [`get_by_key_raw`](crate::Client::get_by_key_raw), [`Holder::text`](crate::Holder::text) and the command `syncguard` show it.
    /// It proves nothing. It is raw data, and no error message and no `Debug` has it.
    ///
    /// ```
    /// use syncguard::LockOptions;
    ///
    /// let options = LockOptions::new().holder("build-7/nightly");
    /// # drop(options);
    /// ```
    pub fn holder(mut self, text: impl Into<Arc<str>>) -> Self {
        self.holder = Some(text.into());
        self
    }

    /// The delay before the attempt after `attempt` (counted from 1) with `remaining` of the wait left; `None` to give up.
    /// For callers that wait by themselves between single attempts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::{Backoff, Jitter, LockOptions};
    ///
    /// let options = LockOptions::new().backoff(Backoff::Fixed).jitter(Jitter::None);
    /// let delay = options.delay_after(1, Duration::from_secs(5))?;
    /// assert_eq!(delay, Some(Duration::from_millis(100)));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for options that [`Client::lock_with`](crate::Client::lock_with) would
    /// refuse: correct the option that the message names.
    pub fn delay_after(
        &self,
        attempt: u32,
        remaining: Duration,
    ) -> Result<Option<Duration>, LockError> {
        Ok(self
            .checked()?
            .retry
            .delay(attempt, remaining, random_bits()))
    }

    pub(crate) fn checked(&self) -> Result<CheckedLockOptions, LockError> {
        let ttl = Ttl::new(self.ttl.unwrap_or(DEFAULT_TTL))?;
        let pace = match self.pace {
            Pace::Every(every) if every.is_zero() => {
                return Err(LockError::invalid(
                    "the heartbeat interval is zero; no_heartbeat() turns it off",
                ));
            }
            Pace::Every(every) if every >= ttl.as_duration() => {
                return Err(LockError::invalid(
                    "the heartbeat interval is not shorter than the ttl: every renewal would come too late",
                ));
            }
            Pace::Every(every) => Pace::Every(every.max(MIN_HEARTBEAT)),
            pace => pace,
        };
        let max_retries = match self.retry_limit {
            RetryLimit::AtMost(retries) => Some(retries),
            RetryLimit::None => None,
            RetryLimit::Default if self.acquire_timeout.is_some() => None,
            RetryLimit::Default => Some(DEFAULT_MAX_RETRIES),
        };
        if self.max_hold.is_some_and(|d| d.is_zero()) {
            return Err(LockError::invalid("max_hold is zero"));
        }
        if self.dispose_timeout.is_some_and(|d| d.is_zero()) {
            return Err(LockError::invalid(
                "dispose_timeout is zero: no drop could release the lock",
            ));
        }
        let holder = self.holder.clone().map(HolderText::new).transpose()?;
        Ok(CheckedLockOptions {
            holder,
            ttl,
            pace,
            acquire_timeout: self.acquire_timeout.unwrap_or(DEFAULT_ACQUIRE_TIMEOUT),
            retry: Retry {
                max: max_retries,
                base: self.retry_delay.unwrap_or(DEFAULT_RETRY_DELAY),
                backoff: self.backoff,
                jitter: self.jitter,
            },
        })
    }

    pub(crate) fn max_hold_after(&self) -> Option<Duration> {
        self.max_hold
    }

    pub(crate) fn dispose_within(&self) -> Option<Duration> {
        self.dispose_timeout
    }

    pub(crate) fn cancel_token(&self) -> Option<&CancelToken> {
        self.cancel.as_ref()
    }

    /// By when the caller must be done.
    pub(crate) fn ends_by(&self) -> Option<Instant> {
        self.deadline
    }

    pub(crate) fn lost_callback(&self) -> Option<&OnLost> {
        self.on_lost.as_ref()
    }

    pub(crate) fn release_hook(&self) -> Option<&OnReleaseError> {
        self.on_release_error.as_ref()
    }
}

impl fmt::Debug for LockOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockOptions")
            .field("ttl", &self.ttl)
            .field("acquire_timeout", &self.acquire_timeout)
            .field("retry_limit", &self.retry_limit)
            .field("retry_delay", &self.retry_delay)
            .field("backoff", &self.backoff)
            .field("jitter", &self.jitter)
            .field("heartbeat", &self.pace)
            .field("max_hold", &self.max_hold)
            .field("dispose_timeout", &self.dispose_timeout)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// How often to try again, as the user set it.
#[derive(Clone, Copy, Debug, Default)]
enum RetryLimit {
    /// Ten times; without limit if an acquire timeout was set.
    #[default]
    Default,
    AtMost(u32),
    None,
}

/// Options that were checked.
#[derive(Clone, Debug)]
pub(crate) struct CheckedLockOptions {
    pub(crate) holder: Option<HolderText>,
    pub(crate) ttl: Ttl,
    pub(crate) pace: Pace,
    pub(crate) acquire_timeout: Duration,
    pub(crate) retry: Retry,
}

/// How often a lease is renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    Never,
    /// Every third of the ttl, whatever the ttl becomes.
    #[default]
    Third,
    Every(Duration),
}

impl Pace {
    pub(crate) fn interval(self, ttl: Ttl) -> Option<Duration> {
        let third = ttl.as_duration() / 3;
        match self {
            Self::Never => None,
            Self::Third => Some(third),
            // The interval was checked against the first ttl; an extend may have chosen a shorter one.
            Self::Every(every) if every < ttl.as_duration() => Some(every),
            Self::Every(_) => Some(third),
        }
    }
}
