//! A renewal that ends before the guard is made, and a lock whose last owner is the timer.

use std::sync::{Arc, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::{Guard, Held};
use crate::backend::call::Call;
use crate::backend::{AcquireOutcome, Backend};
use crate::holding::heartbeat;
use crate::holding::lifecycle::Ring;
use crate::options::client::ClientOptions;
use crate::options::lock::LockOptions;
use crate::runtime::ending::InUse;
use crate::runtime::timer::Alarm;
use crate::stores::memory::{Fault, ManualClock, MemoryBackend, Verb};
use crate::types::error::ErrorCode;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::ttl::Ttl;
use crate::waiting::attempt::Granted;
use crate::waiting::core::Core;

const TTL: Duration = Duration::from_secs(30);

/// A grant that is not in the care of a guard yet.
fn granted(clock: &ManualClock, store: &MemoryBackend, options: &LockOptions) -> Arc<Held> {
    let key = Key::new("k").expect("a legal key");
    let ttl = Ttl::new(TTL).expect("a legal ttl");
    let lock_id = LockId::random().expect("an id");
    let answer = store
        .acquire(&key, &lock_id, ttl, &Call::new())
        .expect("an answer");
    let AcquireOutcome::Acquired(acquired) = answer else {
        panic!("the key is free");
    };
    let checked = options.checked().expect("legal options");
    let granted = Granted {
        acquired,
        sent: clock.now(),
        refused_after: None,
        waited: Duration::ZERO,
    };
    let core = Core::new(Arc::new(store.clone()), &ClientOptions::new().clock(clock));
    Held::new(&core, key, granted, &checked, options)
}

/// The first renewal is over when the guard gets its alarm_id. The next one must come at its time all the same, whatever became of
/// the first: at the deadline, which the timer knows of, it would be too late after one that failed.
#[test]
fn a_renewal_that_ends_before_the_guard_is_made_is_followed_by_the_next() {
    for fault in [None, Some(Fault::Refuse(ErrorCode::ServiceUnavailable))] {
        let clock = ManualClock::new();
        let store = MemoryBackend::with_clock(&clock);
        let held = granted(&clock, &store, &LockOptions::new().ttl(TTL));
        let first = held.life.alarm().expect("a renewal to come");
        clock.advance(first - clock.now());

        // The timer rings, and will ring again at the deadline.
        let Ring::Start(deadline) = held.life.ring(clock.now()) else {
            panic!("no renewal is due");
        };
        let timer = &held.core.runtime.timer;
        let alarm_id = timer
            .set(deadline, Arc::clone(&held) as _)
            .expect("a timer");
        // The heartbeat renews the lease before there is a alarm_id.
        if let Some(fault) = fault {
            store.once(Verb::Extend, fault);
        }
        let (ttl, token) = held.life.next_renewal().expect("the renewal that is due");
        let answer = heartbeat::extend(&held, ttl, &Call::new().cancelled_by(&token));
        assert_eq!(answer.is_ok(), fault.is_none());
        assert!(held.start_renewal(deadline), "no thread to be had");

        let guard = Guard::with_alarm(Arc::clone(&held), InUse::new(), alarm_id, first);
        let next = held.life.alarm().expect("a renewal to come");
        assert!(next < deadline);
        clock.advance(next - clock.now());
        let end = Instant::now() + Duration::from_secs(30);
        while store.calls(Verb::Extend) < 2 {
            assert!(Instant::now() < end, "it is not renewed at {next:?}");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!guard.is_lost());
        // The end of the last guard waits for the timer's thread, which this keeps.
        drop(held);
    }
}

/// The timer keeps every guard's deadline: what the user gave must not be dropped on its thread.
#[test]
fn a_callback_is_not_dropped_on_the_timers_thread() {
    struct TellThread(mpsc::Sender<ThreadId>);
    impl Drop for TellThread {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap_or_default();
        }
    }
    let (tell, told) = mpsc::channel();
    let captured = TellThread(tell);
    let options = LockOptions::new().ttl(TTL).on_lost(move |_| {
        let _ = &captured;
    });
    let clock = ManualClock::new();
    let held = granted(&clock, &MemoryBackend::with_clock(&clock), &options);
    drop(options);
    // This thread stands for the timer's.
    (held as Arc<dyn Alarm>).done();
    let dropped_on = told
        .recv_timeout(Duration::from_secs(30))
        .expect("it was dropped");
    assert_ne!(dropped_on, thread::current().id());
}
