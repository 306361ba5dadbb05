//! One thread that does no I/O and runs no user code: it rings alarms when they are due. It uses `clock`, `process`, `sync`,
//! `threads`, `wake` and `types`.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::clock::Clock;
use crate::runtime::process::Owner;
use crate::runtime::sync::{Condvar, Mutex};
use crate::runtime::threads;
use crate::runtime::wake::Wake;
use crate::types::error::{ErrorCode, LockError};

/// Something to be done at a time. It must not block.
pub(crate) trait Alarm: Send + Sync {
    /// Its time has come. Answers when to ring again.
    fn ring(self: Arc<Self>, now: Duration) -> Option<Duration>;

    /// The timer is done with it. This runs on the timer's thread: an alarm that owns values of the user drops them elsewhere.
    fn done(self: Arc<Self>);

    /// Whether it is that of a lock which `thread` took, with a lock id of this hash. An alarm is set for as long as its lock
    /// is held.
    fn is_of(&self, _thread: u64, _lock_id_hash: &str) -> bool {
        false
    }
}

/// A timer over one clock. Its thread starts with the first alarm and ends when the timer is dropped.
pub(crate) struct Timer {
    shared: Arc<TimerShared>,
    owner: Owner,
}

struct TimerShared {
    clock: Arc<dyn Clock>,
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Default)]
struct TimerState {
    queue: BTreeMap<(Duration, u64), Arc<dyn Alarm>>,
    /// Where each alarm stands in the queue.
    times: HashMap<u64, Duration, BuildHasherDefault<Counted>>,
    last_id: u64,
    /// The alarm that rings at this moment, and whether it was taken back meanwhile.
    ringing: Option<(u64, bool)>,
    /// When the thread looks again by itself. It may sleep past the removal of an alarm but never past an alarm, so that a
    /// lock that is taken and released a thousand times a second does not wake it.
    looks_at: Option<Duration>,
    running: bool,
    /// The thread ends as soon as there is no alarm; the next alarm starts another.
    may_end: bool,
    stopped: bool,
}

/// Hashes numbers that this crate counts up: no attacker chooses them to collide, and every lock is on this path.
#[derive(Default)]
struct Counted(u64);

