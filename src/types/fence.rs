//! [`Fence`]: the number by which a resource refuses a former holder.

use std::fmt;
use std::str::FromStr;

use crate::types::error::LockError;

/// The largest fence a store may hand out; above it acquiring fails, before anything is written.
pub const MAX_FENCE: u64 = 900_000_000_000_000;
/// Above this a warning is given. The limit is still far, but some loop acquires the lock billions of times.
pub(crate) const WARN_FENCE: u64 = 90_000_000_000_000;
const FENCE_CEILING: u64 = 999_999_999_999_999;

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
}

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
