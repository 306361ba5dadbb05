//! C and Go in one process, a batch of each in turn: what the Go module adds.

use super::Bench;
use super::contenders::{self, Running};
use super::paired::Way;
use super::pin::Place::{Apart, Together};
use super::servers::{Store, Stores};
use super::stats::{Figure, difference, ratio};

pub fn report(bench: &mut Bench, stores: &Stores) {
    let text = format!(
        "What Go adds: one process makes cycles of C (a loop in C) and of Go, in batches of 20 in turn, {} rounds of {} cycles. The \
         context of the first Go column never ends; that of the second can, and every call watches it.",
        bench.plan.paired_rounds, bench.plan.paired_cycles
    );
    bench.page.prose(&text);
    let mut rows = Vec::new();
    let (redis, disk) = (&stores.redis, &stores.postgres_disk);
    let (tmpfs, sqlite) = (&stores.postgres_tmpfs, &stores.sqlite_tmpfs);
    let ways: [Way<'_>; 5] = [
        (redis.name, redis, &redis.url, Together),
        (disk.name, disk, &disk.url, Together),
        (tmpfs.name, tmpfs, &tmpfs.url, Together),
        ("Postgres on tmpfs, across cores", tmpfs, &tmpfs.url, Apart),
        (sqlite.name, sqlite, &sqlite.url, Together),
    ];
    for (name, store, url, place) in ways {
        let entry = contenders::go(url);
        if bench.lacks(&entry) {
            return;
        }
        let measured = Running::start(&entry).and_then(|contender| {
            contender.pin(&bench.cores, place);
            rounds(bench, contender, store)
        });
        let Some([c, go, ending]) = bench.tried(name, measured) else {
            continue;
        };
        let (extra, part) = (difference(&go, &c), ratio(&go, &c));
        rows.push(vec![
            name.to_owned(),
            Figure::of(&c).show(),
            Figure::of(&go).show(),
            extra.show(),
            part.show(),
            Figure::of(&ending).show(),
            difference(&ending, &c).show(),
        ]);
        bench.target(
            &format!("{name}: Go − C, µs"),
            "≤ 3 µs or 3 %",
            extra,
            extra.median <= 3.0 || part.median <= 1.03,
        );
    }
    bench.page.table(
        &[
            "store",
            "C µs",
            "Go µs",
            "Go − C µs",
            "Go ÷ C",
            "Go, a context that can end µs",
            "− C µs",
        ],
        &rows,
    );
}

/// The medians of each round in microseconds: C, Go, Go with a context that can end.
fn rounds(bench: &Bench, mut contender: Running, store: &Store) -> Result<[Vec<f64>; 3], String> {
    store.pin(&bench.cores);
    let mut medians: [Vec<f64>; 3] = Default::default();
    for round in 0..=bench.plan.paired_rounds {
        let request = format!("beside {}", bench.plan.paired_cycles);
        let answer = contender.ask(&request, medians.len())?;
        if round == 0 {
            // The first one warms up and makes connections, for which the server may have made processes.
            store.pin(&bench.cores);
            continue;
        }
        for (all, ns) in medians.iter_mut().zip(answer) {
            all.push(ns / 1e3);
        }
    }
    Ok(medians)
}
