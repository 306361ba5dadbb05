//! `syncguard_guard`: a lock that is held, and the functions that take one. Uses `boundary`, `options` and `cancel`.

use std::ffi::{CString, c_char, c_int};
use std::os::fd::AsRawFd;
use std::ptr::null;
use std::sync::Arc;
use std::time::Duration;

use rust_syncguard::{ErrorCode, Guard, LockError, Turn, WaitEnd};

use crate::boundary::{ExportedCall, Opaque, UserData, boundary, c_string, give, quietly};
use crate::cancel::{bounds, syncguard_cancel};
use crate::client::syncguard_client;
use crate::error::syncguard_loss_reason::SYNCGUARD_LOSS_NONE;
use crate::error::{syncguard_error, syncguard_loss_reason, whole_millis};
use crate::options::{AdoptedOptions, millis, syncguard_lock_options};
use crate::status::{ABSENT, LOCKED, OK, syncguard_status};

/// A lock that is held: renewed in the background, released when freed.
/// Check the fence where it matters: a holder that was paused past its ttl does not know it, and only the resource itself, by
/// refusing an older fence than it has seen, is safe from it.
/// Threads: any, also several at once.
pub struct syncguard_guard {
    _opaque: [u8; 0],
}

impl Opaque for syncguard_guard {
    type Body = GuardBody;
    const NAME: &'static str = "guard";
    const TAG: u64 = 0x5347_6775_6172_6401;
}

/// The body of a `syncguard_guard`.
pub(crate) struct GuardBody {
    guard: Guard,
    key: CString,
    lock_id: CString,
    fence: CString,
    /// Kept until the guard goes, also if no callback uses it.
    _user: Arc<UserData>,
}

impl GuardBody {
    pub(crate) fn new(guard: Guard, user: Arc<UserData>) -> Self {
        Self {
            key: c_string(guard.key().as_str()),
            lock_id: c_string(guard.lock_id().as_str()),
            fence: c_string(&guard.fence().to_string()),
            guard,
            _user: user,
        }
    }
}

/// Takes the lock of a key, waiting for it as the options say, and keeps it renewed until the guard is released, freed or lost.
/// Trouble of the store during the wait is retried within the same time.
///
/// @param key      the key: 1 to 512 bytes of UTF-8 after NFC, without U+0000.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param options  NULL for all defaults: ttl 30 s, wait up to 5 s and ten retries, renewal every 10 s.
/// @param out      gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`; NULL unless OK.
/// @param err      NULL, or gets an error below zero.
/// @return OK, it is held; ACQUISITION_TIMEOUT, another holder had it to the end; ABORTED, the token was triggered;
/// INVALID_ARGUMENT for NULL, a bad key or a bad option; AUTH_FAILED at once; SERVICE_UNAVAILABLE, RATE_LIMITED and
/// NETWORK_TIMEOUT if the trouble outlasted the wait; INTERNAL as `syncguard_status` says. What an attempt of unknown outcome may
/// have left is taken back in the background. Whatever the status, the options' `user_data` is the library's from now on, if the struct had a
/// valid size.
/// Threads: any. Blocks up to the larger of the acquire timeout and the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_lock(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    options: *const syncguard_lock_options,
    out: *mut *mut syncguard_guard,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let out = call.handle_out(out);
        let adopted = AdoptedOptions::lock(call, options);
        let (out, body) = (out?, call.handle(client)?);
        let key = call.text("key", key, key_len)?;
        let (options, user) = adopted.options(call)?;
        let guard = body.client.lock_with(key, &options)?;
        out.set(give(GuardBody::new(guard, user)));
        Ok(OK)
    })
}

