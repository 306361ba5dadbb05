//! One cycle, and as many as go through, at 1, 8 and 32 callers with keys of their own.

use super::Bench;
use super::chart::{self, Bar};
use super::contenders::{self, Entry, Role, Running};
use super::pin::{self, Place};
use super::servers::{Store, Stores};
use super::stats::{Figure, difference, ratio};

const CALLERS: [usize; 3] = [1, 8, 32];

/// What one contender gave at one number of callers, round by round.
#[derive(Clone, Default)]
struct Rounds {
    p50: Vec<f64>,
    p99: Vec<f64>,
    rate: Vec<f64>,
    /// How many its process had after the rounds.
    connections: usize,
}

struct Measured {
    entry: Entry,
    at: Vec<Rounds>,
}

pub fn report(bench: &mut Bench, stores: &Stores) {
    bench.page.heading(2, "Uncontended");
    let text = format!(
        "Acquire and release of keys that no other caller wants. Every contender is a process of its own in its own runtime; {} interleaved \
         rounds of {} ms, for one caller three times as many of a third. Callers are threads (goroutines, promises, tasks) of one process that share one client. Connections are those that the process has after its \
         rounds. Our contenders have a pool as large as the crowd and one, but for \"default pool\", which is 16; on Redis the callers share two \
         connections of it, and the third one listens. Peers have a pool that grows, or one connection for all. Go programs run \
         with GOMAXPROCS={}, the cores of this machine and at least 2; one row shows what 1 costs, which Go takes by itself when it \
         is pinned to one core: a call of C that lasts 20 µs or more may then lose the only processor, for two switches of threads.",
        bench.plan.cycle_rounds,
        bench.plan.cycle_time.as_millis(),
        pin::count().max(2)
    );
    bench.page.prose(&text);
    let (disk, tmpfs) = (&stores.postgres_disk, &stores.postgres_tmpfs);
    let mut on_redis = contenders::redis(&stores.redis);
    on_redis.extend(contenders::go_alone(&on_redis));
    for (store, entries) in [
        (&stores.redis, on_redis),
        (disk, contenders::postgres(disk)),
        (tmpfs, contenders::postgres(tmpfs)),
    ] {
        let rows = measure(bench, store, &entries, &CALLERS);
        throughput_targets(bench, store.name, &rows);
        if store.name == stores.redis.name {
            peer_targets(bench, &rows);
        }
        c_targets(bench, store.name, &rows);
    }
    let sqlite = &stores.sqlite_disk;
    measure(bench, sqlite, &contenders::sqlite(sqlite), &[1]);
}

fn throughput_targets(bench: &mut Bench, server: &str, rows: &[Measured]) {
    let find = |name: &str| rows.iter().find(|m| m.entry.name.starts_with(name));
    if let (Some(floor), Some(verbs)) = (find("floor"), find("syncguard verbs")) {
        for (c, callers) in CALLERS.iter().enumerate().skip(1) {
            let part = ratio(&verbs.at[c].rate, &floor.at[c].rate);
            // On Redis the callers share their trips.
            let least = match (server, callers) {
                ("Redis", 8) => 1.2,
                ("Redis", 32) => 1.6,
                _ => 0.95,
            };
            bench.target(
                &format!("{server}: throughput of verbs ÷ floor, {callers} callers"),
                &format!("≥ {least}"),
                part,
                part.median >= least,
            );
        }
    }
}

/// Where a crowd of this library is beside those that people would use instead.
fn peer_targets(bench: &mut Bench, rows: &[Measured]) {
    let find = |name: &str| rows.iter().find(|m| m.entry.name == name);
    let Some(verbs) = find("syncguard verbs") else {
        return;
    };
    for (c, peer) in [
        (1, "redsync (Go)"),
        (2, "redsync (Go)"),
        (2, "redlock (npm)"),
    ] {
        let Some(peer) = find(peer).filter(|m| !m.at[c].rate.is_empty()) else {
            continue;
        };
        let part = ratio(&verbs.at[c].rate, &peer.at[c].rate);
        let what = format!(
            "Redis: throughput of verbs ÷ {}, {} callers",
            peer.entry.name, CALLERS[c]
        );
        bench.target(&what, "> 1", part, part.median > 1.0);
    }
    let connections = verbs.at[2].connections;
    bench.target_shown(
        "Redis: connections of a client with 32 threads",
        "≤ 3",
        connections.to_string(),
        connections <= 3,
    );
}

/// What the C interface adds to a cycle of one caller.
fn c_targets(bench: &mut Bench, server: &str, rows: &[Measured]) {
    let find = |name: &str| rows.iter().find(|m| m.entry.name == name);
    if let (Some(rust), Some(c)) = (find("syncguard lock()"), find("C syncguard_lock")) {
        let (rust, c) = (&rust.at[0].p50, &c.at[0].p50);
        let (part, more) = (ratio(c, rust), difference(c, rust));
        let met = more.median <= 2.0 || part.median <= 1.02;
        let target = "≤ 2 µs or 2 %";
        bench.target(&format!("{server}: C ÷ lock(), p50"), target, part, met);
        bench.target(&format!("{server}: C − lock(), µs"), target, more, met);
    }
}

