//! `syncguard_event`: one operation and how it went, for the `on_event` callback. Uses `boundary` and the events of the Rust API.

use std::ffi::{CString, c_char};
use std::ptr::null;

use rust_syncguard::{LockEvent, LockEventType};

use crate::boundary::c_string;

/// The type of an event: `syncguard_acquire`, or an attempt of `syncguard_lock`.
pub const SYNCGUARD_EVENT_ACQUIRE: i32 = 0;
/// The type of an event: a release.
pub const SYNCGUARD_EVENT_RELEASE: i32 = 1;
/// The type of an event: an extend, or a renewal of a guard.
pub const SYNCGUARD_EVENT_EXTEND: i32 = 2;
/// The type of an event: `syncguard_is_locked`.
pub const SYNCGUARD_EVENT_IS_LOCKED: i32 = 3;
/// The type of an event: a lookup, or `syncguard_owns`.
pub const SYNCGUARD_EVENT_LOOKUP: i32 = 4;

/// One operation and how it went, for the `on_event` callback. All of it is valid only during the call: copy what you keep.
/// Texts are NULL where they do not apply. Later versions may add fields at the end; `struct_size` says how many there are.
#[repr(C)]
pub struct syncguard_event {
    /// How large the library's struct is.
    pub struct_size: usize,
    /// One of the `SYNCGUARD_EVENT_` numbers; later versions may add some.
    pub r#type: i32,
    /// Whether it did what was asked.
    pub ok: bool,
    /// Why not, where the store answered: "locked", "expired" or "not-found". NULL for trouble.
    pub reason: *const c_char,
    /// The key's hash, where the operation had a key.
    pub key_hash: *const c_char,
    /// The lock id's hash, where the operation had one.
    pub lock_id_hash: *const c_char,
    /// The raw key, only with `events_include_raw`.
    pub key: *const c_char,
    /// The raw lock id, only with `events_include_raw`. Any process that knows it can release the lock.
    pub lock_id: *const c_char,
    /// How long it took, in microseconds.
    pub duration_us: i64,
}

/// The texts an event borrows.
pub(crate) struct EventTexts {
    reason: Option<CString>,
    key_hash: Option<CString>,
    lock_id_hash: Option<CString>,
    key: Option<CString>,
    lock_id: Option<CString>,
}

impl EventTexts {
    pub(crate) fn new(event: &LockEvent) -> Self {
        let text = |t: &Option<String>| t.as_deref().map(c_string);
        Self {
            reason: event.reason.map(c_string),
            key_hash: text(&event.key_hash),
            lock_id_hash: text(&event.lock_id_hash),
            key: text(&event.key),
            lock_id: text(&event.lock_id),
        }
    }

    pub(crate) fn event(&self, event: &LockEvent) -> syncguard_event {
        let text = |t: &Option<CString>| t.as_ref().map_or(null(), |t| t.as_ptr());
        syncguard_event {
            struct_size: size_of::<syncguard_event>(),
            r#type: match event.kind {
                LockEventType::Acquire => SYNCGUARD_EVENT_ACQUIRE,
                LockEventType::Release => SYNCGUARD_EVENT_RELEASE,
                LockEventType::Extend => SYNCGUARD_EVENT_EXTEND,
                LockEventType::IsLocked => SYNCGUARD_EVENT_IS_LOCKED,
                LockEventType::Lookup => SYNCGUARD_EVENT_LOOKUP,
                // A type that a newer core has and this file does not.
                _ => -1,
            },
            ok: event.ok,
            reason: text(&self.reason),
            key_hash: text(&self.key_hash),
            lock_id_hash: text(&self.lock_id_hash),
            key: text(&self.key),
            lock_id: text(&self.lock_id),
            duration_us: i64::try_from(event.duration.as_micros()).unwrap_or(i64::MAX),
        }
    }
}
