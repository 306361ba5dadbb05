//! What a panic becomes at the boundary. No input makes the library panic, so these tests plant one inside.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{UserData, boundary, quietly};
use crate::error::{
    syncguard_error, syncguard_error_free, syncguard_error_message, syncguard_error_status,
};
use crate::status::{self, PANIC};

/// The status and the message that a body's panic gives.
fn panics(body: impl FnOnce()) -> String {
    let mut err: *mut syncguard_error = null_mut();
    let status = boundary(&mut err, |_| {
        body();
        Ok(status::OK)
    });
    assert!(status == PANIC && !err.is_null());
    // SAFETY: the boundary has just written a live error, freed once here.
    unsafe {
        assert!(syncguard_error_status(err) == PANIC);
        let message = CStr::from_ptr(syncguard_error_message(err))
            .to_string_lossy()
            .into_owned();
        syncguard_error_free(err);
        message
    }
}

#[test]
fn a_panic_is_a_status_and_a_text() {
    assert_eq!(
        panics(|| panic!("planted")),
        "the library panicked: planted"
    );
    // What was formatted may hold a key.
    let key = String::from("secret");
    let message = panics(|| panic!("planted {key}"));
    assert!(!message.contains("secret"), "{message}");
    assert!(!panics(|| std::panic::panic_any(7)).is_empty());
}

/// No store of the library panics, so this side of it is looked at by itself.
#[test]
fn every_loss_reason_has_its_number() {
    use rust_syncguard::LossReason;
    let reasons = [
        None,
        Some(LossReason::Unconfirmed),
        Some(LossReason::MaxHold),
        Some(LossReason::NotRenewed),
        Some(LossReason::Removed),
        Some(LossReason::HeartbeatFailed),
        Some(LossReason::Forked),
    ];
    for (number, reason) in reasons.into_iter().enumerate() {
        assert_eq!(
            crate::error::syncguard_loss_reason::from(reason) as usize,
            number,
            "{reason:?}"
        );
    }
}

#[test]
fn a_panic_needs_no_error_object() {
    assert!(boundary(null_mut(), |_| panic!("planted")) == PANIC);
    assert_eq!(quietly(-1, |_| panic!("planted")), -1);
}

#[test]
fn a_panic_still_finalizes_user_data() {
    static FINALIZED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn finalize(_: *mut std::ffi::c_void) {
        FINALIZED.fetch_add(1, Ordering::SeqCst);
    }
    let status = boundary(null_mut(), |_| {
        let _user = UserData::adopt(null_mut(), Some(finalize));
        panic!("planted")
    });
    assert!(status == PANIC);
    assert_eq!(FINALIZED.load(Ordering::SeqCst), 1);
}
