//! Tests every promise of a store, as a case, on every store. A new store joins with a [`Store`] and a line at the end.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use crate::support::postgres::{Disguise, Server};
use crate::support::redis::RedisServer;
use crate::support::verbs::{self, id, key};
use crate::support::{WAIT_LIMIT, eventually};
use syncguard::{
    Absence, AcquireOutcome, Acquired, Backend, Call, CancelToken, Client, ClientOptions,
    ErrorCode, ExtendOutcome, IncludeRaw, LockEvent, LockId, LockOptions, LookupBy, ReleaseOutcome,
    TIME_TOLERANCE_MS, Ttl, hash_key,
};

/// A store of one kind, empty, for one case.
trait Store: Sized {
    /// Whether a lease outlives its expiry by the tolerance. Redis deletes at the TTL.
    const TOLERATES: bool = true;

    fn start() -> Self;

    /// Another client of the same store, set up.
    fn open(&self, options: &ClientOptions) -> Client;

    fn client(&self) -> Client {
        self.open(&verbs::patient())
    }
}

const LONG: Duration = Duration::from_secs(60);
/// A lease that a case waits out. Nothing else happens while it lasts.
const SHORT: Duration = Duration::from_millis(50);

fn ttl(duration: Duration) -> Ttl {
    Ttl::new(duration).expect("a legal ttl")
}

fn acquire(store: &impl Backend, name: &str, id: &LockId, lasts: Duration) -> AcquireOutcome {
    store
        .acquire(&key(name), id, ttl(lasts), &Call::new())
        .expect("an answer")
}

#[track_caller]
fn granted(outcome: AcquireOutcome) -> Acquired {
    match outcome {
        AcquireOutcome::Acquired(grant) => grant,
        AcquireOutcome::Locked(_) => panic!("another holder has it"),
    }
}

fn is_locked(store: &impl Backend, name: &str) -> bool {
    store
        .is_locked(&key(name), &Call::new())
        .expect("an answer")
}

/// Waits until a lease of [`SHORT`] is dead for every store.
fn outlive(store: &impl Backend, name: &str) {
    eventually("the lease's end", || !is_locked(store, name));
}

fn one_holder_at_a_time_and_fences_that_grow<S: Store>() {
    let store = S::start();
    let client = store.client();
    for n in 1..=5 {
        let owner = id();
        let grant = granted(acquire(&client, "k", &owner, LONG));
        assert_eq!((grant.lock_id, grant.fence.get()), (owner, n));
        assert!(matches!(
            acquire(&client, "k", &id(), LONG),
            AcquireOutcome::Locked(_)
        ));
        assert!(is_locked(&client, "k") && !is_locked(&client, "other"));
        assert_eq!(
            client.release(&owner, &Call::new()).expect("an answer"),
            ReleaseOutcome::Released
        );
        assert!(!is_locked(&client, "k"));
    }
    assert_eq!(
        granted(acquire(&client, "other", &id(), LONG)).fence.get(),
        1,
        "a counter per key"
    );
}

