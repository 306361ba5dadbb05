//! Tests what telemetry tells: of every call of a guard and of the bare verbs, of waits and of losses. And the client's `on_lost`.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use crate::support::kit::{self, Kit, THIRD, TTL, kit_with};
use crate::support::{WAIT_LIMIT, ended, eventually};
use syncguard::testkit::{Fault, ManualClock, MemoryBackend, Verb};
use syncguard::{
    Backend, Call, CancelToken, Client, ClientOptions, ErrorCode, EventReason, Guard, IncludeRaw,
    LockEvent, LockEventType, LockId, LockOptions, LossReason, Telemetry, Turn, WaiterEvent,
    WaiterStep, hash_key,
};

type Seen = Arc<Mutex<Vec<LockEvent>>>;

fn recorder() -> (Seen, impl Fn(&LockEvent) + Send + Sync + 'static) {
    let seen = Seen::default();
    let sink = Arc::clone(&seen);
    (seen, move |event: &LockEvent| {
        sink.lock().expect("not poisoned").push(event.clone());
    })
}

fn watched() -> (Kit, Seen) {
    let (seen, hook) = recorder();
    (kit_with(ClientOptions::new().on_event(hook)), seen)
}

/// Waits for `count` events and answers them all.
#[track_caller]
fn told(seen: &Seen, count: usize) -> Vec<LockEvent> {
    eventually("the events", || {
        seen.lock().expect("not poisoned").len() >= count
    });
    let events = seen.lock().expect("not poisoned").clone();
    assert_eq!(events.len(), count, "{events:#?}");
    events
}

fn of(events: &[LockEvent], kind: LockEventType) -> Vec<&LockEvent> {
    events.iter().filter(|event| event.kind == kind).collect()
}

fn kinds(events: &[LockEvent]) -> Vec<LockEventType> {
    events.iter().map(|event| event.kind).collect()
}

#[test]
fn every_call_of_a_guard_is_told_once_with_its_key_fence_and_times() {
    use LockEventType::{Acquire, Extend, Release, Wait};
    let (kit, seen) = watched();
    drop(kit.lock());
    let guard = kit.lock();
    kit.renew(&guard);
    guard.extend(TTL).expect("an answer").expect_extended();
    kit.clock.advance(Duration::from_secs(2));
    guard.release().expect("an answer").expect_released();
    let events = told(&seen, 8);
    assert_eq!(
        kinds(&events),
        [
            Acquire, Wait, Release, Acquire, Wait, Extend, Extend, Release
        ]
    );
    let backend = kit.store.capabilities().backend;
    for event in &events[3..] {
        assert_eq!(event.key_hash, Some(hash_key("k")), "{event:?}");
        assert_eq!(event.fence.map(|f| f.get()), Some(2), "{event:?}");
        assert_eq!(
            event.lock_id_hash,
            Some(hash_key(guard.lock_id().as_str())),
            "{event:?}"
        );
        assert!(event.ok && event.code.is_none() && event.reason.is_none());
        assert_eq!(event.backend, backend);
        assert!(event.key.is_none() && event.lock_id.is_none());
        // Each time where it belongs.
        let is = |kind| event.kind == kind;
        assert_eq!(event.waited.is_some(), is(Wait), "{event:?}");
        assert_eq!(event.attempts.is_some(), is(Wait), "{event:?}");
        assert_eq!(event.held.is_some(), is(Release), "{event:?}");
    }
    assert_eq!(events[4].attempts, Some(1));
    assert_eq!(events[4].waited, Some(events[4].duration));
    assert_eq!(events[7].held, Some(THIRD + Duration::from_secs(2)));
    for (verb, kind) in [
        (Verb::Acquire, Acquire),
        (Verb::Extend, Extend),
        (Verb::Release, Release),
    ] {
        let calls = usize::try_from(kit.store.calls(verb)).expect("a number");
        assert_eq!(of(&events, kind).len(), calls, "{kind:?}");
    }
    assert_eq!(kit.client.events_dropped(), 0);
}