impl Hasher for Counted {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The map looks at the upper bits too.
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl TimerState {
    fn insert(&mut self, at: Duration, id: u64, alarm: Arc<dyn Alarm>) {
        self.times.insert(id, at);
        self.queue.insert((at, id), alarm);
    }

    fn remove(&mut self, id: u64) -> Option<Arc<dyn Alarm>> {
        let at = self.times.remove(&id)?;
        self.queue.remove(&(at, id))
    }
}

/// An alarm that was set, for taking it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlarmId(u64);

impl Timer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let shared = Arc::new(TimerShared {
            clock,
            state: Mutex::new(TimerState::default()),
            changed: Condvar::new(),
        });
        let me: Arc<dyn Wake> = Arc::clone(&shared) as _;
        shared.clock.subscribe(Arc::downgrade(&me));
        Self {
            shared,
            owner: Owner::current(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.shared.clock.now()
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.shared.clock
    }

    /// Has `alarm` rung at `at`.
    ///
    /// # Errors
    /// `RateLimited` if the thread cannot be started; nothing is set then.
    pub(crate) fn set(&self, at: Duration, alarm: Arc<dyn Alarm>) -> Result<AlarmId, LockError> {
        let mut state = self.shared.state.lock();
        self.start(&mut state).map_err(|e| {
            LockError::new(ErrorCode::RateLimited, "the timer thread cannot be started")
                .with_source(e)
                .nothing_applied()
        })?;
        state.may_end = false;
        state.last_id += 1;
        let id = state.last_id;
        self.shared.insert(&mut state, at, id, alarm);
        Ok(AlarmId(id))
    }

    /// Moves an alarm, or sets it again if it has rung for the last time.
    pub(crate) fn reset(&self, ticket: AlarmId, at: Duration, alarm: Arc<dyn Alarm>) {
        let mut state = self.shared.state.lock();
        let before = state.remove(ticket.0);
        // It runs as long as there is an alarm; should it not, there is no caller to answer to here.
        let _ = self.start(&mut state);
        self.shared.insert(&mut state, at, ticket.0, alarm);
        drop(state);
        drop(before);
    }

    fn start(&self, state: &mut TimerState) -> std::io::Result<()> {
        if !state.running {
            let shared = Arc::clone(&self.shared);
            threads::spawn("syncguard-timer", move || shared.run())?;
            state.running = true;
        }
        Ok(())
    }

    /// Ends the thread if there is no alarm.
    pub(crate) fn end_idle_thread(&self) {
        self.shared.state.lock().may_end = true;
        self.shared.changed.notify_one();
    }

    /// Whether there is an alarm of a lock which `thread` took, with a lock id of this hash. Looks at all alarms; for a call
    /// that has waited for long.
    pub(crate) fn has_lock_of(&self, thread: u64, lock_id_hash: &str) -> bool {
        let state = self.shared.state.lock();
        state
            .queue
            .values()
            .any(|alarm| alarm.is_of(thread, lock_id_hash))
    }

    /// Takes an alarm back. It may be ringing at this moment, for the last time.
    pub(crate) fn clear(&self, ticket: AlarmId) {
        let mut state = self.shared.state.lock();
        if let Some((id, cleared)) = &mut state.ringing {
            *cleared |= *id == ticket.0;
        }
        let alarm = state.remove(ticket.0);
        // Dropped after the mutex: the last reference to an alarm may be this one, and dropping it may do anything.
        drop(state);
        drop(alarm);
    }
}

impl TimerShared {
    fn insert(&self, state: &mut TimerState, at: Duration, id: u64, alarm: Arc<dyn Alarm>) {
        state.insert(at, id, alarm);
        if state.looks_at.is_none_or(|look| at < look) {
            self.changed.notify_one();
        }
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.stopped {
            let now = self.clock.now();
            let due = state.queue.first_key_value().map(|((at, _), _)| *at);
            match due {
                Some(at) if at <= now => {
                    let Some(((_, id), alarm)) = state.queue.pop_first() else {
                        continue;
                    };
                    state.times.remove(&id);
                    state.ringing = Some((id, false));
                    drop(state);
                    let next = Arc::clone(&alarm).ring(now);
                    state = self.state.lock();
                    let cleared = state.ringing.take().is_some_and(|(_, cleared)| cleared);
                    match next {
                        // It may have been set anew while it rang; the earlier of the two times is the safe one.
                        Some(next)
                            if !cleared && state.times.get(&id).is_none_or(|at| next < *at) =>
                        {
                            let before = state.remove(id);
                            state.insert(next, id, alarm);
                            drop(state);
                            drop(before);
                        }
                        _ => {
                            drop(state);
                            alarm.done();
                        }
                    }
                    state = self.state.lock();
                }
                Some(at) => {
                    let pause = self.clock.looks_again_in(at);
                    state.looks_at = Some(pause.map_or(at, |p| now + p));
                    self.changed
                        .wait_until(&mut state, pause.map(|p| Instant::now() + p));
                }
                None if state.may_end => {
                    // Also the memory of its tables: nothing of this is needed any more.
                    let last_id = state.last_id;
                    *state = TimerState {
                        last_id,
                        ..TimerState::default()
                    };
                    return;
                }
                None => {
                    state.looks_at = None;
                    self.changed.wait(&mut state);
                }
            }
        }
    }
}

impl Wake for TimerShared {
    /// The clock was moved.
    fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_one();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // A forked child has no thread to stop, and the mutex may be locked for ever.
        if !self.owner.is_this_process() {
            return;
        }
        self.shared.state.lock().stopped = true;
        self.shared.changed.notify_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::runtime::clock::{BootClock, boot_time};
    use std::sync::{Weak, mpsc};

