//! The five verbs and the diagnostics: one attempt, one round trip each. Uses `boundary`, `cancel` and `client`.

use std::ffi::c_char;

use rust_syncguard::{
    AcquireOutcome, Backend, Client, ErrorCode, ExtendOutcome, Holder, Key, LockError, LockId,
    LockInfo, LockInfoDebug, LookupBy, Ttl,
};

use crate::boundary::{ExportedCall, Out, boundary, c_array};
use crate::cancel::{CallBounds, bounds, syncguard_cancel};
use crate::client::syncguard_client;
use crate::error::{syncguard_error, syncguard_holder};
use crate::options::millis;
use crate::status::{ABSENT, LOCKED, OK, syncguard_status};

/// What `syncguard_acquire` was granted. Frozen: later versions do not change it.
#[repr(C)]
pub struct syncguard_acquired {
    /// The id of the grant, for release and extend.
    pub lock_id: [c_char; 23],
    /// The fencing token, 15 digits; empty unless OK.
    pub fence: [c_char; 16],
    /// When the lease ends, in Unix milliseconds of the store's clock; 0 unless OK.
    pub expires_at_ms: i64,
}

/// A live lock without its secrets. Frozen: later versions do not change it.
#[repr(C)]
pub struct syncguard_lock_info {
    /// The hash of the key, as `syncguard_hash_key` makes it.
    pub key_hash: [c_char; 25],
    /// The hash of the lock id.
    pub lock_id_hash: [c_char; 25],
    /// The fencing token, 15 digits.
    pub fence: [c_char; 16],
    /// When the lease ends, in Unix milliseconds of the store's clock.
    pub expires_at_ms: i64,
    /// When it was granted, in Unix milliseconds of the store's clock.
    pub acquired_at_ms: i64,
}

/// A live lock with its raw key and lock id, which are enough to release it. Frozen: later versions do not change it.
#[repr(C)]
pub struct syncguard_lock_info_raw {
    /// The part without secrets.
    pub info: syncguard_lock_info,
    /// The raw key.
    pub key: [c_char; 513],
    /// The raw lock id.
    pub lock_id: [c_char; 23],
}

/// Takes the lock of a key if it is free: one attempt. Nothing is renewed and nothing is undone; `syncguard_lock` does both.
///
/// @param key      1 to 512 bytes of UTF-8 after NFC, without U+0000.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param ttl_ms   how long the lease lasts; at least 1, at most ten years.
/// @param cancel   NULL, or ends the call.
/// @param out      gets the grant. Its `lock_id` is filled in before anything is sent: after a status below zero the lock may have
///                 been taken under it, and releasing it is safe. Untouched after INVALID_ARGUMENT for an argument.
/// @param err      NULL, or gets an error below zero.
/// @return OK; LOCKED, another holder has it; INVALID_ARGUMENT for NULL, a bad key or ttl; AUTH_FAILED, SERVICE_UNAVAILABLE,
/// RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_acquire(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    ttl_ms: i64,
    cancel: *mut syncguard_cancel,
    out: *mut syncguard_acquired,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, out) = (call.handle(client)?, call.out("out", out)?);
        let bounds = bounds(call, cancel)?;
        let key = read_key(call, key, key_len)?;
        let (status, _) = acquire(&body.client, &key, ttl_ms, &bounds, &out)?;
        Ok(status)
    })
}

/// Releases the lock with this id, whichever process acquired it, in any language.
///
/// @param lock_id      22 characters of `[A-Za-z0-9_-]`.
/// @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel       NULL, or ends the call.
/// @param err          NULL, or gets an error below zero.
/// @return OK, this call removed it; ABSENT, there was no such live lock; INVALID_ARGUMENT for NULL or what is no lock id;
/// AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_release(
    client: *mut syncguard_client,
    lock_id: *const c_char,
    lock_id_len: usize,
    cancel: *mut syncguard_cancel,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let lock_id = read_id(call, lock_id, lock_id_len)?;
        let outcome = body.client.release(&lock_id, &bounds.call())?;
        Ok(if outcome.is_released() { OK } else { ABSENT })
    })
}

