//! The Postgres store against real servers: the verbs, the tables it shares with the TypeScript library, and set-up.
#![cfg(feature = "postgres")]

#[path = "support/postgres.rs"]
mod support;

use std::time::Duration;

use support::{Bouncer, Server};
use syncguard::*;

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

fn id() -> LockId {
    LockId::random().expect("an id")
}

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).expect("a ttl")
}

fn store(server: &Server, schema: &str) -> PostgresBackend {
    let store = server.open(&ClientOptions::new().schema(schema));
    store.setup_schema(None).expect("set-up");
    store
}

fn grant(outcome: AcquireOutcome) -> Acquired {
    match outcome {
        AcquireOutcome::Acquired(grant) => grant,
        AcquireOutcome::Locked(holder) => panic!("locked by {holder:?}"),
    }
}

fn take(store: &PostgresBackend, name: &str, ms: u64) -> Acquired {
    grant(
        store
            .acquire(&key(name), &id(), ttl(ms), None)
            .expect("an answer"),
    )
}

#[test]
fn a_lock_lives_as_the_contract_says() {
    let server = Server::shared();
    let store = store(&server, "life");
    let first = take(&store, "job:1", 30_000);
    assert_eq!(first.fence.get(), 1);
    match store
        .acquire(&key("job:1"), &id(), ttl(1000), None)
        .expect("an answer")
    {
        AcquireOutcome::Locked(Some(holder)) => {
            assert_eq!(holder.lock_id_hash, Some(first.lock_id.hash()));
            assert_eq!(holder.fence, Some(first.fence));
            let left = holder.remaining.expect("what remains");
            assert!(left > Duration::from_secs(10) && left <= Duration::from_secs(30));
        }
        other => panic!("{other:?}"),
    }
    // The answer was lost: the same id again has the stored grant.
    let again = store
        .acquire(&key("job:1"), &first.lock_id, ttl(5), None)
        .expect("an answer");
    assert_eq!(grant(again), first);
    assert!(store.is_locked(&key("job:1"), None).expect("an answer"));
    for by in [
        LookupBy::Key(&key("job:1")),
        LookupBy::LockId(&first.lock_id),
    ] {
        let found = store.find(by, None).expect("an answer").expect("a lock");
        assert_eq!(
            (found.key.as_str(), found.lock_id, found.fence),
            ("job:1", first.lock_id, first.fence)
        );
        assert_eq!(found.expires_at_ms, first.expires_at_ms);
        assert_eq!(found.acquired_at_ms, first.expires_at_ms - 30_000);
    }
    match store
        .extend(&first.lock_id, ttl(60_000), None)
        .expect("an answer")
    {
        ExtendOutcome::Extended(at) => assert!(at >= first.expires_at_ms + 30_000),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        store.extend(&id(), ttl(1), None).expect("an answer"),
        ExtendOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        store.release(&id(), None).expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert!(
        store
            .release(&first.lock_id, None)
            .expect("an answer")
            .is_released()
    );
    assert_eq!(
        store.release(&first.lock_id, None).expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert!(!store.is_locked(&key("job:1"), None).expect("an answer"));
    assert!(
        store
            .find(LookupBy::Key(&key("job:1")), None)
            .expect("an answer")
            .is_none()
    );
    assert_eq!(take(&store, "job:1", 1).fence.get(), 2);
    assert_eq!(store.capabilities().backend, "postgres");
}