    struct SendOnRing {
        to: mpsc::Sender<u32>,
        number: u32,
    }

    impl Alarm for SendOnRing {
        fn ring(self: Arc<Self>, _now: Duration) -> Option<Duration> {
            let _ = self.to.send(self.number);
            None
        }

        fn done(self: Arc<Self>) {}
    }

    #[test]
    fn rings_in_order_of_time_and_not_what_was_cleared() {
        let timer = Timer::new(Arc::new(BootClock));
        let (tx, rx) = mpsc::channel();
        let now = timer.now();
        let at = |ms| now + Duration::from_millis(ms);
        let bell = |n| {
            Arc::new(SendOnRing {
                to: tx.clone(),
                number: n,
            })
        };
        timer.set(at(60), bell(3)).expect("a timer");
        let cleared = timer.set(at(40), bell(2)).expect("a timer");
        timer.set(at(20), bell(1)).expect("a timer");
        timer.clear(cleared);
        let wait = Duration::from_secs(20);
        assert_eq!(
            (rx.recv_timeout(wait), rx.recv_timeout(wait)),
            (Ok(1), Ok(3))
        );
    }

    /// The boot clock for a thread that never looks by itself: only being woken helps.
    #[derive(Debug)]
    struct NeverLooks;

    impl Clock for NeverLooks {
        fn now(&self) -> Duration {
            boot_time()
        }

        fn looks_again_in(&self, until: Duration) -> Option<Duration> {
            let left = until.saturating_sub(boot_time());
            (left < Duration::from_secs(60)).then_some(left)
        }

        fn subscribe(&self, _sleeper: Weak<dyn Wake>) {}
    }

    /// Waits until the thread sleeps: it gives the mutex back only then.
    fn asleep(timer: &Timer, until: impl Fn(&TimerState) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !until(&timer.shared.state.lock()) {
            assert!(Instant::now() < end, "the thread never sleeps");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_sleeps_is_woken_for_an_earlier_alarm() {
        let timer = Timer::new(Arc::new(NeverLooks));
        let (tx, rx) = mpsc::channel();
        let bell = |n| {
            Arc::new(SendOnRing {
                to: tx.clone(),
                number: n,
            })
        };
        let hour = || timer.now() + Duration::from_secs(3600);
        let wait = Duration::from_secs(20);
        let late = timer.set(hour(), bell(9)).expect("a timer");
        asleep(&timer, |state| state.looks_at.is_some());
        timer.set(timer.now(), bell(1)).expect("a timer");
        assert_eq!(rx.recv_timeout(wait), Ok(1), "another alarm, set earlier");
        asleep(&timer, |state| {
            state.ringing.is_none() && state.looks_at.is_some_and(|at| at > timer.now())
        });
        timer.reset(late, timer.now(), bell(2));
        assert_eq!(rx.recv_timeout(wait), Ok(2), "the same alarm, moved");
        asleep(&timer, |state| state.looks_at.is_none());
        timer.set(timer.now(), bell(3)).expect("a timer");
        assert_eq!(rx.recv_timeout(wait), Ok(3), "an alarm where none was left");
    }

    #[test]
    fn an_alarm_set_while_the_thread_sleeps_longer_still_rings_in_time() {
        let timer = Timer::new(Arc::new(BootClock));
        let (tx, rx) = mpsc::channel();
        let late = timer
            .set(
                timer.now() + Duration::from_secs(3600),
                Arc::new(SendOnRing {
                    to: tx.clone(),
                    number: 9,
                }),
            )
            .expect("a timer");
        timer.clear(late);
        timer
            .set(
                timer.now() + Duration::from_millis(5),
                Arc::new(SendOnRing { to: tx, number: 1 }),
            )
            .expect("a timer");
        assert_eq!(rx.recv_timeout(Duration::from_secs(20)), Ok(1));
    }
}