/// Takes the lock of a key if it is free: one attempt, whatever the options say of waiting.
///
/// @param key      as for `syncguard_lock`.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param options  NULL for all defaults.
/// @param out      gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`; NULL unless OK.
/// @param err      NULL, or gets an error below zero.
/// @return OK, it is held; LOCKED, another holder has it, in this process or another; below zero as for `syncguard_lock`, but
/// never ACQUISITION_TIMEOUT. The options' `user_data` as there.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_try_lock(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    options: *const syncguard_lock_options,
    out: *mut *mut syncguard_guard,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let out = call.handle_out(out);
        let adopted = AdoptedOptions::lock(call, options);
        let (out, body) = (out?, call.handle(client)?);
        let key = call.text("key", key, key_len)?;
        let (options, user) = adopted.options(call)?;
        let Some(guard) = body.client.try_lock_with(key, &options)? else {
            return Ok(LOCKED);
        };
        out.set(give(GuardBody::new(guard, user)));
        Ok(OK)
    })
}

/// Takes the lock of a key if it is free: one attempt, whatever the options say of waiting. As `syncguard_try_lock`, but a key that
/// another holder has is an error, which says what is known of that holder.
///
/// @param key      as for `syncguard_lock`.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param options  NULL for all defaults.
/// @param out      gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`; NULL unless OK.
/// @param err      NULL, or gets an error below zero.
/// @return OK, it is held; ACQUISITION_TIMEOUT, another holder has it, see `syncguard_error_holder`; else below zero as for
/// `syncguard_lock`. The options' `user_data` as there.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_lock_once(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    options: *const syncguard_lock_options,
    out: *mut *mut syncguard_guard,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let out = call.handle_out(out);
        let adopted = AdoptedOptions::lock(call, options);
        let (out, body) = (out?, call.handle(client)?);
        let key = call.text("key", key, key_len)?;
        let (options, user) = adopted.options(call)?;
        let options = options.acquire_timeout(Duration::ZERO);
        // Not `lock_with`: that speaks of the calling thread, which bindings share between callers.
        match body.client.lock_or_wait(key, &options, || {})? {
            Turn::Held(guard) => out.set(give(GuardBody::new(guard, user))),
            _ => {
                let why = "an attempt that does not wait has joined the line";
                return Err(LockError::new(ErrorCode::Internal, why));
            }
        }
        Ok(OK)
    })
}

/// The key, normalised.
///
/// @return a text that belongs to the guard and lives until it is freed; NULL for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_key(guard: *const syncguard_guard) -> *const c_char {
    guard_text(guard, |held| &held.key)
}

/// The id of this grant, 22 characters. Any process, in any language, that knows it can release or extend the lock.
///
/// @return a text that belongs to the guard and lives until it is freed; NULL for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_lock_id(guard: *const syncguard_guard) -> *const c_char {
    guard_text(guard, |held| &held.lock_id)
}

/// The fencing token, 15 digits: larger, as a number and as a text, than that of every earlier grant of this key.
///
/// @return a text that belongs to the guard and lives until it is freed; NULL for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_fence(guard: *const syncguard_guard) -> *const c_char {
    guard_text(guard, |held| &held.fence)
}

/// The fencing token as a number, from 1 to 999999999999999: it fits a BIGINT.
///
/// @return the number; 0, which is no fence, for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_fence_number(guard: *const syncguard_guard) -> u64 {
    quietly(0, |call| {
        call.handle(guard)
            .map_or(0, |held| held.guard.fence().get())
    })
}

/// When the lease ends, in Unix milliseconds of the store's clock, as of the last renewal. For display; decide by
/// `syncguard_guard_remaining_ms`. 0 for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_expires_at_ms(guard: *const syncguard_guard) -> i64 {
    quietly(0, |call| {
        call.handle(guard)
            .map_or(0, |held| held.guard.expires_at_ms())
    })
}

/// How much longer this process may count on the lock, in whole milliseconds of the local monotonic clock, rounded down. 0 once
/// lost or released, and for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_remaining_ms(guard: *const syncguard_guard) -> i64 {
    quietly(0, |call| {
        call.handle(guard)
            .map_or(0, |held| whole_millis(held.guard.remaining()))
    })
}

