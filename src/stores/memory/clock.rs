//! A clock that stands still until the test moves it. It implements `runtime`'s clock.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::options::client::ClientOptions;
use crate::runtime::clock::Clock;
use crate::runtime::sync::Mutex;
use crate::runtime::wake::Wake;

/// A clock that stands still until it is [advanced](Self::advance). Clones are the same clock.
///
/// Give it to the client ([`ClientOptions::clock`]) and to the store ([`MemoryBackend::with_clock`](super::MemoryBackend::with_clock)):
/// then nothing expires before the test says so. Waiting for a lock and operation timeouts stay in real time.
#[derive(Clone, Default)]
pub struct ManualClock {
    shared: Arc<ClockShared>,
}

#[derive(Default)]
struct ClockShared {
    now: Mutex<Duration>,
    wakers: Mutex<Vec<Weak<dyn Wake>>>,
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
        *self.shared.now.lock() += by;
        let wakers = self.shared.wakers.lock();
        let alive: Vec<_> = wakers.iter().filter_map(Weak::upgrade).collect();
        drop(wakers);
        for waker in alive {
            waker.wake();
        }
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
        *self.shared.now.lock()
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

    fn patience(&self, _until: Duration) -> Option<Duration> {
        None
    }

    fn subscribe(&self, waker: Weak<dyn Wake>) {
        let mut wakers = self.shared.wakers.lock();
        wakers.retain(|w| w.strong_count() > 0);
        wakers.push(waker);
    }
}

impl ClientOptions {
    /// Counts leases on `clock` in place of the system's.
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
