//! Tests what a client tells its hooks: events, warnings and failed releases. A hook can be slow or broken, and no call waits for it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::kit::{TTL, kit_with};
use crate::support::passing::{Done, Passing};
use crate::support::process;
use crate::support::process::Stage;
use crate::support::{WAIT_LIMIT, eventually};
use syncguard::testkit::{Fault, ManualClock, MemoryBackend, Verb};
use syncguard::{
    Backend, Call, CancelToken, Client, ClientOptions, ErrorCode, EventReason, IncludeRaw, Key,
    LockEvent, LockEventType, LockId, LockOptions, Telemetry, Ttl,
};

fn key(text: &str) -> Key {
    Key::new(text).expect("a legal key")
}

fn id() -> LockId {
    LockId::random().expect("an id")
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(30)).expect("a legal ttl")
}

#[test]
fn a_callback_that_hangs_delays_no_call_and_what_it_misses_is_counted() {
    let (go, hold) = mpsc::channel::<()>();
    let hold = Mutex::new(hold);
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let store = Telemetry::new(MemoryBackend::new(), IncludeRaw::Never, move |_| {
        let _ = hold.lock().map(|hold| hold.recv());
        count.fetch_add(1, SeqCst);
    });
    const CALLS: usize = 5000;
    let store = Arc::new(store);
    let calling = std::thread::spawn({
        let store = Arc::clone(&store);
        move || {
            (0..CALLS).all(|_| {
                store
                    .is_locked(&key("k"), &Call::new())
                    .is_ok_and(|locked| !locked)
            })
        }
    });
    eventually("the calls' end", || calling.is_finished());
    assert!(calling.join().expect("no panic"));
    let dropped = usize::try_from(store.dropped()).expect("a number");
    assert!(dropped > 0 && dropped < CALLS, "{dropped}");
    assert_eq!(heard.load(SeqCst), 0);
    // Set free, it is told what was kept for it, also when the store is gone.
    drop(go);
    drop(store);
    eventually("the rest", || heard.load(SeqCst) == CALLS - dropped);
}

#[test]
fn a_callback_or_predicate_that_panics_is_called_again() {
    let heard = Arc::new(AtomicUsize::new(0));
    let (first, second) = (Arc::clone(&heard), Arc::clone(&heard));
    let callback = move |_: &LockEvent| {
        first.fetch_add(1, SeqCst);
        panic!("planted");
    };
    let store = Telemetry::new(MemoryBackend::new(), IncludeRaw::Never, callback);
    let predicate = IncludeRaw::When(Arc::new(move |_| {
        second.fetch_add(1, SeqCst);
        panic!("planted");
    }));
    let other = Telemetry::new(MemoryBackend::new(), predicate, |_| {});
    for n in 1..=3 {
        assert!(!store.is_locked(&key("k"), &Call::new()).expect("an answer"));
        assert!(!other.is_locked(&key("k"), &Call::new()).expect("an answer"));
        eventually("both", || heard.load(SeqCst) == 2 * n);
    }
}

#[test]
fn trouble_is_an_event_without_a_reason_and_an_expired_lock_has_one() {
    let clock = ManualClock::new();
    let memory = MemoryBackend::with_clock(&clock);
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let store = Telemetry::new(memory.clone(), IncludeRaw::Always, move |e: &LockEvent| {
        let tell = tell.lock().expect("not poisoned");
        tell.send(e.clone()).expect("a receiver");
    });
    let (mine, k) = (id(), key("secret"));
    for verb in [Verb::Acquire, Verb::IsLocked] {
        memory.once(verb, Fault::Refuse(ErrorCode::ServiceUnavailable));
    }
    assert!(store.acquire(&k, &mine, ttl(), &Call::new()).is_err());
    assert!(store.is_locked(&k, &Call::new()).is_err());
    let _ = store
        .acquire(&k, &mine, ttl(), &Call::new())
        .expect("a grant");
    clock.advance(Duration::from_secs(60));
    let _ = store.extend(&mine, ttl(), &Call::new()).expect("an answer");
    let _ = store.release(&mine, &Call::new()).expect("an answer");
    let events: Vec<LockEvent> = (0..5)
        .map(|_| told.recv_timeout(WAIT_LIMIT).expect("an event"))
        .collect();
    let trace: Vec<_> = events.iter().map(|e| (e.kind, e.ok, e.reason)).collect();
    assert_eq!(
        trace,
        [
            (LockEventType::Acquire, false, None),
            (LockEventType::IsLocked, false, None),
            (LockEventType::Acquire, true, None),
            (LockEventType::Extend, false, Some(EventReason::Expired)),
            (LockEventType::Release, false, Some(EventReason::Expired)),
        ]
    );
    assert_eq!(events[0].key.as_deref(), Some("secret"));
    assert_eq!(events[3].lock_id.as_deref(), Some(mine.as_str()));
    for event in &events {
        let shown = format!("{event:?}");
        assert!(!shown.contains("secret") && !shown.contains(mine.as_str()));
    }
}

