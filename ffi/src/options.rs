//! The two option structs, and their conversion to the options of the Rust API, which has the defaults. Uses `boundary` and `cancel`.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;

use rust_syncguard::{
    Backoff, ClientOptions, FenceSource, IncludeRaw, Jitter, LockError, LockOptions,
};

use crate::boundary::{ExportedCall, SizeFirst, UserData, invalid};
use crate::cancel::{bounds, syncguard_cancel};
use crate::error::syncguard_error;
use crate::telemetry::{syncguard_event, syncguard_lost_lock};

/// A value of `backoff`: the library's default, which is exponential.
pub const SYNCGUARD_BACKOFF_DEFAULT: i32 = 0;
/// A value of `backoff`: the delay doubles with every attempt, up to the larger of the base delay and 2 s.
pub const SYNCGUARD_BACKOFF_EXPONENTIAL: i32 = 1;
/// A value of `backoff`: the delay stays as it is.
pub const SYNCGUARD_BACKOFF_FIXED: i32 = 2;

/// A value of `jitter`: the library's default, which is equal.
pub const SYNCGUARD_JITTER_DEFAULT: i32 = 0;
/// A value of `jitter`: half of the delay is fixed, half is random.
pub const SYNCGUARD_JITTER_EQUAL: i32 = 1;
/// A value of `jitter`: all of the delay is random.
pub const SYNCGUARD_JITTER_FULL: i32 = 2;
/// A value of `jitter`: the delay is as computed.
pub const SYNCGUARD_JITTER_NONE: i32 = 3;

/// A value of `fences`: the library's default, which counts, unless the URL says `fences=clock`.
pub const SYNCGUARD_FENCES_DEFAULT: i32 = 0;
/// A value of `fences`: the stored counter of the key, plus one.
pub const SYNCGUARD_FENCES_COUNTER: i32 = 1;
/// A value of `fences`: the larger of the counter plus one and the store's time in Unix milliseconds, so that fences grow also after a
/// store has lost acknowledged writes, if every client of the key has this set, no lost fence was at or ahead of the clock of the server
/// that goes on, and the old server grants nothing once the new one has begun.
pub const SYNCGUARD_FENCES_CLOCK: i32 = 2;

/// `SYNCGUARD_FOREVER`.
const FOREVER: i64 = -1;

