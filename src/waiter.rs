//! [`Waiter`]: a place in line for callers whose threads must not block.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::callbacks::guarded;
use crate::client::{Client, Tried};
use crate::error::LockError;
use crate::guard::Guard;
use crate::key::Key;
use crate::options::LockOptions;
use crate::queue::Place;
use crate::sync::Mutex;
use crate::wake::Wake;

/// A place in the line of a key, for callers that wait by themselves between single attempts: bindings to languages with
/// their own threads. [`Client::lock`] does all of this for you.
///
/// Make one before the first attempt ([`Client::enter_line`]) and [try](Self::try_lock) whenever it is
/// [called](Self::is_called); also when your own delay ([`LockOptions::delay_after`]) or the
/// [holder's lease](Self::lease_left) is over and it [is first](Self::is_first). Who is alone is called at once; of many who
/// come together one asks the store. Dropping it leaves the line and passes the turn on.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// use syncguard::LockOptions;
///
/// let held = client.lock("k")?;
/// let (wake, woken) = std::sync::mpsc::channel();
/// let waiter = client.enter_line("k", move || drop(wake.send(())))?;
/// assert!(waiter.is_called() && waiter.try_lock(&LockOptions::new())?.is_none());
/// drop(held);
/// let guard = loop {
///     if waiter.is_called()
///         && let Some(guard) = waiter.try_lock(&LockOptions::new())?
///     {
///         break guard;
///     }
///     woken.recv()?;
/// };
/// assert_eq!(guard.fence().get(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a waiter that is not kept has left the line"]
pub struct Waiter {
    place: Place,
    client: Client,
    /// When the holder's lease ends that the last attempt met.
    lease: Mutex<Option<Instant>>,
    /// The last attempt got no answer: whether the lock is free is for the next in line to find out.
    unanswered: AtomicBool,
}

impl Waiter {
    /// Joins the line. The store is not asked to call before an attempt has met a holder: most locks are free.
    pub(crate) fn enter(
        client: &Client,
        key: &str,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, LockError> {
        client.refuse_inherited()?;
        let key = Key::new(key)?;
        let place = client.queue().join(&key, Arc::new(Callback(wake)));
        Ok(Self {
            place,
            client: client.clone(),
            lease: Mutex::new(None),
            unanswered: AtomicBool::new(false),
        })
    }

    pub(crate) fn new(
        client: &Client,
        key: &str,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, LockError> {
        let waiter = Self::enter(client, key, wake)?;
        waiter.listen();
        Ok(waiter)
    }

    /// One attempt, whatever the options say of waiting; `None` if somebody holds the lock. Says
    /// [`begin_attempt`](Self::begin_attempt) itself. It asks the store also if this one is not first: whoever leaves
    /// without ever having been first may do that once.
    ///
    /// # Errors
    /// As [`Client::try_lock_with`]. The place stays.
    pub fn try_lock(&self, options: &LockOptions) -> Result<Option<Guard>, LockError> {
        self.client.refuse_inherited()?;
        if self.place.is_first() {
            self.place.begin_attempt();
        }
        self.unanswered.store(true, Ordering::Relaxed);
        let tried = self.client.try_once(self.place.key().clone(), options)?;
        self.unanswered.store(false, Ordering::Relaxed);
        match tried {
            Tried::Granted(guard) => Ok(Some(guard)),
            Tried::Locked(holder) => {
                let left = holder.and_then(|holder| holder.remaining);
                *self.lease.lock() = left.and_then(|left| Instant::now().checked_add(left));
                self.listen();
                Ok(None)
            }
        }
    }

    /// How much is left of the lease that the last attempt met, if the store told; `None` once it is over.
    pub fn lease_left(&self) -> Option<Duration> {
        let ends = (*self.lease.lock())?;
        ends.checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
    }

    /// Whether an attempt is worth making now: this one is first in line and the lock may have been freed.
    pub fn is_called(&self) -> bool {
        self.is_here() && self.place.is_called()
    }

    /// Whether it is this one's turn to ask the store for all who wait here.
    pub fn is_first(&self) -> bool {
        self.is_here() && self.place.is_first()
    }

    /// Says that an attempt is about to be made elsewhere: what is freed from here on calls again.
    pub fn begin_attempt(&self) {
        if self.is_here() {
            self.place.begin_attempt();
            self.listen();
        }
    }

    /// The first in line has the store call, for all.
    fn listen(&self) {
        if self.place.is_first() {
            self.place.watch(self.client.backend());
        }
    }

    /// False in a forked child, where the line's mutex may be locked for ever.
    fn is_here(&self) -> bool {
        self.client.refuse_inherited().is_ok()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if *self.unanswered.get_mut() && self.is_here() {
            self.client.queue().freed(self.place.key());
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiter")
    }
}

struct Callback<F>(F);

impl<F: Fn() + Send + Sync> Wake for Callback<F> {
    /// Called in the middle of somebody else's release, and by threads that serve all who wait: a panic ends here.
    fn wake(&self) {
        guarded(&self.0);
    }
}
