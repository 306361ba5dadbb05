//! Ends the library's threads when the last client, guard and undo are gone, so that a program which has freed everything has
//! nothing of ours left that runs. It uses `cancel`, `process` and `sync`.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// Whether this thread is one of the library's.
    static OURS: Cell<bool> = const { Cell::new(false) };
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
    handle: JoinHandle<()>,
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
            if OURS.get() {
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
    start: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>>,
) -> std::io::Result<()> {
    let process = process();
    // Held until the handle is in the list: a thread that ends at once finds itself there.
    let mut threads = process.threads.lock();
    let handle = start(Box::new(move || {
        OURS.set(true);
        let _end = End(process);
        body();
    }))?;
    threads.left_alone = false;
    threads.list.push(Thread {
        handle,
        state: ThreadState::Running,
    });
    if threads.list.len() > 2 * threads.swept + 8 {
        threads.sweep();
    }
    Ok(())
}

impl Threads {
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
        let me = std::thread::current().id();
        let mut threads = self.threads.lock();
        if let Some(thread) = threads
            .list
            .iter_mut()
            .find(|thread| thread.handle.thread().id() == me)
        {
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
        for Thread { handle, state } in ended {
            // A thread that ran the user's code may run more of it on its way out, as destructors of its own variables:
            // joining it is bounded too.
            if let ThreadState::Ended(number) = state
                && left_process(number, until)
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
