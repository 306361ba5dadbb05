//! [`Call`]: the bounds of one call of a store. Every verb of a [`Backend`](crate::Backend) is given one. It uses `options`,
//! `runtime` and `types`.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::options::lock::LockOptions;
use crate::runtime::cancel::{CancelSubscription, CancelToken, deadline_after, deadline_from};
use crate::runtime::wake::Wake;
use crate::runtime::workers::guarded;
use crate::types::error::{ErrorCode, LockError};
use crate::types::event::Subject;
use crate::types::holder_text::HolderText;

/// One call of a store: by when it must end, and which token ends it earlier.
///
/// ```
/// use std::time::Duration;
/// use syncguard::{Call, CancelToken, Client, ErrorCode};
///
/// # let dir = tempfile::tempdir()?;
/// # let client = Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
/// # client.setup_schema()?;
/// client.is_locked_with("nightly", &Call::new())?; // the client's operation timeout bounds it
///
/// let token = CancelToken::new();
/// let call = Call::new().within(Duration::from_secs(1)).cancelled_by(&token);
/// client.is_locked_with("nightly", &call)?;
/// token.cancel();
/// assert_eq!(client.is_locked_with("nightly", &call).unwrap_err().code(), ErrorCode::Aborted);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A client gives its store a deadline with every call: the end of the operation timeout, or an earlier one of the caller, the
/// wait, the lease or the drop. A store of your own ends each call by then and soon after a cancel, with the error of
/// [`check`](Self::check). [`sleep`](Self::sleep) ends at both; [`on_cancel`](Self::on_cancel) wakes a store that waits in
/// another way. The store need not check the process: a client does that.
///
/// `Copy`: a call with narrower bounds is another value, and the first one stays as it was. `Send` and `Sync`.
#[derive(Clone, Copy, Default)]
pub struct Call<'a> {
    deadline: Option<Instant>,
    /// How long what ends at the deadline may take in all, if that is known. For messages.
    allowed: Option<Duration>,
    cancel: Option<&'a CancelToken>,
    when_ordered: Option<&'a (dyn Fn() + Sync)>,
    /// What the caller knows of the lock, for telemetry.
    subject: Option<&'a Subject<'a>>,
    /// What an acquire stores of its caller.
    holder: Option<&'a HolderText>,
}

impl<'a> Call<'a> {
    /// A call without a deadline that cannot be cancelled. The stores of this crate bound it by their operation timeout.
    ///
    /// ```
    /// assert_eq!(syncguard::Call::new().deadline(), None);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The bounds that a caller set for all attempts of one wait.
    pub(crate) fn of(options: &'a LockOptions) -> Self {
        Self {
            deadline: options.ends_by(),
            allowed: None,
            cancel: options.cancel_token(),
            when_ordered: None,
            subject: None,
            holder: None,
        }
    }

    /// The same call, which ends at most `timeout` from now. Bounds only narrow: of two deadlines the earlier one counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// let call = Call::new().within(Duration::from_secs(1)).within(Duration::from_secs(60));
    /// assert!(call.remaining() <= Some(Duration::from_secs(1)));
    /// ```
    #[must_use]
    pub fn within(self, timeout: Duration) -> Self {
        self.within_since(Instant::now(), timeout)
    }

    /// The same call, which ends at most `timeout` after `begun`.
    pub(crate) fn within_since(self, begun: Instant, timeout: Duration) -> Self {
        self.narrow(deadline_from(begun, timeout), Some(timeout))
    }

    /// The same call, which ends by `deadline`. Bounds only narrow: of two deadlines the earlier one counts.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use syncguard::Call;
    ///
    /// let deadline = Instant::now() + Duration::from_secs(1);
    /// assert_eq!(Call::new().with_deadline(deadline).deadline(), Some(deadline));
    /// ```
    #[must_use]
    pub fn with_deadline(self, deadline: Instant) -> Self {
        self.narrow(deadline, None)
    }

    fn narrow(self, deadline: Instant, allowed: Option<Duration>) -> Self {
        if self.deadline.is_some_and(|own| own < deadline) {
            return self;
        }
        Self {
            deadline: Some(deadline),
            allowed,
            ..self
        }
    }

