//! Tests a client over a store that has no fencing and no clock of its own, as some services are.

use std::sync::{Arc, Mutex};

use crate::support::eventually;
use syncguard::testkit::MemoryBackend;
use syncguard::{
    AcquireOutcome, Acquired, Backend, Call, Capabilities, Client, ClientOptions, ExtendOutcome,
    Fence, Key, LockError, LockId, LookupBy, ReleaseOutcome, StoredLock, TimeAuthority, Ttl,
};

struct WeakStore(MemoryBackend);

impl Backend for WeakStore {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        Ok(match self.0.acquire(key, lock_id, ttl, call)? {
            AcquireOutcome::Acquired(grant) => AcquireOutcome::Acquired(Acquired::new(
                grant.lock_id,
                Fence::NONE,
                grant.expires_at_ms,
            )),
            locked => locked,
        })
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        self.0.release(lock_id, call)
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        self.0.extend(lock_id, ttl, call)
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        self.0.is_locked(key, call)
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        self.0.find(by, call)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("weak")
            .without_fencing()
            .with_time_authority(TimeAuthority::Client)
    }
}

#[test]
fn its_locks_work_and_their_fence_is_none() {
    let client = Client::from_backend(WeakStore(MemoryBackend::new()));
    let capabilities = client.capabilities();
    assert!(!capabilities.supports_fencing);
    assert_eq!(capabilities.time_authority, TimeAuthority::Client);

    let guard = client.lock("k").expect("a free lock");
    assert!(guard.fence().is_none() && !guard.is_lost());
    assert!(client.try_lock("k").expect("an answer").is_none());
    guard.release().expect("an answer").expect_released();
    let again = client.lock("k").expect("a free lock");
    assert_eq!(again.fence(), Fence::NONE);
}

#[test]
fn check_warns_of_what_it_cannot_promise() {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hook = Arc::clone(&heard);
    let options = ClientOptions::new().on_warning(move |text| {
        let mut heard = hook.lock().unwrap_or_else(|e| e.into_inner());
        heard.push(text.to_owned());
    });
    let store = WeakStore(MemoryBackend::new());
    let client = Client::from_backend_with(store, &options).expect("legal options");
    let warnings = client.check().expect("a sound store").warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("no fences") && warnings[1].contains("clocks of the clients"));
    eventually("the hook", || {
        heard.lock().is_ok_and(|heard| *heard == warnings)
    });

    // A client over that client says each of them once.
    let over = Client::from_backend_with(client, &options).expect("legal options");
    assert_eq!(over.check().expect("a sound store").warnings, warnings);

    let sound = Client::from_backend(MemoryBackend::new());
    assert!(sound.check().expect("a sound store").warnings.is_empty());
}