/// Sets the lease of the lock with this id to `ttl_ms` from now. Replaces, never adds, never revives.
///
/// @param lock_id        22 characters of `[A-Za-z0-9_-]`.
/// @param lock_id_len    its length in bytes, or `SYNCGUARD_NUL`.
/// @param ttl_ms         at least 1, at most ten years.
/// @param cancel         NULL, or ends the call.
/// @param expires_at_ms  gets when the lease ends, in Unix milliseconds of the store's clock; written if OK.
/// @param err            NULL, or gets an error below zero.
/// @return OK; ABSENT, there was no such live lock; INVALID_ARGUMENT for NULL, what is no lock id, or a bad ttl; AUTH_FAILED,
/// SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_extend(
    client: *mut syncguard_client,
    lock_id: *const c_char,
    lock_id_len: usize,
    ttl_ms: i64,
    cancel: *mut syncguard_cancel,
    expires_at_ms: *mut i64,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let out = call.out("expires_at_ms", expires_at_ms)?;
        let lock_id = read_id(call, lock_id, lock_id_len)?;
        let ttl = Ttl::new(millis("ttl_ms", ttl_ms)?)?;
        match body.client.extend(&lock_id, ttl, &bounds.call())? {
            ExtendOutcome::Extended(at) => {
                out.set(at);
                Ok(OK)
            }
            ExtendOutcome::Absent(_) => Ok(ABSENT),
        }
    })
}

/// Whether a key is locked. Do not decide by it before a write: the lock may change hands between the two.
///
/// @param key      as for `syncguard_acquire`.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel   NULL, or ends the call.
/// @param out      gets the answer; written if OK.
/// @param err      NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL or a bad key; AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED,
/// INTERNAL as `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_is_locked(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    cancel: *mut syncguard_cancel,
    out: *mut bool,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let out = call.out("out", out)?;
        let key = read_key(call, key, key_len)?;
        let locked = body.client.is_locked_with(&key, &bounds.call());
        out.set(locked.map_err(|e| e.for_key(&key))?);
        Ok(OK)
    })
}

/// The live lock of a key, without its secrets. For people and dashboards; do not decide by it before a write.
///
/// @param key      as for `syncguard_acquire`.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel   NULL, or ends the call.
/// @param out      gets what is known of it; written if OK.
/// @param err      NULL, or gets an error below zero.
/// @return OK; ABSENT, it is not locked; below zero as for `syncguard_is_locked`.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_lookup_by_key(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    cancel: *mut syncguard_cancel,
    out: *mut syncguard_lock_info,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let out = call.out("out", out)?;
        let key = read_key(call, key, key_len)?;
        let found = body.client.lookup(LookupBy::Key(&key), &bounds.call());
        let Some(info) = found.map_err(|e| e.for_key(&key))? else {
            return Ok(ABSENT);
        };
        out.set(info_without_secrets(&info));
        Ok(OK)
    })
}

/// The live lock with this id, without its secrets. For people and dashboards; do not decide by it before a write.
///
/// @param lock_id      22 characters of `[A-Za-z0-9_-]`.
/// @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel       NULL, or ends the call.
/// @param out          gets what is known of it; written if OK.
/// @param err          NULL, or gets an error below zero.
/// @return OK; ABSENT, there is no such live lock; INVALID_ARGUMENT for NULL or what is no lock id; else below zero as for
/// `syncguard_is_locked`.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_lookup_by_id(
    client: *mut syncguard_client,
    lock_id: *const c_char,
    lock_id_len: usize,
    cancel: *mut syncguard_cancel,
    out: *mut syncguard_lock_info,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let out = call.out("out", out)?;
        let lock_id = read_id(call, lock_id, lock_id_len)?;
        let by = LookupBy::LockId(&lock_id);
        let Some(info) = body.client.lookup(by, &bounds.call())? else {
            return Ok(ABSENT);
        };
        out.set(info_without_secrets(&info));
        Ok(OK)
    })
}

