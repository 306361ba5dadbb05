//! Tests programs that fork, get signals, or whose clock is set.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::*;
use nix::libc;
use process::{Stage, WallClock, in_child, say, set_wall_clock, wait_child};
use support::{WAIT_LIMIT, eventually};
use syncguard::testkit::{Fault, Verb};
use syncguard::{Call, LossReason, Ttl};

#[test]
fn row_49_a_forked_child() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let client = open(dir.path());
    let mut stage = Stage::start("fork", dir.path());
    let fence = stage.expect("forked");
    // Seen from another process: the child is gone, and the parent's lock is there.
    let seen = client.get_by_key("k").expect("an answer");
    assert_eq!(seen.expect("a live lock").fence.to_string(), fence);
    stage.tell("go on");
    stage.finish();
    assert!(!is_locked(&client, "k"));
}

pub(super) fn fork_stage(dir: &Path) {
    let client = open(dir);
    let guard = take(&client, "k");
    let fence = guard.fence();
    let (mut client, mut guard) = (Some(client), Some(guard));
    let child = in_child(|| {
        let (c, g) = (client.take().expect("it"), guard.take().expect("it"));
        let id = *g.lock_id();
        let errors = [
            c.lock("other").map(drop),
            c.try_lock("other").map(drop),
            c.with_lock("other", |_| ()),
            c.is_locked_with(key("k"), &Call::new()).map(drop),
            c.release(&id, &Call::new()).map(drop),
            c.extend(&id, Ttl::new(TTL).expect("a ttl"), &Call::new())
                .map(drop),
            c.get_by_key("k").map(drop),
            c.check().map(drop),
            c.setup_schema(),
        ];
        let of_guard = [
            g.extend(TTL).map(drop),
            g.release().map(drop),
            g.lost_fd().map(drop),
        ];
        assert_eq!(g.loss(), Some(LossReason::Forked));
        let all = errors.into_iter().zip(std::iter::repeat(None));
        let lost = Some(LossReason::Forked);
        for (error, why) in all.chain(of_guard.into_iter().zip(std::iter::repeat(lost))) {
            let error = error.expect_err("the parent's");
            let code = why.map_or(ErrorCode::Internal, |_| ErrorCode::Lost);
            assert_eq!((error.code(), error.loss_reason()), (code, why), "{error}");
            assert!(!error.may_have_applied());
            assert!(error.message().contains("forked child"), "{error}");
        }
        assert!(g.is_lost() && g.remaining().is_zero() && g.wait_lost());
        assert_eq!((g.fence(), g.key().as_str()), (fence, "k"));
        let _ = (format!("{g:?}"), format!("{c:?}"), g.expires_at_ms());
        drop(g);
        drop(c);
    });
    assert_eq!(wait_child(child), Ok(0));
    // Nor does a child send anything that only exits.
    let child = in_child(|| {});
    assert_eq!(wait_child(child), Ok(0));
    say(&format!("forked {fence}"));
    process::hear();
    let guard = guard.expect("still the parent's");
    assert!(!guard.is_lost() && guard.extend(TTL).expect("an answer").is_extended());
    assert!(guard.release().expect("an answer").is_released());
}

#[test]
fn row_52_a_signal_every_millisecond() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut stage = Stage::start("signals", dir.path());
    let hits: u64 = stage.expect("signals").parse().expect("a number");
    assert!(hits >= 200, "{hits} signals");
    stage.finish();
}

static SIGNALS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

extern "C" fn on_alarm(_: libc::c_int) {
    SIGNALS.fetch_add(1, SeqCst);
}

/// Interrupts every system call that can be interrupted, on the threads that do not block the signal.
fn storm() {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    let action = SigAction::new(
        SigHandler::Handler(on_alarm),
        SaFlags::empty(),
        SigSet::empty(),
    );
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: 1000,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // The handler only counts.
    unsafe {
        sigaction(Signal::SIGALRM, &action).expect("a handler");
        assert_eq!(
            libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()),
            0
        );
    }
}

