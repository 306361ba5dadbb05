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
use crate::lease::Holder;
use crate::options::LockOptions;
use crate::queue::Place;
use crate::sync::Mutex;
use crate::wake::Wake;

/// A place in the line of a key, for callers that wait by themselves between single attempts: bindings to languages with
/// their own threads. [`Client::lock`] does all of this for you.
///
/// [`Client::lock_or_wait`] gives one if the lock is held or others came before. [Try](Self::try_lock) whenever it is
/// [called](Self::is_called); also when your own delay ([`LockOptions::delay_after`]) or the [holder's lease](Self::lease_left)
/// is over and it [is first](Self::is_first). Of many who come together one asks the store, and they are served in the order in
/// which they came. Dropping it leaves the line and passes the turn on.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// use std::time::Duration;
/// use syncguard::{LockOptions, Turn};
///
/// let options = LockOptions::new().acquire_timeout(Duration::from_secs(60));
/// let held = client.lock("k")?;
/// let (wake, woken) = std::sync::mpsc::channel();
/// let Turn::InLine(waiter) = client.lock_or_wait("k", &options, move || drop(wake.send(())))? else {
///     unreachable!("it is held");
/// };
/// drop(held);
/// let guard = loop {
///     if waiter.is_called()
///         && let Some(guard) = waiter.try_lock(&options)?
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
    /// When the caller began to wait: its attempts end by what the options say of waiting, from then.
    begun: Instant,
    /// When the lock is free that the last attempt met, if its holder has died.
    lease: Mutex<Option<Instant>>,
    /// The last attempt got no answer: whether the lock is free is for the next in line to find out.
    unanswered: AtomicBool,
}

/// What [`Client::lock_or_wait`] came to.
#[derive(Debug)]
#[must_use = "a lock or a place that is not kept is given up"]
pub enum Turn {
    /// The lock is held.
    Held(Guard),
    /// Somebody else holds it, or others of this client came before.
    InLine(Waiter),
}

impl Waiter {
    pub(crate) fn new(
        client: &Client,
        key: &str,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, LockError> {
        client.refuse_inherited()?;
        let place = client
            .queue()
            .join(&Key::new(key)?, Arc::new(Callback(wake)));
        let waiter = Self::at(place, client, Instant::now());
        waiter.listen();
        Ok(waiter)
    }

    /// Who finds nobody tries; who finds others joins them without asking the store.
    pub(crate) fn turn(
        client: &Client,
        key: &str,
        options: &LockOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Turn, LockError> {
        client.refuse_inherited()?;
        let begun = Instant::now();
        let (key, queue) = (Key::new(key)?, client.queue());
        let Some(entry) = queue.enter(&key) else {
            options.checked()?;
            let place = queue.join(&key, Arc::new(Callback(wake)));
            return Ok(Turn::InLine(Self::at(place, client, begun)));
        };
        let tried = client.try_once(key.clone(), options, begun, None);
        match tried.inspect_err(|error| queue.note(&key, Some(error)))? {
            Tried::Granted(guard) => {
                entry.granted();
                Ok(Turn::Held(guard))
            }
            Tried::Locked(holder) => {
                let place = entry.into_place(Arc::new(Callback(wake)));
                let waiter = Self::at(place, client, begun);
                waiter.place.note(None);
                waiter.met(holder);
                Ok(Turn::InLine(waiter))
            }
        }
    }

    fn at(place: Place, client: &Client, begun: Instant) -> Self {
        Self {
            place,
            client: client.clone(),
            begun,
            lease: Mutex::new(None),
            unanswered: AtomicBool::new(false),
        }
    }

    /// An attempt met a holder.
    fn met(&self, holder: Option<Holder>) {
        let left = holder.and_then(|holder| holder.patience());
        *self.lease.lock() = left.and_then(|left| Instant::now().checked_add(left));
        self.listen();
    }

    /// One attempt; `None` if somebody holds the lock. Says [`begin_attempt`](Self::begin_attempt) itself. It asks the store
    /// also if this one is not first: a caller that leaves without ever having been first may do that once.
    ///
    /// It ends by the larger of the options' acquire timeout and the operation timeout, counted from when the place was taken.
    /// If that is over, or nearly, it still gets 30 ms. A caller that waits longer than the default 5 s says so with
    /// [`acquire_timeout`](LockOptions::acquire_timeout).
    ///
    /// # Errors
    /// As [`Client::try_lock_with`]. If less than half of an operation timeout was left and the store did not answer in it:
    /// the trouble that others in line met, or `AcquisitionTimeout` if they were answered. The place stays.
    pub fn try_lock(&self, options: &LockOptions) -> Result<Option<Guard>, LockError> {
        self.client.refuse_inherited()?;
        if self.place.is_first() {
            self.place.begin_attempt();
        }
        self.unanswered.store(true, Ordering::Relaxed);
        // Without an answer nothing is known of it any more, and a store in trouble is given its time.
        *self.lease.lock() = None;
        let key = self.place.key().clone();
        let tried = self
            .client
            .try_once(key, options, self.begun, Some(&self.place))?;
        self.unanswered.store(false, Ordering::Relaxed);
        match tried {
            Tried::Granted(guard) => Ok(Some(guard)),
            Tried::Locked(holder) => {
                self.met(holder);
                Ok(None)
            }
        }
    }

    /// How long until the lock that the last attempt met is free, if it is neither renewed nor released: nobody calls then.
    /// Zero once that time is over; `None` if no attempt met a holder, or the store did not tell.
    pub fn lease_left(&self) -> Option<Duration> {
        let ends = (*self.lease.lock())?;
        Some(ends.saturating_duration_since(Instant::now()))
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