#[test]
fn a_clean_up_runs_now_and_then_and_harms_no_call() {
    let clock = ManualClock::new();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let store = Passing::new(MemoryBackend::with_clock(&clock), move |done| {
        if done == Done::Purge {
            counted.fetch_add(1, SeqCst);
            panic!("planted: a clean-up that fails harms no call");
        }
    });
    let options = ClientOptions::new()
        .clock(&clock)
        .cleanup_in_is_locked(true);
    let client = Client::from_backend_with(store, &options).expect("legal options");
    clock.advance(Duration::from_secs(10));
    for wanted in 1..=3 {
        for _ in 0..50 {
            assert!(
                !client
                    .is_locked_with(key("k"), &Call::new())
                    .expect("an answer")
            );
        }
        eventually("a clean-up", || count.load(SeqCst) >= wanted);
        // More of them would be on their way by now, as a rule.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(count.load(SeqCst), wanted, "one in a second");
        clock.advance(Duration::from_secs(1));
    }
}

#[test]
fn a_fence_near_its_limit_warns_and_one_at_its_limit_fails() {
    let (tx, rx) = mpsc::channel();
    let tx = Mutex::new(tx);
    let kit = kit_with(
        ClientOptions::new().on_warning(move |w| drop(tx.lock().map(|tx| tx.send(w.to_owned())))),
    );
    kit.store
        .set_fence_counter("k", 90_000_000_000_000)
        .expect("a key");
    drop(kit.lock());
    let warning = rx.recv_timeout(WAIT_LIMIT).expect("a warning");
    assert!(warning.contains(&syncguard::hash_key("k")), "{warning}");
    kit.store
        .set_fence_counter("k", 900_000_000_000_000)
        .expect("a key");
    assert_eq!(
        kit.client.lock("k").expect_err("at the limit").code(),
        ErrorCode::Internal
    );
    assert!(!kit.is_locked());
}

#[test]
fn cleanup_removes_dead_locks_and_changes_no_answer() {
    let options = ClientOptions::new().cleanup_in_is_locked(true);
    cleans_up(options.clone());
    // Through telemetry too, which has no event for it.
    cleans_up(options.on_event(|_| {}));
}

fn cleans_up(options: ClientOptions) {
    let kit = kit_with(options);
    std::mem::forget(kit.lock_with(LockOptions::new().no_heartbeat()));
    assert!(kit.is_locked());
    kit.clock.advance(TTL + Duration::from_millis(1500));
    // A clean-up of this call's own, to be certain that one has looked: those that `is_locked` asks for run when they run.
    assert_eq!(
        kit.client
            .purge_expired_with(10, &Call::new())
            .expect("an answer"),
        0
    );
    assert!(!kit.is_locked());
    assert_eq!(
        kit.store.stored(),
        1,
        "dead, but not for long enough to be removed"
    );
    eventually("the clean-up", || {
        kit.clock.advance(Duration::from_secs(2));
        assert!(!kit.is_locked());
        kit.store.stored() == 0
    });
    assert_eq!(kit.lock().fence().get(), 2, "the counter outlives the lock");
}

/// A store with something to say about itself.
fn with_warnings(texts: &[&str]) -> impl Backend + 'static {
    Passing::new(MemoryBackend::new(), |_| ()).warning(texts)
}

#[test]
fn a_check_has_told_its_warnings_when_it_returns() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    let options = ClientOptions::new().on_warning(move |text| {
        // Slow enough to be missed by a check that does not wait.
        std::thread::sleep(Duration::from_millis(20));
        list.lock().expect("the list").push(text.to_owned());
    });
    let store = with_warnings(&["one", "two", "three"]);
    let client = Client::from_backend_with(store, &options).expect("legal options");
    let checked = client.check().expect("an answer");
    assert_eq!(checked.warnings, ["one", "two", "three"]);
    assert_eq!(checked.undelivered, 0);
    assert_eq!(*told.lock().expect("the list"), ["one", "two", "three"]);
}