/// Whether there are threads of the library, and all of them leave the signal to the host's.
fn our_threads_block(signal: libc::c_int) -> bool {
    let mut seen = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("the threads") {
        let path = task.expect("a thread").path().join("status");
        // It may have ended meanwhile.
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name));
            line.map(|l| l.trim_start_matches(':').trim())
        };
        if field("Name").is_some_and(|name| name.starts_with("syncguard")) {
            let mask = field("SigBlk").and_then(|m| u64::from_str_radix(m, 16).ok());
            if mask.is_none_or(|m| m & (1 << (signal - 1)) == 0) {
                return false;
            }
            seen += 1;
        }
    }
    seen > 0
}

pub(super) fn signals_stage(dir: &Path) {
    storm();
    let (count, callback) = counter();
    for client in [open(dir), Store::memory().client] {
        let options = LockOptions::new()
            .heartbeat(Duration::from_millis(20))
            .on_lost(callback.clone());
        let held = client.lock_with("held", &options).expect("a lock");
        let until = Instant::now() + Duration::from_millis(300);
        let (mut rounds, enough) = (0, SIGNALS.load(SeqCst) + 100);
        while Instant::now() < until || rounds < 10 || SIGNALS.load(SeqCst) < enough {
            let guard = take(&client, "k");
            assert!(guard.extend(TTL).expect("an answer").is_extended());
            assert!(is_locked(&client, "k"));
            assert!(guard.release().expect("an answer").is_released());
            rounds += 1;
        }
        // Waits are neither cut short nor turned into errors.
        let begun = Instant::now();
        let wait = LockOptions::new().acquire_timeout(Duration::from_millis(100));
        let error = client.lock_with("held", &wait).map(drop).expect_err("held");
        assert_eq!(error.code(), ErrorCode::AcquisitionTimeout, "{error}");
        assert!(begun.elapsed() >= Duration::from_millis(100));
        let begun = Instant::now();
        assert!(!held.wait_lost_for(Duration::from_millis(100)));
        assert!(begun.elapsed() >= Duration::from_millis(100));
        assert!(our_threads_block(libc::SIGALRM));
        assert!(held.release().expect("an answer").is_released());
    }
    assert_eq!(count.load(SeqCst), 0);
    say(&format!("signals {}", SIGNALS.load(SeqCst)));
}

#[test]
fn row_54_a_drop_whose_failure_no_hook_hears() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let mut stage = Stage::start("deaf", dir.path());
    assert_eq!(stage.expect("dropped"), "true");
    stage.finish();
}

pub(super) fn deaf_stage(_: &Path) {
    use std::os::fd::AsRawFd;
    let kit = kit();
    let guard = kit.lock_with(LockOptions::new());
    kit.store
        .always(Verb::Release, Fault::Refuse(ErrorCode::ServiceUnavailable));
    // A stderr whose reader is gone: what is written there is an error.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert!(unsafe { libc::dup2(writer.as_raw_fd(), 2) } >= 0);
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(guard)));
    say(&format!("dropped {}", dropped.is_ok()));
}

/// No drop runs in such a process, so nothing releases its lock: the lock ends with its lease, and not before.
#[test]
fn row_54_a_process_that_ends_without_a_drop_keeps_its_lock() {
    for (stage, ends_well) in [("exit", true), ("abort", false), ("static", true)] {
        let dir = tempfile::tempdir().expect("a temp dir");
        let mut process = Stage::start(stage, dir.path());
        let fence = process.expect("held");
        assert_eq!(process.status().success(), ends_well, "{stage}");
        let found = open(dir.path()).get_by_key("k").expect("an answer");
        let left = found.unwrap_or_else(|| panic!("{stage}: the lock was released"));
        assert_eq!(left.fence.to_string(), fence, "{stage}");
        assert_eq!(left.expires_at_ms - left.acquired_at_ms, 600_000, "{stage}");
    }
}

