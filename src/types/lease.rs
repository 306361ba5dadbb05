//! What a store grants: ids, fences, TTLs and who holds a key.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::types::error::LockError;
use crate::types::liveness;

const ID_LEN: usize = 22;

/// The id of one grant, minted by whoever acquires: 128 random bits from the operating system as 22 base64url characters.
///
/// It is the proof of ownership: who knows it can release or extend the lock. `Debug` shows the [hash](Self::hash) only.
///
/// ```
/// use syncguard::LockId;
///
/// let id = LockId::random()?;
/// assert_eq!(LockId::parse(id.as_str())?, id);
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId([u8; ID_LEN]);

impl LockId {
    /// A new id, straight from the operating system: a user-space generator would repeat itself in a forked child.
    ///
    /// # Errors
    /// `Internal` if the operating system has no randomness to give.
    pub fn random() -> Result<Self, LockError> {
        let mut bits = [0u8; 16];
        random_bytes(&mut bits)?;
        Ok(Self::from_bits(&bits))
    }

    /// Checks a text to be a lock id.
    ///
    /// # Errors
    /// `InvalidArgument` unless it is exactly 22 of `[A-Za-z0-9_-]`. The message does not repeat it.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        match <[u8; ID_LEN]>::try_from(text.as_bytes()) {
            Ok(bytes) if Self::is_well_formed(text) => Ok(Self(bytes)),
            _ => Err(LockError::invalid(
                "the lock id is not 22 base64url characters",
            )),
        }
    }

    /// The 22 characters.
    pub fn as_str(&self) -> &str {
        // Only ASCII gets in through the doors above.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The id's hash for logs and displays.
    pub fn hash(&self) -> String {
        crate::types::key::hash_key(self.as_str())
    }

    pub(crate) fn is_well_formed(text: &str) -> bool {
        text.len() == ID_LEN
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    }

    pub(crate) fn zero() -> Self {
        Self::from_bits(&[0; 16])
    }

    fn from_bits(bits: &[u8; 16]) -> Self {
        let mut text = [0u8; ID_LEN];
        // 16 bytes are exactly 22 characters: the slice can be neither too short nor too long.
        let written = URL_SAFE_NO_PAD.encode_slice(bits, &mut text);
        debug_assert_eq!(written, Ok(ID_LEN));
        Self(text)
    }
}

impl fmt::Debug for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockId(#{})", self.hash())
    }
}

/// Randomness straight from the operating system.
pub(crate) fn random_bytes(into: &mut [u8]) -> Result<(), LockError> {
    getrandom::fill(into).map_err(|e| {
        LockError::internal("the operating system gives no random bytes")
            .with_source(e)
            .nothing_applied()
    })
}

/// 64 random bits for jitter; where the system has none, jitter may do without.
pub(crate) fn random_bits() -> u64 {
    let mut bytes = [0u8; 8];
    match random_bytes(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => 0,
    }
}

/// The largest fence a store may hand out; above it acquiring fails, before anything is written.
pub const MAX_FENCE: u64 = 900_000_000_000_000;
/// Above this a warning is given: nine tenths of nothing are left, but somebody's loop is acquiring billions of times.
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
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(u64);

impl Fence {
    /// Checks that a number fits 15 digits.
    ///
    /// # Errors
    /// `InvalidArgument` for anything longer.
    pub fn new(n: u64) -> Result<Self, LockError> {
        if n > FENCE_CEILING {
            Err(LockError::invalid("a fence has at most 15 digits"))
        } else {
            Ok(Self(n))
        }
    }

    /// Reads the 15-digit text of a fence.
    ///
    /// # Errors
    /// `InvalidArgument` unless the text is exactly 15 digits.
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
    pub fn get(self) -> u64 {
        self.0
    }

    /// The fence after a stored counter: the check every backend makes before it writes anything.
    ///
    /// # Errors
    /// `Internal` if the counter is negative or at its limit; nothing may be written then.
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
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ttl(i64);

impl Ttl {
    /// Rounds `duration` up to whole milliseconds and checks it.
    ///
    /// # Errors
    /// `InvalidArgument` for zero and for more than ten years.
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
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// The same as a [`Duration`].
    pub fn as_duration(self) -> Duration {
        Duration::from_millis(self.0.unsigned_abs())
    }
}

/// A grant, as the store stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Acquired {
    /// The id the caller minted.
    pub lock_id: LockId,
    /// The fencing token of this grant.
    pub fence: Fence,
    /// When the lease ends, on the store's clock (Unix milliseconds). Compare it with nothing local; see
    /// [`Guard::remaining`](crate::Guard::remaining).
    pub expires_at_ms: i64,
}

impl Acquired {
    /// A grant. For backends of your own.
    pub fn new(lock_id: LockId, fence: Fence, expires_at_ms: i64) -> Self {
        Self {
            lock_id,
            fence,
            expires_at_ms,
        }
    }
}

/// Who holds a key, as far as a contended attempt learnt it without another trip. Nothing in it is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The hash of the holder's lock id.
    pub lock_id_hash: Option<String>,
    /// The holder's fence.
    pub fence: Option<Fence>,
    /// How long its lease still ran at that moment.
    pub remaining: Option<Duration>,
    /// How long until the lock can be taken if nobody renews or releases it; zero is unknown too.
    free_in: Option<Duration>,
}

impl Holder {
    /// What is known of a holder. For backends of your own.
    pub fn new(
        lock_id_hash: Option<String>,
        fence: Option<Fence>,
        remaining: Option<Duration>,
    ) -> Self {
        Self {
            lock_id_hash,
            fence,
            remaining,
            free_in: remaining,
        }
    }

    /// A holder whose lease has `left_ms` to go, less than zero once it is in the tolerance.
    pub(crate) fn with_left(
        lock_id_hash: Option<String>,
        fence: Option<Fence>,
        left_ms: i64,
    ) -> Self {
        let remaining = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
        Self::new(lock_id_hash, fence, Some(remaining)).free_in(liveness::free_in(left_ms))
    }

    /// For stores that free a lock at another time than the end of its lease.
    pub(crate) fn free_in(mut self, time: Duration) -> Self {
        self.free_in = Some(time);
        self
    }

    /// When who waits should look again although nobody calls: a holder may have died.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.free_in.filter(|time| !time.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_are_well_formed_and_differ() {
        let ids: std::collections::HashSet<_> = (0..1000)
            .map(|_| LockId::random().expect("randomness"))
            .collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| LockId::is_well_formed(id.as_str())));
    }

    #[test]
    fn a_bad_id_is_not_repeated_in_the_message() {
        for bad in [
            "",
            "abcdefghijklmnopqrstu",
            "abcdefghijklmnopqrstuvw",
            "abcdefghijklmnopqrst+/",
            "abcdefghijklmnopqrst==",
        ] {
            let error = LockId::parse(bad).expect_err("not an id");
            assert!(bad.is_empty() || !error.to_string().contains(bad));
        }
    }

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
