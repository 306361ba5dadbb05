//! Gates: what refuses a former holder at the resource itself. Uses `boundary`, `cancel` and `client`.

use std::ffi::{c_char, c_void};

use rust_syncguard::gate::{postgres, redis, sqlite};
use rust_syncguard::{Fence, LockError};

use crate::boundary::{boundary, invalid, quietly};
use crate::cancel::{bounds, syncguard_cancel};
use crate::client::syncguard_client;
use crate::error::syncguard_error;
use crate::status::{ABSENT, OK, REFUSED, syncguard_status};

/// A text of `syncguard_gate_text`: Lua that stands before a script of your own. Give the script the key of the gate (the name with
/// ":fence" behind it) before its own keys, and the fence before its own arguments; it finds its own ones in KEYS and ARGV as if it were
/// alone. A former holder gets an error reply that begins with SYNCGUARD_STALE, and nothing is changed.
pub const SYNCGUARD_GATE_REDIS_PRELUDE: i32 = 1;
/// A text of `syncguard_gate_text`: the script of `syncguard_fenced_set`, for another client of Redis. Keys: the gate, the name.
/// Arguments: the fence, the value.
pub const SYNCGUARD_GATE_REDIS_FENCED_SET: i32 = 2;
/// A text of `syncguard_gate_text` and `syncguard_gate_postgres_text`: the first statement of your transaction in Postgres. $1: the resource,
/// $2: the fence. It raises the SQLSTATE SGG01 for a former holder, SGG02 for what is no fence or no name of a resource, and 42883 where
/// the set-up is missing: call `syncguard_client_setup_fence_gate`.
pub const SYNCGUARD_GATE_POSTGRES_PASS: i32 = 3;
/// A text of `syncguard_gate_text` and `syncguard_gate_postgres_text`: the first statement of your transaction where locks and data share a
/// database of Postgres. $1: "fence:" and the key of the lock, $2: the fence. No row: refused. The next grant of the key waits until the
/// transaction ends.
pub const SYNCGUARD_GATE_POSTGRES_SHARE: i32 = 4;
/// A text of `syncguard_gate_text`: creates the gate in a database of SQLite; may be repeated.
pub const SYNCGUARD_GATE_SQLITE_SETUP: i32 = 5;
/// A text of `syncguard_gate_text`: the first statement of your transaction in SQLite. ?1: the resource, ?2: the fence. For a former
/// holder it fails with "syncguard: refused", and the transaction is rolled back. Stop then: the connection is in autocommit, and what
/// follows would be committed statement by statement. "no such table: syncguard_fence_gates": the set-up is missing.
pub const SYNCGUARD_GATE_SQLITE_PASS: i32 = 6;
/// A text of `syncguard_gate_text`: the newest fence of the resource ?1 in SQLite, for operators.
pub const SYNCGUARD_GATE_SQLITE_NEWEST: i32 = 7;
/// A text of `syncguard_gate_text`: forgets the newest fence of the resource ?1 in SQLite if it is ?2.
pub const SYNCGUARD_GATE_SQLITE_RESET: i32 = 8;
/// A text of `syncguard_gate_postgres_text`: the statements that create the table and the function in an existing schema, to be run once.
pub const SYNCGUARD_GATE_POSTGRES_SETUP: i32 = 9;
/// A text of `syncguard_gate_postgres_text`: the newest fence of the resource $1, for operators.
pub const SYNCGUARD_GATE_POSTGRES_NEWEST: i32 = 10;
/// A text of `syncguard_gate_postgres_text`: forgets the newest fence of the resource $1 if it is $2, and counts.
pub const SYNCGUARD_GATE_POSTGRES_RESET: i32 = 11;

/// A text with a NUL behind it.
macro_rules! c_text {
    ($text:expr) => {{
        static TEXT: [u8; $text.len() + 1] = with_nul($text);
        TEXT.as_ptr().cast::<c_char>()
    }};
}

