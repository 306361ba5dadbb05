//! Eight callers, one key, held for a millisecond; and eight that come at once.

use super::Bench;
use super::chart::{self, Bar};
use super::contenders::{self, Entry};
use super::pin::Place;
use super::servers::{Store, Stores};
use super::stats::Figure;
use super::uncontended::{start, turns};

const CALLERS: usize = 8;
const HOLD_US: u64 = 1_000;

pub fn report(bench: &mut Bench, stores: &Stores) {
    bench.page.heading(2, "Contended handoff");
    let text = format!(
        "Eight callers want one key, and each holds it for 1 ms; ours share one client unless the row says otherwise, peers have what each of \
         their callers needs; {} interleaved rounds of {} ms. A handoff runs from \
         the moment a release is begun to the moment another caller knows of its grant; the caller that has released comes back after that. In \
         the greedy loop everybody comes back at once: grants per caller of one round show which caller starves. A burst is eight callers that \
         come together, on connections that were used before, and take the lock once each. \"Default\" is what each library does if nothing is said; \"tuned\" is a try every \
         2 ms without end.",
        bench.plan.rounds,
        bench.plan.contend_time.as_millis()
    );
    bench.page.prose(&text);
    let (redis, postgres) = (&stores.redis, &stores.postgres_tmpfs);
    for (store, mut entries) in [
        (redis, contenders::redis(redis)),
        (postgres, contenders::postgres(postgres)),
    ] {
        entries.push(contenders::apart(&store.url));
        measure(bench, store, entries);
    }
    let sqlite = &stores.sqlite_disk;
    measure(bench, sqlite, contenders::sqlite(sqlite));
}

fn measure(bench: &mut Bench, store: &Store, mut entries: Vec<Entry>) {
    entries.retain(|e| e.waits);
    let mut running = start(bench, &entries);
    store.pin(&bench.cores);
    // One line per contender and way to wait.
    let lines: Vec<(usize, &str)> = running
        .iter()
        .enumerate()
        .flat_map(|(i, r)| {
            let tuned = r.entry.tunes.then_some((i, "tuned"));
            [(i, "default")].into_iter().chain(tuned)
        })
        .collect();
    let mut loops: Vec<Vec<Vec<f64>>> = vec![Vec::new(); lines.len()];
    let mut bursts = loops.clone();
    let mut polite = loops.clone();
    for round in 0..bench.plan.rounds {
        for n in turns(lines.len(), round) {
            let (i, wait) = lines[n];
            running[i].pin(&bench.cores, Place::Apart);
            let time = bench.plan.contend_time.as_millis();
            let asked = [
                (
                    &mut polite,
                    format!("handoff {CALLERS} {HOLD_US} {time} {wait}"),
                    8,
                ),
                (
                    &mut loops,
                    format!("contend {CALLERS} {HOLD_US} {time} {wait}"),
                    8,
                ),
                (&mut bursts, format!("burst {CALLERS} {HOLD_US} {wait}"), 2),
            ];
            for (into, request, numbers) in asked {
                match running[i].ask(&request, numbers) {
                    Ok(answer) => into[n].push(answer),
                    Err(e) => bench.page.trouble(e),
                }
            }
        }
    }
    bench.page.heading(4, store.name);
    let mut bars = Vec::new();
    let mut rows = Vec::new();
    for (n, (i, wait)) in lines.iter().enumerate() {
        let entry = &running[*i].entry;
        let figure = |of: &dyn Fn(&Vec<f64>) -> f64, all: &[Vec<f64>]| {
            let values: Vec<f64> = all.iter().map(of).filter(|v| v.is_finite()).collect();
            Figure::of(&values)
        };
        let looped = &loops[n];
        let label = if entry.tunes {
            format!("{}, {wait}", entry.name)
        } else {
            entry.name.to_owned()
        };
        let drained = figure(&|b| b[0] / 1e6, &bursts[n]);
        let show = |f: Figure| {
            if f.median.is_finite() {
                f.show()
            } else {
                "–".to_owned()
            }
        };
        if entry.name == "syncguard lock()" && *wait == "default" {
            let of = |what: &str| format!("{}: {what}", store.name);
            let burst = if store.name == "Redis" { 15.0 } else { 20.0 };
            let (p50, p99) = (
                figure(&|l| l[3] / 1e6, &polite[n]),
                figure(&|l| l[4] / 1e6, &polite[n]),
            );
            let spread = figure(&|l| l[6] / l[5], looped);
            for (what, figure, limit) in [
                ("burst of 8 drained, ms", drained, burst),
                ("handoff p50, ms", p50, 0.5),
                ("handoff p99, ms", p99, 3.0),
                ("greedy: most ÷ fewest per caller", spread, 2.0),
            ] {
                // Nothing was asked of SQLite.
                if store.has_server() {
                    let met = figure.median <= limit;
                    bench.target(&of(what), &format!("≤ {limit}"), figure, met);
                }
            }
        }
        rows.push(vec![
            label.clone(),
            show(figure(&|l| l[0] / l[1] * 1e9, &polite[n])),
            show(figure(&|l| l[3] / 1e6, &polite[n])),
            show(figure(&|l| l[4] / 1e6, &polite[n])),
            show(drained),
            show(figure(&|l| l[0] / l[1] * 1e9, looped)),
            show(figure(&|l| l[5], looped)),
            show(figure(&|l| l[6], looped)),
            show(figure(&|l| l[7], looped)),
        ]);
        bars.push(Bar {
            label,
            role: entry.role,
            figure: figure(&|l| l[3] / 1e6, &polite[n]),
        });
    }
    bench.page.table(
        &[
            "contender",
            "grants/s",
            "handoff p50 ms",
            "handoff p99 ms",
            "burst of 8 drained, ms",
            "greedy: grants/s",
            "fewest per caller",
            "most per caller",
            "gave up",
        ],
        &rows,
    );
    let title = format!(
        "{}: from one's release to another's grant (p50)",
        store.name
    );
    let svg = chart::bars(&title, "ms, less is better", &bars, true);
    bench.page.chart(
        &format!(
            "{}-handoff",
            store.name.split(' ').next().unwrap_or("x").to_lowercase()
        ),
        &title,
        svg,
    );
}