fn at_most_one_release_succeeds<S: Store>() {
    let store = S::start();
    let client = store.client();
    let owner = id();
    let _ = granted(acquire(&client, "k", &owner, LONG));
    assert_eq!(
        client.release(&id(), &Call::new()).expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert!(is_locked(&client, "k"), "a foreign release changes nothing");
    assert!(
        client
            .release(&owner, &Call::new())
            .expect("an answer")
            .is_released()
    );
    for _ in 0..2 {
        assert_eq!(
            client.release(&owner, &Call::new()).expect("an answer"),
            ReleaseOutcome::Absent(Absence::NotFound)
        );
    }
    let next = id();
    let _ = granted(acquire(&client, "k", &next, LONG));
    let _ = client.release(&owner, &Call::new()).expect("an answer");
    assert!(
        client.owns(next.as_str()).expect("an answer"),
        "an old id releases no other holder's lock"
    );
}

fn extend_replaces_and_never_revives<S: Store>() {
    let store = S::start();
    let client = store.client();
    let owner = id();
    let grant = granted(acquire(&client, "k", &owner, LONG));
    let ExtendOutcome::Extended(longer) = client
        .extend(&owner, ttl(LONG * 2), &Call::new())
        .expect("an answer")
    else {
        panic!("absent")
    };
    assert!(longer > grant.expires_at_ms + 30_000);
    let ExtendOutcome::Extended(shorter) = client
        .extend(&owner, ttl(LONG / 2), &Call::new())
        .expect("an answer")
    else {
        panic!("absent")
    };
    assert!(shorter < grant.expires_at_ms, "replaces, never adds");
    let seen = client
        .get_by_id(owner.as_str())
        .expect("an answer")
        .expect("a live lock");
    assert_eq!((seen.expires_at_ms, seen.fence), (shorter, grant.fence));
    assert_eq!(
        client
            .extend(&id(), ttl(LONG), &Call::new())
            .expect("an answer"),
        ExtendOutcome::Absent(Absence::NotFound)
    );
    let ExtendOutcome::Extended(_) = client
        .extend(&owner, ttl(SHORT), &Call::new())
        .expect("an answer")
    else {
        panic!("absent")
    };
    outlive(&client, "k");
    assert!(matches!(
        client
            .extend(&owner, ttl(LONG), &Call::new())
            .expect("an answer"),
        ExtendOutcome::Absent(_)
    ));
    assert!(!is_locked(&client, "k"));
}

fn an_expired_lock_looks_like_none<S: Store>() {
    let store = S::start();
    let client = store.client();
    let owner = id();
    let _ = granted(acquire(&client, "k", &owner, SHORT));
    outlive(&client, "k");
    assert_eq!(client.get_by_key("k").expect("an answer"), None);
    assert_eq!(client.get_by_id(owner.as_str()).expect("an answer"), None);
    assert_eq!(
        client.get_by_id_raw(owner.as_str()).expect("an answer"),
        None
    );
    assert!(!client.owns(owner.as_str()).expect("an answer"));
    assert!(matches!(
        client.release(&owner, &Call::new()).expect("an answer"),
        ReleaseOutcome::Absent(_)
    ));
    let next = granted(acquire(&client, "k", &id(), LONG));
    assert_eq!(next.fence.get(), 2, "the counter outlives the lock");
    assert!(matches!(
        client.release(&owner, &Call::new()).expect("an answer"),
        ReleaseOutcome::Absent(_)
    ));
    assert!(matches!(
        client
            .extend(&owner, ttl(LONG), &Call::new())
            .expect("an answer"),
        ExtendOutcome::Absent(_)
    ));
    assert!(is_locked(&client, "k"), "the old owner touches nothing");
}

fn the_tolerance_is_the_predicates<S: Store>() {
    let store = S::start();
    let client = store.client();
    // The second after the expiry is long enough to be met, and is looked at again if the machine slept through it.
    for _ in 0..10 {
        let owner = id();
        let begun = std::time::Instant::now();
        let _ = granted(acquire(&client, "k", &owner, SHORT));
        std::thread::sleep(SHORT + Duration::from_millis(100));
        let (locked, answer) = (
            is_locked(&client, "k"),
            client
                .extend(&owner, ttl(LONG), &Call::new())
                .expect("an answer"),
        );
        let taken = matches!(
            acquire(&client, "k", &id(), LONG),
            AcquireOutcome::Locked(_)
        );
        if begun.elapsed() > Duration::from_millis(TIME_TOLERANCE_MS as u64) {
            client.setup_schema().expect("still there");
            let holder = client.get_by_key_raw("k").expect("an answer");
            if let Some(holder) = holder {
                let _ = client
                    .release(&holder.lock_id, &Call::new())
                    .expect("an answer");
            }
            continue;
        }
        assert_eq!(locked, S::TOLERATES);
        assert_eq!(matches!(answer, ExtendOutcome::Extended(_)), S::TOLERATES);
        assert_eq!(taken, S::TOLERATES);
        return;
    }
    panic!("the machine slept through the tolerance ten times");
}

fn the_same_id_again_answers_the_stored_grant<S: Store>() {
    let store = S::start();
    let client = store.client();
    let owner = id();
    let first = granted(acquire(&client, "k", &owner, LONG));
    let again = granted(acquire(&client, "k", &owner, LONG * 5));
    assert_eq!(again, first);
    assert!(
        client
            .release(&owner, &Call::new())
            .expect("an answer")
            .is_released()
    );
    assert_eq!(granted(acquire(&client, "k", &id(), LONG)).fence.get(), 2);
}

fn times_are_the_stores<S: Store>() {
    let store = S::start();
    let client = store.client();
    let owner = id();
    let grant = granted(acquire(&client, "k", &owner, Duration::from_millis(12_345)));
    let seen = client
        .get_by_key("k")
        .expect("an answer")
        .expect("a live lock");
    assert_eq!(seen.expires_at_ms, grant.expires_at_ms);
    assert_eq!(seen.expires_at_ms - seen.acquired_at_ms, 12_345);
    let _ = client
        .extend(&owner, ttl(LONG), &Call::new())
        .expect("an answer");
    assert_eq!(
        client
            .get_by_key("k")
            .expect("an answer")
            .expect("a live lock")
            .acquired_at_ms,
        seen.acquired_at_ms
    );
}

fn lookups_are_sanitised_and_raw_ones_are_not<S: Store>() {
    let store = S::start();
    let client = store.client();
    let owner = id();
    let grant = granted(acquire(&client, "secret:1", &owner, LONG));
    let by_key = client
        .get_by_key("secret:1")
        .expect("an answer")
        .expect("a live lock");
    let by_id = client
        .get_by_id(owner.as_str())
        .expect("an answer")
        .expect("a live lock");
    assert_eq!(by_key, by_id);
    assert_eq!(by_key.key_hash, hash_key("secret:1"));
    assert_eq!(
        (by_key.lock_id_hash.clone(), by_key.fence),
        (owner.log_hash(), grant.fence)
    );
    let raw = client
        .get_by_key_raw("secret:1")
        .expect("an answer")
        .expect("a live lock");
    assert_eq!(
        Some(raw.clone()),
        client.get_by_id_raw(owner.as_str()).expect("an answer")
    );
    assert_eq!((raw.key.as_str(), raw.lock_id), ("secret:1", owner));
    let found = client
        .find(LookupBy::Key(&key("secret:1")), &Call::new())
        .expect("an answer")
        .expect("a live lock");
    for shown in [
        format!("{by_key:?}"),
        format!("{raw:?}"),
        format!("{found:?}"),
        format!("{client:?}"),
        format!("{grant:?}"),
    ] {
        assert!(
            !shown.contains("secret:1") && !shown.contains(owner.as_str()),
            "{shown}"
        );
    }
    assert_eq!(client.get_by_key("missing").expect("an answer"), None);
    assert!(
        client.owns(owner.as_str()).expect("an answer")
            && !client.owns(id().as_str()).expect("an answer")
    );
    assert_eq!(
        client.owns("short").expect_err("no id").code(),
        ErrorCode::InvalidArgument
    );
}

fn any_text_is_a_key_and_comes_back_whole<S: Store>() {
    let store = S::start();
    let client = store.client();
    let long = "k".repeat(512);
    let names = [
        "'; DROP TABLE syncguard_locks; --",
        "$1",
        "%s",
        "\"quoted\"",
        "back\\slash",
        "\r\n*1\r\n$4\r\nPING\r\n",
        "tab\tnl\ndel\u{7f}",
        "日本語",
        "\u{202e}RTL",
        "👨\u{200d}👩\u{200d}👧",
        "❤\u{fe0f}",
        "❤",
        "\u{378}",
        "{a}",
        "a:b",
        "a:",
        ":",
        " ",
        "A",
        "a",
        "a ",
        "a/b",
        "<&>",
        "id:42",
        "fence:other:x",
        &long,
    ];
    let mut ids = HashSet::new();
    for name in names {
        let owner = id();
        let grant = granted(acquire(&client, name, &owner, LONG));
        assert_eq!(grant.fence.get(), 1, "{name:?} is a lock of its own");
        assert!(ids.insert(owner));
    }
    for name in names {
        let raw = client
            .get_by_key_raw(name)
            .expect("an answer")
            .expect("a live lock");
        assert_eq!(raw.key, name);
        assert_eq!(
            client
                .get_by_id_raw(raw.lock_id.as_str())
                .expect("an answer")
                .map(|l| l.key),
            Some(name.to_owned())
        );
        assert!(
            client
                .release(&raw.lock_id, &Call::new())
                .expect("an answer")
                .is_released(),
            "{name:?}"
        );
    }
}

fn equal_after_nfc_is_one_lock<S: Store>() {
    let store = S::start();
    let client = store.client();
    let _ = granted(acquire(&client, "cafe\u{301}", &id(), LONG));
    assert!(matches!(
        acquire(&client, "caf\u{e9}", &id(), LONG),
        AcquireOutcome::Locked(_)
    ));
    assert_eq!(
        client
            .get_by_key_raw("cafe\u{301}")
            .expect("an answer")
            .map(|l| l.key),
        Some("caf\u{e9}".to_owned())
    );
}

fn bad_input_changes_nothing<S: Store>() {
    let store = S::start();
    let client = store.client();
    for bad in ["", "a\0b", &"k".repeat(513), &"あ".repeat(200)] {
        assert_eq!(
            client.lock(bad).map(drop).expect_err("no key").code(),
            ErrorCode::InvalidArgument
        );
        assert_eq!(
            client.get_by_key(bad).expect_err("no key").code(),
            ErrorCode::InvalidArgument
        );
    }
    for bad in [
        Duration::ZERO,
        Duration::MAX,
        Duration::from_secs(u64::from(u32::MAX) * 10),
    ] {
        assert_eq!(
            client
                .lock_with("k", &LockOptions::new().ttl(bad))
                .map(drop)
                .expect_err("no ttl")
                .code(),
            ErrorCode::InvalidArgument
        );
    }
    assert_eq!(
        granted(acquire(&client, "k", &id(), LONG)).fence.get(),
        1,
        "no fence was burnt"
    );
}

fn a_cancelled_call_is_not_sent<S: Store>() {
    let store = S::start();
    let client = store.client();
    let (owner, token) = (id(), CancelToken::new());
    token.cancel();
    let cancel = &Call::new().cancelled_by(&token);
    let name = key("k");
    let errors = [
        client
            .acquire(&name, &owner, ttl(LONG), cancel)
            .expect_err("cancelled"),
        client.release(&owner, cancel).expect_err("cancelled"),
        client
            .extend(&owner, ttl(LONG), cancel)
            .expect_err("cancelled"),
        client.is_locked_with(&name, cancel).expect_err("cancelled"),
        client
            .lookup(LookupBy::Key(&name), cancel)
            .expect_err("cancelled"),
        client
            .lookup(LookupBy::LockId(&owner), cancel)
            .expect_err("cancelled"),
        client
            .lock_with("k", &LockOptions::new().cancel(&token))
            .map(drop)
            .expect_err("cancelled"),
        client
            .try_lock_with("k", &LockOptions::new().cancel(&token))
            .map(drop)
            .expect_err("cancelled"),
    ];
    for error in errors {
        assert_eq!(
            (error.code(), error.may_have_applied()),
            (ErrorCode::Aborted, false),
            "{error}"
        );
    }
    let late = Call::new().within(Duration::ZERO);
    let error = client
        .acquire(&name, &owner, ttl(LONG), &late)
        .expect_err("too late");
    assert_eq!(
        (error.code(), error.may_have_applied()),
        (ErrorCode::NetworkTimeout, false)
    );
    assert!(!is_locked(&client, "k"));
    assert_eq!(granted(acquire(&client, "k", &owner, LONG)).fence.get(), 1);
}

fn eight_threads_share_a_key<S: Store>() {
    const ROUNDS: u64 = 25;
    let store = S::start();
    let client = store.client();
    let start = Arc::new(Barrier::new(8));
    let last = Arc::new(AtomicU64::new(0));
    let inside = Arc::new(Mutex::new(()));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (client, start, last, inside) = (
                client.clone(),
                Arc::clone(&start),
                Arc::clone(&last),
                Arc::clone(&inside),
            );
            std::thread::spawn(move || {
                start.wait();
                let options = LockOptions::new()
                    .acquire_timeout(WAIT_LIMIT * 2)
                    .retry_delay(Duration::from_millis(1));
                for _ in 0..ROUNDS {
                    let guard = client
                        .lock_with("k", &options)
                        .expect("the lock in the end");
                    let alone = inside.try_lock().expect("one holder at a time");
                    let before = last.swap(guard.fence().get(), SeqCst);
                    assert!(before < guard.fence().get(), "fences grow");
                    drop(alone);
                    assert!(guard.release().expect("an answer").is_released());
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("no panic");
    }
    assert_eq!(last.load(SeqCst), 8 * ROUNDS);
}

fn one_of_eight_simultaneous_acquires_wins<S: Store>() {
    let store = S::start();
    let client = store.client();
    for round in 0..5 {
        let start = Arc::new(Barrier::new(8));
        let name = format!("k{round}");
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let (client, start, name) = (client.clone(), Arc::clone(&start), key(&name));
                std::thread::spawn(move || {
                    start.wait();
                    client
                        .acquire(&name, &id(), ttl(LONG), &Call::new())
                        .expect("an answer")
                })
            })
            .collect();
        let wins = workers
            .into_iter()
            .map(|w| w.join().expect("no panic"))
            .filter(|o| matches!(o, AcquireOutcome::Acquired(_)))
            .count();
        assert_eq!(wins, 1);
    }
}

fn guards_and_verbs_work_on_the_same_locks<S: Store>() {
    let store = S::start();
    let (here, there) = (store.client(), store.client());
    let guard = here
        .lock_with("k", &LockOptions::new().ttl(LONG))
        .expect("a lock");
    assert!(there.try_lock("k").expect("an answer").is_none());
    assert!(matches!(
        there
            .extend(guard.lock_id(), ttl(LONG), &Call::new())
            .expect("an answer"),
        ExtendOutcome::Extended(_)
    ));
    assert!(
        there
            .release(guard.lock_id(), &Call::new())
            .expect("an answer")
            .is_released()
    );
    assert!(
        !guard.release().expect("an answer").is_released(),
        "another caller was faster"
    );
    let taken = granted(acquire(&there, "k", &id(), LONG));
    let error = here
        .lock_with(
            "k",
            &LockOptions::new()
                .max_retries(1)
                .retry_delay(Duration::from_millis(1)),
        )
        .map(drop)
        .expect_err("held by a bare verb");
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
    let holder = error.holder().expect("the store names the holder");
    assert_eq!(
        (holder.fence, holder.lock_id_hash.clone()),
        (Some(taken.fence), Some(taken.lock_id.log_hash()))
    );
    let left = holder.remaining.expect("the store says for how long");
    assert!(!left.is_zero() && left <= LONG, "{left:?}");
}

fn a_heartbeat_keeps_the_lock<S: Store>() {
    let store = S::start();
    let client = store.client();
    // Renewed every 200 ms for a lease that a busy machine does not outlast.
    let options = LockOptions::new()
        .ttl(Duration::from_secs(20))
        .heartbeat(Duration::from_millis(200));
    let guard = client.lock_with("k", &options).expect("a lock");
    let first = guard.expires_at_ms();
    eventually("three renewals", || guard.expires_at_ms() >= first + 600);
    assert!(!guard.is_lost());
    assert_eq!(
        client.get_by_key("k").expect("an answer").map(|l| l.fence),
        Some(guard.fence())
    );
    assert!(guard.release().expect("an answer").is_released());
}

fn a_lock_taken_away_is_lost<S: Store>() {
    let store = S::start();
    let client = store.client();
    let options = LockOptions::new()
        .ttl(Duration::from_secs(20))
        .heartbeat(Duration::from_millis(100));
    let guard = client.lock_with("k", &options).expect("a lock");
    assert!(
        client
            .release(guard.lock_id(), &Call::new())
            .expect("an answer")
            .is_released()
    );
    assert!(guard.wait_lost_for(WAIT_LIMIT));
    assert!(!guard.extend(LONG).expect("no I/O").is_extended());
    assert!(!guard.release().expect("an answer").is_released());
}

fn events_tell_what_happened<S: Store>() {
    let store = S::start();
    let seen: Arc<Mutex<Vec<LockEvent>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let options = ClientOptions::new().on_event(move |e| {
        if let Ok(mut seen) = sink.lock() {
            seen.push(e.clone());
        }
    });
    let client = store.open(&options);
    let owner = id();
    let _ = granted(acquire(&client, "secret", &owner, LONG));
    let _ = acquire(&client, "secret", &id(), LONG);
    let _ = is_locked(&client, "secret");
    let _ = client.get_by_key("secret").expect("an answer");
    let _ = client
        .extend(&owner, ttl(LONG), &Call::new())
        .expect("an answer");
    let _ = client.release(&owner, &Call::new()).expect("an answer");
    let _ = client.release(&owner, &Call::new()).expect("an answer");
    let _ = client
        .extend(&owner, ttl(LONG), &Call::new())
        .expect("an answer");
    let _ = client.get_by_id(owner.as_str()).expect("an answer");
    eventually("nine events", || seen.lock().is_ok_and(|s| s.len() == 9));
    let seen = seen.lock().expect("the events").clone();
    let trace: Vec<_> = seen
        .iter()
        .map(|e| (format!("{:?}", e.kind), e.ok, e.reason))
        .collect();
    let wanted = [
        ("Acquire", true, None),
        ("Acquire", false, Some("locked")),
        ("IsLocked", true, None),
        ("Lookup", true, None),
        ("Extend", true, None),
        ("Release", true, None),
        ("Release", false, Some("not-found")),
        ("Extend", false, Some("not-found")),
        ("Lookup", false, None),
    ];
    assert_eq!(
        trace,
        wanted.map(|(kind, ok, reason)| (kind.to_owned(), ok, reason))
    );
    assert_eq!(
        (seen[0].key_hash.clone(), seen[0].lock_id_hash.clone()),
        (Some(hash_key("secret")), Some(owner.log_hash()))
    );
    assert!(
        seen.iter().all(|e| e.key.is_none() && e.lock_id.is_none()),
        "raw only on demand"
    );

    let raw: Arc<Mutex<Vec<LockEvent>>> = Arc::default();
    let sink = Arc::clone(&raw);
    let options = ClientOptions::new()
        .events_include_raw(IncludeRaw::When(Arc::new(|e| e.ok)))
        .on_event(move |e| {
            if let Ok(mut seen) = sink.lock() {
                seen.push(e.clone());
            }
        });
    let client = store.open(&options);
    let _ = granted(acquire(&client, "secret", &owner, LONG));
    let _ = acquire(&client, "secret", &id(), LONG);
    eventually("two events", || raw.lock().is_ok_and(|s| s.len() == 2));
    let raw = raw.lock().expect("the events");
    assert_eq!(
        (
            raw[0].key.as_deref(),
            raw[0].lock_id.as_deref(),
            raw[1].key.as_deref()
        ),
        (Some("secret"), Some(owner.as_str()), None)
    );
}

fn set_up_check_and_purge_are_harmless<S: Store>() {
    let store = S::start();
    let client = store.client();
    client.setup_schema().expect("once more");
    client.check().expect("a healthy store");
    let live = id();
    let _ = granted(acquire(&client, "live", &live, LONG));
    let _ = granted(acquire(&client, "dead", &id(), SHORT));
    outlive(&client, "dead");
    eventually("the purge", || {
        let purged = client
            .purge_expired_with(100, &Call::new())
            .expect("an answer");
        purged == 1 || !S::TOLERATES
    });
    assert_eq!(
        client
            .purge_expired_with(100, &Call::new())
            .expect("an answer"),
        0
    );
    assert!(client.owns(live.as_str()).expect("an answer"));
    assert_eq!(
        granted(acquire(&client, "dead", &id(), LONG)).fence.get(),
        2,
        "fences are never purged"
    );
}

fn fences_outlive_the_client<S: Store>() {
    let store = S::start();
    for n in 1..=3 {
        let client = store.client();
        let guard = client.lock("k").expect("a lock");
        assert_eq!(guard.fence().get(), n);
    }
}

fn a_store_says_what_it_is<S: Store>() {
    let store = S::start();
    let capabilities = store.client().capabilities();
    assert!(capabilities.supports_fencing && !capabilities.backend.is_empty());
    assert_eq!(
        capabilities.time_authority,
        syncguard::TimeAuthority::Server
    );
}

macro_rules! contract {
    ($name:ident, $store:ty) => {
        contract!($name, $store;
            one_holder_at_a_time_and_fences_that_grow, at_most_one_release_succeeds, extend_replaces_and_never_revives,
            an_expired_lock_looks_like_none, the_tolerance_is_the_predicates, the_same_id_again_answers_the_stored_grant,
            times_are_the_stores, lookups_are_sanitised_and_raw_ones_are_not, any_text_is_a_key_and_comes_back_whole,
            equal_after_nfc_is_one_lock, bad_input_changes_nothing, a_cancelled_call_is_not_sent, eight_threads_share_a_key,
            one_of_eight_simultaneous_acquires_wins, guards_and_verbs_work_on_the_same_locks, a_heartbeat_keeps_the_lock,
            a_lock_taken_away_is_lost, events_tell_what_happened, set_up_check_and_purge_are_harmless, fences_outlive_the_client,
            a_store_says_what_it_is);
    };
    ($name:ident, $store:ty; $($case:ident),+) => {
        mod $name {
            $(#[test]
            fn $case() {
                super::$case::<$store>();
            })+
        }
    };
}

struct Sqlite(tempfile::TempDir);

impl Store for Sqlite {
    fn start() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn open(&self, options: &ClientOptions) -> Client {
        let url = format!("sqlite:{}", self.0.path().join("locks.db").display());
        Client::open_with(&url, options).expect("a legal URL")
    }
}

struct Redis(RedisServer);

impl Store for Redis {
    const TOLERATES: bool = false;

    fn start() -> Self {
        Self(RedisServer::start(&[]))
    }

    fn open(&self, options: &ClientOptions) -> Client {
        Client::open_with(&self.0.url(), options).expect("a legal URL")
    }
}

/// A schema of its own in a server that the cases share.
struct Postgres {
    server: Arc<Server>,
    schema: String,
}

/// The same behind what looks like a pooler.
struct Pooled {
    store: Postgres,
    pooler: Disguise,
}

impl Store for Pooled {
    fn start() -> Self {
        let store = Postgres::start();
        let pooler = Disguise::start(&store.server);
        Self { store, pooler }
    }

    fn open(&self, options: &ClientOptions) -> Client {
        let options = options.clone().schema(&self.store.schema);
        Client::open_with(&self.pooler.url(), &options).expect("a legal URL")
    }
}

impl Store for Postgres {
    fn start() -> Self {
        static SCHEMAS: AtomicU64 = AtomicU64::new(0);
        let schema = format!("contract_{}", SCHEMAS.fetch_add(1, SeqCst));
        let store = Self {
            server: Server::shared(),
            schema,
        };
        store.client().setup_schema().expect("a schema");
        store
    }

    fn open(&self, options: &ClientOptions) -> Client {
        let options = options.clone().schema(&self.schema);
        Client::open_with(&self.server.url(), &options).expect("a legal URL")
    }
}

struct Memory(syncguard::testkit::MemoryBackend);

impl Store for Memory {
    fn start() -> Self {
        Self(syncguard::testkit::MemoryBackend::new())
    }

    fn open(&self, options: &ClientOptions) -> Client {
        Client::from_backend_with(self.0.clone(), options).expect("legal options")
    }
}

contract!(memory, super::Memory);
contract!(sqlite, super::Sqlite);
contract!(redis, super::Redis);
contract!(postgres, super::Postgres);
contract!(postgres_pooled, super::Pooled);
