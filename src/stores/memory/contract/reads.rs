//! The rules about what looks at locks and keeps the store in order. It uses `hooks`, `steps`, `backend` and `types`.

use std::time::Duration;

use super::hooks::ContractHooks;
use super::steps::{LONG, expired, find, find_by_id, found, id, is_locked, key, take};
use crate::backend::call::Call;
use crate::backend::{Backend, LookupBy};
use crate::types::liveness::CLEANUP_GUARD_MS;

/// `is_locked`, `find` and `lookup` leave a lock, its lease and a free key as they were.
pub fn reads_change_nothing(store: &dyn Backend, hooks: &ContractHooks) {
    let look = |name: &str| {
        let locked = is_locked(store, name);
        let _ = find(store, name);
        let _ = store.lookup(LookupBy::Key(&key(name)), &Call::new());
        assert_eq!(
            is_locked(store, name),
            locked,
            "is_locked changed its answer though only reads were made"
        );
    };
    look("k");
    let owner = id();
    let _ = take(store, "k", &owner, LONG);
    let before = found(store, "k");
    // A read that renewed the lease would now set another end.
    hooks.pass(Duration::from_millis(20));
    look("k");
    let _ = find_by_id(store, &owner);
    assert_eq!(
        find(store, "k"),
        Some(before),
        "a read changed or removed the lock that it looked at"
    );
    let _ = expired(store, hooks, "dead", Duration::ZERO);
    look("dead");
    let _ = take(store, "dead", &id(), LONG);
}

/// `find` by key and by lock id answer the same lock, and `lookup` answers it with hashes in place of the key and the lock id.
pub fn lookups_agree(store: &dyn Backend, _: &ContractHooks) {
    let owner = id();
    let grant = take(store, "secret:1", &owner, LONG);
    let lock = found(store, "secret:1");
    assert!(
        lock.key == "secret:1" && lock.lock_id == owner,
        "find must answer the key and the lock id as they were given"
    );
    assert_eq!(
        (lock.fence, lock.expires_at_ms),
        (grant.fence, grant.expires_at_ms),
        "find must answer the grant"
    );
    assert_eq!(
        find_by_id(store, &owner).as_ref(),
        Some(&lock),
        "find by lock id must answer the same lock as find by key"
    );
    for by in [LookupBy::Key(&key("secret:1")), LookupBy::LockId(&owner)] {
        let seen = store.lookup(by, &Call::new());
        assert_eq!(
            seen.ok().flatten(),
            Some(lock.info()),
            "lookup must answer the lock that find answers, with hashes"
        );
    }
    assert_eq!(
        find(store, "missing"),
        None,
        "find answers a lock for a key that nothing has taken"
    );
    assert_eq!(
        find_by_id(store, &id()),
        None,
        "find answers a lock for a lock id that holds nothing"
    );
}

/// A purge removes no live lock and no fence counter, and says how many locks it removed.
pub fn a_purge_removes_only_expired_locks(store: &dyn Backend, hooks: &ContractHooks) {
    let _ = take(store, "live", &id(), LONG);
    let live = found(store, "live");
    let more = Duration::from_millis(CLEANUP_GUARD_MS.unsigned_abs());
    let dead = expired(store, hooks, "dead", more);
    let mut purged = 0;
    for _ in 0..2 {
        match store.purge_expired(100, &Call::new()) {
            Ok(count) => purged += count,
            Err(error) => panic!("purge_expired failed, though nothing was wrong: {error}"),
        }
    }
    assert!(
        purged <= 1,
        "one lock has expired, and the purges say that they removed {purged}"
    );
    assert_eq!(
        find(store, "live"),
        Some(live),
        "a purge removed or changed a live lock"
    );
    let next = take(store, "dead", &id(), LONG);
    assert!(
        !store.capabilities().supports_fencing || next.fence > dead.fence,
        "a purge removed a fence counter: the next grant has no larger fence"
    );
}

/// `setup_schema` and `check` succeed again on a store with locks, and change none of them.
pub fn setup_and_check_can_be_repeated(store: &dyn Backend, _: &ContractHooks) {
    assert!(
        !store.capabilities().backend.is_empty(),
        "a store has a name"
    );
    let _ = take(store, "k", &id(), LONG);
    let before = found(store, "k");
    for _ in 0..2 {
        if let Err(error) = store.setup_schema(&Call::new()) {
            panic!("setup_schema failed on a store that is set up: {error}");
        }
        if let Err(error) = store.check(&Call::new()) {
            panic!("check failed on a store that works: {error}");
        }
    }
    assert_eq!(
        find(store, "k"),
        Some(before),
        "setup_schema or check changed a lock"
    );
}
