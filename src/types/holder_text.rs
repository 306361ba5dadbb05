//! [`HolderText`]: what a holder says of itself, stored beside its lock and shown to people. It uses `error` alone.

use std::fmt;
use std::sync::Arc;

use crate::types::error::LockError;

/// The longest text, in bytes of UTF-8.
pub const MAX_HOLDER_BYTES: usize = 200;

/// What a holder says of itself: at most [`MAX_HOLDER_BYTES`] bytes of printable UTF-8, or nothing.
///
/// It is stored beside the lock and shown by the diagnostics that show raw data, so that a person can find the program. It is
/// never trusted: any program that can write to the store can write any text. `Debug` does not show it.
///
/// ```
/// use syncguard::HolderText;
///
/// let text = HolderText::new("build-7/nightly")?;
/// assert_eq!(text.as_str(), "build-7/nightly");
/// assert!(HolderText::new("two\nlines").is_err());
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HolderText(Arc<str>);

impl HolderText {
    /// A checked text. An empty one means that nothing is stored.
    ///
    /// ```
    /// assert!(syncguard::HolderText::new("")?.is_empty());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a text that is too long or has characters that cannot be shown:
    /// choose another one.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, LockError> {
        let text = text.into();
        if text.len() > MAX_HOLDER_BYTES {
            return Err(LockError::invalid(format!(
                "the holder text has {} bytes; at most {MAX_HOLDER_BYTES} are allowed",
                text.len()
            )));
        }
        if !text.chars().all(is_printable) {
            return Err(LockError::invalid(
                "the holder text has a character that cannot be shown: a control character, a line end or a format character",
            ));
        }
        Ok(Self(text))
    }

    /// The text that is made of `text` by replacing what cannot be shown and cutting it to the longest length.
    pub(crate) fn lossy(text: &str) -> Self {
        let mut out = String::with_capacity(text.len().min(MAX_HOLDER_BYTES));
        for c in text.chars() {
            let c = if is_printable(c) { c } else { '?' };
            if out.len() + c.len_utf8() > MAX_HOLDER_BYTES {
                break;
            }
            out.push(c);
        }
        Self(out.into())
    }

    /// A text that was read from a store, if it is one that could have been written: any program may have written it.
    #[cfg_attr(
        not(any(feature = "redis", feature = "postgres", feature = "sqlite")),
        allow(dead_code)
    )]
    pub(crate) fn read(text: &str) -> Option<String> {
        let is_text =
            !text.is_empty() && text.len() <= MAX_HOLDER_BYTES && text.chars().all(is_printable);
        is_text.then(|| text.to_owned())
    }

    /// The text as a table stores it: behind the lock id, so that another grant of the row does not show it. `None` if it is empty. For
    /// backends of your own.
    ///
    /// ```
    /// use syncguard::HolderText;
    ///
    /// assert_eq!(HolderText::new("cron")?.bound_to("id").as_deref(), Some("id cron"));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn bound_to(&self, lock_id: &str) -> Option<String> {
        (!self.is_empty()).then(|| format!("{lock_id} {}", self.0))
    }

    /// The text of `stored`, if it is bound to this lock id.
    #[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), allow(dead_code))]
    pub(crate) fn read_bound(stored: &str, lock_id: &str) -> Option<String> {
        Self::read(stored.strip_prefix(lock_id)?.strip_prefix(' ')?)
    }

    /// The text.
    ///
    /// ```
    /// assert_eq!(syncguard::HolderText::new("cron")?.as_str(), "cron");
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether nothing is to be stored.
    ///
    /// ```
    /// assert!(!syncguard::HolderText::new("cron")?.is_empty());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for HolderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HolderText({} bytes)", self.0.len())
    }
}

/// Whether a terminal shows the character as it is. Control and format characters can hide or reorder what is shown.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // Rust escapes what cannot be shown, and combining characters only where none stands before them.
    let shown = ['a', c];
    let mut text = [0; 8];
    let text: &str = {
        let mut at = 0;
        for c in shown {
            at += c.encode_utf8(&mut text[at..]).len();
        }
        std::str::from_utf8(&text[..at]).unwrap_or_default()
    };
    text.escape_debug().eq(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_shown_is_a_text() {
        for good in ["", "a b", "host/1/x'\"\\", "é", "e\u{301}", "日本語", "😀"] {
            assert_eq!(HolderText::new(good).expect(good).as_str(), good);
        }
        for bad in [
            "\n",
            "a\0",
            "\u{1b}[2J",
            "\u{7f}",
            "\u{85}",
            "\u{202e}",
            "\u{200b}",
            "\u{2028}",
            "\u{feff}",
            "\u{e000}",
        ] {
            assert!(HolderText::new(bad).is_err(), "{bad:?}");
            assert_eq!(HolderText::read(bad), None, "{bad:?}");
            assert!(!HolderText::lossy(bad).as_str().contains(bad), "{bad:?}");
        }
        assert!(HolderText::new("x".repeat(MAX_HOLDER_BYTES)).is_ok());
        assert!(HolderText::new("x".repeat(MAX_HOLDER_BYTES + 1)).is_err());
        assert_eq!(HolderText::lossy(&"é".repeat(150)).as_str().len(), 200);
        assert_eq!(
            HolderText::lossy(&format!("x{}", "é".repeat(150)))
                .as_str()
                .len(),
            199
        );
    }

    #[test]
    fn a_text_is_shown_for_its_own_lock_alone() {
        let text = HolderText::new("a b").expect("a text");
        let stored = text.bound_to("id").expect("not empty");
        assert_eq!(
            HolderText::read_bound(&stored, "id").as_deref(),
            Some("a b")
        );
        assert_eq!(HolderText::read_bound(&stored, "other"), None);
        assert_eq!(HolderText::read_bound("id", "id"), None);
        assert_eq!(HolderText::read_bound("id ", "id"), None);
        assert_eq!(HolderText::new("").expect("a text").bound_to("id"), None);
    }
}
