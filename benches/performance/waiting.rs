//! What a hundred waiters cost the server while nothing happens.

use std::time::{Duration, Instant};

use super::contenders::{self, Entry, Running};
use super::pin::Place;
use super::servers::{Store, Stores};
use super::stats::Figure;
use super::{Bench, pgraw, redisraw};

const WAITERS: usize = 100;

pub fn report(bench: &mut Bench, stores: &Stores) -> Result<(), String> {
    bench.page.heading(2, "Waiting");
    let text = format!(
        "A hundred callers wait for a lock that is held all the time, without a time limit; after {} ms the server's requests are \
         counted in windows of {} ms. For Redis a script is one request; for Postgres a transaction is.",
        bench.plan.wait_settle.as_millis(),
        bench.plan.wait_window.as_millis()
    );
    bench.page.prose(&text);
    let store = &stores.redis;
    let mut counter = redisraw::RedisSession::open(&store.path)?;
    let mut cleaner = redisraw::RedisSession::open(&store.path)?;
    measure(
        bench,
        store,
        &contenders::redis(store),
        &mut || redis_requests(&mut counter),
        &mut || cleaner.call(&["FLUSHALL"]).map(drop),
    );
    let store = &stores.postgres_tmpfs;
    let mut counter = pgraw::PostgresSession::open(&store.path)?;
    let mut cleaner = pgraw::PostgresSession::open(&store.path)?;
    let mut last = 0.0;
    measure(
        bench,
        store,
        &contenders::postgres(store),
        &mut || {
            let total = postgres_transactions(&mut counter)?;
            Ok(total - std::mem::replace(&mut last, total))
        },
        &mut || cleaner.simple("DELETE FROM syncguard_locks").map(drop),
    );
    Ok(())
}

/// What clients have asked for since this was called last. Commands inside of scripts are counted by the server too and are no requests.
fn redis_requests(session: &mut redisraw::RedisSession) -> Result<f64, String> {
    let info = session.call(&["INFO", "commandstats"])?;
    let (mut scripts, mut all) = (0.0, 0.0);
    for line in info.lines().filter_map(|l| l.strip_prefix("cmdstat_")) {
        let (name, rest) = line.split_once(":calls=").unwrap_or((line, "0"));
        let calls: f64 = rest
            .split(',')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0.0);
        match name {
            "info" | "config|resetstat" => {}
            "eval" | "evalsha" => {
                scripts += calls;
                all += calls;
            }
            _ => all += calls,
        }
    }
    session.call(&["CONFIG", "RESETSTAT"])?;
    Ok(if scripts > 0.0 { scripts } else { all })
}

/// Since the server was started.
fn postgres_transactions(session: &mut pgraw::PostgresSession) -> Result<f64, String> {
    let rows = session.simple(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'",
    )?;
    let total = rows.first().and_then(|r| r[0].as_deref()?.parse().ok());
    total.ok_or_else(|| "no count".to_owned())
}

/// `count` says how many requests the server has had since it was last asked; `clear` removes what the ended contender has left.
fn measure(
    bench: &mut Bench,
    store: &Store,
    entries: &[Entry],
    count: &mut dyn FnMut() -> Result<f64, String>,
    clear: &mut dyn FnMut() -> Result<(), String>,
) {
    store.pin(&bench.cores);
    bench.page.heading(4, store.name);
    let mut rows = Vec::new();
    for entry in entries.iter().filter(|e| e.waits && e.missing.is_none()) {
        for wait in ["patient", "tuned"] {
            if wait == "tuned" && !entry.tunes {
                continue;
            }
            match windows(bench, entry, wait, count) {
                Ok(figure) => rows.push(vec![
                    if entry.tunes {
                        format!(
                            "{}, {}",
                            entry.name,
                            if wait == "tuned" {
                                "tuned"
                            } else {
                                "default pace"
                            }
                        )
                    } else {
                        entry.name.to_owned()
                    },
                    figure.show(),
                ]),
                Err(e) => bench.page.trouble(e),
            }
            if let Err(e) = clear() {
                bench.page.trouble(e);
            }
        }
    }
    bench
        .page
        .table(&["contender", "requests/s of 100 waiters"], &rows);
}

fn windows(
    bench: &Bench,
    entry: &Entry,
    wait: &str,
    count: &mut dyn FnMut() -> Result<f64, String>,
) -> Result<Figure, String> {
    let mut running = Running::start(entry)?;
    running.pin(&bench.cores, Place::Apart);
    running.ask(&format!("wait {WAITERS} {wait}"), 0)?;
    std::thread::sleep(bench.plan.wait_settle);
    let mut rates = Vec::new();
    for _ in 0..bench.plan.rounds.max(5) {
        count()?;
        let begun = Instant::now();
        std::thread::sleep(bench.plan.wait_window);
        let spent: Duration = begun.elapsed();
        rates.push(count()? / spent.as_secs_f64());
    }
    Ok(Figure::of(&rates))
}
