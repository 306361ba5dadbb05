//! The locks of the adapter are those of the built-in driver. For each adapter, whose `support` makes servers and stores.

use std::time::Duration;

use crate::support::Setup;
use crate::support::common::proxy::Mode;
use syncguard::{
    AcquireOutcome, Backend, Call, Client, ErrorCode, Fence, FenceSource, HolderText, Key,
    ListOptions, LockId, LookupBy, Ttl,
};

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

fn id() -> LockId {
    LockId::random().expect("an id")
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(60)).expect("a ttl")
}

fn call() -> Call<'static> {
    Call::new().within(Duration::from_secs(20))
}

fn take(store: &dyn Backend, name: &str, id: &LockId) -> Fence {
    match store.acquire(&key(name), id, ttl(), &call()) {
        Ok(AcquireOutcome::Acquired(grant)) => grant.fence,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn a_lock_of_either_driver_is_seen_released_and_extended_by_the_other() {
    let setup = Setup::start();
    let (own, built_in) = (setup.store(4), setup.near());
    let stores: [&dyn Backend; 2] = [&own, &built_in];
    let mut fence = 0;
    for (taker, other) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
        let (taker, other) = (stores[taker], stores[other]);
        let mine = id();
        let grant = take(taker, "k", &mine);
        fence += 1;
        assert_eq!(grant.get(), fence, "one counter");
        let refused = other.acquire(&key("k"), &id(), ttl(), &call());
        let Ok(AcquireOutcome::Locked(Some(holder))) = refused else {
            panic!("not refused: {refused:?}");
        };
        assert_eq!(
            (holder.fence, holder.lock_id_hash),
            (Some(grant), Some(mine.log_hash()))
        );
        let found = |store: &dyn Backend| store.find(LookupBy::LockId(&mine), &call());
        assert_eq!(
            found(taker).expect("an answer"),
            found(other).expect("an answer")
        );
        assert!(found(other).expect("an answer").is_some());
        assert!(
            other
                .extend(&mine, ttl(), &call())
                .expect("an answer")
                .is_extended()
        );
        assert!(
            other
                .release(&mine, &call())
                .expect("an answer")
                .is_released()
        );
        assert!(!taker.is_locked(&key("k"), &call()).expect("an answer"));
    }
}

#[test]
fn holders_texts_lists_and_fences_of_the_clock_are_shared() {
    let setup = Setup::start();
    let (own, built_in) = (setup.store(4), setup.near());
    let text = HolderText::new("it's build-7\\nightly").expect("a text");
    let mine = id();
    let outcome = own.acquire(&key("listed:a/\"b\""), &mine, ttl(), &call().held_by(&text));
    assert!(
        matches!(outcome, Ok(AcquireOutcome::Acquired(_))),
        "{outcome:?}"
    );
    let theirs = id();
    take(&built_in, "listed:c", &theirs);
    for store in [&own as &dyn Backend, &built_in] {
        let refused = store.acquire(&key("listed:a/\"b\""), &id(), ttl(), &call());
        let Ok(AcquireOutcome::Locked(Some(holder))) = refused else {
            panic!("not refused: {refused:?}");
        };
        assert_eq!(holder.text(), Some(text.as_str()));
        let mut options = ListOptions::new().prefix("listed:").examine(1);
        let mut listed = Vec::new();
        loop {
            let page = store.list(&options, &call()).expect("a page");
            listed.extend(page.locks.into_iter().map(|lock| lock.key));
            match page.next {
                Some(cursor) => options = options.after(cursor),
                None => break,
            }
        }
        listed.sort();
        listed.dedup();
        assert_eq!(listed, ["listed:a/\"b\"", "listed:c"]);
    }
    let by_clock = setup.store(2).with_fences(FenceSource::Clock);
    let first = take(&by_clock, "clock", &id());
    assert!(first.get() > 1_700_000_000_000, "{first}");
    assert!(by_clock.capabilities().fence_source == FenceSource::Clock);
}

/// A client over the adapter does all that a client does: it renews, waits, and releases by drop.
#[test]
fn a_client_keeps_its_lock_and_the_next_one_gets_it() {
    let setup = Setup::start();
    let client = Client::from_backend(setup.store(4));
    let options = syncguard::LockOptions::new().ttl(Duration::from_secs(1));
    let guard = client.lock_with("k", &options).expect("a free lock");
    let lease = guard.expires_at_ms();
    let begun = std::time::Instant::now();
    while guard.expires_at_ms() == lease {
        assert!(begun.elapsed() < Duration::from_secs(20), "never renewed");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!guard.is_lost() && setup.near().try_lock("k").expect("an answer").is_none());
    let other = setup.near();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.lock("k").map(|guard| guard.fence()));
        drop(guard);
        assert_eq!(waiter.join().expect("no panic").expect("the lock").get(), 2);
    });
    assert!(other.try_lock("k").expect("an answer").is_some());
}

/// An acquire that the network delivers after its caller has left is refused by the server.
#[test]
fn a_late_acquire_is_refused_by_the_server() {
    let setup = Setup::start();
    let (own, near) = (setup.store(2), setup.near());
    take(&own, "warm", &id());
    setup.proxy.set(Mode::Hold);
    let limited = Call::new().within(Duration::from_millis(300));
    let error = own
        .acquire(&key("late"), &id(), ttl(), &limited)
        .expect_err("the network holds it back");
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    assert!(error.may_have_applied());
    // The server's clock has passed the time of the call for certain.
    std::thread::sleep(Duration::from_millis(1_500));
    let before = setup.proxy.counts().from_server;
    setup.proxy.set(Mode::Pass);
    setup.proxy.wait_for(|counts| counts.from_server > before);
    assert!(
        !near.is_locked("late").expect("an answer"),
        "it was granted"
    );
    // The connection is in step: what it is asked next is answered.
    for n in 0..4 {
        let name = format!("next:{n}");
        take(&own, &name, &id());
        assert!(near.is_locked(name).expect("an answer"));
    }
}