#[test]
fn raw_keys_come_with_every_event_that_is_to_have_them() {
    let (seen, hook) = recorder();
    let options = ClientOptions::new()
        .on_event(hook)
        .events_include_raw(IncludeRaw::Always);
    let kit = kit_with(options);
    let guard = kit.lock_with(LockOptions::new().no_heartbeat());
    let lock_id = guard.lock_id().as_str().to_owned();
    kit.clock.advance(TTL);
    assert!(guard.is_lost());
    drop(guard);
    for event in told(&seen, 4) {
        assert_eq!(event.key.as_deref(), Some("k"), "{event:?}");
        assert_eq!(event.lock_id.as_deref(), Some(&*lock_id), "{event:?}");
        let shown = format!("{event:?}");
        assert!(
            !shown.contains("\"k\"") && !shown.contains(&lock_id),
            "{shown}"
        );
    }
}

#[test]
fn a_call_by_lock_id_alone_has_no_key_and_no_fence() {
    let (kit, seen) = watched();
    let id = LockId::random().expect("randomness");
    let _ = kit.client.release(&id, &Call::new()).expect("an answer");
    let events = told(&seen, 1);
    assert_eq!(events[0].reason, Some(EventReason::NotFound));
    assert_eq!(
        (&events[0].key_hash, events[0].fence, events[0].held),
        (&None, None, None)
    );
}

#[test]
fn trouble_has_its_code() {
    let (kit, seen) = watched();
    let guard = kit.lock();
    for (verb, code) in [
        (Verb::Extend, ErrorCode::RateLimited),
        (Verb::Release, ErrorCode::AuthFailed),
        (Verb::Acquire, ErrorCode::InvalidArgument),
    ] {
        kit.store.once(verb, Fault::Refuse(code));
    }
    assert!(guard.extend(TTL).is_err());
    assert!(guard.release().is_err());
    assert!(kit.client.lock("other").is_err());
    let events = told(&seen, 6);
    let codes: Vec<_> = events.iter().map(|e| (e.kind, e.ok, e.code)).collect();
    assert_eq!(
        codes[2..],
        [
            (LockEventType::Extend, false, Some(ErrorCode::RateLimited)),
            (LockEventType::Release, false, Some(ErrorCode::AuthFailed)),
            (
                LockEventType::Acquire,
                false,
                Some(ErrorCode::InvalidArgument)
            ),
            // The wait ended with the same.
            (LockEventType::Wait, false, Some(ErrorCode::InvalidArgument)),
        ]
    );
    assert_eq!(events[2].fence, Some(guard.fence()));
    assert_eq!(events[3].key_hash, Some(hash_key("k")));
}

#[test]
fn an_acquire_that_is_taken_back_names_its_key() {
    let (kit, seen) = watched();
    kit.store.once(Verb::Acquire, Fault::DropReply);
    assert!(kit.client.try_lock("k").is_err());
    let events = told(&seen, 2);
    assert_eq!(
        kinds(&events),
        [LockEventType::Acquire, LockEventType::Release]
    );
    assert_eq!(events[0].code, Some(ErrorCode::ServiceUnavailable));
    assert!(events[1].ok);
    assert_eq!(events[1].key_hash, Some(hash_key("k")));
}

#[test]
fn a_wait_without_the_lock_is_told_once_with_why() {
    let (kit, seen) = watched();
    let _held = kit.lock();
    let time = Duration::from_millis(30);
    let options = LockOptions::new().acquire_timeout(time);
    let error = kit.moving(|| kit.client.lock_with("k", &options));
    let error = error.expect_err("held");
    assert_eq!(error.code(), ErrorCode::AcquisitionTimeout);

    let token = CancelToken::new();
    let cancelled = std::thread::spawn({
        let (client, token) = (kit.client.clone(), token.clone());
        let options = LockOptions::new().acquire_timeout(TTL).cancel(&token);
        move || client.lock_with("k", &options).map(drop)
    });
    eventually("a waiter", || kit.client.is_waited_for("k").expect("a key"));
    token.cancel();
    assert!(ended(cancelled).is_err());

    // A waiter that is asked after its end, and one that leaves.
    let options = LockOptions::new().acquire_timeout(TTL);
    let waiter = kit.client.waiter("k", &options, || {}).expect("a place");
    for event in [WaiterEvent::Cancelled, WaiterEvent::Woken] {
        assert!(matches!(waiter.next(event), WaiterStep::GiveUp(_)));
    }
    drop(waiter);
    drop(kit.client.waiter("k", &options, || {}).expect("a place"));

    let ends = || -> Vec<LockEvent> {
        let all = seen.lock().expect("not poisoned").clone();
        let mut waits: Vec<_> = of(&all, LockEventType::Wait).into_iter().cloned().collect();
        waits.remove(0);
        waits
    };
    eventually("four ends", || ends().len() >= 4);
    let ends = ends();
    let codes: Vec<_> = ends.iter().map(|e| e.code).collect();
    assert_eq!(codes[0], Some(ErrorCode::AcquisitionTimeout));
    assert_eq!(codes[1..], [Some(ErrorCode::Aborted); 3]);
    assert_eq!(ends[0].reason, Some(EventReason::Locked));
    assert_eq!(ends[0].waited, error.waited());
    assert!(ends[0].waited >= Some(time), "{:?}", ends[0]);
    assert!(ends[0].attempts >= Some(1), "{:?}", ends[0]);
    for end in ends {
        assert!(!end.ok && end.fence.is_none() && end.key_hash.is_some());
    }
}

