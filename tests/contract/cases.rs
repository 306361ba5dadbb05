//! Tests the contract of a store (`testkit::contract!`) on every store of the crate, and as cases what clients and guards make of it.
//! A new store joins with a [`Store`] and a line at the end.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use crate::support::postgres::{Disguise, Server};
use crate::support::redis::RedisServer;
use crate::support::verbs::{self, id, key};
use crate::support::{WAIT_LIMIT, eventually};
use syncguard::testkit::contract::ContractStore;
use syncguard::testkit::{self, Fault, MemoryBackend, Verb};
use syncguard::{
    AcquireOutcome, Acquired, Backend, Call, CancelToken, Client, ClientOptions, ErrorCode,
    ExtendOutcome, Fence, FenceSource, IncludeRaw, LockEvent, LockId, LockOptions, LookupBy,
    ReleaseOutcome, TIME_TOLERANCE_MS, Ttl, hash_key,
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

    /// This store for one rule of the contract, with what makes it hang.
    fn contract(self, options: &ClientOptions) -> ContractStore;

    /// Whether fences come from the store's clock.
    const BY_CLOCK: bool = false;

    /// Looks at the `n`th fence of a key, after `last`.
    #[track_caller]
    fn expect_fence(fence: Fence, n: u64, last: Option<Fence>) {
        if Self::BY_CLOCK {
            assert!(fence.get() > 1_700_000_000_000 && Some(fence) > last);
        } else {
            assert_eq!(fence.get(), n);
        }
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

/// The contract asks that fences grow. Those of the crate's own stores count: no acquire that was refused uses one up.
fn fences_count_from_one<S: Store>() {
    let store = S::start();
    let client = store.client();
    let mut last = None;
    for n in 1..=5 {
        let owner = id();
        let grant = granted(acquire(&client, "k", &owner, LONG));
        assert_eq!(grant.lock_id, owner);
        S::expect_fence(grant.fence, n, last);
        last = Some(grant.fence);
        assert!(matches!(
            acquire(&client, "k", &id(), LONG),
            AcquireOutcome::Locked(_)
        ));
        let again = granted(acquire(&client, "k", &owner, LONG));
        assert_eq!(again.fence, grant.fence);
        assert_eq!(
            client.release(&owner, &Call::new()).expect("an answer"),
            ReleaseOutcome::Released
        );
    }
    // A counter per key.
    let other = granted(acquire(&client, "other", &id(), LONG));
    S::expect_fence(other.fence, 1, None);
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
    // No fence was burnt.
    let grant = granted(acquire(&client, "k", &id(), LONG));
    S::expect_fence(grant.fence, 1, None);
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
    let grant = granted(acquire(&client, "k", &owner, LONG));
    S::expect_fence(grant.fence, 1, None);
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
    let last = Fence::new(last.load(SeqCst)).expect("a fence");
    S::expect_fence(last, 8 * ROUNDS, None);
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
        .map(|e| (format!("{:?}", e.kind), e.ok, e.reason.map(|r| r.as_str())))
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
    let dead = granted(acquire(&client, "dead", &id(), SHORT));
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
    // Fences are never purged.
    let next = granted(acquire(&client, "dead", &id(), LONG));
    S::expect_fence(next.fence, 2, Some(dead.fence));
}

fn fences_outlive_the_client<S: Store>() {
    let store = S::start();
    let mut last = None;
    for n in 1..=3 {
        let client = store.client();
        let guard = client.lock("k").expect("a lock");
        S::expect_fence(guard.fence(), n, last);
        last = Some(guard.fence());
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

macro_rules! cases {
    ($name:ident, $store:ty) => {
        cases!($name, $store;
            fences_count_from_one, the_tolerance_is_the_predicates, lookups_are_sanitised_and_raw_ones_are_not,
            equal_after_nfc_is_one_lock, bad_input_changes_nothing, a_cancelled_call_is_not_sent, eight_threads_share_a_key,
            guards_and_verbs_work_on_the_same_locks, a_heartbeat_keeps_the_lock, a_lock_taken_away_is_lost,
            events_tell_what_happened, set_up_check_and_purge_are_harmless, fences_outlive_the_client,
            a_store_says_what_it_is);
    };
    ($name:ident, $store:ty; $($case:ident),+) => {
        mod $name {
            use super::*;

            testkit::contract!(contract, || <$store>::start().contract(&verbs::patient()));

            $(
                #[test]
                fn $case() {
                    super::$case::<$store>();
                }
            )+
        }
    };
}

struct Sqlite(tempfile::TempDir);

impl Sqlite {
    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("locks.db")
    }
}

impl Store for Sqlite {
    fn start() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn open(&self, options: &ClientOptions) -> Client {
        let url = format!("sqlite:{}", self.file().display());
        Client::open_with(&url, options).expect("a legal URL")
    }

    /// Another connection holds the file against writers. Readers it does not hold up: they wait for the only connection of ordinary
    /// calls, which a writer has meanwhile.
    fn contract(self, options: &ClientOptions) -> ContractStore {
        let client = self.open(&options.clone().pool_size(2));
        let busy = client.clone();
        ContractStore::new(client).while_hanging(move |work| {
            let other = rusqlite::Connection::open(self.file()).expect("the file");
            other.busy_timeout(WAIT_LIMIT).expect("a timeout");
            other.execute_batch("BEGIN IMMEDIATE").expect("its turn");
            let token = CancelToken::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let call = Call::new().cancelled_by(&token);
                    let answer = busy.acquire(&key("written"), &id(), ttl(LONG), &call);
                    let error = answer.expect_err("the file is held");
                    assert_eq!(error.code(), ErrorCode::Aborted, "{error}");
                });
                let reads = || {
                    let call = Call::new().within(SHORT);
                    busy.is_locked_with("k", &call).is_ok()
                };
                // More than once, because a busy machine may be late for one of them.
                eventually("readers wait", || (0..3).all(|_| !reads()));
                work();
                token.cancel();
            });
        })
    }
}

