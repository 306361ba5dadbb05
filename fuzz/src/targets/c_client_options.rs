//! Structs `syncguard_client_options` of any size and any bytes, with pointers that are NULL or good.
//!
//! A client is opened or the struct is refused; nothing beyond its size is read; and the user's data is freed once if the struct has a size
//! of some version, and never otherwise.

use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use super::functions::*;
use crate::engine::Target;
use crate::{SECRET, outcome};

/// How it is run.
pub const TARGET: Target = Target {
    name: "c_client_options",
    run,
    words: &[
        b"\0\0\0\0",
        b"\x01\0\0\0",
        b"\x02\0\0\0",
        b"\xff\xff\xff\xff",
        b"app",
        b"fence:",
        b"locks",
        b"{a}",
    ],
    max_len: 512,
    short: 10_000,
    memory: 4 << 20,
};

const TEXTS: [&str; 7] = [
    "key_prefix",
    "schema",
    "table_name",
    "fence_table_name",
    "tls_ca_file",
    "tls_client_cert_file",
    "tls_client_key_file",
];
const CALLBACKS: [&str; 5] = [
    "on_release_error",
    "on_event",
    "on_lost",
    "password",
    "connector",
];

fn layout() -> &'static Layout {
    static LAYOUT: OnceLock<Layout> = OnceLock::new();
    LAYOUT.get_or_init(|| {
        let numbers = [
            "pool_size",
            "connect_timeout_ms",
            "operation_timeout_ms",
            "dispose_timeout_ms",
            "cleanup_in_is_locked",
            "events_include_raw",
            "fences",
        ];
        let others = ["on_warning", "user_data", "user_data_free"];
        let pointers = [&TEXTS[..], &CALLBACKS, &others].concat();
        Layout::of("syncguard_client_options", &numbers, &pointers)
    })
}

extern "C" fn warned(_: *mut c_void, _: *const c_char) {}

/// Stands for a callback that no client without a lock makes.
extern "C" fn never(
    _: *mut c_void,
    _: *const c_void,
    _: *const c_char,
    _: *const c_char,
    _: *const c_char,
) {
    std::process::abort();
}

/// Executes one input: the size in two bytes, which pointers are set, the store, a text, and the bytes of the struct.
pub fn run(data: &[u8]) -> u64 {
    let Some(([kind, n, set, store], rest)) = data.split_first_chunk() else {
        return 0;
    };
    let (text, bytes) = rest.split_at(rest.len().min(usize::from(n % 32)));
    let text = CString::new(text.split(|b| *b == 0).next().unwrap_or_default()).expect("no NUL");
    let mut raw = RawOptions::new([*kind, *n], bytes, layout());
    let user = CountedData::default();
    // A struct that is too old to have the hook would have the warning printed: it has no option that is worth one.
    let hooked = raw.has("on_warning");
    for (bit, field) in TEXTS.into_iter().enumerate() {
        let wanted = set >> bit & 1 == 1 && (hooked || bit == 0);
        raw.put(field, if wanted { text.as_ptr().cast() } else { null() });
    }
    let callback = if set & 32 == 0 {
        null()
    } else {
        never as *const c_void
    };
    for field in CALLBACKS {
        raw.put(field, callback);
    }
    raw.put("on_warning", warned as *const c_void);
    raw.put("user_data", user.pointer());
    let finalizer = set & 64 == 0;
    raw.put(
        "user_data_free",
        if finalizer {
            CountedData::end as *const c_void
        } else {
            null()
        },
    );
    let url = match store % 4 {
        1 if hooked => "postgres://app:hunter2zq@h/db",
        2 if hooked => "sqlite:/nowhere/locks.db",
        3 => "redis://app:hunter2zq@h:0",
        _ => "redis://app:hunter2zq@h",
    };
    let (mut client, mut err) = (null_mut(), null_mut());
    // SAFETY: the block is as long as the struct says, or says a size that is refused unread; its pointers are NULL or good.
    let status = unsafe {
        syncguard_client_open(
            url.as_ptr().cast(),
            url.len(),
            raw.pointer(),
            &mut client,
            &mut err,
        )
    };
    assert!(status == OK || status == INVALID_ARGUMENT, "{status}");
    assert!(
        status != OK || raw.is_known(),
        "a struct of {} bytes was accepted",
        raw.size
    );
    assert_eq!(client.is_null(), status != OK);
    let adopted = u32::from(raw.has("user_data_free") && finalizer);
    user.expect(if status == OK { 0 } else { adopted });
    // SAFETY: the client was given by the call before, or is NULL.
    unsafe { syncguard_client_free(client) };
    user.expect(adopted);
    outcome((settle(status, err, &[SECRET]), adopted, store % 4))
}
