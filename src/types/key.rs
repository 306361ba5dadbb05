//! [`Key`]: a name that was checked. Every name enters here. [`IntoKey`]: what may name a lock in a call. It uses `error` and
//! `sealed`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::types::error::LockError;
use crate::types::sealed::Sealed;

/// The longest key, in bytes of UTF-8 after NFC.
pub const MAX_KEY_BYTES: usize = 512;

/// A checked lock name: Unicode NFC, 1 to 512 bytes of UTF-8, no U+0000.
///
/// Two texts that are the same after normalisation name the same lock. Case and spaces count.
/// Cheap to clone: clones share the text. A program that takes one lock often makes the key once and passes `&key`, which is
/// not checked again.
///
/// A key may hold a customer's name or a secret, so nothing prints it by accident: `Debug` shows the
/// [hash for logs](Self::log_hash) only, and there is no `Display`. [`as_str`](Self::as_str) gives the text.
///
/// ```
/// use syncguard::Key;
///
/// let key = Key::new("invoice:42")?;
/// assert_eq!(key.as_str(), "invoice:42");
/// assert_eq!(Key::new("cafe\u{301}")?, Key::new("caf\u{e9}")?);
///
/// let parsed: Key = "invoice:42".parse()?;
/// assert_eq!(Key::try_from(String::from("invoice:42"))?, parsed);
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

impl Key {
    /// Normalises and checks `text`.
    ///
    /// ```
    /// use syncguard::{ErrorCode, Key};
    ///
    /// let key = Key::new("invoice:42")?;
    /// assert_eq!(Key::new("").unwrap_err().code(), ErrorCode::InvalidArgument);
    /// # drop(key);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the text is empty, longer than 512 bytes after NFC, or holds U+0000:
    /// use another text, such as a hash of it.
    pub fn new(text: &str) -> Result<Self, LockError> {
        // NFC shrinks a text to a sixth of its bytes at the most (a test counts): what is longer than
        // that cannot become legal and is not worth normalising.
        if text.len() > MAX_KEY_BYTES * 6 {
            return Err(too_long());
        }
        let text = nfc(text);
        if text.is_empty() {
            return Err(LockError::invalid("the key is empty"));
        }
        if text.len() > MAX_KEY_BYTES {
            return Err(too_long());
        }
        if text.contains('\0') {
            return Err(LockError::invalid(
                "the key holds U+0000, which not every store can keep",
            ));
        }
        Ok(Self(text.into()))
    }

    /// The normalised text.
    ///
    /// ```
    /// assert_eq!(syncguard::Key::new("cafe\u{301}")?.as_str(), "caf\u{e9}");
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What a log may hold in place of the key: [`hash_key`] of it, 24 hex digits. Fields named `key_hash` hold this. It tells
    /// keys apart; it is not for security.
    ///
    /// ```
    /// use syncguard::{Key, hash_key};
    ///
    /// assert_eq!(Key::new("user:42")?.log_hash(), hash_key("user:42"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn log_hash(&self) -> String {
        hash_normalised(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(#{})", self.log_hash())
    }
}

impl FromStr for Key {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        Self::new(text)
    }
}

impl TryFrom<&str> for Key {
    type Error = LockError;

    fn try_from(text: &str) -> Result<Self, LockError> {
        Self::new(text)
    }
}

impl TryFrom<String> for Key {
    type Error = LockError;

    fn try_from(text: String) -> Result<Self, LockError> {
        Self::new(&text)
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

/// What names a lock in a call: a `&str`, a `String`, a `&String`, a [`Key`] or a `&Key`.
///
/// A text is normalised and checked as in [`Key::new`]; a key was checked when it was made. The methods of
/// [`Client`](crate::Client) take any of these. Other types cannot implement it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// use syncguard::Key;
///
/// let key = Key::new("invoice:42")?;
/// drop(client.lock("invoice:42")?);
/// drop(client.lock(format!("invoice:{}", 42))?);
/// drop(client.lock(&key)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait IntoKey: Sealed {
    /// The key. Does not allocate for a key; once for a text.
    ///
    /// ```
    /// use syncguard::{IntoKey, Key};
    ///
    /// assert_eq!("invoice:42".into_key()?, Key::new("invoice:42")?);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a text that is no key, as [`Key::new`]: use another text.
    fn into_key(self) -> Result<Key, LockError>;
}

impl Sealed for Key {}
impl IntoKey for Key {
    fn into_key(self) -> Result<Key, LockError> {
        Ok(self)
    }
}

impl Sealed for &Key {}
impl IntoKey for &Key {
    fn into_key(self) -> Result<Key, LockError> {
        Ok(self.clone())
    }
}

impl IntoKey for &str {
    fn into_key(self) -> Result<Key, LockError> {
        Key::new(self)
    }
}

/// An iterator over `&[&str]` gives these.
impl IntoKey for &&str {
    fn into_key(self) -> Result<Key, LockError> {
        Key::new(self)
    }
}

impl IntoKey for String {
    fn into_key(self) -> Result<Key, LockError> {
        Key::new(&self)
    }
}

impl IntoKey for &String {
    fn into_key(self) -> Result<Key, LockError> {
        Key::new(self)
    }
}

fn too_long() -> LockError {
    LockError::invalid(format!(
        "the key is longer than {MAX_KEY_BYTES} bytes of UTF-8 after NFC"
    ))
}

pub(crate) fn nfc(text: &str) -> Cow<'_, str> {
    // Most names are ASCII, which is as it is.
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    match is_nfc_quick(text.chars()) {
        IsNormalized::Yes => Cow::Borrowed(text),
        _ => Cow::Owned(text.nfc().collect()),
    }
}

/// The display hash of any text: 24 lower-case hex digits over its NFC form. It tells names apart in logs; it is not a
/// cryptographic hash.
///
/// ```
/// assert_eq!(syncguard::hash_key("user:42"), "f73a5c8d07b5c5075608a93b");
/// ```
pub fn hash_key(text: &str) -> String {
    hash_normalised(&nfc(text))
}

fn hash_normalised(text: &str) -> String {
    let (mut a, mut b, mut d) = (0u32, 0u32, 0u32);
    for unit in text.encode_utf16() {
        let c = u32::from(unit);
        a = a.wrapping_mul(31).wrapping_add(c);
        b = b.wrapping_mul(127).wrapping_add(c.wrapping_mul(3));
        d = d.wrapping_mul(2047).wrapping_add(c.wrapping_mul(7));
    }
    format!("{a:08x}{b:08x}{d:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_text_that_shrinks_is_a_key() {
        // Two decomposed marks and a letter of 5 bytes become one character of 2 or 3.
        let decomposed = "s\u{323}\u{307}".repeat(170);
        assert_eq!(
            Key::new(&decomposed).map(|k| k.as_str().len()).ok(),
            Some(510)
        );
    }

    #[test]
    fn no_legal_key_is_longer_than_six_times_the_limit_before_nfc() {
        // The shortcut in `new` is right as long as no character's decomposition is over 6 times its own length.
        for c in (0..=0x10_ffffu32).filter_map(char::from_u32) {
            let plain = c.len_utf8();
            let long: usize = std::iter::once(c).nfd().map(char::len_utf8).sum();
            assert!(
                long <= plain * 6,
                "U+{:04X}: {plain} bytes decompose to {long}",
                c as u32
            );
        }
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(text in "\\PC{0,80}") {
            if let Ok(key) = Key::new(&text) {
                prop_assert_eq!(Key::new(key.as_str()).ok(), Some(key.clone()));
                prop_assert_eq!(hash_key(&text), key.log_hash());
            }
        }
    }
}
