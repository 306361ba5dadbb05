//! Calls the user's C functions with the user's data, and runs the data's finalizer once. Uses `handle`, and the types of `error` and
//! `telemetry` that callbacks are given.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use rust_syncguard::{FailedRelease, LockError, LockEvent};

use super::c_string;
use super::handle::lend;
use crate::error::{ErrorBody, syncguard_error};
use crate::telemetry::{EventTexts, syncguard_event};

type OnLost = unsafe extern "C" fn(*mut c_void, *const syncguard_error);
type OnReleaseError = unsafe extern "C" fn(
    *mut c_void,
    *const syncguard_error,
    *const c_char,
    *const c_char,
    *const c_char,
);
type OnEvent = unsafe extern "C" fn(*mut c_void, *const syncguard_event);
type OnWarning = unsafe extern "C" fn(*mut c_void, *const c_char);
type Wake = unsafe extern "C" fn(*mut c_void);
type UserDataFree = unsafe extern "C" fn(*mut c_void);

/// The user's data, shared by everything that may still call a function with it. The last owner runs the finalizer.
pub(crate) struct UserData {
    data: *mut c_void,
    free: Option<UserDataFree>,
}

// SAFETY: the header says that callbacks and the finalizer run on threads of the library, and the data must bear that.
unsafe impl Send for UserData {}
// SAFETY: as above: two callbacks may run at once.
unsafe impl Sync for UserData {}

impl UserData {
    /// Takes the data over. From here on its finalizer runs exactly once.
    pub(crate) fn adopt(data: *mut c_void, free: Option<UserDataFree>) -> Arc<Self> {
        Arc::new(Self { data, free })
    }

    pub(crate) fn lost(self: &Arc<Self>, call: OnLost) -> impl Fn(&LockError) + use<> {
        let user = Arc::clone(self);
        move |why| {
            // SAFETY: a function of this type, as its struct says; the data lives, because `user` does.
            lend(ErrorBody::new(why), |why| unsafe { call(user.data, why) });
        }
    }

    pub(crate) fn release_error(
        self: &Arc<Self>,
        call: OnReleaseError,
    ) -> impl Fn(&FailedRelease) + use<> {
        let user = Arc::clone(self);
        move |failed| {
            let key = c_string(failed.key.as_str());
            let lock_id = c_string(failed.lock_id.as_str());
            let source = c_string(failed.origin.as_str());
            lend(ErrorBody::new(&failed.error), |err| {
                // SAFETY: as in `lost`; the texts live to the end of the call.
                unsafe {
                    call(
                        user.data,
                        err,
                        key.as_ptr(),
                        lock_id.as_ptr(),
                        source.as_ptr(),
                    );
                }
            });
        }
    }

    pub(crate) fn event(self: &Arc<Self>, call: OnEvent) -> impl Fn(&LockEvent) + use<> {
        let user = Arc::clone(self);
        move |event| {
            let texts = EventTexts::new(event);
            // SAFETY: as in `lost`; the event borrows from `texts`, which lives to the end of the call.
            unsafe { call(user.data, &texts.event(event)) };
        }
    }

    pub(crate) fn wake(self: &Arc<Self>, call: Wake) -> impl Fn() + use<> {
        let user = Arc::clone(self);
        // SAFETY: as in `lost`.
        move || unsafe { call(user.data) }
    }

    pub(crate) fn warning(self: &Arc<Self>, call: OnWarning) -> impl Fn(&str) + use<> {
        let user = Arc::clone(self);
        move |message| {
            let message: CString = c_string(message);
            // SAFETY: as in `release_error`.
            unsafe { call(user.data, message.as_ptr()) };
        }
    }
}

impl Drop for UserData {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the caller gave both for this, and the last owner drops the data once. The library drops what a user gave on
            // any thread but its timer's.
            unsafe { free(self.data) };
        }
    }
}
