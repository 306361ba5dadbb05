//! The faults that a test injects into the store in memory. It uses `types` alone.

use std::time::Duration;

use crate::types::error::ErrorCode;

/// An operation that a fault can be injected into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// [`Backend::acquire`](crate::Backend::acquire).
    Acquire,
    /// [`Backend::release`](crate::Backend::release).
    Release,
    /// [`Backend::extend`](crate::Backend::extend).
    Extend,
    /// [`Backend::is_locked`](crate::Backend::is_locked).
    IsLocked,
    /// [`Backend::find`](crate::Backend::find) and [`Backend::lookup`](crate::Backend::lookup).
    Lookup,
}

/// What goes wrong.
///
/// ```
/// use syncguard::testkit::{Fault, MemoryBackend, Verb};
/// use syncguard::{Client, ErrorCode};
///
/// let store = MemoryBackend::new();
/// store.always(Verb::Acquire, Fault::Refuse(ErrorCode::AuthFailed));
/// let error = Client::from_backend(store).lock("nightly").unwrap_err();
/// assert_eq!(error.code(), ErrorCode::AuthFailed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Answers an error of this code; nothing is applied.
    Refuse(ErrorCode),
    /// Applies the operation and loses the answer: `ServiceUnavailable`, of unknown effect.
    DropReply,
    /// Answers only after this long in real time, or `Aborted`/`NetworkTimeout` if the call is ended before; nothing is applied
    /// then.
    Delay(Duration),
    /// Never answers: the call ends with its deadline or its cancel, of unknown effect.
    Hang,
    /// Release and extend answer "absent", reads find nothing, acquire answers "locked"; nothing is applied.
    SayAbsent,
    /// Panics inside the verb, as a store with a bug does.
    Panic,
}
