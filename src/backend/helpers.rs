//! Threads that make the calls of a driver which has no deadline: the caller waits for the answer, and leaves in time. It uses
//! `types`, `runtime`, `options`, `backend::call` and `backend::helper_call`.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::backend::helper_call::{HelpedCall, HelperCall};
use crate::options::client::DEFAULT_OPERATION_TIMEOUT;
use crate::runtime::ending;
use crate::runtime::sync::{Condvar, Mutex};
use crate::runtime::threads;
use crate::runtime::wake::Wake;
use crate::runtime::workers::{Job, guarded};
use crate::types::error::{ErrorCode, LockError};

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// A bounded number of threads that make the calls of a driver. For backends of your own, over a driver that has no deadline.
///
/// A caller that gives its work to such a thread waits no longer than its [`Call`] allows. The thread stays with the driver until
/// that answers: on a server that is silent for an hour, it is stuck for an hour, with the connection that it uses. There are never
/// more threads than the limit, and a call that finds none free until its deadline ends with
/// [`RateLimited`](crate::ErrorCode::RateLimited).
///
/// Every signal is blocked on these threads, so that no handler of the program interrupts a read of the driver; and they are outside
/// any asynchronous runtime, so that a driver which refuses to block in one works. A thread without work ends after some seconds.
///
/// ```
/// use std::time::Duration;
/// use syncguard::{Call, ErrorCode, HelperThreads};
///
/// let threads = HelperThreads::new(4);
/// let call = Call::new().within(Duration::from_millis(20));
/// let error = threads
///     .run(&call, |call| {
///         call.sending()?; // from here on the store may do what was asked
///         std::thread::sleep(Duration::from_millis(200)); // the driver, on a server that has stopped
///         Ok(())
///     })
///     .unwrap_err();
/// assert_eq!(error.code(), ErrorCode::NetworkTimeout);
/// assert!(error.may_have_applied());
/// ```
///
/// `Send` and `Sync`. Dropped, it ends the threads that have no work, and the others when they are done.
pub struct HelperThreads {
    queue: Arc<HelperQueue>,
}

struct HelperQueue {
    limit: usize,
    state: Mutex<HelperQueueState>,
    work: Condvar,
}

#[derive(Default)]
struct HelperQueueState {
    /// Renewals and releases: they go first, and one thread is kept for them.
    upkeep: VecDeque<QueuedHelp>,
    ordinary: VecDeque<QueuedHelp>,
    threads: usize,
    idle: usize,
    ordinary_at_work: usize,
    closed: bool,
}

/// A job that no thread has begun, and its caller.
struct QueuedHelp {
    helped: Arc<HelpedCall>,
    job: Job,
}

impl HelperQueueState {
    /// The next job that may run, and whether it is an ordinary one.
    fn next(&mut self, limit: usize) -> Option<(Job, bool)> {
        if let Some(queued) = self.upkeep.pop_front() {
            return Some((queued.job, false));
        }
        // One thread has nothing to keep.
        let kept = usize::from(limit > 1);
        if self.ordinary_at_work >= limit - kept {
            return None;
        }
        let queued = self.ordinary.pop_front()?;
        self.ordinary_at_work += 1;
        Some((queued.job, true))
    }

    /// Takes back a job whose caller has left: while all threads are stuck, nothing may pile up.
    fn remove(&mut self, helped: &Arc<HelpedCall>) {
        let others = |queued: &QueuedHelp| !Arc::ptr_eq(&queued.helped, helped);
        self.upkeep.retain(others);
        self.ordinary.retain(others);
    }
}

impl HelperThreads {
    /// At most `limit` threads, and at least one. More than the driver has connections are of no use, and one of them is kept for
    /// [`run_first`](Self::run_first) if there are two: the best limit is the number of connections and one more.
    ///
    /// ```
    /// let threads = syncguard::HelperThreads::new(11);
    /// assert_eq!(threads.at_work(), 0); // none has been started
    /// ```
    pub fn new(limit: usize) -> Self {
        Self {
            queue: Arc::new(HelperQueue {
                limit: limit.max(1),
                state: Mutex::new(HelperQueueState::default()),
                work: Condvar::new(),
            }),
        }
    }

