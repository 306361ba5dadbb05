//! `syncguard_waiter`: a place in line for callers whose threads must not block.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use rust_syncguard::Waiter;

use crate::boundary::{Opaque, UserData, boundary, dispose, give, invalid, quietly};
use crate::client::syncguard_client;
use crate::error::syncguard_error;
use crate::status::{OK, syncguard_status};

/// A place in the line of a key, for callers that wait by themselves between single attempts: event loops, and languages with
/// threads of their own. `syncguard_lock` does all of this for you.
/// Make one after an attempt found the lock held. Try again when it is called, or when your own delay
/// (`syncguard_retry_delay_ms`) has passed and it is first. Say `syncguard_waiter_begin_attempt` before each attempt. Freeing it
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

/// Joins the line of those who wait for a key in this process, without blocking.
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

/// Says that an attempt is about to be made: what is freed from here on calls again. NULL is fine.
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
