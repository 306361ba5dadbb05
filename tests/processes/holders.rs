//! Tests holders that are killed, stopped or forked, seen by another process. Contention between processes is in
//! `tests/sqlite/processes.rs`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::support::passing::Passing;
use crate::support::process::{self, Stage, hear, in_child, in_child_as_pid_1, say, wait_child};
use crate::support::{WAIT_LIMIT, eventually};
use nix::sys::signal::Signal;
use syncguard::testkit::MemoryBackend;
use syncguard::{
    Backend, Call, CancelToken, Client, ClientOptions, ErrorCode, Guard, Key, LockOptions,
    LossReason, SqliteBackend,
};

pub const STAGES: &[process::Entry] = &[
    ("hold", hold),
    ("hold and renew", hold_and_renew),
    ("renew", renew),
    ("fork", fork_with_a_file),
    ("fork in traffic", fork_in_traffic),
    ("fork everything", fork_everything),
    ("fork into a namespace", fork_into_a_namespace),
    ("fork into a namespace without a lock", |dir| {
        without_descriptors(|| drop(CancelToken::new()));
        fork_into_a_namespace(dir);
    }),
    ("close descriptors", close_descriptors),
];

fn options() -> ClientOptions {
    ClientOptions::new()
        .operation_timeout(WAIT_LIMIT)
        .dispose_timeout(WAIT_LIMIT)
}

fn url(dir: &Path) -> String {
    format!("sqlite:{}/locks.db", dir.display())
}

fn open(dir: &Path) -> Client {
    Client::open_with(&url(dir), &options()).expect("a legal URL")
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a legal key")
}

fn is_locked(client: &Client, name: &str) -> bool {
    client
        .is_locked_with(key(name), &Call::new())
        .expect("an answer")
}

/// Waits for the lock as long as it takes.
fn wait_for(client: &Client, name: &str) -> Guard {
    let options = LockOptions::new()
        .acquire_timeout(WAIT_LIMIT)
        .retry_delay(Duration::from_millis(10));
    client
        .lock_with(name, &options)
        .expect("the lock in the end")
}

/// Long enough to be held on a busy machine until the holder is killed or stopped.
const SHORT: Duration = Duration::from_millis(1500);

fn hold(dir: &Path) {
    hold_with(dir, LockOptions::new().ttl(SHORT).no_heartbeat());
}

fn hold_and_renew(dir: &Path) {
    hold_with(dir, LockOptions::new().ttl(SHORT));
}

/// A lease that no machine is too busy for, renewed often.
fn renew(dir: &Path) {
    let client = open(dir);
    let how = LockOptions::new().heartbeat(Duration::from_millis(50));
    let guard = client.lock_with("k", &how).expect("a free lock");
    say(&format!("held {}", guard.fence()));
    hear();
}

/// Takes the lock when told to, and says what it finds when told to look.
fn hold_with(dir: &Path, how: LockOptions) {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let store = Passing::new(
        SqliteBackend::open(&url(dir), &options()).expect("a legal URL"),
        move |_| {
            counted.fetch_add(1, SeqCst);
        },
    );
    let client = Client::from_backend_with(store, &options()).expect("legal options");
    let lost = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lost);
    let how = how.on_lost(move |_| {
        count.fetch_add(1, SeqCst);
    });
    hear();
    let guard = client.lock_with("k", &how).expect("a free lock");
    say(&format!("held {}", guard.fence()));
    hear();
    // The first thing it does after the pause, before anything is sent.
    let before = calls.load(SeqCst);
    let found = guard.is_lost();
    let (left, extended) = (guard.remaining(), guard.extend(SHORT));
    let sent = calls.load(SeqCst) - before;
    say(&format!(
        "lost {found} {} {extended:?} {sent}",
        left.as_millis()
    ));
    eventually("the callback", || lost.load(SeqCst) == 1);
    say(&format!("released {:?}", guard.release()));
    drop(guard);
    say(&format!("told {}", lost.load(SeqCst)));
}

#[test]
fn a_killed_holder_is_followed_after_its_ttl() {
    for stage in ["hold", "hold and renew"] {
        let dir = tempfile::tempdir().expect("a temp dir");
        let client = open(dir.path());
        let mut holder = Stage::start(stage, dir.path());
        let begun = Instant::now();
        holder.tell("lock");
        let first = holder.expect("held");
        holder.signal(Signal::SIGKILL);
        let guard = wait_for(&client, "k");
        // The lease began after `begun`, whatever the machine did in between.
        assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
        assert!(guard.fence().to_string() > first);
        assert!(guard.release().expect("an answer").is_released());
    }
}

