//! Tests waiting without polling: waiters are served in order, wake when the lock is freed, and end when no call comes.

use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::passing::Passing;
use crate::support::stopwatch::Stopwatch;
use crate::support::{WAIT_LIMIT, ended, eventually};
use syncguard::testkit::{Fault, MemoryBackend, Verb};
use syncguard::{
    Call, CancelToken, Client, ClientOptions, ErrorCode, Guard, Jitter, LockOptions, Turn, Waiter,
    WaiterEvent, WaiterStep,
};

/// Options under which polling alone would take far longer than any test waits.
fn patient() -> LockOptions {
    LockOptions::new()
        .acquire_timeout(WAIT_LIMIT * 20)
        .retry_delay(WAIT_LIMIT * 10)
        .jitter(Jitter::None)
        .ttl(WAIT_LIMIT * 10)
}

#[test]
fn a_waiter_is_woken_by_a_release_here() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let guard = client.lock_with("k", &patient()).expect("a lock");
    let other = client.clone();
    let waiter =
        std::thread::spawn(move || other.lock_with("k", &patient()).map(|g| g.fence().get()));
    eventually("a waiter", || store.calls(Verb::Acquire) >= 3);
    drop(guard);
    assert_eq!(ended(waiter).expect("the lock"), 2);
}

#[test]
fn a_waiter_is_woken_by_a_release_of_another_client() {
    let store = MemoryBackend::new();
    let (here, there) = (
        Client::from_backend(store.clone()),
        Client::from_backend(store.clone()),
    );
    let guard = there.lock_with("k", &patient()).expect("a lock");
    let other = here.clone();
    let waiter =
        std::thread::spawn(move || other.lock_with("k", &patient()).map(|g| g.fence().get()));
    eventually("a waiter", || store.calls(Verb::Acquire) >= 3);
    drop(guard);
    assert_eq!(ended(waiter).expect("the lock"), 2);
}

/// Telemetry is a store around the store: what is not one of its events goes through it all the same.
#[test]
fn a_waiter_is_woken_also_where_events_are_told() {
    let store = MemoryBackend::new();
    let told = ClientOptions::new().on_event(|_| {});
    let here = Client::from_backend_with(store.clone(), &told).expect("legal options");
    let there = Client::from_backend(store.clone());
    let guard = there.lock_with("k", &patient()).expect("a lock");
    let waiter =
        std::thread::spawn(move || here.lock_with("k", &patient()).map(|g| g.fence().get()));
    eventually("a waiter", || store.calls(Verb::Acquire) >= 3);
    drop(guard);
    // Left to itself it would look in five minutes.
    assert_eq!(ended(waiter).expect("the lock"), 2);
}

/// Eight waiters, in the order of their numbers as far as the machine plays along, and the order they were served in.
/// Each is given `pause` to get in line.
fn burst(pause: Duration) -> (Vec<usize>, u64) {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let guard = client.lock("k").expect("a lock");
    let order: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut waiters = Vec::new();
    for n in 0..8 {
        let (client, order) = (client.clone(), Arc::clone(&order));
        waiters.push(std::thread::spawn(move || {
            let guard = client
                .lock_with("k", &patient())
                .expect("the lock in the end");
            order.lock().expect("the order").push(n);
            drop(guard);
        }));
        // It is in line as soon as its thread sleeps there; nothing tells that from outside.
        std::thread::sleep(pause);
    }
    let attempts = store.calls(Verb::Acquire);
    drop(guard);
    for waiter in waiters {
        ended(waiter);
    }
    let order = order.lock().expect("the order").clone();
    (order, attempts)
}

#[test]
fn a_burst_is_served_in_order_and_asks_for_one() {
    // On a busy machine a waiter may come late to the line: each run gives it more time. An order that holds by chance does so
    // once in 40 320 times.
    let mut runs = Vec::new();
    for pause in [20, 50, 100, 200, 400, 800, 1600] {
        let (order, attempts) = burst(Duration::from_millis(pause));
        assert_eq!(order.len(), 8);
        if order.is_sorted() && attempts <= 3 {
            return;
        }
        runs.push((order, attempts));
    }
    panic!("{runs:?}");
}

