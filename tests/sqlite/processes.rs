//! Tests the SQLite store between processes: contention, SIGKILL, wall clocks that step, fork.
//!
//! The processes are this test binary again; the environment names the part that each plays.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support;
use crate::support::process::{WallClock, set_boot_clock, set_wall_clock};
use crate::support::verbs::{key, ttl};
use nix::sys::signal::Signal;
use syncguard::{
    AcquireOutcome, Backend, Call, ClientOptions, ErrorCode, LockError, LockId, SqliteBackend,
};

const PART: &str = "SYNCGUARD_TEST_PART";
const DIR: &str = "SYNCGUARD_TEST_DIR";
const NUMBER: &str = "SYNCGUARD_TEST_NUMBER";
const WAIT_LIMIT: Duration = Duration::from_secs(120);

fn open(dir: &Path) -> SqliteBackend {
    let options = ClientOptions::new().operation_timeout(WAIT_LIMIT);
    SqliteBackend::open(&format!("sqlite:{}/locks.db", dir.display()), &options)
        .expect("a good URL")
}

const MINUTE: u64 = 60_000;

/// One attempt; the id and the fence of a grant.
fn attempt(b: &SqliteBackend, k: &str, ms: u64) -> Result<Option<(LockId, u64)>, LockError> {
    let id = LockId::random()?;
    Ok(match b.acquire(&key(k), &id, ttl(ms), &Call::new())? {
        AcquireOutcome::Acquired(grant) => Some((id, grant.fence.get())),
        AcquireOutcome::Locked(_) => None,
    })
}

fn free(b: &SqliteBackend, id: &LockId) {
    assert!(
        b.release(id, &Call::new())
            .expect("an answer")
            .is_released()
    );
}

/// A process that dies with its test.
struct Player(Child);

impl Player {
    fn start(part: &str, dir: &Path, number: usize, env: &[(&str, &Path)]) -> Self {
        let command = Command::new(std::env::current_exe().expect("this binary"));
        Self::run(command, part, dir, number, env)
    }

