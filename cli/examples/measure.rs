//! Measures the command and the listing on servers of its own: `make cli-measure`. Fails if a run costs more than it may.
//!
//! - what `syncguard run true` on Redis takes more than `true`, in medians of alternating runs: at most 10 ms;
//! - what a cycle of acquire and release takes while another client lists a million locks over and over, beside the same without,
//!   on Redis, Postgres and SQLite.

#![allow(dead_code)]

#[path = "../../tests/support/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::postgres::Server;
use common::redis::{Link, RedisServer};
use syncguard::format::redis::encode;
use syncguard::{Client, Fence, ListOptions, LockId, StoredLock};

const RUNS: usize = 200;
const CYCLES: usize = 2000;
const MOST_FOR_A_RUN: Duration = Duration::from_millis(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args()
        .nth(2)
        .map_or(Ok(1_000_000), |n| n.parse())?;
    let program = std::env::args().nth(1).ok_or("the path of the program")?;
    let server = RedisServer::start(&[]);
    cost_of_run(&program, &server)?;
    fill_redis(&server, count)?;
    cost_of_listing("Redis", &server.url(), count)?;
    drop(server);
    let server = Server::start(&["fsync=on"]);
    fill_postgres(&server, count)?;
    cost_of_listing("Postgres", &server.url(), count)?;
    drop(server);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    fill_sqlite(&url, &path, count)?;
    cost_of_listing("SQLite", &url, count)
}

fn median(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn cost_of_run(program: &str, server: &RedisServer) -> Result<(), Box<dyn std::error::Error>> {
    let (mut plain, mut locked) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let begun = Instant::now();
        let status = Command::new("true").status()?;
        plain.push(begun.elapsed());
        let begun = Instant::now();
        let run = Command::new(program)
            .args(["run", "measured", "--", "true"])
            .env("SYNCGUARD_URL", server.url())
            .status()?;
        locked.push(begun.elapsed());
        if !status.success() || !run.success() {
            return Err("a run failed".into());
        }
    }
    let ((plain, _), (locked, worst)) = (median(plain), median(locked));
    println!(
        "run true: {:.2} ms, true: {:.2} ms, more: {:.2} ms; 99 of 100 runs within {:.2} ms",
        ms(plain + (locked - plain)),
        ms(plain),
        ms(locked.saturating_sub(plain)),
        ms(worst)
    );
    match locked.saturating_sub(plain) > MOST_FOR_A_RUN {
        true => Err("a run costs more than it may".into()),
        false => Ok(()),
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn cost_of_listing(name: &str, url: &str, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::open(url)?;
    let alone = cycles(&client)?;
    let (ended, pages, found) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let beside = std::thread::scope(|scope| {
        let lister = scope.spawn(|| {
            let client = Client::open(url)?;
            let (mut slowest, begun) = (Duration::ZERO, Instant::now());
            let mut whole = None;
            while !ended.load(Ordering::Acquire) || whole.is_none() {
                let mut options = ListOptions::new();
                let mut all = 0;
                loop {
                    let page_begun = Instant::now();
                    let page = client.list(&options)?;
                    slowest = slowest.max(page_begun.elapsed());
                    pages.fetch_add(1, Ordering::Relaxed);
                    all += page.locks.len() as u64;
                    match page.next {
                        Some(next) => options = options.after(next),
                        None => break,
                    }
                }
                found.store(all, Ordering::Relaxed);
                whole.get_or_insert(begun.elapsed());
            }
            Ok::<_, syncguard::LockError>((slowest, whole.unwrap_or_default()))
        });
        let beside = cycles(&client);
        ended.store(true, Ordering::Release);
        let lister = lister.join().map_err(|_| "the lister panicked")??;
        Ok::<_, Box<dyn std::error::Error>>((beside?, lister))
    })?;
    let ((busy, busy_99), (slowest, whole)) = beside;
    println!(
        "{name}: cycle of acquire and release with {count} locks: {:.3} ms (99 of 100 within {:.3} ms); while they are listed: {:.3} ms ({:.3} ms)",
        ms(alone.0),
        ms(alone.1),
        ms(busy),
        ms(busy_99)
    );
    // One lock more may be held while they are listed.
    if found.load(Ordering::Relaxed) < count as u64 {
        return Err(format!("{name}: the listing is not whole").into());
    }
    println!(
        "{name}: listing {} locks: {:.1} s; slowest of {} pages: {:.1} ms",
        found.load(Ordering::Relaxed),
        whole.as_secs_f64(),
        pages.load(Ordering::Relaxed),
        ms(slowest)
    );
    Ok(())
}

fn cycles(client: &Client) -> Result<(Duration, Duration), syncguard::LockError> {
    let mut times = Vec::with_capacity(CYCLES);
    for _ in 0..CYCLES {
        let begun = Instant::now();
        client.lock("a cycle")?.release()?.expect_released();
        times.push(begun.elapsed());
    }
    Ok(median(times))
}

/// Writes the locks as the script would, many at a time.
fn fill_redis(server: &RedisServer, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut link = Link::open(&server.socket())?;
    let expires = 4_000_000_000_000;
    for first in (0..count).step_by(1000) {
        let mut command = vec!["MSET".to_owned()];
        for n in first..(first + 1000).min(count) {
            let key = format!("job:{n}");
            let lock = StoredLock::new(&key, LockId::random()?, Fence::new(1)?, expires, 1);
            command.push(format!("syncguard:{key}"));
            command.push(encode(&lock.held_by("a/1/measure")));
        }
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        link.call(&command)?;
    }
    Ok(())
}

/// Copies one lock, with other names and ids.
fn fill_postgres(server: &Server, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::open(&server.url())?;
    client.setup_schema()?;
    let _seed = client.lock("seed")?;
    server.sql(&format!(
        "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) \
         SELECT 'job:' || n, substr(md5(n::text), 1, 21) || 'A', expires_at_ms + 1000000000, acquired_at_ms, fence, 'job:' || n \
         FROM syncguard_locks, generate_series(1, {count}) AS n; ANALYZE syncguard_locks"
    ));
    Ok(())
}

fn fill_sqlite(url: &str, path: &Path, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::open(url)?;
    let _seed = client.lock("seed")?;
    let columns = "acquired_at_ms, fence, boot_id, written_boot_ms";
    rusqlite::Connection::open(path)?.execute_batch(&format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) \
         INSERT INTO syncguard_locks (key, user_key, lock_id, expires_at_ms, expires_boot_ms, {columns}) \
         SELECT 'job:' || n, 'job:' || n, substr(hex(randomblob(11)), 1, 21) || 'A', expires_at_ms + 1000000000, \
         expires_boot_ms + 1000000000, {columns} FROM numbers, (SELECT * FROM syncguard_locks WHERE key = 'seed')"
    ))?;
    Ok(())
}
