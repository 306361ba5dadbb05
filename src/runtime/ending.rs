//! Ends the library's threads when the last client, guard and undo are gone, so that a program which has freed everything has
//! nothing of ours left that runs. It uses `cancel`, `process` and `sync`.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::runtime::cancel::{CancelToken, deadline_after};
use crate::runtime::process::{Owner, PerProcess};
use crate::runtime::sync::{Condvar, Mutex};

/// How long the last one to go waits for threads that were told to end: one of them may be in the user's code.
const THREADS_END_WITHIN: Duration = Duration::from_secs(1);
/// How soon it is looked again whether a thread that has done its work has left the process.
const LOOK: Duration = Duration::from_micros(50);

static PROCESS: PerProcess<Process> = PerProcess::new();

thread_local! {
    /// The number of this thread if it is one of the library's, else 0.
    static OURS: Cell<u64> = const { Cell::new(0) };
}

struct Process {
    users: AtomicUsize,
    threads: Mutex<Threads>,
    ended: Condvar,
    /// What ends the idle threads of each part of the library that has some.
    end_idle: Mutex<Vec<fn()>>,
}

#[derive(Default)]
struct Threads {
    list: Vec<Thread>,
    /// How many there were when those that had ended were last removed.
    swept: usize,
    /// The last one to go has gone without waiting for these: they are let go when they end.
    left_alone: bool,
}

struct Thread {
    number: u64,
    /// `None` while it is being started.
    handle: Option<JoinHandle<()>>,
    state: ThreadState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    Running,
    /// In a call that nothing can end.
    Stuck,
    /// It has done its work; the number the system knows it by.
    Ended(Option<i32>),
}

fn process() -> &'static Process {
    PROCESS.get(|| Process {
        users: AtomicUsize::new(0),
        threads: Mutex::new(Threads::default()),
        ended: Condvar::new(),
        end_idle: Mutex::new(Vec::new()),
    })
}

/// Held by everything that needs the library's threads. Dropping the last one of a process ends them and waits, within
/// [`THREADS_END_WITHIN`], until they are gone.
pub(crate) struct InUse {
    owner: Owner,
    process: &'static Process,
}

impl InUse {
    pub(crate) fn new() -> Self {
        let process = process();
        process.users.fetch_add(1, Ordering::AcqRel);
        Self {
            owner: Owner::current(),
            process,
        }
    }
}

/// In the same process, which is not asked for again: every lock is on this path.
impl Clone for InUse {
    fn clone(&self) -> Self {
        self.process.users.fetch_add(1, Ordering::AcqRel);
        Self {
            owner: self.owner,
            process: self.process,
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // A forked child counts in a copy of its own, whose threads do not exist.
        let process = self.process;
        if process.users.fetch_sub(1, Ordering::AcqRel) == 1 && self.owner.is_this_process() {
            let end_idle = process.end_idle.lock().clone();
            for end in end_idle {
                end();
            }
            // A thread cannot wait for itself, and one in the user's callback must not wait for another.
            if OURS.get() > 0 {
                process.threads.lock().leave_alone();
            } else {
                process.wait_for_threads(deadline_after(THREADS_END_WITHIN));
            }
        }
    }
}

/// Has `end_idle` called when the last client, guard and undo of this process are gone. Called once by each part of the library
/// that keeps threads for later work.
pub(crate) fn when_unused(end_idle: fn()) {
    process().end_idle.lock().push(end_idle);
}

/// Starts a thread with `start`, which is given what the thread must run, and keeps its handle.
pub(crate) fn start(
    body: impl FnOnce() + Send + 'static,
    start: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
) -> io::Result<()> {
    let process = process();
    let number = process.threads.lock().announce();
    // Not under the mutex: a caller that loses the processor here would keep the timer from starting the thread of a callback.
    let started = start(Box::new(move || {
        OURS.set(number);
        let _end = End(process);
        body();
    }));
    let noted = process.threads.lock().note_start(number, started);
    if noted.is_err() {
        process.ended.notify_all();
    }
    noted
}

impl Threads {
    /// A thread is about to be started. Answers its number.
    fn announce(&mut self) -> u64 {
        // No two threads have the same, not even one that a fork has copied and one that the child starts.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        self.left_alone = false;
        self.list.push(Thread {
            number,
            handle: None,
            state: ThreadState::Running,
        });
        if self.list.len() > 2 * self.swept + 8 {
            self.sweep();
        }
        number
    }

    /// Keeps the handle of a thread that was started. One that has ended already may have been let go.
    fn note_start(&mut self, number: u64, started: io::Result<JoinHandle<()>>) -> io::Result<()> {
        match started {
            Ok(handle) => {
                if let Some(thread) = self.find(number) {
                    thread.handle = Some(handle);
                }
                Ok(())
            }
            Err(e) => {
                self.list.retain(|thread| thread.number != number);
                Err(e)
            }
        }
    }