/// Everything about a client that is not in its URL. Start from `SYNCGUARD_CLIENT_OPTIONS_INIT`; 0 and NULL mean the default.
/// The struct and its texts are copied and may go once the call has returned; `user_data` is not.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct syncguard_client_options {
    /// `sizeof(syncguard_client_options)`, as the `_INIT` macro sets it.
    pub struct_size: usize,
    /// Redis: what stands before every stored key. Default "syncguard"; "" for nothing. Trailing colons do not count, so "a" and
    /// "a:" are the same. Prefixes of clients that share a database must not nest ("app" and "app:x").
    pub key_prefix: *const c_char,
    /// Postgres: the schema of the tables. Default: the connection's own.
    pub schema: *const c_char,
    /// Postgres: the table of locks. Default "syncguard_locks".
    pub table_name: *const c_char,
    /// Postgres: the table of fence counters. Default "syncguard_fence_counters".
    pub fence_table_name: *const c_char,
    /// TLS: a PEM file with the roots to trust, read when a connection is made. Default: the system's. With `rediss://` a
    /// certificate that does not fit is always refused; with Postgres the URL's `sslmode` decides.
    pub tls_ca_file: *const c_char,
    /// How many connections there may be, at least 2. Default 16.
    pub pool_size: u32,
    /// How long connecting may take. Default 2000.
    pub connect_timeout_ms: u32,
    /// How long every single operation may take, connecting included. Default 5000.
    pub operation_timeout_ms: u32,
    /// How long the release done by `syncguard_guard_free` may take. Default 5000.
    pub dispose_timeout_ms: u32,
    /// 1: `syncguard_is_locked` may have locks removed that expired more than two seconds ago. Default 0.
    pub cleanup_in_is_locked: i32,
    /// 1: events carry the raw key and lock id. Default 0.
    pub events_include_raw: i32,
    /// Called when a release fails and no call can report it: in `syncguard_guard_free` (`source` is "drop") or in the
    /// undoing of a lock whose grant never arrived (`source` is "undo"). It may come after the guard is gone. The error and
    /// the texts are borrowed for the call; `key` and `lock_id` are raw. Default: to stderr in debug builds or with
    /// SYNCGUARD_DEBUG=true in the environment, without key or id; silent otherwise.
    pub on_release_error: Option<
        unsafe extern "C" fn(
            user_data: *mut c_void,
            err: *const syncguard_error,
            key: *const c_char,
            lock_id: *const c_char,
            source: *const c_char,
        ),
    >,
    /// Called for every operation, every wait that has ended and every loss of a guard, one after the other on one thread. A slow one
    /// delays no operation; what it cannot keep up with is dropped, and `syncguard_client_events_dropped` counts it. Default: none, at
    /// no cost.
    pub on_event:
        Option<unsafe extern "C" fn(user_data: *mut c_void, event: *const syncguard_event)>,
    /// Called with what an operator should know. The text is borrowed for the call. Default: to stderr.
    pub on_warning: Option<unsafe extern "C" fn(user_data: *mut c_void, message: *const c_char)>,
    /// What the callbacks are called with. It must live until `user_data_free` is called with it.
    pub user_data: *mut c_void,
    /// Called exactly once, on any thread, when no callback can come any more; also when opening fails. May be NULL.
    pub user_data_free: Option<unsafe extern "C" fn(user_data: *mut c_void)>,
    /// Called with `user_data` when a guard of the client is lost: at most once per guard, and not once its release has begun, as the
    /// guard's own `on_lost`. The two do not wait for each other. It may come before `syncguard_lock` has returned. Default: none.
    pub on_lost:
        Option<unsafe extern "C" fn(user_data: *mut c_void, lost: *const syncguard_lost_lock)>,
    /// Where fences come from: one of the `SYNCGUARD_FENCES_` numbers. `fences=` in the URL wins over it.
    pub fences: i32,
    /// TLS: a PEM file with the certificate that the client shows the server, and those of the authorities that the server may not know.
    /// Read before every connection, so that it may be replaced. Default: none. `sslcert` in a Postgres URL wins over it.
    pub tls_client_cert_file: *const c_char,
    /// TLS: a PEM file with the key of that certificate, without a passphrase; it may be the same file. One that other users may read is
    /// refused: 0600 or stricter, or 0640 or stricter if it is root's. Set both files, or none.
    pub tls_client_key_file: *const c_char,
    /// Asked with `user_data` for the password before every connection is made, for one that changes; then the URL has none. It writes a
    /// text of UTF-8 that ends with a NUL to `out`, which has `size` bytes (65536), and returns 0; any other answer is a failure, and the
    /// call answers SERVICE_UNAVAILABLE. It runs on a thread of the library, one call at a time for a client; connections that are to be
    /// made meanwhile wait for the same answer. One that hangs costs each call its own time and is not called again before it has
    /// returned. The buffer is wiped, and the password is shown nowhere. Default: none.
    pub password: Option<
        unsafe extern "C" fn(user_data: *mut c_void, out: *mut c_char, size: usize) -> c_int,
    >,
    /// Makes every connection in place of the library: through a tunnel or a proxy, or with a socket that a supervisor gives. It is given
    /// the host as the URL or a server names it (the path of a unix socket with port 0) and how long the call that wants it may still
    /// take, and returns the descriptor of a connected stream socket, which is the library's from then on, or minus an `errno`. The
    /// library logs in over it, with TLS if the URL asks for that. It runs on threads of the library, also several at once. One that
    /// hangs costs the call its own time; until it has returned no other one is begun to the same server. Default: none.
    pub connector: Option<
        unsafe extern "C" fn(
            user_data: *mut c_void,
            host: *const c_char,
            port: u16,
            timeout_ms: i64,
        ) -> c_int,
    >,
}

