//! A store in memory and a client on a clock that only the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use syncguard::testkit::{ManualClock, MemoryBackend};
use syncguard::{Call, Client, ClientOptions, Guard, Key, LockError, LockOptions};

/// How long a test waits for what must happen: far longer than it takes, for machines that are busy.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// The default lease.
pub const TTL: Duration = Duration::from_secs(30);
/// When a lease of [`TTL`] is renewed.
pub const THIRD: Duration = Duration::from_secs(10);

/// A store and a client on a clock that the test moves.
pub struct Kit {
    pub clock: ManualClock,
    pub store: MemoryBackend,
    pub client: Client,
}

pub fn kit() -> Kit {
    kit_with(ClientOptions::new())
}

pub fn kit_with(options: ClientOptions) -> Kit {
    let clock = ManualClock::new();
    let store = MemoryBackend::with_clock(&clock);
    let client =
        Client::from_backend_with(store.clone(), &options.clock(&clock)).expect("legal options");
    Kit {
        clock,
        store,
        client,
    }
}

impl Kit {
    pub fn lock(&self) -> Guard {
        self.client.lock("k").expect("a free lock")
    }

    pub fn lock_with(&self, options: LockOptions) -> Guard {
        self.client.lock_with("k", &options).expect("a free lock")
    }

    pub fn is_locked(&self) -> bool {
        self.client
            .is_locked_with(Key::new("k").expect("a key"), &Call::new())
            .expect("an answer")
    }

    /// Does `work`, and moves the clock by a millisecond whenever a wait sleeps.
    pub fn moving<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let worker = scope.spawn(work);
            while !worker.is_finished() {
                if self.clock.sleepers() > 0 {
                    self.clock.advance(Duration::from_millis(1));
                }
                std::thread::yield_now();
            }
            worker.join().expect("no panic")
        })
    }

    /// Moves the clock to the next renewal and waits until it was answered.
    pub fn renew(&self, guard: &Guard) {
        let before = guard.expires_at_ms();
        self.clock.advance(THIRD);
        let end = Instant::now() + WAIT_LIMIT;
        while guard.expires_at_ms() <= before {
            assert!(Instant::now() < end, "no renewal");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A callback that counts, and says that it was called.
pub fn counter() -> (
    Arc<AtomicUsize>,
    impl Fn(&LockError) + Send + Sync + Clone + 'static,
) {
    let count = Arc::new(AtomicUsize::new(0));
    let inner = Arc::clone(&count);
    (count, move |_: &LockError| {
        inner.fetch_add(1, SeqCst);
    })
}
