//! [`LockId`]: the proof that a caller owns a lock. [`IntoLockId`]: what may name a grant in a call. It uses `error`, `key`,
//! `random` and `sealed`.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::types::error::LockError;
use crate::types::random::random_bytes;
use crate::types::sealed::Sealed;

const ID_LEN: usize = 22;

/// The id of one grant, minted by the caller that acquires: 128 random bits from the operating system as 22 base64url characters.
///
/// It is the proof of ownership: a program that knows it can release or extend the lock. So nothing prints it by accident:
/// `Debug` shows the [hash for logs](Self::log_hash) only, and there is no `Display`. [`as_str`](Self::as_str) gives the text.
///
/// ```
/// use syncguard::LockId;
///
/// let id = LockId::random()?;
/// assert_eq!(LockId::parse(id.as_str())?, id);
/// assert_eq!(id.as_str().parse::<LockId>()?, id);
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId([u8; ID_LEN]);

impl LockId {
    /// A new id, straight from the operating system: a user-space generator would repeat itself in a forked child.
    ///
    /// ```
    /// use syncguard::LockId;
    ///
    /// assert_ne!(LockId::random()?, LockId::random()?);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`Internal`](crate::ErrorCode::Internal) if the operating system has no randomness to give: repair the system.
    pub fn random() -> Result<Self, LockError> {
        let mut bits = [0u8; 16];
        random_bytes(&mut bits)?;
        Ok(Self::from_bits(&bits))
    }

    /// Checks a text to be a lock id.
    ///
    /// ```
    /// use syncguard::LockId;
    ///
    /// assert_eq!(LockId::parse("AAAAAAAAAAAAAAAAAAAAAA")?.as_str().len(), 22);
    /// assert!(LockId::parse("too short").is_err());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) unless it is exactly 22 of `[A-Za-z0-9_-]`: it is no lock id. The
    /// message does not repeat it.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        match <[u8; ID_LEN]>::try_from(text.as_bytes()) {
            Ok(bytes) if Self::is_well_formed(text) => Ok(Self(bytes)),
            _ => Err(LockError::invalid(
                "the lock id is not 22 base64url characters",
            )),
        }
    }

    /// The 22 characters.
    ///
    /// ```
    /// assert_eq!(syncguard::LockId::random()?.as_str().len(), 22);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn as_str(&self) -> &str {
        // The constructors let in ASCII only.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The same, for stores that send bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What a log may hold in place of the id: [`hash_key`](crate::hash_key) of it, 24 hex digits. Fields named `lock_id_hash`
    /// hold this. It tells ids apart; it is not for security.
    ///
    /// ```
    /// use syncguard::{LockId, hash_key};
    ///
    /// let id = LockId::random()?;
    /// assert_eq!(id.log_hash(), hash_key(id.as_str()));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn log_hash(&self) -> String {
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
        write!(f, "LockId(#{})", self.log_hash())
    }
}

impl FromStr for LockId {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for LockId {
    type Error = LockError;

    fn try_from(text: &str) -> Result<Self, LockError> {
        Self::parse(text)
    }
}

/// What names a grant in a call: a [`LockId`], a `&LockId`, a `&str`, a `String` or a `&String`.
///
/// A text is checked as in [`LockId::parse`]. The methods of [`Client`](crate::Client) take any of these. Other types cannot
/// implement it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// let guard = client.lock("invoice:42")?;
/// assert!(client.owns(guard.lock_id())?);
/// assert!(client.owns(guard.lock_id().as_str())?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait IntoLockId: Sealed {
    /// The lock id. Does not allocate.
    ///
    /// ```
    /// use syncguard::{IntoLockId, LockId};
    ///
    /// let id = LockId::random()?;
    /// assert_eq!(id.as_str().into_lock_id()?, id);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a text that is no lock id, as [`LockId::parse`]: there is no such
    /// lock.
    fn into_lock_id(self) -> Result<LockId, LockError>;
}

impl Sealed for LockId {}
impl IntoLockId for LockId {
    fn into_lock_id(self) -> Result<LockId, LockError> {
        Ok(self)
    }
}

impl Sealed for &LockId {}
impl IntoLockId for &LockId {
    fn into_lock_id(self) -> Result<LockId, LockError> {
        Ok(*self)
    }
}

impl IntoLockId for &str {
    fn into_lock_id(self) -> Result<LockId, LockError> {
        LockId::parse(self)
    }
}

/// An iterator over `&[&str]` gives these.
impl IntoLockId for &&str {
    fn into_lock_id(self) -> Result<LockId, LockError> {
        LockId::parse(self)
    }
}

impl IntoLockId for String {
    fn into_lock_id(self) -> Result<LockId, LockError> {
        LockId::parse(&self)
    }
}

impl IntoLockId for &String {
    fn into_lock_id(self) -> Result<LockId, LockError> {
        LockId::parse(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