fn hold(dir: &Path) -> Guard {
    let options = LockOptions::new().ttl(Duration::from_secs(600));
    let guard = open(dir).lock_with("k", &options).expect("a free lock");
    say(&format!("held {}", guard.fence()));
    guard
}

pub(super) fn exit_stage(dir: &Path) {
    let _guard = hold(dir);
    std::process::exit(0);
}

/// What `panic = "abort"` does: the hook runs, and nothing is unwound.
pub(super) fn abort_stage(dir: &Path) {
    let _guard = hold(dir);
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    panic!("in the middle of the work");
}

pub(super) fn static_stage(dir: &Path) {
    static KEPT: std::sync::OnceLock<Guard> = std::sync::OnceLock::new();
    assert!(KEPT.set(hold(dir)).is_ok());
}

const HOUR: i64 = 3600;

fn wall_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or_else(|e| -(e.duration().as_secs() as i64), |d| d.as_secs() as i64)
}

/// Runs a stage whose wall clock it can move itself.
fn with_a_wall_clock(stage: &str) {
    let dir = tempfile::tempdir().expect("a temp dir");
    let place = support::plain_directory();
    let clock = WallClock::build(dir.path(), place.path());
    let mut stage = Stage::start_with(stage, dir.path(), &clock.env());
    stage.expect("done");
    stage.finish();
}

#[test]
fn row_59_the_wall_clock_is_set_during_a_hold() {
    with_a_wall_clock("wall clock");
}

pub(super) fn wall_clock_stage(dir: &Path) {
    let (client, start) = (open(dir), wall_seconds());
    let (count, callback) = counter();
    let options = LockOptions::new()
        .heartbeat(Duration::from_millis(20))
        .on_lost(callback);
    let guard = client.lock_with("k", &options).expect("a lock");
    for step in [HOUR, -HOUR, 0] {
        set_wall_clock(dir, step);
        assert!(
            (wall_seconds() - start - step).abs() < 120,
            "the clock moves"
        );
        // Not lost, not freed, and renewed as before.
        assert!(!guard.is_lost() && guard.remaining() > TTL / 2);
        assert!(client.try_lock("k").expect("an answer").is_none());
        let before = guard.expires_at_ms();
        eventually("a renewal", || guard.expires_at_ms() != before);
        assert!(guard.extend(TTL).expect("an answer").is_extended());
        assert!(guard.remaining() > TTL - TTL / 4);
        // A lease that is not renewed ends in its time, whatever the clock says: not an hour later.
        let short = LockOptions::new()
            .no_heartbeat()
            .ttl(Duration::from_millis(100));
        std::mem::forget(client.lock_with("short", &short).expect("a lock"));
        let wait = LockOptions::new()
            .acquire_timeout(WAIT_LIMIT)
            .retry_delay(Duration::from_millis(20));
        set_wall_clock(dir, -step);
        drop(
            client
                .lock_with("short", &wait)
                .expect("the lock in the end"),
        );
    }
    assert!(guard.release().expect("an answer").is_released());
    assert_eq!(count.load(SeqCst), 0);
    say("done");
}

#[test]
fn row_64_the_stores_clock_is_in_another_age() {
    with_a_wall_clock("odd years");
}

pub(super) fn odd_years_stage(dir: &Path) {
    let start = wall_seconds();
    // The first hours of 1970, and the year 2100.
    for year in [HOUR, 4_102_444_800] {
        set_wall_clock(dir, year - start);
        let client = open(dir);
        let guard = take(&client, "k");
        let shown = guard.expires_at_ms() / 1000 - year;
        assert!(
            (0..120).contains(&shown),
            "the shown time is the store's: {shown}"
        );
        assert!(guard.remaining() > TTL / 2 && guard.remaining() <= TTL);
        assert!(guard.extend(TTL).expect("an answer").is_extended());
        assert!(client.try_lock("k").expect("an answer").is_none());
        assert!(!guard.is_lost() && guard.release().expect("an answer").is_released());
    }
    say("done");
}
