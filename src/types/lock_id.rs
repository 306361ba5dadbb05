//! [`LockId`]: the proof that a caller owns a lock.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::types::error::LockError;
use crate::types::random::random_bytes;

const ID_LEN: usize = 22;

/// The id of one grant, minted by the caller that acquires: 128 random bits from the operating system as 22 base64url characters.
///
/// It is the proof of ownership: a program that knows it can release or extend the lock. `Debug` shows the [hash](Self::hash) only.
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
        // The constructors let in ASCII only.
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