#[test]
fn a_wait_that_is_granted_in_line_is_told_once() {
    let (kit, seen) = watched();
    let held = kit.lock();
    let options = LockOptions::new().acquire_timeout(TTL);
    let (wake, woken) = mpsc::channel();
    let wake = Mutex::new(wake);
    let wake = move || drop(wake.lock().map(|wake| wake.send(())));
    let turn = kit.client.lock_or_wait("k", &options, wake);
    let Turn::InLine(waiter) = turn.expect("an answer") else {
        unreachable!("it is held");
    };
    held.release().expect("an answer").expect_released();
    let end = Instant::now() + WAIT_LIMIT;
    let guard: Guard = loop {
        assert!(Instant::now() < end, "no grant");
        match waiter.next(WaiterEvent::Woken) {
            WaiterStep::Try { .. } => {
                if let Some(guard) = waiter.try_lock(&Call::new()).expect("an answer") {
                    break guard;
                }
            }
            WaiterStep::Sleep(time) => drop(woken.recv_timeout(time)),
            WaiterStep::GiveUp(error) => panic!("{error}"),
        }
    };
    drop(waiter);
    let fence = guard.fence();
    drop(guard);
    eventually("the last release", || {
        of(&seen.lock().expect("not poisoned"), LockEventType::Release).len() == 2
    });
    let all = seen.lock().expect("not poisoned").clone();
    let waits = of(&all, LockEventType::Wait);
    assert_eq!(waits.len(), 2, "{waits:#?}");
    assert!(waits[1].ok);
    assert_eq!(waits[1].fence, Some(fence));
    assert_eq!(waits[1].attempts, Some(2));
}

/// How a guard is lost.
fn lose(kit: &Kit, why: LossReason) -> Guard {
    let options = LockOptions::new();
    let guard = match why {
        LossReason::NotRenewed => kit.lock_with(options.no_heartbeat()),
        LossReason::MaxHold => kit.lock_with(options.max_hold(Duration::from_secs(1))),
        _ => kit.lock(),
    };
    match why {
        LossReason::Removed => {
            kit.store.evict("k").expect("a key");
            kit.clock.advance(THIRD);
        }
        LossReason::HeartbeatFailed => {
            kit.store.once(Verb::Extend, Fault::Panic);
            kit.clock.advance(THIRD);
        }
        _ => {
            kit.store
                .always(Verb::Extend, Fault::Refuse(ErrorCode::RateLimited));
            kit.clock.advance(TTL);
        }
    }
    assert!(guard.wait_lost_for(WAIT_LIMIT), "{why:?}");
    guard
}

