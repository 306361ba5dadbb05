//! `syncguard_client`: opens a store, and the functions that concern the store as a whole. Uses `boundary`, `options` and `cancel`.

use std::ffi::{CString, c_char};
use std::ptr::null;
use std::sync::Arc;

use rust_syncguard::{Backend, Client, FenceSource, TimeAuthority};

use crate::boundary::{Opaque, UserData, boundary, c_string, free_handle, give, quietly};
use crate::cancel::{bounds, syncguard_cancel};
use crate::error::syncguard_error;
use crate::options::{
    AdoptedOptions, SYNCGUARD_FENCES_CLOCK, SYNCGUARD_FENCES_COUNTER, SYNCGUARD_FENCES_DEFAULT,
    syncguard_client_options,
};
use crate::status::{OK, syncguard_status};

/// A store of locks, opened. One for a whole program is right: it pools its connections.
/// Threads: any, also several at once.
pub struct syncguard_client {
    _opaque: [u8; 0],
}

impl Opaque for syncguard_client {
    type Body = ClientBody;
    const NAME: &'static str = "client";
    const TAG: u64 = 0x5347_636c_6965_6e01;
}

/// The body of a `syncguard_client`.
pub(crate) struct ClientBody {
    pub(crate) client: Client,
    backend: CString,
    /// Kept until the client goes, also if no callback uses it.
    _user: Arc<UserData>,
}

/// Opens a store. Parses and validates only: no I/O, connections are made when first needed.
///
///     redis://[user:password@]host[:port][/db]            rediss:// for the same under TLS
///     redis+unix:///path/to/socket[?db=1&user=U&pass=P]
///     redis+sentinel://host[:port],host[:port]/name       redis+cluster://host[:port],host[:port]
///     postgres://user:password@host[:port]/db[?sslmode=verify-full]         or postgresql://
///     sqlite:/path/to/file                                a ? or % in the path as %3F or %25
///
/// @param url      the URL, copied.
/// @param url_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param options  NULL for all defaults.
/// @param out      gets the client, which belongs to the caller and is freed with `syncguard_client_free`; NULL unless OK.
/// @param err      NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for a URL or an option that cannot work, or a backend that this build lacks. The message never
/// repeats a password. Whatever the status, the options' `user_data` is the library's from now on, if the struct had a valid size.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_open(
    url: *const c_char,
    url_len: usize,
    options: *const syncguard_client_options,
    out: *mut *mut syncguard_client,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let out = call.handle_out(out);
        let adopted = AdoptedOptions::client(call, options);
        let out = out?;
        let (options, user) = adopted.options(call)?;
        let client = Client::open_with(call.text("url", url, url_len)?, &options)?;
        let backend = c_string(client.capabilities().backend);
        out.set(give(ClientBody {
            client,
            backend,
            _user: user,
        }));
        Ok(OK)
    })
}

/// Creates what the store needs: tables and functions. May be repeated, and run by many processes at once.
///
/// @param cancel  NULL, or ends the call.
/// @param err     NULL, or gets an error below zero.
/// @return OK, at once where there is no schema; INVALID_ARGUMENT for NULL, or a store that holds something else under our
/// names; AUTH_FAILED without the right to create; SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as
/// `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_setup_schema(
    client: *mut syncguard_client,
    cancel: *mut syncguard_cancel,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let body = call.handle(client)?;
        let bounds = bounds(call, cancel)?;
        Backend::setup_schema(&body.client, &bounds.call())?;
        Ok(OK)
    })
}

/// Checks whether the store is reachable, allowed, set up and safely configured. What is not safe, but works, goes to the
/// client's `on_warning`, or to stderr; that has returned, or the lines are written, when this returns. A hook that hangs delays
/// this call by the operation timeout at the most.
///
/// @param cancel  NULL, or ends the call.
/// @param err     NULL, or gets an error below zero.
/// @return OK if locks will work; INVALID_ARGUMENT for NULL, a missing schema or a wrong one, with what to do; AUTH_FAILED,
/// SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_check(
    client: *mut syncguard_client,
    cancel: *mut syncguard_cancel,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let body = call.handle(client)?;
        let bounds = bounds(call, cancel)?;
        body.client.check_with(&bounds.call())?;
        Ok(OK)
    })
}

/// As `syncguard_client_check`, and says what became of the warnings.
///
/// @param cancel       NULL, or ends the call.
/// @param warnings     gets how many warnings there were; written if OK.
/// @param undelivered  gets how many of them `on_warning`, or stderr, had not taken when the operation timeout was over; written
/// if OK.
/// @param err          NULL, or gets an error below zero.
/// @return as `syncguard_client_check`; INVALID_ARGUMENT also if one of the two is NULL.
/// Threads: any. Blocks up to the operation timeout, and as long again for a hook that hangs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_check_report(
    client: *mut syncguard_client,
    cancel: *mut syncguard_cancel,
    warnings: *mut u32,
    undelivered: *mut u32,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let body = call.handle(client)?;
        let warnings = call.out("warnings", warnings)?;
        let undelivered = call.out("undelivered", undelivered)?;
        let bounds = bounds(call, cancel)?;
        let checked = body.client.check_with(&bounds.call())?;
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        warnings.set(count(checked.warnings.len()));
        undelivered.set(count(checked.undelivered));
        Ok(OK)
    })
}