    /// The same call, ended by `token` in place of the token that it had. For a call that either of two tokens may end, make a
    /// [`child`](CancelToken::child) of the first one.
    ///
    /// ```
    /// use syncguard::{Call, CancelToken};
    ///
    /// let token = CancelToken::new();
    /// let call = Call::new().cancelled_by(&token);
    /// token.cancel();
    /// assert!(call.is_cancelled());
    /// ```
    #[must_use]
    pub fn cancelled_by<'b>(self, token: &'b CancelToken) -> Call<'b>
    where
        'a: 'b,
    {
        Call {
            cancel: Some(token),
            ..self
        }
    }

    /// By when the call must end; `None` if it has no deadline.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// assert!(Call::new().within(Duration::from_secs(1)).deadline().is_some());
    /// ```
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How much time is left until the deadline: zero once it has passed, `None` if there is none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::Call;
    ///
    /// let call = Call::new().within(Duration::ZERO);
    /// assert_eq!(call.remaining(), Some(Duration::ZERO));
    /// ```
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether the call's token was cancelled.
    ///
    /// ```
    /// assert!(!syncguard::Call::new().is_cancelled()); // it has no token
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(CancelToken::is_cancelled)
    }

    /// Whether the call may go on.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::{Call, CancelToken, ErrorCode};
    ///
    /// let token = CancelToken::new();
    /// let call = Call::new().cancelled_by(&token);
    /// assert!(call.check().is_ok());
    /// let late = call.within(Duration::ZERO);
    /// assert_eq!(late.check().unwrap_err().code(), ErrorCode::NetworkTimeout);
    /// token.cancel();
    /// assert_eq!(call.check().unwrap_err().code(), ErrorCode::Aborted);
    /// ```
    ///
    /// # Errors
    /// [`Aborted`](crate::ErrorCode::Aborted) after a cancel, [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) after the
    /// deadline: answer it from the verb. It says that the effect of the call is unknown; a store that has changed nothing yet adds
    /// [`LockError::nothing_applied`].
    pub fn check(&self) -> Result<(), LockError> {
        if self.is_over() {
            Err(self.overrun())
        } else {
            Ok(())
        }
    }

    /// Sleeps for `time`. The deadline and a cancel end the sleep.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::{Call, ErrorCode};
    ///
    /// let call = Call::new().within(Duration::from_millis(5));
    /// let error = call.sleep(Duration::from_secs(60)).unwrap_err(); // after 5 ms
    /// assert_eq!(error.code(), ErrorCode::NetworkTimeout);
    /// ```
    ///
    /// # Errors
    /// [`Aborted`](crate::ErrorCode::Aborted) or [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout), as [`check`](Self::check), if
    /// the call was over before the sleep or ended it.
    pub fn sleep(&self, time: Duration) -> Result<(), LockError> {
        self.sleep_until(deadline_after(time));
        self.check()
    }

    /// Sleeps until `until`, the deadline or a cancel.
    pub(crate) fn sleep_until(&self, until: Instant) {
        let until = self.deadline.map_or(until, |deadline| deadline.min(until));
        match self.cancel {
            Some(token) => token.sleep_until(Some(until)),
            None => CancelToken::new().sleep_until(Some(until)),
        }
    }

    /// Has `wake` called, once, when the call is cancelled, until the answer is dropped; at once if that has happened. For a
    /// store that waits for something of its own: `wake` ends that wait, and the store then [checks](Self::check) the call.
    ///
    /// `wake` runs on the thread that cancels and must not block. A cancel at the same time as the drop of the answer may still
    /// call it. If it panics, the panic goes no further.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use syncguard::{Call, CancelToken};
    ///
    /// let token = CancelToken::new();
    /// let call = Call::new().cancelled_by(&token);
    /// let (answers, received) = mpsc::channel();
    /// let waker = answers.clone();
    /// let _until_dropped = call.on_cancel(move || drop(waker.send(None::<u32>)));
    /// token.cancel(); // by another thread
    /// assert_eq!(received.recv(), Ok(None));
    /// assert!(call.check().is_err());
    /// ```
    pub fn on_cancel(&self, wake: impl Fn() + Send + Sync + 'static) -> OnCancel {
        OnCancel {
            _subscription: self
                .cancel
                .map(|token| token.subscribe(Arc::new(CancelCallback(wake)))),
        }
    }

    /// Says that the store will serve this request before every request that is sent from now on.
    ///
    /// A client then has the next waiter of this process ask for the lock while the answer to the release is still on its way.
    /// It is right to say it late, more than once, or never; then a lock changes hands more slowly.
    ///
    /// ```
    /// syncguard::Call::new().ordered(); // no caller waits for that
    /// ```
    pub fn ordered(&self) {
        if let Some(hook) = self.when_ordered {
            hook();
        }
    }

    /// The same call, which calls `hook` each time that the store says [`ordered`](Self::ordered).
    pub(crate) fn when_ordered<'b>(self, hook: &'b (dyn Fn() + Sync)) -> Call<'b>
    where
        'a: 'b,
    {
        Call {
            when_ordered: Some(hook),
            ..self
        }
    }

    /// The same call, about the lock that `subject` tells of.
    pub(crate) fn about<'b>(self, subject: Option<&'b Subject<'b>>) -> Call<'b>
    where
        'a: 'b,
    {
        Call { subject, ..self }
    }

    pub(crate) fn subject(&self) -> Option<&'a Subject<'a>> {
        self.subject
    }

    /// The same call, whose acquire stores what `holder` says beside the lock.
    ///
    /// ```
    /// use syncguard::{Call, HolderText};
    ///
    /// let text = HolderText::new("build-7/nightly")?;
    /// assert_eq!(Call::new().held_by(&text).holder(), Some(&text));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    #[must_use]
    pub fn held_by<'b>(self, holder: &'b HolderText) -> Call<'b>
    where
        'a: 'b,
    {
        Call {
            holder: Some(holder),
            ..self
        }
    }

    /// What an acquire stores of its caller beside the lock: nothing if it is empty or `None`. A client gives its store the text of
    /// [`LockOptions::holder`], or `host/pid/program`. A store of your own may pass it over.
    ///
    /// ```
    /// assert_eq!(syncguard::Call::new().holder(), None);
    /// ```
    pub fn holder(&self) -> Option<&'a HolderText> {
        self.holder
    }

    /// The same call, with this text unless it has one.
    pub(crate) fn or_held_by<'b>(self, holder: Option<&'b HolderText>) -> Call<'b>
    where
        'a: 'b,
    {
        Call {
            holder: self.holder.or(holder),
            ..self
        }
    }

    pub(crate) fn allowed(&self) -> Option<Duration> {
        self.allowed
    }

    pub(crate) fn token(&self) -> Option<&'a CancelToken> {
        self.cancel
    }

    /// Whether the call must end: the deadline has passed or the token was cancelled.
    pub(crate) fn is_over(&self) -> bool {
        self.is_cancelled() || self.deadline.is_some_and(|at| Instant::now() >= at)
    }

    /// Why the call ended without an answer. Its effect is unknown unless the caller knows better.
    pub(crate) fn overrun(&self) -> LockError {
        if self.is_cancelled() {
            return LockError::new(ErrorCode::Aborted, "the call was cancelled");
        }
        let text = match self.allowed {
            Some(allowed) => {
                let ms = allowed.as_nanos().div_ceil(1_000_000).max(1);
                format!("the store did not answer within the limit of {ms} ms")
            }
            None => "the store did not answer by the deadline of the call".to_owned(),
        };
        LockError::new(ErrorCode::NetworkTimeout, text)
    }
}