    fn find(&mut self, number: u64) -> Option<&mut Thread> {
        self.list.iter_mut().find(|thread| thread.number == number)
    }

    /// Lets go of those that have ended: the system keeps a thread's memory until it is joined, or its handle is gone.
    fn sweep(&mut self) {
        self.list
            .retain(|thread| !matches!(thread.state, ThreadState::Ended(_)));
        self.swept = self.list.len();
    }

    fn leave_alone(&mut self) {
        self.left_alone = true;
        self.sweep();
    }
}

/// Runs what nothing can end, on a thread of the library's: the last one to go does not wait for it.
pub(crate) fn stuck<R>(work: impl FnOnce() -> R) -> R {
    let process = process();
    process.note(ThreadState::Stuck);
    let answer = work();
    process.note(ThreadState::Running);
    answer
}

/// Says that a thread has done its work, also if that was a panic.
struct End(&'static Process);

impl Drop for End {
    fn drop(&mut self) {
        self.0.note(ThreadState::Ended(system_number()));
    }
}

impl Process {
    fn note(&self, state: ThreadState) {
        let mut threads = self.threads.lock();
        if let Some(thread) = threads.find(OURS.get()) {
            thread.state = state;
        }
        if threads.left_alone {
            threads.sweep();
        }
        drop(threads);
        self.ended.notify_all();
    }

    /// Waits until every thread is gone, or the library is used again.
    fn wait_for_threads(&self, until: Instant) {
        let mut threads = self.threads.lock();
        while threads.list.iter().any(|t| t.state == ThreadState::Running)
            && self.users.load(Ordering::Acquire) == 0
            && Instant::now() < until
        {
            self.ended.wait_until(&mut threads, Some(until));
        }
        let (ended, left) = std::mem::take(&mut threads.list)
            .into_iter()
            .partition(|t: &Thread| matches!(t.state, ThreadState::Ended(_)));
        threads.list = left;
        threads.leave_alone();
        drop(threads);
        for thread in ended {
            // A thread that ran the user's code may run more of it on its way out, as destructors of its own variables:
            // joining it is bounded too.
            if let ThreadState::Ended(number) = thread.state
                && left_process(number, until)
                && let Some(handle) = thread.handle
            {
                let _ = handle.join();
            }
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn system_number() -> Option<i32> {
    Some(nix::unistd::gettid().as_raw())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn system_number() -> Option<i32> {
    None
}

/// Waits until a thread has left the process; false if it has not by `until`. Where that cannot be seen, joining shows it.
fn left_process(number: Option<i32>, until: Instant) -> bool {
    let Some(number) = number else {
        return true;
    };
    let entry = format!("/proc/self/task/{number}");
    while std::path::Path::new(&entry).exists() {
        if Instant::now() >= until {
            return false;
        }
        CancelToken::new().sleep_until(Some(deadline_after(LOOK)));
    }
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread::Builder;

    const WAIT: Duration = Duration::from_secs(30);

    /// The timer may have to start the thread of a callback at that moment.
    #[test]
    fn a_thread_that_is_slow_to_start_keeps_no_other_from_running_and_ending() {
        let (go_on, waits) = mpsc::channel::<()>();
        let (begins, begun) = mpsc::channel();
        let slow = std::thread::spawn(move || {
            start(
                || {},
                |body| {
                    begins.send(()).unwrap_or_default();
                    waits.recv().unwrap_or_default();
                    Builder::new().spawn(body)
                },
            )
        });
        begun.recv_timeout(WAIT).expect("it begins");
        let (runs, has_run) = mpsc::channel();
        let other = std::thread::spawn(move || {
            let body = move || runs.send(()).unwrap_or_default();
            start(body, |body| Builder::new().spawn(body))
        });
        let has_run = has_run.recv_timeout(WAIT);
        // Before anything fails: the other tests of this process start threads too.
        drop(go_on);
        for starter in [slow, other] {
            starter.join().expect("no panic").expect("a thread");
        }
        assert_eq!(has_run, Ok(()), "it waited for the slow one");
    }

    #[test]
    fn a_thread_that_was_not_started_is_not_waited_for() {
        let mut threads = Threads::default();
        let (failed, ended, runs) = (threads.announce(), threads.announce(), threads.announce());
        let error = io::Error::from(io::ErrorKind::OutOfMemory);
        assert!(threads.note_start(failed, Err(error)).is_err());
        if let Some(thread) = threads.find(ended) {
            thread.state = ThreadState::Ended(None);
        }
        threads.sweep();
        // It had ended and was let go before its starter had noted its handle.
        let handle = || Ok(std::thread::spawn(|| {}));
        threads.note_start(ended, handle()).expect("started");
        threads.note_start(runs, handle()).expect("started");
        let left: Vec<_> = threads.list.iter().map(|t| (t.number, t.state)).collect();
        assert_eq!(left.len(), 1);
        assert!(left[0] == (runs, ThreadState::Running));
        assert!(threads.list[0].handle.is_some());
    }
}