// SAFETY: `repr(C)`, the size comes first, and zeroes are NULL, none and 0.
unsafe impl SizeFirst for syncguard_client_options {
    const ENDS: &'static [usize] = &[
        offset_of!(Self, key_prefix),
        offset_of!(Self, schema),
        offset_of!(Self, table_name),
        offset_of!(Self, fence_table_name),
        offset_of!(Self, tls_ca_file),
        offset_of!(Self, pool_size),
        offset_of!(Self, connect_timeout_ms),
        offset_of!(Self, operation_timeout_ms),
        offset_of!(Self, dispose_timeout_ms),
        offset_of!(Self, cleanup_in_is_locked),
        offset_of!(Self, events_include_raw),
        offset_of!(Self, on_release_error),
        offset_of!(Self, on_event),
        offset_of!(Self, on_warning),
        offset_of!(Self, user_data),
        offset_of!(Self, user_data_free),
        offset_of!(Self, on_lost),
        offset_of!(Self, fences),
        offset_of!(Self, tls_client_cert_file),
        offset_of!(Self, tls_client_key_file),
        offset_of!(Self, password),
        offset_of!(Self, connector),
    ];
}

/// How to wait for a lock and how to hold it. Start from `SYNCGUARD_LOCK_OPTIONS_INIT`; 0 and NULL mean the default. Negative
/// values other than the named ones are refused. The struct is copied; `user_data` is not.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct syncguard_lock_options {
    /// `sizeof(syncguard_lock_options)`, as the `_INIT` macro sets it.
    pub struct_size: usize,
    /// How long the lease lasts if it is not renewed, at most ten years. Default 30000.
    pub ttl_ms: i64,
    /// How long to wait at most. Default 5000; `SYNCGUARD_FOREVER` for no limit. One attempt is `syncguard_try_lock`.
    pub acquire_timeout_ms: i64,
    /// How often to renew, less than the ttl. Default a third of the ttl; `SYNCGUARD_FOREVER` for never.
    pub heartbeat_ms: i64,
    /// Stop renewing this long after the grant, so that a worker that hangs does not hold the lock for ever. Default none.
    pub max_hold_ms: i64,
    /// How often to try again. 0 is the default: 10, or no limit if `acquire_timeout_ms` is set; -1 is no limit.
    pub max_retries: i32,
    /// The delay before the first retry. Default 100.
    pub retry_delay_ms: u32,
    /// How the delay grows: one of the `SYNCGUARD_BACKOFF_` numbers.
    pub backoff: i32,
    /// How much of the delay is random: one of the `SYNCGUARD_JITTER_` numbers.
    pub jitter: i32,
    /// Ends the wait. Not kept by the guard. NULL for none.
    pub cancel: *mut syncguard_cancel,
    /// Called at most once, on a thread of the library, when the lock is lost; not once a release has begun. It may come before
    /// `syncguard_lock` has returned. The error is borrowed for the call. It may block, use the client, and free the
    /// guard and the client.
    pub on_lost: Option<unsafe extern "C" fn(user_data: *mut c_void, why: *const syncguard_error)>,
    /// As in the client's options, for this guard. Default: the client's.
    pub on_release_error: Option<
        unsafe extern "C" fn(
            user_data: *mut c_void,
            err: *const syncguard_error,
            key: *const c_char,
            lock_id: *const c_char,
            source: *const c_char,
        ),
    >,
    /// What the callbacks are called with. It must live until `user_data_free` is called with it.
    pub user_data: *mut c_void,
    /// Called exactly once, on any thread, when no callback can come any more: soon after the guard was freed, or if there is no
    /// guard, whatever the status, before the call returns. May be NULL.
    pub user_data_free: Option<unsafe extern "C" fn(user_data: *mut c_void)>,
    /// What is stored beside the lock of its holder, for people that look at it: at most 200 bytes of printable UTF-8. Default
    /// `host/pid/program`; an empty text stores nothing. It is copied. It is raw data, and proves nothing.
    pub holder: *const c_char,
    /// How long the release done by `syncguard_guard_free` may take. Default: the client's.
    pub dispose_timeout_ms: u32,
}

