//! What the library adds to SQLite: acquire + release through `SqliteBackend` against the same statements on a bare
//! connection, in paired rounds on one core.

use std::path::Path;
use std::time::{Duration, Instant};

use pin::{Cores, Place};
use rusqlite::Connection;
use stats::{at, sorted};
use syncguard::{AcquireOutcome, Backend, ClientOptions, Key, LockId, SqliteBackend, Ttl};

#[allow(dead_code)]
#[path = "performance/pin.rs"]
mod pin;
#[path = "performance/sqlite.rs"]
mod sqlite;
#[allow(dead_code)]
#[path = "performance/stats.rs"]
mod stats;

const ROUNDS: usize = 31;
const OPERATIONS: usize = 200;
const TARGET: f64 = 1.15;

fn main() {
    // The two sides must not be measured on different cores.
    pin::me(&Cores::allowed().client(Place::Together));
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

fn open(path: &Path) -> SqliteBackend {
    let url = format!("sqlite:{}", path.display());
    SqliteBackend::open(&url, &ClientOptions::new()).expect("a good URL")
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
