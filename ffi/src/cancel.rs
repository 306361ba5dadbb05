//! `syncguard_cancel`: ends calls from another thread.

use std::ptr::null_mut;
use std::time::Duration;

use rust_syncguard::{CancelToken, LockError};

use crate::boundary::{Call, Opaque, dispose, give, quietly};

/// Ends calls from another thread: a wait at once, a request in flight as soon as its socket notices. Sticky: once triggered,
/// every call given it answers ABORTED. Make a new one for the next piece of work.
/// A `syncguard_lock` that was cancelled gives back by itself what it may have been granted. The bare verbs do not: after an
/// ABORTED `syncguard_acquire`, release the lock id that it wrote.
/// Threads: any, also several at once; may be given to many calls at once.
pub struct syncguard_cancel {
    _opaque: [u8; 0],
}

impl Opaque for syncguard_cancel {
    type Body = CancelToken;
    const NAME: &'static str = "cancel";
    const TAG: u64 = 0x5347_6361_6e63_6501;
}

/// The token a call was given, if it was given one. It is shared, so it may be freed meanwhile.
pub(crate) fn token(
    call: &Call,
    cancel: *const syncguard_cancel,
) -> Result<Option<CancelToken>, LockError> {
    Ok(call.maybe(cancel)?.map(|token| token.clone()))
}

/// Makes a token that is not triggered.
///
/// @return a token that belongs to the caller, who frees it with `syncguard_cancel_free`. NULL only after a bug of the library.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_cancel_new() -> *mut syncguard_cancel {
    quietly(null_mut(), |_| give(CancelToken::new()))
}

/// Makes a token that also bounds the calls it is given to: each ends `timeout_ms` from now at the latest, with NETWORK_TIMEOUT. The
/// waits of `syncguard_lock` end by then too. For callers that have less time than their operation timeout, such as one that
/// waits by itself and must be done.
///
/// @param timeout_ms  milliseconds from now; below zero is taken for zero.
/// @return as for `syncguard_cancel_new`.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_cancel_new_timeout(timeout_ms: i64) -> *mut syncguard_cancel {
    quietly(null_mut(), |_| {
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        give(CancelToken::new().with_timeout(timeout))
    })
}

/// Triggers a token, for good, and wakes every call that was given it. Any number of times; NULL is fine.
/// Threads: any. Not from a signal handler: write to a pipe there, or use `signalfd`, and trigger it from a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_cancel_trigger(cancel: *mut syncguard_cancel) {
    quietly((), |call| {
        if let Ok(token) = call.handle(cancel) {
            token.cancel();
        }
    });
}

/// Frees a token. NULL is fine. A call that was given it keeps it alive inside, but nobody can trigger it any more.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_cancel_free(cancel: *mut syncguard_cancel) {
    dispose(cancel);
}
