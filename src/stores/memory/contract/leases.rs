//! The rules about time: how long a lease lasts, what an extend does to it, and what is left after it. It uses `hooks`, `steps`,
//! `backend` and `types`.

use std::time::{Duration, Instant};

use super::hooks::ContractHooks;
use super::steps::{
    LONG, TOLERANCE, acquire, expired, extend, find, find_by_id, found, id, is_locked, release,
    take,
};
use crate::backend::{AcquireOutcome, Backend, ExtendOutcome};
use crate::types::lock_id::LockId;

#[track_caller]
fn extended(store: &dyn Backend, id: &LockId, lease: Duration) -> i64 {
    match extend(store, id, lease) {
        ExtendOutcome::Extended(until) => until,
        ExtendOutcome::Absent(_) => panic!("the owner of a live lock cannot extend it"),
    }
}

/// The lease ends one TTL after the extend, whether that is later or earlier than before.
pub fn an_extend_replaces_the_lease(store: &dyn Backend, _: &ContractHooks) {
    let owner = id();
    let first = take(store, "k", &owner, LONG).expires_at_ms;
    let half = i64::try_from(LONG.as_millis() / 2).unwrap_or(i64::MAX);
    let longer = extended(store, &owner, LONG * 2);
    assert!(
        longer > first + half,
        "an extend by a longer TTL must move the end of the lease"
    );
    assert!(
        longer < first + 3 * half,
        "an extend must replace the lease: it was added to the time that was left"
    );
    let shorter = extended(store, &owner, LONG / 2);
    assert!(
        shorter < first,
        "an extend by a shorter TTL must replace the lease too"
    );
    assert_eq!(
        found(store, "k").expires_at_ms,
        shorter,
        "the stored lock must show the lease that extend answered"
    );
}

/// What `acquire` and `extend` answer is what `find` shows. The time of the grant stays.
pub fn times_are_those_of_one_clock(store: &dyn Backend, hooks: &ContractHooks) {
    let (owner, lease) = (id(), Duration::from_millis(123_456));
    let grant = take(store, "k", &owner, lease);
    let before = found(store, "k");
    assert_eq!(
        before.expires_at_ms, grant.expires_at_ms,
        "find shows another end of the lease than acquire answered"
    );
    assert_eq!(
        before.expires_at_ms - before.acquired_at_ms,
        123_456,
        "the lease must end one TTL after the time of the grant"
    );
    hooks.pass(Duration::from_millis(20));
    let until = extended(store, &owner, lease);
    let after = found(store, "k");
    assert_eq!(
        after.expires_at_ms, until,
        "find shows another end of the lease than extend answered"
    );
    assert!(
        until > before.expires_at_ms,
        "time passed, and the lease of an extend ends no later than that of the acquire: does the store read its clock?"
    );
    assert_eq!(
        after.acquired_at_ms, before.acquired_at_ms,
        "an extend must not change the time of the grant"
    );
}

/// A lock is held until its lease ends, and the verbs agree about the second of tolerance after it.
pub fn a_lease_lasts_its_time(store: &dyn Backend, hooks: &ContractHooks) {
    const LEASE: Duration = Duration::from_millis(1_500);
    const LOOK: Duration = Duration::from_millis(300);
    // A machine that slept through the time in question is asked again, on another key.
    let attempts = (0..10).map(|n| format!("k{n}"));
    let held = attempts.clone().any(|name| {
        let begun = Instant::now();
        let _ = take(store, &name, &id(), LEASE);
        hooks.pass(LOOK);
        let held = is_locked(store, &name)
            && matches!(
                acquire(store, &name, &id(), LONG),
                AcquireOutcome::Locked(_)
            );
        let in_time = begun.elapsed() < LEASE;
        assert!(
            held || !in_time,
            "a lock ended before its lease of {LEASE:?}"
        );
        in_time
    });
    assert!(held, "every look came after the end of the lease");
    let agreed = attempts.map(|name| name + "!").any(|name| {
        let (owner, begun) = (id(), Instant::now());
        let _ = take(store, &name, &owner, LOOK);
        hooks.pass(LOOK + LOOK);
        let locked = is_locked(store, &name);
        let extended = extend(store, &owner, LONG).is_extended();
        let taken = matches!(
            acquire(store, &name, &id(), LONG),
            AcquireOutcome::Locked(_)
        );
        // From the end of the lease to the end of the tolerance.
        let in_time = begun.elapsed() < LOOK + TOLERANCE;
        assert!(
            !in_time || (locked == extended && locked == taken),
            "in the second after the end of a lease is_locked says {locked}, extend succeeds: {extended}, and another caller \
             finds the key held: {taken}; a lock is alive for all verbs or for none"
        );
        in_time
    });
    assert!(agreed, "every look came after the tolerance");
}

/// After the lease and the tolerance every verb answers as if the lock did not exist, and the key can be taken.
pub fn an_expired_lock_is_absent(store: &dyn Backend, hooks: &ContractHooks) {
    let old = expired(store, hooks, "k", Duration::ZERO);
    assert!(
        !is_locked(store, "k"),
        "is_locked is true after the end of a lease"
    );
    assert_eq!(
        find(store, "k"),
        None,
        "find by key answers an expired lock"
    );
    assert_eq!(
        find_by_id(store, &old.lock_id),
        None,
        "find by lock id answers an expired lock"
    );
    assert!(
        !release(store, &old.lock_id).is_released(),
        "a release of an expired lock answered Released"
    );
    let AcquireOutcome::Acquired(_) = acquire(store, "k", &id(), LONG) else {
        panic!("a key cannot be taken after the lease of its holder has ended");
    };
}

/// An extend of an expired lock answers `Absent`, and the key stays free.
pub fn an_extend_revives_nothing(store: &dyn Backend, hooks: &ContractHooks) {
    let old = expired(store, hooks, "k", Duration::ZERO);
    for _ in 0..2 {
        assert!(
            !extend(store, &old.lock_id, LONG).is_extended(),
            "an extend revived an expired lock: another caller may hold it by now"
        );
    }
    assert!(
        !is_locked(store, "k"),
        "an extend that answered Absent locked the key again"
    );
}

/// The owner of an expired lock cannot release or extend the lock of the next holder.
pub fn an_old_owner_changes_nothing(store: &dyn Backend, hooks: &ContractHooks) {
    let old = expired(store, hooks, "k", Duration::ZERO);
    let next = id();
    let _ = take(store, "k", &next, LONG);
    let before = found(store, "k");
    assert!(
        !release(store, &old.lock_id).is_released(),
        "a release with the lock id of an expired lock answered Released"
    );
    assert!(
        !extend(store, &old.lock_id, LONG * 2).is_extended(),
        "an extend with the lock id of an expired lock answered Extended"
    );
    assert_eq!(
        find_by_id(store, &old.lock_id),
        None,
        "find answers a lock for the lock id of an expired one"
    );
    assert_eq!(
        find(store, "k"),
        Some(before),
        "the owner of an expired lock changed the lock of the next holder"
    );
}
