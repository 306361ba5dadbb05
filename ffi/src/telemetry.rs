//! `syncguard_event`: one operation and how it went, for the `on_event` callback. Uses `boundary` and the events of the Rust API.

use std::ffi::{CString, c_char};
use std::ptr::null;
use std::time::Duration;

use rust_syncguard::{EventReason, Fence, LockEvent, LockEventType, LostLock};

use crate::boundary::c_string;
use crate::error::{syncguard_error, syncguard_loss_reason};
use crate::status::{OK, syncguard_status};

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

/// The type of an event: a wait of `syncguard_lock` or of a waiter has ended, with the lock or without it.
pub const SYNCGUARD_EVENT_WAIT: i32 = 5;
/// The type of an event: a guard was lost. Once per guard.
pub const SYNCGUARD_EVENT_LOSS: i32 = 6;

/// A value of `reason_number`: there is none.
pub const SYNCGUARD_EVENT_REASON_NONE: i32 = 0;
/// A value of `reason_number`: another holder has the lock; of a wait: another holder had it to the end. The text is "locked".
pub const SYNCGUARD_EVENT_REASON_LOCKED: i32 = 1;
/// A value of `reason_number`: the lock was there, and its time was over. The text is "expired".
pub const SYNCGUARD_EVENT_REASON_EXPIRED: i32 = 2;
/// A value of `reason_number`: there was no such lock, or it has another owner. The text is "not-found".
pub const SYNCGUARD_EVENT_REASON_NOT_FOUND: i32 = 3;

/// One operation, one wait or one loss and how it went, for the `on_event` callback. All of it is valid only during the call: copy what you keep.
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
    /// The key's hash, where the key is known: a release or an extend of a guard has it, one by a lock id alone has not.
    pub key_hash: *const c_char,
    /// The lock id's hash, where the operation had one.
    pub lock_id_hash: *const c_char,
    /// The raw key, only with `events_include_raw`.
    pub key: *const c_char,
    /// The raw lock id, only with `events_include_raw`. Any process that knows it can release the lock.
    pub lock_id: *const c_char,
    /// How long it took, in microseconds: the operation, or the wait. 0 for a loss.
    pub duration_us: i64,
    /// The number of `reason`: one of the `SYNCGUARD_EVENT_REASON_` numbers; later versions may add some.
    pub reason_number: i32,
    /// The status of the error that it ended with; OK if there was none.
    pub error_status: syncguard_status,
    /// Why the guard was lost, of a loss; otherwise NONE.
    pub loss_reason: syncguard_loss_reason,
    /// How many attempts the wait made, of a wait; otherwise 0.
    pub attempts: u32,
    /// The name of the store: "redis", "postgres" or "sqlite". Never NULL.
    pub backend: *const c_char,
    /// The fence of the grant: of an acquire or a wait that was granted, of an extend, a release or a loss of a guard. 0 where there is
    /// none: the first fence is 1.
    pub fence: u64,
    /// How long the wait took, in microseconds, of a wait; otherwise -1.
    pub waited_us: i64,
    /// How long a guard had held the lock when its release was sent, or when it was lost, in microseconds; otherwise -1.
    pub held_us: i64,
    /// What the holder says of itself, only with `events_include_raw`: of an acquire that was refused, of a wait that gave up because the
    /// lock was held, and of a lookup. Any program that can write to the store can write any text.
    pub holder: *const c_char,
}

/// A guard that was lost, for the client's `on_lost`. All of it is valid only during the call: copy what you keep. Later versions may
/// add fields at the end; `struct_size` says how many there are.
#[repr(C)]
pub struct syncguard_lost_lock {
    /// How large the library's struct is.
    pub struct_size: usize,
    /// What the guard's own `on_lost` is given. `syncguard_error_loss_reason` says why.
    pub why: *const syncguard_error,
    /// The raw key.
    pub key: *const c_char,
    /// The raw lock id. A program that knows it can release the lock.
    pub lock_id: *const c_char,
    /// The fence of the grant.
    pub fence: u64,
    /// How long the lock was held, in microseconds.
    pub held_us: i64,
}

/// The texts that a `syncguard_lost_lock` borrows.
pub(crate) struct LostTexts {
    key: CString,
    lock_id: CString,
}

impl LostTexts {
    pub(crate) fn new(lost: &LostLock) -> Self {
        Self {
            key: c_string(lost.key.as_str()),
            lock_id: c_string(lost.lock_id.as_str()),
        }
    }

    pub(crate) fn lost(&self, lost: &LostLock, why: *const syncguard_error) -> syncguard_lost_lock {
        syncguard_lost_lock {
            struct_size: size_of::<syncguard_lost_lock>(),
            why,
            key: self.key.as_ptr(),
            lock_id: self.lock_id.as_ptr(),
            fence: lost.fence.get(),
            held_us: micros(lost.held),
        }
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The texts an event borrows.
pub(crate) struct EventTexts {
    backend: CString,
    reason: Option<CString>,
    key_hash: Option<CString>,
    lock_id_hash: Option<CString>,
    key: Option<CString>,
    lock_id: Option<CString>,
    holder: Option<CString>,
}

impl EventTexts {
    pub(crate) fn new(event: &LockEvent) -> Self {
        let text = |t: &Option<String>| t.as_deref().map(c_string);
        Self {
            backend: c_string(event.backend),
            reason: event.reason.map(|reason| c_string(reason.as_str())),
            key_hash: text(&event.key_hash),
            lock_id_hash: text(&event.lock_id_hash),
            key: text(&event.key),
            lock_id: text(&event.lock_id),
            holder: text(&event.holder),
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
                LockEventType::Wait => SYNCGUARD_EVENT_WAIT,
                LockEventType::Loss => SYNCGUARD_EVENT_LOSS,
                // A type that a newer core has and this file does not.
                _ => -1,
            },
            ok: event.ok,
            reason: text(&self.reason),
            key_hash: text(&self.key_hash),
            lock_id_hash: text(&self.lock_id_hash),
            key: text(&self.key),
            lock_id: text(&self.lock_id),
            duration_us: micros(event.duration),
            reason_number: match event.reason {
                None => SYNCGUARD_EVENT_REASON_NONE,
                Some(EventReason::Locked) => SYNCGUARD_EVENT_REASON_LOCKED,
                Some(EventReason::Expired) => SYNCGUARD_EVENT_REASON_EXPIRED,
                Some(EventReason::NotFound) => SYNCGUARD_EVENT_REASON_NOT_FOUND,
                // A reason that a newer core has and this file does not.
                Some(_) => -1,
            },
            error_status: event.code.map_or(OK, Into::into),
            loss_reason: event.loss.into(),
            attempts: event.attempts.unwrap_or(0),
            backend: self.backend.as_ptr(),
            fence: event.fence.map_or(0, Fence::get),
            waited_us: event.waited.map_or(-1, micros),
            held_us: event.held.map_or(-1, micros),
            holder: text(&self.holder),
        }
    }
}
