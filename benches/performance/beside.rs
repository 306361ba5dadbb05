//! C and Go in one process, a batch of each in turn: what the Go module adds.

use super::contenders::{self, Running};
use super::pin::Place;
use super::stats::{Figure, ratio};
use super::{Bench, Server};

/// A store: what it is called, its server, its address, and where the client runs.
pub type Store<'a> = (&'a str, &'a Server<'a>, String, Place);

pub fn report(bench: &mut Bench, stores: &[Store<'_>]) {
    let text = format!(
        "What Go adds: one process makes cycles of C (a loop in C) and of Go, in batches of 20 in turn, {} rounds of {} cycles. The \
         context of the first Go column never ends; that of the second can, and every call watches it.",
        bench.plan.paired_rounds, bench.plan.paired_cycles
    );
    bench.page.prose(&text);
    let mut rows = Vec::new();
    for (name, server, url, place) in stores {
        let entry = contenders::go(url);
        if let Some(why) = &entry.missing {
            bench
                .page
                .missing
                .push(format!("{}: missing here ({why})", entry.name));
            return;
        }
        let measured = Running::start(&entry).and_then(|contender| {
            contender.pin(&bench.cores, *place);
            server.pin(&bench.cores, *place);
            rounds(bench, contender, server, *place)
        });
        let Some([c, go, ending]) = bench.tried(name, measured) else {
            continue;
        };
        let more =
            |of: &[f64]| Figure::of(&of.iter().zip(&c).map(|(a, b)| a - b).collect::<Vec<_>>());
        let (extra, part) = (more(&go), ratio(&go, &c));
        rows.push(vec![
            (*name).to_owned(),
            Figure::of(&c).show(),
            Figure::of(&go).show(),
            extra.show(),
            part.show(),
            Figure::of(&ending).show(),
            more(&ending).show(),
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
fn rounds(
    bench: &Bench,
    mut contender: Running,
    server: &Server<'_>,
    place: Place,
) -> Result<[Vec<f64>; 3], String> {
    let mut medians: [Vec<f64>; 3] = Default::default();
    for round in 0..=bench.plan.paired_rounds {
        let answer = contender.ask(&format!("beside {}", bench.plan.paired_cycles))?;
        if answer.len() != medians.len() {
            return Err(format!("answered {answer:?}"));
        }
        if round == 0 {
            // The first one warms up and makes connections, for which the server may have made processes.
            server.pin(&bench.cores, place);
            continue;
        }
        for (all, ns) in medians.iter_mut().zip(answer) {
            all.push(ns / 1e3);
        }
    }
    Ok(medians)
}