/// Removes locks that expired more than two seconds ago; never a live one and never a fence counter. Redis does that by itself.
///
/// @param limit   how many at the most.
/// @param cancel  NULL, or ends the call.
/// @param purged  gets how many were removed; written if OK.
/// @param err     NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL; AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as
/// `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_purge_expired(
    client: *mut syncguard_client,
    limit: u32,
    cancel: *mut syncguard_cancel,
    purged: *mut u64,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let body = call.handle(client)?;
        let out = call.out("purged", purged)?;
        let bounds = bounds(call, cancel)?;
        out.set(body.client.purge_expired_with(limit, &bounds.call())?);
        Ok(OK)
    })
}

/// Which store it is: "redis", "postgres" or "sqlite".
///
/// @return a text that belongs to the client and lives as long as it; NULL for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_backend(
    client: *const syncguard_client,
) -> *const c_char {
    quietly(null(), |call| {
        call.handle(client).map_or(null(), |c| c.backend.as_ptr())
    })
}

/// How many events `on_event` was not told of, because it was too slow or there was no thread for it. 0 without the callback, and
/// for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_events_dropped(client: *const syncguard_client) -> u64 {
    quietly(0, |call| {
        call.handle(client)
            .map_or(0, |body| body.client.events_dropped())
    })
}

/// Stops renewing the guards of a client, for good, without releasing them: their leases run out unless they are extended or
/// released. For a program that ends while work under a lock still runs. NULL is fine.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_stop_renewing(client: *mut syncguard_client) {
    quietly((), |call| {
        if let Ok(body) = call.handle(client) {
            body.client.stop_renewing();
        }
    });
}

/// Whose clock decides when a lease ends. The numbers never change; later versions may add some, so a `switch` needs a `default`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(clippy::upper_case_acronyms)]
pub enum syncguard_time_authority {
    /// There is no store, or this version of the library does not name it.
    SYNCGUARD_TIME_UNKNOWN = 0,
    /// The store's own: the clocks of the clients do not matter.
    SYNCGUARD_TIME_SERVER = 1,
    /// That of the client which looks: the clocks of all clients must agree to within a second.
    SYNCGUARD_TIME_CLIENT = 2,
}

use syncguard_time_authority::*;

/// Whether the grants of the store carry fencing tokens. "redis", "postgres" and "sqlite" have them.
///
/// @return false if fences are 0 and tell no holder from a former one, and for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_supports_fencing(
    client: *const syncguard_client,
) -> bool {
    quietly(false, |call| {
        call.handle(client)
            .is_ok_and(|c| c.client.capabilities().supports_fencing)
    })
}

/// Whose clock decides when a lease ends. It is SERVER for "redis", "postgres" and "sqlite".
///
/// @return UNKNOWN for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_time_authority(
    client: *const syncguard_client,
) -> syncguard_time_authority {
    quietly(SYNCGUARD_TIME_UNKNOWN, |call| {
        call.handle(client).map_or(SYNCGUARD_TIME_UNKNOWN, |c| {
            match c.client.capabilities().time_authority {
                TimeAuthority::Server => SYNCGUARD_TIME_SERVER,
                TimeAuthority::Client => SYNCGUARD_TIME_CLIENT,
                _ => SYNCGUARD_TIME_UNKNOWN,
            }
        })
    })
}

/// Where the fences that this client takes come from, after its options and its URL.
///
/// @return `SYNCGUARD_FENCES_COUNTER` or `SYNCGUARD_FENCES_CLOCK`; `SYNCGUARD_FENCES_DEFAULT` for NULL, and for a source that this version
/// of the library does not name.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_fence_source(client: *const syncguard_client) -> i32 {
    quietly(SYNCGUARD_FENCES_DEFAULT, |call| {
        call.handle(client).map_or(SYNCGUARD_FENCES_DEFAULT, |c| {
            match c.client.capabilities().fence_source {
                FenceSource::Counter => SYNCGUARD_FENCES_COUNTER,
                FenceSource::Clock => SYNCGUARD_FENCES_CLOCK,
                _ => SYNCGUARD_FENCES_DEFAULT,
            }
        })
    })
}

/// Whether callers of this client wait for the lock of a key now, in this process. The holder may then end its work sooner. Callers
/// of other clients and other processes are not counted.
///
/// @param key      as for `syncguard_lock`.
/// @param key_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param out      gets the answer; written if OK.
/// @param err      NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL or a bad key; INTERNAL in a forked child.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_is_waited_for(
    client: *const syncguard_client,
    key: *const c_char,
    key_len: usize,
    out: *mut bool,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, out) = (call.handle(client)?, call.out("out", out)?);
        let key = call.text("key", key, key_len)?;
        out.set(body.client.is_waited_for(key)?);
        Ok(OK)
    })
}

/// Frees a client. NULL is fine. Live guards keep what they need, so the order does not matter; a call of another thread that
/// uses it ends as if nothing had happened.
/// With the last client and guard of a process the library's threads end: that free waits for them, at most a second if a
/// callback of yours is running, and not at all inside a callback or in a forked child.
/// Threads: any, also inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_free(client: *mut syncguard_client) {
    free_handle(client);
}
