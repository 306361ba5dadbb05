//! [`Waiter`]: a place in line for callers whose threads must not block. It drives the same policy as the blocking loop. It uses
//! `client`, `holding`, `waiting`, `backend`, `options`, `runtime` and `types`.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::client::Client;
use crate::holding::guard::Guard;
use crate::options::lock::{CheckedLockOptions, LockOptions};
use crate::runtime::sync::Mutex;
use crate::runtime::wake::Wake;
use crate::runtime::workers::guarded;
use crate::types::error::LockError;
use crate::types::key::Key;
use crate::waiting::attempt::AttemptTarget;
use crate::waiting::blocking::{Entered, Wait, WaiterEvent};
use crate::waiting::line::LineTicket;
use crate::waiting::policy::WaitAction;

/// A place in the line of a key, for callers that wait by themselves between single attempts: bindings to languages with
/// their own threads. [`Client::lock`] does all of this for you.
///
/// [`Client::lock_or_wait`] gives one if the lock is held or others came before. Ask [`next`](Self::next) what to do, do it, and ask
/// again: it keeps the acquire timeout, the retries and the delays of the options. Of many that come together one asks the store,
/// and they are served in the order in which they came. Dropping it leaves the line and passes the turn on.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// use std::time::Duration;
/// use syncguard::{Call, LockOptions, Turn, WaiterEvent, WaiterStep};
///
/// let options = LockOptions::new().acquire_timeout(Duration::from_secs(60));
/// let held = client.lock("k")?;
/// let (wake, woken) = std::sync::mpsc::channel();
/// let Turn::InLine(waiter) = client.lock_or_wait("k", &options, move || drop(wake.send(())))? else {
///     unreachable!("it is held");
/// };
/// drop(held);
/// let guard = loop {
///     match waiter.next(WaiterEvent::Woken) {
///         WaiterStep::Try { .. } => {
///             if let Some(guard) = waiter.try_lock(&Call::new())? {
///                 break guard;
///             }
///         }
///         WaiterStep::Sleep(time) => drop(woken.recv_timeout(time)),
///         WaiterStep::GiveUp(error) => return Err(error.into()),
///     }
/// };
/// assert_eq!(guard.fence().get(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a waiter that is not kept has left the line"]
pub struct Waiter {
    ticket: LineTicket,
    client: Client,
    options: Box<(LockOptions, CheckedLockOptions)>,
    /// `None` while an attempt is under way.
    wait: Mutex<Option<Box<Wait>>>,
}

/// What [`Client::lock_or_wait`] came to.
#[derive(Debug)]
#[must_use = "a lock or a place that is not kept is given up"]
pub enum Turn {
    /// The lock was free and no other caller of this client waited: it is held now.
    Held(Guard),
    /// Another holder has it, others of this client came before, or the store is in trouble that may pass.
    InLine(Waiter),
}

/// What the caller of a [`Waiter`] does next.
#[derive(Debug)]
pub enum WaiterStep {
    /// It is this waiter's turn to ask the store: call [`Waiter::try_lock`] now.
    #[non_exhaustive]
    Try {
        /// The attempt ends by itself within this time, counted from now.
        within: Duration,
    },
    /// Another waiter is first, or the next attempt is not due: ask again after this time, or when `wake` is called.
    Sleep(Duration),
    /// The time or the retries are used up, the caller cancelled, the store refused, or the wait was over before: it ends with this
    /// error. Drop the waiter.
    GiveUp(LockError),
}

