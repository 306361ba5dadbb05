//! `syncguard_status`: how a call went. Uses `boundary` and the error codes of the Rust API.

use std::ffi::c_char;

use rust_syncguard::ErrorCode;

use crate::boundary::quietly;

/// How a call went. Zero and above are answers, below zero is trouble, and then a call gives a `syncguard_error` if asked to.
/// The numbers never change; later versions may add some, so a `switch` needs a `default`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(clippy::upper_case_acronyms)]
pub enum syncguard_status {
    /// It did what was asked.
    SYNCGUARD_STATUS_OK = 0,
    /// Another holder has the key. An answer, not trouble.
    SYNCGUARD_STATUS_LOCKED = 1,
    /// There is no such live lock: released, expired, or never there. An answer, not trouble.
    SYNCGUARD_STATUS_ABSENT = 2,
    /// The gate of a resource has seen a newer holder: nothing was changed. An answer, not trouble; stop.
    SYNCGUARD_STATUS_REFUSED = 3,
    /// The store cannot be reached or cannot serve now. Trying again later may help.
    SYNCGUARD_STATUS_SERVICE_UNAVAILABLE = -1,
    /// The store refused the credentials, or they lack a right.
    SYNCGUARD_STATUS_AUTH_FAILED = -2,
    /// It can never work as it is: NULL, a bad key, URL or option, which is found before anything is sent; or a store without its
    /// tables or its database. Nothing was changed.
    SYNCGUARD_STATUS_INVALID_ARGUMENT = -3,
    /// The store, the pool of connections, or the process is full (no thread or descriptor left). Trying again later may help.
    SYNCGUARD_STATUS_RATE_LIMITED = -4,
    /// The operation's time was over. Whether it took effect is unknown. Trying again later may help.
    SYNCGUARD_STATUS_NETWORK_TIMEOUT = -5,
    /// The whole wait of `syncguard_lock` was over and another holder still had the key.
    SYNCGUARD_STATUS_ACQUISITION_TIMEOUT = -6,
    /// The cancel token ended the call. Whether a request in flight took effect is unknown.
    SYNCGUARD_STATUS_ABORTED = -7,
    /// Anything else: a foreign value under our key, a fence over its limit, a corrupt file, a handle inherited by fork.
    SYNCGUARD_STATUS_INTERNAL = -8,
    /// A bug of the library. The call was given up; the process and its other locks go on.
    SYNCGUARD_STATUS_PANIC = -9,
    /// This process can no longer count on a lock that it held. What `on_lost` is given; and the answer of a guard's calls in a
    /// forked child. `syncguard_error_loss_reason` says why.
    SYNCGUARD_STATUS_LOST = -10,
}

use syncguard_status::*;

pub(crate) const OK: syncguard_status = SYNCGUARD_STATUS_OK;
pub(crate) const LOCKED: syncguard_status = SYNCGUARD_STATUS_LOCKED;
pub(crate) const ABSENT: syncguard_status = SYNCGUARD_STATUS_ABSENT;
pub(crate) const REFUSED: syncguard_status = SYNCGUARD_STATUS_REFUSED;
pub(crate) const PANIC: syncguard_status = SYNCGUARD_STATUS_PANIC;
pub(crate) const INVALID_ARGUMENT: syncguard_status = SYNCGUARD_STATUS_INVALID_ARGUMENT;

impl From<ErrorCode> for syncguard_status {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::ServiceUnavailable => SYNCGUARD_STATUS_SERVICE_UNAVAILABLE,
            ErrorCode::AuthFailed => SYNCGUARD_STATUS_AUTH_FAILED,
            ErrorCode::InvalidArgument => SYNCGUARD_STATUS_INVALID_ARGUMENT,
            ErrorCode::RateLimited => SYNCGUARD_STATUS_RATE_LIMITED,
            ErrorCode::NetworkTimeout => SYNCGUARD_STATUS_NETWORK_TIMEOUT,
            ErrorCode::AcquisitionTimeout => SYNCGUARD_STATUS_ACQUISITION_TIMEOUT,
            ErrorCode::Aborted => SYNCGUARD_STATUS_ABORTED,
            ErrorCode::Lost => SYNCGUARD_STATUS_LOST,
            // A code that a newer core has and this file does not.
            _ => SYNCGUARD_STATUS_INTERNAL,
        }
    }
}

/// The name of a status, such as "locked" or "network timeout"; "unknown status" for a number that is none.
///
/// @return a static text; never NULL, not to be freed.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_status_str(status: i32) -> *const c_char {
    quietly(c"unknown status".as_ptr(), |_| {
        match status {
            0 => c"ok",
            1 => c"locked",
            2 => c"absent",
            3 => c"refused",
            -1 => c"service unavailable",
            -2 => c"authentication failed",
            -3 => c"invalid argument",
            -4 => c"rate limited",
            -5 => c"network timeout",
            -6 => c"acquisition timeout",
            -7 => c"aborted",
            -8 => c"internal error",
            -9 => c"panic",
            -10 => c"lost",
            _ => c"unknown status",
        }
        .as_ptr()
    })
}
