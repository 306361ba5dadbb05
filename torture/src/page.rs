//! Writes what all runs in a folder have shown to docs/reliability.md, between two markers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::judge::PROMISES;
use crate::plan::Fault;
use crate::publish::{self, grouped};
use crate::store::Kind;

const BEGIN: &str = "<!-- figures: begin; `make reliability` writes what follows -->";
const END: &str = "<!-- figures: end -->";

pub fn write(figures: &Path, page: &Path) -> Result<(), String> {
    let runs = publish::read(figures, "make torture")?;
    let seconds = |text: &str| publish::sum_of(text, 4, |name| name == "seconds");
    publish::replace(page, (BEGIN, END), &tables(&runs), seconds)?;
    println!("{} runs are on {}", runs.len(), page.display());
    Ok(())
}

fn of(runs: &[Value], kind: Option<Kind>) -> impl Iterator<Item = &Value> + Clone {
    runs.iter()
        .filter(move |run| kind.is_none_or(|kind| run["store"] == kind.name()))
}

fn faults_of(run: &Value, fault: Fault) -> u64 {
    run["faults"][format!("{fault:?}")].as_u64().unwrap_or(0)
}

fn tables(runs: &[Value]) -> String {
    let mut text = commands(runs);
    text.push_str(&faults(runs));
    text.push('\n');
    text.push_str(&promises(runs));
    text
}

/// The columns: each store, and all.
const COLUMNS: [Option<Kind>; 4] = [
    Some(Kind::Redis),
    Some(Kind::Postgres),
    Some(Kind::Sqlite),
    None,
];

fn faults(runs: &[Value]) -> String {
    let mut text = String::from(
        "| what was done | Redis | Postgres | SQLite | in all |\n|---|---:|---:|---:|---:|\n",
    );
    let mut row = |name: &str, value: &dyn Fn(&Value) -> u64| {
        let sums = COLUMNS.map(|kind| of(runs, kind).map(value).sum::<u64>());
        if sums[3] > 0 {
            let _ = writeln!(text, "| {name} | {} |", sums.map(grouped).join(" | "));
        }
    };
    row("seconds", &|run| run["seconds"].as_u64().unwrap_or(0));
    row("contended cycles", &|run| {
        run["contended_cycles"].as_u64().unwrap_or(0)
    });
    row("acquires of unknown outcome", &|run| {
        run["unknown_acquires"].as_u64().unwrap_or(0)
    });
    row("cuts, of all kinds", &|run| {
        let all = Fault::TEXTS.iter().filter(|(fault, _)| fault.is_cut());
        all.map(|(fault, _)| faults_of(run, *fault)).sum()
    });
    for (fault, name) in Fault::TEXTS {
        row(name, &|run| faults_of(run, fault));
    }
    text
}

fn promises(runs: &[Value]) -> String {
    let mut text = String::from(
        "| promise | tried | figure | Redis | Postgres | SQLite | excused | violations |\n|---|---:|---|---:|---:|---:|---:|---:|\n",
    );
    for (n, promise) in PROMISES.iter().enumerate() {
        let sum = |what: &str| {
            let each = runs.iter().map(|run| run["promises"][n][what].as_u64());
            each.map(|value| value.unwrap_or(0)).sum::<u64>()
        };
        let figures = COLUMNS.map(|kind| {
            let worst = of(runs, kind).filter_map(|run| run["promises"][n]["worst"].as_f64());
            let worst = worst.reduce(|old, new| promise.merge.of(old, new));
            let worst = worst.filter(|_| !promise.figure.is_empty());
            worst.map_or("–".to_owned(), |worst| {
                let rounded = (worst * 10.0).round() / 10.0;
                format!("{rounded}")
            })
        });
        let _ = writeln!(
            text,
            "| {}. {} | {} {} | {} | {} | {} | {} |",
            n + 1,
            promise.text,
            grouped(sum("count")),
            promise.counted,
            promise.figure,
            figures[..3].join(" | "),
            excused(runs, n),
            grouped(sum("violations")),
        );
    }
    text
}

/// How often something would be a violation if nothing were taken off, and how much was at most.
fn excused(runs: &[Value], n: usize) -> String {
    let each = || runs.iter().map(|run| &run["promises"][n]);
    let count: u64 = each().filter_map(|p| p["excused"].as_u64()).sum();
    let most = each()
        .filter_map(|p| p["taken_off"].as_f64())
        .fold(0.0, f64::max);
    match count {
        0 => "0".to_owned(),
        _ => format!("{} (up to {most:.0} ms)", grouped(count)),
    }
}