// SAFETY: `repr(C)`, the size comes first, and zeroes are NULL, none and 0.
unsafe impl SizeFirst for syncguard_lock_options {
    const ENDS: &'static [usize] = &[
        offset_of!(Self, ttl_ms),
        offset_of!(Self, acquire_timeout_ms),
        offset_of!(Self, heartbeat_ms),
        offset_of!(Self, max_hold_ms),
        offset_of!(Self, max_retries),
        offset_of!(Self, retry_delay_ms),
        offset_of!(Self, backoff),
        offset_of!(Self, jitter),
        offset_of!(Self, cancel),
        offset_of!(Self, on_lost),
        offset_of!(Self, on_release_error),
        offset_of!(Self, user_data),
        offset_of!(Self, user_data_free),
        offset_of!(Self, holder),
        offset_of!(Self, dispose_timeout_ms),
    ];
}

/// Options as they came, with the user's data taken over: that is done first, so that its finalizer runs whatever else is wrong.
pub(crate) struct AdoptedOptions<T> {
    raw: T,
    readable: Result<(), LockError>,
    pub(crate) user: Arc<UserData>,
}

impl AdoptedOptions<syncguard_client_options> {
    pub(crate) fn client(call: &ExportedCall, options: *const syncguard_client_options) -> Self {
        let (raw, readable) = call.copy(options);
        let user = UserData::adopt(raw.user_data, raw.user_data_free);
        Self {
            raw,
            readable,
            user,
        }
    }

    pub(crate) fn options(
        self,
        call: &ExportedCall,
    ) -> Result<(ClientOptions, Arc<UserData>), LockError> {
        let Self {
            raw,
            readable,
            user,
        } = self;
        readable?;
        let mut options = ClientOptions::new();
        if let Some(prefix) = call.option("key_prefix", raw.key_prefix)? {
            options = options.key_prefix(prefix);
        }
        if let Some(schema) = call.option("schema", raw.schema)? {
            options = options.schema(schema);
        }
        if let Some(name) = call.option("table_name", raw.table_name)? {
            options = options.table_name(name);
        }
        if let Some(name) = call.option("fence_table_name", raw.fence_table_name)? {
            options = options.fence_table_name(name);
        }
        if let Some(path) = call.path(raw.tls_ca_file) {
            options = options.tls_ca_file(path);
        }
        match (
            call.path(raw.tls_client_cert_file),
            call.path(raw.tls_client_key_file),
        ) {
            (Some(certificate), Some(key)) => options = options.tls_client_cert(certificate, key),
            (None, None) => {}
            _ => {
                return Err(invalid(
                    "of tls_client_cert_file and tls_client_key_file only one is set",
                ));
            }
        }
        if raw.pool_size != 0 {
            options = options.pool_size(raw.pool_size as usize);
        }
        if raw.connect_timeout_ms != 0 {
            options = options.connect_timeout(Duration::from_millis(raw.connect_timeout_ms.into()));
        }
        if raw.operation_timeout_ms != 0 {
            options =
                options.operation_timeout(Duration::from_millis(raw.operation_timeout_ms.into()));
        }
        if raw.dispose_timeout_ms != 0 {
            options = options.dispose_timeout(Duration::from_millis(raw.dispose_timeout_ms.into()));
        }
        options = options
            .cleanup_in_is_locked(flag("cleanup_in_is_locked", raw.cleanup_in_is_locked)?)
            .events_include_raw(if flag("events_include_raw", raw.events_include_raw)? {
                IncludeRaw::Always
            } else {
                IncludeRaw::Never
            });
        options = options.fences(match raw.fences {
            SYNCGUARD_FENCES_DEFAULT => FenceSource::default(),
            SYNCGUARD_FENCES_COUNTER => FenceSource::Counter,
            SYNCGUARD_FENCES_CLOCK => FenceSource::Clock,
            _ => return Err(invalid("fences is none of SYNCGUARD_FENCES_*")),
        });
        if let Some(hook) = raw.on_release_error {
            options = options.on_release_error(user.release_error(hook));
        }
        if let Some(hook) = raw.on_event {
            options = options.on_event(user.event(hook));
        }
        if let Some(hook) = raw.on_warning {
            options = options.on_warning(user.warning(hook));
        }
        if let Some(hook) = raw.on_lost {
            options = options.on_lost(user.client_lost(hook));
        }
        if let Some(provider) = raw.password {
            options = options.password(user.password(provider));
        }
        if let Some(connect) = raw.connector {
            options = options.connector(user.connector(connect));
        }
        Ok((options, user))
    }
}

