//! Threads and time: what all clients of a process share. Uses `types`.

pub(crate) mod cancel;
pub(crate) mod clock;
pub(crate) mod ending;
pub(crate) mod process;
pub(crate) mod renewals;
pub(crate) mod sync;
pub(crate) mod threads;
pub(crate) mod timer;
pub(crate) mod unwinding;
pub(crate) mod wake;
pub(crate) mod workers;

use std::sync::Arc;

use crate::runtime::clock::{BootClock, Clock};
use crate::runtime::process::PerProcess;
use crate::runtime::timer::Timer;
use crate::runtime::workers::Workers;

static SHARED: PerProcess<Runtime> = PerProcess::new();

/// Ends the threads that have nothing to do.
fn end_idle_threads() {
    let shared = Runtime::shared();
    shared.timer.end_idle_thread();
    shared.workers.end_idle_threads();
}

/// The timer and the workers. A forked child has its own, made when it first needs them.
#[derive(Clone)]
pub(crate) struct Runtime {
    pub(crate) timer: Arc<Timer>,
    pub(crate) workers: Arc<Workers>,
}

impl Runtime {
    /// This process's runtime.
    pub(crate) fn shared() -> Self {
        SHARED
            .get(|| {
                ending::when_unused(end_idle_threads);
                Self {
                    timer: Arc::new(Timer::new(Arc::new(BootClock))),
                    workers: Workers::new(),
                }
            })
            .clone()
    }

    /// One that counts on another clock.
    pub(crate) fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            timer: Arc::new(Timer::new(clock)),
            workers: Self::shared().workers,
        }
    }

    /// Drops `value` on a worker, if this is its last owner: what the user gave may run any code when it is dropped.
    pub(crate) fn drop_elsewhere<T: Send + Sync + 'static>(&self, value: Arc<T>) {
        if let Some(value) = Arc::into_inner(value) {
            self.run(move || drop(value));
        }
    }

    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.workers.run(&self.timer, Box::new(job));
    }
}
