//! Tests a client over the store that the documentation shows, while that store hangs: every call ends by its bound, and a cancel
//! ends it at once.

#[allow(dead_code)]
#[path = "../../examples/own_store.rs"]
mod example;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::stopwatch::Stopwatch;
use crate::support::{WAIT_LIMIT, eventually};
use example::Local;
use syncguard::{
    AcquireOutcome, Backend, Call, CancelToken, Capabilities, Client, ClientOptions, ErrorCode,
    ExtendOutcome, Key, LockError, LockId, LockOptions, LookupBy, ReleaseOutcome, StoredLock, Ttl,
};

const BOUND: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(600);
/// Shorter than every default of the library: a call that takes this long has not kept to what it was told.
const BELOW_DEFAULTS: Duration = Duration::from_secs(4);

fn key() -> Key {
    Key::new("k").expect("a key")
}

fn id() -> LockId {
    LockId::random().expect("an id")
}

fn ttl() -> Ttl {
    Ttl::new(LONG).expect("a ttl")
}

/// A client whose operations and drops have `bound`, and its store.
fn client(bound: Duration) -> (Client, Arc<Local>) {
    let store = Arc::new(Local::open());
    let options = ClientOptions::new()
        .operation_timeout(bound)
        .dispose_timeout(bound);
    let client = Client::from_backend_with(Arc::clone(&store), &options).expect("a client");
    (client, store)
}

/// How long a call took.
struct Took {
    whole: Duration,
    /// How much of it the machine did not let the process run.
    lost: Duration,
}

impl Took {
    /// The call waited for its bound and not for a default.
    #[track_caller]
    fn lasted(&self, bound: Duration, name: &str) {
        assert!(self.whole >= bound, "{name} gave up after {:?}", self.whole);
        let took = self.whole.saturating_sub(self.lost);
        assert!(took < BELOW_DEFAULTS, "{name} took {took:?}");
    }
}

/// What `call` comes to while the store hangs, and how long it takes. A call that does not end fails the test.
fn hung<T: Send + 'static>(store: &Local, call: impl FnOnce() -> T + Send + 'static) -> (T, Took) {
    let hangs = store.state(&Call::new()).expect("the state");
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || {
        let watch = Stopwatch::start();
        let came = call();
        let (whole, lost) = watch.stop_after(Duration::ZERO);
        let _ = answer.send((came, Took { whole, lost }));
    });
    let answer = answered.recv_timeout(WAIT_LIMIT);
    drop(hangs);
    answer.expect("the call ends while the store hangs")
}

/// A token that is cancelled while the call that it is given to is on its way, or before.
fn cancelled_soon() -> CancelToken {
    let token = CancelToken::new();
    let canceller = token.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        canceller.cancel();
    });
    token
}

