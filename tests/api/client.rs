//! Tests what a client takes and gives without an import of the trait underneath.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::support::WAIT_LIMIT;
use syncguard::testkit::{Fault, MemoryBackend, Verb};
use syncguard::{
    Call, CancelToken, Client, ClientOptions, ErrorCode, Key, LockOptions, LookupBy, ReleaseOrigin,
    hash_key,
};

fn client() -> Client {
    Client::from_backend(MemoryBackend::new())
}

#[test]
fn a_lock_is_named_by_a_text_or_by_a_key() {
    let client = client();
    let (key, owned) = (Key::new("k").expect("a key"), "k".to_owned());
    let options = LockOptions::new();
    for name in ["k", "k"].iter() {
        drop(client.lock(name).expect("a lock"));
    }
    drop(client.lock(&owned).expect("a lock"));
    drop(client.lock(owned.clone()).expect("a lock"));
    drop(client.lock(key.clone()).expect("a lock"));
    drop(client.lock_with(&key, &options).expect("a lock"));
    drop(client.try_lock(&key).expect("an answer").expect("a lock"));
    client.with_lock(owned, |_| ()).expect("a lock");
    let fence = client.with_lock_with(&key, &options, |guard| guard.fence());
    assert_eq!(fence.expect("a lock").get(), 9, "all took one lock");
    assert!(!client.is_waited_for(&key).expect("an answer"));
}

#[test]
fn a_key_is_neither_checked_nor_copied_again() {
    let client = client();
    let key = Key::new("k").expect("a key");
    let guard = client.lock(&key).expect("a lock");
    // Clones of a key share the text; a key that was made again would have another one.
    assert!(std::ptr::eq(guard.key().as_str(), key.as_str()));
}

#[test]
fn a_bad_name_is_refused_before_anything_is_sent() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let errors = [
        client.lock("").map(drop).expect_err("no key"),
        client
            .try_lock("a\0".to_owned())
            .map(drop)
            .expect_err("no key"),
        client.is_locked("").expect_err("no key"),
        client.get_by_key("").expect_err("no key"),
        client.get_by_id("short").expect_err("no id"),
        client.get_by_id_raw("short".to_owned()).expect_err("no id"),
        client.owns("short").expect_err("no id"),
    ];
    for error in errors {
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    }
    let verbs = [Verb::Acquire, Verb::IsLocked, Verb::Lookup];
    assert_eq!(verbs.map(|verb| store.calls(verb)), [0; 3]);
}

#[test]
fn diagnostics_are_methods_of_the_client() {
    let client = client();
    let guard = client.lock("k").expect("a lock");
    let id = guard.lock_id();
    assert!(client.is_locked("k").expect("an answer"));
    assert!(client.owns(id).expect("an answer"));
    let by_key = client.get_by_key("k").expect("an answer").expect("a lock");
    let by_id = client.get_by_id(*id).expect("an answer").expect("a lock");
    assert_eq!((&by_key, by_key.fence), (&by_id, guard.fence()));
    assert_eq!(by_key.key_hash, hash_key("k"));
    let raw = client.get_by_key_raw("k").expect("an answer");
    assert_eq!(raw.expect("a lock").lock_id, *id);
    let raw = client.get_by_id_raw(id.as_str()).expect("an answer");
    assert_eq!(raw.expect("a lock").key, "k");
    assert_eq!(client.purge_expired(10).expect("an answer"), 0);
    assert_eq!(client.capabilities().backend, "memory");
    client.setup_schema().expect("nothing to do");
}

#[test]
fn a_cancel_ends_every_diagnostic() {
    let client = client();
    let guard = client.lock("k").expect("a lock");
    let (id, token) = (guard.lock_id(), CancelToken::new());
    token.cancel();
    let call = Call::new().cancelled_by(&token);
    let errors = [
        client.is_locked_with("k", &call).map(drop),
        client.get_by_key_with("k", &call).map(drop),
        client.get_by_key_raw_with("k", &call).map(drop),
        client.get_by_id_with(id, &call).map(drop),
        client.get_by_id_raw_with(id, &call).map(drop),
        client.owns_with(id, &call).map(drop),
    ];
    for error in errors.map(|answer| answer.expect_err("cancelled")) {
        assert_eq!(error.code(), ErrorCode::Aborted, "{error}");
    }
}

#[test]
fn a_store_behind_a_pointer_is_a_store() {
    let boxed: Box<dyn syncguard::Backend> = Box::new(MemoryBackend::new());
    // Without it a waiter would not be called when a lock is freed, and the trait's default has none.
    let key = Key::new("k").expect("a key");
    assert!(boxed.watch(&key, Arc::new(|| ())).is_some());
    let client = Client::from_backend(boxed);
    let guard = client.lock("k").expect("a lock");
    assert!(client.is_locked("k").expect("an answer"));
    assert_eq!(client.capabilities().backend, "memory");
    guard.release().expect("an answer").expect_released();
}