struct Redis(Arc<RedisServer>);

impl Store for Redis {
    const TOLERATES: bool = false;

    fn start() -> Self {
        Self(Arc::new(RedisServer::start(&[])))
    }

    fn open(&self, options: &ClientOptions) -> Client {
        Client::open_with(&self.0.url(), options).expect("a legal URL")
    }

    fn contract(self, options: &ClientOptions) -> ContractStore {
        let server = Arc::clone(&self.0);
        ContractStore::new(self.open(options)).while_hanging(move |work| {
            let _paused = server.pause();
            work();
        })
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

    fn contract(self, options: &ClientOptions) -> ContractStore {
        ContractStore::new(self.open(options)).while_hanging(move |work| self.store.hang(work))
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

    fn contract(self, options: &ClientOptions) -> ContractStore {
        ContractStore::new(self.open(options)).while_hanging(move |work| self.hang(work))
    }
}

impl Postgres {
    /// Neither readers nor writers pass the lock of the table.
    fn hang(&self, work: &mut dyn FnMut()) {
        let mut session = self.server.session();
        let lock = format!("BEGIN; LOCK TABLE {}.syncguard_locks", self.schema);
        session.run(&lock);
        work();
    }
}

struct Memory(MemoryBackend);

impl Store for Memory {
    fn start() -> Self {
        Self(MemoryBackend::new())
    }

    fn open(&self, options: &ClientOptions) -> Client {
        Client::from_backend_with(self.0.clone(), options).expect("legal options")
    }

    fn contract(self, options: &ClientOptions) -> ContractStore {
        ContractStore::new(self.open(options)).while_hanging(move |work| {
            use Verb::{Acquire, Extend, IsLocked, Lookup, Release};
            for verb in [Acquire, Release, Extend, IsLocked, Lookup] {
                self.0.always(verb, Fault::Hang);
            }
            work();
            self.0.heal();
        })
    }
}

/// The same store, whose fences come from its clock.
struct ByClock<S>(S);

impl<S: Store> Store for ByClock<S> {
    const TOLERATES: bool = S::TOLERATES;
    const BY_CLOCK: bool = true;

    fn start() -> Self {
        Self(S::start())
    }

    fn open(&self, options: &ClientOptions) -> Client {
        self.0.open(&options.clone().fences(FenceSource::Clock))
    }

    fn contract(self, options: &ClientOptions) -> ContractStore {
        let options = options.clone().fences(FenceSource::Clock);
        self.0.contract(&options)
    }
}

cases!(memory, Memory);
cases!(sqlite, Sqlite);
cases!(redis, Redis);
cases!(postgres, Postgres);
cases!(postgres_pooled, Pooled);
cases!(sqlite_by_clock, ByClock<Sqlite>);
cases!(redis_by_clock, ByClock<Redis>);
cases!(postgres_by_clock, ByClock<Postgres>);
cases!(postgres_pooled_by_clock, ByClock<Pooled>);