const fn with_nul<const N: usize>(text: &str) -> [u8; N] {
    let (mut out, mut at) = ([0; N], 0);
    while at < text.len() {
        out[at] = text.as_bytes()[at];
        at += 1;
    }
    out
}

/// Creates the gate in the store of the client, for data that is kept there too: in Postgres a table and the function
/// syncguard_pass(resource, fence), in SQLite a table; Redis needs nothing. May be repeated, and run by many processes at once.
///
/// @param cancel  NULL, or ends the call.
/// @param err     NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL, or if something else has the gate's names; AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED,
/// NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_setup_fence_gate(
    client: *mut syncguard_client,
    cancel: *mut syncguard_cancel,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        body.client.setup_fence_gate_with(&bounds.call())?;
        Ok(OK)
    })
}

/// Redis: stores a value under a name if the fence passes the gate of that name, in one step. The name is a key of your own outside of the
/// client's key_prefix, where every name belongs to a lock; its gate is that name with ":fence" behind it.
///
/// @param name       1 to 512 bytes of UTF-8, without U+0000; it does not begin with the client's key_prefix and a colon, nor end with
///                   ":fence". In a Redis Cluster it needs the hash tag of that prefix: "{app}data:account:7" for "{app}".
/// @param name_len   its length in bytes, or `SYNCGUARD_NUL`.
/// @param value      any bytes; copied into the request. NULL only with the length 0.
/// @param value_len  their number.
/// @param fence      of the guard that the caller holds: `syncguard_guard_fence_number`.
/// @param cancel     NULL, or ends the call.
/// @param err        NULL, or gets an error below zero.
/// @return OK, it was stored; REFUSED, a newer holder has written and nothing was changed: stop; INVALID_ARGUMENT for NULL, a bad name,
/// a fence that is 0 or over 900000000000000, or a store that is not Redis; AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED,
/// NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_fenced_set(
    client: *mut syncguard_client,
    name: *const c_char,
    name_len: usize,
    value: *const c_void,
    value_len: usize,
    fence: u64,
    cancel: *mut syncguard_cancel,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let name = call.text("name", name, name_len)?;
        let value = call.data("value", value, value_len)?;
        let outcome =
            body.client
                .fenced_set_with(name, value, Fence::new(fence)?, &bounds.call())?;
        Ok(if outcome.is_passed() { OK } else { REFUSED })
    })
}

/// The newest fence that has passed the gate of a resource, for operators.
///
/// @param resource      1 to 512 bytes of UTF-8, without U+0000.
/// @param resource_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param cancel        NULL, or ends the call.
/// @param fence         gets the fence; written if OK.
/// @param err           NULL, or gets an error below zero.
/// @return OK; ABSENT, none has passed; INVALID_ARGUMENT for NULL, a bad name, or a gate that is not set up; AUTH_FAILED,
/// SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_gate_newest(
    client: *mut syncguard_client,
    resource: *const c_char,
    resource_len: usize,
    cancel: *mut syncguard_cancel,
    fence: *mut u64,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, out) = (call.handle(client)?, call.out("fence", fence)?);
        let bounds = bounds(call, cancel)?;
        let resource = call.text("resource", resource, resource_len)?;
        let newest = body.client.newest_fence_with(resource, &bounds.call())?;
        Ok::<_, LockError>(match newest {
            Some(fence) => {
                out.set(fence.get());
                OK
            }
            None => ABSENT,
        })
    })
}

/// Forgets the newest fence of a resource if it is `seen`, so that any fence passes next. Only for an operator that has made sure that no
/// former holder is left, after the counters of the locks were lost.
///
/// @param resource      1 to 512 bytes of UTF-8, without U+0000.
/// @param resource_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param seen          what `syncguard_gate_newest` answered.
/// @param cancel        NULL, or ends the call.
/// @param err           NULL, or gets an error below zero.
/// @return OK, it was forgotten; ABSENT, it is another one or none; INVALID_ARGUMENT for NULL, a bad name, or a gate that is not set up;
/// AUTH_FAILED, SERVICE_UNAVAILABLE, RATE_LIMITED, NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_gate_reset(
    client: *mut syncguard_client,
    resource: *const c_char,
    resource_len: usize,
    seen: u64,
    cancel: *mut syncguard_cancel,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (body, bounds) = (call.handle(client)?, bounds(call, cancel)?);
        let resource = call.text("resource", resource, resource_len)?;
        let seen = Fence::new(seen)?;
        let reset = body
            .client
            .reset_fence_gate_with(resource, seen, &bounds.call())?;
        Ok(if reset { OK } else { ABSENT })
    })
}