/// Whether this process can no longer count on the lock: it could not be renewed in time, or the store no longer has it. For
/// good. Compares the clock at the moment of the call. A released guard is not lost, unless it was before. True for NULL and in a
/// forked child.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_is_lost(guard: *const syncguard_guard) -> bool {
    quietly(true, |call| {
        call.handle(guard).map_or(true, |held| held.guard.is_lost())
    })
}

/// Why the lock was lost. NONE while it is held, and if it was released before it could be lost. Compares the clock at the moment
/// of the call. FORKED in a forked child; NONE for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_loss_reason(
    guard: *const syncguard_guard,
) -> syncguard_loss_reason {
    quietly(SYNCGUARD_LOSS_NONE, |call| {
        call.handle(guard)
            .map_or(SYNCGUARD_LOSS_NONE, |held| held.guard.loss().into())
    })
}

/// A descriptor that becomes readable when the lock is lost, for `poll`, `select` and `epoll`. Made at the first call; the same
/// one ever after.
///
/// @return a descriptor that belongs to the guard and is closed when that is freed: do not read from it and do not close it, and
/// take it out of an epoll set before the guard is freed. -1 for NULL, in a forked child, or if the process has no descriptor left.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_lost_fd(guard: *mut syncguard_guard) -> c_int {
    quietly(-1, |call| {
        call.handle(guard).map_or(-1, |held| {
            held.guard.lost_fd().map_or(-1, |fd| fd.as_raw_fd())
        })
    })
}

/// Waits until the lock is lost.
///
/// @param timeout_ms  how long at the most, or `SYNCGUARD_FOREVER`; 0 and any other negative value do not wait.
/// @return true: lost; false: released, freed, or the time is up. True at once for NULL and in a forked child.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_wait_lost(
    guard: *const syncguard_guard,
    timeout_ms: i64,
) -> bool {
    quietly(true, |call| {
        call.handle(guard).map_or(true, |held| match timeout_ms {
            -1 => held.guard.wait_lost(),
            ms => held
                .guard
                .wait_lost_for(millis("timeout_ms", ms).unwrap_or_default()),
        })
    })
}

/// What ended `syncguard_guard_wait_end`. The numbers never change; later versions may add some, so a `switch` needs a `default`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(clippy::upper_case_acronyms)]
pub enum syncguard_wait_end {
    /// The token that was given is none, or this version of the library does not name what ended the wait.
    SYNCGUARD_WAIT_END_OTHER = 0,
    /// The lock is lost: stop working. `syncguard_guard_loss_reason` says why.
    SYNCGUARD_WAIT_END_LOST = 1,
    /// The guard is released or freed, or its release has begun.
    SYNCGUARD_WAIT_END_RELEASED = 2,
    /// The token was triggered. The lock is held.
    SYNCGUARD_WAIT_END_CANCELLED = 3,
    /// The time is over, or that of the token. The lock is held.
    SYNCGUARD_WAIT_END_TIME_OVER = 4,
}

use syncguard_wait_end::*;

/// Waits until the lock is lost or released, a token is triggered, or the time is over, whichever comes first: for a thread that watches
/// the work under a lock.
///
/// @param timeout_ms  how long at the most, or `SYNCGUARD_FOREVER`; 0 and any other negative value only look.
/// @param cancel      NULL, or ends the wait. The token's own time limit ends it too.
/// @return what ended the wait. Of several, a loss is answered first and a release next. LOST at once for NULL and in a forked child;
/// OTHER at once for a token that is none.
/// Threads: any, also several at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_wait_end(
    guard: *const syncguard_guard,
    timeout_ms: i64,
    cancel: *mut syncguard_cancel,
) -> syncguard_wait_end {
    quietly(SYNCGUARD_WAIT_END_LOST, |call| {
        let Ok(held) = call.handle(guard) else {
            return SYNCGUARD_WAIT_END_LOST;
        };
        let Ok(bounds) = bounds(call, cancel) else {
            return SYNCGUARD_WAIT_END_OTHER;
        };
        let wait = match timeout_ms {
            -1 => bounds.call(),
            ms => bounds
                .call()
                .within(millis("timeout_ms", ms).unwrap_or_default()),
        };
        match held.guard.wait_lost_with(&wait) {
            WaitEnd::Lost(_) => SYNCGUARD_WAIT_END_LOST,
            WaitEnd::Released => SYNCGUARD_WAIT_END_RELEASED,
            WaitEnd::Cancelled => SYNCGUARD_WAIT_END_CANCELLED,
            WaitEnd::TimeOver => SYNCGUARD_WAIT_END_TIME_OVER,
            _ => SYNCGUARD_WAIT_END_OTHER,
        }
    })
}

