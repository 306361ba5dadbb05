//! The SQLite store between processes: contention, SIGKILL, stepping wall clocks, fork.
//!
//! The processes are this test binary again, told by the environment which part to play.

#[path = "support/limit.rs"]
mod limit;
#[path = "support/process.rs"]
mod process;
mod support;
#[path = "support/verbs.rs"]
mod verbs;

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use process::{WallClock, set_wall_clock};
use syncguard::{
    AcquireOutcome, Backend, ClientOptions, ErrorCode, LockError, LockId, SqliteBackend,
};
use verbs::{key, ttl};

const PART: &str = "SYNCGUARD_TEST_PART";
const DIR: &str = "SYNCGUARD_TEST_DIR";
const NUMBER: &str = "SYNCGUARD_TEST_NUMBER";
const PATIENCE: Duration = Duration::from_secs(120);

fn open(dir: &Path) -> SqliteBackend {
    let options = ClientOptions::new().operation_timeout(PATIENCE);
    SqliteBackend::open(&format!("sqlite:{}/locks.db", dir.display()), &options)
        .expect("a good URL")
}

const MINUTE: u64 = 60_000;

/// One attempt; the id and the fence of a grant.
fn attempt(b: &SqliteBackend, k: &str, ms: u64) -> Result<Option<(LockId, u64)>, LockError> {
    let id = LockId::random()?;
    Ok(match b.acquire(&key(k), &id, ttl(ms), None)? {
        AcquireOutcome::Acquired(grant) => Some((id, grant.fence.get())),
        AcquireOutcome::Locked(_) => None,
    })
}

fn free(b: &SqliteBackend, id: &LockId) {
    assert!(b.release(id, None).expect("an answer").is_released());
}

/// A process that dies with its test.
struct Player(Child);

