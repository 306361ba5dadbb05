//! Texts of any bytes and lengths to the functions of the C library that take one.
//!
//! They accept what the Rust functions accept, refuse anything else as an invalid argument, and repeat no part of it.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use syncguard::{Fence, Key, LockId};

use super::functions::*;
use crate::engine::Target;
use crate::{SECRET, outcome};

/// How it is run.
pub const TARGET: Target = Target {
    name: "c_texts",
    run,
    words: &[
        b"\0",
        b"JjYEnSICuoi1IlfW3NFLOw",
        b"000000000000001",
        b"900000000000000",
        b"redis://",
        b"postgres://user:hunter2zq@",
        b"sqlite:",
        b"localhost",
        b"\xff",
        b"\xc3",
        "é".as_bytes(),
        "e\u{301}".as_bytes(),
    ],
    max_len: 2048,
    short: 20_000,
    memory: 1 << 20,
};

/// A text as C passes it: where it is, its length, and what the library should read; `None` if it should refuse it unread.
struct Text<'a> {
    at: *const c_char,
    len: usize,
    read: Option<&'a [u8]>,
}

fn text(choice: u8, block: &[u8]) -> Text<'_> {
    let at = block.as_ptr().cast();
    match choice % 8 {
        0 => Text {
            at: null(),
            len: block.len(),
            read: None,
        },
        1 => Text {
            at: null(),
            len: NUL,
            read: None,
        },
        // A length that no object has: nothing there may be read.
        2 => Text {
            at,
            len: isize::MAX.cast_unsigned() + 1,
            read: None,
        },
        3 => Text {
            at,
            len: NUL - 1,
            read: None,
        },
        // The block ends in a NUL.
        4 | 5 => Text {
            at,
            len: NUL,
            read: CStr::from_bytes_until_nul(block).ok().map(CStr::to_bytes),
        },
        _ => Text {
            at,
            len: block.len() - 1,
            read: block.split_last().map(|(_, text)| text),
        },
    }
}

/// Executes one input: the form of the text, and its bytes.
pub fn run(data: &[u8]) -> u64 {
    let (&choice, bytes) = data.split_first().unwrap_or((&0, &[]));
    // Of exactly this length, so that a tool that watches memory sees a read beyond it.
    let block: Box<[u8]> = [bytes, b"\0"].concat().into();
    let Text { at, len, read } = text(choice, &block);
    let read = read.and_then(|bytes| std::str::from_utf8(bytes).ok());
    // Words of messages are shorter.
    let secrets: Vec<&str> = read
        .filter(|text| text.len() > 24)
        .into_iter()
        .chain([SECRET])
        .collect();
    let mut err: *mut c_void = null_mut();

    let mut hash: [c_char; 25] = [0; 25];
    // SAFETY: the text is as long as `text` says, or has a NUL, or is one that must not be read.
    let status = unsafe { syncguard_hash_key(at, len, hash.as_mut_ptr(), &mut err) };
    let key = read.and_then(|text| Key::new(text).ok());
    assert_eq!(
        status,
        if key.is_some() { OK } else { INVALID_ARGUMENT },
        "as a key"
    );
    if let Some(key) = key {
        // SAFETY: the call has written a text with a NUL.
        let hash = unsafe { CStr::from_ptr(hash.as_ptr()) };
        assert_eq!(hash.to_str().ok(), Some(key.log_hash().as_str()));
    }
    let mut seen = settle(status, std::mem::replace(&mut err, null_mut()), &secrets);

    // SAFETY: as above.
    let status = unsafe { syncguard_validate_lock_id(at, len, &mut err) };
    let id = read.and_then(|text| LockId::parse(text).ok());
    assert_eq!(
        status,
        if id.is_some() { OK } else { INVALID_ARGUMENT },
        "as a lock id"
    );
    seen = outcome((
        seen,
        settle(status, std::mem::replace(&mut err, null_mut()), &secrets),
    ));

    let mut number = 7;
    // SAFETY: as above.
    let status = unsafe { syncguard_parse_fence(at, len, &mut number, &mut err) };
    let fence = read.and_then(|text| Fence::parse(text).ok());
    assert_eq!(
        status,
        if fence.is_some() {
            OK
        } else {
            INVALID_ARGUMENT
        },
        "as a fence"
    );
    assert_eq!(number, fence.map_or(0, Fence::get));
    seen = outcome((
        seen,
        settle(status, std::mem::replace(&mut err, null_mut()), &secrets),
    ));

    let mut client = null_mut();
    // SAFETY: as above; no options.
    let status = unsafe { syncguard_client_open(at, len, null(), &mut client, &mut err) };
    assert!(status == OK || status == INVALID_ARGUMENT, "{status}");
    assert_eq!(client.is_null(), status != OK);
    // SAFETY: the client was given by the call before, or is NULL.
    unsafe { syncguard_client_free(client) };
    outcome((seen, settle(status, err, &secrets)))
}
