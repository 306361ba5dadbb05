//! Tests lock ids that are wrong or that belong to another lock.

use super::*;
use syncguard::testkit::Verb;
use syncguard::{Absence, Call, ExtendOutcome, LockId, ReleaseOutcome, Ttl};

#[test]
fn row_21_texts_that_are_no_lock_ids() {
    let client = Store::memory().client;
    for bad in [
        "",
        "short",
        "AAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAA+",
        "AAAAAAAAAAAAAAAAAAAAA/",
        "AAAAAAAAAAAAAAAAAAAAA=",
        "AAAAAAAAAAAAAAAAAAAAA ",
        "AAAAAAAAAAAAAAAAAAAAé",
        "ああああああああああああああああああああああ",
        "AAAAAAAAAAAAAAAAAAAAA\0",
    ] {
        for error in [
            refused(LockId::parse(bad)),
            refused(client.get_by_id(bad)),
            refused(client.get_by_id_raw(bad)),
            refused(client.owns(bad)),
        ] {
            assert!(bad.is_empty() || !format!("{error:?}").contains(bad));
        }
    }
}

#[test]
fn row_22_an_id_that_holds_nothing() {
    for store in stores() {
        let client = &store.client;
        let released = take(client, "k");
        assert!(released.release().expect("an answer").is_released());
        let (mine, others) = (take(client, "k"), take(client, "other"));
        let unknown = LockId::random().expect("randomness");
        let ttl = Ttl::new(TTL).expect("a ttl");
        for id in [&unknown, released.lock_id()] {
            assert_eq!(
                client.release(id, &Call::new()).expect("an answer"),
                ReleaseOutcome::Absent(Absence::NotFound)
            );
            assert_eq!(
                client.extend(id, ttl, &Call::new()).expect("an answer"),
                ExtendOutcome::Absent(Absence::NotFound)
            );
            assert!(!client.owns(id.as_str()).expect("an answer"));
        }
        // The id of another key releases that one and not this.
        assert!(others.release().expect("an answer").is_released());
        let seen = client.get_by_key("k").expect("an answer");
        let seen = seen.expect("a live lock");
        assert_eq!(
            (seen.fence, seen.expires_at_ms),
            (mine.fence(), mine.expires_at_ms())
        );
    }
}

#[test]
fn row_23_release_twice_and_extend_afterwards() {
    let kit = kit();
    let guard = kit.lock_with(LockOptions::new());
    assert!(guard.release().expect("an answer").is_released());
    for _ in 0..3 {
        assert!(!guard.release().expect("an answer").is_released());
        assert!(!guard.extend(TTL).expect("an answer").is_extended());
    }
    drop(guard);
    assert_eq!(
        (
            kit.store.calls(Verb::Release),
            kit.store.calls(Verb::Extend)
        ),
        (1, 0),
        "what is known needs no request"
    );
    for store in stores() {
        let guard = take(&store.client, "k");
        assert!(guard.release().expect("an answer").is_released());
        assert!(!guard.release().expect("an answer").is_released());
        assert!(!guard.extend(TTL).expect("an answer").is_extended());
    }
}
