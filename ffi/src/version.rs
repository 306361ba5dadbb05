//! The version of the library and of the header. Uses `boundary` only.

use std::ffi::{CStr, c_char};

use crate::boundary::quietly;

/// The version of this header: of the API.
pub const SYNCGUARD_VERSION_MAJOR: u32 = 0;
/// The version of this header: of additions.
pub const SYNCGUARD_VERSION_MINOR: u32 = 1;
/// The version of this header: of repairs.
pub const SYNCGUARD_VERSION_PATCH: u32 = 0;

const NUMBER: u32 =
    SYNCGUARD_VERSION_MAJOR * 1_000_000 + SYNCGUARD_VERSION_MINOR * 1_000 + SYNCGUARD_VERSION_PATCH;

const STRING: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    };

/// The version of the library that runs, as a number to compare with `SYNCGUARD_VERSION_NUMBER`, the header's.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_version_number() -> u32 {
    quietly(NUMBER, |_| NUMBER)
}

/// The version of the library that runs, such as "0.1.0".
///
/// @return a static text; never NULL, not to be freed.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_version_string() -> *const c_char {
    quietly(STRING.as_ptr(), |_| STRING.as_ptr())
}
