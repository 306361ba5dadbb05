//! The rules about holders: one at a time, growing fences, and only the owner releases and extends. It uses `hooks`, `steps`,
//! `backend` and `types`.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::hooks::ContractHooks;
use super::steps::{
    LONG, acquire, expired, extend, find_by_id, found, id, is_locked, release, take,
};
use crate::backend::call::Call;
use crate::backend::{AcquireOutcome, Backend, ExtendOutcome, ReleaseOutcome};
use crate::types::liveness::CLEANUP_GUARD_MS;

const THREADS: usize = 8;

/// While a lock is held, an acquire by another lock id answers `Locked`. Other keys stay free, and a release frees the key.
pub fn one_holder_per_key(store: &dyn Backend, _: &ContractHooks) {
    for _ in 0..3 {
        let owner = id();
        assert!(!is_locked(store, "k"), "is_locked is true for a free key");
        let _ = take(store, "k", &owner, LONG);
        assert!(is_locked(store, "k"), "is_locked is false for a held key");
        for _ in 0..2 {
            assert!(
                matches!(acquire(store, "k", &id(), LONG), AcquireOutcome::Locked(_)),
                "two lock ids hold one key at the same time"
            );
        }
        assert!(!is_locked(store, "other"), "a lock holds a second key too");
        assert_eq!(
            release(store, &owner),
            ReleaseOutcome::Released,
            "the owner of a live lock cannot release it"
        );
    }
    assert!(!is_locked(store, "k"), "a released key stays locked");
}

/// Of acquires at the same time, one is granted and the others answer `Locked`.
pub fn one_of_many_acquires_wins(store: &dyn Backend, _: &ContractHooks) {
    for round in 0..5 {
        let name = format!("k{round}");
        let start = Barrier::new(THREADS);
        let wins = std::thread::scope(|scope| {
            let attempts: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        let owner = id();
                        start.wait();
                        acquire(store, &name, &owner, LONG)
                    })
                })
                .collect();
            let outcomes = attempts.into_iter().map(|attempt| attempt.join());
            outcomes
                .filter(|outcome| matches!(outcome, Ok(AcquireOutcome::Acquired(_))))
                .count()
        });
        assert_eq!(
            wins, 1,
            "of {THREADS} acquires of a free key at the same time, one must be granted"
        );
    }
}

/// Threads that take and release one lock hold it one after the other, with growing fences.
pub fn holders_never_overlap(store: &dyn Backend, _: &ContractHooks) {
    const ROUNDS: usize = 10;
    // A store that answers `Locked` for ever fails the check, and does not hang it.
    let end = Instant::now() + Duration::from_secs(120);
    let fenced = store.capabilities().supports_fencing;
    let (held, last) = (AtomicBool::new(false), AtomicU64::new(0));
    let turn = || {
        let owner = id();
        let fence = loop {
            match acquire(store, "k", &owner, LONG) {
                AcquireOutcome::Acquired(grant) => break grant.fence.get(),
                AcquireOutcome::Locked(_) => {
                    assert!(
                        Instant::now() < end,
                        "the key stayed locked though every holder releases it"
                    );
                    let _ = Call::new().sleep(Duration::from_millis(1));
                }
            }
        };
        assert!(!held.swap(true, SeqCst), "two threads hold one key");
        let before = last.swap(fence, SeqCst);
        assert!(
            !fenced || before < fence,
            "the fence {fence} came after the fence {before}"
        );
        // Long enough for another thread to be granted the lock meanwhile, if the store lets it.
        let _ = Call::new().sleep(Duration::from_millis(1));
        held.store(false, SeqCst);
        assert_eq!(
            release(store, &owner),
            ReleaseOutcome::Released,
            "a holder lost its lock before its lease ended"
        );
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| (0..ROUNDS).for_each(|_| turn())))
            .collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// No two keys share a lock, and a lookup gives the text of the key back.
pub fn every_text_is_a_key_of_its_own(store: &dyn Backend, _: &ContractHooks) {
    let long = "k".repeat(512);
    let names = [
        "'; DROP TABLE syncguard_locks; --",
        "$1",
        "%s",
        "\"quoted\"",
        "back\\slash",
        "\r\n*1\r\n$4\r\nPING\r\n",
        "tab\tnl\ndel\u{7f}",
        "日本語",
        "\u{202e}RTL",
        "👨\u{200d}👩\u{200d}👧",
        "❤\u{fe0f}",
        "❤",
        "caf\u{e9}",
        "cafe",
        "{a}",
        "a:b",
        "a:",
        ":",
        " ",
        "A",
        "a",
        "a ",
        "a/b",
        "../a",
        "<&>",
        "id:42",
        "fence:other:x",
        &long,
    ];
    let owners = names.map(|name| {
        let owner = id();
        match acquire(store, name, &owner, LONG) {
            AcquireOutcome::Acquired(_) => owner,
            AcquireOutcome::Locked(_) => {
                panic!("the key {name:?} shares a lock with a key that differs from it")
            }
        }
    });
    for (name, owner) in names.iter().zip(&owners) {
        let (by_key, by_id) = (found(store, name), find_by_id(store, owner));
        assert!(
            by_key.key == *name && by_key.lock_id == *owner,
            "find answers another lock for the key {name:?}"
        );
        assert!(
            by_id.is_some_and(|lock| lock.key == *name),
            "find by lock id does not give the key {name:?} back"
        );
    }
    for (name, owner) in names.iter().zip(&owners) {
        assert!(
            release(store, owner).is_released() && !is_locked(store, name),
            "the lock of the key {name:?} cannot be released"
        );
    }
}

