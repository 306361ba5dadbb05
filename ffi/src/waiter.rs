//! `syncguard_waiter`: a place in the line of a key, for callers whose threads must not block. Uses `boundary`, `options`, `cancel` and
//! `guard`.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use rust_syncguard::{Turn, Waiter, WaiterEvent, WaiterStep};

use crate::boundary::{Opaque, UserData, boundary, free_handle, give, invalid};
use crate::cancel::{bounds, syncguard_cancel};
use crate::client::syncguard_client;
use crate::error::syncguard_error;
use crate::guard::{GuardBody, syncguard_guard};
use crate::options::{AdoptedOptions, syncguard_lock_options};
use crate::status::{LOCKED, OK, syncguard_status};

/// The caller begins, its sleep is over, `wake` was called, or it has made an attempt.
pub const SYNCGUARD_WAITER_WOKEN: i32 = 0;
/// The caller does not want the lock any more.
pub const SYNCGUARD_WAITER_CANCELLED: i32 = 1;
/// The caller had no thread for the attempt that it was to make.
pub const SYNCGUARD_WAITER_NO_THREAD: i32 = 2;

/// A place in the line of a key, for callers that wait by themselves between single attempts: event loops, and languages with
/// threads of their own. `syncguard_lock` does all of this for you.
/// `syncguard_lock_or_wait` gives one if the lock is held or others came before. Ask `syncguard_waiter_next` what to do, do it, and
/// ask again: it keeps the acquire timeout, the retries and the delays of the options. Of many that come together one asks the
/// store, and they are served in the order in which they came. Freeing it leaves the line and lets the next one try.
/// Threads: any, one at a time.
pub struct syncguard_waiter {
    _opaque: [u8; 0],
}

impl Opaque for syncguard_waiter {
    type Body = WaiterBody;
    const NAME: &'static str = "waiter";
    const TAG: u64 = 0x5347_7761_6974_6501;
}

/// The body of a `syncguard_waiter`.
pub(crate) struct WaiterBody {
    waiter: Waiter,
    /// The options' data, for the guard.
    user: Arc<UserData>,
}

/// Takes the lock of a key, in one attempt, if no caller of this client waits for it and it is free; else joins the line, without
/// contacting the store if others came before.
///
/// @param key        as for `syncguard_lock`.
/// @param key_len    its length in bytes, or `SYNCGUARD_NUL`.
/// @param options    NULL for all defaults. They hold for the whole wait and for the guard; `cancel` is for this call only.
/// @param wake       called, on any thread, when the place becomes the first one and when the lock may have been freed, perhaps
///                   before this has returned. It must return at once and must not call anything here: write to a pipe or an eventfd.
/// @param wake_data  what `wake` is called with. It must live until the place is freed, and `wake` may still be running then.
/// @param out        gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`, or NULL.
/// @param place      gets the place, which belongs to the caller and is freed with `syncguard_waiter_free`, or NULL.
/// @param err        NULL, or gets an error below zero.
/// @return OK: one of the two is there, and the other is NULL; below zero as for `syncguard_lock`, if the wait is over at once, and
/// both are NULL. The options' `user_data` as there: the place keeps it for the guard, and it is finalized when both are freed.
/// Threads: any. Blocks up to the larger of the acquire timeout and the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_lock_or_wait(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    options: *const syncguard_lock_options,
    wake: Option<unsafe extern "C" fn(user_data: *mut c_void)>,
    wake_data: *mut c_void,
    out: *mut *mut syncguard_guard,
    place: *mut *mut syncguard_waiter,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (out, place) = (call.handle_out(out), call.handle_out(place));
        let adopted = AdoptedOptions::lock(call, options);
        let (out, place, body) = (out?, place?, call.handle(client)?);
        let wake = wake.ok_or_else(|| invalid("wake is NULL"))?;
        let key = call.text("key", key, key_len)?;
        let (options, user) = adopted.options(call)?;
        let woken = UserData::adopt(wake_data, None);
        match body.client.lock_or_wait(key, &options, woken.wake(wake))? {
            Turn::Held(guard) => out.set(give(GuardBody::new(guard, user))),
            Turn::InLine(waiter) => place.set(give(WaiterBody { waiter, user })),
        }
        Ok(OK)
    })
}