impl Player {
    fn start(part: &str, dir: &Path, number: usize, env: &[(&str, &Path)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command
            .args(["--exact", "play_a_part", "--nocapture"])
            .env(PART, part)
            .env(DIR, dir)
            .env(NUMBER, number.to_string())
            .envs(env.iter().copied())
            .stdout(Stdio::null());
        Self(command.spawn().expect("a process"))
    }

    fn finish(mut self, what: &str) {
        let limit = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().expect("its status") {
                assert!(status.success(), "{what}: {status}");
                return;
            }
            assert!(Instant::now() < limit, "{what} hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test of its own: what the other processes run.
#[test]
fn play_a_part() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).expect("a death signal");
    let dir = PathBuf::from(std::env::var_os(DIR).expect("a directory"));
    let number = std::env::var(NUMBER).expect("a number");
    match part.as_str() {
        "one key" => contend(&dir, "the key", &number),
        "own key" => contend(&dir, &format!("key {number}"), &number),
        "traffic" => traffic(&dir),
        "clock" => step_the_clock(&dir),
        "no descriptors" => without_descriptors(&dir, &number),
        "fork" => fork::parent_stays(&dir),
        "fork and go" => fork::parent_goes(&dir),
        "fork and lose" => fork::log_is_gone(&dir),
        "fork in traffic" => fork::in_the_middle(&dir),
        other => panic!("no part {other}"),
    }
}

fn append(path: &Path) -> File {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .expect("a log")
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < limit, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

const PLAYERS: usize = 8;
const GRANTS: usize = 1600;

/// Takes the key again and again until the test has seen enough.
fn contend(dir: &Path, k: &str, number: &str) {
    let b = open(dir);
    b.check(None).expect("a good store");
    let mut log = append(&dir.join("grants"));
    let mark = dir.join(format!("held {k}"));
    std::fs::write(dir.join(format!("ready {number}")), "").expect("a mark");
    wait_for("the start", || dir.join("start").exists());
    while !dir.join("enough").exists() {
        let Some((id, fence)) = attempt(&b, k, MINUTE).expect("an answer") else {
            std::thread::sleep(Duration::from_micros(300));
            continue;
        };
        // Fails if somebody else is inside.
        File::create_new(&mark).expect("two holders at once");
        log.write_all(format!("{number} {fence}\n").as_bytes())
            .expect("the log");
        std::fs::remove_file(&mark).expect("its own mark");
        free(&b, &id);
    }
}

/// Who was granted which fence, in the order of holding. Runs until everybody has had `each`: how long that takes is the
/// scheduler's matter, that it comes to pass is ours.
fn contention(part: &str, each: usize) -> Vec<(String, u64)> {
    let dir = tempfile::tempdir().expect("a temp dir");
    let players: Vec<_> = (0..PLAYERS)
        .map(|n| Player::start(part, dir.path(), n, &[]))
        .collect();
    wait_for("all players", || {
        (0..PLAYERS).all(|n| dir.path().join(format!("ready {n}")).exists())
    });
    std::fs::write(dir.path().join("start"), "").expect("the start");
    let lines = || -> Vec<(String, u64)> {
        let log = std::fs::read_to_string(dir.path().join("grants")).expect("the log");
        // The last line may still be on its way.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        let line = |line: &str| {
            let (who, fence) = line.split_once(' ').expect("two words");
            (who.to_owned(), fence.parse().expect("a fence"))
        };
        whole.lines().map(line).collect()
    };
    wait_for("everybody's turn", || {
        std::thread::sleep(Duration::from_millis(50));
        let lines = lines();
        let mut shares = BTreeMap::<&str, usize>::new();
        for (who, _) in &lines {
            *shares.entry(who).or_default() += 1;
        }
        let all = shares.len() == PLAYERS && shares.values().all(|n| *n >= each);
        lines.len() >= GRANTS && (each == 0 || all)
    });
    std::fs::write(dir.path().join("enough"), "").expect("the end");
    for player in players {
        player.finish(part);
    }
    lines()
}

#[test]
fn eight_processes_share_one_key() {
    // Whose turn it is, is not promised.
    let lines = contention("one key", 0);
    let fences: Vec<u64> = lines.into_iter().map(|(_, fence)| fence).collect();
    assert_eq!(fences, (1..=fences.len() as u64).collect::<Vec<_>>());
}

#[test]
fn eight_processes_with_keys_of_their_own_are_not_starved() {
    let mut last = BTreeMap::new();
    for (who, fence) in contention("own key", 50) {
        let before = last.insert(who, fence).unwrap_or(0);
        assert_eq!(fence, before + 1);
    }
}

/// Grants and tells, until killed.
fn traffic(dir: &Path) {
    let b = open(dir);
    let mut log = append(&dir.join("grants"));
    loop {
        for k in ["a", "b"] {
            if let Some((id, fence)) = attempt(&b, k, MINUTE).expect("an answer") {
                log.write_all(format!("{k} {fence}\n").as_bytes())
                    .expect("the log");
                free(&b, &id);
            }
        }
    }
}

#[test]
fn writers_killed_at_any_moment_repeat_no_fence() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let b = open(dir.path());
    b.check(None).expect("a good store");
    let log = dir.path().join("grants");
    let size = || std::fs::metadata(&log).map_or(0, |m| m.len());
    let start = |n| Player::start("traffic", dir.path(), n, &[]);
    let mut mine = Vec::new();
    for round in 0..20u64 {
        let players: Vec<_> = (0..3).map(start).collect();
        let before = size();
        wait_for("traffic", || size() > before);
        std::thread::sleep(Duration::from_micros(round * 7919 % 5000));
        drop(players);
        // What the dead held would stay for its TTL.
        let c = rusqlite::Connection::open(dir.path().join("locks.db")).expect("the file");
        c.execute("DELETE FROM syncguard_locks", [])
            .expect("cleared");
        let (id, fence) = attempt(&b, "a", MINUTE)
            .expect("an answer")
            .expect("a grant");
        mine.push(fence);
        free(&b, &id);
    }
    let mut seen: HashSet<(String, u64)> = mine.iter().map(|f| ("a".to_owned(), *f)).collect();
    let text = std::fs::read_to_string(&log).expect("the log");
    for line in text.lines() {
        let (k, fence) = line.split_once(' ').expect("two words");
        let grant = (k.to_owned(), fence.parse().expect("a fence"));
        assert!(seen.insert(grant), "granted twice: {line}");
    }
    assert!(seen.len() > 40);
    intact(dir.path());
}

fn intact(dir: &Path) {
    let c = rusqlite::Connection::open(dir.join("locks.db")).expect("the file");
    let answer: String = c
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("an answer");
    assert_eq!(answer, "ok");
}

fn step_the_clock(dir: &Path) {
    const HOUR: i64 = 3600;
    let set = |seconds| set_wall_clock(dir, seconds);
    let wall = || {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_secs() as i64)
    };
    let b = open(dir);
    let start = wall();
    let (id, _) = attempt(&b, "held", MINUTE * 10)
        .expect("an answer")
        .expect("a grant");
    let steps = [HOUR, -HOUR, 24 * HOUR, -start + 1, 4_102_444_800 - start, 0];
    for (n, step) in steps.into_iter().enumerate() {
        set(step);
        assert!(
            (wall() - start - step).abs() < 120,
            "the shim does not work"
        );
        // Not freed by a step,
        assert!(attempt(&b, "held", MINUTE).expect("an answer").is_none());
        assert!(b.is_locked(&key("held"), None).expect("an answer"));
        assert!(matches!(
            b.extend(&id, ttl(MINUTE * 10), None),
            Ok(syncguard::ExtendOutcome::Extended(_))
        ));
        // and not frozen by the next.
        let k = format!("short {n}");
        let taken = attempt(&b, &k, 1).expect("an answer");
        assert!(taken.is_some());
        set(-step);
        wait_for("the end of a short lease", || {
            attempt(&b, &k, 1).expect("an answer").is_some()
        });
    }
    free(&b, &id);
}

