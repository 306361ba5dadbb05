//! A clock that stands still until the test moves it. It implements `runtime`'s clock. It uses `options` and `runtime`.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::options::client::ClientOptions;
use crate::runtime::cancel::{Bell, deadline_after, deadline_from};
use crate::runtime::clock::Clock;
use crate::runtime::sync::Mutex;
use crate::runtime::wake::Wake;

/// A clock that stands still until it is [advanced](Self::advance). Clones are the same clock.
///
/// Give it to the client ([`ClientOptions::clock`]) and to the store ([`MemoryBackend::with_clock`](super::MemoryBackend::with_clock)):
/// then no lease ends, no lock is renewed and no wait for a lock times out or tries again before the test says so.
///
/// ```
/// use std::time::Duration;
/// use syncguard::testkit::{ManualClock, MemoryBackend};
/// use syncguard::{Client, ClientOptions, ErrorCode, LockOptions};
///
/// let clock = ManualClock::new();
/// let store = MemoryBackend::with_clock(&clock);
/// let client = Client::from_backend_with(store, &ClientOptions::new().clock(&clock))?;
/// let held = client.lock_with("nightly", &LockOptions::new().ttl(Duration::from_secs(3600)))?;
///
/// // Ten minutes of waiting, without waiting.
/// let options = LockOptions::new().acquire_timeout(Duration::from_secs(600));
/// std::thread::scope(|scope| {
///     let waiter = scope.spawn(|| client.lock_with("nightly", &options));
///     while clock.sleepers() == 0 {
///         std::thread::yield_now();
///     }
///     clock.advance(Duration::from_secs(600));
///     let error = waiter.join().unwrap().unwrap_err();
///     assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
///     assert_eq!(error.waited(), Some(Duration::from_secs(600)));
/// });
/// # drop(held);
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// A wait sleeps until the clock is moved, the lock is released or the call is cancelled: a test that does none of them hangs. So a
/// test on one thread takes a lock that may be held with [`try_lock`](crate::Client::try_lock).
///
/// In real time remain: calls of a store with their operation timeout and the bounds of a [`Call`](crate::Call), and the calls that
/// a program waits in for a guard or a token ([`Guard::wait_lost_for`](crate::Guard::wait_lost_for),
/// [`CancelToken::wait_for`](crate::CancelToken::wait_for)). Of a [deadline](crate::LockOptions::deadline) the time that is left when the
/// call begins counts on this clock. A [`Waiter`](crate::Waiter) is woken when the clock moves.
///
/// A lock is renewed when the clock reaches the time of the renewal, on a thread of the library. To see a lock that is kept, move the
/// clock by less than its TTL and wait for the renewal; a step over the whole TTL loses the lock.
#[derive(Clone, Default)]
pub struct ManualClock {
    shared: Arc<ClockShared>,
}

struct ClockShared {
    /// Waits are counted from here, as if this much time had passed as the clock says.
    begun: Instant,
    state: Mutex<ClockState>,
}

#[derive(Default)]
struct ClockState {
    now: Duration,
    wakers: Vec<Weak<dyn Wake>>,
    sleepers: Vec<Sleeper>,
}

/// A wait for a lock that sleeps.
struct Sleeper {
    until: Instant,
    bell: Arc<Bell>,
}

impl Default for ClockShared {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            state: Mutex::default(),
        }
    }
}

impl ClockShared {
    fn wait_now(&self, state: &ClockState) -> Instant {
        deadline_from(self.begun, state.now)
    }
}

impl ManualClock {
    /// A clock at zero.
    ///
    /// ```
    /// use syncguard::testkit::ManualClock;
    ///
    /// let clock = ManualClock::new();
    /// assert_eq!(clock.now(), clock.now()); // it stands still
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves time forward and wakes those that wait for it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use syncguard::testkit::ManualClock;
    ///
    /// let clock = ManualClock::new();
    /// let before = clock.now();
    /// clock.advance(Duration::from_secs(30));
    /// assert_eq!(clock.now() - before, Duration::from_secs(30));
    /// ```
    pub fn advance(&self, by: Duration) {
        let mut state = self.shared.state.lock();
        state.now = state.now.saturating_add(by);
        let now = self.shared.wait_now(&state);
        let mut woken: Vec<Arc<dyn Wake>> = Vec::new();
        woken.extend(state.wakers.iter().filter_map(Weak::upgrade));
        for sleeper in state.sleepers.iter().filter(|s| s.until <= now) {
            woken.push(sleeper.bell.clone());
        }
        // They may use the clock.
        drop(state);
        for waker in woken {
            waker.wake();
        }
    }

    /// How many waits for a lock sleep until a time that this clock has not reached.
    ///
    /// A test that moves the clock for a waiter on another thread looks here first: a wait counts its time from when it begins, and
    /// a delay from when the attempt before it ended.
    ///
    /// ```
    /// use syncguard::testkit::ManualClock;
    ///
    /// assert_eq!(ManualClock::new().sleepers(), 0);
    /// ```
    pub fn sleepers(&self) -> usize {
        let state = self.shared.state.lock();
        let now = self.shared.wait_now(&state);
        state.sleepers.iter().filter(|s| s.until > now).count()
    }

    /// The time since the clock was made.
    ///
    /// ```
    /// use syncguard::testkit::ManualClock;
    ///
    /// let clock = ManualClock::new();
    /// println!("{:?}", clock.now());
    /// ```
    pub fn now(&self) -> Duration {
        self.shared.state.lock().now
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Self::now(self)
    }

    fn looks_again_in(&self, _until: Duration) -> Option<Duration> {
        None
    }

    fn subscribe(&self, waker: Weak<dyn Wake>) {
        let wakers = &mut self.shared.state.lock().wakers;
        wakers.retain(|w| w.strong_count() > 0);
        wakers.push(waker);
    }

    fn wait_now(&self) -> Instant {
        self.shared.wait_now(&self.shared.state.lock())
    }

    fn to_real(&self, wait_time: Instant) -> Instant {
        deadline_after(wait_time.saturating_duration_since(self.wait_now()))
    }

    fn to_wait(&self, real_time: Instant) -> Instant {
        let left = real_time.saturating_duration_since(Instant::now());
        deadline_from(self.wait_now(), left)
    }

    fn sleep(&self, bell: &Arc<Bell>, until: Instant) {
        let mut state = self.shared.state.lock();
        if self.shared.wait_now(&state) >= until {
            return;
        }
        let bell = Arc::clone(bell);
        state.sleepers.push(Sleeper {
            until,
            bell: Arc::clone(&bell),
        });
        drop(state);
        // Only a move of the clock, a call of the line or a cancel ends it.
        bell.sleep_until(None);
        let sleepers = &mut self.shared.state.lock().sleepers;
        sleepers.retain(|sleeper| !Arc::ptr_eq(&sleeper.bell, &bell));
    }
}

impl ClientOptions {
    /// Counts leases and waits for locks on `clock` in place of the system's.
    ///
    /// ```
    /// use syncguard::ClientOptions;
    /// use syncguard::testkit::ManualClock;
    ///
    /// let clock = ManualClock::new();
    /// let options = ClientOptions::new().clock(&clock);
    /// # drop(options);
    /// ```
    pub fn clock(mut self, clock: &ManualClock) -> Self {
        self.clock = Some(Arc::new(clock.clone()));
        self
    }
}