/// Measures and shows; the rows are for the targets.
fn measure(
    bench: &mut Bench,
    store: &Store,
    entries: &[Entry],
    callers: &[usize],
) -> Vec<Measured> {
    let mut running = start(bench, entries);
    let mut measured: Vec<Measured> = running
        .iter()
        .map(|r| Measured {
            entry: r.entry.clone(),
            at: vec![Rounds::default(); callers.len()],
        })
        .collect();
    for (c, &callers) in callers.iter().enumerate() {
        let place = if callers == 1 {
            Place::Together
        } else {
            Place::Apart
        };
        store.pin(&bench.cores);
        for contender in &running {
            contender.pin(&bench.cores, place);
        }
        // Short rounds, so that those that are compared are near each other in time; a crowd needs longer ones.
        let parts: usize = if callers == 1 { 3 } else { 1 };
        let time = bench.plan.cycle_time.as_millis() / parts as u128;
        let ask = format!("cycles {callers} {time}");
        let warm = format!("cycles {callers} 10");
        let mut dead = Vec::new();
        for round in 0..=bench.plan.cycle_rounds * parts {
            for i in turns(running.len(), round) {
                if dead.contains(&i) {
                    continue;
                }
                // The first round makes connections and warms up.
                match running[i].ask(if round == 0 { &warm } else { &ask }, 4) {
                    // A round may end in a connection's making: the server's new processes are moved too.
                    Ok(_) if round == 0 => store.pin(&bench.cores),
                    Ok(n) => {
                        let rounds = &mut measured[i].at[c];
                        rounds.rate.push(n[0] / n[1] * 1e9);
                        rounds.p50.push(n[2] / 1e3);
                        rounds.p99.push(n[3] / 1e3);
                    }
                    Err(e) => {
                        bench.page.trouble(e);
                        dead.push(i);
                    }
                }
            }
        }
        for (contender, measured) in running.iter().zip(&mut measured) {
            measured.at[c].connections = contender.connections();
        }
        show(bench, store.name, callers, &measured, c);
    }
    running.clear();
    pin::me(&bench.cores.client(Place::Apart));
    measured
}

/// Starts all that can be started and says which are missing.
pub fn start(bench: &mut Bench, entries: &[Entry]) -> Vec<Running> {
    let mut running = Vec::new();
    for entry in entries {
        if bench.lacks(entry) {
            continue;
        }
        match Running::start(entry) {
            Ok(contender) => {
                bench.versions.insert(entry.name, contender.version.clone());
                running.push(contender);
            }
            Err(e) => bench.page.trouble(e),
        }
    }
    running
}

/// An order that differs from round to round.
pub fn turns(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| (i + round) % count)
}

fn show(bench: &mut Bench, server: &str, callers: usize, measured: &[Measured], c: usize) {
    let floor = measured
        .iter()
        .find(|m| m.entry.role == Role::Floor)
        .map(|m| m.at[c].clone())
        .unwrap_or_default();
    let what = if callers == 1 {
        "1 caller"
    } else {
        &format!("{callers} callers")
    };
    bench.page.heading(4, &format!("{server}, {what}"));
    let rows: Vec<Vec<String>> = measured
        .iter()
        .filter(|m| !m.at[c].rate.is_empty())
        .map(|m| {
            let r = &m.at[c];
            vec![
                m.entry.name.to_owned(),
                Figure::of(&r.p50).show(),
                Figure::of(&r.p99).show(),
                Figure::of(&r.rate).show(),
                ratio(&r.p50, &floor.p50).show(),
                ratio(&r.rate, &floor.rate).show(),
                r.connections.to_string(),
                m.entry.lacks.to_owned(),
            ]
        })
        .collect();
    bench.page.table(
        &[
            "contender",
            "p50 µs",
            "p99 µs",
            "cycles/s",
            "p50 ÷ floor",
            "cycles/s ÷ floor",
            "connections",
            "does not do",
        ],
        &rows,
    );
    let bar = |values: &[f64], m: &Measured| Bar {
        label: m.entry.name.to_owned(),
        role: m.entry.role,
        figure: Figure::of(values),
    };
    let slug: String = server
        .to_lowercase()
        .chars()
        .filter_map(|ch| match ch {
            'a'..='z' | '0'..='9' => Some(ch),
            ' ' => Some('-'),
            _ => None,
        })
        .collect();
    let title;
    let (bars, unit): (Vec<Bar>, &str) = if callers == 1 {
        title = format!("{server}: one uncontended cycle (p50)");
        (
            measured.iter().map(|m| bar(&m.at[c].p50, m)).collect(),
            "µs, less is better",
        )
    } else {
        title = format!("{server}: throughput of {callers} callers");
        (
            measured.iter().map(|m| bar(&m.at[c].rate, m)).collect(),
            "cycles per second, more is better",
        )
    };
    let svg = chart::bars(&title, unit, &bars, false);
    bench.page.chart(&format!("{slug}-{callers}"), &title, svg);
}
