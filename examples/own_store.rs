//! A store of your own: locks between the threads of one process. Run it with `cargo run --example own_store`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use syncguard::*;

/// Locks in a map.
pub struct Local {
    start: Instant,
    state: Mutex<State>,
}

/// What the threads share.
#[derive(Default)]
pub struct State {
    locks: HashMap<Key, Lease>,
    fences: HashMap<Key, i64>,
}

struct Lease {
    id: LockId,
    fence: Fence,
    acquired: i64,
    expires: i64,
}

impl Local {
    /// A store without a lock.
    pub fn open() -> Self {
        Self {
            start: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// The state, once no other thread uses it. The deadline of the call ends the wait, and so does a cancel.
    pub fn state(&self, call: &Call<'_>) -> Result<MutexGuard<'_, State>, LockError> {
        // Nothing has changed yet, and the error says so: the client need not undo the call.
        call.check().map_err(LockError::nothing_applied)?;
        loop {
            match self.state.try_lock() {
                Ok(state) => return Ok(state),
                Err(TryLockError::Poisoned(state)) => return Ok(state.into_inner()),
                Err(TryLockError::WouldBlock) => call
                    .sleep(Duration::from_millis(1))
                    .map_err(LockError::nothing_applied)?,
            }
        }
    }

    fn now(&self) -> i64 {
        self.start.elapsed().as_millis() as i64
    }
}

impl Backend for Local {
    fn acquire(
        &self,
        key: &Key,
        id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let State { locks, fences } = &mut *self.state(call)?;
        let now = self.now();
        if let Some(held) = locks.get(key).filter(|l| is_live(l.expires, now)) {
            return Ok(if held.id == *id {
                AcquireOutcome::Acquired(Acquired::new(*id, held.fence, held.expires))
            } else {
                AcquireOutcome::Locked(None)
            });
        }
        let counter = fences.entry(key.clone()).or_insert(0);
        let fence = Fence::after(*counter)?; // checked before anything is written
        *counter += 1;
        let expires = now + ttl.as_millis();
        locks.insert(
            key.clone(),
            Lease {
                id: *id,
                fence,
                acquired: now,
                expires,
            },
        );
        Ok(AcquireOutcome::Acquired(Acquired::new(*id, fence, expires)))
    }

    fn release(&self, id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        let State { locks, .. } = &mut *self.state(call)?;
        let Some(key) = locks
            .iter()
            .find(|(_, l)| l.id == *id)
            .map(|(k, _)| k.clone())
        else {
            return Ok(ReleaseOutcome::Absent(Absence::NotFound));
        };
        let live = locks
            .remove(&key)
            .is_some_and(|l| is_live(l.expires, self.now()));
        Ok(if live {
            ReleaseOutcome::Released
        } else {
            ReleaseOutcome::Absent(Absence::Expired)
        })
    }

    fn extend(&self, id: &LockId, ttl: Ttl, call: &Call<'_>) -> Result<ExtendOutcome, LockError> {
        let State { locks, .. } = &mut *self.state(call)?;
        let now = self.now();
        match locks.values_mut().find(|l| l.id == *id) {
            None => Ok(ExtendOutcome::Absent(Absence::NotFound)),
            Some(l) if !is_live(l.expires, now) => Ok(ExtendOutcome::Absent(Absence::Expired)),
            Some(l) => {
                l.expires = now + ttl.as_millis();
                Ok(ExtendOutcome::Extended(l.expires))
            }
        }
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let State { locks, .. } = &*self.state(call)?;
        Ok(locks
            .get(key)
            .is_some_and(|l| is_live(l.expires, self.now())))
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let State { locks, .. } = &*self.state(call)?;
        let found = match by {
            LookupBy::Key(key) => locks.get_key_value(key),
            LookupBy::LockId(id) => locks.iter().find(|(_, l)| l.id == *id),
        };
        Ok(found
            .filter(|(_, l)| is_live(l.expires, self.now()))
            .map(|(key, l)| StoredLock::new(key.as_str(), l.id, l.fence, l.expires, l.acquired)))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("local")
    }
}

fn main() -> Result<(), LockError> {
    let client = Client::from_backend(Local::open());
    let guard = client.lock("report")?;
    assert_eq!(guard.fence().get(), 1);
    assert!(client.try_lock("report")?.is_none());
    Ok(())
}
