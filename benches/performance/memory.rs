//! What a held lock costs the process that holds it.

use std::time::{Duration, Instant};

use syncguard::{Guard, LockError, LockOptions};

use super::callers::Contender;

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