#[test]
fn a_loss_is_told_once_with_its_reason_also_without_a_callback() {
    for why in [
        LossReason::NotRenewed,
        LossReason::MaxHold,
        LossReason::Removed,
        LossReason::HeartbeatFailed,
        LossReason::Unconfirmed,
    ] {
        let (kit, seen) = watched();
        let guard = lose(&kit, why);
        // More threads find it out.
        assert!(guard.is_lost() && guard.is_lost());
        // A release that comes at once does not hide it.
        drop(guard);
        eventually("the loss and the release", || {
            let events = seen.lock().expect("not poisoned");
            [LockEventType::Loss, LockEventType::Release]
                .iter()
                .all(|kind| !of(&events, *kind).is_empty())
        });
        let events = seen.lock().expect("not poisoned").clone();
        let losses = of(&events, LockEventType::Loss);
        assert_eq!(losses.len(), 1, "{why:?}: {events:#?}");
        let loss = losses[0];
        assert_eq!(
            (loss.ok, loss.code, loss.loss),
            (false, Some(ErrorCode::Lost), Some(why))
        );
        assert_eq!(loss.key_hash, Some(hash_key("k")));
        assert_eq!(loss.fence.map(|f| f.get()), Some(1));
        assert!(loss.lock_id_hash.is_some());
        assert!(loss.held >= Some(THIRD), "{loss:?}");
    }
}

#[test]
fn a_guard_that_is_released_in_time_is_no_loss() {
    let (kit, seen) = watched();
    let guard = kit.lock();
    guard.release().expect("an answer").expect_released();
    kit.clock.advance(TTL * 2);
    assert!(!guard.is_lost());
    drop(guard);
    // The queue keeps the order: what was told before this is told by now.
    let _ = kit.client.get_by_key("k").expect("an answer");
    let events = told(&seen, 4);
    assert!(of(&events, LockEventType::Loss).is_empty(), "{events:#?}");
}

#[test]
fn the_clients_callback_is_told_of_every_lost_guard_beside_the_guards_own() {
    let (tell, heard) = mpsc::channel();
    let tell = Mutex::new(tell);
    let kit = kit_with(ClientOptions::new().on_lost(move |lost| {
        let shown = format!("{lost:?}");
        let raw = [lost.key.as_str(), lost.lock_id.as_str()];
        assert!(!raw.iter().any(|text| shown.contains(text)), "{shown}");
        let told = (
            lost.key.clone(),
            lost.lock_id,
            lost.fence,
            lost.held,
            lost.error.loss_reason(),
        );
        tell.lock()
            .expect("not poisoned")
            .send(told)
            .expect("heard");
    }));
    let (own, callback) = kit::counter();
    let options = LockOptions::new().no_heartbeat().on_lost(callback);
    let (first, second) = (
        kit.client.lock_with("first", &options).expect("a lock"),
        kit.client
            .lock_with("second", &LockOptions::new().no_heartbeat())
            .expect("a lock"),
    );
    kit.clock.advance(TTL);
    assert!(first.is_lost() && second.is_lost());
    let mut all = [(); 2].map(|()| heard.recv_timeout(WAIT_LIMIT).expect("told"));
    all.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
    for (told, guard) in all.iter().zip([&first, &second]) {
        let why = Some(LossReason::NotRenewed);
        let wanted = (
            guard.key().clone(),
            *guard.lock_id(),
            guard.fence(),
            TTL,
            why,
        );
        assert_eq!(*told, wanted);
    }
    eventually("the guard's own", || own.load(SeqCst) == 1);
    assert!(heard.try_recv().is_err(), "told twice");
}

#[test]
fn neither_callback_waits_for_the_other() {
    for hang_the_guards in [true, false] {
        let (go, hold) = mpsc::channel::<()>();
        let hold = Arc::new(Mutex::new(hold));
        let heard = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let callback = |which: usize, hangs: bool| {
            let (heard, hold) = (Arc::clone(&heard), Arc::clone(&hold));
            move || {
                heard[which].fetch_add(1, SeqCst);
                if hangs {
                    drop(hold.lock().map(|hold| hold.recv()));
                }
            }
        };
        let (own, clients) = (callback(0, hang_the_guards), callback(1, !hang_the_guards));
        let kit = kit_with(ClientOptions::new().on_lost(move |_| clients()));
        let options = LockOptions::new().no_heartbeat().on_lost(move |_| own());
        let guard = kit.lock_with(options);
        kit.clock.advance(TTL);
        assert!(guard.is_lost());
        eventually("both", || heard.iter().all(|h| h.load(SeqCst) == 1));
        drop(go);
        drop(guard);
    }
}