#[test]
fn one_that_is_cancelled_passes_its_turn_on() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let guard = client.lock("k").expect("a lock");
    let token = CancelToken::new();
    let (first, second) = (client.clone(), client.clone());
    let cancelled = patient().cancel(&token);
    let first = std::thread::spawn(move || first.lock_with("k", &cancelled).map(drop));
    eventually("the first in line", || store.calls(Verb::Acquire) >= 3);
    let second =
        std::thread::spawn(move || second.lock_with("k", &patient()).map(|g| g.fence().get()));
    token.cancel();
    assert_eq!(
        ended(first).expect_err("cancelled").code(),
        ErrorCode::Aborted
    );
    drop(guard);
    assert_eq!(ended(second).expect("the lock"), 2);
}

#[test]
fn one_that_times_out_passes_its_turn_on() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let guard = client.lock("k").expect("a lock");
    let (first, second) = (client.clone(), client.clone());
    let hasty = LockOptions::new().acquire_timeout(Duration::from_millis(500));
    let first = std::thread::spawn(move || first.lock_with("k", &hasty).map(drop));
    // Its first attempt is certain; if it is slow it may have no other.
    eventually("the first in line", || store.calls(Verb::Acquire) >= 2);
    let second =
        std::thread::spawn(move || second.lock_with("k", &patient()).map(|g| g.fence().get()));
    assert_eq!(
        ended(first).expect_err("still held").code(),
        ErrorCode::AcquisitionTimeout
    );
    drop(guard);
    assert_eq!(ended(second).expect("the lock"), 2);
}

#[test]
fn one_behind_another_times_out_by_itself_and_has_asked() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let guard = client.lock("k").expect("a lock");
    let first = client.clone();
    let first = std::thread::spawn(move || first.lock_with("k", &patient()).map(drop));
    eventually("the first in line", || store.calls(Verb::Acquire) >= 3);
    let begun = Instant::now();
    let error = client
        .lock_with(
            "k",
            &LockOptions::new().acquire_timeout(Duration::from_millis(100)),
        )
        .map(drop)
        .expect_err("still held");
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(
        (error.code(), error.attempts()),
        (ErrorCode::AcquisitionTimeout, 1)
    );
    let counted = LockOptions::new()
        .acquire_timeout(WAIT_LIMIT * 10)
        .max_retries(2)
        .retry_delay(Duration::from_millis(1));
    let error = client
        .lock_with("k", &counted)
        .map(drop)
        .expect_err("still held");
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);
    drop(guard);
    ended(first).expect("the lock");
}

#[test]
fn an_expired_holder_is_taken_over_when_its_lease_is_over() {
    let client = Client::from_backend(MemoryBackend::new());
    let dead = client
        .lock_with(
            "k",
            &LockOptions::new()
                .ttl(Duration::from_millis(300))
                .no_heartbeat(),
        )
        .expect("a lock");
    std::mem::forget(dead);
    // The delay alone would keep it asleep for minutes; after the lease the tolerance of a second is waited out by polling.
    let options = LockOptions::new()
        .acquire_timeout(WAIT_LIMIT * 20)
        .retry_delay(Duration::from_millis(100))
        .jitter(Jitter::None);
    assert_eq!(
        client
            .lock_with("k", &options)
            .expect("the lock")
            .fence()
            .get(),
        2
    );
}

#[test]
fn a_store_that_never_calls_is_polled() {
    let store = MemoryBackend::new();
    let (here, there) = (
        Client::from_backend(Passing::new(store.clone(), |_| ())),
        Client::from_backend(store.clone()),
    );
    let guard = there.lock("k").expect("a lock");
    let options = LockOptions::new()
        .acquire_timeout(WAIT_LIMIT * 20)
        .retry_delay(Duration::from_millis(10));
    let waiter = std::thread::spawn(move || here.lock_with("k", &options).map(|g| g.fence().get()));
    eventually("polling", || store.calls(Verb::Acquire) >= 6);
    drop(guard);
    assert_eq!(ended(waiter).expect("the lock"), 2);
}

