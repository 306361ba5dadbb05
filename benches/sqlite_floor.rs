//! What the library adds to SQLite: acquire + release through `SqliteBackend` against the same statements on a bare
//! connection, in paired rounds on one core.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rusqlite::Connection;
use syncguard::{AcquireOutcome, Backend, ClientOptions, Key, LockId, SqliteBackend, Ttl};

#[path = "performance/sqlite.rs"]
mod sqlite;

const ROUNDS: usize = 31;
const OPERATIONS: usize = 200;
const TARGET: f64 = 1.15;

fn main() {
    pin();
    let disk = tempfile::tempdir().expect("a temp dir");
    measure("on disk", disk.path());
    // Without the disk's own time, which hides everything else.
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        measure("in memory", memory.path());
    }
}

fn measure(place: &str, dir: &Path) {
    let (ours, bare) = (dir.join("ours.db"), dir.join("bare.db"));
    let backend = open(&ours);
    // The tables of the bare side are the library's own.
    open(&bare).check(None).expect("tables");
    let raw = sqlite::connect(&bare);
    let synchronous: i64 = raw
        .query_row("PRAGMA synchronous", [], |row| row.get(0))
        .expect("a setting");
    let key = Key::new("bench").expect("a key");
    let ids: Vec<LockId> = (0..OPERATIONS)
        .map(|_| LockId::random().expect("an id"))
        .collect();

    let mut rounds: Vec<(f64, f64)> = (0..=ROUNDS)
        .map(|_| {
            // One of each in turn, so that both meet the same disk; the median of each, because of its outliers.
            let mut times = (Vec::new(), Vec::new());
            for (n, id) in ids.iter().enumerate() {
                if n % 2 == 0 {
                    times
                        .0
                        .push(time(|| through_the_library(&backend, &key, id)));
                    times.1.push(time(|| by_hand(&raw, id)));
                } else {
                    times.1.push(time(|| by_hand(&raw, id)));
                    times
                        .0
                        .push(time(|| through_the_library(&backend, &key, id)));
                }
            }
            (at(&sorted(times.0), 0.5), at(&sorted(times.1), 0.5))
        })
        .collect();
    // The first one warmed up.
    rounds.remove(0);
    let ratios = sorted(rounds.iter().map(|(a, b)| a / b).collect());
    let a = sorted(rounds.iter().map(|(a, _)| *a).collect());
    let b = sorted(rounds.iter().map(|(_, b)| *b).collect());
    let ratio = at(&ratios, 0.5);
    println!(
        "sqlite acquire+release {place}: library {:.1} µs, bare statements {:.1} µs; ratio {ratio:.3} (quartiles {:.3}..{:.3}, \
         {ROUNDS} paired rounds of {OPERATIONS}); synchronous={synchronous} (2 is FULL), journal_mode=wal; target {TARGET}: {}",
        at(&a, 0.5),
        at(&b, 0.5),
        at(&ratios, 0.25),
        at(&ratios, 0.75),
        if ratio <= TARGET { "met" } else { "MISSED" },
    );
}

/// The value below which `part` of the sorted values lie.
fn at(values: &[f64], part: f64) -> f64 {
    values[((values.len() - 1) as f64 * part).round() as usize]
}

fn open(path: &Path) -> SqliteBackend {
    let url = format!("sqlite:{}", path.display());
    SqliteBackend::open(&url, &ClientOptions::new()).expect("a good URL")
}

/// On one core, any that is allowed: the two sides must not be measured on different ones.
fn pin() {
    let me = Pid::from_raw(0);
    let allowed = sched_getaffinity(me).expect("the allowed cores");
    let core = (0..CpuSet::count())
        .rev()
        .find(|n| allowed.is_set(*n).unwrap_or(false))
        .expect("a core");
    let mut one = CpuSet::new();
    one.set(core).expect("a core");
    sched_setaffinity(me, &one).expect("pinned");
}

/// Microseconds.
fn time(operation: impl FnOnce()) -> f64 {
    let began = Instant::now();
    operation();
    began.elapsed().as_secs_f64() * 1e6
}

fn through_the_library(backend: &SqliteBackend, key: &Key, id: &LockId) {
    let ttl = Ttl::new(Duration::from_secs(30)).expect("a ttl");
    match backend.acquire(key, id, ttl, None) {
        Ok(AcquireOutcome::Acquired(_)) => {}
        other => panic!("{other:?}"),
    }
    assert!(backend.release(id, None).expect("an answer").is_released());
}

fn by_hand(c: &Connection, id: &LockId) {
    sqlite::acquire(c, "bench", "fence:bench", id);
    sqlite::release(c, "bench", id);
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}
