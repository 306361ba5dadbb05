//! Calls the user's C functions with the user's data, and runs the data's finalizer once. Uses `handle`, and the types of `error` and
//! `telemetry` that callbacks are given.

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::Arc;

use rust_syncguard::{ConnectRequest, FailedRelease, LockError, LockEvent, LostLock};

use super::handle::lend;
use super::{c_string, invalid};
use crate::error::{ErrorBody, syncguard_error};
use crate::telemetry::{EventTexts, LostTexts, syncguard_event, syncguard_lost_lock};

type OnLost = unsafe extern "C" fn(*mut c_void, *const syncguard_error);
type OnClientLost = unsafe extern "C" fn(*mut c_void, *const syncguard_lost_lock);
type OnReleaseError = unsafe extern "C" fn(
    *mut c_void,
    *const syncguard_error,
    *const c_char,
    *const c_char,
    *const c_char,
);
type OnEvent = unsafe extern "C" fn(*mut c_void, *const syncguard_event);
type OnWarning = unsafe extern "C" fn(*mut c_void, *const c_char);
type Password = unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> c_int;
type Connector = unsafe extern "C" fn(*mut c_void, *const c_char, u16, i64) -> c_int;
type Wake = unsafe extern "C" fn(*mut c_void);
type UserDataFree = unsafe extern "C" fn(*mut c_void);

/// How long a password may be, its NUL included.
const PASSWORD_SIZE: usize = 65_536;

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

    pub(crate) fn client_lost(self: &Arc<Self>, call: OnClientLost) -> impl Fn(&LostLock) + use<> {
        let user = Arc::clone(self);
        move |lost| {
            let texts = LostTexts::new(lost);
            lend(ErrorBody::new(&lost.error), |why| {
                // SAFETY: as in `lost`; the struct borrows from `texts` and from the error, which live to the end of the call.
                unsafe { call(user.data, &texts.lost(lost, why)) };
            });
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

    pub(crate) fn password(
        self: &Arc<Self>,
        ask: Password,
    ) -> impl Fn() -> Result<String, Box<dyn Error + Send + Sync>> + use<> {
        let user = Arc::clone(self);
        move || {
            let mut buffer = vec![0u8; PASSWORD_SIZE];
            // SAFETY: as in `lost`; the buffer has the size that is said.
            let status = unsafe { ask(user.data, buffer.as_mut_ptr().cast(), PASSWORD_SIZE) };
            let answer = match CStr::from_bytes_until_nul(&buffer) {
                _ if status != 0 => Err("the callback gave no password".into()),
                Ok(text) => text.to_str().map(str::to_owned).map_err(|_| {
                    invalid("the password provider gave a password that is not valid UTF-8").into()
                }),
                Err(_) => Err(invalid(
                    "the password provider gave a password without a NUL at its end",
                )
                .into()),
            };
            buffer.fill(0);
            std::hint::black_box(&mut buffer);
            answer
        }
    }

    pub(crate) fn connector(
        self: &Arc<Self>,
        connect: Connector,
    ) -> impl Fn(&ConnectRequest<'_>) -> io::Result<OwnedFd> + use<> {
        let user = Arc::clone(self);
        move |to| {
            let host = c_string(to.host());
            let left = i64::try_from(to.remaining().as_millis()).unwrap_or(i64::MAX);
            // SAFETY: as in `lost`; the text lives to the end of the call.
            let fd = unsafe { connect(user.data, host.as_ptr(), to.port(), left) };
            if fd < 0 {
                return Err(io::Error::from_raw_os_error(fd.saturating_neg()));
            }
            // A number that is no open descriptor must not be owned: a copy shows whether it is one.
            // SAFETY: the callback has just given it, and it is used for this call only.
            let copy = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
            // SAFETY: it is open, and the callback gave it away.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(copy)
        }
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