type Verb = fn(&Client, &Call<'_>) -> Result<(), LockError>;

const VERBS: [(&str, Verb); 5] = [
    ("acquire", |c, call| {
        c.acquire(&key(), &id(), ttl(), call).map(drop)
    }),
    ("release", |c, call| {
        Backend::release(c, &id(), call).map(drop)
    }),
    ("extend", |c, call| {
        Backend::extend(c, &id(), ttl(), call).map(drop)
    }),
    ("is_locked", |c, call| {
        c.is_locked_with(key(), call).map(drop)
    }),
    ("find", |c, call| {
        c.find(LookupBy::Key(&key()), call).map(drop)
    }),
];

#[test]
fn a_bare_verb_ends_by_the_operation_timeout_or_the_callers_deadline() {
    for (name, verb) in VERBS {
        for (operation, own) in [(BOUND, None), (BOUND, Some(LONG)), (LONG, Some(BOUND))] {
            let (client, store) = client(operation);
            let (answer, took) = hung(&store, move || {
                let call = own.map_or_else(Call::new, |own| Call::new().within(own));
                verb(&client, &call)
            });
            let error = answer.expect_err(name);
            assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{name}: {error}");
            assert!(!error.may_have_applied(), "{name}: {error}");
            took.lasted(BOUND, name);
        }
    }
}

#[test]
fn a_cancel_ends_a_bare_verb() {
    for (name, verb) in VERBS {
        let (client, store) = client(LONG);
        let (answer, took) = hung(&store, move || {
            verb(&client, &Call::new().cancelled_by(&cancelled_soon()))
        });
        took.lasted(Duration::ZERO, name);
        assert_eq!(answer.expect_err(name).code(), ErrorCode::Aborted, "{name}");
    }
}

/// A long wait of a caller that must be done by a fixed time.
fn done_soon() -> LockOptions {
    LockOptions::new()
        .acquire_timeout(LONG)
        .deadline(Instant::now() + BOUND)
}

#[test]
fn lock_and_try_lock_end_by_their_bounds() {
    type Take = fn(&Client) -> Option<LockError>;
    let tries: [(&str, Duration, Take); 4] = [
        ("lock", BOUND, |c| {
            let waits = LockOptions::new().acquire_timeout(BOUND);
            c.lock_with("k", &waits).err()
        }),
        ("lock with a deadline", LONG, |c| {
            c.lock_with("k", &done_soon()).err()
        }),
        ("try_lock", BOUND, |c| c.try_lock("k").err()),
        ("try_lock with a deadline", LONG, |c| {
            c.try_lock_with("k", &done_soon()).err()
        }),
    ];
    for (name, operation, call) in tries {
        let (client, store) = client(operation);
        let (error, took) = hung(&store, move || call(&client));
        let error = error.expect(name);
        assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{name}: {error}");
        took.lasted(BOUND, name);
    }
}

#[test]
fn a_cancel_ends_a_lock() {
    let (client, store) = client(LONG);
    let (error, took) = hung(&store, move || {
        let options = LockOptions::new()
            .acquire_timeout(LONG)
            .cancel(&cancelled_soon());
        client.lock_with("k", &options).err()
    });
    assert_eq!(error.expect("no lock").code(), ErrorCode::Aborted);
    took.lasted(Duration::ZERO, "lock");
}

#[test]
fn the_calls_of_a_guard_end_by_their_bounds() {
    let (client, store) = client(BOUND);
    let guard = client.lock("k").expect("the lock");
    let ((guard, extended, released), took) = hung(&store, move || {
        let extended = guard.extend(LONG);
        let released = guard.release();
        (guard, extended, released)
    });
    assert_eq!(
        extended.expect_err("it hangs").code(),
        ErrorCode::NetworkTimeout
    );
    assert_eq!(
        released.expect_err("it hangs").code(),
        ErrorCode::NetworkTimeout
    );
    took.lasted(2 * BOUND, "extend and release");
    let ((), took) = hung(&store, move || drop(guard));
    took.lasted(BOUND, "the drop");
    assert!(
        client
            .is_locked_with(key(), &Call::new())
            .expect("an answer"),
        "no release was applied"
    );
}

#[test]
fn a_cancel_ends_the_calls_of_a_guard() {
    let (client, store) = client(LONG);
    let guard = client.lock("k").expect("the lock");
    let ((guard, extended, released), took) = hung(&store, move || {
        let extended = guard.extend_with(LONG, &Call::new().cancelled_by(&cancelled_soon()));
        let released = guard.release_with(&Call::new().cancelled_by(&cancelled_soon()));
        (guard, extended, released)
    });
    assert_eq!(extended.expect_err("cancelled").code(), ErrorCode::Aborted);
    assert_eq!(released.expect_err("cancelled").code(), ErrorCode::Aborted);
    took.lasted(Duration::ZERO, "extend and release");
    guard.release().expect("an answer").expect_released();
}

/// The documented store, with notes of what it was asked.
struct Noted {
    to: Arc<Local>,
    /// Whether it applies an acquire and loses the answer.
    loses_answers: AtomicBool,
    /// The releases that their deadline ended.
    late_releases: AtomicUsize,
    /// The verbs that it was asked for, and how much time each had.
    asked: Mutex<Vec<(&'static str, Option<Duration>)>>,
}

impl Noted {
    fn around(to: &Arc<Local>) -> Arc<Self> {
        Arc::new(Self {
            to: Arc::clone(to),
            loses_answers: AtomicBool::new(false),
            late_releases: AtomicUsize::new(0),
            asked: Mutex::default(),
        })
    }

    fn note(&self, verb: &'static str, call: &Call<'_>) {
        let mut asked = self.asked.lock().expect("no panic");
        asked.push((verb, call.remaining()));
    }

    fn was_asked(&self, verb: &str, times: usize) -> bool {
        let asked = self.asked.lock().expect("no panic");
        asked.iter().filter(|(asked, _)| *asked == verb).count() >= times
    }
}

impl Backend for Noted {
    fn acquire(
        &self,
        key: &Key,
        id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        self.note("acquire", call);
        let outcome = self.to.acquire(key, id, ttl, call)?;
        if self.loses_answers.load(SeqCst) {
            let lost = LockError::new(ErrorCode::ServiceUnavailable, "the answer was lost");
            return Err(lost);
        }
        Ok(outcome)
    }

    fn release(&self, id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        self.note("release", call);
        let answer = self.to.release(id, call);
        if matches!(&answer, Err(error) if error.code() == ErrorCode::NetworkTimeout) {
            self.late_releases.fetch_add(1, SeqCst);
        }
        answer
    }

    fn extend(&self, id: &LockId, ttl: Ttl, call: &Call<'_>) -> Result<ExtendOutcome, LockError> {
        self.note("extend", call);
        self.to.extend(id, ttl, call)
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        self.note("is_locked", call);
        self.to.is_locked(key, call)
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        self.note("find", call);
        self.to.find(by, call)
    }

    fn purge_expired(&self, _: u32, call: &Call<'_>) -> Result<u64, LockError> {
        self.note("purge_expired", call);
        Ok(0)
    }

    fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        self.note("setup_schema", call);
        Ok(())
    }

    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        self.note("check", call);
        Ok(Vec::new())
    }

    fn capabilities(&self) -> Capabilities {
        self.to.capabilities()
    }
}

