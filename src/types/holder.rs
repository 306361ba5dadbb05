//! [`Holder`]: what a refused caller learns of the lock's holder.

use std::time::Duration;

use crate::types::fence::Fence;
use crate::types::liveness;

/// The holder of a key, as far as a contended attempt learnt it without another trip. Nothing in it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Holder {
    /// The hash of the holder's lock id.
    pub lock_id_hash: Option<String>,
    /// The holder's fence.
    pub fence: Option<Fence>,
    /// How long its lease still ran at that moment.
    pub remaining: Option<Duration>,
    /// How long until the lock can be taken if it is neither renewed nor released; zero is unknown too.
    free_in: Option<Duration>,
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
        }
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
