//! `syncguard_waiter`: a place in line for callers whose threads must not block.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use rust_syncguard::{Turn, Waiter};

use crate::boundary::{Opaque, UserData, boundary, dispose, give, invalid, quietly};
use crate::client::syncguard_client;
use crate::error::syncguard_error;
use crate::guard::{Held, syncguard_guard};
use crate::options::{Adopted, syncguard_lock_options};
use crate::status::{LOCKED, OK, syncguard_status};

/// A place in the line of a key, for callers that wait by themselves between single attempts: event loops, and languages with
/// threads of their own. `syncguard_lock` does all of this for you.
/// `syncguard_lock_or_wait` gives one if the lock is held or others came before. Try with `syncguard_waiter_try_lock` whenever it is
/// called; also when your own delay (`syncguard_retry_delay_ms`) or the holder's lease (`syncguard_waiter_lease_ms`) has passed and
/// it is first. Of many who come together one asks the store, and they are served in the order in which they came. Freeing it
/// leaves the line and passes the turn on.
/// Threads: any, also several at once.
pub struct syncguard_waiter {
    _opaque: [u8; 0],
}

impl Opaque for syncguard_waiter {
    type Body = InLine;
    const NAME: &'static str = "waiter";
    const TAG: u64 = 0x5347_7761_6974_6501;
}

/// The body of a `syncguard_waiter`.
pub(crate) struct InLine {
    waiter: Waiter,
    /// After the waiter: the data is finalized when no call can come any more, and not from inside the line.
    _user: Arc<UserData>,
}

/// Takes the lock of a key if nobody of this client wants it and it is free, in one attempt; else joins the line, without asking the
/// store if others came before.
///
/// @param key        as for `syncguard_lock`.
/// @param key_len    its length in bytes, or `SYNCGUARD_NUL`.
/// @param options    NULL for all defaults.
/// @param wake       called, on any thread, when the place becomes the first one and when the lock may have been freed, perhaps
///                   before this has returned. It must return at once and must not call anything here: write to a pipe or an eventfd.
/// @param wake_data  what `wake` is called with. It must live until the place is freed, and `wake` may still be running then.
/// @param out        gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`, or NULL.
/// @param place      gets the place, which belongs to the caller and is freed with `syncguard_waiter_free`, or NULL.
/// @param err        NULL, or gets an error below zero.
/// @return OK: one of the two is there, and the other is NULL; below zero as for `syncguard_try_lock`, and both are NULL. The
/// options' `user_data` as there; with a place it was finalized.
/// Threads: any. Blocks up to the operation timeout.
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
        let (out, place) = (call.slot(out), call.slot(place));
        let adopted = Adopted::lock(call, options);
        let (out, place, opened) = (out?, place?, call.handle(client)?);
        let wake = wake.ok_or_else(|| invalid("wake is NULL"))?;
        let key = call.text("key", key, key_len)?;
        let (options, user) = adopted.options(call)?;
        let woken = UserData::adopt(wake_data, None);
        match opened
            .client
            .lock_or_wait(key, &options, woken.wake(wake))?
        {
            Turn::Held(guard) => out.set(give(Held::new(guard, user))),
            Turn::InLine(waiter) => place.set(give(InLine {
                waiter,
                _user: woken,
            })),
        }
        Ok(OK)
    })
}

/// One attempt by a place in line. It is made also if the place is not the first, for a caller that must leave and has never asked.
/// Does not free the place: do that once the lock is held.
/// It ends by the larger of the options' `acquire_timeout_ms` and the operation timeout, counted from when the place was taken. If
/// that is over, or nearly, it still gets 30 ms. A caller that waits longer than the default 5 s says so in the options; one that
/// took the place by `syncguard_waiter_new` and waited before that gives a token of `syncguard_cancel_new_timeout` with the rest.
///
/// @param options  NULL for all defaults.
/// @param out      gets the guard, which belongs to the caller and is freed with `syncguard_guard_free`; NULL unless OK.
/// @param err      NULL, or gets an error below zero.
/// @return OK, it is held; LOCKED, somebody else holds it; below zero as for `syncguard_try_lock`; if less than half of an operation
/// timeout was left and the store did not answer in it, the trouble that others in line met, or ACQUISITION_TIMEOUT if they were
/// answered. The options' `user_data` as for `syncguard_try_lock`.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_try_lock(
    waiter: *mut syncguard_waiter,
    options: *const syncguard_lock_options,
    out: *mut *mut syncguard_guard,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let out = call.slot(out);
        let adopted = Adopted::lock(call, options);
        let (out, line) = (out?, call.handle(waiter)?);
        let (options, user) = adopted.options(call)?;
        let Some(guard) = line.waiter.try_lock(&options)? else {
            return Ok(LOCKED);
        };
        out.set(give(Held::new(guard, user)));
        Ok(OK)
    })
}