    /// The same in namespaces of its own: `options` are those of unshare(1), and `boot_id` is mounted over the kernel's.
    fn start_apart(
        options: &[&str],
        boot_id: &str,
        part: &str,
        dir: &Path,
        env: &[(&str, &Path)],
    ) -> Self {
        let id = dir.join(format!("boot id {boot_id}"));
        std::fs::write(&id, format!("{boot_id}\n")).expect("a boot id");
        let mut command = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command
            .args(options)
            .args(["--mount", "sh", "-c"])
            .arg("mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"")
            .arg(&id)
            .arg(std::env::current_exe().expect("this binary"));
        Self::run(command, part, dir, 0, env)
    }

    fn run(
        mut command: Command,
        part: &str,
        dir: &Path,
        number: usize,
        env: &[(&str, &Path)],
    ) -> Self {
        command
            .args(["--exact", "processes::play_a_part", "--nocapture"])
            .env(PART, part)
            .env(DIR, dir)
            .env(NUMBER, number.to_string())
            .envs(env.iter().copied())
            .stdout(Stdio::null());
        Self(command.spawn().expect("a process"))
    }

    fn finish(mut self, what: &str) {
        let limit = Instant::now() + WAIT_LIMIT;
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
        "clock after 2128" => refuse_a_late_clock(&dir),
        "container" => in_a_container(&dir),
        "boot" => one_boot(&dir),
        "umask" => with_umasks(&dir),
        "moved" => from_another_directory(&dir),
        "failing commit" => failing_commit(&dir),
        "no descriptors" => without_descriptors(&dir, &number),
        "one grant" => one_grant(&dir),
        "fork" => fork::with_a_file_open(&dir),
        "fork first" => fork::with_no_file_open(&dir, false),
        "fork after closing" => fork::with_no_file_open(&dir, true),
        "fork in traffic" => fork::in_the_middle(&dir),
        other => panic!("no part {other}"),
    }
}

fn one_grant(dir: &Path) {
    let b = open(dir);
    let taken = attempt(&b, "new program", MINUTE).expect("an answer");
    free(&b, &taken.expect("a grant").0);
    mark(dir, "granted");
}

fn append(path: &Path) -> File {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .expect("a log")
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + WAIT_LIMIT;
    while !done() {
        assert!(Instant::now() < limit, "it did not happen in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

const PLAYERS: usize = 8;
const GRANTS: usize = 1600;

/// Takes the key again and again until the test has seen enough.
fn contend(dir: &Path, k: &str, number: &str) {
    let b = open(dir);
    b.check(&Call::new()).expect("a good store");
    let mut log = append(&dir.join("grants"));
    let mark = dir.join(format!("held {k}"));
    std::fs::write(dir.join(format!("ready {number}")), "").expect("a mark");
    wait_for("the start", || dir.join("start").exists());
    while !dir.join("enough").exists() {
        let Some((id, fence)) = attempt(&b, k, MINUTE).expect("an answer") else {
            std::thread::sleep(Duration::from_micros(300));
            continue;
        };
        // Fails if another process holds the lock.
        File::create_new(&mark).expect("two holders at once");
        log.write_all(format!("{number} {fence}\n").as_bytes())
            .expect("the log");
        std::fs::remove_file(&mark).expect("its own mark");
        free(&b, &id);
    }
}

/// The process of each grant and its fence, in the order of holding. Runs until every process has had `each`: how long that takes is the
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
            let (process, fence) = line.split_once(' ').expect("two words");
            (process.to_owned(), fence.parse().expect("a fence"))
        };
        whole.lines().map(line).collect()
    };
    wait_for("a turn for every process", || {
        std::thread::sleep(Duration::from_millis(50));
        let lines = lines();
        let mut shares = BTreeMap::<&str, usize>::new();
        for (process, _) in &lines {
            *shares.entry(process).or_default() += 1;
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
    for (process, fence) in contention("own key", 50) {
        let before = last.insert(process, fence).unwrap_or(0);
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
    b.check(&Call::new()).expect("a good store");
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
        assert!(b.is_locked(&key("held"), &Call::new()).expect("an answer"));
        assert!(matches!(
            b.extend(&id, ttl(MINUTE * 10), &Call::new()),
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

/// A fence of the clock in the year 2200 would stay in the counter for ever: nothing is written.
fn refuse_a_late_clock(dir: &Path) {
    const AFTER_2128: i64 = 175 * 365 * 24 * 3600;
    let options = ClientOptions::new()
        .operation_timeout(WAIT_LIMIT)
        .fences(syncguard::FenceSource::Clock);
    let url = format!("sqlite:{}/locks.db", dir.display());
    let b = SqliteBackend::open(&url, &options).expect("a good URL");
    let take = || attempt(&b, "k", MINUTE);
    let (id, fence) = take().expect("an answer").expect("a grant");
    free(&b, &id);
    assert!(fence > 1_700_000_000_000, "{fence}");
    set_wall_clock(dir, AFTER_2128);
    let error = take().expect_err("a wrong clock");
    assert_eq!(error.code(), ErrorCode::Internal, "{error}");
    assert!(error.message().contains("clock"), "{error}");
    assert!(!b.is_locked(&key("k"), &Call::new()).expect("an answer"));
    set_wall_clock(dir, 0);
    let (id, next) = take().expect("an answer").expect("a grant");
    free(&b, &id);
    let an_hour = 3_600_000;
    assert!(next > fence && next < fence + an_hour, "{fence}, {next}");
}

#[test]
fn a_clock_after_2128_is_an_error_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let place = support::plain_directory();
    let clock = WallClock::build(dir.path(), place.path());
    Player::start("clock after 2128", dir.path(), 0, &clock.env()).finish("the clock after 2128");
}

#[test]
fn a_wall_clock_that_steps_neither_frees_nor_freezes() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let place = support::plain_directory();
    let clock = WallClock::build(dir.path(), place.path());
    Player::start("clock", dir.path(), 0, &clock.env()).finish("clock");
}

fn mark(dir: &Path, name: &str) {
    std::fs::write(dir.join(name), "").expect("a mark");
}

/// Meets the lock of the test and holds one of its own until told.
fn in_a_container(dir: &Path) {
    let b = open(dir);
    let refused = || {
        assert!(attempt(&b, "host", MINUTE).expect("an answer").is_none());
        assert!(b.is_locked(&key("host"), &Call::new()).expect("an answer"));
    };
    let shim = std::env::var_os("WALL_CLOCK_OFFSET").is_some();
    refused();
    // Not freed by a step of the wall clock either.
    for step in [3 * 365 * 24 * 3600, -24 * 3600, 0] {
        if shim {
            set_wall_clock(dir, step);
            refused();
        }
    }
    let (own, _) = attempt(&b, "container", 10 * MINUTE)
        .expect("an answer")
        .expect("a grant");
    mark(dir, "container holds");
    wait_for("the test", || dir.join("test has looked").exists());
    free(&b, &own);
    // A lock is given back and renewed by its id from anywhere.
    let host = std::fs::read_to_string(dir.join("host id")).expect("an id");
    let host = LockId::parse(&host).expect("an id");
    assert!(matches!(
        b.extend(&host, ttl(10 * MINUTE), &Call::new()),
        Ok(syncguard::ExtendOutcome::Extended(_))
    ));
}

/// Holds a lock, runs `container`, and looks at the container's lock.
fn beside_a_container(dir: &Path, container: impl FnOnce() -> Player) {
    let b = open(dir);
    let (id, _) = attempt(&b, "host", 10 * MINUTE)
        .expect("an answer")
        .expect("a grant");
    std::fs::write(dir.join("host id"), id.as_str()).expect("a file");
    let mut container = container();
    wait_for("the container", || {
        let ended = container.0.try_wait().expect("its status");
        assert!(ended.is_none(), "the container: {ended:?}");
        dir.join("container holds").exists()
    });
    assert!(
        attempt(&b, "container", MINUTE)
            .expect("an answer")
            .is_none()
    );
    assert_eq!(b.purge_expired(100, &Call::new()).ok(), Some(0));
    mark(dir, "test has looked");
    container.finish("container");
    free(&b, &id);
}

#[test]
fn containers_with_boot_ids_of_their_own_share_one_store() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let place = support::plain_directory();
    let clock = WallClock::build(dir.path(), place.path());
    beside_a_container(dir.path(), || {
        Player::start_apart(&[], "of a container", "container", dir.path(), &clock.env())
    });
}

/// A time namespace moves the boot-time clock of its processes, in both directions.
#[test]
fn containers_in_time_namespaces_share_one_store() {
    for offset in ["1000000", "-5"] {
        let dir = tempfile::tempdir().expect("a temp dir");
        beside_a_container(dir.path(), || {
            let options = ["--time", "--fork", "--boottime", offset];
            Player::start_apart(&options, "in another time", "container", dir.path(), &[])
        });
    }
}

/// One boot of a machine: what the file "attempts" asks for, and whether each key must be free.
fn one_boot(dir: &Path) {
    let b = open(dir);
    let attempts = std::fs::read_to_string(dir.join("attempts")).expect("a file");
    for line in attempts.lines() {
        let (k, ms) = line.split_once(' ').expect("two words");
        let (ms, free) = ms.split_once(' ').expect("three words");
        let seen = b.is_locked(&key(k), &Call::new()).expect("an answer");
        assert_eq!(!seen, free == "free", "is_locked: {line}");
        if free == "free" {
            let ms = ms.parse().expect("a number");
            assert!(attempt(&b, k, ms).expect("an answer").is_some(), "{line}");
        }
    }
}

#[test]
fn a_reboot_frees_locks_also_where_the_boot_id_repeats() {
    const TEN_YEARS: u64 = 10 * 365 * 24 * 3600 * 1000;
    const HOUR: i64 = 3600;
    let dir = tempfile::tempdir().expect("a temp dir");
    let place = support::plain_directory();
    let clock = WallClock::build(dir.path(), place.path());
    let boot = |id: &str, up: i64, wall: i64, attempts: &[(&str, u64, &str)]| {
        set_boot_clock(dir.path(), up);
        set_wall_clock(dir.path(), wall);
        let lines: String = attempts
            .iter()
            .map(|(k, ms, free)| format!("{k} {ms} {free}\n"))
            .collect();
        std::fs::write(dir.path().join("attempts"), lines).expect("a file");
        Player::start_apart(&[], id, "boot", dir.path(), &clock.env()).finish(id);
    };
    let both = |free| [("short", 10 * MINUTE, free), ("long", TEN_YEARS, free)];
    // Up for ten days, then for a minute: nothing of before is left, whatever the id and the wall clock say.
    boot("first", 240 * HOUR, 0, &both("free"));
    boot("first", 240 * HOUR, 0, &both("taken"));
    boot("repeated", 239 * HOUR, -HOUR, &both("free"));
    boot("repeated", 239 * HOUR, 24 * HOUR, &both("taken"));
    boot("repeated", 0, HOUR, &both("free"));
    // Up for as long as before, under another id: the holder may live in a container. A TTL later it cannot, and ten years
    // are cut to an hour where the wall clock too tells of a reboot.
    let uptime = std::fs::read_to_string("/proc/uptime").expect("the uptime");
    let uptime = uptime.split('.').next().and_then(|s| s.parse::<i64>().ok());
    let later = uptime.expect("seconds") + 6 * HOUR;
    boot("second", 0, later, &both("taken"));
    boot(
        "second",
        900,
        later,
        &[("short", 1, "free"), ("long", 1, "taken")],
    );
    boot("second", HOUR + 300, later, &[("long", 1, "free")]);
    // Where it tells of none, they are not.
    boot("third", 0, 3 * HOUR, &[("years", TEN_YEARS, "free")]);
    boot("fourth", 48 * HOUR, 51 * HOUR, &[("years", 1, "taken")]);
}

fn modes(dir: &Path, name: &str) -> Vec<u32> {
    use std::os::unix::fs::PermissionsExt;
    ["", "-wal", "-shm"]
        .iter()
        .map(|suffix| {
            let file = dir.join(format!("{name}{suffix}"));
            let meta = std::fs::metadata(&file).expect("a file");
            meta.permissions().mode() & 0o777
        })
        .collect()
}

fn with_umasks(dir: &Path) {
    use nix::sys::stat::{Mode, umask};
    let files = [
        (0o000, "", 0o600),
        (0o022, "", 0o600),
        (0o777, "", 0o600),
        (0o000, "?mode=0600", 0o600),
        (0o022, "?mode=0660", 0o660),
        (0o077, "?mode=0644", 0o644),
        (0o000, "?mode=0640", 0o640),
    ];
    for (n, (mask, option, mode)) in files.into_iter().enumerate() {
        umask(Mode::from_bits_truncate(mask));
        let url = |option: &str| format!("sqlite:{}/{n}.db{option}", dir.display());
        let open = |option: &str| {
            SqliteBackend::open(&url(option), &ClientOptions::new()).expect("a good URL")
        };
        let warned = |b: &SqliteBackend| {
            let told = b.check(&Call::new()).expect("a good store");
            told.iter().any(|w| w.contains("more users"))
        };
        let b = open(option);
        let (id, _) = attempt(&b, "k", MINUTE)
            .expect("an answer")
            .expect("a grant");
        let name = format!("{n}.db");
        assert_eq!(modes(dir, &name), [mode; 3], "umask {mask:03o} {option:?}");
        assert!(!warned(&b), "{option:?}");
        // A file that exists keeps its mode, and a wider one than asked for is told.
        let strict = open("");
        assert_eq!(warned(&strict), mode != 0o600, "{option:?}");
        let wide = open("?mode=0666");
        free(&wide, &id);
        assert!(!warned(&wide));
        assert_eq!(modes(dir, &name), [mode; 3], "umask {mask:03o} {option:?}");
    }
}

#[test]
fn new_files_are_the_users_own_whatever_the_umask_is() {
    let dir = tempfile::tempdir().expect("a temp dir");
    Player::start("umask", dir.path(), 0, &[]).finish("umask");
}

/// A relative path means the directory that was current when the client was opened.
fn from_another_directory(dir: &Path) {
    std::fs::create_dir(dir.join("first")).expect("a directory");
    std::os::unix::fs::symlink("first/target.db", dir.join("link.db")).expect("a link");
    std::env::set_current_dir(dir).expect("a move");
    let options = ClientOptions::new().operation_timeout(WAIT_LIMIT);
    let relative = |url| SqliteBackend::open(url, &options).expect("a good URL");
    let (plain, linked) = (relative("sqlite:plain.db"), relative("sqlite:link.db"));
    std::env::set_current_dir("/").expect("a move");
    for b in [&plain, &linked] {
        let (id, _) = attempt(b, "k", MINUTE)
            .expect("an answer")
            .expect("a grant");
        std::env::set_current_dir(dir.join("first")).expect("a move");
        assert!(attempt(b, "k", MINUTE).expect("an answer").is_none());
        free(b, &id);
    }
    for name in [
        "plain.db",
        "plain.db-wal",
        "first/target.db",
        "first/target.db-wal",
    ] {
        assert!(dir.join(name).exists(), "{name}");
    }
    assert!(!dir.join("link.db-wal").exists());
}

#[test]
fn a_relative_path_does_not_follow_the_process() {
    let dir = tempfile::tempdir().expect("a temp dir");
    Player::start("moved", dir.path(), 0, &[]).finish("moved");
}

/// Commits whose sync to the disk fails.
fn failing_commit(dir: &Path) {
    let b = open(dir);
    let (held, _) = attempt(&b, "held", 10 * MINUTE)
        .expect("an answer")
        .expect("a grant");
    mark(dir, "sync fails");
    let id = LockId::random().expect("an id");
    let failed = [
        b.acquire(&key("k"), &id, ttl(10 * MINUTE), &Call::new())
            .map(|_| ()),
        b.extend(&held, ttl(10 * MINUTE), &Call::new()).map(|_| ()),
        b.release(&held, &Call::new()).map(|_| ()),
        b.purge_expired(1, &Call::new()).map(|_| ()),
        // The last one: its frames are the ones that a recovery finds.
        b.acquire(&key("k"), &id, ttl(10 * MINUTE), &Call::new())
            .map(|_| ()),
    ];
    for (n, failed) in failed.into_iter().enumerate() {
        // A purge that finds nothing writes nothing.
        if n == 3 {
            continue;
        }
        let error = failed.expect_err("a commit that fails");
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{n}: {error}");
        assert!(error.may_have_applied(), "{n}: {error}");
    }
    std::fs::write(dir.join("id"), id.as_str()).expect("a file");
}

/// The error says so because it is so: the log holds the commit, and the recovery after a crash finds it.
#[test]
fn a_failed_commit_may_have_been_applied() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let place = support::plain_directory();
    let (source, shim) = (place.path().join("s.c"), place.path().join("s.so"));
    std::fs::write(&source, include_str!("failing_sync.c")).expect("the source");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&shim, &source])
        .status()
        .expect("a C compiler");
    assert!(built.success());
    let fails = dir.path().join("sync fails");
    let env: [(&str, &Path); 2] = [("LD_PRELOAD", &shim), ("SYNC_FAILS", &fails)];
    Player::start("failing commit", dir.path(), 0, &env).finish("failing commit");
    // What a crash leaves: the file and its log. The log's index is built anew.
    std::fs::remove_file(dir.path().join("locks.db-shm")).expect("the index");
    let b = open(dir.path());
    let id = std::fs::read_to_string(dir.path().join("id")).expect("an id");
    assert!(b.is_locked(&key("k"), &Call::new()).expect("an answer"));
    free(&b, &LockId::parse(&id).expect("an id"));
    intact(dir.path());
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
        let limit = Instant::now() + WAIT_LIMIT;
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

    /// What every use of SQLite answers in a child whose parent had a file open.
    fn refused(dir: &Path, file: &str) {
        let options = ClientOptions::new().operation_timeout(WAIT_LIMIT);
        let own = SqliteBackend::open(&format!("sqlite:{}/{file}", dir.display()), &options)
            .expect("a good URL");
        let error = attempt(&own, "k", MINUTE).expect_err("refused");
        assert_eq!(error.code(), ErrorCode::Internal);
        assert!(!error.may_have_applied());
        for advice in ["forked from", "after the fork", "before it", "exec"] {
            assert!(error.message().contains(advice), "{error}");
        }
    }

    pub(super) fn with_a_file_open(dir: &Path) {
        let inherited = open(dir);
        let (held, _) = attempt(&inherited, "held", MINUTE)
            .expect("an answer")
            .expect("a grant");
        let mut inherited = Some(inherited);
        let first = child(|| {
            let parents = inherited.take().expect("it");
            let error = attempt(&parents, "k", MINUTE).expect_err("the parent's");
            assert_eq!(error.code(), ErrorCode::Internal);
            assert!(!error.may_have_applied());
            drop(parents);
            refused(dir, "locks.db");
            refused(dir, "other.db");
            assert!(!dir.join("other.db").exists(), "nothing was touched");
            assert_eq!(wait(child(|| refused(dir, "locks.db"))), 0);
            wait_for("the parent", || dir.join("closed").exists());
            refused(dir, "locks.db");
            // A new program inherits nothing.
            Player::start("one grant", dir, 0, &[]).finish("one grant");
        });
        let inherited = inherited.expect("the parent's");
        many(&inherited, "parent", 50);
        assert!(attempt(&inherited, "held", MINUTE).is_ok_and(|taken| taken.is_none()));
        free(&inherited, &held);
        drop(inherited);
        std::fs::write(dir.join("closed"), "").expect("a mark");
        assert_eq!(wait(first), 0);
        assert!(dir.join("granted").exists());
        intact(dir);
    }

    /// The parent has no file open at the fork: its children use SQLite as any process does, also after its end.
    pub(super) fn with_no_file_open(dir: &Path, used: bool) {
        let before = open(dir);
        if used {
            many(&before, "parent", 20);
        }
        drop(before);
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
        // After the fork the parent opens it too.
        many(&open(dir), "parent", 20);
        wait_for("the early child", || dir.join("holds false").exists());
    }

    pub(super) fn in_the_middle(dir: &Path) {
        let stop = std::sync::atomic::AtomicBool::new(false);
        let (mut worked, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    // Opened and closed each time: a fork falls into every part of it.
                    many(&open(dir), "busy", 1);
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
                        Err(e) if e.message().contains("forked from") => std::process::exit(7),
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
        intact(dir);
    }
}

#[test]
fn a_child_whose_parent_had_a_file_open_is_refused() {
    let dir = tempfile::tempdir().expect("a temp dir");
    Player::start("fork", dir.path(), 0, &[]).finish("fork");
}

#[test]
fn a_child_forked_before_the_first_use_works() {
    a_child_works_and_outlives_its_parent("fork first");
}

#[test]
fn a_child_forked_after_everything_was_closed_works() {
    a_child_works_and_outlives_its_parent("fork after closing");
}

fn a_child_works_and_outlives_its_parent(part: &str) {
    let dir = tempfile::tempdir().expect("a temp dir");
    Player::start(part, dir.path(), 0, &[]).finish(part);
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
fn a_child_forked_in_the_middle_of_a_call_never_hangs() {
    let dir = tempfile::tempdir().expect("a temp dir");
    Player::start("fork in traffic", dir.path(), 0, &[]).finish("fork in traffic");
}