#[test]
fn trouble_in_line_is_waited_out() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let guard = client.lock("k").expect("a lock");
    store.once(Verb::Acquire, Fault::Refuse(ErrorCode::ServiceUnavailable));
    store.once(Verb::Acquire, Fault::DropReply);
    let waiter = {
        let client = client.clone();
        let options = LockOptions::new()
            .acquire_timeout(WAIT_LIMIT * 20)
            .retry_delay(Duration::from_millis(5));
        std::thread::spawn(move || client.lock_with("k", &options).map(|g| g.fence().get()))
    };
    eventually("three attempts", || store.calls(Verb::Acquire) >= 4);
    drop(guard);
    assert_eq!(ended(waiter).expect("the lock"), 2);
}

/// A place in line, for a caller that waits by itself.
fn in_line(client: &Client) -> Waiter {
    match client.lock_or_wait("k", &patient(), || {}) {
        Ok(Turn::InLine(waiter)) => waiter,
        other => panic!("{other:?}"),
    }
}

/// How long the waiter may sleep; `None` if an attempt is due.
fn sleep_of(waiter: &Waiter) -> Option<Duration> {
    match waiter.next(WaiterEvent::Woken) {
        WaiterStep::Sleep(time) => Some(time),
        WaiterStep::Try { .. } => None,
        other => panic!("{other:?}"),
    }
}

/// A caller that comes late to look at the lease still learns that it is over.
#[test]
fn a_place_knows_that_a_dead_holders_time_is_over() {
    let client = Client::from_backend(MemoryBackend::new());
    let short = LockOptions::new()
        .ttl(Duration::from_millis(50))
        .no_heartbeat();
    std::mem::forget(client.lock_with("k", &short).expect("a lock"));
    let place = in_line(&client);
    // The store has begun to listen and calls once; from then on only the lease can end the sleep before its delay does.
    while place.is_called() {
        assert!(place.try_lock(&Call::new()).expect("an answer").is_none());
    }
    if let Some(time) = sleep_of(&place) {
        assert!(time <= Duration::from_millis(1050), "{time:?}");
    }
    eventually("the lease's end", || sleep_of(&place).is_none());
    let mut guard = None;
    eventually("the lock", || {
        guard = place.try_lock(&Call::new()).expect("an answer");
        guard.is_some()
    });
    let WaiterStep::GiveUp(error) = place.next(WaiterEvent::Woken) else {
        panic!("the lock is held: there is nothing to wait for");
    };
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}

/// Of many waiters that come together one asks the store, they are served in the order in which they came, and the first one knows when the
/// holder's lease is over.
#[test]
fn many_that_wait_by_themselves_ask_for_one() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let options = LockOptions::new();
    let Ok(Turn::Held(held)) = client.lock_or_wait("k", &options, || {}) else {
        panic!("it is free");
    };
    let before = store.calls(Verb::Acquire);
    let line: Vec<_> = (0..100).map(|_| in_line(&client)).collect();
    assert_eq!(store.calls(Verb::Acquire), before + 1);
    // The store has begun to listen and calls once; then no waiter has a reason to ask.
    while line[0].is_called() {
        assert!(line[0].try_lock(&Call::new()).expect("an answer").is_none());
    }
    assert!(store.calls(Verb::Acquire) <= before + 2);
    let left = sleep_of(&line[0]).expect("the store told");
    assert!(left <= Duration::from_secs(31), "{left:?}");
    let left = sleep_of(&line[1]).expect("it has not asked");
    assert!(left > WAIT_LIMIT * 10, "{left:?}");
    assert!(
        line[1]
            .try_lock(&Call::new())
            .expect("not its turn")
            .is_none()
    );
    assert!(store.calls(Verb::Acquire) <= before + 2);
    assert!(!line.iter().any(Waiter::is_called));
    drop(held);
    for (n, place) in line.into_iter().enumerate() {
        assert!(place.is_first());
        let guard = loop {
            eventually("it is called", || place.is_called());
            if let Some(guard) = place.try_lock(&Call::new()).expect("an answer") {
                break guard;
            }
        };
        assert_eq!(guard.fence().get(), n as u64 + 2);
        drop(place);
    }
}

