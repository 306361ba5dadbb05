//! The verbs of the store in memory: what each does to the stored locks at a given time. It uses `fault`, `backend` and `types`.

use std::collections::{HashMap, VecDeque};

use super::fault::{Fault, Verb};
use crate::backend::list::{ListCursor, ListPage, ListRequest};
use crate::backend::{Absence, AcquireOutcome, ExtendOutcome, Freed, LookupBy, ReleaseOutcome};
use crate::types::error::LockError;
use crate::types::fence::Fence;
use crate::types::holder::Holder;
use crate::types::holder_text::HolderText;
use crate::types::key::Key;
use crate::types::liveness::{CLEANUP_GUARD_MS, is_live};
use crate::types::lock_id::LockId;
use crate::types::stored_lock::{Acquired, StoredLock};
use crate::types::ttl::Ttl;

/// Everything that changes: the stored locks, the faults to come, the calls so far, the watchers.
#[derive(Default)]
pub(super) struct MemoryState {
    pub(super) locks: HashMap<Key, StoredLock>,
    ids: HashMap<LockId, Key>,
    pub(super) fences: HashMap<Key, i64>,
    pub(super) once: HashMap<Verb, VecDeque<Fault>>,
    pub(super) always: HashMap<Verb, Fault>,
    pub(super) calls: HashMap<Verb, u64>,
    pub(super) watchers: HashMap<u64, Freed>,
    pub(super) last_watcher: u64,
}

impl MemoryState {
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(lock) = self.locks.remove(key) {
            self.ids.remove(&lock.lock_id);
        }
    }

    /// The key of the lock with this id, if the id is its owner's.
    fn owned_key(&self, id: &LockId) -> Option<Key> {
        let key = self.ids.get(id)?;
        let is_owner = self.locks.get(key).is_some_and(|lock| lock.lock_id == *id);
        is_owner.then(|| key.clone())
    }

    pub(super) fn acquire(
        &mut self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        holder: Option<&HolderText>,
        now: i64,
    ) -> Result<AcquireOutcome, LockError> {
        if let Some(held) = self.find(LookupBy::Key(key), now) {
            if held.lock_id == *lock_id {
                return Ok(AcquireOutcome::Acquired(Acquired::new(
                    *lock_id,
                    held.fence,
                    held.expires_at_ms,
                )));
            }
            let holder = Holder::with_left(
                Some(held.lock_id.log_hash()),
                Some(held.fence),
                held.expires_at_ms.saturating_sub(now),
            )
            .saying(held.holder);
            return Ok(AcquireOutcome::Locked(Some(holder)));
        }
        let counter = self.fences.get(key).copied().unwrap_or(0);
        let fence = Fence::after(counter)?;
        self.fences.insert(key.clone(), counter + 1);
        self.remove(key);
        let expires_at_ms = now + ttl.as_millis();
        self.locks.insert(
            key.clone(),
            StoredLock::new(key.as_str(), *lock_id, fence, expires_at_ms, now)
                .saying(holder.and_then(|text| HolderText::read(text.as_str()))),
        );
        self.ids.insert(*lock_id, key.clone());
        Ok(AcquireOutcome::Acquired(Acquired::new(
            *lock_id,
            fence,
            expires_at_ms,
        )))
    }

    pub(super) fn release(&mut self, lock_id: &LockId, now: i64) -> ReleaseOutcome {
        let Some(key) = self.owned_key(lock_id) else {
            return ReleaseOutcome::Absent(Absence::NotFound);
        };
        if self.find(LookupBy::Key(&key), now).is_none() {
            return ReleaseOutcome::Absent(Absence::Expired);
        }
        self.remove(&key);
        ReleaseOutcome::Released
    }

    pub(super) fn extend(&mut self, lock_id: &LockId, ttl: Ttl, now: i64) -> ExtendOutcome {
        let key = self.owned_key(lock_id);
        let Some(lock) = key.and_then(|key| self.locks.get_mut(&key)) else {
            return ExtendOutcome::Absent(Absence::NotFound);
        };
        if !is_live(lock.expires_at_ms, now) {
            return ExtendOutcome::Absent(Absence::Expired);
        }
        lock.expires_at_ms = now + ttl.as_millis();
        ExtendOutcome::Extended(lock.expires_at_ms)
    }

    /// The live lock.
    pub(super) fn find(&self, by: LookupBy<'_>, now: i64) -> Option<StoredLock> {
        let lock = match by {
            LookupBy::Key(key) => self.locks.get(key),
            LookupBy::LockId(id) => self.locks.get(&self.owned_key(id)?),
        };
        lock.filter(|lock| is_live(lock.expires_at_ms, now))
            .cloned()
    }

    /// Live locks in the order of their keys.
    pub(super) fn list(
        &self,
        request: &ListRequest<'_>,
        now: i64,
    ) -> Result<ListPage<StoredLock>, LockError> {
        let after = request.after.map(ListCursor::key).transpose()?;
        let mut keys: Vec<_> = self.locks.keys().map(Key::as_str).collect();
        keys.retain(|key| after.is_none_or(|after| *key > after));
        keys.sort_unstable();
        let more = keys.len() > request.examine as usize;
        keys.truncate(request.examine as usize);
        let next = keys.last().filter(|_| more).copied();
        let live = |lock: &&StoredLock| {
            is_live(lock.expires_at_ms, now) && lock.key.starts_with(&request.prefix)
        };
        let mut locks: Vec<_> = self
            .locks
            .values()
            .filter(|lock| keys.binary_search(&lock.key.as_str()).is_ok())
            .filter(live)
            .cloned()
            .collect();
        locks.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(ListPage::new(locks, next.map(ListCursor::after_key)))
    }

    pub(super) fn purge_expired(&mut self, limit: u32, now: i64) -> u64 {
        let dead = self
            .locks
            .iter()
            .filter(|(_, lock)| lock.expires_at_ms < now - CLEANUP_GUARD_MS);
        let keys: Vec<Key> = dead
            .take(limit as usize)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            self.remove(key);
        }
        keys.len() as u64
    }
}
