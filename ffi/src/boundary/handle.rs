//! Handles: C holds the address of a counted allocation that begins with a tag of its type. Uses nothing of the other files.
//!
//! A call raises the count before it does anything, so it keeps what it uses when another thread frees the handle. The tag
//! tells a live handle of another type from the right one. Debug builds also keep a list of live handles, and recognise every
//! address that is none without reading from it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rust_syncguard::LockError;

use super::invalid;

/// A type that C sees as opaque.
pub(crate) trait Opaque {
    /// What is behind the pointer.
    type Body: Send + Sync;
    /// The parameter's name in messages.
    const NAME: &'static str;
    /// Marks live handles of this type.
    const TAG: u64;
}

/// The tag of a freed handle.
const DEAD: u64 = 0xdead_dead_dead_dead;

// In this order in memory: the tag must be found without knowing the type.
#[repr(C)]
struct TaggedBody<B> {
    tag: AtomicU64,
    body: B,
}

/// A handle during a call.
pub(crate) struct Handle<T: Opaque>(Arc<TaggedBody<T::Body>>);

impl<T: Opaque> Deref for Handle<T> {
    type Target = T::Body;

    fn deref(&self) -> &T::Body {
        &self.0.body
    }
}

impl<T: Opaque> Handle<T> {
    /// Whether a call of another thread uses it.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// Makes a handle for C to own.
pub(crate) fn give<T: Opaque>(body: T::Body) -> *mut T {
    let slot = Arc::new(TaggedBody {
        tag: AtomicU64::new(T::TAG),
        body,
    });
    let handle = Arc::into_raw(slot).cast_mut();
    live::add(handle.addr(), T::TAG);
    handle.cast()
}

pub(super) fn borrow<T: Opaque>(handle: *const T) -> Result<Option<Handle<T>>, LockError> {
    if handle.is_null() {
        return Ok(None);
    }
    let slot = handle.cast::<TaggedBody<T::Body>>();
    check::<T>(slot)?;
    // SAFETY: the tag says that `give` made it with `Arc::into_raw` and that it was not taken; the caller promises that
    // no other thread takes it at this moment. The count is raised for the `Arc` made here.
    Ok(Some(Handle(unsafe {
        Arc::increment_strong_count(slot);
        Arc::from_raw(slot)
    })))
}

pub(super) fn take<T: Opaque>(handle: *mut T) -> Option<Handle<T>> {
    if handle.is_null() {
        return None;
    }
    let slot = handle.cast::<TaggedBody<T::Body>>().cast_const();
    if let Err(error) = check::<T>(slot) {
        eprintln!("syncguard: nothing was freed: {}", error.message());
        return None;
    }
    live::remove(slot.addr());
    // SAFETY: as in `borrow`; the count that `give` left to C is the one taken over here.
    let handle = Handle(unsafe { Arc::from_raw(slot) });
    handle.0.tag.store(DEAD, Ordering::Relaxed);
    Some(handle)
}

/// Frees a handle whose `_free` function does nothing else.
pub(crate) fn free_handle<T: Opaque>(handle: *mut T) {
    super::quietly((), |call| drop(call.take(handle)));
}

/// Lends a handle to C for the time of a callback.
pub(super) fn lend<T: Opaque>(body: T::Body, callback: impl FnOnce(*const T)) {
    let handle = give::<T>(body);
    callback(handle);
    free_handle(handle);
}

fn check<T: Opaque>(slot: *const TaggedBody<T::Body>) -> Result<(), LockError> {
    // SAFETY: a handle of any type of ours begins with a tag. Another address is the caller's mistake; a debug build has
    // refused it before the read.
    if live::is(slot.addr(), T::TAG)
        && slot.is_aligned()
        && unsafe { (*slot).tag.load(Ordering::Relaxed) } == T::TAG
    {
        Ok(())
    } else {
        Err(invalid(format!(
            "{} is no live handle of its type: it was freed, or is something else",
            T::NAME
        )))
    }
}

/// The live handles of this process.
#[cfg(debug_assertions)]
mod live {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, MutexGuard, TryLockError};
    use std::time::{Duration, Instant};

    /// By their complements: an address here would hide a handle that was never freed from leak checkers.
    static LIST: Mutex<Option<HashMap<usize, u64>>> = Mutex::new(None);
    /// A thread of the parent held the list's lock when this process was forked: it stays locked.
    static INHERITED_LOCKED: AtomicBool = AtomicBool::new(false);
    /// Far longer than the list is ever locked.
    const LOCK_TIMEOUT: Duration = Duration::from_millis(300);

    /// `None` in a forked child that inherited the list locked.
    fn list() -> Option<MutexGuard<'static, Option<HashMap<usize, u64>>>> {
        let mut until = None;
        while !INHERITED_LOCKED.load(Ordering::Relaxed) {
            match LIST.try_lock() {
                Ok(list) => return Some(list),
                Err(TryLockError::Poisoned(list)) => return Some(list.into_inner()),
                Err(TryLockError::WouldBlock) => {
                    let until = *until.get_or_insert_with(|| Instant::now() + LOCK_TIMEOUT);
                    if Instant::now() > until {
                        INHERITED_LOCKED.store(true, Ordering::Relaxed);
                    }
                    std::thread::yield_now();
                }
            }
        }
        None
    }

    pub(super) fn add(address: usize, tag: u64) {
        if let Some(mut list) = list() {
            list.get_or_insert_default().insert(!address, tag);
        }
    }

    pub(super) fn remove(address: usize) {
        if let Some(mut list) = list() {
            let handles = list.get_or_insert_default();
            handles.remove(&!address);
            // The table's memory is freed too: a leak checker would report it.
            if handles.is_empty() {
                *list = None;
            }
        }
    }

    pub(super) fn is(address: usize, tag: u64) -> bool {
        list().is_none_or(|mut list| list.get_or_insert_default().get(&!address) == Some(&tag))
    }
}

#[cfg(not(debug_assertions))]
mod live {
    pub(super) fn add(_: usize, _: u64) {}
    pub(super) fn remove(_: usize) {}
    pub(super) fn is(_: usize, _: u64) -> bool {
        true
    }
}