#[test]
fn a_hook_that_hangs_delays_a_check_by_the_operation_timeout() {
    let (hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let options = ClientOptions::new()
        .operation_timeout(Duration::from_millis(200))
        .on_warning(move |text| match text {
            "two" => drop(held.lock().map(|held| held.recv_timeout(WAIT_LIMIT))),
            "panic" => panic!("planted"),
            _ => {}
        });
    let store = with_warnings(&["one", "two", "three"]);
    let client = Client::from_backend_with(store, &options).expect("legal options");
    let begun = Instant::now();
    assert_eq!(client.check().expect("an answer").undelivered, 2);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    drop(hold);
    // One that panics has had its message.
    let store = with_warnings(&["panic", "one"]);
    let client = Client::from_backend_with(store, &options).expect("legal options");
    assert_eq!(client.check().expect("an answer").undelivered, 0);
}

const SPEAK: &str = "SYNCGUARD_TEST_SPEAK";

/// Not a test of its own: what the next one runs, to see what it writes.
#[test]
fn speak() {
    if std::env::var_os(SPEAK).is_none() {
        return;
    }
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    store
        .set_fence_counter("secret key", 90_000_000_000_000)
        .expect("a key");
    let guard = client.lock_with("secret key", &LockOptions::new().no_heartbeat());
    let guard = guard.expect("a lock");
    println!("id {}", guard.lock_id().as_str());
    store.always(Verb::Release, Fault::Refuse(ErrorCode::ServiceUnavailable));
    drop(guard);
    // A thread of the library writes the warning. The reader closes stdin once it has read everything.
    let (closed, wait) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        drop(closed);
    });
    let _ = wait.recv_timeout(WAIT_LIMIT);
}

#[test]
fn without_hooks_stderr_is_told_and_no_secret_is() {
    let mut process = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "hooks::speak", "--nocapture"])
        .env(SPEAK, "1")
        .env("SYNCGUARD_DEBUG", "true")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    // The two messages come from two threads, in any order, each with its own line.
    let mut told = String::new();
    let mut stderr = BufReader::new(process.stderr.take().expect("its stderr"));
    while !(told.contains("fence counter") && told.contains("could not be released")) {
        let read = stderr.read_line(&mut told).expect("its stderr");
        assert!(read > 0, "it ended without both messages: {told}");
    }
    drop(process.stdin.take());
    let spoken = process.wait_with_output().expect("its end");
    stderr.read_to_string(&mut told).expect("the rest");
    assert!(spoken.status.success(), "{spoken:?}");
    let said = String::from_utf8_lossy(&spoken.stdout);
    let id = said.lines().find_map(|l| l.split_once("id ")?.1.get(..22));
    let id = id.expect("its id");
    let warned = format!("#{}", syncguard::hash_key("secret key"));
    assert!(
        told.contains("fence counter") && told.contains(&warned),
        "{told}"
    );
    assert!(told.contains("could not be released (drop)"), "{told}");
    assert!(!told.contains("secret key") && !told.contains(id), "{told}");
}

/// A stack that overflows ends the process.
pub const STAGES: &[process::Entry] = &[
    ("callbacks", deep_callbacks),
    ("a store of its own", deep_store),
];

/// Uses far more stack than a small thread has, and less than an ordinary one.
#[inline(never)]
fn use_stack() {
    let large = [1_u8; 1 << 20];
    assert!(std::hint::black_box(&large).iter().all(|&b| b == 1));
}

#[test]
fn callbacks_have_an_ordinary_stack() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut stage = Stage::start("callbacks", dir.path());
    for callback in [
        "event",
        "warning",
        "release error",
        "lost",
        "wake",
        "dropped",
    ] {
        stage.expect(callback);
    }
    stage.finish();
}