#[test]
fn a_renewing_holder_keeps_its_lock_for_as_long_as_it_lives() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let client = open(dir.path());
    let mut holder = Stage::start("renew", dir.path());
    let fence = holder.expect("held");
    let seen = || {
        let seen = client.get_by_key("k").expect("an answer");
        seen.expect("a live lock")
    };
    let first = seen().expires_at_ms;
    eventually("renewals", || seen().expires_at_ms > first + 300);
    assert_eq!(seen().fence.to_string(), fence);
    assert!(client.try_lock("k").expect("an answer").is_none());
}

/// Stops the holder past its lease, takes its lock, and lets it find out.
fn overtake(stage: &str) -> String {
    let dir = tempfile::tempdir().expect("a temp dir");
    let client = open(dir.path());
    let mut holder = Stage::start(stage, dir.path());
    holder.tell("lock");
    let first = holder.expect("held");
    holder.signal(Signal::SIGSTOP);
    holder.wait_stopped();
    let guard = wait_for(&client, "k");
    assert!(guard.fence().to_string() > first);
    holder.tell("look");
    holder.signal(Signal::SIGCONT);
    let lost = holder.expect("lost");
    assert_eq!(holder.expect("released"), "Ok(Absent(NotFound))");
    assert_eq!(holder.expect("told"), "1");
    // What the paused one sent freed nothing.
    assert!(!guard.is_lost() && guard.extend(SHORT * 10).expect("an answer").is_extended());
    assert!(client.owns(guard.lock_id().as_str()).expect("an answer"));
    holder.finish();
    assert!(guard.release().expect("an answer").is_released());
    lost
}

#[test]
fn a_stopped_holder_finds_itself_lost_before_it_sends_anything() {
    assert_eq!(overtake("hold"), "true 0 Ok(Absent(NotFound)) 0");
}

#[test]
fn a_stopped_holder_with_a_heartbeat_finds_itself_lost() {
    // A renewal may have been on its way when it was stopped: only what it finds is certain.
    let found = overtake("hold and renew");
    assert!(found.starts_with("true 0 Ok(Absent(NotFound)) "), "{found}");
}

#[test]
fn a_forked_child_leaves_its_parents_lock_alone() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let client = open(dir.path());
    let mut stage = Stage::start_without_stack_reports("fork", dir.path());
    let fence = stage.expect("forked");
    let seen = client.get_by_key("held").expect("an answer");
    assert_eq!(seen.expect("a live lock").fence.to_string(), fence);
    stage.tell("go on");
    stage.finish();
    assert!(!is_locked(&client, "held"));
}

/// What a child must get from everything it inherited.
fn inherited_is_refused(client: &Client, guard: &Guard) {
    let id = *guard.lock_id();
    for error in [
        client.lock("other").map(drop),
        client.try_lock("held").map(drop),
        client.is_locked_with(key("held"), &Call::new()).map(drop),
        client.release(&id, &Call::new()).map(drop),
        client.get_by_id(id.as_str()).map(drop),
        client.check().map(drop),
        client.setup_schema(),
        client.purge_expired_with(1, &Call::new()).map(drop),
        guard.extend(WAIT_LIMIT).map(drop),
        guard.release().map(drop),
        guard.lost_fd().map(drop),
    ] {
        let error = error.expect_err("the parent's");
        let code = match error.loss_reason() {
            Some(LossReason::Forked) => ErrorCode::Lost,
            _ => ErrorCode::Internal,
        };
        assert_eq!(error.code(), code, "{error}");
        assert!(!error.may_have_applied());
    }
    assert_eq!(guard.loss(), Some(LossReason::Forked));
    assert!(guard.is_lost() && guard.wait_lost() && guard.remaining().is_zero());
}

/// A child whose parent has the file open cannot use SQLite, not even with a client of its own.
fn sqlite_is_refused(dir: &Path) {
    let error = open(dir).try_lock("held").map(drop).expect_err("refused");
    assert_eq!(error.code(), ErrorCode::Internal, "{error}");
    assert!(error.message().contains("exec a new program"), "{error}");
    assert!(!error.may_have_applied());
}