fn commands(runs: &[Value]) -> String {
    let all = |what: &str| {
        let texts: BTreeSet<_> = runs.iter().filter_map(|run| run[what].as_str()).collect();
        texts.into_iter().collect::<Vec<_>>()
    };
    let mut text = format!(
        "{} runs of version {} (commit {}), {}, on {}:\n\n```sh\n",
        runs.len(),
        all("version").join(", "),
        all("commit").join(", "),
        all("date").join(", "),
        all("machine").join("; "),
    );
    for command in all("command") {
        text.push_str(command);
        text.push('\n');
    }
    text.push_str("```\n\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(store: &str, cycles: u64, promises: [(u64, Option<f64>, u64); 13]) -> Value {
        let promises = promises
            .map(|(count, worst, violations)| json!({ "count": count, "worst": worst, "violations": violations, "excused": violations * 2, "taken_off": 12.4 }));
        json!({
            "store": store, "seed": 1, "seconds": 60, "command": format!("make torture STORE={store}"), "date": "2026-01-02",
            "machine": "a machine", "version": "1.2.3", "commit": "abc", "contended_cycles": cycles,
            "faults": { "Reset": 3, "AnswersTorn": 4, "ServerKilled": 2 }, "promises": promises,
        })
    }

    /// Counts are summed; of figures the worst stands on the page, which is the smallest for some and the sum for others.
    #[test]
    fn runs_are_summed_up_between_the_markers_and_the_rest_stays() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut first = [(10, Some(5.0), 0); 13];
        first[0] = (1_000_000, Some(7.5), 1);
        let second = [(20, Some(6.25), 0); 13];
        for (name, run) in [
            ("a.json", run("redis", 1_000, first)),
            ("b.json", run("redis", 234, second)),
            ("c.json", run("sqlite", 1, [(0, None, 0); 13])),
        ] {
            std::fs::write(dir.path().join(name), run.to_string()).expect("figures");
        }
        let page = dir.path().join("page.md");
        std::fs::write(
            &page,
            format!("before\n{BEGIN}\nstale figures\n{END}\nafter\n"),
        )
        .expect("a page");
        write(dir.path(), &page).expect("written");
        let text = std::fs::read_to_string(&page).expect("the page");
        write(dir.path(), &page).expect("written once more");
        assert_eq!(text, std::fs::read_to_string(&page).expect("the page"));
        assert!(text.starts_with("before\n") && text.ends_with("after\n"));
        assert!(!text.contains("stale figures"), "{text}");
        for line in [
            "| contended cycles | 1 234 | 0 | 1 | 1 235 |",
            "| cuts, of all kinds | 14 | 0 | 7 | 21 |",
            "| server killed and started again | 4 | 0 | 2 | 6 |",
            "| 1. no two holders believe at once | 1 000 020 beliefs | ms from a belief that ran out to the next, at least | 6.3 | – | – | 2 (up to 12 ms) | 1 |",
            "| writes of former holders refused | 11.3 | – | – | 0 | 0 |",
            "| ms after its bound came the worst | 6.3 | – | – | 0 | 0 |",
            "3 runs of version 1.2.3 (commit abc), 2026-01-02, on a machine:",
            "make torture STORE=sqlite\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    /// A folder that lacks runs which are on the page must not take them off it.
    #[test]
    fn a_page_that_shows_more_is_left_as_it_is() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["a.json", "b.json"] {
            let run = run("redis", 1, [(0, None, 0); 13]).to_string();
            std::fs::write(dir.path().join(name), run).expect("figures");
        }
        let page = dir.path().join("page.md");
        std::fs::write(&page, format!("{BEGIN}\n{END}\n")).expect("a page");
        write(dir.path(), &page).expect("written");
        let both = std::fs::read_to_string(&page).expect("the page");
        assert!(both.contains("| seconds | 120 |"), "{both}");
        std::fs::remove_file(dir.path().join("b.json")).expect("removed");
        let told = write(dir.path(), &page).expect_err("less than before");
        assert!(
            told.contains("shows 120") && told.contains("only 60"),
            "{told}"
        );
        assert_eq!(both, std::fs::read_to_string(&page).expect("the page"));
    }

    #[test]
    fn a_page_without_markers_and_a_folder_without_figures_are_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let page = dir.path().join("page.md");
        let told = write(dir.path(), &page).expect_err("no figures");
        assert!(told.contains("make torture"), "{told}");
        let figures = run("redis", 1, [(0, None, 0); 13]).to_string();
        std::fs::write(dir.path().join("a.json"), figures).expect("figures");
        std::fs::write(&page, "nothing").expect("a page");
        let told = write(dir.path(), &page).expect_err("no markers");
        assert!(told.contains("lacks the lines"), "{told}");
    }
}
