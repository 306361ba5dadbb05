//! What a held lock costs the process that holds it.

use std::time::{Duration, Instant};

use syncguard::{Guard, LockError, LockOptions};

use super::Bench;
use super::callers::Contender;
use super::contenders::{self, Running};
use super::pin::Place;
use super::redisraw::Session;
use super::servers::Stores;
use super::stats::{Figure, number};

pub fn report(bench: &mut Bench, stores: &Stores) {
    let store = &stores.redis;
    bench.page.heading(2, "Guards");
    bench.page.prose(
        "Resident memory per held lock and threads of the process, on Redis. A heartbeat starts when the first renewal is due; \
         \"renewing\" is measured when all have started.",
    );
    store.pin(&bench.cores);
    let entries = contenders::redis(store);
    let Some(entry) = entries.iter().find(|e| e.name == "syncguard lock()") else {
        return;
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
                // The locks of a process that was ended would be in the way of the next.
                let cleared = Session::open(&store.path).and_then(|mut s| s.call(&["FLUSHALL"]));
                bench.tried("guards", cleared);
                if let Some(answer) = bench.tried("guards", answer) {
                    bytes.push(answer[0]);
                    threads.push(answer[1]);
                }
            }
            rows.push(vec![
                number(count as f64),
                shown.to_owned(),
                Figure::of(&bytes).show(),
                Figure::of(&threads).show(),
            ]);
        }
    }
    bench.page.table(
        &["guards", "heartbeat", "bytes per guard", "threads"],
        &rows,
    );
}

/// Takes `count` locks and says how many bytes each is worth and how many threads there are. `beating` waits until every
/// heartbeat has begun.
pub fn hold(contender: &Contender, count: usize, beating: bool) -> Result<String, String> {
    let text = |e: LockError| e.to_string();
    let client = contender.client(16)?;
    // The first lock makes the connection and the timer.
    drop(client.lock("bench-first").map_err(text)?);
    let names: Vec<String> = (0..count).map(|i| format!("bench-held-{i}")).collect();
    let every = Duration::from_millis(500).max(Duration::from_millis(count as u64));
    let options = LockOptions::new().ttl(Duration::from_secs(600));
    let options = if beating {
        options.heartbeat(every)
    } else {
        options
    };
    let mut guards: Vec<Guard> = Vec::with_capacity(count);
    let threads_before = threads();
    let before = resident();
    for name in &names {
        guards.push(client.lock_with(name, &options).map_err(text)?);
    }
    if beating {
        let end = Instant::now() + every * 4 + Duration::from_secs(20);
        while threads() < threads_before + count && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let bytes = resident() - before;
    let now = threads();
    if guards.iter().any(Guard::is_lost) {
        return Err("a guard was lost".to_owned());
    }
    // Ten thousand releases one after the other are not what is measured.
    guards.into_iter().for_each(std::mem::forget);
    Ok(format!("{} {now}", bytes as f64 / count as f64))
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