/// Joins the line of a key without contacting the store: for a caller that has no thread for an attempt now. The rest is as for
/// `syncguard_lock_or_wait`.
///
/// @param key        as for `syncguard_lock`.
/// @param key_len    its length in bytes, or `SYNCGUARD_NUL`.
/// @param options    as for `syncguard_lock_or_wait`.
/// @param wake       as there.
/// @param wake_data  as there.
/// @param out        gets the place, which belongs to the caller and is freed with `syncguard_waiter_free`; NULL unless OK.
/// @param err        NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL, a bad key or a bad option; ABORTED, the token was triggered; INTERNAL in a forked child.
/// The options' `user_data` as for `syncguard_lock_or_wait`.
/// Threads: any. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_new(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    options: *const syncguard_lock_options,
    wake: Option<unsafe extern "C" fn(user_data: *mut c_void)>,
    wake_data: *mut c_void,
    out: *mut *mut syncguard_waiter,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let out = call.handle_out(out);
        let adopted = AdoptedOptions::lock(call, options);
        let (out, body) = (out?, call.handle(client)?);
        let wake = wake.ok_or_else(|| invalid("wake is NULL"))?;
        let key = call.text("key", key, key_len)?;
        let (options, user) = adopted.options(call)?;
        let woken = UserData::adopt(wake_data, None);
        let waiter = body.client.waiter(key, &options, woken.wake(wake))?;
        out.set(give(WaiterBody { waiter, user }));
        Ok(OK)
    })
}

/// What to do next. Ask at the beginning, when a sleep is over or `wake` was called, and after each attempt.
///
/// @param event  one of the `SYNCGUARD_WAITER_` numbers: why you ask.
/// @param ms     gets a time in milliseconds, rounded up; written for OK and LOCKED.
/// @param err    NULL, or gets an error below zero.
/// @return OK: call `syncguard_waiter_try_lock` now; the attempt ends by itself within `ms` from now. LOCKED: ask again after `ms`,
/// or as soon as `wake` is called. Below zero: the wait is over, so free the place; ACQUISITION_TIMEOUT and the rest as for
/// `syncguard_lock`, ABORTED after `SYNCGUARD_WAITER_CANCELLED`; INVALID_ARGUMENT for NULL, for an unknown event, during an attempt,
/// and for a wait that has ended before.
/// Threads: any, one at a time. No I/O; does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_next(
    waiter: *mut syncguard_waiter,
    event: i32,
    ms: *mut i64,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (ms, line) = (call.out("ms", ms)?, call.handle(waiter)?);
        let event = match event {
            SYNCGUARD_WAITER_WOKEN => WaiterEvent::Woken,
            SYNCGUARD_WAITER_CANCELLED => WaiterEvent::Cancelled,
            SYNCGUARD_WAITER_NO_THREAD => WaiterEvent::NoThread,
            _ => return Err(invalid("event is none of SYNCGUARD_WAITER_*")),
        };
        let (status, time) = match line.waiter.next(event) {
            WaiterStep::Try { within, .. } => (OK, within),
            WaiterStep::Sleep(time) => (LOCKED, time),
            WaiterStep::GiveUp(error) => return Err(error),
        };
        ms.set(i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX));
        Ok(status)
    })
}

/// Makes the attempt that `syncguard_waiter_next` called for; without that it makes one only if one is due. Does not free the place:
/// do that once the lock is held.
///
/// @param cancel  NULL, or ends the attempt, and with it the wait.
/// @param out     gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`; NULL unless OK.
/// @param err     NULL, or gets an error below zero.
/// @return OK, it is held; LOCKED, it is not, and `syncguard_waiter_next` says what to do; below zero, the wait is over, as there. If
/// less than half of an operation timeout was left and the store did not answer in it: the trouble that others in line met, or
/// ACQUISITION_TIMEOUT if they were answered.
/// Threads: any, one at a time. Blocks up to the larger of the acquire timeout and the operation timeout, counted from when the wait
/// began, or 30 ms if that is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_try_lock(
    waiter: *mut syncguard_waiter,
    cancel: *mut syncguard_cancel,
    out: *mut *mut syncguard_guard,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (out, line) = (call.handle_out(out)?, call.handle(waiter)?);
        let bounds = bounds(call, cancel)?;
        let Some(guard) = line.waiter.try_lock(&bounds.call())? else {
            return Ok(LOCKED);
        };
        out.set(give(GuardBody::new(guard, Arc::clone(&line.user))));
        Ok(OK)
    })
}

/// Leaves the line, lets the next one try, and frees the place. NULL is fine. `wake` may still be running on another thread.
/// Threads: any, but not inside `wake`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_free(waiter: *mut syncguard_waiter) {
    free_handle(waiter);
}