impl AdoptedOptions<syncguard_lock_options> {
    pub(crate) fn lock(call: &ExportedCall, options: *const syncguard_lock_options) -> Self {
        let (raw, readable) = call.copy(options);
        let user = UserData::adopt(raw.user_data, raw.user_data_free);
        Self {
            raw,
            readable,
            user,
        }
    }

    pub(crate) fn options(
        self,
        call: &ExportedCall,
    ) -> Result<(LockOptions, Arc<UserData>), LockError> {
        let Self {
            raw,
            readable,
            user,
        } = self;
        readable?;
        let mut options = plain_lock_options(&raw)?;
        if let Some(holder) = call.option("holder", raw.holder)? {
            options = options.holder(holder);
        }
        options = bounds(call, raw.cancel)?.set_on(options);
        if let Some(callback) = raw.on_lost {
            options = options.on_lost(user.lost(callback));
        }
        if let Some(hook) = raw.on_release_error {
            options = options.on_release_error(user.release_error(hook));
        }
        Ok((options, user))
    }
}

/// The options without their handles, callbacks and data.
pub(crate) fn plain_lock_options(raw: &syncguard_lock_options) -> Result<LockOptions, LockError> {
    let mut options = LockOptions::new();
    match raw.ttl_ms {
        0 => {}
        ms => options = options.ttl(millis("ttl_ms", ms)?),
    }
    match raw.acquire_timeout_ms {
        0 => {}
        FOREVER => options = options.acquire_timeout(Duration::MAX),
        ms => options = options.acquire_timeout(millis("acquire_timeout_ms", ms)?),
    }
    match raw.heartbeat_ms {
        0 => {}
        FOREVER => options = options.no_heartbeat(),
        ms => options = options.heartbeat(millis("heartbeat_ms", ms)?),
    }
    match raw.max_hold_ms {
        0 | FOREVER => {}
        ms => options = options.max_hold(millis("max_hold_ms", ms)?),
    }
    match raw.max_retries {
        0 => {}
        -1 => options = options.unlimited_retries(),
        n => {
            let n = u32::try_from(n)
                .map_err(|_| invalid("max_retries is negative and not -1, which is no limit"))?;
            options = options.max_retries(n);
        }
    }
    if raw.retry_delay_ms != 0 {
        options = options.retry_delay(Duration::from_millis(raw.retry_delay_ms.into()));
    }
    if raw.dispose_timeout_ms != 0 {
        options = options.dispose_timeout(Duration::from_millis(raw.dispose_timeout_ms.into()));
    }
    options = options.backoff(match raw.backoff {
        SYNCGUARD_BACKOFF_DEFAULT => Backoff::default(),
        SYNCGUARD_BACKOFF_EXPONENTIAL => Backoff::Exponential,
        SYNCGUARD_BACKOFF_FIXED => Backoff::Fixed,
        _ => return Err(invalid("backoff is none of SYNCGUARD_BACKOFF_*")),
    });
    Ok(options.jitter(match raw.jitter {
        SYNCGUARD_JITTER_DEFAULT => Jitter::default(),
        SYNCGUARD_JITTER_EQUAL => Jitter::Equal,
        SYNCGUARD_JITTER_FULL => Jitter::Full,
        SYNCGUARD_JITTER_NONE => Jitter::None,
        _ => return Err(invalid("jitter is none of SYNCGUARD_JITTER_*")),
    }))
}

/// A duration that has no special values.
pub(crate) fn millis(name: &str, ms: i64) -> Result<Duration, LockError> {
    u64::try_from(ms)
        .map(Duration::from_millis)
        .map_err(|_| invalid(format!("{name} is negative")))
}

fn flag(name: &str, value: i32) -> Result<bool, LockError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(invalid(format!("{name} is neither 0 nor 1"))),
    }
}
