//! One cycle, and as many as go through, at 1, 8 and 32 callers with keys of their own.

use super::chart::{self, Bar};
use super::contenders::{Entry, Role, Running};
use super::pin::{self, Place};
use super::stats::{Figure, ratio};
use super::{Bench, Server};

pub const CALLERS: [usize; 3] = [1, 8, 32];

/// What one contender gave at one number of callers, round by round.
#[derive(Clone, Default)]
pub struct Rounds {
    pub p50: Vec<f64>,
    pub p99: Vec<f64>,
    pub rate: Vec<f64>,
}

pub struct Measured {
    pub entry: Entry,
    pub at: Vec<Rounds>,
}

/// Measures and reports; the rows are for the targets.
pub fn measure(
    bench: &mut Bench,
    server: &Server<'_>,
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
        server.pin(&bench.cores, place);
        for contender in &running {
            contender.pin(&bench.cores, place);
        }
        // Short rounds, so that those who are compared are near each other in time; a crowd needs longer ones.
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
                match running[i].ask(if round == 0 { &warm } else { &ask }) {
                    Ok(n) if n.len() == 4 => {
                        // A round may end in a connection's making: the server's new processes are moved too.
                        if round == 0 {
                            server.pin(&bench.cores, place);
                        } else {
                            let rounds = &mut measured[i].at[c];
                            rounds.rate.push(n[0] / n[1] * 1e9);
                            rounds.p50.push(n[2] / 1e3);
                            rounds.p99.push(n[3] / 1e3);
                        }
                    }
                    Ok(n) => bench
                        .page
                        .trouble(format!("{}: answered {n:?}", running[i].entry.name)),
                    Err(e) => {
                        bench.page.trouble(e);
                        dead.push(i);
                    }
                }
            }
        }
        show(bench, server.name, callers, &measured, c);
    }
    running.clear();
    pin::me(&bench.cores.client(Place::Apart));
    measured
}

/// Starts all that can be started and says who is missing.
pub fn start(bench: &mut Bench, entries: &[Entry]) -> Vec<Running> {
    let mut running = Vec::new();
    for entry in entries {
        if let Some(why) = &entry.missing {
            let line = format!("{}: missing here ({why})", entry.name);
            if !bench.page.missing.contains(&line) {
                println!("{line}");
                bench.page.missing.push(line);
            }
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
