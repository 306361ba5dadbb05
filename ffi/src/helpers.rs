//! Functions without a handle and without I/O: hashes, checks, defaults and delays. Uses `boundary`, `options` and the Rust API.

use std::ffi::c_char;
use std::time::Duration;

use rust_syncguard::{
    DEFAULT_ACQUIRE_TIMEOUT, DEFAULT_MAX_RETRIES, DEFAULT_RETRY_DELAY, DEFAULT_TTL, Fence, Key,
};

use crate::boundary::{boundary, c_array, quietly};
use crate::error::syncguard_error;
use crate::options::{
    SYNCGUARD_BACKOFF_EXPONENTIAL, SYNCGUARD_JITTER_EQUAL, plain_lock_options,
    syncguard_lock_options,
};
use crate::status::{OK, syncguard_status};
use crate::verbs::read_id;

/// The display hash of a key, as it stands in errors, events and lookups: 24 hex digits over its NFC form. It tells keys apart
/// in logs; it is not for security.
///
/// @param key      the key, as for `syncguard_acquire`.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param out      an array of 25, gets the digits and a NUL; written if OK.
/// @param err      NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL or a bad key.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_hash_key(
    key: *const c_char,
    key_len: usize,
    out: *mut c_char,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let out = call.out("out", out.cast::<[c_char; 25]>())?;
        let key = Key::new(call.text("key", key, key_len)?)?;
        out.set(c_array(&key.log_hash()));
        Ok(OK)
    })
}

/// Whether a text is a lock id: exactly 22 of `[A-Za-z0-9_-]`.
///
/// @param lock_id      the text.
/// @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param err          NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT if it is none, or NULL. The message does not repeat it.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_validate_lock_id(
    lock_id: *const c_char,
    lock_id_len: usize,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        read_id(call, lock_id, lock_id_len)?;
        Ok(OK)
    })
}

/// The number of a fence that a struct holds as a text: it fits a BIGINT.
///
/// @param fence      the text, exactly 15 digits, such as that in a `syncguard_acquired`.
/// @param fence_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param out        gets the number; 0 unless OK.
/// @param err        NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL and for a text that is no fence.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_parse_fence(
    fence: *const c_char,
    fence_len: usize,
    out: *mut u64,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let out = call.out("out", out)?;
        out.set(0);
        let fence = Fence::parse(call.text("fence", fence, fence_len)?)?;
        out.set(fence.get());
        Ok(OK)
    })
}

/// Fills in the defaults: every field that is 0 and has one gets it. Fields beyond `struct_size`, callbacks and data stay as they
/// are. Does nothing for NULL or a `struct_size` that is none. For bindings that wait by themselves.
/// Threads: any, as long as no other uses the struct. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_lock_options_resolve(options: *mut syncguard_lock_options) {
    quietly((), |call| {
        let (mut all, readable) = call.copy(options.cast_const());
        if options.is_null() || readable.is_err() {
            return;
        }
        if all.max_retries == 0 {
            all.max_retries = if all.acquire_timeout_ms == 0 {
                DEFAULT_MAX_RETRIES as i32
            } else {
                -1
            };
        }
        set_default(&mut all.ttl_ms, DEFAULT_TTL);
        set_default(&mut all.acquire_timeout_ms, DEFAULT_ACQUIRE_TIMEOUT);
        // A third of a tiny ttl is 0, which is the default again.
        set_default(
            &mut all.heartbeat_ms,
            Duration::from_millis(u64::try_from(all.ttl_ms).unwrap_or(0) / 3),
        );
        if all.retry_delay_ms == 0 {
            all.retry_delay_ms = DEFAULT_RETRY_DELAY.as_millis() as u32;
        }
        if all.backoff == 0 {
            all.backoff = SYNCGUARD_BACKOFF_EXPONENTIAL;
        }
        if all.jitter == 0 {
            all.jitter = SYNCGUARD_JITTER_EQUAL;
        }
        call.write_back(options, &all);
    });
}

fn set_default(field: &mut i64, default: Duration) {
    if *field == 0 {
        *field = i64::try_from(default.as_millis()).unwrap_or(i64::MAX);
    }
}

/// How long to wait before the next attempt, for callers that wait by themselves between calls of `syncguard_try_lock` or
/// `syncguard_acquire`. Random where the options say so: two calls answer differently.
///
/// @param options       NULL for all defaults. Callbacks and data are not touched and not taken over.
/// @param attempt       how many attempts have failed, from 1.
/// @param remaining_ms  how much of the whole wait is left, or `SYNCGUARD_FOREVER`.
/// @return milliseconds; -1: give up, because the time or the retries are used up, or the options are not valid.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_retry_delay_ms(
    options: *const syncguard_lock_options,
    attempt: u32,
    remaining_ms: i64,
) -> i64 {
    quietly(-1, |call| {
        let (raw, readable) = call.copy(options);
        let remaining = match remaining_ms {
            -1 => Duration::MAX,
            ms => Duration::from_millis(u64::try_from(ms).unwrap_or(0)),
        };
        let delay = readable
            .and_then(|()| plain_lock_options(&raw))
            .and_then(|options| options.delay_after(attempt, remaining));
        match delay {
            Ok(Some(delay)) => {
                i64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
            }
            Ok(None) | Err(_) => -1,
        }
    })
}