#[test]
fn a_wall_clock_that_steps_neither_frees_nor_freezes() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let place = support::plain_directory();
    let clock = WallClock::build(dir.path(), place.path());
    Player::start("clock", dir.path(), 0, &clock.env()).finish("clock");
}

fn without_descriptors(dir: &Path, number: &str) {
    let _gaps = support::leave_descriptors(24 + number.parse::<u64>().expect("a number"));
    let open_one = |n| {
        let b = SqliteBackend::open(
            &format!("sqlite:{}/{n}.db", dir.display()),
            &ClientOptions::new(),
        )
        .expect("a good URL");
        attempt(&b, "k", MINUTE).map(|taken| (b, taken.expect("a grant").0))
    };
    let (mut held, mut trouble) = (Vec::new(), None);
    for n in 0..40 {
        match open_one(n) {
            Ok(lock) => held.push(lock),
            Err(e) => {
                trouble = Some(e);
                break;
            }
        }
    }
    let trouble = trouble.expect("descriptors end");
    assert_eq!(trouble.code(), ErrorCode::ServiceUnavailable, "{trouble}");
    assert!(!trouble.may_have_applied());
    // What was taken before stays valid and can be given back.
    assert!(!held.is_empty());
    for (b, id) in &held {
        free(b, id);
    }
    drop(held);
    assert!(open_one(100).is_ok());
}

#[test]
fn a_process_without_descriptors_gets_a_clear_error() {
    let dir = tempfile::tempdir().expect("a temp dir");
    // A connection needs several: each limit leaves another number of them to the one that fails.
    for number in 0..8 {
        let dir = dir.path().join(number.to_string());
        std::fs::create_dir(&dir).expect("a directory");
        Player::start("no descriptors", &dir, number, &[]).finish("no descriptors");
    }
}

mod fork {
    use super::*;
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::{ForkResult, Pid, fork};