/// The name of a type that threads may share and send.
fn shared<T: Send + Sync>() -> &'static str {
    std::any::type_name::<T>()
}

/// The names of types; the compiler checks each.
macro_rules! shared {
    ($($type:ty),+ $(,)?) => { vec![$(shared::<$type>()),+] };
}

/// The public types up to `ListRequest`.
fn types_to_listing() -> Vec<&'static str> {
    use syncguard::*;
    shared![
        Absence,
        AcquireOutcome,
        Acquired,
        Backoff,
        Call<'static>,
        CancelToken,
        Capabilities,
        CheckFinding,
        CheckLevel,
        CheckReport,
        CheckSubject,
        Checked,
        Client,
        ClientOptions,
        ConnectRequest<'static>,
        ErrorCode,
        EventReason,
        ExtendOutcome,
        FailedRelease,
        Fence,
        FenceSource,
        Guard,
        HelperCall,
        HelperThreads,
        Holder,
        HolderText,
        IncludeRaw,
        Jitter,
        Key,
        KeySpace,
        ListCursor,
        ListOptions,
        ListPage<LockInfo>,
        ListRequest<'static>,
    ]
}

/// The rest of them.
fn types_from_lock_error() -> Vec<&'static str> {
    use syncguard::*;
    use syncguard::{format, gate, testkit};
    shared![
        LockError,
        LockEvent,
        LockEventType,
        LockId,
        LockInfo,
        LockInfoDebug,
        LockOptions,
        LookupBy<'static>,
        LossReason,
        LostLock,
        OnCancel,
        PostgresBackend,
        RedisBackend,
        ReleaseOrigin,
        ReleaseOutcome,
        SqliteBackend,
        StoreClock,
        StoredLock,
        Telemetry<MemoryBackend>,
        TimeAuthority,
        TimedReply<u64>,
        Ttl,
        Turn,
        WaitEnd,
        Waiter,
        WaiterEvent,
        WaiterStep,
        format::postgres::Greeting,
        format::postgres::Param<'static>,
        format::postgres::PostgresStatements,
        format::postgres::Row,
        format::redis::Reply,
        gate::FenceGate<Vec<u8>>,
        gate::FencedRecord<Vec<u8>, u64>,
        gate::GateOutcome,
        gate::postgres::PostgresGate,
        Fault,
        testkit::ManualClock,
        MemoryBackend,
        Verb,
    ]
}

#[test]
fn threads_may_share_and_send_what_is_public() {
    // Sent, and used by one thread at a time.
    fn sent<T: Send>() {}
    sent::<syncguard::Watch>();
    let plain = |path: &str| {
        let path = path.split('<').next().unwrap_or_default();
        path.rsplit("::").next().unwrap_or_default().to_owned()
    };
    let all = [types_to_listing(), types_from_lock_error()].concat();
    let checked: BTreeSet<String> = all.into_iter().map(plain).collect();
    // Traits; a test holds the last two on its own thread, because their hooks are any closures.
    let others = [
        "Backend",
        "CompareAndSet",
        "GateStore",
        "IntoKey",
        "IntoLockId",
        "SchemaSession",
        "Watch",
        "ContractHooks",
        "ContractStore",
    ];
    let all = crate::surface::Surface::read().types();
    let rest: Vec<&String> = all.difference(&checked).collect();
    let mut expected = others.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(rest, expected.iter().collect::<Vec<_>>());
}

#[test]
fn two_ways_of_looking_can_be_compared() {
    let (a, b) = (Key::new("a").expect("a key"), Key::new("b").expect("a key"));
    assert_eq!(LookupBy::Key(&a), LookupBy::Key(&a.clone()));
    assert_ne!(LookupBy::Key(&a), LookupBy::Key(&b));
}

#[test]
fn a_failed_release_says_where_and_shows_no_secret() {
    let (tell, told) = mpsc::channel();
    let store = MemoryBackend::new();
    let options = ClientOptions::new()
        .dispose_timeout(Duration::from_millis(100))
        .on_release_error(move |failed| {
            let raw = (failed.key.as_str().to_owned(), failed.lock_id);
            drop(tell.send((failed.origin, raw, format!("{failed:?}"))));
        });
    let client = Client::from_backend_with(store.clone(), &options).expect("good options");
    store.always(Verb::Release, Fault::Refuse(ErrorCode::AuthFailed));
    let guard = client.lock("customer:Jane").expect("a lock");
    let id = *guard.lock_id();
    drop(guard);
    let (origin, raw, shown) = told.recv_timeout(WAIT_LIMIT).expect("the hook");
    assert_eq!(origin, ReleaseOrigin::Drop);
    assert_eq!(origin.to_string(), "drop");
    assert_eq!(raw, ("customer:Jane".to_owned(), id));
    assert!(shown.contains(&id.log_hash()), "{shown}");
    assert!(
        !shown.contains("Jane") && !shown.contains(id.as_str()),
        "{shown}"
    );
}
