//! What must happen if foreign code panics in the middle of a step. The panic goes on afterwards. It uses nothing else of the
//! crate.

/// Runs `step`, and `clean_up` only if `step` panics.
pub(crate) fn on_panic<R>(clean_up: impl FnOnce(), step: impl FnOnce() -> R) -> R {
    let mut unfinished = Unfinished(Some(clean_up));
    let answer = step();
    unfinished.0 = None;
    answer
}

struct Unfinished<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Unfinished<F> {
    fn drop(&mut self) {
        if let Some(clean_up) = self.0.take() {
            clean_up();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::runtime::workers::guarded;
    use std::cell::Cell;

    #[test]
    fn only_a_panic_is_cleaned_up_after() {
        let cleaned = Cell::new(0);
        assert_eq!(on_panic(|| cleaned.set(1), || 7), 7);
        assert_eq!(cleaned.get(), 0);
        let ended: Option<()> = guarded(|| on_panic(|| cleaned.set(1), || panic!("planted")));
        assert!(ended.is_none() && cleaned.get() == 1);
    }
}
