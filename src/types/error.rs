//! [`LockError`]: one opaque error with a code to branch on. It uses `holder` alone.

use std::error::Error as StdError;
use std::fmt;
use std::time::{Duration, Instant};

use crate::types::holder::Holder;

/// What kind of trouble a [`LockError`] reports. Branch on this, show the message to people.
///
/// Contention is not among them: a key that another caller holds is an outcome of the verbs, and becomes an error
/// ([`ErrorCode::AcquisitionTimeout`]) only when a whole wait has ended in it.
///
/// ```
/// use syncguard::{Client, ErrorCode};
///
/// fn nightly(client: &Client) -> Result<(), syncguard::LockError> {
///     match client.lock("nightly") {
///         Ok(guard) => guard.release().map(|_| ()),
///         Err(error) if error.code() == ErrorCode::AcquisitionTimeout => Ok(()), // another program does it
///         Err(error) => Err(error),
///     }
/// }
/// # let dir = tempfile::tempdir()?;
/// # nightly(&Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ErrorCode {
    /// The store cannot be reached or cannot serve now: refused, reset, loading, read-only replica. Transient: try again later.
    /// The effect of a request that was sent is unknown.
    ServiceUnavailable,
    /// The store refused the credentials, or they lack a right. A person has to correct the password or grant the right; until
    /// then every attempt ends like this.
    AuthFailed,
    /// The caller passed something that can never work: a bad key, URL or option, or a store without its tables. Nothing was
    /// changed. Correct what the message names; the same call again fails again.
    InvalidArgument,
    /// The store, the pool, or the threads or descriptors of this process are used up. Nothing was changed. Transient: try again
    /// later, or allow more ([`pool_size`](crate::ClientOptions::pool_size)).
    RateLimited,
    /// The operation's own deadline passed; its effect is unknown. Transient: try again later, or allow more time
    /// ([`operation_timeout`](crate::ClientOptions::operation_timeout)).
    NetworkTimeout,
    /// A whole wait ended and another holder still has the key. The lock is not held: do the work later, or wait longer
    /// ([`acquire_timeout`](crate::LockOptions::acquire_timeout)).
    AcquisitionTimeout,
    /// The caller's [`CancelToken`](crate::CancelToken) ended the call. The effect of a request that was sent is unknown; an acquire
    /// by a [`Client`](crate::Client) is undone.
    Aborted,
    /// Anything else: a foreign value under our key, a fence over its limit, a corrupt file, a client that was inherited by a
    /// forked child, a bug. A person has to read the message; the same call again most likely fails again.
    Internal,
    /// This process can no longer count on a lock that it held. [`LockError::loss_reason`] says why. Stop the work: another holder
    /// may have begun.
    Lost,
}

impl ErrorCode {
    /// The code's name, as in the enum.
    ///
    /// ```
    /// assert_eq!(syncguard::ErrorCode::RateLimited.as_str(), "RateLimited");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::AuthFailed => "AuthFailed",
            Self::InvalidArgument => "InvalidArgument",
            Self::RateLimited => "RateLimited",
            Self::NetworkTimeout => "NetworkTimeout",
            Self::AcquisitionTimeout => "AcquisitionTimeout",
            Self::Aborted => "Aborted",
            Self::Internal => "Internal",
            Self::Lost => "Lost",
        }
    }

    /// Whether trying again later may succeed without anybody changing anything.
    ///
    /// ```
    /// use syncguard::ErrorCode;
    ///
    /// assert!(ErrorCode::ServiceUnavailable.is_transient());
    /// assert!(!ErrorCode::AuthFailed.is_transient());
    /// ```
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::ServiceUnavailable | Self::NetworkTimeout | Self::RateLimited
        )
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a guard was lost: what an error of [`ErrorCode::Lost`] carries, and [`Guard::loss`](crate::Guard::loss) answers. `Display`
/// is a sentence for people.
///
/// ```
/// use syncguard::{LockOptions, LossReason};
///
/// let options = LockOptions::new().on_lost(|why| {
///     if why.loss_reason() == Some(LossReason::Removed) {
///         eprintln!("an operator has released the lock");
///     }
/// });
/// # drop(options);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum LossReason {
    /// The lease ran out, by the local clock, before the store confirmed a renewal. The store may be down or slow, or this
    /// process was paused.
    Unconfirmed,
    /// [`max_hold`](crate::LockOptions::max_hold) was reached, so the lock was no longer renewed, and its lease ran out.
    MaxHold,
    /// There is no heartbeat ([`no_heartbeat`](crate::LockOptions::no_heartbeat)), and the lease was not extended in time.
    NotRenewed,
    /// The store no longer has the lock: another process released it, an operator deleted it, or the store lost it.
    Removed,
    /// The heartbeat panicked. The fault lies in the store's code.
    HeartbeatFailed,
    /// This is a forked child; the lock is its parent's.
    Forked,
}

