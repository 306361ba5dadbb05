//! `syncguard_error`: what went wrong, in detail, and why a lock was lost. Uses `boundary` and `status`.

use std::ffi::{CString, c_char};
use std::ptr::null;
use std::time::Duration;

use rust_syncguard::{Holder, LockError, LossReason};

use crate::boundary::{Opaque, c_array, c_string, free_handle, quietly};
use crate::status::{INVALID_ARGUMENT, PANIC, syncguard_status};

/// What went wrong, in detail. Written to the `err` argument of a call only if that is not NULL and the call returns a status
/// below zero; it then belongs to the caller and is freed with `syncguard_error_free`. What was in `*err` before is
/// overwritten, not freed.
/// An error given to a callback is borrowed: it ends with the callback and must not be freed.
/// It never holds a password, a raw key, a raw lock id or the user part of a URL, so it may be logged.
/// Threads: it never changes and may be read by several threads at once.
pub struct syncguard_error {
    _opaque: [u8; 0],
}

impl Opaque for syncguard_error {
    type Body = ErrorBody;
    const NAME: &'static str = "error";
    const TAG: u64 = 0x5347_6572_726f_7201;
}

/// The body of a `syncguard_error`.
pub(crate) struct ErrorBody {
    status: syncguard_status,
    message: CString,
    key_hash: Option<CString>,
    attempts: u32,
    loss: syncguard_loss_reason,
    may_have_applied: bool,
    waited: Option<Duration>,
    holder: Option<syncguard_holder>,
    holder_text: Option<CString>,
}

/// The holder of a key, as far as a contended attempt learnt it without another trip. Nothing in it is secret. Frozen: later
/// versions do not change it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct syncguard_holder {
    /// The hash of the holder's lock id; empty if it is not known.
    pub lock_id_hash: [c_char; 25],
    /// The holder's fence, 15 digits; empty if it is not known.
    pub fence: [c_char; 16],
    /// The same as a number; 0, which is no fence, if it is not known.
    pub fence_number: u64,
    /// How long its lease still ran at that moment, in milliseconds; -1 if it is not known.
    pub remaining_ms: i64,
}

impl From<&Holder> for syncguard_holder {
    fn from(holder: &Holder) -> Self {
        let fence = holder.fence.map(|fence| fence.to_string());
        Self {
            lock_id_hash: c_array(holder.lock_id_hash.as_deref().unwrap_or_default()),
            fence: c_array(fence.as_deref().unwrap_or_default()),
            fence_number: holder.fence.map_or(0, |fence| fence.get()),
            remaining_ms: holder.remaining.map_or(-1, whole_millis),
        }
    }
}

impl syncguard_holder {
    /// A holder of which nothing is known.
    pub(crate) fn unknown() -> Self {
        Self::from(&Holder::new(None, None, None))
    }
}

/// Whole milliseconds, rounded down.
pub(crate) fn whole_millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Why a lock was lost. The numbers never change; later versions may add some, so a `switch` needs a `default`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(clippy::upper_case_acronyms)]
pub enum syncguard_loss_reason {
    /// It was not lost, or the error is about something else.
    SYNCGUARD_LOSS_NONE = 0,
    /// The lease ran out, by the local clock, before the store confirmed a renewal.
    SYNCGUARD_LOSS_UNCONFIRMED = 1,
    /// `max_hold_ms` was reached: the lock was no longer renewed, and its lease ran out.
    SYNCGUARD_LOSS_MAX_HOLD = 2,
    /// The guard has no heartbeat, and its lease was not extended in time.
    SYNCGUARD_LOSS_NOT_RENEWED = 3,
    /// The store no longer has the lock: another process released it, an operator deleted it, or the store lost it.
    SYNCGUARD_LOSS_REMOVED = 4,
    /// The heartbeat broke down: a bug.
    SYNCGUARD_LOSS_HEARTBEAT_FAILED = 5,
    /// This is a forked child; the lock is its parent's.
    SYNCGUARD_LOSS_FORKED = 6,
    /// For a reason that this version of the library does not name.
    SYNCGUARD_LOSS_OTHER = 7,
}

use syncguard_loss_reason::*;

impl From<Option<LossReason>> for syncguard_loss_reason {
    fn from(why: Option<LossReason>) -> Self {
        match why {
            None => SYNCGUARD_LOSS_NONE,
            Some(LossReason::Unconfirmed) => SYNCGUARD_LOSS_UNCONFIRMED,
            Some(LossReason::MaxHold) => SYNCGUARD_LOSS_MAX_HOLD,
            Some(LossReason::NotRenewed) => SYNCGUARD_LOSS_NOT_RENEWED,
            Some(LossReason::Removed) => SYNCGUARD_LOSS_REMOVED,
            Some(LossReason::HeartbeatFailed) => SYNCGUARD_LOSS_HEARTBEAT_FAILED,
            Some(LossReason::Forked) => SYNCGUARD_LOSS_FORKED,
            Some(_) => SYNCGUARD_LOSS_OTHER,
        }
    }
}