/// One whose attempt failed leaves without knowing whether the lock is free: the next one finds out.
#[test]
fn a_place_whose_attempt_was_not_answered_calls_the_next() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let held = client.lock("k").expect("a lock");
    let (first, second) = (in_line(&client), in_line(&client));
    while first.is_called() {
        let tried = first.try_lock(&Call::new()).expect("an answer");
        assert!(tried.is_none());
    }
    store.once(Verb::Acquire, Fault::Refuse(ErrorCode::AuthFailed));
    assert!(held.release().expect("an answer").is_released());
    assert!(first.is_called());
    let error = first.try_lock(&Call::new()).expect_err("refused");
    assert_eq!(error.code(), ErrorCode::AuthFailed);
    assert!(
        first.is_first() && !first.is_called(),
        "it is not to insist"
    );
    assert!(!second.is_called());
    drop(first);
    assert!(second.is_called());
    drop((held, second));
    // A first attempt that fails leaves no place.
    store.once(Verb::Acquire, Fault::Refuse(ErrorCode::AuthFailed));
    let error = client.lock_or_wait("k", &LockOptions::new(), || {});
    assert_eq!(error.expect_err("refused").code(), ErrorCode::AuthFailed);
    assert!(!client.is_waited_for("k").expect("a key"));
}

/// Does what the waiter says, to the grant.
fn follow(waiter: &Waiter) -> Guard {
    let mut guard = None;
    eventually("the lock", || {
        match waiter.next(WaiterEvent::Woken) {
            WaiterStep::Try { .. } => guard = waiter.try_lock(&Call::new()).expect("no end"),
            WaiterStep::Sleep(time) => std::thread::sleep(time),
            other => panic!("{other:?}"),
        }
        guard.is_some()
    });
    guard.expect("a guard")
}

/// An attempt whose answer was lost is recognised when it is repeated, as in the library's own loop; and trouble is waited out.
#[test]
fn a_place_keeps_one_lock_id_for_all_its_attempts() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let options = LockOptions::new()
        .acquire_timeout(WAIT_LIMIT * 20)
        .retry_delay(Duration::from_millis(1));
    store.once(Verb::Acquire, Fault::Refuse(ErrorCode::ServiceUnavailable));
    store.once(Verb::Acquire, Fault::DropReply);
    let Ok(Turn::InLine(place)) = client.lock_or_wait("k", &options, || {}) else {
        panic!("the store is in trouble that may pass");
    };
    let guard = follow(&place);
    assert_eq!(guard.fence().get(), 1);
    drop(place);
    assert_eq!(
        (store.calls(Verb::Acquire), store.calls(Verb::Release)),
        (3, 0)
    );
    assert!(!guard.is_lost());
    // One that is given up in doubt is undone.
    let held = store.stored();
    store.once(Verb::Acquire, Fault::DropReply);
    let Ok(Turn::InLine(place)) = client.lock_or_wait("other", &options, || {}) else {
        panic!("the answer was lost");
    };
    assert_eq!(store.stored(), held + 1);
    drop(place);
    eventually("the orphan's end", || store.stored() == held);
}

/// A caller that gives up is told so, with what it has done so far.
#[test]
fn a_place_is_given_up() {
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let _held = client.lock("k").expect("a lock");
    let place = in_line(&client);
    let WaiterStep::GiveUp(error) = place.next(WaiterEvent::Cancelled) else {
        panic!("it goes on");
    };
    assert_eq!((error.code(), error.attempts()), (ErrorCode::Aborted, 1));
    let calls = store.calls(Verb::Acquire);
    assert!(place.try_lock(&Call::new()).is_err());
    assert_eq!(
        store.calls(Verb::Acquire),
        calls,
        "no attempt after the end"
    );
}

/// The same where the library waits: the call of the release was the first one's, and its attempt came to nothing.
#[test]
fn a_caller_whose_attempt_was_refused_calls_the_next() {
    let store = MemoryBackend::new();
    // It never calls: what the holder's release tells the line is all that there is.
    let client = Client::from_backend(Passing::new(store.clone(), |_| ()));
    let held = client.lock_with("k", &patient()).expect("a lock");
    let wait = || {
        let client = client.clone();
        std::thread::spawn(move || client.lock_with("k", &patient()).map(|g| g.fence().get()))
    };
    let first = wait();
    eventually("the first in line", || store.calls(Verb::Acquire) >= 3);
    let second = wait();
    // It gives no sign of itself before it is served; if it comes late, it finds the lock free.
    std::thread::sleep(Duration::from_millis(100));
    store.once(Verb::Acquire, Fault::Refuse(ErrorCode::AuthFailed));
    drop(held);
    assert_eq!(
        ended(first).expect_err("refused").code(),
        ErrorCode::AuthFailed
    );
    assert_eq!(ended(second).expect("the lock"), 2);
}

