//! One cycle beside ten thousand and a million locks that others hold.

use std::path::Path;
use std::time::Duration;

use syncguard::{Backend, Call, ClientOptions, PostgresBackend, RedisBackend, SqliteBackend};

use super::callers::{Caller, Verbs};
use super::paired::interleave;
use super::pin::Place;
use super::protocol::Protocol;
use super::servers::{Store, Stores};
use super::session::Recording;
use super::stats::{Figure, number, ratio};
use super::{Bench, pgraw, redisraw};

const HELD_FOR: Duration = Duration::from_secs(24 * 3600);
const BATCH: u64 = 1_000;

pub fn report(bench: &mut Bench, stores: &Stores) {
    bench.page.heading(2, "Scale");
    bench.page.prose(
        "One cycle of the verbs with that many other locks held, one caller, interleaved rounds.",
    );
    let counts = bench.plan.others;
    let (on_redis, on_postgres) = (&stores.redis, &stores.postgres_tmpfs);
    measure(bench, on_redis, &|n| redis(&on_redis.path, counts, n));
    let grown = measure(bench, on_postgres, &|n| postgres(on_postgres, n));
    if let (Some(grown), Some(most)) = (grown, counts.last()) {
        bench.target(
            &format!(
                "Postgres: cycle beside {} other locks ÷ none",
                number(*most as f64)
            ),
            "≤ 1.3",
            Figure::of(&[grown]),
            grown <= 1.3,
        );
    }
    let on_sqlite = &stores.sqlite_tmpfs;
    measure(bench, on_sqlite, &|n| sqlite(&on_sqlite.path, n));
}

/// Fills the store once per count and makes a caller beside each.
fn measure(
    bench: &mut Bench,
    store: &Store,
    fill: &dyn Fn(u64) -> Result<Box<dyn Caller>, String>,
) -> Option<f64> {
    let counts = bench.plan.others;
    let result = (|| {
        let mut callers: Vec<Box<dyn Caller>> =
            counts.iter().map(|n| fill(*n)).collect::<Result<_, _>>()?;
        let rounds = bench.plan.paired_rounds.max(15);
        bench.at(Place::Together, store, || {
            interleave(&mut callers, rounds, bench.plan.scale_cycles)
        })
    })();
    let rounds = bench.tried(&format!("scale, {}", store.name), result)?;
    let rows: Vec<Vec<String>> = counts
        .iter()
        .zip(&rounds)
        .map(|(n, r)| {
            vec![
                store.name.to_owned(),
                number(*n as f64),
                Figure::of(r).show(),
                ratio(r, &rounds[0]).show(),
            ]
        })
        .collect();
    bench
        .page
        .table(&["store", "other locks held", "p50 µs", "÷ none"], &rows);
    rounds.last().map(|r| ratio(r, &rounds[0]).median)
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Each count in a database of its own.
fn redis(socket: &Path, counts: &[u64], count: u64) -> Result<Box<dyn Caller>, String> {
    let database = counts.iter().position(|n| *n == count).unwrap_or(0) + 1;
    let recording = Recording::make(Protocol::Redis, socket, 0, HELD_FOR)?;
    let mut session = redisraw::RedisSession::open(socket)?;
    session.call(&["SELECT", &database.to_string()])?;
    for batch in 0..count / BATCH {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let requests: Vec<u8> = numbers.flat_map(|n| recording.acquire_of(n)).collect();
        session.send(&requests, BATCH as usize)?;
    }
    let url = format!("redis+unix://{}?db={database}", socket.display());
    Ok(Box::new(Verbs::new(
        RedisBackend::open(&url, &ClientOptions::new()).map_err(text)?,
        "bench",
    )?))
}

/// Each count in a schema of its own.
fn postgres(store: &Store, count: u64) -> Result<Box<dyn Caller>, String> {
    let schema = format!("scale_{count}");
    let mut session = pgraw::PostgresSession::open(&store.path)?;
    session.simple(&format!("CREATE SCHEMA {schema}"))?;
    let options = ClientOptions::new().schema(&schema);
    let backend = PostgresBackend::open(&store.url, &options).map_err(text)?;
    backend.setup_schema(&Call::new()).map_err(text)?;
    if count > 0 {
        session.simple(&format!(
            "INSERT INTO {schema}.syncguard_fence_counters (fence_key, fence, key_debug) \
             SELECT 'fence:other-' || n, 1, 'other-' || n FROM generate_series(1, {count}) n; \
             INSERT INTO {schema}.syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) \
             SELECT 'other-' || n, lpad(n::text, 22, '0'), (extract(epoch FROM now()) * 1000)::bigint + 86400000, \
             (extract(epoch FROM now()) * 1000)::bigint, '000000000000001', 'other-' || n FROM generate_series(1, {count}) n"
        ))?;
        session.simple("CHECKPOINT")?;
    }
    Ok(Box::new(Verbs::new(backend, "bench")?))
}

/// Each count in a file of its own.
fn sqlite(dir: &Path, count: u64) -> Result<Box<dyn Caller>, String> {
    let path = dir.join(format!("scale-{count}.db"));
    let url = format!("sqlite:{}", path.display());
    let backend = SqliteBackend::open(&url, &ClientOptions::new()).map_err(text)?;
    backend.check(&Call::new()).map_err(text)?;
    if count > 0 {
        let raw = super::sqlite::connect(&path);
        raw.execute_batch(&format!(
            "BEGIN IMMEDIATE; \
             WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count}) \
             INSERT INTO syncguard_fence_counters (fence_key, fence) SELECT 'fence:other-' || n, 1 FROM c; \
             WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count}) \
             INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, boot_id, expires_boot_ms) \
             SELECT 'other-' || n, printf('%022d', n), 4000000000000, 1700000000000, 1, 'other-' || n, 'other', 4000000000000 FROM c; \
             COMMIT"
        ))
        .map_err(text)?;
    }
    Ok(Box::new(Verbs::new(backend, "bench")?))
}
