//! Structs `syncguard_lock_options` of any size and any bytes, with pointers that are NULL or good, to the three functions that read one.
//!
//! A resolved struct keeps its size and what lies beyond it, and stays as it is if it is resolved again; a delay is within the time that is
//! left; and a lock is taken or refused, with the user's data freed once.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use super::functions::*;
use crate::engine::Target;
use crate::{folder, outcome};

/// How it is run.
pub const TARGET: Target = Target {
    name: "c_lock_options",
    run,
    words: &[
        b"\0\0\0\0\0\0\0\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x01\0\0\0\0\0\0\0",
        b"\x30\x75\0\0\0\0\0\0",
        b"\x02\0\0\0",
        b"\x03\0\0\0",
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    ],
    max_len: 512,
    short: 2_000,
    memory: 4 << 20,
};

fn layout() -> &'static Layout {
    static LAYOUT: OnceLock<Layout> = OnceLock::new();
    LAYOUT.get_or_init(|| {
        let numbers = [
            "ttl_ms",
            "acquire_timeout_ms",
            "heartbeat_ms",
            "max_hold_ms",
            "max_retries",
            "retry_delay_ms",
            "backoff",
            "jitter",
            "dispose_timeout_ms",
        ];
        let pointers = [
            "cancel",
            "on_lost",
            "on_release_error",
            "user_data",
            "user_data_free",
            "holder",
        ];
        Layout::of("syncguard_lock_options", &numbers, &pointers)
    })
}

/// A short lease may be lost, and a lost one may have been released by then.
extern "C" fn lost(_: *mut c_void, _: *const c_void) {}

fn client() -> *mut c_void {
    static CLIENT: OnceLock<AtomicPtr<c_void>> = OnceLock::new();
    CLIENT
        .get_or_init(|| {
            let url = format!("sqlite:{}", folder().join("locks.db").display());
            let mut client = null_mut();
            // SAFETY: the text is as long as it says; no options, no error.
            let status = unsafe {
                syncguard_client_open(
                    url.as_ptr().cast(),
                    url.len(),
                    null(),
                    &mut client,
                    null_mut(),
                )
            };
            assert_eq!(status, OK);
            AtomicPtr::new(client)
        })
        .load(SeqCst)
}

fn resolve(raw: &RawOptions) -> bool {
    let mut once = raw.bytes.clone();
    // SAFETY: the block is as long as the struct says, or says a size that is refused unread.
    unsafe { syncguard_lock_options_resolve(once.as_mut_ptr().cast()) };
    let kept = if raw.is_known() {
        raw.size.min(layout().at("cancel"))..raw.bytes.len()
    } else {
        0..raw.bytes.len()
    };
    assert_eq!(
        once[kept.clone()],
        raw.bytes[kept],
        "it changed what it does not own"
    );
    assert_eq!(once[..8], raw.bytes[..8], "it changed the size");
    let mut twice = once.clone();
    // SAFETY: as above.
    unsafe { syncguard_lock_options_resolve(twice.as_mut_ptr().cast()) };
    // The default of a heartbeat is none for a lease shorter than three milliseconds.
    assert_eq!(once, twice, "resolved once more it is another");
    once != raw.bytes
}

/// Executes one input: the size in two bytes, flags, an attempt, eight bytes of time, and the bytes of the struct.
pub fn run(data: &[u8]) -> u64 {
    let Some(([kind, n, flags, attempt], rest)) = data.split_first_chunk() else {
        return 0;
    };
    let Some((remaining, bytes)) = rest.split_first_chunk() else {
        return 0;
    };
    let remaining = i64::from_le_bytes(*remaining);
    // The first field is the size, which is chosen apart.
    let bytes = [&[0; 8], bytes].concat();
    let mut raw = RawOptions::new([*kind, *n], &bytes, layout());
    let user = CountedData::default();
    raw.put("cancel", null());
    raw.put(
        "on_lost",
        if flags & 1 == 0 {
            null()
        } else {
            lost as *const c_void
        },
    );
    raw.put("on_release_error", null());
    let holder = [
        null(),
        c"".as_ptr(),
        c"a holder".as_ptr(),
        c"\u{7}".as_ptr(),
    ];
    raw.put("holder", holder[usize::from(flags >> 2 & 3)].cast());
    raw.put("user_data", user.pointer());
    let finalizer = flags & 2 == 0;
    raw.put(
        "user_data_free",
        if finalizer {
            CountedData::end as *const c_void
        } else {
            null()
        },
    );
    let changed = resolve(&raw);
    // SAFETY: as for `resolve`.
    let delay = unsafe {
        syncguard_retry_delay_ms(
            raw.pointer(),
            u32::from(*attempt) << (flags >> 4),
            remaining,
        )
    };
    assert!(delay >= -1, "{delay}");
    assert!(
        remaining == -1 || delay <= remaining.max(0),
        "{delay} of {remaining} ms"
    );
    assert!(
        raw.is_known() || delay == -1,
        "a delay for a struct of {} bytes",
        raw.size
    );
    user.expect(0);

    let (mut guard, mut err) = (null_mut(), null_mut());
    let key = super::KEY;
    // SAFETY: as for `resolve`; the client lives as long as the process.
    let status = unsafe {
        syncguard_try_lock(
            client(),
            key.as_ptr().cast(),
            key.len(),
            raw.pointer(),
            &mut guard,
            &mut err,
        )
    };
    assert!(
        status != OK || raw.is_known(),
        "a struct of {} bytes was accepted",
        raw.size
    );
    assert_eq!(guard.is_null(), status != OK);
    let adopted = u32::from(raw.has("user_data_free") && finalizer);
    let told = settle(status, err, &[key]);
    if status == OK {
        let mut err = null_mut();
        // SAFETY: the guard was given by the call before, and is freed here and nowhere else.
        let released = unsafe { syncguard_guard_release(guard, null_mut(), &mut err) };
        assert!(released == OK || released == ABSENT, "{released}");
        settle(released, err, &[key]);
        // SAFETY: as above.
        unsafe { syncguard_guard_free(guard) };
    } else {
        assert!(status == INVALID_ARGUMENT || status == LOCKED, "{status}");
    }
    user.expect(adopted);
    outcome((told, adopted, changed, delay.min(2)))
}