fn greedy(time: Duration) -> (u32, u32) {
    let client = Client::from_backend(MemoryBackend::new());
    let start = Arc::new(Barrier::new(4));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (client, start) = (client.clone(), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                let end = Instant::now() + time;
                let mut count = 0u32;
                while Instant::now() < end {
                    let guard = client.lock_with("k", &patient()).expect("the lock");
                    std::thread::sleep(Duration::from_millis(1));
                    drop(guard);
                    count += 1;
                }
                count
            })
        })
        .collect();
    let counts: Vec<u32> = callers.into_iter().map(|t| ended(t)).collect();
    (
        counts.iter().min().copied().unwrap_or(0),
        counts.iter().max().copied().unwrap_or(0),
    )
}

#[test]
fn greedy_callers_share_evenly() {
    // Longer each time: what a busy machine does to one of them evens out.
    let mut runs = Vec::new();
    for ms in [300, 300, 600, 1200, 2400, 4800] {
        let (fewest, most) = greedy(Duration::from_millis(ms));
        if most <= fewest * 2 {
            return;
        }
        runs.push((fewest, most));
    }
    panic!("{runs:?}");
}

#[test]
fn a_wake_that_panics_harms_no_other_waiter() {
    let client = Client::from_backend(MemoryBackend::new());
    let guard = client.lock("k").expect("a lock");
    let waiter = client
        .waiter("k", &LockOptions::new(), || panic!("planted"))
        .expect("a place");
    let other = client.clone();
    let second =
        std::thread::spawn(move || other.lock_with("k", &patient()).map(|g| g.fence().get()));
    // The holder's own release calls it, and is not hurt.
    assert!(guard.release().expect("an answer").is_released());
    assert!(waiter.is_first() && waiter.is_called());
    drop(waiter);
    assert_eq!(ended(second).expect("the lock"), 2);
}

/// A client whose calls have 200 ms, and a wait of 400 ms.
fn hasty(store: &MemoryBackend) -> (Client, LockOptions) {
    let options = ClientOptions::new().operation_timeout(Duration::from_millis(200));
    let client = Client::from_backend_with(store.clone(), &options).expect("legal options");
    let wait = LockOptions::new().acquire_timeout(Duration::from_millis(400));
    (client, wait)
}

/// All callers of a line keep the bound of their call, not only the one that asks.
#[test]
fn each_of_a_line_keeps_its_bound_when_the_store_hangs() {
    let store = MemoryBackend::new();
    store.always(Verb::Acquire, Fault::Hang);
    for (acquire, operation) in [(200, 400), (400, 200), (300, 300)] {
        let bound = Duration::from_millis(acquire.max(operation));
        let options = ClientOptions::new().operation_timeout(Duration::from_millis(operation));
        let client = Client::from_backend_with(store.clone(), &options).expect("legal options");
        let wait = LockOptions::new().acquire_timeout(Duration::from_millis(acquire));
        let start = Arc::new(Barrier::new(20));
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let (client, wait, start) = (client.clone(), wait.clone(), Arc::clone(&start));
                std::thread::spawn(move || {
                    start.wait();
                    let watch = Stopwatch::start();
                    let error = client
                        .lock_with("k", &wait)
                        .map(drop)
                        .expect_err("still held");
                    let (took, lost) = watch.stop_after(bound);
                    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
                    (took.saturating_sub(lost), error.attempts())
                })
            })
            .collect();
        let all: Vec<_> = callers.into_iter().map(ended).collect();
        assert!(all.iter().all(|(_, attempts)| *attempts >= 1), "{all:?}");
        let worst = all.iter().map(|(took, _)| *took).max();
        assert!(worst <= Some(bound + Duration::from_millis(100)), "{all:?}");
    }
}

