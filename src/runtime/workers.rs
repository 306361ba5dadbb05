//! The threads that user code runs on. A panic of user code is caught here: this is the crate's only `catch_unwind`. It uses
//! `sync`, `threads` and `timer`.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::sync::{Condvar, Mutex};
use crate::runtime::threads;
use crate::runtime::timer::{Alarm, Timer};

/// Runs foreign code; `None` if it panicked. The panic hook has spoken by then.
pub(crate) fn guarded<R>(body: impl FnOnce() -> R) -> Option<R> {
    // The payload is foreign too, and dropping it may panic again: it is leaked.
    catch_unwind(AssertUnwindSafe(body))
        .map_err(std::mem::forget)
        .ok()
}

/// How long a worker without work stays.
const IDLE: Duration = Duration::from_secs(1);
/// How soon a worker that could not be started is tried again.
const AGAIN: Duration = Duration::from_millis(50);

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Threads for jobs that may take long or never end: a job waits for no other one, so there are as many threads as jobs
/// under way, and none when there are none.
pub(crate) struct Workers {
    state: Mutex<WorkersState>,
    work: Condvar,
}

#[derive(Default)]
struct WorkersState {
    queue: VecDeque<Job>,
    idle: usize,
    /// Workers without work do not stay; until there is new work.
    may_end: bool,
}

impl Workers {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(WorkersState::default()),
            work: Condvar::new(),
        })
    }

    /// Has `job` run soon. If no thread can be started now, `timer` tries again until one can.
    pub(crate) fn run(self: &Arc<Self>, timer: &Timer, job: Job) {
        let mut state = self.state.lock();
        state.queue.push_back(job);
        state.may_end = false;
        drop(state);
        if !self.staff() {
            // Without a timer thread there is no guard either; what cannot even be retried is run by the next worker.
            let _ = timer.set(timer.now() + AGAIN, Arc::clone(self) as Arc<dyn Alarm>);
        }
    }

    /// Ends the threads that have no work, and the others when they have none.
    pub(crate) fn end_idle_threads(&self) {
        let mut state = self.state.lock();
        state.may_end = true;
        state.queue.shrink_to_fit();
        drop(state);
        self.work.notify_all();
    }

    /// Sees to it that every queued job has a thread; false if one cannot be started.
    fn staff(self: &Arc<Self>) -> bool {
        loop {
            let mut state = self.state.lock();
            if state.queue.len() <= state.idle {
                self.work.notify_one();
                return true;
            }
            // Counted as idle before it runs, so that two callers do not both count on it.
            state.idle += 1;
            drop(state);
            let me = Arc::clone(self);
            if threads::spawn("syncguard-call", move || me.work()).is_err() {
                self.state.lock().idle -= 1;
                return false;
            }
        }
    }

    fn work(&self) {
        let mut state = self.state.lock();
        let mut until = Instant::now() + IDLE;
        loop {
            if let Some(job) = state.queue.pop_front() {
                state.idle -= 1;
                drop(state);
                guarded(job);
                state = self.state.lock();
                state.idle += 1;
                until = Instant::now() + IDLE;
            } else if state.may_end || Instant::now() >= until {
                state.idle -= 1;
                return;
            } else {
                self.work.wait_until(&mut state, Some(until));
            }
        }
    }
}

impl Alarm for Workers {
    fn ring(self: Arc<Self>, now: Duration) -> Option<Duration> {
        if self.staff() {
            None
        } else {
            Some(now + AGAIN)
        }
    }

    fn done(self: Arc<Self>) {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::runtime::clock::BootClock;
    use std::sync::mpsc;

    #[test]
    fn a_job_that_hangs_or_panics_delays_no_other() {
        let (workers, timer) = (Workers::new(), Timer::new(Arc::new(BootClock)));
        let (hold, held) = mpsc::channel::<()>();
        workers.run(&timer, Box::new(move || held.recv().unwrap_or_default()));
        workers.run(&timer, Box::new(|| panic!("planted")));
        let (tx, rx) = mpsc::channel();
        for n in 0..100 {
            let tx = tx.clone();
            workers.run(&timer, Box::new(move || tx.send(n).unwrap_or_default()));
        }
        let mut seen: Vec<i32> = (0..100)
            .filter_map(|_| rx.recv_timeout(Duration::from_secs(30)).ok())
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        drop(hold);
    }

    #[test]
    fn workers_go_home() {
        let (workers, timer) = (Workers::new(), Timer::new(Arc::new(BootClock)));
        workers.run(&timer, Box::new(|| {}));
        let end = Instant::now() + Duration::from_secs(30);
        while Arc::strong_count(&workers) > 1 {
            assert!(Instant::now() < end, "a worker stayed");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
