//! What a gate costs a write: the caller's own write behind the gate and without it, in one thread, one of each in turn.

use std::fmt::Display;

use rusqlite::TransactionBehavior::Immediate;
use syncguard::gate::{postgres, redis, sqlite as file};
use syncguard::{Client, Fence};

use super::Bench;
use super::paired::in_turn;
use super::pgraw::PostgresSession;
use super::pin::Place;
use super::redisraw::RedisSession;
use super::servers::{Store, Stores};
use super::sqlite;
use super::stats::{Figure, difference, ratio};

/// One write: plain, or behind the gate of this resource with this fence. False: refused.
type Write = Box<dyn FnMut(Option<(&str, u64)>) -> Result<bool, String>>;

/// What a row measures: its name, the store, and what makes its writer.
type Gated<'a> = (&'a str, &'a Store, fn(&Store) -> Result<Write, String>);

const VALUE: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
/// The holder that writes many times.
const HELD: (&str, u64) = ("gates-held", 34);
/// A resource that each write comes to with a newer fence.
const HANDED_ON: &str = "gates-handed-on";

pub fn report(bench: &mut Bench, stores: &Stores) {
    let text = format!(
        "What a gate costs a write: the same write on the same connection without the gate, behind it by a holder that has written \
         before, and behind it with a newer fence each time, as the first write of each holder. One caller, client and server on one \
         core, a write of each in turn, {} rounds of {} writes. Postgres: `BEGIN`, an `UPDATE` of one row, `COMMIT`, each a trip, and \
         `syncguard_pass` is a trip more. Redis: a `SET` of {} bytes, and the script of `fenced_set` on the same bare connection; the second row is \
         `fenced_set` of the client beside the bare `SET`. SQLite: an immediate transaction with an `UPDATE` of one row, synchronous.",
        bench.plan.paired_rounds,
        bench.plan.paired_cycles,
        VALUE.len()
    );
    bench.page.heading(2, "Gates");
    bench.page.prose(&text);
    let (disk, tmpfs) = (&stores.postgres_disk, &stores.postgres_tmpfs);
    let ways: [Gated<'_>; 6] = [
        (disk.name, disk, in_postgres),
        (tmpfs.name, tmpfs, in_postgres),
        (stores.redis.name, &stores.redis, in_redis),
        ("Redis, the client's call", &stores.redis, by_the_client),
        (stores.sqlite_disk.name, &stores.sqlite_disk, in_sqlite),
        (stores.sqlite_tmpfs.name, &stores.sqlite_tmpfs, in_sqlite),
    ];
    let rows: Vec<Vec<String>> = ways.iter().filter_map(|way| row(bench, way)).collect();
    bench.page.table(
        &[
            "store",
            "plain write µs",
            "behind the gate µs",
            "− plain µs",
            "÷ plain",
            "with a newer fence µs",
            "− plain µs",
            "÷ plain",
        ],
        &rows,
    );
}

fn row(bench: &mut Bench, (name, store, writer): &Gated<'_>) -> Option<Vec<String>> {
    let measured = bench.at(Place::Together, store, || rounds(bench, writer(store)?));
    let measured = bench.tried(&format!("gates, {name}"), measured)?;
    let [plain, gated @ ..] = &measured[..] else {
        return None;
    };
    let mut row = vec![(*name).to_owned(), Figure::of(plain).show()];
    for gated in gated {
        row.push(Figure::of(gated).show());
        row.push(difference(gated, plain).show());
        row.push(ratio(gated, plain).show());
    }
    Some(row)
}

