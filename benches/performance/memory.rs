//! What a held lock costs the process that holds it.

use std::time::{Duration, Instant};

use syncguard::{Guard, LockError, LockOptions};

use super::Bench;
use super::callers::Contender;
use super::contenders::{self, Entry, Running};
use super::pin::Place;
use super::servers::{Store, Stores};
use super::stats::{Figure, number};

pub fn report(bench: &mut Bench, stores: &Stores) {
    bench.page.heading(2, "Guards");
    bench.page.prose(
        "Resident memory per held lock, and the most threads that the process had. \"Renewing\" is measured when every lock has been \
         renewed; a renewal has a thread while it is under way.",
    );
    let redis = &stores.redis;
    let mut rows = rows(bench, "Redis", redis, &contenders::redis(redis));
    let postgres = &stores.postgres_tmpfs;
    rows.extend(self::rows(
        bench,
        "Postgres",
        postgres,
        &contenders::postgres(postgres),
    ));
    let sqlite = &stores.sqlite_tmpfs;
    rows.extend(self::rows(
        bench,
        "SQLite",
        sqlite,
        &contenders::sqlite(sqlite),
    ));
    bench.page.table(
        &["store", "guards", "heartbeat", "bytes per guard", "threads"],
        &rows,
    );
}

/// The rows of one store, and its target.
fn rows(bench: &mut Bench, name: &str, store: &Store, entries: &[Entry]) -> Vec<Vec<String>> {
    store.pin(&bench.cores);
    let Some(entry) = entries.iter().find(|e| e.name == "syncguard lock()") else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for &count in bench.plan.guards {
        for (mode, shown) in [("quiet", "not yet renewing"), ("beating", "renewing")] {
            let (mut bytes, mut threads) = (Vec::new(), Vec::new());
            for _ in 0..bench.plan.rounds {
                // A process of its own each time: memory given back would be counted for the next.
                let answer = Running::start(entry).and_then(|mut r| {
                    r.pin(&bench.cores, Place::Apart);
                    r.ask(&format!("hold {count} {mode}"), 2)
                });
                if let Some(answer) = bench.tried("guards", answer) {
                    bytes.push(answer[0]);
                    threads.push(answer[1]);
                }
            }
            if mode == "beating" && count >= 10_000 {
                let figure = Figure::of(&bytes);
                let met = figure.median <= 1024.0;
                let what = format!(
                    "{name}: bytes per lock, {} of them renewing",
                    number(count as f64)
                );
                bench.target(&what, "≤ 1 024", figure, met);
            }
            rows.push(vec![
                name.to_owned(),
                number(count as f64),
                shown.to_owned(),
                Figure::of(&bytes).show(),
                Figure::of(&threads).show(),
            ]);
        }
    }
    rows
}

/// Takes `count` locks and says how many bytes each is worth and how many threads there were at the most. `beating` waits until
/// every lock has been renewed.
pub fn hold(contender: &Contender, count: usize, beating: bool) -> Result<String, String> {
    let text = |e: LockError| e.to_string();
    let client = contender.client(16)?;
    // The first lock makes the connection and the timer.
    drop(client.lock("bench-first").map_err(text)?);
    // The locks of a process that was ended are in the way of no other.
    let process = std::process::id();
    let names: Vec<String> = (0..count)
        .map(|i| format!("bench-held-{process}-{i}"))
        .collect();
    let every = Duration::from_millis(500).max(Duration::from_millis(count as u64));
    let options = LockOptions::new().ttl(Duration::from_secs(600));
    let options = if beating {
        options.heartbeat(every)
    } else {
        options
    };
    let mut guards: Vec<Guard> = Vec::with_capacity(count);
    let before = resident();
    for name in &names {
        guards.push(client.lock_with(name, &options).map_err(text)?);
    }
    let mut most = threads();
    if beating {
        let first: Vec<i64> = guards.iter().map(Guard::expires_at_ms).collect();
        let renewed = |(guard, first): (&Guard, &i64)| guard.expires_at_ms() > *first;
        let end = Instant::now() + every * 4 + Duration::from_secs(20);
        while !guards.iter().zip(&first).all(renewed) {
            if Instant::now() >= end {
                return Err("a guard was not renewed in time".to_owned());
            }
            most = most.max(threads());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let bytes = resident() - before;
    if guards.iter().any(Guard::is_lost) {
        return Err("a guard was lost".to_owned());
    }
    // Ten thousand releases one after the other are not what is measured.
    guards.into_iter().for_each(std::mem::forget);
    Ok(format!("{} {most}", bytes as f64 / count as f64))
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn resident() -> i64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kib = rollup
        .lines()
        .find_map(|l| l.strip_prefix("Rss:")?.trim().strip_suffix(" kB"))
        .and_then(|n| n.trim().parse::<i64>().ok());
    kib.unwrap_or(0) * 1024
}
