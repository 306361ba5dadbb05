//! [`Waiter`]: a place in line for callers whose threads must not block.

use std::fmt;
use std::sync::Arc;

use crate::callbacks::guarded;
use crate::client::Client;
use crate::error::LockError;
use crate::key::Key;
use crate::queue::Place;
use crate::wake::Wake;

/// A place in the line of a key, for callers that wait by themselves between single attempts: bindings to languages with
/// their own threads. [`Client::lock`] does all of this for you.
///
/// Make one after an attempt found the lock held; try again when it is [called](Self::is_called), or when your own delay
/// ([`LockOptions::delay_after`](crate::LockOptions::delay_after)) has passed and it [is first](Self::is_first); say
/// [`begin_attempt`](Self::begin_attempt) before each attempt. Dropping it leaves the line and passes the turn on.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// let held = client.lock("k")?;
/// assert!(client.try_lock("k")?.is_none());
/// let (wake, woken) = std::sync::mpsc::channel();
/// let waiter = client.waiter("k", move || drop(wake.send(())))?;
/// drop(held);
/// let guard = loop {
///     if waiter.is_called() {
///         waiter.begin_attempt();
///         if let Some(guard) = client.try_lock("k")? {
///             break guard;
///         }
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
}

impl Waiter {
    pub(crate) fn new(
        client: &Client,
        key: &str,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, LockError> {
        client.refuse_inherited()?;
        let key = Key::new(key)?;
        let place = client.queue().join(&key, Arc::new(Callback(wake)));
        let waiter = Self {
            place,
            client: client.clone(),
        };
        waiter.listen();
        Ok(waiter)
    }

    /// Whether an attempt is worth making now: this one is first in line and the lock may have been freed.
    pub fn is_called(&self) -> bool {
        self.is_here() && self.place.is_called()
    }

    /// Whether it is this one's turn to ask the store for all who wait here.
    pub fn is_first(&self) -> bool {
        self.is_here() && self.place.is_first()
    }

    /// Says that an attempt is about to be made: what is freed from here on calls again.
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
