//! What the library adds to SQLite: acquire + release through `SqliteBackend` against the same statements on a bare
//! connection, in paired rounds on one core.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rusqlite::{Connection, params};
use syncguard::{AcquireOutcome, Backend, ClientOptions, Key, LockId, SqliteBackend, Ttl};

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
    let raw = Connection::open(&bare).expect("the file");
    raw.set_prepared_statement_cache_capacity(24);
    raw.execute_batch("PRAGMA synchronous = FULL")
        .expect("a setting");
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
    let run = |sql: &str, p: &[&dyn rusqlite::ToSql]| {
        c.prepare_cached(sql)
            .and_then(|mut s| s.execute(p))
            .expect("done")
    };
    let one = |sql: &str, arg: &str| {
        let mut statement = c.prepare_cached(sql).expect("a statement");
        let mut rows = statement.query([arg]).expect("rows");
        rows.next()
            .expect("a row")
            .map(|row| row.get::<_, i64>(1).expect("a number"))
    };
    run("BEGIN IMMEDIATE", &[]);
    assert!(one("SELECT boot_id, expires_boot_ms, lock_id, fence, expires_at_ms, acquired_at_ms, user_key, key FROM syncguard_locks WHERE key = ?1", "bench").is_none());
    let fence = one(
        "SELECT fence_key, fence FROM syncguard_fence_counters WHERE fence_key = ?1",
        "fence:bench",
    )
    .unwrap_or(0)
        + 1;
    run(
        "INSERT INTO syncguard_fence_counters (fence_key, fence) VALUES (?1, ?2) ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence",
        params!["fence:bench", fence],
    );
    run(
        "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, boot_id, expires_boot_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, \
         expires_at_ms = excluded.expires_at_ms, acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, \
         user_key = excluded.user_key, boot_id = excluded.boot_id, expires_boot_ms = excluded.expires_boot_ms",
        params![
            "bench",
            id.as_str(),
            1_800_000_000_000i64,
            1_799_999_970_000i64,
            fence,
            "bench",
            "01234567-89ab-cdef-0123-456789abcdef",
            1_000_000_000i64
        ],
    );
    run("COMMIT", &[]);
    run("BEGIN IMMEDIATE", &[]);
    assert!(one("SELECT boot_id, expires_boot_ms, lock_id, fence, expires_at_ms, acquired_at_ms, user_key, key FROM syncguard_locks WHERE lock_id = ?1", id.as_str()).is_some());
    assert_eq!(
        run(
            "DELETE FROM syncguard_locks WHERE key = ?1 AND lock_id = ?2",
            params!["bench", id.as_str()]
        ),
        1
    );
    run("COMMIT", &[]);
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}