fn fork_with_a_file(dir: &Path) {
    let client = open(dir);
    let how = LockOptions::new().heartbeat(Duration::from_millis(50));
    let held = client.lock_with("held", &how).expect("a lock");
    for _ in 0..20 {
        let (mut c, mut h) = (Some(&client), Some(&held));
        let child = in_child(|| {
            if let (Some(client), Some(held)) = (c.take(), h.take()) {
                inherited_is_refused(client, held);
            }
            sqlite_is_refused(dir);
            let own = Client::from_backend(MemoryBackend::new());
            let how = LockOptions::new().heartbeat(Duration::from_millis(5));
            let mine = own.lock_with("child", &how).expect("a lock");
            let before = mine.expires_at_ms();
            eventually("a renewal", || mine.expires_at_ms() > before);
            assert!(!mine.is_lost() && mine.release().expect("an answer").is_released());
        });
        assert_eq!(wait_child(child), Ok(0));
    }
    // Dropped in the child: nothing is sent.
    let (mut client, mut held) = (Some(client), Some(held));
    let child = in_child(|| {
        drop(held.take());
        drop(client.take());
    });
    assert_eq!(wait_child(child), Ok(0));
    let held = held.expect("the parent's");
    say(&format!("forked {}", held.fence()));
    hear();
    let before = held.expires_at_ms();
    eventually("a renewal", || held.expires_at_ms() > before);
    assert!(!held.is_lost() && held.release().expect("an answer").is_released());
}

#[test]
fn a_child_with_the_pid_of_its_parent_leaves_its_lock_alone() {
    for stage in [
        "fork into a namespace",
        "fork into a namespace without a lock",
    ] {
        let dir = tempfile::tempdir().expect("a temp dir");
        let client = open(dir.path());
        let mut stage = Stage::start_as_pid_1(stage, dir.path());
        let fence = stage.expect("forked");
        let seen = client.get_by_key("held").expect("an answer");
        assert_eq!(seen.expect("a live lock").fence.to_string(), fence);
        stage.tell("go on");
        stage.finish();
        assert!(!is_locked(&client, "held"));
    }
}

/// The parent is PID 1, and so is every child.
fn fork_into_a_namespace(dir: &Path) {
    assert_eq!(std::process::id(), 1);
    let client = open(dir);
    let how = LockOptions::new().heartbeat(Duration::from_millis(50));
    let held = client.lock_with("held", &how).expect("a lock");
    let (mut client, mut held) = (Some(client), Some(held));
    for _ in 0..5 {
        let child = in_child_as_pid_1(|| {
            assert_eq!(std::process::id(), 1);
            if let (Some(client), Some(held)) = (&client, &held) {
                inherited_is_refused(client, held);
            }
            drop((held.take(), client.take()));
            sqlite_is_refused(dir);
            let own = Client::from_backend(MemoryBackend::new());
            let how = LockOptions::new()
                .heartbeat(Duration::from_millis(5))
                .cancel(&CancelToken::new());
            let mine = own.lock_with("child", &how).expect("a lock");
            let before = mine.expires_at_ms();
            eventually("a renewal", || mine.expires_at_ms() > before);
            // A child of the child: its timer is not the one of its parent.
            let grandchild = in_child(|| {
                inherited_is_refused(&own, &mine);
                let own = Client::from_backend(MemoryBackend::new());
                let mine = own.lock_with("grandchild", &how).expect("a lock");
                let before = mine.expires_at_ms();
                eventually("a renewal", || mine.expires_at_ms() > before);
            });
            assert_eq!(wait_child(grandchild), Ok(0));
            assert!(!mine.is_lost() && mine.release().expect("an answer").is_released());
        });
        assert_eq!(wait_child(child), Ok(0));
    }
    let held = held.expect("the parent's");
    say(&format!("forked {}", held.fence()));
    hear();
    let before = held.expires_at_ms();
    eventually("a renewal", || held.expires_at_ms() > before);
    assert!(!held.is_lost() && held.release().expect("an answer").is_released());
}

/// Runs `body` while this process can open nothing.
fn without_descriptors(body: impl FnOnce()) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit");
    setrlimit(Resource::RLIMIT_NOFILE, 0, hard).expect("a lower limit");
    assert!(std::fs::File::open("/dev/null").is_err());
    body();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("the limit");
}

#[test]
fn a_host_that_closes_all_descriptors_is_told() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut stage = Stage::start("close descriptors", dir.path());
    stage.expect("told");
    stage.finish();
}

/// As careless daemons do, long after the start. No store of the library's own: their descriptors are closed with the rest.
fn close_descriptors(_: &Path) {
    let client = Client::from_backend(MemoryBackend::new());
    let held = client.lock("held").expect("a lock");
    for fd in 3..1000 {
        let _ = nix::unistd::close(fd);
    }
    let error = client.lock("other").map(drop).expect_err("no proof");
    assert_eq!(error.code(), ErrorCode::Internal, "{error}");
    assert!(error.message().contains("closed"), "{error}");
    assert!(held.is_lost());
    let own = Client::from_backend(MemoryBackend::new());
    let guard = own.lock("held").expect("a new client works");
    assert!(guard.release().expect("an answer").is_released());
    say("told");
}

