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
    /// A job is expected: until then the last worker without work stays.
    expected_until: Option<Instant>,
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
        if !self.staff(0) {
            // Without a timer thread there is no guard either; what cannot even be retried is run by the next worker.
            let _ = timer.set(timer.now() + AGAIN, Arc::clone(self) as Arc<dyn Alarm>);
        }
    }

    /// Has a thread wait for a job that will be run soon, and that cannot wait until a thread is started for it.
    pub(crate) fn expect_job(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.expected_until = Some(Instant::now() + IDLE);
        state.may_end = false;
        drop(state);
        // If none can be started now, `run` tries again.
        self.staff(1);
    }

    /// Ends the threads that have no work, and the others when they have none.
    pub(crate) fn end_idle_threads(&self) {
        let mut state = self.state.lock();
        state.may_end = true;
        state.queue.shrink_to_fit();
        drop(state);
        self.work.notify_all();
    }

    /// Sees to it that every queued job has a thread, and that so many more are ready; false if one cannot be started.
    fn staff(self: &Arc<Self>, ready: usize) -> bool {
        loop {
            let mut state = self.state.lock();
            if state.queue.len() + ready <= state.idle {
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
            } else if state.may_end || Instant::now() >= state.stays_until(until) {
                state.idle -= 1;
                return;
            } else {
                let stays_until = state.stays_until(until);
                self.work.wait_until(&mut state, Some(stays_until));
            }
        }
    }
}

impl WorkersState {
    /// Until when a worker stays that would end at `until`.
    fn stays_until(&self, until: Instant) -> Instant {
        let expected = self.expected_until.filter(|_| self.idle == 1);
        expected.map_or(until, |expected| until.max(expected))
    }
}

impl Alarm for Workers {
    fn ring(self: Arc<Self>, now: Duration) -> Option<Duration> {
        if self.staff(0) {
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
    fn an_expected_job_needs_no_new_thread() {
        let (workers, timer) = (Workers::new(), Timer::new(Arc::new(BootClock)));
        // One that has just become idle would end too soon.
        let soon_over = Instant::now() - IDLE;
        workers.expect_job();
        workers.expect_job();
        let stays_until = {
            let state = workers.state.lock();
            assert_eq!(state.idle, 1, "one is ready, and one is enough");
            state.stays_until(soon_over)
        };
        assert!(stays_until > Instant::now(), "it would end before the job");
        let (tx, rx) = mpsc::channel();
        let state = workers.state.lock();
        let me = Arc::clone(&workers);
        let starter = std::thread::spawn(move || {
            me.run(
                &timer,
                Box::new(move || tx.send(()).expect("it is awaited")),
            );
        });
        drop(state);
        starter.join().expect("no panic");
        rx.recv_timeout(Duration::from_secs(30)).expect("it ran");
        let end = Instant::now() + Duration::from_secs(30);
        while workers.state.lock().idle == 0 {
            assert!(Instant::now() < end, "the worker has not come back");
            std::thread::yield_now();
        }
        assert_eq!(workers.state.lock().idle, 1, "another thread was started");
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
