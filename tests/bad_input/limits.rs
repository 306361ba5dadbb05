//! Tests a system that has no more threads or descriptors to give.

use super::*;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Uid, setuid};
use process::{Stage, say};
use support::{WAIT_LIMIT, eventually};
use syncguard::testkit::{Fault, Verb};

#[test]
fn row_51_a_thousand_guards() {
    let kit = kit();
    let guards: Vec<_> = (0..1000)
        .map(|n| kit.client.lock(format!("k{n}")).expect("a lock"))
        .collect();
    // All are due at once; they share a few threads. An answer takes its time, so that a thread has more to do when it has one: those
    // that have just ended are still listed for a while.
    let answer = Duration::from_millis(20);
    kit.store.always(Verb::Extend, Fault::Delay(answer));
    kit.clock.advance(TTL / 3);
    let mut most = 0;
    eventually("a renewal of each", || {
        most = most.max(support::threads_named("syncguard-beat"));
        kit.store.calls(Verb::Extend) == 1000
    });
    // Those of the tests beside this one count too.
    assert!(most < 100, "{most} threads");
    eventually("their answers", || {
        guards.iter().all(|g| g.remaining() > TTL - TTL / 20)
    });
    assert!(guards.iter().all(|g| !g.is_lost()));
    drop(guards);
    assert_eq!(
        (kit.store.calls(Verb::Release), kit.store.stored()),
        (1000, 0)
    );
    eventually("the end of their threads", || {
        support::threads_named("syncguard-beat") < 20
    });
}

#[test]
fn row_51_no_thread_to_be_had() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut stage = Stage::start("threads", dir.path());
    for word in ["refused", "held", "lost", "renewed", "told"] {
        stage.expect(word);
    }
    stage.finish();
}

fn allow_threads(limit: u64) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NPROC).expect("the limit");
    setrlimit(Resource::RLIMIT_NPROC, limit.min(hard), hard).expect("a limit");
}

pub(super) fn threads_stage(_: &Path) {
    let plenty = getrlimit(Resource::RLIMIT_NPROC).expect("the limit").0;
    if Uid::effective().is_root() {
        // The limit does not bind root. A user of its own: the limit counts all that a user runs. A container may not have so
        // many users, or is already another one outside; below it is seen whether the limit binds.
        let _ = setuid(Uid::from_raw(1_000_000 + std::process::id()))
            .or_else(|_| setuid(Uid::from_raw(65_534)));
    }
    let store = MemoryBackend::new();
    let client = Client::from_backend(store.clone());
    let (count, callback) = counter();
    let short = LockOptions::new()
        .ttl(Duration::from_millis(300))
        .on_lost(callback);

    // Not even the timer: the lock is given back at once, and nothing else happens.
    allow_threads(1);
    assert!(
        std::thread::Builder::new().spawn(|| {}).is_err(),
        "the limit binds"
    );
    for error in [
        client.lock("k").map(drop).expect_err("no thread"),
        client.try_lock("k").map(drop).expect_err("no thread"),
        client
            .lock_with("k", &short)
            .map(drop)
            .expect_err("no thread"),
    ] {
        assert_eq!(error.code(), ErrorCode::RateLimited, "{error}");
    }
    assert_eq!((store.stored(), store.calls(Verb::Release)), (0, 3));
    say("refused");

    // The timer and no more. It starts while threads can be had, and needs no other later.
    allow_threads(plenty);
    let long = client.lock("long").expect("a lock");
    allow_threads(1);
    let unrenewed = client.lock_with("k", &short).expect("a lock");
    say("held");
    assert!(
        unrenewed.wait_lost_for(WAIT_LIMIT),
        "no heartbeat renewed it"
    );
    assert_eq!(store.calls(Verb::Extend), 0);
    assert!(!long.is_lost() && long.extend(TTL).expect("an answer").is_extended());
    say("lost");

    // A heartbeat that is due while there is no thread begins as soon as there is one.
    let options = LockOptions::new().heartbeat(Duration::from_millis(50));
    let waits = client.lock_with("waits", &options).expect("a lock");
    let (before, calls) = (waits.expires_at_ms(), store.calls(Verb::Extend));
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(store.calls(Verb::Extend), calls);
    assert_eq!(count.load(SeqCst), 0, "the callback has no thread yet");
    allow_threads(plenty);
    eventually("the renewal", || waits.expires_at_ms() > before);
    say("renewed");
    eventually("the callback", || count.load(SeqCst) == 1);
    for guard in [long, waits] {
        assert!(!guard.is_lost() && guard.release().expect("an answer").is_released());
    }
    drop(unrenewed);
    eventually("an empty store", || {
        !is_locked(&client, "k") && !is_locked(&client, "long")
    });
    say("told");
}

#[test]
fn row_51_no_descriptor_to_be_had() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut stage = Stage::start("descriptors", dir.path());
    for word in ["full", "free"] {
        stage.expect(word);
    }
    stage.finish();
}

pub(super) fn descriptors_stage(dir: &Path) {
    let (client, idle) = (open(dir), dir.join("elsewhere"));
    std::fs::create_dir(&idle).expect("a folder");
    let held = take(&client, "held");
    let _gaps = support::leave_descriptors(32);
    let mut all = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        all.push(file);
    }
    say("full");
    // A store that is not open yet cannot be; one that is goes on or says why.
    let other = open(&idle);
    let error = other.try_lock("k").map(|g| g.is_some());
    let error = error.expect_err("no descriptor");
    assert!(!error.may_have_applied(), "{error:?}");
    let fd = held.lost_fd().map(|_| ()).expect_err("no descriptor");
    assert_eq!(fd.code(), ErrorCode::RateLimited);
    for n in 0..20 {
        if let Ok(Some(guard)) = client.try_lock(format!("k{n}")) {
            assert!(!guard.is_lost());
        }
    }
    assert!(!held.is_lost());
    drop(all);
    // What was held is held, and everything works again.
    assert!(held.extend(TTL).expect("an answer").is_extended() && held.lost_fd().is_ok());
    assert!(client.try_lock("held").expect("an answer").is_none());
    drop(take(&other, "k"));
    assert!(held.release().expect("an answer").is_released());
    for n in 0..20 {
        drop(take(&client, &format!("k{n}")));
    }
    say("free");
}
