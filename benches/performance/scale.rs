//! One cycle beside ten thousand and a million locks that others hold.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use syncguard::{Backend, ClientOptions, PostgresBackend, RedisBackend, SqliteBackend};

use super::callers::{Caller, Verbs};
use super::paired::interleave;
use super::pgraw::Session;
use super::pin::{self, Place};
use super::session::{Protocol, Recording};
use super::stats::{Figure, number, ratio};
use super::{Bench, Server};

const HELD_FOR: Duration = Duration::from_secs(24 * 3600);
const BATCH: u64 = 1_000;

/// Fills the store once per count and makes a caller beside each.
pub fn measure(
    bench: &mut Bench,
    server: &Server<'_>,
    fill: &dyn Fn(u64) -> Result<Box<dyn Caller>, String>,
) -> Option<f64> {
    let counts = bench.plan.others;
    let result = (|| {
        let mut callers: Vec<Box<dyn Caller>> =
            counts.iter().map(|n| fill(*n)).collect::<Result<_, _>>()?;
        server.pin(&bench.cores, Place::Together);
        pin::me(&bench.cores.client(Place::Together));
        interleave(
            &mut callers,
            bench.plan.paired_rounds.max(15),
            bench.plan.scale_cycles,
        )
    })();
    pin::me(&bench.cores.client(Place::Apart));
    match result {
        Ok(rounds) => {
            let rows: Vec<Vec<String>> = counts
                .iter()
                .zip(&rounds)
                .map(|(n, r)| {
                    vec![
                        server.name.to_owned(),
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
        Err(e) => {
            bench.page.trouble(format!("scale, {}: {e}", server.name));
            None
        }
    }
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Each count in a database of its own.
pub fn redis(socket: &Path, counts: &[u64], count: u64) -> Result<Box<dyn Caller>, String> {
    let options = ClientOptions::new();
    let database = counts.iter().position(|n| *n == count).unwrap_or(0) + 1;
    let recording = Recording::make(Protocol::Redis, socket, 0, HELD_FOR, &options)?;
    let mut stream = UnixStream::connect(socket).map_err(text)?;
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .map_err(text)?;
    let mut send = |bytes: &[u8], answers: usize| -> Result<(), String> {
        stream.write_all(bytes).map_err(text)?;
        let mut reply = Vec::new();
        let mut buffer = vec![0; 256 * 1024];
        while Protocol::Redis.answers(&reply) < answers {
            let n = stream.read(&mut buffer).map_err(text)?;
            reply.extend_from_slice(&buffer[..n]);
            if n == 0 || reply.starts_with(b"-") {
                return Err(format!("filling: {}", String::from_utf8_lossy(&reply)));
            }
        }
        Ok(())
    };
    let word = database.to_string();
    send(
        format!("*2\r\n$6\r\nSELECT\r\n${}\r\n{word}\r\n", word.len()).as_bytes(),
        1,
    )?;
    for batch in 0..count / BATCH {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let requests: Vec<u8> = numbers.flat_map(|n| recording.acquire_of(n)).collect();
        send(&requests, BATCH as usize)?;
    }
    let url = format!("redis+unix://{}?db={database}", socket.display());
    Ok(Box::new(Verbs::new(
        RedisBackend::open(&url, &options).map_err(text)?,
        "bench",
    )?))
}

/// Each count in a schema of its own.
pub fn postgres(url: &str, socket: &Path, count: u64) -> Result<Box<dyn Caller>, String> {
    let schema = format!("scale_{count}");
    let mut session = Session::open(socket)?;
    session.simple(&format!("CREATE SCHEMA {schema}"))?;
    let options = ClientOptions::new().schema(&schema);
    let backend = PostgresBackend::open(url, &options).map_err(text)?;
    backend.setup_schema(None).map_err(text)?;
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
pub fn sqlite(dir: &Path, count: u64) -> Result<Box<dyn Caller>, String> {
    let path = dir.join(format!("scale-{count}.db"));
    let url = format!("sqlite:{}", path.display());
    let backend = SqliteBackend::open(&url, &ClientOptions::new()).map_err(text)?;
    backend.check(None).map_err(text)?;
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
