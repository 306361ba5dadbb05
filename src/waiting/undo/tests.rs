//! When an acquire of unknown outcome is looked for again.

use super::*;

/// An acquire that the store refuses from then on, if that is known, after so many looks that found nothing.
fn doubtful(settled: Option<Duration>, looked: usize) -> Doubtful {
    Doubtful {
        key: Key::new("k").expect("a key"),
        lock_id: LockId::random().expect("random bits"),
        due: Duration::ZERO,
        until: Duration::MAX,
        settled,
        looked,
    }
}

#[test]
fn an_acquire_is_looked_for_when_the_store_refuses_it() {
    let (now, settled) = (Duration::from_secs(100), Duration::from_secs(120));
    // All looks were made, and the store may still take the request.
    let late = doubtful(Some(settled), LOOK_AGAIN.len());
    assert_eq!(late.next_look(now), Some(settled));
    // That time is one more look, and puts off none before it.
    let early = doubtful(Some(settled), 0);
    assert_eq!(early.next_look(now), Some(now + LOOK_AGAIN[0]));
    let between = doubtful(Some(now + Duration::from_millis(1)), 0);
    assert_eq!(between.next_look(now), Some(now + Duration::from_millis(1)));
}

#[test]
fn an_acquire_that_the_store_refuses_is_looked_for_a_few_times_more() {
    let now = Duration::from_secs(100);
    for settled in [None, Some(now)] {
        for (looked, delay) in LOOK_AGAIN.into_iter().enumerate() {
            assert_eq!(doubtful(settled, looked).next_look(now), Some(now + delay));
        }
        assert_eq!(doubtful(settled, LOOK_AGAIN.len()).next_look(now), None);
    }
}