impl Waiter {
    pub(crate) fn join(
        client: &Client,
        key: Key,
        options: &LockOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, LockError> {
        let checked = options.checked()?;
        let call = Call::of(options).or_held_by(checked.holder.as_ref());
        let at = target(client, &key, call);
        let mut wait = Wait::new(at, &checked)?;
        let ticket = wait.join(at, callback(client, wake));
        Ok(Self::at(ticket, client, options, checked, wait))
    }

    pub(crate) fn enter(
        client: &Client,
        key: Key,
        options: &LockOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Turn, LockError> {
        let checked = options.checked()?;
        let call = Call::of(options).or_held_by(checked.holder.as_ref());
        let at = target(client, &key, call);
        let mut wait = Wait::new(at, &checked)?;
        let last = wait.last(at.core);
        match wait.enter(at, || callback(client, wake))? {
            Entered::Granted(granted) => client
                .guard(key, granted, last, &checked, options)
                .map(Turn::Held),
            Entered::InLine(ticket) => Ok(Turn::InLine(Self::at(
                ticket, client, options, checked, wait,
            ))),
        }
    }

    fn at(
        ticket: LineTicket,
        client: &Client,
        options: &LockOptions,
        checked: CheckedLockOptions,
        wait: Wait,
    ) -> Self {
        Self {
            ticket,
            client: client.clone(),
            options: Box::new((options.clone(), checked)),
            wait: Mutex::new(Some(Box::new(wait))),
        }
    }

    /// What to do next. No I/O; does not block.
    ///
    /// A wait that is over stays over: after [`WaiterStep::GiveUp`] and after a grant there is nothing more to ask for.
    ///
    /// ```
    /// use syncguard::{Call, LockOptions, WaiterEvent, WaiterStep};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let waiter = client.waiter("nightly", &LockOptions::new(), || ())?;
    /// assert!(matches!(waiter.next(WaiterEvent::Woken), WaiterStep::Try { .. }));
    /// let over = waiter.next(WaiterEvent::Cancelled);
    /// assert!(matches!(over, WaiterStep::GiveUp(_)));
    /// # let _ = Call::new();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next(&self, event: WaiterEvent) -> WaiterStep {
        if let Err(error) = self.client.core.refuse_inherited() {
            return WaiterStep::GiveUp(error);
        }
        let mut slot = self.wait.lock();
        let Some(wait) = slot.as_mut() else {
            return WaiterStep::GiveUp(under_way());
        };
        let core = &self.client.core;
        let left = |until: Instant| until.saturating_duration_since(core.clock().wait_now());
        match wait.next(core, &self.ticket, event) {
            WaitAction::Try { until } => WaiterStep::Try {
                within: left(until),
            },
            WaitAction::SleepUntil(until) => WaiterStep::Sleep(left(until)),
            WaitAction::GiveUp(_) | WaitAction::Done => {
                WaiterStep::GiveUp(wait.over(self.target(Call::new())))
            }
        }
    }

    /// Makes the attempt that [`next`](Self::next) calls for; `None` if that is none, or if it was not granted and the wait goes on.
    /// A cancel of `call` ends the attempt, and with it the wait.
    ///
    /// It ends by the larger of the acquire timeout and the operation timeout, counted from when the wait began. A caller that was
    /// never first in line, and whose time is over, still gets one attempt of 30 ms.
    ///
    /// ```
    /// use syncguard::{Call, LockOptions, WaiterEvent, WaiterStep};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let waiter = client.waiter("nightly", &LockOptions::new(), || ())?;
    /// if let WaiterStep::Try { .. } = waiter.next(WaiterEvent::Woken) {
    ///     assert!(waiter.try_lock(&Call::new())?.is_some());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What the wait ends with, as [`Client::lock_with`]. If less than half of an operation timeout was left and the store did not
    /// answer in it: the trouble that others in line met, or [`AcquisitionTimeout`](crate::ErrorCode::AcquisitionTimeout) if they
    /// were answered. [`Aborted`](crate::ErrorCode::Aborted) after a cancel of `call`. After each of these, drop the waiter.
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) while another thread is in here: make one call at a time.
    pub fn try_lock(&self, call: &Call<'_>) -> Result<Option<Guard>, LockError> {
        self.client.core.refuse_inherited()?;
        let taken = self.wait.lock().take();
        let mut wait = taken.ok_or_else(under_way)?;
        let tried = self.attempt(&mut wait, call);
        *self.wait.lock() = Some(wait);
        tried
    }

    fn attempt(&self, wait: &mut Wait, call: &Call<'_>) -> Result<Option<Guard>, LockError> {
        let (options, checked) = &*self.options;
        let at = self.target(call.or_held_by(checked.holder.as_ref()));
        if let WaitAction::Try { .. } = wait.next(at.core, &self.ticket, WaiterEvent::Woken)
            && let Some(granted) = wait.attempt(at, Some(&self.ticket))
        {
            let key = self.ticket.key().clone();
            return self
                .client
                .guard(key, granted, wait.last(at.core), checked, options)
                .map(Some);
        }
        match wait.action() {
            WaitAction::GiveUp(_) | WaitAction::Done => Err(wait.over(at)),
            WaitAction::Try { .. } | WaitAction::SleepUntil(_) => Ok(None),
        }
    }

    /// Whether an attempt is worth making now: this one is first in line and the lock may have been freed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let waiter = client.waiter("nightly", &syncguard::LockOptions::new(), || ())?;
    /// println!("an attempt is worth making: {}", waiter.is_called());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_called(&self) -> bool {
        self.is_here() && self.ticket.standing().called
    }

    /// Whether it is this one's turn to ask the store for all that wait here.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let waiter = client.waiter("nightly", &syncguard::LockOptions::new(), || ())?;
    /// assert!(waiter.is_first());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_first(&self) -> bool {
        self.is_here() && self.ticket.standing().first
    }

    fn target<'a>(&'a self, call: Call<'a>) -> AttemptTarget<'a> {
        target(&self.client, self.ticket.key(), call)
    }

    /// False in a forked child, where the line's mutex may be locked for ever.
    fn is_here(&self) -> bool {
        self.client.core.refuse_inherited().is_ok()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        if let Some(mut wait) = self.wait.lock().take() {
            wait.abandon(self.target(Call::new()));
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiter")
    }
}

fn target<'a>(client: &'a Client, key: &'a Key, call: Call<'a>) -> AttemptTarget<'a> {
    AttemptTarget {
        core: &client.core,
        key,
        call,
    }
}

fn under_way() -> LockError {
    LockError::invalid("another thread makes an attempt with this waiter: one call at a time")
}

struct Callback<F>(F);

/// What wakes the caller: its turn, or a clock that was moved by hand.
fn callback<F: Fn() + Send + Sync + 'static>(client: &Client, wake: F) -> Arc<Callback<F>> {
    let callback = Arc::new(Callback(wake));
    let weak = Arc::downgrade(&callback);
    client.core.clock().subscribe(weak);
    callback
}

impl<F: Fn() + Send + Sync> Wake for Callback<F> {
    /// Called in the middle of another caller's release, and by threads that serve all waiters: a panic ends here.
    fn wake(&self) {
        guarded(&self.0);
    }
}