/// As `syncguard_lookup_by_key`, with the raw key and lock id: keep them out of logs.
///
/// @param key      as for `syncguard_acquire`.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel   NULL, or ends the call.
/// @param out      gets what is known of it; written if OK.
/// @param err      NULL, or gets an error below zero.
/// @return as `syncguard_lookup_by_key`.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_lookup_by_key_raw(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    cancel: *mut syncguard_cancel,
    out: *mut syncguard_lock_info_raw,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let out = call.out("out", out)?;
        let key = read_key(call, key, key_len)?;
        let found = body.client.get_by_key_raw_with(&key, &bounds.call());
        let Some(stored) = found.map_err(|e| e.for_key(&key))? else {
            return Ok(ABSENT);
        };
        out.set(info_with_secrets(&stored)?);
        Ok(OK)
    })
}

/// As `syncguard_lookup_by_id`, with the raw key and lock id: keep them out of logs.
///
/// @param lock_id      22 characters of `[A-Za-z0-9_-]`.
/// @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel       NULL, or ends the call.
/// @param out          gets what is known of it; written if OK.
/// @param err          NULL, or gets an error below zero.
/// @return as `syncguard_lookup_by_id`.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_lookup_by_id_raw(
    client: *mut syncguard_client,
    lock_id: *const c_char,
    lock_id_len: usize,
    cancel: *mut syncguard_cancel,
    out: *mut syncguard_lock_info_raw,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let out = call.out("out", out)?;
        let lock_id = read_id(call, lock_id, lock_id_len)?;
        let found = body.client.get_by_id_raw_with(lock_id, &bounds.call());
        let Some(stored) = found? else {
            return Ok(ABSENT);
        };
        out.set(info_with_secrets(&stored)?);
        Ok(OK)
    })
}

/// Whether the lock with this id is alive. For diagnosis; do not decide by it before a write.
///
/// @param lock_id      22 characters of `[A-Za-z0-9_-]`.
/// @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param out          gets the answer; written if OK.
/// @param err          NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL or what is no lock id; else below zero as for `syncguard_is_locked`, but never ABORTED.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_owns(
    client: *mut syncguard_client,
    lock_id: *const c_char,
    lock_id_len: usize,
    out: *mut bool,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, out) = (call.handle(client)?, call.out("out", out)?);
        let lock_id = read_id(call, lock_id, lock_id_len)?;
        out.set(body.client.owns(lock_id.as_str())?);
        Ok(OK)
    })
}

/// As `syncguard_owns`, and a token ends it.
///
/// @param lock_id      22 characters of `[A-Za-z0-9_-]`.
/// @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel       NULL, or ends the call.
/// @param out          gets the answer; written if OK.
/// @param err          NULL, or gets an error below zero.
/// @return as `syncguard_owns`, and ABORTED.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_owns_with(
    client: *mut syncguard_client,
    lock_id: *const c_char,
    lock_id_len: usize,
    cancel: *mut syncguard_cancel,
    out: *mut bool,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let out = call.out("out", out)?;
        let lock_id = read_id(call, lock_id, lock_id_len)?;
        out.set(body.client.owns_with(lock_id, &bounds.call())?);
        Ok(OK)
    })
}

