//! `syncguard_cancel`: ends calls from another thread, and bounds them. Uses `boundary` and the Rust API.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use rust_syncguard::{CancelToken, LockError, LockOptions};

use crate::boundary::{ExportedCall, Opaque, free_handle, give, quietly};

/// Ends calls from another thread: a wait at once, a request in flight as soon as its socket notices. Sticky: once triggered,
/// every call given it answers ABORTED. Make a new one for the next piece of work.
/// A `syncguard_lock` that was cancelled gives back by itself what it may have been granted. The bare verbs do not: after an
/// ABORTED `syncguard_acquire`, release the lock id that it wrote.
/// Threads: any, also several at once; may be given to many calls at once.
pub struct syncguard_cancel {
    _opaque: [u8; 0],
}

impl Opaque for syncguard_cancel {
    type Body = CancelBody;
    const NAME: &'static str = "cancel";
    const TAG: u64 = 0x5347_6361_6e63_6501;
}

/// What a `syncguard_cancel` is: a token, and the deadline of the calls that it is given to. A C function has one argument for
/// both.
#[derive(Clone)]
pub(crate) struct CancelBody {
    token: CancelToken,
    deadline: Option<Instant>,
}

/// The bounds that a C caller set for a call.
pub(crate) struct CallBounds {
    given: Option<CancelBody>,
}

impl CallBounds {
    /// For a call of the client or of a guard.
    pub(crate) fn call(&self) -> rust_syncguard::Call<'_> {
        let call = rust_syncguard::Call::new();
        let Some(given) = &self.given else {
            return call;
        };
        let call = call.cancelled_by(&given.token);
        match given.deadline {
            Some(deadline) => call.with_deadline(deadline),
            None => call,
        }
    }

    /// For a wait.
    pub(crate) fn set_on(&self, options: LockOptions) -> LockOptions {
        let Some(given) = &self.given else {
            return options;
        };
        let options = options.cancel(&given.token);
        match given.deadline {
            Some(deadline) => options.deadline(deadline),
            None => options,
        }
    }
}

/// Reads the argument `cancel` of a call; NULL sets no bounds. The handle is shared, so it may be freed meanwhile.
pub(crate) fn bounds(
    call: &ExportedCall,
    cancel: *const syncguard_cancel,
) -> Result<CallBounds, LockError> {
    let given = call.maybe(cancel)?.map(|handle| handle.clone());
    Ok(CallBounds { given })
}

fn new_handle(deadline: Option<Instant>) -> *mut syncguard_cancel {
    let token = CancelToken::new();
    give(CancelBody { token, deadline })
}

/// Makes a token that is not triggered.
///
/// @return a token that belongs to the caller and is freed with `syncguard_cancel_free`. NULL only after a bug of the library.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_cancel_new() -> *mut syncguard_cancel {
    quietly(null_mut(), |_| new_handle(None))
}

/// Makes a token that also bounds the calls it is given to: each ends `timeout_ms` from now at the latest, with NETWORK_TIMEOUT. The
/// waits of `syncguard_lock` end by then too. For callers that have less time than their operation timeout.
///
/// @param timeout_ms  milliseconds from now; below zero is taken for zero.
/// @return as for `syncguard_cancel_new`.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_cancel_new_timeout(timeout_ms: i64) -> *mut syncguard_cancel {
    quietly(null_mut(), |_| {
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        // A time that the clock cannot show bounds nothing.
        new_handle(Instant::now().checked_add(timeout))
    })
}

/// Triggers a token, for good, and wakes every call that was given it. Any number of times; NULL is fine.
/// Threads: any. Not from a signal handler: write to a pipe there, or use `signalfd`, and trigger it from a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_cancel_trigger(cancel: *mut syncguard_cancel) {
    quietly((), |call| {
        if let Ok(handle) = call.handle(cancel) {
            handle.token.cancel();
        }
    });
}

/// Whether a token was triggered. Its time limit does not count. False for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_cancel_is_triggered(cancel: *const syncguard_cancel) -> bool {
    quietly(false, |call| {
        call.handle(cancel)
            .is_ok_and(|handle| handle.token.is_cancelled())
    })
}

/// Sleeps until a token is triggered or the time is over: a pause that a shutdown ends.
///
/// @param timeout_ms  how long at the most, or `SYNCGUARD_FOREVER`; 0 and any other negative value only look. The token's own time
///                    limit ends the sleep too.
/// @return true: triggered; false: the time is over. False at once for NULL. A token that is freed meanwhile can no longer be
/// triggered: without a time the call then never returns.
/// Threads: any, also several at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_cancel_wait(
    cancel: *const syncguard_cancel,
    timeout_ms: i64,
) -> bool {
    quietly(false, |call| {
        let Ok(handle) = call.handle(cancel) else {
            return false;
        };
        let time = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        // A time that the clock cannot show bounds nothing.
        let end = match timeout_ms {
            -1 => None,
            _ => Instant::now().checked_add(time),
        };
        match end.into_iter().chain(handle.deadline).min() {
            Some(end) => handle.token.wait_until(end),
            None => {
                handle.token.wait();
                true
            }
        }
    })
}

/// Frees a token. NULL is fine. A call that was given it keeps it alive inside, but it can no longer be triggered.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_cancel_free(cancel: *mut syncguard_cancel) {
    free_handle(cancel);
}
