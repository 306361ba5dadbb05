//! One key for a long time: does its table get slower? A machine does too, so the old table is measured beside a new one.

use std::time::Instant;

use syncguard::{Client, ClientOptions};

use super::Bench;
use super::callers::{Caller, Verbs};
use super::pgraw::PostgresSession;
use super::pin::Place;
use super::servers::{Store, Stores};
use super::stats::{Figure, number, ratio};

/// Blocks of the old and the new table, in turn.
const BLOCKS: usize = 21;

/// Cycles per second.
struct Rates {
    first: f64,
    last: f64,
    /// Of each block, after the long run.
    old: Vec<f64>,
    new: Vec<f64>,
}

pub fn report(bench: &mut Bench, stores: &Stores) {
    let store = &stores.postgres_tmpfs;
    let (cycles, edge) = bench.plan.long_run;
    bench.page.heading(2, "One key for a long time");
    let result = bench.at(Place::Together, store, || run(store, cycles, edge));
    let Some(rates) = bench.tried("the long run", result) else {
        return;
    };
    let (old, new) = (Figure::of(&rates.old), Figure::of(&rates.new));
    let text = format!(
        "{} cycles on one key, {}: the first {} at {} per second, the last at {}. Then in {BLOCKS} blocks of {} cycles, in turn with a table \
         that is new: the old one at {}, the new one at {}.",
        number(cycles as f64),
        store.name,
        number(edge as f64),
        number(rates.first),
        number(rates.last),
        number((edge / BLOCKS) as f64),
        old.show(),
        new.show(),
    );
    bench.page.prose(&text);
    let paired = ratio(&rates.old, &rates.new);
    bench.target(
        &format!(
            "Postgres: a table after {} cycles on one key ÷ a new one, in turn",
            number(cycles as f64)
        ),
        "≥ 0.8",
        paired,
        paired.median >= 0.8,
    );
    let raw = rates.last / rates.first;
    bench.target(
        &format!(
            "Postgres: last {} of them ÷ first, the machine's changes included",
            number(edge as f64)
        ),
        "≥ 0.8",
        Figure::of(&[raw]),
        raw >= 0.8,
    );
}

fn run(store: &Store, cycles: usize, edge: usize) -> Result<Rates, String> {
    let rate = |caller: &mut Verbs<Client>, n: usize| -> Result<f64, String> {
        let begun = Instant::now();
        for _ in 0..n {
            caller.acquire()?;
            caller.release()?;
        }
        Ok(n as f64 / begun.elapsed().as_secs_f64())
    };
    let mut old = table(store, "long_old")?;
    rate(&mut old, edge / 10)?;
    let first = rate(&mut old, edge)?;
    rate(&mut old, cycles.saturating_sub(2 * edge))?;
    let last = rate(&mut old, edge)?;
    let mut new = table(store, "long_new")?;
    rate(&mut new, edge / 10)?;
    let (mut olds, mut news) = (Vec::new(), Vec::new());
    for block in 0..BLOCKS {
        // Each comes first every other time.
        if block % 2 == 0 {
            olds.push(rate(&mut old, edge / BLOCKS)?);
            news.push(rate(&mut new, edge / BLOCKS)?);
        } else {
            news.push(rate(&mut new, edge / BLOCKS)?);
            olds.push(rate(&mut old, edge / BLOCKS)?);
        }
    }
    Ok(Rates {
        first,
        last,
        old: olds,
        new: news,
    })
}

/// A caller with tables of its own.
fn table(store: &Store, schema: &str) -> Result<Verbs<Client>, String> {
    let text = |e: syncguard::LockError| e.to_string();
    PostgresSession::open(&store.path)?.simple(&format!("CREATE SCHEMA {schema}"))?;
    let options = ClientOptions::new().schema(schema);
    let client = Client::open_with(&store.url, &options).map_err(text)?;
    client.setup_schema().map_err(text)?;
    Verbs::new(client, "bench-long")
}