    /// Has a thread do `work`, and waits for its answer until the deadline of `call`, or a cancel. Without a deadline the call ends
    /// after [`DEFAULT_OPERATION_TIMEOUT`](crate::DEFAULT_OPERATION_TIMEOUT).
    ///
    /// ```
    /// use syncguard::{Call, HelperThreads};
    ///
    /// let answer = HelperThreads::new(1).run(&Call::new(), |_| Ok(7))?;
    /// assert_eq!(answer, 7);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// Those of `work`. [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout) at the deadline and [`Aborted`](crate::ErrorCode::Aborted)
    /// after a cancel: nothing was applied if `work` had not said [`sending`](HelperCall::sending).
    /// [`RateLimited`](crate::ErrorCode::RateLimited) if no thread was free by the deadline.
    /// [`Internal`](crate::ErrorCode::Internal) if `work` panicked.
    pub fn run<T: Send + 'static>(
        &self,
        call: &Call<'_>,
        work: impl FnOnce(&HelperCall) -> Result<T, LockError> + Send + 'static,
    ) -> Result<T, LockError> {
        self.run_as(false, call, work)
    }

    /// The same for a renewal or a release: it goes before the calls of [`run`](Self::run), and one thread is kept for it.
    ///
    /// ```
    /// use syncguard::{Call, HelperThreads};
    ///
    /// let answer = HelperThreads::new(1).run_first(&Call::new(), |_| Ok(7))?;
    /// assert_eq!(answer, 7);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run): [`NetworkTimeout`](crate::ErrorCode::NetworkTimeout), [`Aborted`](crate::ErrorCode::Aborted),
    /// [`RateLimited`](crate::ErrorCode::RateLimited), or what `work` answers.
    pub fn run_first<T: Send + 'static>(
        &self,
        call: &Call<'_>,
        work: impl FnOnce(&HelperCall) -> Result<T, LockError> + Send + 'static,
    ) -> Result<T, LockError> {
        self.run_as(true, call, work)
    }

    /// How many threads are with the driver now. Those that stay there are stuck.
    ///
    /// ```
    /// assert_eq!(syncguard::HelperThreads::new(1).at_work(), 0);
    /// ```
    pub fn at_work(&self) -> usize {
        let state = self.queue.state.lock();
        state.threads - state.idle
    }

    fn run_as<T: Send + 'static>(
        &self,
        upkeep: bool,
        call: &Call<'_>,
        work: impl FnOnce(&HelperCall) -> Result<T, LockError> + Send + 'static,
    ) -> Result<T, LockError> {
        call.check().map_err(LockError::nothing_applied)?;
        let call = match call.deadline() {
            Some(_) => *call,
            None => call.within(DEFAULT_OPERATION_TIMEOUT),
        };
        let deadline = call.deadline().unwrap_or_else(Instant::now);
        let helped = Arc::new(HelpedCall::default());
        let answer = Arc::new(Mutex::new(None));
        let (theirs, slot) = (Arc::clone(&helped), Arc::clone(&answer));
        let job: Job = Box::new(move || {
            let call = HelperCall::new(theirs, deadline);
            let result = match call.begin() {
                Ok(()) => guarded(|| work(&call))
                    .unwrap_or_else(|| Err(LockError::internal("the driver panicked"))),
                Err(over) => Err(over),
            };
            *slot.lock() = Some(result);
            for job in call.finish() {
                guarded(job);
            }
        });
        // Subscribing may wake at once, so it comes before the mutex of the call.
        let _subscription = call
            .token()
            .map(|token| token.subscribe(Arc::clone(&helped) as Arc<dyn Wake>));
        self.queue.push(upkeep, &helped, job)?;
        helped
            .wait(&call, deadline)
            .inspect_err(|_| self.queue.state.lock().remove(&helped))?;
        let answer = answer.lock().take();
        answer.unwrap_or_else(|| Err(LockError::internal("an answer without a result")))
    }
}

impl Drop for HelperThreads {
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.work.notify_all();
    }
}

impl fmt::Debug for HelperThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelperThreads")
            .field("limit", &self.queue.limit)
            .field("at_work", &self.at_work())
            .finish_non_exhaustive()
    }
}

