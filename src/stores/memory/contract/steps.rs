//! The steps that the checks are made of: each calls a verb, and panics if the verb fails. It uses `hooks`, `backend` and `types`.

use std::time::Duration;

use super::hooks::ContractHooks;
use crate::backend::call::Call;
use crate::backend::{AcquireOutcome, Backend, ExtendOutcome, LookupBy, ReleaseOutcome};
use crate::types::error::LockError;
use crate::types::key::Key;
use crate::types::liveness::TIME_TOLERANCE_MS;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::{Acquired, StoredLock};
use crate::types::ttl::Ttl;

/// A lease that outlasts every check.
pub(super) const LONG: Duration = Duration::from_secs(600);
/// A lease that a check lets end.
pub(super) const SHORT: Duration = Duration::from_millis(50);
/// Added where a check waits for an end: clocks count in whole milliseconds.
const SLACK: Duration = Duration::from_millis(200);

pub(super) const TOLERANCE: Duration = Duration::from_millis(TIME_TOLERANCE_MS as u64);

#[track_caller]
fn must<T>(verb: &str, answer: Result<T, LockError>) -> T {
    answer.unwrap_or_else(|error| panic!("{verb} failed, though nothing was wrong: {error}"))
}

pub(super) fn key(text: &str) -> Key {
    must("Key::new", Key::new(text))
}

pub(super) fn id() -> LockId {
    must("LockId::random", LockId::random())
}

pub(super) fn ttl(time: Duration) -> Ttl {
    must("Ttl::new", Ttl::new(time))
}

#[track_caller]
pub(super) fn acquire(
    store: &dyn Backend,
    name: &str,
    id: &LockId,
    lease: Duration,
) -> AcquireOutcome {
    let answer = store.acquire(&key(name), id, ttl(lease), &Call::new());
    must("acquire", answer)
}

/// Takes a key that must be free.
#[track_caller]
pub(super) fn take(store: &dyn Backend, name: &str, id: &LockId, lease: Duration) -> Acquired {
    match acquire(store, name, id, lease) {
        AcquireOutcome::Acquired(grant) => {
            assert_eq!(
                grant.lock_id, *id,
                "a grant carries the lock id of the caller"
            );
            grant
        }
        AcquireOutcome::Locked(_) => {
            panic!("acquire answered Locked for a key that must be free")
        }
    }
}

#[track_caller]
pub(super) fn release(store: &dyn Backend, id: &LockId) -> ReleaseOutcome {
    must("release", store.release(id, &Call::new()))
}

#[track_caller]
pub(super) fn extend(store: &dyn Backend, id: &LockId, lease: Duration) -> ExtendOutcome {
    must("extend", store.extend(id, ttl(lease), &Call::new()))
}

#[track_caller]
pub(super) fn is_locked(store: &dyn Backend, name: &str) -> bool {
    must("is_locked", store.is_locked(&key(name), &Call::new()))
}

#[track_caller]
pub(super) fn find(store: &dyn Backend, name: &str) -> Option<StoredLock> {
    must("find", store.find(LookupBy::Key(&key(name)), &Call::new()))
}

#[track_caller]
pub(super) fn find_by_id(store: &dyn Backend, id: &LockId) -> Option<StoredLock> {
    must("find", store.find(LookupBy::LockId(id), &Call::new()))
}

/// The stored lock of a key that must be held.
#[track_caller]
pub(super) fn found(store: &dyn Backend, name: &str) -> StoredLock {
    find(store, name).unwrap_or_else(|| panic!("find does not find a lock that is held"))
}

/// Takes `name` for a short lease and lets it end, with the tolerance and `more` time.
#[track_caller]
pub(super) fn expired(
    store: &dyn Backend,
    hooks: &ContractHooks,
    name: &str,
    more: Duration,
) -> Acquired {
    let grant = take(store, name, &id(), SHORT);
    hooks.pass(SHORT + TOLERANCE + SLACK + more);
    grant
}
