//! Keeps the figures of a run, and writes those of all runs to docs/failover.md, between two markers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::Options;
use crate::count::Counts;
use crate::load::Fences;
use crate::publish::{self, grouped, machine, today};
use crate::topology::{Kind, Link};

const BEGIN: &str = "<!-- figures: begin; `make drills-page` writes what follows -->";
const END: &str = "<!-- figures: end -->";

/// Writes the figures of a drill, as they are after these rounds.
pub fn keep(out: &Path, kind: Kind, options: &Options, rounds: &[(Link, Counts)]) {
    let list: Vec<Value> = rounds
        .iter()
        .map(|(link, counts)| json!({ "link": link.name(), "counts": counts.to_json() }))
        .collect();
    let figures = json!({
        "drill": kind.name(),
        "command": format!("make drills ROUNDS={} ONLY={}{}", options.rounds, kind.name(), match options.fences {
            Fences::Counter => String::new(),
            other => format!(" FENCES={}", other.name()),
        }),
        "fences": options.fences.name(),
        "silence_ms": options.silence.as_millis() as u64,
        "date": today(),
        "machine": machine(),
        "version": env!("CARGO_PKG_VERSION"),
        "commit": publish::commit(),
        "rounds": list,
    });
    let name = format!("{}-{}", kind.name(), options.fences.name());
    let file = out.join(format!("{name}-{}.json", std::process::id()));
    std::fs::write(file, format!("{figures:#}\n")).expect("the figures are kept");
}

pub fn write(figures: &Path, page: &Path) -> Result<(), String> {
    let runs = publish::read(figures, "make drills")?;
    let rounds = |text: &str| publish::sum_of(text, 2, |_| true);
    publish::replace(page, (BEGIN, END), &table(&runs), rounds)?;
    println!("{} drills are on {}", runs.len(), page.display());
    Ok(())
}

fn table(runs: &[Value]) -> String {
    let all = |what: &str| {
        let texts: BTreeSet<_> = runs.iter().filter_map(|run| run[what].as_str()).collect();
        texts.into_iter().collect::<Vec<_>>()
    };
    let mut text = format!(
        "Version {} (commit {}), {}, on {}:\n\n```sh\n{}\n```\n\n",
        all("version").join(", "),
        all("commit").join(", "),
        all("date").join(", "),
        all("machine").join("; "),
        all("command").join("\n"),
    );
    text.push_str(
        "| drill | link to the replica | rounds | grants acknowledged | locks held at the kill | forgotten by the new primary | \
         rounds that lost any | fences repeated | two holders at once | first grant after the kill, median | worst |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let every = [Fences::Counter, Fences::Clock, Fences::Mixed];
    let every = every.iter().flat_map(|f| Kind::ALL.map(|kind| (*f, kind)));
    for (fences, kind) in every {
        for link in [Link::AsItIs, Link::Silent] {
            // Figures of older runs do not say it: all callers counted.
            let said = |run: &&Value| run["fences"].as_str().unwrap_or("counter") == fences.name();
            let of_kind = runs.iter().filter(|run| run["drill"] == kind.name());
            let rounds: Vec<&Value> = of_kind
                .filter(said)
                .filter_map(|run| run["rounds"].as_array())
                .flatten()
                .filter(|round| round["link"] == link.name())
                .map(|round| &round["counts"])
                .collect();
            if !rounds.is_empty() {
                row(&mut text, kind, link, fences, &rounds);
            }
        }
    }
    text
}

fn row(text: &mut String, kind: Kind, link: Link, fences: Fences, rounds: &[&Value]) {
    let each = |what: &str| -> Vec<u64> {
        let values = rounds.iter().map(|round| round[what].as_u64());
        values.map(Option::unwrap_or_default).collect()
    };
    let sum = |what: &str| grouped(each(what).iter().sum());
    let losses = each("forgotten").into_iter().zip(each("repeated"));
    let lost = losses.filter(|loss| *loss != (0, 0)).count();
    let mut times = each("first_grant_ms");
    times.sort_unstable();
    let seconds = |ms: u64| format!("{:.1} s", ms as f64 / 1000.0);
    let link = match (link, kind) {
        (Link::AsItIs, _) => "as it is",
        (Link::Silent, Kind::Cluster) => "cut before the kill",
        (Link::Silent, _) => "silent before the kill",
    };
    let _ = writeln!(
        text,
        "| {}{} | {link} | {} | {} | {} | {} | {lost} | {} | {} | {} | {} |",
        kind.text(),
        match fences {
            Fences::Counter => "",
            Fences::Clock => ", `fences=clock`",
            Fences::Mixed => ", `fences=clock` but for one caller",
        },
        rounds.len(),
        sum("acknowledged"),
        sum("running"),
        sum("forgotten"),
        sum("repeated"),
        sum("two_holders"),
        seconds(times[times.len() / 2]),
        seconds(times[times.len() - 1]),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_one_kind_and_link_are_one_row() {
        let counts = |forgotten, first_grant_ms| Counts {
            acknowledged: 1_000,
            running: 200,
            forgotten,
            repeated: forgotten,
            two_holders: 1,
            first_grant_ms,
        };
        let run = |rounds: &[(&str, Counts)]| {
            let rounds: Vec<Value> = rounds
                .iter()
                .map(|(link, counts)| json!({ "link": link, "counts": counts.to_json() }))
                .collect();
            json!({ "drill": "sentinel", "command": "make drills", "date": "2026-01-02", "machine": "a machine",
                "version": "1.2.3", "commit": "abc", "rounds": rounds })
        };
        let runs = [
            run(&[
                ("as-it-is", counts(0, 1_000)),
                ("silent", counts(150, 2_000)),
            ]),
            run(&[
                ("as-it-is", counts(3, 4_000)),
                ("as-it-is", counts(0, 1_500)),
            ]),
        ];
        let text = table(&runs);
        for line in [
            "Version 1.2.3 (commit abc), 2026-01-02, on a machine:",
            "| Redis with Sentinel | as it is | 3 | 3 000 | 600 | 3 | 1 | 3 | 3 | 1.5 s | 4.0 s |",
            "| Redis with Sentinel | silent before the kill | 1 | 1 000 | 200 | 150 | 1 | 150 | 1 | 2.0 s | 2.0 s |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("Cluster"));
    }
}