/// The last attempt of a caller that never was first has too little time to blame the store: others were answered.
#[test]
fn a_caller_whose_time_is_over_in_line_says_that_the_lock_was_held() {
    let store = MemoryBackend::new();
    let (client, wait) = hasty(&store);
    let guard = client.lock("k").expect("a lock");
    let first = client.clone();
    let first = std::thread::spawn(move || first.lock_with("k", &patient()).map(drop));
    eventually("the first in line", || store.calls(Verb::Acquire) >= 3);
    store.once(Verb::Acquire, Fault::Hang);
    let error = client.lock_with("k", &wait).map(drop);
    let error = error.expect_err("still held");
    assert_eq!(
        (error.code(), error.attempts()),
        (ErrorCode::AcquisitionTimeout, 1)
    );
    // The same for one that waits by itself, and its attempt is as short.
    let Ok(Turn::InLine(place)) = client.lock_or_wait("k", &wait, || {}) else {
        panic!("others wait");
    };
    std::thread::sleep(Duration::from_millis(450));
    store.once(Verb::Acquire, Fault::Hang);
    let watch = Stopwatch::start();
    let error = place.try_lock(&Call::new()).expect_err("no answer");
    let took = watch.stop();
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout, "{error}");
    assert!(took <= Duration::from_millis(100), "{took:?}");
    drop(place);
    // One that says that it waits longer has its whole operation timeout: this one's retry is over, and it has never asked.
    let longer = LockOptions::new()
        .acquire_timeout(WAIT_LIMIT * 10)
        .max_retries(1)
        .retry_delay(Duration::from_millis(1));
    let Ok(Turn::InLine(place)) = client.lock_or_wait("k", &longer, || {}) else {
        panic!("others wait");
    };
    eventually("its attempt", || sleep_of(&place).is_none());
    store.once(Verb::Acquire, Fault::Hang);
    let begun = Instant::now();
    let error = place.try_lock(&Call::new()).expect_err("no answer");
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    drop((guard, place));
    ended(first).expect("the lock");
}

/// The next in line is told of its turn, however the one before it left: its own delay may be long.
#[test]
fn a_turn_is_passed_on_to_the_next() {
    let store = MemoryBackend::new();
    let slow = ClientOptions::new().operation_timeout(WAIT_LIMIT * 10);
    let client = Client::from_backend_with(store.clone(), &slow).expect("legal options");
    let place = || {
        let (wake, woken) = mpsc::channel();
        let wake = Mutex::new(wake);
        let ring = move || {
            let _ = wake.lock().expect("no panic").send(());
        };
        let place = client.waiter("k", &LockOptions::new(), ring);
        (place.expect("a place"), woken)
    };
    let called = |woken: &mpsc::Receiver<()>| woken.recv_timeout(WAIT_LIMIT).is_ok();
    // From a first attempt that fails.
    store.once(Verb::Acquire, Fault::Hang);
    let token = CancelToken::new();
    let first = {
        let (client, options) = (client.clone(), patient().cancel(&token));
        std::thread::spawn(move || client.lock_with("k", &options).map(drop))
    };
    eventually("a first attempt", || store.calls(Verb::Acquire) == 1);
    let (second, woken) = place();
    assert!(!second.is_first());
    token.cancel();
    assert!(called(&woken), "a first attempt that failed");
    assert!(second.is_first() && ended(first).is_err());
    // From a place that is left.
    let (third, woken) = place();
    drop(second);
    assert!(called(&woken), "a place that was left");
    drop(third);
    // From a first attempt that is granted: the next one is first now, and has the store call it.
    store.once(Verb::Acquire, Fault::Delay(Duration::from_millis(200)));
    let before = store.calls(Verb::Acquire);
    let first = {
        let client = client.clone();
        std::thread::spawn(move || client.lock_with("k", &patient()))
    };
    eventually("a first attempt", || store.calls(Verb::Acquire) > before);
    let (second, woken) = place();
    let guard = ended(first).expect("the lock");
    assert!(called(&woken), "a first attempt that was granted");
    assert!(second.is_first());
    drop((guard, second));
}
