//! Floor, verbs and `lock()` in one thread, a cycle of each in turn: what disturbs one disturbs all.

use std::time::{Duration, Instant};

use super::Bench;
use super::callers::{Caller, Contender};
use super::distance::Relay;
use super::pin::Place::{self, Apart, Together};
use super::servers::{Store, Stores, postgres_url};
use super::stats::{Figure, at, difference, ratio, sorted};

/// What a row measures: its name, the store, the address it is called by, and where the client runs.
pub type Way<'a> = (&'a str, &'a Store, &'a str, Place);

pub fn report(bench: &mut Bench, stores: &Stores) -> Result<(), String> {
    bench.page.heading(2, "What the library adds");
    let text = format!(
        "One acquire and one release, one caller, client and server on one core: floor, verbs and `lock()` in one thread, \
         a cycle of each in turn, {} rounds of {} cycles. The floor sends the bytes the library sends, recorded from it, on a blocking \
         socket with one write and one read per call; for SQLite it runs the same statements. The verbs' caller makes an id for every grant, as `lock()` does. Unix sockets, unless the row says TCP; \"0.2 ms \
         each way\" is a relay that keeps every message as long as the network of a data centre would (a tenth of the cycles). Ratios are medians of the rounds' ratios.",
        bench.plan.paired_rounds, bench.plan.paired_cycles
    );
    bench.page.prose(&text);
    let Stores {
        redis,
        postgres_disk: disk,
        postgres_tmpfs: tmpfs,
        sqlite_disk,
        sqlite_tmpfs,
    } = stores;
    let relay = Relay::start(&tmpfs.path, tmpfs.port, Duration::from_micros(200))?;
    let far = relay.url();
    let tcp = postgres_url("127.0.0.1", tmpfs.port);
    let ways: [Way<'_>; 8] = [
        (redis.name, redis, &redis.url, Together),
        (disk.name, disk, &disk.url, Together),
        (tmpfs.name, tmpfs, &tmpfs.url, Together),
        ("Postgres on tmpfs, across cores", tmpfs, &tmpfs.url, Apart),
        ("Postgres on tmpfs, TCP across cores", tmpfs, &tcp, Apart),
        (
            "Postgres on tmpfs, 0.2 ms each way across cores",
            tmpfs,
            &far,
            Apart,
        ),
        (sqlite_disk.name, sqlite_disk, &sqlite_disk.url, Together),
        (sqlite_tmpfs.name, sqlite_tmpfs, &sqlite_tmpfs.url, Together),
    ];
    let rows: Vec<Vec<String>> = ways.iter().filter_map(|way| row(bench, way)).collect();
    bench.page.table(
        &[
            "store",
            "floor µs",
            "verbs µs",
            "lock() + drop µs",
            "verbs ÷ floor",
            "lock() ÷ verbs",
            "lock() − verbs µs",
            "eight trips µs",
        ],
        &rows,
    );
    Ok(())
}

/// Measures one row and judges it.
fn row(bench: &mut Bench, (name, store, url, place): &Way<'_>) -> Option<Vec<String>> {
    let mut kinds = vec!["floor", "verbs", "lock"];
    if name.starts_with("Postgres") {
        kinds.push("eight-trips");
    }
    // Where every trip takes half a millisecond, a tenth of the cycles takes as long.
    let cycles = if name.contains("each way") {
        bench.plan.paired_cycles.div_ceil(10)
    } else {
        bench.plan.paired_cycles
    };
    let measured = bench.at(*place, store, || rounds(bench, &kinds, url, cycles));
    let measured = bench.tried(name, measured)?;
    let [floor, verbs, lock, more @ ..] = &measured[..] else {
        return None;
    };
    let eight = more.first();
    let (over_floor, over_verbs) = (ratio(verbs, floor), ratio(lock, verbs));
    let extra = difference(lock, verbs);
    let limit = if name.starts_with("SQLite") {
        1.15
    } else {
        1.05
    };
    bench.target(
        &format!("{name}: verbs ÷ floor, p50"),
        &format!("≤ {limit}"),
        over_floor,
        over_floor.median <= limit,
    );
    if *name == "Redis" {
        bench.target(
            "Redis: lock() ÷ verbs, p50",
            "≤ 1.05",
            over_verbs,
            over_verbs.median <= 1.05,
        );
    }
    bench.target(
        &format!("{name}: lock() − verbs, µs"),
        "≤ 5 µs or 10 %",
        extra,
        extra.median <= 5.0 || over_verbs.median <= 1.10,
    );
    if let Some(eight) = eight {
        let gain = ratio(eight, verbs);
        bench.target(
            &format!("{name}: eight trips ÷ verbs, p50"),
            "≥ 3",
            gain,
            gain.median >= 3.0,
        );
    }
    Some(vec![
        (*name).to_owned(),
        Figure::of(floor).show(),
        Figure::of(verbs).show(),
        Figure::of(lock).show(),
        over_floor.show(),
        over_verbs.show(),
        extra.show(),
        eight.map_or("–".to_owned(), |e| Figure::of(e).show()),
    ])
}

/// For each contender the median cycle of each round, in microseconds.
fn rounds(
    bench: &Bench,
    kinds: &[&str],
    url: &str,
    cycles: usize,
) -> Result<Vec<Vec<f64>>, String> {
    let mut callers = Vec::new();
    for (n, kind) in kinds.iter().enumerate() {
        let contender = Contender::new(kind, url)?;
        // Every one has a key of its own, and so does its neighbour.
        callers.push(contender.crowd(n + 1)?.pop().ok_or("no caller")?);
    }
    interleave(&mut callers, bench.plan.paired_rounds, cycles)
}

/// A cycle of each caller in turn.
pub fn interleave(
    callers: &mut [Box<dyn Caller>],
    rounds: usize,
    cycles: usize,
) -> Result<Vec<Vec<f64>>, String> {
    in_turn(callers.len(), rounds, cycles, |i| {
        if !callers[i].acquire()? {
            return Err("a lock that no other caller wants was taken".to_owned());
        }
        callers[i].release()
    })
}

/// Does the work of each of the `ways` in turn, and answers the median of each round in microseconds, for each way.
pub fn in_turn(
    ways: usize,
    rounds: usize,
    cycles: usize,
    mut work: impl FnMut(usize) -> Result<(), String>,
) -> Result<Vec<Vec<f64>>, String> {
    let mut medians = vec![Vec::new(); ways];
    for round in 0..=rounds {
        let mut times = vec![Vec::with_capacity(cycles); ways];
        for n in 0..cycles {
            for way in 0..ways {
                let way = (way + n) % ways;
                let begun = Instant::now();
                work(way)?;
                times[way].push(begun.elapsed().as_secs_f64() * 1e6);
            }
        }
        // The first one warms up.
        if round > 0 {
            for (all, times) in medians.iter_mut().zip(times) {
                all.push(at(&sorted(times), 0.5));
            }
        }
    }
    Ok(medians)
}