#[test]
fn a_child_forked_in_the_middle_of_traffic_never_hangs() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut stage = Stage::start_without_stack_reports("fork in traffic", dir.path());
    stage.expect("forked");
    stage.finish();
}

/// All mutexes of the library are taken all the time while the main thread forks.
fn fork_in_traffic(_: &Path) {
    const FORKS: usize = 150;
    let events = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&events);
    let options = ClientOptions::new().on_event(move |_| {
        seen.fetch_add(1, SeqCst);
    });
    let client = Client::from_backend_with(MemoryBackend::new(), &options).expect("legal options");
    let held = client.lock("held").expect("a lock");
    let token = CancelToken::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (client, held, token, stop) = (&client, &held, &token, &stop);
            scope.spawn(move || {
                let how = LockOptions::new()
                    .ttl(Duration::from_secs(5))
                    .heartbeat(Duration::from_millis(1))
                    .cancel(token)
                    .on_lost(|_| {});
                while !stop.load(SeqCst) {
                    if n == 0 {
                        let _ = (held.extend(WAIT_LIMIT), held.is_lost());
                        drop(token.child());
                    } else if let Ok(Some(guard)) = client.try_lock_with(format!("k{n}"), &how) {
                        let _ = guard.extend(WAIT_LIMIT);
                        drop(guard);
                    }
                }
            });
        }
        for n in 0..FORKS {
            let child = in_child(|| {
                inherited_is_refused(&client, &held);
                let own = Client::from_backend(MemoryBackend::new());
                let how = LockOptions::new().heartbeat(Duration::from_millis(1));
                let mine = own.lock_with("held", &how).expect("a lock");
                if n % 5 == 0 {
                    let before = mine.expires_at_ms();
                    eventually("a renewal", || mine.expires_at_ms() > before);
                }
                assert!(mine.release().expect("an answer").is_released());
            });
            let ended = wait_child(child);
            if ended != Ok(0) {
                stop.store(true, SeqCst);
                panic!("child {n}: {ended:?}");
            }
        }
        stop.store(true, SeqCst);
    });
    assert!(!held.is_lost() && events.load(SeqCst) > 0);
    assert!(held.release().expect("an answer").is_released());
    say("forked");
}

#[test]
fn a_child_that_drops_everything_it_inherited_never_hangs() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut stage = Stage::start("fork everything", dir.path());
    stage.expect("forked");
    stage.finish();
}

/// The child owns what it inherited, and the last references to it are its own to drop.
fn fork_everything(_: &Path) {
    const FORKS: usize = 100;
    let clock = syncguard::testkit::ManualClock::new();
    let options = ClientOptions::new().clock(&clock).on_event(|_| {});
    let store = MemoryBackend::with_clock(&clock);
    let client = Client::from_backend_with(store, &options).expect("legal options");
    let held = client.lock("held").expect("a lock");
    let parent = CancelToken::new();
    let (mut held, mut client) = (Some(held), Some(client));
    let (mut inherited, mut how) = (
        Some(parent.child()),
        Some(LockOptions::new().cancel(&parent.child())),
    );
    let stop = AtomicBool::new(false);
    // The threads have no references of their own: what they use is the main thread's, and outlives them.
    let (c, h) = (client.as_ref().expect("it"), held.as_ref().expect("it"));
    let pointers = (
        std::ptr::from_ref(c) as usize,
        std::ptr::from_ref(h) as usize,
    );
    std::thread::scope(|scope| {
        for n in 0..3 {
            let (stop, clock, parent) = (&stop, &clock, &parent);
            scope.spawn(move || {
                let (c, h) = (pointers.0 as *const Client, pointers.1 as *const Guard);
                while !stop.load(SeqCst) {
                    // Alive until the scope has ended: the parent takes nothing out of its slots.
                    let (client, held) = unsafe { (&*c, &*h) };
                    match n {
                        0 => clock.advance(Duration::from_micros(1)),
                        1 => drop(parent.child()),
                        _ => drop((
                            client.is_locked_with(key("held"), &Call::new()),
                            held.extend(WAIT_LIMIT),
                        )),
                    }
                }
            });
        }
        for n in 0..FORKS {
            let child = in_child(|| {
                drop(held.take());
                drop(client.take());
                drop(how.take());
                drop(inherited.take());
            });
            let ended = wait_child(child);
            if ended != Ok(0) {
                stop.store(true, SeqCst);
                panic!("child {n}: {ended:?}");
            }
        }
        stop.store(true, SeqCst);
    });
    assert!(
        held.expect("the parent's")
            .release()
            .expect("an answer")
            .is_released()
    );
    say("forked");
}
