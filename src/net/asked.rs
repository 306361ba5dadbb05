//! An answer that another thread gives, and the callers that wait for it, each within its own limits. It uses `runtime` and
//! `backend::limits`.

use std::sync::Arc;

use crate::backend::limits::Limits;
use crate::runtime::sync::{Condvar, Mutex};
use crate::runtime::threads;
use crate::runtime::wake::Wake;
use crate::types::error::{ErrorCode, LockError};

/// One piece of work on a thread of its own. It may hang: that costs its callers their time and the process one thread.
pub(crate) struct Asked<T> {
    answer: Mutex<Option<T>>,
    changed: Condvar,
}

impl<T: Clone + Send + 'static> Asked<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            answer: Mutex::new(None),
            changed: Condvar::new(),
        })
    }

    /// Has `work` done by a new thread of this name; `wanted` says for what, in an error.
    ///
    /// # Errors
    /// `RateLimited` without a thread, with nothing applied.
    pub(crate) fn begin(
        name: &str,
        wanted: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), LockError> {
        threads::spawn(name, work).map_err(|e| {
            LockError::new(
                ErrorCode::RateLimited,
                format!("no thread could be started to {wanted}"),
            )
            .with_source(e)
            .nothing_applied()
        })
    }

    pub(crate) fn answer(&self, answer: T) {
        *self.answer.lock() = Some(answer);
        self.changed.notify_all();
    }

    /// The answer. `missing` says what did not come, in an error.
    ///
    /// # Errors
    /// `NetworkTimeout` at the deadline, `Aborted` if cancelled, with nothing applied.
    pub(crate) fn wait(
        self: &Arc<Self>,
        missing: &str,
        limits: &Limits<'_>,
    ) -> Result<T, LockError> {
        // Subscribing may wake at once, so it comes before the mutex.
        let _subscription = limits
            .token()
            .map(|token| token.subscribe(Arc::clone(self) as Arc<dyn Wake>));
        let mut answer = self.answer.lock();
        while answer.is_none() && limits.left().is_ok() {
            self.changed
                .wait_until(&mut answer, Some(limits.deadline()));
        }
        match answer.clone() {
            Some(answer) => Ok(answer),
            None if limits.is_cancelled() => Err(limits.overrun().nothing_applied()),
            None => Err(LockError::new(
                ErrorCode::NetworkTimeout,
                format!("{missing} within the limit of {}", limits.allowed()),
            )
            .nothing_applied()),
        }
    }
}

impl<T: Send> Wake for Asked<T> {
    fn wake(&self) {
        // Taking the mutex makes sure that the caller either sees the cancel or is already waiting.
        drop(self.answer.lock());
        self.changed.notify_all();
    }
}