/// The median write of each round in microseconds: plain, behind the gate, and with a newer fence each time.
fn rounds(bench: &Bench, mut write: Write) -> Result<Vec<Vec<f64>>, String> {
    let mut newest = 0;
    let (rounds, cycles) = (bench.plan.paired_rounds, bench.plan.paired_cycles);
    let measured = in_turn(3, rounds, cycles, |way| {
        let gate = match way {
            0 => None,
            1 => Some(HELD),
            _ => {
                newest += 1;
                Some((HANDED_ON, newest))
            }
        };
        match write(gate)? {
            true => Ok(()),
            false => Err("the newest holder was refused".to_owned()),
        }
    })?;
    // What was measured is a gate: it refuses a former holder.
    for late in [(HELD.0, HELD.1 - 1), (HANDED_ON, newest - 1)] {
        if write(Some(late))? {
            return Err("a former holder was not refused".to_owned());
        }
    }
    Ok(measured)
}

/// Whether it was written, and not refused with the word `stale`.
fn passed<T, E: Display>(result: Result<T, E>, stale: &str) -> Result<bool, String> {
    match result.map_err(text) {
        Ok(_) => Ok(true),
        Err(e) if e.contains(stale) => Ok(false),
        Err(e) => Err(e),
    }
}

fn text(e: impl Display) -> String {
    e.to_string()
}

fn in_postgres(store: &Store) -> Result<Write, String> {
    let client = Client::open(&store.url).map_err(text)?;
    client.setup_fence_gate().map_err(text)?;
    let mut session = PostgresSession::open(&store.path)?;
    session.simple(
        "CREATE TABLE bench_account (id int8 PRIMARY KEY, balance int8); INSERT INTO bench_account VALUES (7, 0)",
    )?;
    Ok(Box::new(move |gate| {
        session.simple("BEGIN")?;
        if let Some((resource, fence)) = gate {
            let answer = session.run(postgres::PASS, &[resource, &fence.to_string()]);
            if !passed(answer, postgres::STALE)? {
                session.simple("ROLLBACK")?;
                return Ok(false);
            }
        }
        let update = "UPDATE bench_account SET balance = balance + 1 WHERE id = $1";
        session.run(update, &["7"])?;
        session.simple("COMMIT")?;
        Ok(true)
    }))
}

fn in_redis(store: &Store) -> Result<Write, String> {
    let mut session = RedisSession::open(&store.path)?;
    let digest = session.load(redis::FENCED_SET)?;
    Ok(Box::new(move |gate| {
        let Some((name, fence)) = gate else {
            return session.call(&["SET", "gates-plain", VALUE]).map(|_| true);
        };
        let (gate, fence) = (redis::gate_key(name), fence.to_string());
        let call = ["EVALSHA", &digest, "2", &gate, name, &fence, VALUE];
        passed(session.call(&call), redis::STALE)
    }))
}

fn by_the_client(store: &Store) -> Result<Write, String> {
    let mut plain = in_redis(store)?;
    // The row before has left its newest fence.
    let gate = redis::gate_key(HANDED_ON);
    RedisSession::open(&store.path)?.call(&["DEL", &gate])?;
    let client = Client::open(&store.url).map_err(text)?;
    Ok(Box::new(move |gate| {
        let Some((name, fence)) = gate else {
            return plain(None);
        };
        let fence = Fence::new(fence).map_err(text)?;
        let outcome = client.fenced_set(name, VALUE.as_bytes(), fence);
        outcome.map(|o| o.is_passed()).map_err(text)
    }))
}

fn in_sqlite(store: &Store) -> Result<Write, String> {
    let mut db = sqlite::connect(&store.path.join("data.db"));
    db.pragma_update(None, "journal_mode", "wal")
        .map_err(text)?;
    db.execute_batch(file::SETUP).map_err(text)?;
    db.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER); INSERT INTO account VALUES (7, 0)",
    )
    .map_err(text)?;
    Ok(Box::new(move |gate| {
        let work = db.transaction_with_behavior(Immediate).map_err(text)?;
        if let Some((resource, fence)) = gate {
            let fence = i64::try_from(fence).map_err(text)?;
            if !passed(work.execute(file::PASS, (resource, fence)), file::STALE)? {
                return Ok(false);
            }
        }
        let update = "UPDATE account SET balance = balance + 1 WHERE id = ?1";
        work.execute(update, [7]).map_err(text)?;
        work.commit().map_err(text)?;
        Ok(true)
    }))
}
