//! Listing live locks page by page: [`ListOptions`], [`ListPage`], [`ListCursor`]. It uses `types` alone.

use std::fmt;

use crate::types::error::LockError;
use crate::types::key::{MAX_KEY_BYTES, nfc};

/// How many stored entries one call examines unless it is told otherwise.
const DEFAULT_EXAMINED: u32 = 500;
/// The most that one call may examine: a store serves no other caller while it looks.
const MAX_EXAMINED: u32 = 10_000;

/// Which locks to list, and how many stored entries one call may examine.
///
/// ```
/// use syncguard::ListOptions;
///
/// let options = ListOptions::new().prefix("invoice:").examine(1000);
/// # drop(options);
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct ListOptions {
    prefix: String,
    examine: Option<u32>,
    after: Option<ListCursor>,
}

impl ListOptions {
    /// All live locks, from the beginning; one call examines 500 stored entries.
    ///
    /// ```
    /// let options = syncguard::ListOptions::new();
    /// # drop(options);
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Only locks whose key begins with `prefix`. Default: all.
    ///
    /// ```
    /// let options = syncguard::ListOptions::new().prefix("invoice:");
    /// # drop(options);
    /// ```
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How many stored entries one call examines, about: 1 to 10 000, default 500. A page can be empty although more follow.
    ///
    /// ```
    /// let options = syncguard::ListOptions::new().examine(100);
    /// # drop(options);
    /// ```
    pub fn examine(mut self, entries: u32) -> Self {
        self.examine = Some(entries);
        self
    }

    /// The page that follows another one, with the same prefix.
    ///
    /// ```
    /// use syncguard::{ListCursor, ListOptions};
    ///
    /// let options = ListOptions::new().after(ListCursor::new("from a page"));
    /// # drop(options);
    /// ```
    pub fn after(mut self, cursor: ListCursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// The prefix, the number of entries and the cursor, checked. For backends of your own.
    ///
    /// ```
    /// use syncguard::ListOptions;
    ///
    /// let options = ListOptions::new().prefix("a");
    /// let request = options.checked()?;
    /// assert_eq!((request.prefix.as_str(), request.examine), ("a", 500));
    /// assert!(ListOptions::new().examine(0).checked().is_err());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a prefix that no key can have, or a number of entries out of its
    /// limits: correct what the message names.
    pub fn checked(&self) -> Result<ListRequest<'_>, LockError> {
        let examine = self.examine.unwrap_or(DEFAULT_EXAMINED);
        if !(1..=MAX_EXAMINED).contains(&examine) {
            return Err(LockError::invalid(format!(
                "one call of a listing examines 1 to {MAX_EXAMINED} entries, not {examine}"
            )));
        }
        let prefix = nfc(&self.prefix).into_owned();
        if prefix.len() > MAX_KEY_BYTES || prefix.contains('\0') {
            return Err(LockError::invalid(
                "no key can begin with the prefix of the listing: it is too long or has a NUL",
            ));
        }
        Ok(ListRequest {
            prefix,
            examine,
            after: self.after.as_ref(),
        })
    }
}

/// `Debug` shows neither prefix nor cursor: both can hold parts of keys.
impl fmt::Debug for ListOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListOptions")
            .field("examine", &self.examine)
            .finish_non_exhaustive()
    }
}

/// Checked [`ListOptions`]. For backends of your own.
#[derive(Clone)]
#[non_exhaustive]
pub struct ListRequest<'a> {
    /// What a key begins with, in NFC.
    pub prefix: String,
    /// How many stored entries to examine, about.
    pub examine: u32,
    /// Where the last page ended.
    pub after: Option<&'a ListCursor>,
}

impl fmt::Debug for ListRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListRequest")
            .field("examine", &self.examine)
            .finish_non_exhaustive()
    }
}

/// Where a page of a listing ended. For the same store and prefix; it may hold a raw key, and `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ListCursor(String);

impl ListCursor {
    /// The cursor that `text` is, as [`as_str`](Self::as_str) gave it. The store checks it.
    ///
    /// ```
    /// assert_eq!(syncguard::ListCursor::new("x").as_str(), "x");
    /// ```
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The cursor as a text, to go on with in another process.
    ///
    /// ```
    /// assert_eq!(syncguard::ListCursor::new("x").as_str(), "x");
    /// ```
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A cursor that is a key: the table stores list in the order of keys.
    pub(crate) fn after_key(key: &str) -> Self {
        Self(format!("key:{key}"))
    }

    /// The key of such a cursor.
    pub(crate) fn key(&self) -> Result<&str, LockError> {
        self.0.strip_prefix("key:").ok_or_else(not_ours)
    }
}

impl fmt::Debug for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListCursor")
    }
}

/// What is said of a cursor that this store did not give.
pub(crate) fn not_ours() -> LockError {
    LockError::invalid("the cursor of the listing is not one of this store; begin the listing anew")
}

/// One page of a listing. `T` is [`LockInfo`](crate::LockInfo), [`LockInfoDebug`](crate::LockInfoDebug), or
/// [`StoredLock`](crate::StoredLock) in a [`Backend`](crate::Backend).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// use syncguard::ListOptions;
///
/// let mut options = ListOptions::new();
/// loop {
///     let page = client.list(&options)?;
///     for lock in &page.locks {
///         println!("{} with fence {}", lock.key_hash, lock.fence);
///     }
///     match page.next {
///         Some(next) => options = options.after(next),
///         None => break,
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ListPage<T> {
    /// The live locks that were found, in no promised order. A lock can come twice, and one that is taken or released meanwhile can be
    /// missing.
    pub locks: Vec<T>,
    /// Where the next page begins; `None` if this is the last one.
    pub next: Option<ListCursor>,
}

impl<T> ListPage<T> {
    /// A page. For backends of your own.
    ///
    /// ```
    /// use syncguard::{ListPage, LockInfo};
    ///
    /// let last: ListPage<LockInfo> = ListPage::new(Vec::new(), None);
    /// assert!(last.next.is_none());
    /// ```
    pub fn new(locks: Vec<T>, next: Option<ListCursor>) -> Self {
        Self { locks, next }
    }

    pub(crate) fn map<U>(self, f: impl FnMut(T) -> U) -> ListPage<U> {
        ListPage {
            locks: self.locks.into_iter().map(f).collect(),
            next: self.next,
        }
    }
}
