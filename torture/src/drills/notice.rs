//! How an operator finds a client that counts among clients with fences of the clock: by the live locks alone.

use std::time::{Duration, Instant};

use syncguard::{Client, ListOptions, LockInfoDebug};

use crate::load::{Grant, key};

/// No counter is this large: the key has fences of the clock.
const CLOCK_FENCES_FROM: u64 = 1_000_000_000_000;
const LEASE: Duration = Duration::from_secs(60);
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Whether the holder of this lock counts, although others on its key have the clock. A grant by the clock never has a fence behind its time.
fn counts(lock: &LockInfoDebug) -> bool {
    let fence = lock.info.fence.get();
    fence >= CLOCK_FENCES_FROM && i128::from(fence) < i128::from(lock.info.acquired_at_ms)
}

/// Takes a lock with a caller that counts and one with a caller that has the clock, on keys that others took by the clock. Answers whether
/// the list of all live locks and a lookup show the first caller, and no other.
pub fn is_noticed(
    by_clock: &Client,
    mut counting: impl FnMut(&str, Duration) -> Option<Grant>,
) -> bool {
    let (theirs, ours) = ("contended-0", "contended-1");
    // Leases that the failover left behind end soon. Each key is taken, so that no lock of the load is among those that are listed.
    until_granted(|| counting(theirs, LEASE).map(drop));
    for name in [ours, "contended-2"] {
        until_granted(|| crate::load::acquire(by_clock, &key(name), LEASE).map(drop));
    }
    let mut found = Vec::new();
    let mut options = ListOptions::new();
    loop {
        let page = by_clock.list_raw(&options).expect("a list");
        let counted = page.locks.iter().filter(|&lock| counts(lock));
        found.extend(counted.map(|lock| lock.key.clone()));
        match page.next {
            Some(next) => options = ListOptions::new().after(next),
            None => break,
        }
    }
    found.dedup();
    let looked_up = [theirs, ours].map(|name| {
        let lock = by_clock.get_by_key_raw(name).expect("an answer");
        counts(&lock.expect("a lock"))
    });
    println!("  the live locks show a caller that counts on {found:?}");
    found == [theirs] && looked_up == [true, false]
}

fn until_granted(mut take: impl FnMut() -> Option<()>) {
    let end = Instant::now() + WAIT_LIMIT;
    while take().is_none() {
        assert!(Instant::now() < end, "no lock in {WAIT_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
