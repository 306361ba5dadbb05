//! A word from deep inside a store call: whoever asks the store from here on comes after it.
//!
//! The next in line need not wait for the answer to a release. A store says [`ahead`] as soon as nobody's request can overtake the one
//! that it has sent. One that never does is as good, and slower at handing a lock on.

use std::cell::Cell;

type Hook = Box<dyn FnOnce()>;

thread_local! {
    static HOOK: Cell<Option<Hook>> = const { Cell::new(None) };
}

/// Makes a store call, and runs `hook` on this thread when it is [`ahead`]; never, if the store does not tell.
pub(crate) fn when_ahead<R>(hook: impl FnOnce() + 'static, call: impl FnOnce() -> R) -> R {
    /// Takes back what was not run, also if the store panics.
    struct Forget;
    impl Drop for Forget {
        fn drop(&mut self) {
            let _ = HOOK.try_with(|h| h.set(None));
        }
    }
    // A guard may be dropped while its thread ends and takes these cells down.
    let _ = HOOK.try_with(|h| h.set(Some(Box::new(hook))));
    let _forget = Forget;
    call()
}

/// Nobody's request can overtake the one of the call that this thread is in.
#[cfg_attr(not(feature = "redis"), allow(dead_code))]
pub(crate) fn ahead() {
    if let Ok(Some(hook)) = HOOK.try_with(Cell::take) {
        hook();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_hook_runs_once_and_only_within_its_call() {
        let count = Rc::new(Cell::new(0));
        let hook = || {
            let count = Rc::clone(&count);
            move || count.set(count.get() + 1)
        };
        ahead();
        when_ahead(hook(), || {
            ahead();
            ahead();
        });
        assert_eq!(count.get(), 1);
        when_ahead(hook(), || {});
        ahead();
        assert_eq!(count.get(), 1, "a store that does not tell");
        crate::callbacks::guarded(|| {
            when_ahead(hook(), || std::panic::resume_unwind(Box::new(())))
        });
        ahead();
        assert_eq!(count.get(), 1, "a store that panics");
    }
}