#[test]
fn a_client_gives_no_call_of_its_store_more_than_the_operation_timeout() {
    let store = Noted::around(&Arc::new(Local::open()));
    let operation = Duration::from_secs(3);
    assert!(operation < BELOW_DEFAULTS, "not the default");
    let options = ClientOptions::new()
        .operation_timeout(operation)
        .dispose_timeout(LONG)
        .cleanup_in_is_locked(true);
    let client = Client::from_backend_with(Arc::clone(&store), &options).expect("a client");
    let long = Call::new().within(LONG);
    for (name, verb) in VERBS {
        verb(&client, &long).expect(name);
    }
    client.check_with(&long).expect("a check");
    client.setup_schema().expect("a schema");
    let waits = LockOptions::new()
        .ttl(LONG)
        .acquire_timeout(LONG)
        .heartbeat(Duration::from_millis(100));
    let guard = client.lock_with("guarded", &waits).expect("the lock");
    let _ = guard.extend_with(LONG, &long).expect("an answer");
    eventually("a renewal", || store.was_asked("extend", 3));
    guard
        .release_with(&long)
        .expect("an answer")
        .expect_released();
    drop(client.lock_with("dropped", &waits).expect("the lock"));
    eventually("a clean-up", || store.was_asked("purge_expired", 1));
    store.loses_answers.store(true, SeqCst);
    let releases = 4;
    client.try_lock("undone").expect_err("a lost answer");
    eventually("an undoing", || store.was_asked("release", releases));
    for (verb, time) in store.asked.lock().expect("no panic").iter() {
        let time = time.unwrap_or_else(|| panic!("{verb} has no deadline"));
        assert!(time <= operation, "{verb} has {time:?}");
    }
}

#[test]
fn the_undoing_of_a_lost_answer_ends_by_its_bound_and_is_repeated() {
    let local = Arc::new(Local::open());
    let store = Noted::around(&local);
    store.loses_answers.store(true, SeqCst);
    let options = ClientOptions::new().operation_timeout(BOUND);
    let client = Client::from_backend_with(Arc::clone(&store), &options).expect("a client");
    let error = client.try_lock("k").expect_err("a lost answer");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    // The first release of the undoing may come before the store hangs: it has then done its work, and another answer is lost.
    let give_up = Instant::now() + WAIT_LIMIT;
    let hangs = loop {
        assert!(Instant::now() < give_up, "no release ends by its deadline");
        let hangs = local.state(&Call::new()).expect("the state");
        let seen = store.late_releases.load(SeqCst);
        let end = Instant::now() + 4 * BOUND;
        while store.late_releases.load(SeqCst) == seen && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        if store.late_releases.load(SeqCst) > seen {
            break hangs;
        }
        drop(hangs);
        assert!(client.try_lock("k").is_err(), "a lost answer");
    };
    eventually("a second release that its deadline ends", || {
        store.late_releases.load(SeqCst) >= 2
    });
    drop(hangs);
    store.loses_answers.store(false, SeqCst);
    eventually("the end of the lock that no caller asked for", || {
        !client
            .is_locked_with(key(), &Call::new())
            .expect("an answer")
    });
}
