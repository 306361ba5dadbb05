//! [`Fence`]: the number by which a resource refuses a former holder. It uses `error` alone.

use std::fmt;
use std::str::FromStr;

use crate::types::error::LockError;

/// The largest fence a store may hand out; above it acquiring fails, before anything is written.
pub const MAX_FENCE: u64 = 900_000_000_000_000;
/// Above this a warning is given. The limit is still far, but some loop acquires the lock billions of times.
pub(crate) const WARN_FENCE: u64 = 90_000_000_000_000;
/// No program counts so far one by one: a fence of this size came from a clock.
pub(crate) const CLOCK_FENCES_FROM: u64 = 1_000_000_000_000;
/// The latest time that may become a fence, in the year 2128. A counter never goes back, so a clock that is far ahead for a moment
/// would spoil it for good.
pub(crate) const MAX_CLOCK_MS: i64 = 5_000_000_000_000;
const FENCE_CEILING: u64 = 999_999_999_999_999;

/// Where the fences of a client come from. Default [`Counter`](Self::Counter).
///
/// Set by [`ClientOptions::fences`](crate::ClientOptions::fences) or `fences=clock` in the URL. All clients of a key should have the
/// same.
///
/// ```
/// use syncguard::{Client, ClientOptions, FenceSource};
///
/// # let dir = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}", dir.path().join("locks.db").display());
/// let client = Client::open_with(&url, &ClientOptions::new().fences(FenceSource::Clock))?;
/// assert!(client.lock("invoice:42")?.fence().get() > 1_700_000_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum FenceSource {
    /// The stored counter of the key, plus one: 1, 2, 3. A store that has lost its last writes gives the same fences again.
    #[default]
    Counter,
    /// The larger of the stored counter plus one and the store's time in Unix milliseconds. Fences then grow also after a store has
    /// lost acknowledged writes, if every client that takes the key has this set, no lost fence was at or ahead of the clock of the
    /// server that goes on, and the old server grants nothing once the new one has begun.
    Clock,
}

impl FenceSource {
    /// The value of `fences` in a URL.
    pub(crate) fn parse(text: &str) -> Result<Self, LockError> {
        match text {
            "counter" => Ok(Self::Counter),
            "clock" => Ok(Self::Clock),
            _ => Err(LockError::invalid("fences is not one of counter, clock")),
        }
    }
}

/// A fencing token: a counter per key that only grows.
///
/// Hand it to whatever the lock protects and let that refuse a smaller one than it has seen: this is what keeps data safe
/// when a holder is paused past its TTL. Shown as 15 digits, so that texts order as numbers do.
///
/// ```
/// use syncguard::Fence;
///
/// let fence = Fence::new(42)?;
/// assert_eq!(fence.to_string(), "000000000000042");
/// assert_eq!(fence.get(), 42);
///
/// let column = i64::from(fence); // for a BIGINT; no cast
/// assert_eq!(Fence::try_from(column)?, fence);
/// assert_eq!("000000000000042".parse::<Fence>()?, fence);
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(u64);

impl Fence {
    /// What a store without fencing grants in place of a fence: the number 0, which no store with fencing grants. It is smaller
    /// than every fence, so a resource that has seen one refuses it.
    pub const NONE: Self = Self(0);

    /// Whether this is [`NONE`](Self::NONE): the store has no fencing, and the resource cannot tell a former holder by it.
    ///
    /// ```
    /// use syncguard::Fence;
    ///
    /// assert!(Fence::NONE.is_none());
    /// assert!(Fence::NONE < Fence::new(1)?);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Checks that a number fits 15 digits.
    ///
    /// ```
    /// use syncguard::Fence;
    ///
    /// assert_eq!(Fence::new(7)?.get(), 7);
    /// assert!(Fence::new(1_000_000_000_000_000).is_err());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for anything longer: it is no fence of this library.
    pub fn new(n: u64) -> Result<Self, LockError> {
        if n > FENCE_CEILING {
            Err(LockError::invalid("a fence has at most 15 digits"))
        } else {
            Ok(Self(n))
        }
    }