/// A store that names the holder of a lock names the right one.
pub fn a_named_holder_is_the_right_one(store: &dyn Backend, _: &ContractHooks) {
    let owner = id();
    let grant = take(store, "k", &owner, LONG);
    let AcquireOutcome::Locked(holder) = acquire(store, "k", &id(), LONG) else {
        panic!("two lock ids hold one key at the same time");
    };
    let Some(holder) = holder else {
        return;
    };
    let known = found(store, "k").info();
    assert!(
        holder.fence.is_none_or(|fence| fence == grant.fence),
        "Locked names another fence than the holder's"
    );
    assert!(
        holder
            .lock_id_hash
            .is_none_or(|hash| hash == known.lock_id_hash),
        "Locked names another hash than that of the holder's lock id"
    );
    assert!(
        holder.remaining.is_none_or(|left| left <= LONG),
        "Locked names more time than the holder's lease has"
    );
}

/// Every grant of a key has a larger fence than the grants before it, also after a release, an expiry and a purge.
pub fn fences_grow(store: &dyn Backend, hooks: &ContractHooks) {
    if !store.capabilities().supports_fencing {
        return;
    }
    let mut last = 0;
    let mut grown = |fence: u64, after: &str| {
        assert!(
            fence > last,
            "after {after} the fence was {fence}; the grant before it had {last}"
        );
        last = fence;
    };
    for _ in 0..3 {
        let owner = id();
        let fence = take(store, "k", &owner, LONG).fence;
        grown(fence.get(), "a release");
        let _ = extend(store, &owner, LONG);
        assert_eq!(
            found(store, "k").fence,
            fence,
            "an extend changed the fence of a lock"
        );
        let _ = release(store, &owner);
    }
    let fence = expired(store, hooks, "k", Duration::ZERO).fence.get();
    grown(fence, "a release");
    let more = Duration::from_millis(CLEANUP_GUARD_MS.unsigned_abs());
    let fence = expired(store, hooks, "k", more).fence.get();
    grown(fence, "an expiry");
    if let Err(error) = store.purge_expired(100, &Call::new()) {
        panic!("purge_expired failed, though nothing was wrong: {error}");
    }
    let fence = take(store, "k", &id(), LONG).fence.get();
    grown(fence, "a purge");
}

/// An acquire that is repeated with its own lock id answers the same grant, and changes neither the fence nor the lease.
pub fn the_same_id_again_answers_the_stored_grant(store: &dyn Backend, hooks: &ContractHooks) {
    let owner = id();
    let first = take(store, "k", &owner, LONG);
    hooks.pass(Duration::from_millis(20));
    let AcquireOutcome::Acquired(again) = acquire(store, "k", &owner, LONG * 2) else {
        panic!(
            "an acquire that repeats a granted one answered Locked: a caller that did not hear the first answer never learns \
             that it holds the lock"
        );
    };
    assert_eq!(
        again, first,
        "an acquire that repeats a granted one must answer the stored grant"
    );
    assert_eq!(
        found(store, "k").expires_at_ms,
        first.expires_at_ms,
        "an acquire that repeats a granted one must not change the lease"
    );
}

/// A release with another lock id answers `Absent` and removes nothing.
pub fn only_the_owner_releases(store: &dyn Backend, _: &ContractHooks) {
    let owner = id();
    let _ = take(store, "k", &owner, LONG);
    let before = found(store, "k");
    for other in [id(), id()] {
        assert!(
            matches!(release(store, &other), ReleaseOutcome::Absent(_)),
            "a release with a lock id that holds nothing answered Released"
        );
    }
    let other = id();
    let _ = take(store, "other", &other, LONG);
    assert_eq!(
        release(store, &other),
        ReleaseOutcome::Released,
        "the owner of a live lock cannot release it"
    );
    assert!(
        find_by_id(store, &owner).is_some_and(|lock| lock == before),
        "a release with another lock id removed or changed a lock"
    );
}

/// The second release of a lock answers `Absent`, also when the key has a new holder, which keeps the lock.
pub fn a_release_succeeds_once(store: &dyn Backend, _: &ContractHooks) {
    let owner = id();
    let _ = take(store, "k", &owner, LONG);
    assert_eq!(
        release(store, &owner),
        ReleaseOutcome::Released,
        "the owner of a live lock cannot release it"
    );
    let again = "a lock was released twice";
    assert!(!release(store, &owner).is_released(), "{again}");
    let next = id();
    let _ = take(store, "k", &next, LONG);
    assert!(!release(store, &owner).is_released(), "{again}");
    assert_eq!(
        found(store, "k").lock_id,
        next,
        "an old lock id released the lock of the next holder"
    );
}

/// An extend with another lock id answers `Absent` and changes nothing.
pub fn only_the_owner_extends(store: &dyn Backend, _: &ContractHooks) {
    let owner = id();
    let _ = take(store, "k", &owner, LONG);
    let before = found(store, "k");
    assert!(
        matches!(extend(store, &id(), LONG * 2), ExtendOutcome::Absent(_)),
        "an extend with a lock id that holds nothing answered Extended"
    );
    assert_eq!(
        found(store, "k"),
        before,
        "an extend with another lock id changed a lock"
    );
}
