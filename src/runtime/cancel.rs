//! [`CancelToken`]: a flag that stays set and wakes all that wait for it. Every sleep of the crate is in here. It uses `process`,
//! `sync` and `wake`.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::runtime::process::Owner;
use crate::runtime::sync::{Condvar, Mutex};
use crate::runtime::wake::Wake;

/// Ends a call from another thread: a wait at once, a request in flight as soon as its socket notices.
///
/// Clones are the same token. Cancelling is for good; use a new token, or a [`child`](Self::child), for the next call.
/// A call that was cancelled in flight answers [`ErrorCode::Aborted`](crate::ErrorCode::Aborted), and whether it took
/// effect is unknown; the client undoes such an acquire by itself.
/// A forked child needs a token of its own: an inherited one may never answer it.
///
/// ```
/// use syncguard::{CancelToken, Client, ErrorCode, LockOptions};
///
/// # let dir = tempfile::tempdir()?;
/// # let client = Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// let token = CancelToken::new();
/// let options = LockOptions::new().cancel(&token);
/// token.cancel(); // from a signal handler's thread, a shutdown hook, …
/// let error = client.lock_with("nightly", &options).unwrap_err();
/// assert_eq!(error.code(), ErrorCode::Aborted);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CancelToken {
    inner: Arc<TokenState>,
}

struct TokenState {
    cancelled: AtomicBool,
    state: Mutex<Subscribers>,
    changed: Condvar,
    /// Keeps a child known to its parent.
    _parent: Option<CancelSubscription>,
}

#[derive(Default)]
struct Subscribers {
    next: u64,
    list: Vec<(u64, Arc<dyn Wake>)>,
}

impl CancelToken {
    /// A token that is not cancelled.
    ///
    /// ```
    /// assert!(!syncguard::CancelToken::new().is_cancelled());
    /// ```
    pub fn new() -> Self {
        Self {
            inner: Arc::new(TokenState {
                cancelled: AtomicBool::new(false),
                state: Mutex::new(Subscribers::default()),
                changed: Condvar::new(),
                _parent: None,
            }),
        }
    }

    /// A token that is cancelled with this one, and can be cancelled alone.
    ///
    /// ```
    /// use syncguard::CancelToken;
    ///
    /// let (all, other) = (CancelToken::new(), CancelToken::new());
    /// let one = all.child();
    /// one.cancel();
    /// assert!(!all.is_cancelled());
    /// all.cancel();
    /// assert!(all.child().is_cancelled() && !other.is_cancelled());
    /// ```
    #[must_use]
    pub fn child(&self) -> Self {
        let inner = Arc::new_cyclic(|me: &Weak<TokenState>| {
            let link: Arc<dyn Wake> = Arc::new(Link(me.clone()));
            TokenState {
                cancelled: AtomicBool::new(false),
                state: Mutex::new(Subscribers::default()),
                changed: Condvar::new(),
                _parent: Some(self.subscribe(link)),
            }
        });
        let child = Self { inner };
        // The parent may have been cancelled while the child was not yet whole and could not be reached.
        if self.is_cancelled() {
            child.cancel();
        }
        child
    }

    /// Cancels, for good, and wakes all callers that wait with this token or a child of it. From any thread, any number
    /// of times; not from a signal handler.
    ///
    /// ```
    /// let token = syncguard::CancelToken::new();
    /// let clone = token.clone();
    /// token.cancel();
    /// assert!(clone.is_cancelled());
    /// ```
    pub fn cancel(&self) {
        self.inner.cancel();
    }