    /// Reads the 15-digit text of a fence, as `Display` writes it.
    ///
    /// ```
    /// use syncguard::Fence;
    ///
    /// assert_eq!(Fence::parse("000000000000042")?, Fence::new(42)?);
    /// assert!(Fence::parse("42").is_err());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) unless the text is exactly 15 digits: it is no fence of this library.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        if text.len() == 15
            && text.bytes().all(|b| b.is_ascii_digit())
            && let Ok(n) = text.parse()
        {
            return Self::new(n);
        }
        Err(LockError::invalid("a fence is exactly 15 digits"))
    }

    /// The number.
    ///
    /// ```
    /// assert_eq!(syncguard::Fence::new(42)?.get(), 42);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn get(self) -> u64 {
        self.0
    }

    /// The fence after a stored counter: the check every backend makes before it writes anything.
    ///
    /// ```
    /// use syncguard::{Fence, MAX_FENCE};
    ///
    /// assert_eq!(Fence::after(41)?, Fence::new(42)?);
    /// assert!(Fence::after(MAX_FENCE as i64).is_err());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`Internal`](crate::ErrorCode::Internal) if the counter is negative or at its limit: write nothing, and answer this error.
    pub fn after(counter: i64) -> Result<Self, LockError> {
        match u64::try_from(counter) {
            Ok(n) if n < MAX_FENCE => Ok(Self(n + 1)),
            Ok(_) => Err(LockError::internal(
                "the fence counter of this key has reached its limit; the lock was not taken",
            )
            .nothing_applied()),
            Err(_) => Err(LockError::internal(
                "the stored fence counter of this key is not a counter; the lock was not taken",
            )
            .nothing_applied()),
        }
    }

    /// The fence after a stored counter in a store whose fences come from its clock ([`FenceSource::Clock`]): the larger of
    /// [`after`](Self::after) and `now_ms`, the store's time in Unix milliseconds.
    ///
    /// ```
    /// use syncguard::Fence;
    ///
    /// let now_ms = 1_794_786_911_069;
    /// assert_eq!(Fence::after_by_clock(41, now_ms)?.get(), 1_794_786_911_069);
    /// assert_eq!(Fence::after_by_clock(now_ms, now_ms)?.get(), 1_794_786_911_070);
    /// assert!(Fence::after_by_clock(41, 5_000_000_000_001).is_err());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`Internal`](crate::ErrorCode::Internal) if the counter is negative or at its limit, or the time is later than 5 000 000 000 000
    /// (the year 2128): write nothing, and answer this error.
    pub fn after_by_clock(counter: i64, now_ms: i64) -> Result<Self, LockError> {
        let next = Self::after(counter)?;
        if now_ms > MAX_CLOCK_MS {
            return Err(clock_is_wrong());
        }
        Ok(next.max(Self(u64::try_from(now_ms).unwrap_or(0))))
    }
}

/// The error for a store whose clock may not become a fence.
pub(crate) fn clock_is_wrong() -> LockError {
    LockError::internal(CLOCK_IS_WRONG).nothing_applied()
}

/// What is said of such a clock.
pub(crate) const CLOCK_IS_WRONG: &str = "the store's clock shows a time after the year 2128, which must not become a fence; set it right. The lock was not taken";

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:015}", self.0)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({self})")
    }
}

impl FromStr for Fence {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for Fence {
    type Error = LockError;

    fn try_from(text: &str) -> Result<Self, LockError> {
        Self::parse(text)
    }
}

impl TryFrom<u64> for Fence {
    type Error = LockError;

    fn try_from(n: u64) -> Result<Self, LockError> {
        Self::new(n)
    }
}

impl TryFrom<i64> for Fence {
    type Error = LockError;

    fn try_from(n: i64) -> Result<Self, LockError> {
        match u64::try_from(n) {
            Ok(n) => Self::new(n),
            Err(_) => Err(LockError::invalid("a fence is not negative")),
        }
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> Self {
        fence.0
    }
}

impl From<Fence> for i64 {
    fn from(fence: Fence) -> Self {
        // 15 digits always fit.
        fence.0 as Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_clock_moves_fences_forward_and_never_back() {
        let next = |counter, now| Fence::after_by_clock(counter, now).map(Fence::get).ok();
        assert_eq!(next(0, 1_794_786_911_069), Some(1_794_786_911_069));
        assert_eq!(next(5, 6), Some(6));
        assert_eq!(next(5, 5), Some(6));
        assert_eq!(next(5, -1), Some(6));
        assert_eq!(next(5, i64::MIN), Some(6));
        assert_eq!(next(0, MAX_CLOCK_MS), Some(MAX_CLOCK_MS as u64));
        assert_eq!(next(0, MAX_CLOCK_MS + 1), None);
        assert_eq!(next(MAX_CLOCK_MS, MAX_CLOCK_MS + 1), None);
        assert_eq!(next(MAX_FENCE as i64, 1), None);
        assert_eq!(next(-1, 1), None);
        let error = Fence::after_by_clock(0, i64::MAX).expect_err("a wrong clock");
        assert!(!error.may_have_applied());
    }

    #[test]
    fn the_limit_stands_before_the_next_fence() {
        assert_eq!(Fence::after(0).map(Fence::get).ok(), Some(1));
        assert_eq!(
            Fence::after(MAX_FENCE as i64 - 1).map(Fence::get).ok(),
            Some(MAX_FENCE)
        );
        for bad in [MAX_FENCE as i64, 999_999_999_999_999, 1 << 53, i64::MAX, -1] {
            assert_eq!(
                Fence::after(bad).map_err(|e| e.code()),
                Err(crate::ErrorCode::Internal),
                "{bad}"
            );
        }
    }

    proptest! {
        #[test]
        fn fence_text_orders_as_its_number(a in 0u64..=FENCE_CEILING, b in 0u64..=FENCE_CEILING) {
            let (x, y) = (Fence::new(a).expect("fits"), Fence::new(b).expect("fits"));
            prop_assert_eq!(x.cmp(&y), x.to_string().cmp(&y.to_string()));
            prop_assert_eq!(Fence::parse(&x.to_string()).ok(), Some(x));
        }
    }
}
