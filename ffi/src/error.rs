//! `syncguard_error`: what went wrong.

use std::ffi::{CString, c_char};
use std::ptr::null;

use rust_syncguard::LockError;

use crate::boundary::{Opaque, c_string, dispose, quietly};
use crate::status::{INVALID_ARGUMENT, PANIC, syncguard_status};

/// What went wrong, in detail. Written to the `err` argument of a call only if that is not NULL and the call returns a status
/// below zero; it then belongs to the caller, who frees it with `syncguard_error_free`. What was in `*err` before is
/// overwritten, not freed.
/// An error given to a callback is borrowed: it ends with the callback and must not be freed.
/// It never holds a password, a raw key, a raw lock id or the user part of a URL, so it may be logged.
/// Threads: it never changes and may be read by several threads at once.
pub struct syncguard_error {
    _opaque: [u8; 0],
}

impl Opaque for syncguard_error {
    type Body = Report;
    const NAME: &'static str = "error";
    const TAG: u64 = 0x5347_6572_726f_7201;
}

/// The body of a `syncguard_error`.
pub(crate) struct Report {
    status: syncguard_status,
    message: CString,
    key_hash: Option<CString>,
    attempts: u32,
}

impl Report {
    pub(crate) fn new(error: &LockError) -> Self {
        Self {
            status: error.code().into(),
            message: c_string(error.message()),
            key_hash: error.key_hash().map(c_string),
            attempts: error.attempts(),
        }
    }

    pub(crate) fn panicked(why: Option<&str>) -> Self {
        let why = why.unwrap_or("its message went to stderr");
        Self {
            status: PANIC,
            message: c_string(&format!("the library panicked: {why}")),
            key_hash: None,
            attempts: 0,
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

/// Frees an error that a call wrote. NULL is fine. Not for errors that a callback was given.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_error_free(err: *mut syncguard_error) {
    dispose(err);
}
