//! [`Ttl`]: how long a lease lasts. It uses `error` alone.

use std::fmt;
use std::time::Duration;

use crate::types::error::LockError;

/// Ten years: a TTL over this is a mistake in units.
const MAX_TTL_MS: u64 = 10 * 366 * 24 * 3600 * 1000;

/// A checked time to live: whole milliseconds, at least 1, at most ten years.
///
/// ```
/// use std::time::Duration;
/// use syncguard::Ttl;
///
/// assert_eq!(Ttl::new(Duration::from_micros(1_500))?.as_millis(), 2); // rounded up
/// assert!(Ttl::new(Duration::ZERO).is_err());
///
/// let ttl = Ttl::try_from(Duration::from_secs(10))?;
/// assert_eq!(Duration::from(ttl), Duration::from_secs(10));
/// assert_eq!(ttl.to_string(), "10000 ms");
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ttl(i64);

impl Ttl {
    /// Rounds `duration` up to whole milliseconds and checks it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::Ttl;
    ///
    /// assert_eq!(Ttl::new(Duration::from_secs(10))?.as_millis(), 10_000);
    /// assert!(Ttl::new(Duration::ZERO).is_err());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for zero and for more than ten years: choose a time between.
    pub fn new(duration: Duration) -> Result<Self, LockError> {
        let ms = duration.as_nanos().div_ceil(1_000_000);
        if ms == 0 {
            return Err(LockError::invalid("the ttl is zero"));
        }
        match i64::try_from(ms) {
            Ok(ms) if ms as u64 <= MAX_TTL_MS => Ok(Self(ms)),
            _ => Err(LockError::invalid("the ttl is over ten years")),
        }
    }

    /// The milliseconds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::Ttl;
    ///
    /// assert_eq!(Ttl::new(Duration::from_secs(10))?.as_millis(), 10_000);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// The same as a [`Duration`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::Ttl;
    ///
    /// assert_eq!(Ttl::new(Duration::from_micros(1))?.as_duration(), Duration::from_millis(1));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn as_duration(self) -> Duration {
        Duration::from_millis(self.0.unsigned_abs())
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = LockError;

    fn try_from(duration: Duration) -> Result<Self, LockError> {
        Self::new(duration)
    }
}

impl From<Ttl> for Duration {
    fn from(ttl: Ttl) -> Self {
        ttl.as_duration()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttls_round_up_and_have_ends() {
        assert_eq!(
            Ttl::new(Duration::from_micros(400))
                .map(Ttl::as_millis)
                .ok(),
            Some(1)
        );
        assert!(Ttl::new(Duration::MAX).is_err());
        assert!(Ttl::new(Duration::from_secs(11 * 366 * 24 * 3600)).is_err());
    }
}