/// The hook is the crate's own and leaves nothing half done.
impl UnwindSafe for Call<'_> {}
impl RefUnwindSafe for Call<'_> {}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("remaining", &self.remaining())
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// Ends [`Call::on_cancel`] when it is dropped.
#[must_use = "dropped, it ends what it stands for"]
pub struct OnCancel {
    _subscription: Option<CancelSubscription>,
}

impl fmt::Debug for OnCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnCancel")
    }
}

struct CancelCallback<F>(F);

impl<F: Fn() + Send + Sync> Wake for CancelCallback<F> {
    /// The thread that cancels has others to wake: a panic of one callback ends here.
    fn wake(&self) {
        guarded(&self.0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn bounds_narrow_and_never_overflow() {
        let call = Call::new().within(Duration::MAX).within(Duration::ZERO);
        assert!(call.deadline().is_some_and(|at| at <= Instant::now()));
        let wider = call.within(Duration::from_secs(5));
        assert_eq!(wider.deadline(), call.deadline());
        assert!(!call.is_cancelled());
        assert_eq!(call.remaining(), Some(Duration::ZERO));
        assert_eq!(Call::new().remaining(), None);
    }

    #[test]
    fn a_store_that_says_it_is_ordered_runs_the_hook_of_its_own_call() {
        let count = AtomicU32::new(0);
        let hook = || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let plain = Call::new();
        plain.ordered();
        let hooked = plain.when_ordered(&hook);
        plain.ordered();
        assert_eq!(count.load(Ordering::Relaxed), 0);
        // Narrower bounds keep the hook.
        let token = CancelToken::new();
        hooked
            .within(Duration::from_secs(1))
            .cancelled_by(&token)
            .ordered();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_callback_runs_once_per_cancel_and_not_after_its_end() {
        let token = CancelToken::new();
        let call = Call::new().cancelled_by(&token);
        let count = Arc::new(AtomicU32::new(0));
        let counted = || {
            let count = Arc::clone(&count);
            move || {
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        drop(call.on_cancel(counted()));
        let _panics = call.on_cancel(|| panic!("a callback of the test"));
        let _kept = call.on_cancel(counted());
        token.cancel();
        token.cancel();
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let _late = call.on_cancel(counted());
        assert_eq!(count.load(Ordering::Relaxed), 2);
        let _never = Call::new().on_cancel(counted());
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_cancel_ends_a_sleep() {
        let token = CancelToken::new();
        std::thread::scope(|scope| {
            let call = Call::new()
                .within(Duration::from_secs(60))
                .cancelled_by(&token);
            let begun = Instant::now();
            let sleeper = scope.spawn(move || call.sleep(Duration::from_secs(60)));
            token.cancel();
            let error = sleeper.join().expect("no panic").expect_err("cancelled");
            assert_eq!(error.code(), ErrorCode::Aborted);
            assert!(begun.elapsed() < Duration::from_secs(30));
        });
    }
}