impl ErrorBody {
    pub(crate) fn new(error: &LockError) -> Self {
        Self {
            status: error.code().into(),
            message: c_string(error.message()),
            key_hash: error.key_hash().map(c_string),
            attempts: error.attempts(),
            loss: error.loss_reason().into(),
            may_have_applied: error.may_have_applied(),
            waited: error.waited(),
            holder: error.holder().map(Into::into),
            holder_text: error.holder_text().map(c_string),
        }
    }

    pub(crate) fn panicked(why: Option<&str>) -> Self {
        let why = why.unwrap_or("its message went to stderr");
        Self {
            status: PANIC,
            message: c_string(&format!("the library panicked: {why}")),
            key_hash: None,
            attempts: 0,
            loss: SYNCGUARD_LOSS_NONE,
            // Where it panicked is not known.
            may_have_applied: true,
            waited: None,
            holder: None,
            holder_text: None,
        }
    }

    pub(crate) fn status(&self) -> syncguard_status {
        self.status
    }
}

/// The status that the failed call returned. INVALID_ARGUMENT for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_error_status(err: *const syncguard_error) -> syncguard_status {
    quietly(INVALID_ARGUMENT, |call| {
        call.handle(err).map_or(INVALID_ARGUMENT, |e| e.status)
    })
}

/// What went wrong, for people, in English. It never holds a password, a raw key, a raw lock id or the user part of a URL.
///
/// @return a text that belongs to the error and lives as long as it; "no error" for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_error_message(err: *const syncguard_error) -> *const c_char {
    let none = c"no error".as_ptr();
    quietly(none, |call| {
        call.handle(err).map_or(none, |e| e.message.as_ptr())
    })
}

/// The hash of the key concerned, as `syncguard_hash_key` makes it.
///
/// @return a text that belongs to the error and lives as long as it; NULL where no key is involved, and for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_error_key_hash(err: *const syncguard_error) -> *const c_char {
    quietly(null(), |call| {
        call.handle(err).map_or(null(), |e| {
            e.key_hash.as_ref().map_or(null(), |h| h.as_ptr())
        })
    })
}

/// How many attempts `syncguard_lock` made before it gave up; 0 where that does not apply, and for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_error_attempts(err: *const syncguard_error) -> u32 {
    quietly(0, |call| call.handle(err).map_or(0, |e| e.attempts))
}

/// Why the lock was lost, for an error of the status LOST. NONE for any other error, and for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_error_loss_reason(
    err: *const syncguard_error,
) -> syncguard_loss_reason {
    quietly(SYNCGUARD_LOSS_NONE, |call| {
        call.handle(err).map_or(SYNCGUARD_LOSS_NONE, |e| e.loss)
    })
}

/// Whether the operation may have taken effect although it failed: a timeout, a reset, a cancel in flight.
/// After `syncguard_lock`, `syncguard_try_lock` and the waiters there is nothing to do: the library takes back in the background what
/// an attempt may have left. After `syncguard_acquire` release the `lock_id` that it wrote; repeat a release or an extend.
///
/// @return false if nothing was applied for certain, and for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_error_may_have_applied(err: *const syncguard_error) -> bool {
    quietly(false, |call| {
        call.handle(err).is_ok_and(|e| e.may_have_applied)
    })
}

/// How long `syncguard_lock`, or a waiter, waited before it gave up, in whole milliseconds, rounded down.
///
/// @return milliseconds; -1 where that does not apply, and for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_error_waited_ms(err: *const syncguard_error) -> i64 {
    quietly(-1, |call| {
        call.handle(err)
            .map_or(-1, |e| e.waited.map_or(-1, whole_millis))
    })
}

/// The holder of the key at the last attempt, of an error of the status ACQUISITION_TIMEOUT, where the store told it.
///
/// @param out  gets what is known of the holder; of no holder if the answer is false. NULL is fine.
/// @return whether anything is known of it; false for NULL as the error.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_error_holder(
    err: *const syncguard_error,
    out: *mut syncguard_holder,
) -> bool {
    quietly(false, |call| {
        let holder = call.handle(err).ok().and_then(|e| e.holder);
        if let Ok(out) = call.out("out", out) {
            out.set(holder.unwrap_or_else(syncguard_holder::unknown));
        }
        holder.is_some()
    })
}

/// What the holder of the key said of itself at the last attempt, of an error of the status ACQUISITION_TIMEOUT, where the store told it.
/// Raw data for people: any program that can write to the store can write any text.
///
/// @return a text that belongs to the error and lives as long as it; NULL where nothing is known, and for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_error_holder_text(err: *const syncguard_error) -> *const c_char {
    quietly(null(), |call| {
        call.handle(err).map_or(null(), |e| {
            e.holder_text.as_ref().map_or(null(), |text| text.as_ptr())
        })
    })
}

/// Frees an error that a call wrote. NULL is fine. Not for errors that a callback was given.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_error_free(err: *mut syncguard_error) {
    free_handle(err);
}