/// As `syncguard_lookup_by_key_raw`, and what the holder says of itself: in the same round trip.
///
/// @param key      as for `syncguard_acquire`.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel   NULL, or ends the call.
/// @param out      gets what is known of the lock; written if OK.
/// @param holder   gets the text, NUL-terminated, empty if the holder says nothing; written if OK. Any program that can write to the
///                 store can write any text.
/// @param err      NULL, or gets an error below zero.
/// @return as `syncguard_lookup_by_key_raw`.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_lookup_by_key_held(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    cancel: *mut syncguard_cancel,
    out: *mut syncguard_lock_info_raw,
    holder: *mut [c_char; 201],
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let (out, holder) = (call.out("out", out)?, call.out("holder", holder)?);
        let key = read_key(call, key, key_len)?;
        let found = body.client.get_by_key_raw_with(&key, &bounds.call());
        tell_lock_and_holder(found.map_err(|e| e.for_key(&key))?, &out, &holder)
    })
}

/// The same, by the lock id.
///
/// @param lock_id      22 characters of `[A-Za-z0-9_-]`.
/// @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel       NULL, or ends the call.
/// @param out          gets what is known of the lock; written if OK.
/// @param holder       gets the text, NUL-terminated, empty if the holder says nothing; written if OK.
/// @param err          NULL, or gets an error below zero.
/// @return as `syncguard_lookup_by_id_raw`.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_lookup_by_id_held(
    client: *mut syncguard_client,
    lock_id: *const c_char,
    lock_id_len: usize,
    cancel: *mut syncguard_cancel,
    out: *mut syncguard_lock_info_raw,
    holder: *mut [c_char; 201],
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let (out, holder) = (call.out("out", out)?, call.out("holder", holder)?);
        let lock_id = read_id(call, lock_id, lock_id_len)?;
        let found = body.client.get_by_id_raw_with(lock_id, &bounds.call());
        tell_lock_and_holder(found?, &out, &holder)
    })
}

fn tell_lock_and_holder(
    found: Option<LockInfoDebug>,
    out: &Out<'_, syncguard_lock_info_raw>,
    holder: &Out<'_, [c_char; 201]>,
) -> Result<syncguard_status, LockError> {
    let Some(stored) = found else {
        return Ok(ABSENT);
    };
    out.set(info_with_secrets(&stored)?);
    Ok(tell_holder_text(Some(stored), holder))
}

/// What the holder of a key says of itself, of a live lock. A pure read. Raw data for people: any program that can write to the store can
/// write any text.
///
/// @param key      the name of the lock.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel   NULL, or ends the call.
/// @param out      gets the text, NUL-terminated; empty if the holder says nothing.
/// @param err      NULL, or gets an error below zero.
/// @return OK, or ABSENT if the lock is not held.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_holder_text_by_key(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    cancel: *mut syncguard_cancel,
    out: *mut [c_char; 201],
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, out) = (call.handle(client)?, call.out("out", out)?);
        let bounds = bounds(call, cancel)?;
        let key = read_key(call, key, key_len)?;
        let found = body.client.get_by_key_raw_with(&key, &bounds.call())?;
        Ok(tell_holder_text(found, &out))
    })
}

/// The same, by the lock id.
///
/// @param lock_id      22 characters.
/// @param lock_id_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel       NULL, or ends the call.
/// @param out          gets the text, NUL-terminated; empty if the holder says nothing.
/// @param err          NULL, or gets an error below zero.
/// @return OK, or ABSENT if no live lock has the id.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_holder_text_by_id(
    client: *mut syncguard_client,
    lock_id: *const c_char,
    lock_id_len: usize,
    cancel: *mut syncguard_cancel,
    out: *mut [c_char; 201],
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, out) = (call.handle(client)?, call.out("out", out)?);
        let bounds = bounds(call, cancel)?;
        let lock_id = read_id(call, lock_id, lock_id_len)?;
        let found = body.client.get_by_id_raw_with(lock_id, &bounds.call())?;
        Ok(tell_holder_text(found, &out))
    })
}

fn tell_holder_text(
    found: Option<LockInfoDebug>,
    out: &Out<'_, [c_char; 201]>,
) -> syncguard_status {
    match found {
        None => ABSENT,
        Some(lock) => {
            out.set(c_array(lock.holder.as_deref().unwrap_or_default()));
            OK
        }
    }
}

