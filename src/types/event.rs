//! [`LockEvent`]: what telemetry tells of one operation, one wait or one loss. It uses `error`, `fence`, `key` and `lock_id`.

use std::fmt;
use std::time::Duration;

use crate::types::error::{ErrorCode, LossReason};
use crate::types::fence::Fence;
use crate::types::key::Key;
use crate::types::lock_id::LockId;

/// What a [`LockEvent`] is about.
///
/// ```
/// use syncguard::{ClientOptions, LockEventType};
///
/// let options = ClientOptions::new().on_event(|event| {
///     if event.kind == LockEventType::Loss {
///         eprintln!("a lock was lost: {:?}", event.loss);
///     }
/// });
/// # drop(options);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum LockEventType {
    /// [`Backend::acquire`](crate::Backend::acquire): every attempt of a wait is one.
    Acquire,
    /// [`Backend::release`](crate::Backend::release).
    Release,
    /// [`Backend::extend`](crate::Backend::extend): every renewal of a guard is one.
    Extend,
    /// [`Backend::is_locked`](crate::Backend::is_locked).
    IsLocked,
    /// [`Backend::lookup`](crate::Backend::lookup) and [`Backend::find`](crate::Backend::find).
    Lookup,
    /// A wait of [`Client::lock`](crate::Client::lock) or of a [`Waiter`](crate::Waiter) has ended, with the lock or without it. One
    /// that was granted at once is told too; [`try_lock`](crate::Client::try_lock) does not wait.
    Wait,
    /// A guard was lost: once per guard, when that was found out, and not after a release has begun.
    Loss,
}

impl LockEventType {
    /// A short name for labels: `acquire`, `release`, `extend`, `is_locked`, `lookup`, `wait`, `loss`.
    ///
    /// ```
    /// assert_eq!(syncguard::LockEventType::IsLocked.as_str(), "is_locked");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Release => "release",
            Self::Extend => "extend",
            Self::IsLocked => "is_locked",
            Self::Lookup => "lookup",
            Self::Wait => "wait",
            Self::Loss => "loss",
        }
    }
}

impl fmt::Display for LockEventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why an operation did not do what was asked, although the store answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum EventReason {
    /// Another holder has the lock; of a wait: another holder had it to the end.
    Locked,
    /// The lock was there, and its time was over.
    Expired,
    /// There was no such lock, or it has another owner.
    NotFound,
}

impl EventReason {
    /// A short name for labels: `locked`, `expired`, `not-found`.
    ///
    /// ```
    /// assert_eq!(syncguard::EventReason::NotFound.as_str(), "not-found");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Locked => "locked",
            Self::Expired => "expired",
            Self::NotFound => "not-found",
        }
    }
}

impl fmt::Display for EventReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One operation, one wait or one loss, and how it went. `Debug` leaves the raw fields out; so does `Serialize`, with the feature
/// `serde`.
///
/// ```
/// use syncguard::ClientOptions;
///
/// let options = ClientOptions::new().on_event(|event| {
///     let outcome = match (event.code, event.reason) {
///         (Some(code), _) => code.as_str(),
///         (_, Some(reason)) => reason.as_str(),
///         _ => "done",
///     };
///     println!("{} on {}: {outcome} in {:?}", event.kind, event.backend, event.duration);
/// });
/// # drop(options);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LockEvent {
    /// What it is about.
    pub kind: LockEventType,
    /// Whether it did what was asked. A lookup that found nothing did not, without a [`reason`](Self::reason); an `is_locked`
    /// that was answered always did; a loss never does.
    pub ok: bool,
    /// Why not, where the store answered.
    pub reason: Option<EventReason>,
    /// The code of the error that it ended with.
    pub code: Option<ErrorCode>,
    /// Why the guard was lost, of a [`LockEventType::Loss`].
    pub loss: Option<LossReason>,
    /// The name of the store, as in [`Capabilities::backend`](crate::Capabilities::backend).
    pub backend: &'static str,
    /// The hash of the key, where it is known: a release or an extend of a guard has it, one by a lock id alone has not.
    pub key_hash: Option<String>,
    /// The hash of the lock id, where the operation had one.
    pub lock_id_hash: Option<String>,
    /// The raw key, if [`IncludeRaw`](crate::IncludeRaw) says so.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub key: Option<String>,
    /// The raw lock id, if [`IncludeRaw`](crate::IncludeRaw) says so.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub lock_id: Option<String>,
    /// What the holder says of itself, if [`IncludeRaw`](crate::IncludeRaw) says so: of an acquire that was refused, a wait that gave up
    /// because the lock was held, and a lookup.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub holder: Option<String>,
    /// The fence of the grant: of an acquire or a wait that was granted, of an extend, a release or a loss of a guard.
    pub fence: Option<Fence>,
    /// How many attempts the wait made, of a [`LockEventType::Wait`].
    pub attempts: Option<u32>,
    /// How long the wait took, of a [`LockEventType::Wait`].
    pub waited: Option<Duration>,
    /// How long a guard had held the lock when its release was sent, or when it was lost. Counted from when the request was sent
    /// that the store granted.
    pub held: Option<Duration>,
    /// How long it took: the operation, or the wait. Zero for a loss.
    pub duration: Duration,
}