fn deep_callbacks(dir: &std::path::Path) {
    struct Deep(mpsc::Sender<&'static str>);
    impl Drop for Deep {
        fn drop(&mut self) {
            use_stack();
            let _ = self.0.send("dropped");
        }
    }
    let (tx, heard) = mpsc::channel::<&'static str>();
    let hook = |name: &'static str| {
        let tx = Mutex::new(tx.clone());
        move || {
            use_stack();
            let _ = tx.lock().map(|tx| tx.send(name));
        }
    };
    let expect = |name: &'static str| {
        // The same callback may come more than once.
        while heard.recv_timeout(WAIT_LIMIT).expect(name) != name {}
        process::say(name);
    };
    let (event, warning, release_error, lost) = (
        hook("event"),
        hook("warning"),
        hook("release error"),
        hook("lost"),
    );
    let kit = kit_with(
        ClientOptions::new()
            .on_event(move |_| event())
            .on_warning(move |_| warning())
            .on_release_error(move |_| release_error()),
    );
    assert!(!kit.is_locked());
    expect("event");
    let _ = kit.store.set_fence_counter("k", 90_000_000_000_000);
    let guard = kit.lock();
    expect("warning");
    kit.store
        .always(Verb::Release, Fault::Refuse(ErrorCode::ServiceUnavailable));
    drop(guard);
    expect("release error");
    let options = LockOptions::new().no_heartbeat().on_lost(move |_| lost());
    let guard = kit.client.lock_with("other", &options).expect("a lock");
    kit.clock.advance(TTL * 2);
    expect("lost");
    drop(guard);

    // Another client releases the lock: a thread that watches the file wakes the waiter.
    let url = format!("sqlite:{}/locks.db", dir.display());
    let open = || Client::open(&url).expect("a legal URL");
    let (held, waiting) = (open(), open());
    let guard = held.lock("k").expect("a free lock");
    let (wake, deep) = (hook("wake"), Deep(tx.clone()));
    let turn = waiting.lock_or_wait("k", &LockOptions::new(), move || {
        let _ = &deep;
        wake();
    });
    let Ok(syncguard::Turn::InLine(waiter)) = turn else {
        panic!("it is held");
    };
    assert!(guard.release().expect("an answer").is_released());
    expect("wake");
    drop(waiter);
    expect("dropped");
}

#[test]
fn a_store_of_a_users_own_has_an_ordinary_stack() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut stage = Stage::start("a store of its own", dir.path());
    for verb in ["extend", "release"] {
        stage.expect(verb);
    }
    stage.finish();
}

fn deep_store(_: &std::path::Path) {
    let (tx, heard) = mpsc::channel();
    let tx = Mutex::new(tx);
    let memory = MemoryBackend::new();
    let store = Passing::new(memory.clone(), move |done| {
        use_stack();
        let name = std::thread::current().name().unwrap_or("").to_owned();
        let _ = tx.lock().map(|tx| tx.send((done, name)));
    });
    let client = Client::from_backend(store);
    let expect = |what: Done| loop {
        let (done, thread) = heard.recv_timeout(WAIT_LIMIT).expect("the verb");
        if done == what && thread.starts_with("syncguard-") {
            return;
        }
    };
    let options = LockOptions::new().heartbeat(Duration::from_millis(5));
    let guard = client.lock_with("k", &options).expect("a lock");
    expect(Done::Extend);
    process::say("extend");
    drop(guard);
    // Whether it was applied is not known: a thread of the library releases it.
    memory.once(Verb::Acquire, Fault::DropReply);
    let once = LockOptions::new().acquire_timeout(Duration::ZERO);
    assert!(client.lock_with("k", &once).is_err());
    expect(Done::Release);
    process::say("release");
}

#[test]
fn a_cancel_ends_a_check_whose_hook_hangs() {
    let (entered, inside) = mpsc::channel();
    let (hold, held) = mpsc::channel::<()>();
    let (entered, held) = (Mutex::new(entered), Mutex::new(held));
    let options = ClientOptions::new()
        .operation_timeout(WAIT_LIMIT * 4)
        .on_warning(move |_| {
            let _ = entered.lock().map(|entered| entered.send(()));
            drop(held.lock().map(|held| held.recv_timeout(WAIT_LIMIT * 2)));
        });
    let client = Client::from_backend_with(with_warnings(&["one"]), &options).expect("options");
    let token = CancelToken::new();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let check = scope.spawn(|| client.check_with(&Call::new().cancelled_by(&token)));
        inside.recv_timeout(WAIT_LIMIT).expect("the hook");
        token.cancel();
        let checked = check.join().expect("no panic").expect("what it found");
        assert_eq!(checked.undelivered, 1);
        // The deadline of the call ends it too.
        let soon = Call::new().within(Duration::from_millis(50));
        let checked = client.check_with(&soon).expect("what it found");
        assert_eq!(checked.undelivered, 1);
    });
    assert!(begun.elapsed() < WAIT_LIMIT * 2);
    drop(hold);
}