    /// Whether it was cancelled. Does not block.
    ///
    /// ```
    /// let token = syncguard::CancelToken::new();
    /// assert!(!token.is_cancelled());
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::Acquire)
    }

    /// Waits until the token is cancelled. From any thread, any number at once.
    ///
    /// ```
    /// use syncguard::CancelToken;
    ///
    /// let token = CancelToken::new();
    /// let waiter = std::thread::spawn({
    ///     let token = token.clone();
    ///     move || token.wait()
    /// });
    /// token.cancel();
    /// waiter.join().unwrap();
    /// ```
    pub fn wait(&self) {
        self.sleep_until(None);
    }

    /// Waits until the token is cancelled, at most for `timeout`, and answers whether it is cancelled: a sleep that a shutdown
    /// ends. A `timeout` of [`Duration::MAX`] is without end.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::CancelToken;
    ///
    /// let token = CancelToken::new();
    /// assert!(!token.wait_for(Duration::from_millis(5)));
    /// token.cancel();
    /// assert!(token.wait_for(Duration::from_secs(60))); // at once
    /// ```
    pub fn wait_for(&self, timeout: Duration) -> bool {
        self.wait_until(deadline_after(timeout))
    }

    /// As [`wait_for`](Self::wait_for), at most until `deadline`. A deadline that has passed does not wait.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use syncguard::CancelToken;
    ///
    /// let token = CancelToken::new();
    /// assert!(!token.wait_until(Instant::now() + Duration::from_millis(5)));
    /// ```
    pub fn wait_until(&self, deadline: Instant) -> bool {
        self.sleep_until(Some(deadline));
        self.is_cancelled()
    }

    /// Wakes `sleeper` on cancel, until the subscription is dropped. Wakes at once if that has happened already.
    pub(crate) fn subscribe(&self, sleeper: Arc<dyn Wake>) -> CancelSubscription {
        let mut state = self.inner.state.lock();
        let id = state.next;
        state.next += 1;
        if self.is_cancelled() {
            drop(state);
            sleeper.wake();
        } else {
            state.list.push((id, sleeper));
        }
        CancelSubscription {
            token: Arc::downgrade(&self.inner),
            id,
            owner: Owner::current(),
        }
    }

    /// Sleeps until `deadline` or until cancelled, whichever is first; `None` sleeps until cancelled.
    pub(crate) fn sleep_until(&self, deadline: Option<Instant>) {
        let mut state = self.inner.state.lock();
        while !self.is_cancelled() && deadline.is_none_or(|d| Instant::now() < d) {
            self.inner.changed.wait_until(&mut state, deadline);
        }
    }
}

impl TokenState {
    fn cancel(&self) {
        if self.cancelled.swap(true, Ordering::AcqRel) {
            return;
        }
        let list = std::mem::take(&mut self.state.lock().list);
        self.changed.notify_all();
        for (_, sleeper) in list {
            sleeper.wake();
        }
    }
}

struct Link(Weak<TokenState>);

impl Wake for Link {
    fn wake(&self) {
        if let Some(child) = self.0.upgrade() {
            child.cancel();
        }
    }
}

/// Ends a subscription when dropped.
pub(crate) struct CancelSubscription {
    token: Weak<TokenState>,
    id: u64,
    owner: Owner,
}

impl Drop for CancelSubscription {
    fn drop(&mut self) {
        // Options with a token go out of scope in a forked child too, where the mutex may be locked for ever.
        if !self.owner.is_this_process() {
            return;
        }
        if let Some(token) = self.token.upgrade() {
            token.state.lock().list.retain(|(id, _)| *id != self.id);
        }
    }
}

/// Where a waiter sleeps until it is woken, or until a time. A wake that comes before the sleep ends it at once.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Sleeps until `deadline` or until woken; `None` sleeps until woken.
    pub(crate) fn sleep_until(&self, deadline: Option<Instant>) {
        let mut rung = self.rung.lock();
        while !*rung && deadline.is_none_or(|d| Instant::now() < d) {
            self.changed.wait_until(&mut rung, deadline);
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("cancelled", &self.is_cancelled())
            .finish()
    }
}

/// `timeout` from now; far away instead of overflowing.
pub(crate) fn deadline_after(timeout: Duration) -> Instant {
    deadline_from(Instant::now(), timeout)
}

/// The same from a time that was read already: reading it costs, on the path of every lock.
pub(crate) fn deadline_from(now: Instant, timeout: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    now.checked_add(timeout.min(FAR)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_follows_its_parent_and_not_the_other_way() {
        let parent = CancelToken::new();
        let (a, b) = (parent.child(), parent.child());
        a.cancel();
        assert!(a.is_cancelled() && !parent.is_cancelled() && !b.is_cancelled());
        parent.cancel();
        assert!(b.is_cancelled() && parent.child().is_cancelled());
    }

    #[test]
    fn cancel_ends_a_sleep() {
        let token = CancelToken::new();
        let other = token.clone();
        let sleeper = std::thread::spawn(move || other.sleep_until(None));
        token.cancel();
        sleeper.join().expect("the sleeper ends");
    }

    #[test]
    fn a_dropped_child_is_forgotten() {
        let parent = CancelToken::new();
        drop(parent.child());
        assert!(parent.inner.state.lock().list.is_empty());
    }
}
