//! `syncguard_waiter`: a place in line for callers that wait by themselves.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use rust_syncguard::Waiter;

use crate::boundary::{Opaque, UserData, boundary, dispose, give, invalid, quietly};
use crate::client::syncguard_client;
use crate::error::syncguard_error;
use crate::status::{OK, syncguard_status};

/// A place in the line of those who wait for a key with one client, for callers that must not block a thread while they wait:
/// bindings to languages with threads of their own. `syncguard_lock` does all of this by itself.
/// Make one after an attempt found the key held, or at once if `syncguard_client_is_waited_for`. Try again when it is called, or
/// when a delay (`syncguard_retry_delay_ms`) has passed and it is first; say `syncguard_waiter_begin_attempt` before each
/// `syncguard_try_lock`. Free it when the wait is over, whatever the outcome: the next one in line is waiting for that.
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
    /// After the waiter, so that its finalizer does not run while the line is locked.
    _user: Arc<UserData>,
}

/// Whether somebody waits for a key with this client: who comes now should join the line and not try before them.
///
/// @param key      as for `syncguard_lock`.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @return true: somebody waits; false: nobody does, or NULL, or a bad key, or in a forked child.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_is_waited_for(
    client: *const syncguard_client,
    key: *const c_char,
    key_len: usize,
) -> bool {
    quietly(false, |call| {
        let Ok(opened) = call.handle(client) else {
            return false;
        };
        call.text("key", key, key_len)
            .and_then(|key| opened.client.is_waited_for(key))
            .unwrap_or(false)
    })
}

/// Joins the line of a key.
///
/// @param key             as for `syncguard_lock`.
/// @param key_len         its length in bytes, or `SYNCGUARD_NUL`.
/// @param on_call         called when the waiter becomes the first in line, and when it is and the lock may have been freed. Any
///                        number of times, on any thread, also before this returns, and once more after the waiter was freed. It
///                        must not block and must not call the library: note it and ask `syncguard_waiter_is_called` elsewhere.
/// @param user_data       what it is called with.
/// @param user_data_free  called exactly once, on any thread, when `on_call` can come no more; whatever the status. May be NULL.
/// @param out             gets the waiter, which belongs to the caller and is freed with `syncguard_waiter_free`; NULL unless OK.
/// @param err             NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL or a bad key.
/// Threads: any. No I/O on this thread: the store is asked in the background to tell when the lock is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_new(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    on_call: Option<unsafe extern "C" fn(user_data: *mut c_void)>,
    user_data: *mut c_void,
    user_data_free: Option<unsafe extern "C" fn(user_data: *mut c_void)>,
    out: *mut *mut syncguard_waiter,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let user = UserData::adopt(user_data, user_data_free);
        let out = call.slot(out)?;
        let on_call = on_call.ok_or_else(|| invalid("on_call is NULL"))?;
        let opened = call.handle(client)?;
        let key = call.text("key", key, key_len)?;
        let waiter = opened.client.waiter(key, user.called(on_call))?;
        out.set(give(InLine {
            waiter,
            _user: user,
        }));
        Ok(OK)
    })
}

/// Whether an attempt is worth making now: the waiter is first in line, and the lock may have been freed since its last
/// `syncguard_waiter_begin_attempt`. False for NULL and in a forked child.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_is_called(waiter: *const syncguard_waiter) -> bool {
    quietly(false, |call| {
        call.handle(waiter).is_ok_and(|w| w.waiter.is_called())
    })
}

/// Whether it is this waiter's turn to ask the store for all who wait with its client. The others need not try meanwhile. False
/// for NULL and in a forked child.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_is_first(waiter: *const syncguard_waiter) -> bool {
    quietly(false, |call| {
        call.handle(waiter).is_ok_and(|w| w.waiter.is_first())
    })
}

/// Says that an attempt is about to be made: what is freed from here on calls again. Does nothing for NULL and in a forked child.
/// Threads: any. No I/O on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_begin_attempt(waiter: *mut syncguard_waiter) {
    quietly((), |call| {
        if let Ok(waiter) = call.handle(waiter) {
            waiter.waiter.begin_attempt();
        }
    });
}

/// Leaves the line, and calls the next one if this was the first. NULL is fine.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_waiter_free(waiter: *mut syncguard_waiter) {
    dispose(waiter);
}