/// Sets the lease to `ttl_ms` from now, and renews with that from now on. Less than what remains shortens it.
///
/// @param ttl_ms  at least 1, at most ten years.
/// @param cancel  NULL, or ends the call.
/// @param err     NULL, or gets an error below zero.
/// @return OK, still held; ABSENT, it was lost or released, also in the middle of this call, which needs no I/O once known;
/// INVALID_ARGUMENT for NULL or a bad ttl; below zero as `syncguard_status` says, after which the lease counts as the shorter of
/// what it was and what was asked for.
/// Threads: any. Waits for a renewal under way; blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_extend(
    guard: *mut syncguard_guard,
    ttl_ms: i64,
    cancel: *mut syncguard_cancel,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (held, bounds) = (call.handle(guard)?, bounds(call, cancel)?);
        let ttl = millis("ttl_ms", ttl_ms)?;
        let outcome = held.guard.extend_with(ttl, &bounds.call())?;
        Ok(if outcome.is_extended() { OK } else { ABSENT })
    })
}

/// Ends the renewal and releases the lock, whatever this process believes of it, and reports. Does not free the guard.
/// May be repeated: once the store has answered, nothing more is sent and the answer is ABSENT; after an error it is tried again.
///
/// @param cancel  NULL, or ends the call.
/// @param err     NULL, or gets an error below zero.
/// @return OK, this call removed the lock; ABSENT, it was gone already; INVALID_ARGUMENT for NULL; below zero as `syncguard_status` says:
/// the lock may then be held until its ttl has passed.
/// Threads: any, also inside the guard's own callback; otherwise it waits, up to a second, for one that runs. Blocks up to the
/// operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_release(
    guard: *mut syncguard_guard,
    cancel: *mut syncguard_cancel,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (held, bounds) = (call.handle(guard)?, bounds(call, cancel)?);
        let outcome = held.guard.release_with(&bounds.call())?;
        Ok(if outcome.is_released() { OK } else { ABSENT })
    })
}

/// How long the call that took the lock went on until the store granted it, in whole milliseconds, rounded down: the time in line,
/// the sleeps and the attempts. 0 for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_waited_ms(guard: *const syncguard_guard) -> i64 {
    quietly(0, |call| {
        call.handle(guard)
            .map_or(0, |held| whole_millis(held.guard.waited()))
    })
}

/// Frees a guard, and releases the lock if that was not done. NULL is fine. Never fails: trouble goes to `on_release_error`.
/// A call of another thread that uses it ends safely; one that waits for the loss returns false. In a forked child nothing is
/// sent and the lock stays the parent's.
/// Threads: any, also inside the guard's own callback. Blocks up to the dispose timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_guard_free(guard: *mut syncguard_guard) {
    quietly((), |call| {
        let Some(held) = call.take(guard) else { return };
        if held.is_shared() {
            // A call of another thread uses the guard and would delay the release until its end. A release that fails here is tried once
            // more, and reported, when the last such call ends.
            held.guard.dispose();
        }
    });
}

fn guard_text(
    guard: *const syncguard_guard,
    get: impl FnOnce(&GuardBody) -> &CString,
) -> *const c_char {
    quietly(null(), |call: &ExportedCall| {
        let held: Result<_, LockError> = call.handle(guard);
        held.map_or(null(), |held| get(&held).as_ptr())
    })
}