impl HelperQueue {
    fn push(
        self: &Arc<Self>,
        upkeep: bool,
        helped: &Arc<HelpedCall>,
        job: Job,
    ) -> Result<(), LockError> {
        let mut state = self.state.lock();
        let queue = match upkeep {
            true => &mut state.upkeep,
            false => &mut state.ordinary,
        };
        queue.push_back(QueuedHelp {
            helped: Arc::clone(helped),
            job,
        });
        let waiting = state.upkeep.len() + state.ordinary.len();
        if waiting > state.idle && state.threads < self.limit {
            let me = Arc::clone(self);
            match threads::spawn("syncguard-help", move || ending::stuck(|| me.work())) {
                Ok(()) => state.threads += 1,
                // Those that there are do it.
                Err(_) if state.threads > 0 => {}
                Err(e) => {
                    state.remove(helped);
                    return Err(LockError::new(
                        ErrorCode::RateLimited,
                        "no thread could be started for the call of the driver",
                    )
                    .with_source(e)
                    .nothing_applied());
                }
            }
        }
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    fn work(&self) {
        let mut state = self.state.lock();
        let mut until = Instant::now() + IDLE;
        loop {
            if let Some((job, ordinary)) = state.next(self.limit) {
                drop(state);
                guarded(job);
                state = self.state.lock();
                state.ordinary_at_work -= usize::from(ordinary);
                until = Instant::now() + IDLE;
            } else if state.closed || Instant::now() >= until {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                self.work.wait_until(&mut state, Some(until));
                state.idle -= 1;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backend::store_clock::{StoreClock, TimedReply};
    use crate::runtime::cancel::CancelToken;
    use std::sync::mpsc;

    fn soon() -> Call<'static> {
        Call::new().within(Duration::from_millis(50))
    }

    /// A helper that does not come back before the answer is dropped.
    fn stuck(threads: &HelperThreads, sends: bool) -> (LockError, mpsc::Sender<()>) {
        let (release, held) = mpsc::channel::<()>();
        let error = threads
            .run(&soon(), move |call| {
                if sends {
                    call.sending()?;
                }
                let _ = held.recv();
                Ok(())
            })
            .expect_err("the driver hangs");
        (error, release)
    }

    #[test]
    fn a_caller_leaves_in_time_and_knows_whether_it_was_sent() {
        let threads = HelperThreads::new(3);
        let (unsent, first) = stuck(&threads, false);
        assert_eq!(unsent.code(), ErrorCode::NetworkTimeout);
        assert!(!unsent.may_have_applied());
        let (sent, second) = stuck(&threads, true);
        assert_eq!(sent.code(), ErrorCode::NetworkTimeout);
        assert!(sent.may_have_applied());
        assert_eq!(threads.at_work(), 2);
        drop((first, second));
    }

    #[test]
    fn no_more_threads_than_the_limit_are_ever_stuck_and_one_is_kept_for_upkeep() {
        let threads = HelperThreads::new(2);
        let (_, release) = stuck(&threads, true);
        for _ in 0..3 {
            let error = threads.run(&soon(), |_| Ok(())).expect_err("none is free");
            assert_eq!(error.code(), ErrorCode::RateLimited);
            assert!(!error.may_have_applied());
        }
        assert_eq!(threads.at_work(), 1);
        assert!(
            threads.queue.state.lock().ordinary.is_empty(),
            "they pile up"
        );
        let long = Call::new().within(Duration::from_secs(30));
        assert_eq!(threads.run_first(&long, |_| Ok(7)).ok(), Some(7));
        drop(release);
        assert_eq!(threads.run(&long, |_| Ok(8)).ok(), Some(8));
    }

    #[test]
    fn a_cancel_ends_the_wait_and_what_was_not_sent_is_not_sent_later() {
        let threads = HelperThreads::new(1);
        let token = CancelToken::new();
        let call = Call::new().cancelled_by(&token);
        let (go, held) = mpsc::channel::<()>();
        let (told, outcome) = mpsc::channel();
        let cancelled = token.clone();
        let error = threads
            .run(&call, move |call| {
                cancelled.cancel();
                let _ = held.recv();
                let _ = told.send(call.sending().is_err());
                Ok(())
            })
            .expect_err("it was cancelled");
        assert_eq!(error.code(), ErrorCode::Aborted);
        assert!(!error.may_have_applied());
        drop(go);
        assert_eq!(outcome.recv_timeout(Duration::from_secs(30)), Ok(true));
    }

    #[test]
    fn a_panic_is_an_error_and_the_thread_goes_on() {
        let threads = HelperThreads::new(1);
        let call = Call::new().within(Duration::from_secs(30));
        let error = threads.run(&call, |_| -> Result<(), LockError> { panic!("planted") });
        assert_eq!(error.expect_err("a panic").code(), ErrorCode::Internal);
        assert_eq!(threads.run(&call, |_| Ok(1)).ok(), Some(1));
    }

    #[test]
    fn a_request_is_sent_with_the_time_of_the_store_and_its_error_says_until_when_it_counts() {
        let threads = HelperThreads::new(1);
        let call = Call::new().within(Duration::from_secs(30));
        let told = threads.run(&call, |call| {
            let (mut clock, mut told) = (None, Vec::new());
            call.send_in_time(&mut clock, |not_after| {
                told.push(not_after);
                Ok(match not_after {
                    0 => TimedReply::TooLate { now_ms: 5_000_000 },
                    _ => TimedReply::Answer(()),
                })
            })?;
            Ok(told)
        });
        let told = told.expect("an answer");
        assert_eq!((told.len(), told[0]), (2, 0));
        assert!((5_000_000..5_040_000).contains(&told[1]), "{told:?}");
        let error = threads.run(&soon(), |call| {
            let mut clock = Some(StoreClock::read(5_000_000, Instant::now()));
            call.send_in_time(&mut clock, |_| {
                std::thread::sleep(Duration::from_millis(300));
                Ok(TimedReply::Answer(()))
            })
        });
        let error = error.expect_err("the driver is late");
        assert!(error.may_have_applied() && error.not_after().is_some());
    }

    #[test]
    fn what_comes_afterwards_delays_no_answer() {
        let threads = HelperThreads::new(1);
        let call = Call::new().within(Duration::from_secs(30));
        let (release, held) = mpsc::channel::<()>();
        let answer = threads.run(&call, move |call| {
            call.afterwards(move || {
                let _ = held.recv();
            });
            Ok(1)
        });
        assert_eq!((answer.ok(), threads.at_work()), (Some(1), 1));
        drop(release);
    }
}