/// How long until the lock that this place's last attempt met is free, if it is neither renewed nor released, in milliseconds,
/// rounded up: nobody calls then.
///
/// @return milliseconds, 0 once they are over; -1 if no attempt met a holder, if the store did not tell, and for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_lease_ms(waiter: *const syncguard_waiter) -> i64 {
    quietly(-1, |call| {
        let left = call
            .handle(waiter)
            .ok()
            .and_then(|line| line.waiter.lease_left());
        left.map_or(-1, |left| {
            i64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
        })
    })
}

/// Joins the line of those who wait for a key with this client, after an attempt found it held, without blocking; the store is
/// asked to call at once. `syncguard_lock_or_wait` makes fewer requests.
///
/// @param key             as for `syncguard_lock`.
/// @param key_len         its length in bytes, or `SYNCGUARD_NUL`.
/// @param wake            called, on any thread, when the place becomes the first one and when the lock may have been freed. It
///                        must return at once and must not call anything here: write to a pipe or an eventfd.
/// @param user_data       what `wake` is called with; the library's from now on, whatever the status.
/// @param user_data_free  NULL, or called exactly once, on any thread, when no call can come any more. It must not call anything
///                        here either.
/// @param out             gets the place, which belongs to the caller and is freed with `syncguard_waiter_free`; NULL unless OK.
/// @param err             NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL or a bad key; INTERNAL in a forked child.
/// Threads: any. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_new(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    wake: Option<unsafe extern "C" fn(user_data: *mut c_void)>,
    user_data: *mut c_void,
    user_data_free: Option<unsafe extern "C" fn(user_data: *mut c_void)>,
    out: *mut *mut syncguard_waiter,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let user = UserData::adopt(user_data, user_data_free);
        let (out, opened) = (call.slot(out)?, call.handle(client)?);
        let wake = wake.ok_or_else(|| invalid("wake is NULL"))?;
        let key = call.text("key", key, key_len)?;
        let waiter = opened.client.waiter(key, user.wake(wake))?;
        out.set(give(InLine {
            waiter,
            _user: user,
        }));
        Ok(OK)
    })
}

/// Whether an attempt is worth making now: this one is first in line and the lock may have been freed. False for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_is_called(waiter: *const syncguard_waiter) -> bool {
    quietly(false, |call| {
        call.handle(waiter)
            .is_ok_and(|line| line.waiter.is_called())
    })
}

/// Whether it is this one's turn to ask the store for all who wait in this process. False for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_is_first(waiter: *const syncguard_waiter) -> bool {
    quietly(false, |call| {
        call.handle(waiter).is_ok_and(|line| line.waiter.is_first())
    })
}

/// Says that an attempt is about to be made by other means than `syncguard_waiter_try_lock`: what is freed from here on calls again.
/// NULL is fine.
/// Threads: any. Does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_begin_attempt(waiter: *mut syncguard_waiter) {
    quietly((), |call| {
        if let Ok(line) = call.handle(waiter) {
            line.waiter.begin_attempt();
        }
    });
}

/// Leaves the line, passes the turn on, and frees the place. NULL is fine. `wake` may still be running on another thread.
/// Threads: any, but not inside `wake`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_free(waiter: *mut syncguard_waiter) {
    dispose(waiter);
}

/// Whether somebody waits for a key with this client: who comes now should join the line. No I/O.
///
/// @param key      as for `syncguard_lock`.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param out      gets the answer; written if OK.
/// @param err      NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL or a bad key; INTERNAL in a forked child.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_is_waited_for(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    out: *mut bool,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (opened, out) = (call.handle(client)?, call.out("out", out)?);
        out.set(
            opened
                .client
                .is_waited_for(call.text("key", key, key_len)?)?,
        );
        Ok(OK)
    })
}