    /// Forks; the child runs `body` and exits, 101 if it panics.
    fn child(body: impl FnOnce()) -> Pid {
        // The players that fork run one test, and no thread of theirs holds what the child needs.
        match unsafe { fork() }.expect("a child") {
            ForkResult::Parent { child } => child,
            ForkResult::Child => {
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).ok();
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                std::process::exit(if done.is_ok() { 0 } else { 101 });
            }
        }
    }

    fn wait(pid: Pid) -> i32 {
        let limit = Instant::now() + PATIENCE;
        loop {
            match waitpid(pid, Some(WaitPidFlag::WNOHANG)).expect("its status") {
                WaitStatus::Exited(_, code) => return code,
                WaitStatus::StillAlive => {}
                other => panic!("{other:?}"),
            }
            if Instant::now() > limit {
                nix::sys::signal::kill(pid, Signal::SIGKILL).ok();
                panic!("the child hangs");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn many(b: &SqliteBackend, k: &str, times: usize) {
        for _ in 0..times {
            if let Some((id, _)) = attempt(b, k, MINUTE).expect("an answer") {
                free(b, &id);
            }
        }
    }

    pub(super) fn parent_stays(dir: &Path) {
        let inherited = open(dir);
        let (_held, _) = attempt(&inherited, "held", MINUTE)
            .expect("an answer")
            .expect("a grant");
        let first = child(|| {
            let error = attempt(&inherited, "k", MINUTE).expect_err("the parent's");
            assert_eq!(error.code(), ErrorCode::Internal);
            assert!(!error.may_have_applied());
            drop(inherited);
            let own = open(dir);
            assert!(attempt(&own, "held", MINUTE).expect("an answer").is_none());
            many(&own, "child", 50);
            let grandchild = child(|| {
                drop(own);
                many(&open(dir), "child", 50);
            });
            assert_eq!(wait(grandchild), 0);
            std::fs::write(dir.join("child done"), "").expect("a mark");
        });
        many(&open(dir), "child", 50);
        assert_eq!(wait(first), 0);
        intact(dir);
    }

    /// The parent, who had the file open, ends while its child goes on: nobody may take the log for abandoned.
    pub(super) fn parent_goes(dir: &Path) {
        let inherited = open(dir);
        many(&inherited, "parent", 20);
        for late in [false, true] {
            child(|| {
                // It outlives its parent.
                nix::sys::prctl::set_pdeathsig(None).expect("no death signal");
                let mark = |what: &str| dir.join(format!("{what} {late}"));
                if late {
                    wait_for("the parent's end", || dir.join("parent gone").exists());
                }
                let own = open(dir);
                let (id, fence) = attempt(&own, &format!("child {late}"), MINUTE)
                    .expect("an answer")
                    .expect("a grant");
                assert_eq!(fence, 1);
                std::fs::write(mark("holds"), id.as_str()).expect("a mark");
                wait_for("the test", || mark("go").exists());
                // What the test did meanwhile is seen, and what is done now is seen there.
                assert!(attempt(&own, "test", MINUTE).expect("an answer").is_none());
                free(&own, &id);
                let next = attempt(&own, &format!("child {late}"), MINUTE).expect("an answer");
                assert_eq!(next.map(|(_, fence)| fence), Some(2));
                std::fs::write(mark("done"), "").expect("a mark");
            });
        }
        wait_for("the early child", || dir.join("holds false").exists());
        drop(inherited);
    }

    /// Everybody has closed the file, and somebody's plain connection has deleted the log, before the child comes to it.
    pub(super) fn log_is_gone(dir: &Path) {
        let inherited = open(dir);
        many(&inherited, "parent", 5);
        let pid = child(|| {
            wait_for("the end of the log", || dir.join("go").exists());
            let error = attempt(&open(dir), "k", MINUTE).expect_err("out of date");
            assert_eq!(error.code(), ErrorCode::Internal);
            assert!(error.message().contains("out of date"), "{error}");
            assert!(!error.may_have_applied());
        });
        drop(inherited);
        intact(dir);
        assert!(!dir.join("locks.db-shm").exists());
        std::fs::write(dir.join("go"), "").expect("a mark");
        assert_eq!(wait(pid), 0);
    }

    pub(super) fn in_the_middle(dir: &Path) {
        let stop = std::sync::atomic::AtomicBool::new(false);
        let busy = open(dir);
        let (mut worked, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    many(&busy, "busy", 1);
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            for _ in 0..60 {
                let pid = child(|| {
                    let own = open(dir);
                    match attempt(&own, "child", MINUTE) {
                        Ok(taken) => {
                            if let Some((id, _)) = taken {
                                free(&own, &id);
                            }
                        }
                        Err(e) if e.message().contains("forked while") => std::process::exit(7),
                        Err(e) => panic!("{e}"),
                    }
                });
                match wait(pid) {
                    0 => worked += 1,
                    7 => refused += 1,
                    other => panic!("the child ended with {other}"),
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        eprintln!("forked in traffic: {worked} children worked, {refused} were refused");
        drop(busy);
        intact(dir);
    }
}

#[test]
fn a_forked_child_works_with_a_client_of_its_own() {
    let dir = tempfile::tempdir().expect("a temp dir");
    Player::start("fork", dir.path(), 0, &[]).finish("fork");
    let b = open(dir.path());
    assert!(attempt(&b, "held", MINUTE).expect("an answer").is_none());
}

#[test]
fn a_child_outlives_the_parent_that_had_the_file_open() {
    let dir = tempfile::tempdir().expect("a temp dir");
    Player::start("fork and go", dir.path(), 0, &[]).finish("fork and go");
    std::fs::write(dir.path().join("parent gone"), "").expect("a mark");
    // A plain connection that believes it is the last one deletes the log. Here the early child alone has the file open.
    intact(dir.path());
    // And an opener that believes it is the first one truncates the log's index.
    let b = open(dir.path());
    assert!(
        attempt(&b, "child false", MINUTE)
            .expect("an answer")
            .is_none()
    );
    let test = attempt(&b, "test", MINUTE).expect("an answer");
    assert!(test.is_some());
    for late in [false, true] {
        let mark = |what: &str| dir.path().join(format!("{what} {late}"));
        wait_for("the child", || mark("holds").exists());
        std::fs::write(mark("go"), "").expect("a mark");
        wait_for("the child's end", || mark("done").exists());
        let k = format!("child {late}");
        assert!(attempt(&b, &k, MINUTE).expect("an answer").is_none());
    }
    intact(dir.path());
}

#[test]
fn a_child_whose_inheritance_is_out_of_date_is_told() {
    let dir = tempfile::tempdir().expect("a temp dir");
    Player::start("fork and lose", dir.path(), 0, &[]).finish("fork and lose");
}

#[test]
fn a_child_forked_in_the_middle_of_a_call_never_hangs() {
    let dir = tempfile::tempdir().expect("a temp dir");
    Player::start("fork in traffic", dir.path(), 0, &[]).finish("fork in traffic");
}
