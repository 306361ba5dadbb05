//! The crate's mutex and condvar. It uses nothing else of the crate.
//!
//! `std`'s, in the shape of `parking_lot`'s: no poisoning (a panic under one of our locks leaves plain data, and a lock
//! library must go on releasing), guards passed to `wait` by reference. `parking_lot` itself keeps one table of waiting
//! threads for the whole process, and a child forked while it is locked hangs or crashes in it; see ADR 1. Under `cfg(loom)`
//! the same names are loom's, for the model of the guard's life.

#[cfg(not(loom))]
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::time::Instant;

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

/// `None` only for the moment in which a condvar has it.
pub(crate) struct MutexGuard<'a, T>(Option<imp::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(|e| e.into_inner())))
    }

    /// Without locking: for a value that no other thread can see, also where another process left the mutex locked.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(|e| e.into_inner())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(guard) => guard,
            None => unreachable!("the condvar gives the guard back before it returns"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.0 {
            Some(guard) => guard,
            None => unreachable!("the condvar gives the guard back before it returns"),
        }
    }
}

/// A condvar that knows whether a thread waits: `std`'s makes a system call for every notification, also if none waits, and the
/// hot path of a lock notifies more often than it is waited for.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    inner: imp::Condvar,
    /// Changed only under the mutex that goes with the condvar, and so never stale for a notifier that holds or held it.
    waiters: AtomicUsize,
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self {
            inner: imp::Condvar::new(),
            waiters: AtomicUsize::new(0),
        }
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        if let Some(inner) = guard.0.take() {
            guard.0 = Some(self.inner.wait(inner).unwrap_or_else(|e| e.into_inner()));
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits for a notification, at most until `deadline`; `None` is without end.
    #[cfg(not(loom))]
    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Option<Instant>) {
        let Some(deadline) = deadline else {
            return self.wait(guard);
        };
        self.waiters.fetch_add(1, Ordering::SeqCst);
        if let Some(inner) = guard.0.take() {
            let left = deadline.saturating_duration_since(Instant::now());
            guard.0 = Some(
                self.inner
                    .wait_timeout(inner, left)
                    .unwrap_or_else(|e| e.into_inner())
                    .0,
            );
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Loom has no time: a timed wait is one that only a notification ends.
    #[cfg(loom)]
    pub(crate) fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        _deadline: Option<std::time::Instant>,
    ) {
        self.wait(guard);
    }

    pub(crate) fn notify_all(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.inner.notify_all();
        }
    }

    pub(crate) fn notify_one(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.inner.notify_one();
        }
    }
}

/// Which thread this is. Not `std`'s: asking for that allocates in a thread of the host's, which leak checkers take for lost.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadId(u64);

#[cfg(loom)]
pub(crate) type ThreadId = loom::thread::ThreadId;

#[cfg(not(loom))]
pub(crate) fn current_thread() -> ThreadId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static MINE: Cell<u64> = const { Cell::new(0) };
    }
    if MINE.get() == 0 {
        MINE.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    }
    ThreadId(MINE.get())
}

/// Loom's threads share one of the system's: only loom can tell them apart.
#[cfg(loom)]
pub(crate) fn current_thread() -> ThreadId {
    loom::thread::current().id()
}