/// As `syncguard_acquire`, and says which holder has the key, where the store tells it: in the same round trip.
///
/// @param key      as for `syncguard_acquire`.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param ttl_ms   as for `syncguard_acquire`.
/// @param cancel   NULL, or ends the call.
/// @param out      as for `syncguard_acquire`.
/// @param holder   gets what is known of the holder; written if LOCKED.
/// @param err      NULL, or gets an error below zero.
/// @return as `syncguard_acquire`.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_acquire_or_holder(
    client: *mut syncguard_client,
    key: *const c_char,
    key_len: usize,
    ttl_ms: i64,
    cancel: *mut syncguard_cancel,
    out: *mut syncguard_acquired,
    holder: *mut syncguard_holder,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, out) = (call.handle(client)?, call.out("out", out)?);
        let holder = call.out("holder", holder)?;
        let bounds = bounds(call, cancel)?;
        let key = read_key(call, key, key_len)?;
        let (status, found) = acquire(&body.client, &key, ttl_ms, &bounds, &out)?;
        if status == LOCKED {
            holder.set(
                found
                    .as_ref()
                    .map_or_else(syncguard_holder::unknown, Into::into),
            );
        }
        Ok(status)
    })
}

/// One attempt under an id that is told before anything is sent. OK, or LOCKED and what is known of the holder.
fn acquire(
    client: &Client,
    key: &Key,
    ttl_ms: i64,
    bounds: &CallBounds,
    out: &Out<'_, syncguard_acquired>,
) -> Result<(syncguard_status, Option<Holder>), LockError> {
    let ttl = Ttl::new(millis("ttl_ms", ttl_ms)?).map_err(|e| e.for_key(key))?;
    let lock_id = LockId::random()?;
    let mut answer = syncguard_acquired {
        lock_id: c_array(lock_id.as_str()),
        fence: c_array(""),
        expires_at_ms: 0,
    };
    out.set(syncguard_acquired { ..answer });
    let outcome = client.acquire(key, &lock_id, ttl, &bounds.call());
    match outcome.map_err(|e| e.for_key(key))? {
        AcquireOutcome::Acquired(grant) => {
            answer.fence = c_array(&grant.fence.to_string());
            answer.expires_at_ms = grant.expires_at_ms;
            out.set(answer);
            Ok((OK, None))
        }
        AcquireOutcome::Locked(holder) => Ok((LOCKED, holder)),
    }
}

fn read_key(call: &ExportedCall, key: *const c_char, len: usize) -> Result<Key, LockError> {
    Key::new(call.text("key", key, len)?)
}

pub(crate) fn read_id(
    call: &ExportedCall,
    id: *const c_char,
    len: usize,
) -> Result<LockId, LockError> {
    LockId::parse(call.text("lock_id", id, len)?)
}

pub(crate) fn info_without_secrets(info: &LockInfo) -> syncguard_lock_info {
    syncguard_lock_info {
        key_hash: c_array(&info.key_hash),
        lock_id_hash: c_array(&info.lock_id_hash),
        fence: c_array(&info.fence.to_string()),
        expires_at_ms: info.expires_at_ms,
        acquired_at_ms: info.acquired_at_ms,
    }
}

pub(crate) fn info_with_secrets(
    stored: &LockInfoDebug,
) -> Result<syncguard_lock_info_raw, LockError> {
    // No key of this library is longer or holds a NUL, but another program may have written there; half a key would name another lock.
    if stored.key.len() > rust_syncguard::MAX_KEY_BYTES || stored.key.contains('\0') {
        return Err(LockError::new(
            ErrorCode::Internal,
            "the stored lock's key is not one of this library's",
        ));
    }
    Ok(syncguard_lock_info_raw {
        info: info_without_secrets(&stored.info),
        key: c_array(&stored.key),
        lock_id: c_array(stored.lock_id.as_str()),
    })
}