impl fmt::Debug for LockEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockEvent")
            .field("kind", &self.kind)
            .field("ok", &self.ok)
            .field("reason", &self.reason)
            .field("code", &self.code)
            .field("loss", &self.loss)
            .field("backend", &self.backend)
            .field("key_hash", &self.key_hash)
            .field("lock_id_hash", &self.lock_id_hash)
            .field("fence", &self.fence)
            .field("attempts", &self.attempts)
            .field("waited", &self.waited)
            .field("held", &self.held)
            .field("duration", &self.duration)
            .finish_non_exhaustive()
    }
}

/// What a caller knows of the lock that a call is about, and the store is not told: the key and the fence of a release by id.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) key: &'a Key,
    pub(crate) fence: Option<Fence>,
    /// How long the lock was held, where the call ends that.
    pub(crate) held: Option<Duration>,
}

/// An event before it is hashed, which the operation's thread does not do.
#[derive(Clone)]
pub(crate) struct UnhashedEvent {
    pub(crate) kind: LockEventType,
    pub(crate) ok: bool,
    pub(crate) reason: Option<EventReason>,
    pub(crate) code: Option<ErrorCode>,
    pub(crate) loss: Option<LossReason>,
    pub(crate) key: Option<Key>,
    pub(crate) lock_id: Option<LockId>,
    pub(crate) holder: Option<String>,
    pub(crate) fence: Option<Fence>,
    pub(crate) attempts: Option<u32>,
    pub(crate) waited: Option<Duration>,
    pub(crate) held: Option<Duration>,
    pub(crate) duration: Duration,
}

impl UnhashedEvent {
    /// An event that did not do what was asked, until it is told otherwise.
    pub(crate) fn new(
        kind: LockEventType,
        key: Option<&Key>,
        lock_id: Option<&LockId>,
        subject: Option<&Subject<'_>>,
    ) -> Self {
        Self {
            kind,
            ok: false,
            reason: None,
            code: None,
            loss: None,
            key: key.or(subject.map(|known| known.key)).cloned(),
            lock_id: lock_id.copied(),
            holder: None,
            fence: subject.and_then(|known| known.fence),
            attempts: None,
            waited: None,
            held: subject.and_then(|known| known.held),
            duration: Duration::ZERO,
        }
    }

    /// The event for the hook, without what is raw.
    pub(crate) fn hashed(&self, backend: &'static str) -> LockEvent {
        LockEvent {
            kind: self.kind,
            ok: self.ok,
            reason: self.reason,
            code: self.code,
            loss: self.loss,
            backend,
            key_hash: self.key.as_ref().map(Key::log_hash),
            lock_id_hash: self.lock_id.as_ref().map(LockId::log_hash),
            key: None,
            lock_id: None,
            holder: None,
            fence: self.fence,
            attempts: self.attempts,
            waited: self.waited,
            held: self.held,
            duration: self.duration,
        }
    }
}