/// The SQL and Lua of the gates, for drivers of your own.
///
/// @param which  one of the `SYNCGUARD_GATE_` numbers.
/// @return a static text; NULL for another number, and for those that need the name of a schema. Not to be freed.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_gate_text(which: i32) -> *const c_char {
    quietly(std::ptr::null(), |_| match which {
        SYNCGUARD_GATE_REDIS_PRELUDE => c_text!(redis::PRELUDE),
        SYNCGUARD_GATE_REDIS_FENCED_SET => c_text!(redis::FENCED_SET),
        SYNCGUARD_GATE_POSTGRES_PASS => c_text!(postgres::PASS),
        SYNCGUARD_GATE_POSTGRES_SHARE => c_text!(postgres::SHARE),
        SYNCGUARD_GATE_SQLITE_SETUP => c_text!(sqlite::SETUP),
        SYNCGUARD_GATE_SQLITE_PASS => c_text!(sqlite::PASS),
        SYNCGUARD_GATE_SQLITE_NEWEST => c_text!(sqlite::NEWEST),
        SYNCGUARD_GATE_SQLITE_RESET => c_text!(sqlite::RESET),
        _ => std::ptr::null(),
    })
}

/// The SQL of a gate in one schema of Postgres, for drivers of your own. The schema stands in the text, so that no other one in the
/// `search_path` of a session can come before it.
///
/// @param which        `SYNCGUARD_GATE_POSTGRES_` PASS, SHARE, SETUP, NEWEST or RESET.
/// @param schema       the name of the schema: letters, digits and `_`.
/// @param schema_len   its length in bytes, or `SYNCGUARD_NUL`.
/// @param fence_table  for SHARE: the `fence_table_name` of the clients that lock, NUL-terminated, or NULL for the default.
/// @param text         gets the text and a NUL if `size` bytes are enough, else nothing. NULL only with the size 0.
/// @param size         how many bytes may be written there.
/// @param length       NULL, or gets the length of the text without its NUL: call with the size 0 to learn it.
/// @param err          NULL, or gets an error below zero.
/// @return OK, also if `size` is too small; INVALID_ARGUMENT for NULL, another number or a bad name.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_gate_postgres_text(
    which: i32,
    schema: *const c_char,
    schema_len: usize,
    fence_table: *const c_char,
    text: *mut c_char,
    size: usize,
    length: *mut usize,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let schema = call.text("schema", schema, schema_len)?;
        let out = call.text_out("text", text, size)?;
        let gate = match call.option("fence_table", fence_table)? {
            None => postgres::PostgresGate::new(schema)?,
            Some(table) => postgres::PostgresGate::with_fence_table(schema, table)?,
        };
        let sql = match which {
            SYNCGUARD_GATE_POSTGRES_PASS => gate.pass().to_owned(),
            SYNCGUARD_GATE_POSTGRES_SHARE => gate.share().to_owned(),
            SYNCGUARD_GATE_POSTGRES_SETUP => gate.setup().join(";\n"),
            SYNCGUARD_GATE_POSTGRES_NEWEST => gate.newest().to_owned(),
            SYNCGUARD_GATE_POSTGRES_RESET => gate.reset().to_owned(),
            _ => return Err(invalid("which is no text of a gate of Postgres")),
        };
        out.set(&sql);
        if !length.is_null() {
            call.out("length", length)?.set(sql.len());
        }
        Ok(OK)
    })
}
