//! What a guard costs over the bare verbs, in time and in memory. `cargo bench --all-features --bench guard` runs it.

use std::time::{Duration, Instant};

use pin::{Cores, Place};
use stats::{at, sorted};
use syncguard::testkit::MemoryBackend;
use syncguard::{Backend, Client, ClientOptions, Key, LockId, LockOptions, Ttl};

#[allow(dead_code)]
#[path = "performance/pin.rs"]
mod pin;
#[allow(dead_code)]
#[path = "performance/stats.rs"]
mod stats;

const ROUNDS: usize = 21;
const CYCLES: u32 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A cycle is not to be timed across two cores.
    pin::me(&Cores::allowed().client(Place::Together));
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    println!(
        "lock() + drop against bare acquire + release, {ROUNDS} interleaved rounds of {CYCLES} cycles, one core"
    );
    compare("sqlite", &Client::open(&url)?)?;
    compare("memory", &Client::with_backend(MemoryBackend::new()))?;
    println!();
    memory()
}

fn compare(name: &str, client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    let (key, ttl) = (Key::new("bench")?, Ttl::new(Duration::from_secs(30))?);
    let bare = || -> Result<(), syncguard::LockError> {
        let id = LockId::random()?;
        let _ = client.acquire(&key, &id, ttl, None)?;
        let _ = client.release(&id, None)?;
        Ok(())
    };
    let guarded = || client.lock("bench").map(drop);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push((time(&bare)?, time(&guarded)?));
    }
    let us = |d: Duration| d.as_secs_f64() * 1e6 / f64::from(CYCLES);
    let bare = median(rounds.iter().map(|r| us(r.0)).collect());
    let extra = median(rounds.iter().map(|r| us(r.1) - us(r.0)).collect());
    let ratio = median(rounds.iter().map(|r| us(r.1) / us(r.0)).collect());
    println!("  {name:8} bare {bare:8.2} µs   lock() + drop {extra:+6.2} µs   ratio {ratio:.3}");
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    println!(
        "           threads in the process: {threads} (this one and the timer: no heartbeat was started)"
    );
    Ok(())
}

fn time(
    work: &dyn Fn() -> Result<(), syncguard::LockError>,
) -> Result<Duration, syncguard::LockError> {
    let begun = Instant::now();
    for _ in 0..CYCLES {
        work()?;
    }
    Ok(begun.elapsed())
}

/// Resident memory per held lock, on the store in memory, whose own share is measured and taken off.
fn memory() -> Result<(), Box<dyn std::error::Error>> {
    let keys = |n: usize| (0..n).map(|i| format!("bench:{i}")).collect::<Vec<_>>();
    let ttl = Ttl::new(Duration::from_secs(600))?;
    let quiet = LockOptions::new().ttl(Duration::from_secs(600));
    for count in [1_000, 10_000] {
        let names = keys(count);
        let bare_client = Client::with_backend(MemoryBackend::new());
        let before = resident();
        for name in &names {
            let _ = bare_client.acquire(&Key::new(name)?, &LockId::random()?, ttl, None)?;
        }
        let store = resident() - before;
        let client = Client::with_backend(MemoryBackend::new());
        let before = resident();
        let guards: Vec<_> = names
            .iter()
            .map(|n| client.lock_with(n, &quiet))
            .collect::<Result<_, _>>()?;
        let whole = resident() - before;
        println!(
            "{count:6} guards, heartbeat not due: {:5} bytes each (the store's own {} taken off)",
            (whole - store).max(0) / count as i64,
            store / count as i64
        );
        drop(guards);
    }
    let count = 1_000;
    let names = keys(count);
    let client = Client::with_backend_and(MemoryBackend::new(), &ClientOptions::new())?;
    let before = resident();
    let busy = LockOptions::new()
        .ttl(Duration::from_secs(600))
        .heartbeat(Duration::from_millis(200));
    let guards: Vec<_> = names
        .iter()
        .map(|n| client.lock_with(n, &busy))
        .collect::<Result<_, _>>()?;
    while std::fs::read_dir("/proc/self/task")?.count() < count {
        std::thread::sleep(Duration::from_millis(20));
    }
    println!(
        "{count:6} guards, heartbeat running: {:5} bytes each, the store's share included, {count} threads",
        (resident() - before) / count as i64
    );
    drop(guards);
    Ok(())
}

fn resident() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: i64 = statm
        .split_whitespace()
        .nth(1)
        .and_then(|p| p.parse().ok())
        .unwrap_or(0);
    pages * 4096
}

fn median(values: Vec<f64>) -> f64 {
    at(&sorted(values), 0.5)
}