#[test]
fn the_clients_callback_does_not_begin_once_a_release_has() {
    for _ in 0..200 {
        let released = Arc::new(AtomicUsize::new(0));
        let late = Arc::new(AtomicUsize::new(0));
        let (over, wrong) = (Arc::clone(&released), Arc::clone(&late));
        let kit = kit_with(ClientOptions::new().on_lost(move |_| {
            wrong.fetch_add(over.load(SeqCst), SeqCst);
        }));
        let guard = kit.lock_with(LockOptions::new().no_heartbeat());
        kit.clock.advance(TTL);
        // The callback is queued by this, or by the timer.
        let _ = guard.is_lost();
        let _ = guard.release().expect("an answer");
        released.store(1, SeqCst);
        drop(guard);
        drop(kit);
        assert_eq!(late.load(SeqCst), 0, "called after the release");
    }
}

#[test]
fn a_callback_that_releases_the_guard_ends_the_clients_that_has_not_begun() {
    // The client's callback must not begin after the release that the guard's own callback made.
    for _ in 0..50 {
        let slot: Arc<OnceLock<Guard>> = Arc::default();
        let released = Arc::new(AtomicUsize::new(0));
        let late = Arc::new(AtomicUsize::new(0));
        let (over, wrong) = (Arc::clone(&released), Arc::clone(&late));
        let kit = kit_with(ClientOptions::new().on_lost(move |_| {
            wrong.fetch_add(over.load(SeqCst), SeqCst);
        }));
        let (own, over) = (Arc::clone(&slot), Arc::clone(&released));
        let options = LockOptions::new().no_heartbeat().on_lost(move |_| {
            let guard = own.wait();
            let _ = guard.release().expect("an answer");
            over.store(1, SeqCst);
        });
        let guard = kit.lock_with(options);
        kit.clock.advance(TTL);
        assert!(guard.is_lost());
        slot.set(guard).expect("the first");
        eventually("the release", || released.load(SeqCst) == 1);
        assert_eq!(late.load(SeqCst), 0, "called after the release");
    }
}

#[test]
fn a_client_counts_the_events_that_its_hook_missed() {
    let (go, hold) = mpsc::channel::<()>();
    let hold = Mutex::new(hold);
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let options = ClientOptions::new().on_event(move |_| {
        let _ = hold.lock().map(|hold| hold.recv());
        count.fetch_add(1, SeqCst);
    });
    let client = Client::from_backend_with(MemoryBackend::new(), &options).expect("legal options");
    const LOCKS: usize = 1000;
    for _ in 0..LOCKS {
        drop(client.lock("k").expect("a lock"));
    }
    let dropped = usize::try_from(client.clone().events_dropped()).expect("a number");
    assert!(dropped > 0 && dropped < 3 * LOCKS, "{dropped}");
    drop(go);
    eventually("the rest", || heard.load(SeqCst) == 3 * LOCKS - dropped);
    let silent = Client::from_backend(MemoryBackend::new());
    assert_eq!(silent.events_dropped(), 0);
}

#[test]
fn a_store_that_tells_by_itself_tells_once_below_a_client() {
    let (seen, hook) = recorder();
    let clock = ManualClock::new();
    let store = Telemetry::new(MemoryBackend::with_clock(&clock), IncludeRaw::Never, hook);
    let client = Client::from_backend(store);
    client
        .lock("k")
        .and_then(|guard| guard.release())
        .expect("an answer")
        .expect_released();
    let events = told(&seen, 2);
    assert_eq!(
        kinds(&events),
        [LockEventType::Acquire, LockEventType::Release]
    );
    assert_eq!(events[0].fence.map(|f| f.get()), Some(1));
}

#[test]
fn names_for_labels_stay_as_they_are() {
    use EventReason::{Expired, Locked, NotFound};
    use LockEventType::{Acquire, Extend, IsLocked, Lookup, Loss, Release, Wait};
    let kinds = [Acquire, Release, Extend, IsLocked, Lookup, Wait, Loss];
    let names = "acquire release extend is_locked lookup wait loss";
    assert_eq!(kinds.map(|k| k.to_string()).join(" "), names);
    let reasons = [Locked, Expired, NotFound];
    let names = "locked expired not-found";
    assert_eq!(reasons.map(|r| r.to_string()).join(" "), names);
}
