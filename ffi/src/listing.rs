//! `syncguard_page`: live locks, page by page. Uses `boundary`, `cancel`, `client` and `verbs`.

use std::ffi::{CString, c_char};
use std::ptr::null;

use rust_syncguard::{ListCursor, ListOptions, LockInfoDebug};

use crate::boundary::{Opaque, boundary, c_string, free_handle, give, invalid, quietly};
use crate::cancel::{bounds, syncguard_cancel};
use crate::client::syncguard_client;
use crate::error::syncguard_error;
use crate::status::{OK, syncguard_status};
use crate::verbs::{
    info_with_secrets, info_without_secrets, syncguard_lock_info, syncguard_lock_info_raw,
};

/// A page of live locks, as `syncguard_client_list` found it. It never changes.
/// Threads: any, also several at once.
pub struct syncguard_page {
    _opaque: [u8; 0],
}

impl Opaque for syncguard_page {
    type Body = PageBody;
    const NAME: &'static str = "page";
    const TAG: u64 = 0x5347_7061_6765_0001;
}

/// The body of a `syncguard_page`.
pub(crate) struct PageBody {
    locks: Vec<(LockInfoDebug, Option<CString>)>,
    next: Option<CString>,
}

/// Lists live locks, a page at a time. For people and dashboards; do not decide by it before a write. A lock can be on two pages, and
/// one that is taken or released meanwhile can be missing.
///
/// @param prefix      what keys must begin with; NULL or "" for all.
/// @param prefix_len  its length in bytes, or `SYNCGUARD_NUL`.
/// @param examine     how many stored entries to examine, about, so that one call bounds what it costs the store: 1 to 10000, or 0
///                    for 500. A page may be empty although more follow.
/// @param after       NULL for the first page; else what `syncguard_page_next` gave, with the same prefix.
/// @param cancel      NULL, or ends the call.
/// @param out         gets the page, which belongs to the caller and is freed with `syncguard_page_free`; NULL unless OK.
/// @param err         NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL, a prefix that no key can have, a number that is too large, or a text that was not given
/// by this store: begin anew; AUTH_FAILED, on Redis also without the right to SCAN; SERVICE_UNAVAILABLE, RATE_LIMITED,
/// NETWORK_TIMEOUT, ABORTED, INTERNAL as `syncguard_status` says.
/// Threads: any. Blocks up to the operation timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_client_list(
    client: *mut syncguard_client,
    prefix: *const c_char,
    prefix_len: usize,
    examine: u32,
    after: *const c_char,
    cancel: *mut syncguard_cancel,
    out: *mut *mut syncguard_page,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let out = call.handle_out(out)?;
        let body = call.handle(client)?;
        let bounds = bounds(call, cancel)?;
        let mut options = ListOptions::new();
        if !prefix.is_null() {
            options = options.prefix(call.text("prefix", prefix, prefix_len)?);
        }
        if examine != 0 {
            options = options.examine(examine);
        }
        if let Some(after) = call.option("after", after)? {
            options = options.after(ListCursor::new(after));
        }
        let page = body.client.list_raw_with(&options, &bounds.call())?;
        let text = |lock: &LockInfoDebug| lock.holder.as_deref().map(c_string);
        let locks = page.locks.into_iter().map(|lock| {
            let holder = text(&lock);
            (lock, holder)
        });
        out.set(give(PageBody {
            locks: locks.collect(),
            next: page.next.map(|next| c_string(next.as_str())),
        }));
        Ok(OK)
    })
}

/// How many locks the page has. 0 for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_page_count(page: *const syncguard_page) -> usize {
    quietly(0, |call| {
        call.handle(page).map_or(0, |page| page.locks.len())
    })
}

/// A lock of the page, without its secrets.
///
/// @param index  which one: less than `syncguard_page_count`.
/// @param out    gets the lock; written if OK.
/// @param err    NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL and for an index that the page does not have.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_page_info(
    page: *const syncguard_page,
    index: usize,
    out: *mut syncguard_lock_info,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (page, out) = (call.handle(page)?, call.out("out", out)?);
        let (lock, _) = page.locks.get(index).ok_or_else(no_such_lock)?;
        out.set(info_without_secrets(&lock.info));
        Ok(OK)
    })
}

/// A lock of the page with its raw key and lock id: keep them out of logs.
///
/// @param index  which one: less than `syncguard_page_count`.
/// @param out    gets the lock; written if OK.
/// @param err    NULL, or gets an error below zero.
/// @return OK; INVALID_ARGUMENT for NULL and for an index that the page does not have; INTERNAL for a lock that another program stored
/// under a key that this library does not take.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_page_info_raw(
    page: *const syncguard_page,
    index: usize,
    out: *mut syncguard_lock_info_raw,
    err: *mut *mut syncguard_error,
) -> syncguard_status {
    boundary(err, |call| {
        let (page, out) = (call.handle(page)?, call.out("out", out)?);
        let (lock, _) = page.locks.get(index).ok_or_else(no_such_lock)?;
        out.set(info_with_secrets(lock)?);
        Ok(OK)
    })
}

/// What the holder of a lock of the page says of itself. Raw data for people: any program that can write to the store can write any
/// text.
///
/// @return a text that belongs to the page and lives as long as it; NULL if the holder says nothing, for an index that the page does
/// not have, and for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_page_holder_text(
    page: *const syncguard_page,
    index: usize,
) -> *const c_char {
    quietly(null(), |call| {
        let page = call.handle(page).ok();
        let text = page
            .as_ref()
            .and_then(|page| page.locks.get(index)?.1.as_ref());
        text.map_or(null(), |text| text.as_ptr())
    })
}

/// Where the next page begins, for `after` of `syncguard_client_list`. It may hold a raw key.
///
/// @return a text that belongs to the page and lives as long as it; NULL if this is the last page, and for NULL.
/// Threads: any. No I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_page_next(page: *const syncguard_page) -> *const c_char {
    quietly(null(), |call| {
        let page = call.handle(page).ok();
        let next = page.as_ref().and_then(|page| page.next.as_ref());
        next.map_or(null(), |next| next.as_ptr())
    })
}

/// Frees a page. NULL is fine.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncguard_page_free(page: *mut syncguard_page) {
    free_handle(page);
}

fn no_such_lock() -> rust_syncguard::LockError {
    invalid("index is not that of a lock of the page")
}
