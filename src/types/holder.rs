//! [`Holder`]: what a refused caller learns of the lock's holder. It uses `fence` and `liveness`.

use std::fmt;
use std::time::Duration;

use crate::types::fence::Fence;
use crate::types::liveness;

/// The holder of a key, as far as a contended attempt learnt it without another trip. Its public fields are not secret, and `Debug`
/// shows only these; so does `Serialize`, with the feature `serde`.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// use std::time::Duration;
/// use syncguard::LockOptions;
///
/// let _other = client.lock("nightly")?;
/// let options = LockOptions::new().acquire_timeout(Duration::ZERO);
/// let error = client.lock_with("nightly", &options).unwrap_err();
/// let holder = error.holder().expect("the store names it");
/// assert_eq!(holder.fence, Some(syncguard::Fence::new(1)?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Holder {
    /// The hash of the holder's lock id.
    pub lock_id_hash: Option<String>,
    /// The holder's fence.
    pub fence: Option<Fence>,
    /// How long its lease still ran at that moment.
    pub remaining: Option<Duration>,
    /// How long until the lock can be taken if it is neither renewed nor released; zero is unknown too.
    #[cfg_attr(feature = "serde", serde(skip))]
    free_in: Option<Duration>,
    /// What it says of itself.
    #[cfg_attr(feature = "serde", serde(skip))]
    text: Option<String>,
}

impl Holder {
    /// What is known of a holder. For backends of your own.
    ///
    /// ```
    /// use syncguard::{Fence, Holder};
    ///
    /// let holder = Holder::new(None, Some(Fence::new(7)?), None);
    /// assert_eq!(holder.fence, Some(Fence::new(7)?));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
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
            text: None,
        }
    }

    /// What the holder says of itself, as [`LockOptions::holder`](crate::LockOptions::holder) set it. Raw data: it is for people, and
    /// any program that can write to the store can write any text.
    ///
    /// ```
    /// use syncguard::Holder;
    ///
    /// assert_eq!(Holder::new(None, None, None).text(), None);
    /// ```
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The same holder, which says this of itself. For backends of your own.
    ///
    /// ```
    /// use syncguard::Holder;
    ///
    /// let holder = Holder::new(None, None, None).with_text("build-7/nightly");
    /// assert_eq!(holder.text(), Some("build-7/nightly"));
    /// ```
    #[must_use]
    pub fn with_text(self, text: impl Into<String>) -> Self {
        self.saying(Some(text.into()))
    }

    pub(crate) fn saying(mut self, text: Option<String>) -> Self {
        self.text = text;
        self
    }

    /// A holder whose lease has `left_ms` to go, less than zero once it is in the tolerance.
    pub(crate) fn with_left(
        lock_id_hash: Option<String>,
        fence: Option<Fence>,
        left_ms: i64,
    ) -> Self {
        let remaining = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
        Self::new(lock_id_hash, fence, Some(remaining)).with_free_in(liveness::free_in(left_ms))
    }

    /// For stores that free a lock at another time than the end of its lease.
    pub(crate) fn with_free_in(mut self, time: Duration) -> Self {
        self.free_in = Some(time);
        self
    }

    /// After which time a waiter looks again although no release called it: the holder may have died.
    pub(crate) fn time_until_free(&self) -> Option<Duration> {
        self.free_in.filter(|time| !time.is_zero())
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("lock_id_hash", &self.lock_id_hash)
            .field("fence", &self.fence)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}