impl LossReason {
    /// The reason's name, as in the enum.
    ///
    /// ```
    /// assert_eq!(syncguard::LossReason::MaxHold.as_str(), "MaxHold");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unconfirmed => "Unconfirmed",
            Self::MaxHold => "MaxHold",
            Self::NotRenewed => "NotRenewed",
            Self::Removed => "Removed",
            Self::HeartbeatFailed => "HeartbeatFailed",
            Self::Forked => "Forked",
        }
    }

    /// What happened, as a sentence for people.
    fn message(self) -> &'static str {
        match self {
            Self::Unconfirmed => {
                "the lock was lost: its lease ran out before a renewal was confirmed"
            }
            Self::MaxHold => "the lock was lost: max_hold was reached, so it was no longer renewed",
            Self::NotRenewed => {
                "the lock was lost: it has no heartbeat and was not extended in time"
            }
            Self::Removed => "the lock was lost: the store no longer has it",
            Self::HeartbeatFailed => "the lock was lost: its heartbeat panicked",
            Self::Forked => {
                "this guard belongs to the parent process; open a client of its own in the forked child (if this process was not \
                 forked: it closed descriptors that are not its own, or copies of them; open a new client)"
            }
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

/// The error of every fallible call.
///
/// It carries a [code](Self::code), a message a stranger can act on, and where known the key's hash, the number of
/// attempts, the time waited and the holder of the key. It never holds a raw key, a lock id or a password, so it may be logged.
///
/// ```
/// use syncguard::{ErrorCode, Key};
///
/// let error = Key::new("").unwrap_err();
/// assert_eq!(error.code(), ErrorCode::InvalidArgument);
/// println!("{error}");
/// ```
pub struct LockError(Box<ErrorDetails>);

struct ErrorDetails {
    code: ErrorCode,
    message: String,
    key_hash: Option<String>,
    attempts: u32,
    waited: Option<Duration>,
    holder: Option<Holder>,
    /// Whether the request may have reached the store and taken effect.
    may_have_applied: bool,
    /// Until when the store may still apply it, where the store was told.
    not_after: Option<NotAfter>,
    loss: Option<LossReason>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The store refuses a request that it meets later than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAfter {
    /// On the store's clock, in Unix milliseconds.
    pub(crate) store_ms: i64,
    /// By when the store's clock has passed that, on ours.
    pub(crate) passed_by: Instant,
}

impl LockError {
    /// An error of `code` with a message. Backends of your own make theirs with this.
    ///
    /// Until [`nothing_applied`](Self::nothing_applied) says otherwise, [`ErrorCode::ServiceUnavailable`],
    /// [`ErrorCode::NetworkTimeout`], [`ErrorCode::Aborted`] and [`ErrorCode::Internal`] count as of unknown effect:
    /// the client then undoes an acquire that may have been applied. The other codes mean the store refused.
    /// Keep keys, lock ids and passwords out of `message`.
    ///
    /// ```
    /// use syncguard::{ErrorCode, LockError};
    ///
    /// let error = LockError::new(ErrorCode::RateLimited, "the store takes no more requests now");
    /// assert!(!error.may_have_applied());
    /// ```
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let may_have_applied = matches!(
            code,
            ErrorCode::ServiceUnavailable
                | ErrorCode::NetworkTimeout
                | ErrorCode::Aborted
                | ErrorCode::Internal
        );
        Self(Box::new(ErrorDetails {
            code,
            message: message.into(),
            key_hash: None,
            attempts: 0,
            waited: None,
            holder: None,
            may_have_applied,
            not_after: None,
            loss: None,
            source: None,
        }))
    }

    /// Keeps the cause, for [`source`](StdError::source).
    ///
    /// ```
    /// use syncguard::{ErrorCode, LockError};
    ///
    /// use std::error::Error;
    ///
    /// let cause = std::io::Error::other("the disk is full");
    /// let error = LockError::new(ErrorCode::Internal, "the lock was not stored").with_source(cause);
    /// assert!(error.source().is_some());
    /// ```
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds what the reason may be if the server has said nothing so far, and time is over.
    #[cfg(any(feature = "postgres", feature = "tls"))]
    pub(crate) fn if_silent(mut self, perhaps: &str) -> Self {
        if self.0.code == ErrorCode::NetworkTimeout {
            self.add(perhaps);
        }
        self
    }

    /// As [`if_silent`](Self::if_silent), and also if the server has closed the connection. Only for an error of the socket, on
    /// which nothing was received.
    #[cfg(any(feature = "redis", feature = "postgres"))]
    pub(crate) fn if_unheard(mut self, perhaps: &str) -> Self {
        if matches!(
            self.0.code,
            ErrorCode::NetworkTimeout | ErrorCode::ServiceUnavailable
        ) {
            self.add(perhaps);
        }
        self
    }

    /// Says at which server, and under which limit, the time was over, if it was and the message does not say it yet.
    #[cfg(feature = "postgres")]
    pub(crate) fn if_timed_out(mut self, server: &str, limit: &str) -> Self {
        if self.0.code == ErrorCode::NetworkTimeout {
            self.add(&format!("the server is {server}, the limit {limit}"));
        }
        self
    }

    #[cfg(any(feature = "redis", feature = "postgres", feature = "tls"))]
    fn add(&mut self, text: &str) {
        self.0.message.push_str("; ");
        self.0.message.push_str(text);
    }

    /// Says that the request had no effect for certain: it was never sent, or the store refused it.
    ///
    /// ```
    /// use syncguard::{ErrorCode, LockError};
    ///
    /// let error = LockError::new(ErrorCode::NetworkTimeout, "no connection in time").nothing_applied();
    /// assert!(!error.may_have_applied());
    /// ```
    #[must_use]
    pub fn nothing_applied(mut self) -> Self {
        self.0.may_have_applied = false;
        self
    }

    /// Says that the request may have taken effect, whatever the code is.
    #[cfg(feature = "sqlite")]
    pub(crate) fn effect_unknown(self) -> Self {
        self.applied_perhaps(true)
    }

    /// Says whether the request may have taken effect, whatever the code is.
    pub(crate) fn applied_perhaps(mut self, may_have_applied: bool) -> Self {
        self.0.may_have_applied = may_have_applied;
        self
    }

    /// Names the key concerned, by its hash.
    ///
    /// ```
    /// use syncguard::{ErrorCode, Key, LockError};
    ///
    /// let key = Key::new("invoice:42")?;
    /// let error = LockError::new(ErrorCode::Internal, "the stored value is foreign").for_key(&key);
    /// assert_eq!(error.key_hash(), Some(key.log_hash().as_str()));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    #[must_use]
    pub fn for_key(mut self, key: &crate::Key) -> Self {
        self.0.key_hash = Some(key.log_hash());
        self
    }

    /// Says until when the store may still apply the request. Says nothing of one that was not applied for certain.
    #[cfg_attr(not(any(feature = "redis", feature = "postgres")), allow(dead_code))]
    pub(crate) fn refused_after(mut self, limit: Option<NotAfter>) -> Self {
        if self.0.may_have_applied {
            self.0.not_after = limit;
        }
        self
    }

    /// Until when the store may still apply the request; `None` if it cannot arrive late, or the store was not told.
    pub(crate) fn not_after(&self) -> Option<NotAfter> {
        self.0.not_after
    }

    pub(crate) fn after(mut self, attempts: u32, waited: Duration) -> Self {
        self.0.attempts = attempts;
        self.0.waited = Some(waited);
        self
    }

    /// The same trouble for a caller that only heard of it: nothing of that caller's was applied.
    pub(crate) fn retold(&self) -> Self {
        Self::new(self.code(), self.message()).nothing_applied()
    }

    pub(crate) fn held_by(mut self, holder: Option<Holder>) -> Self {
        self.0.holder = holder;
        self
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ServiceUnavailable, message)
    }

    /// A lock that this process held is lost.
    pub(crate) fn lost(why: LossReason) -> Self {
        let mut error = Self::new(ErrorCode::Lost, why.message());
        error.0.loss = Some(why);
        error
    }

    /// What an inherited client answers in a forked child.
    pub(crate) fn forked() -> Self {
        Self::internal(
            "this handle belongs to the parent process; open a client of its own in the forked child (if this process was not \
             forked: it closed descriptors that are not its own, or copies of them; open a new client)",
        )
        .nothing_applied()
    }

    /// The kind of trouble.
    ///
    /// ```
    /// use syncguard::{ErrorCode, LockError};
    ///
    /// let error = LockError::new(ErrorCode::RateLimited, "too many");
    /// assert_eq!(error.code(), ErrorCode::RateLimited);
    /// ```
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// The text, without the code.
    ///
    /// ```
    /// use syncguard::{ErrorCode, LockError};
    ///
    /// let error = LockError::new(ErrorCode::RateLimited, "too many");
    /// assert_eq!(error.message(), "too many");
    /// assert_eq!(error.to_string(), "RateLimited: too many");
    /// ```
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The hash of the key concerned, as [`Key::log_hash`](crate::Key::log_hash) shows it; `None` where no key is involved.
    ///
    /// ```
    /// use syncguard::Key;
    ///
    /// let error = Key::new("").unwrap_err();
    /// assert_eq!(error.key_hash(), None); // there is no key
    /// ```
    pub fn key_hash(&self) -> Option<&str> {
        self.0.key_hash.as_deref()
    }

    /// How many attempts a `lock` made before it gave up; 0 where that does not apply.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let _held = client.lock("nightly")?;
    /// let once = LockOptions::new().acquire_timeout(Duration::ZERO);
    /// let error = client.lock_with("nightly", &once).unwrap_err();
    /// assert_eq!(error.attempts(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// How long a `lock` waited before it gave up.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let _held = client.lock("nightly")?;
    /// let short = LockOptions::new().acquire_timeout(Duration::from_millis(5));
    /// let error = client.lock_with("nightly", &short).unwrap_err();
    /// assert!(error.waited() >= Some(Duration::from_millis(5)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waited(&self) -> Option<Duration> {
        self.0.waited
    }

    /// The holder of the key at the last attempt, where the store told it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::LockOptions;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let client = syncguard::Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
    /// let held = client.lock("nightly")?;
    /// let once = LockOptions::new().acquire_timeout(Duration::ZERO);
    /// let error = client.lock_with("nightly", &once).unwrap_err();
    /// assert_eq!(error.holder().and_then(|holder| holder.fence), Some(held.fence()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }

    /// What the holder said of itself at the last attempt, of an [`ErrorCode::AcquisitionTimeout`], where the store told it: the text of
    /// [`LockOptions::holder`](crate::LockOptions::holder). Raw data for people, never trusted; neither `Display` nor `Debug` shows it.
    ///
    /// ```
    /// use syncguard::{ErrorCode, LockError};
    ///
    /// assert_eq!(LockError::new(ErrorCode::Internal, "no holder here").holder_text(), None);
    /// ```
    pub fn holder_text(&self) -> Option<&str> {
        self.holder().and_then(Holder::text)
    }

    /// Why the lock was lost; `None` unless the code is [`ErrorCode::Lost`].
    ///
    /// ```
    /// use syncguard::{ErrorCode, LockError};
    ///
    /// let error = LockError::new(ErrorCode::Internal, "a fault");
    /// assert_eq!(error.loss_reason(), None);
    /// ```
    pub fn loss_reason(&self) -> Option<LossReason> {
        self.0.loss
    }

    /// Whether the operation may have taken effect although it failed (a timeout, a reset, a cancel in flight). For the error of
    /// a wait: whether one of its attempts may have; the client takes that back in the background, so there is nothing to do.
    /// After a bare [`acquire`](crate::Backend::acquire) release its lock id; repeat a release or an extend.
    ///
    /// ```
    /// use syncguard::{ErrorCode, LockError};
    ///
    /// let error = LockError::new(ErrorCode::NetworkTimeout, "no answer in time");
    /// assert!(error.may_have_applied());
    /// ```
    pub fn may_have_applied(&self) -> bool {
        self.0.may_have_applied
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)
    }
}

impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_struct("LockError");
        d.field("code", &self.0.code)
            .field("message", &self.0.message);
        if let Some(hash) = &self.0.key_hash {
            d.field("key_hash", hash);
        }
        if self.0.attempts > 0 {
            d.field("attempts", &self.0.attempts)
                .field("waited", &self.0.waited)
                .field("holder", &self.0.holder);
        }
        if let Some(source) = &self.0.source {
            d.field("source", source);
        }
        d.finish()
    }
}

impl StdError for LockError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}
