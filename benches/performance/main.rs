//! `make bench`: what a lock costs here, what it costs with no library, and what others cost. Prints, and writes
//! docs/performance.md with its charts. `QUICK=1` runs all of it in small, for its exit status; the page then goes to
//! target/bench. `BENCH_ONLY=paired,scale` runs some sections only. Fails if a contender errs, never because of a time.

mod beside;
mod byhand;
mod callers;
mod chart;
mod contenders;
mod distance;
mod gates;
mod handoff;
mod longrun;
mod machine;
mod memory;
mod paired;
mod pgraw;
mod pin;
mod plan;
mod protocol;
mod redisraw;
mod report;
mod scale;
mod servers;
mod session;
mod sqlite;
mod stats;
mod telemetry;
mod uncontended;
mod untold;
mod waiting;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use callers::Contender;
use contenders::Entry;
use pin::{Cores, Place};
use plan::Plan;
use servers::{Store, Stores};
use stats::Figure;
use syncguard::Client;

/// What the sections share.
pub struct Bench {
    plan: Plan,
    cores: Cores,
    page: report::Page,
    versions: BTreeMap<&'static str, String>,
    targets: Vec<Vec<String>>,
    only: Option<Vec<String>>,
}

impl Bench {
    fn wants(&self, section: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|all| all.iter().any(|s| s == section))
    }

    fn target(&mut self, what: &str, target: &str, measured: Figure, met: bool) {
        self.target_shown(what, target, measured.show(), met);
    }

    fn target_shown(&mut self, what: &str, target: &str, measured: String, met: bool) {
        self.targets.push(vec![
            what.to_owned(),
            target.to_owned(),
            measured,
            if met { "met" } else { "missed" }.to_owned(),
        ]);
    }

    fn tried<T>(&mut self, what: &str, result: Result<T, String>) -> Option<T> {
        result
            .map_err(|e| self.page.trouble(format!("{what}: {e}")))
            .ok()
    }

    /// Whether this one cannot be measured here; the page then says why.
    fn lacks(&mut self, entry: &Entry) -> bool {
        let Some(why) = &entry.missing else {
            return false;
        };
        let line = format!("{}: missing here ({why})", entry.name);
        if !self.page.missing.contains(&line) {
            println!("{line}");
            self.page.missing.push(line);
        }
        true
    }

    /// Measures in this thread, which is where clients are to be meanwhile; the store's server is moved to its own core.
    fn at<T>(&self, place: Place, store: &Store, measure: impl FnOnce() -> T) -> T {
        store.pin(&self.cores);
        pin::me(&self.cores.client(place));
        let measured = measure();
        pin::me(&self.cores.client(Place::Apart));
        measured
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match &words[..] {
        ["serve", kind, ..] => {
            servers::serve(kind, &args[2..]);
            return ExitCode::SUCCESS;
        }
        ["worker", kind, url] => {
            worker::run(kind, url);
            return ExitCode::SUCCESS;
        }
        ["loop", kind, url, cycles] => return profile(kind, url, cycles),
        _ => {}
    }
    let begun = Instant::now();
    let mut bench = Bench {
        plan: Plan::new(plan::flag("QUICK")),
        cores: Cores::allowed(),
        page: report::Page::default(),
        versions: BTreeMap::new(),
        targets: Vec::new(),
        only: std::env::var("BENCH_ONLY")
            .ok()
            .map(|v| v.split(',').map(str::to_owned).collect()),
    };
    if let Err(e) = run(&mut bench) {
        bench.page.trouble(e);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let whole = !bench.plan.quick && bench.only.is_none();
    let folder = root.join(if whole { "docs" } else { "target/bench" });
    if let Err(e) = bench.page.write(&folder) {
        bench.page.trouble(e.to_string());
    }
    println!(
        "\nwritten to {} after {:.0} s",
        folder.join("performance.md").display(),
        begun.elapsed().as_secs_f64()
    );
    for line in &bench.page.missing {
        println!("not measured: {line}");
    }
    for line in &bench.page.troubles {
        println!("trouble: {line}");
    }
    if bench.page.troubles.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run(bench: &mut Bench) -> Result<(), String> {
    let stores = Stores::start()?;
    head(bench);
    machine::report(bench, &stores);
    if bench.wants("paired") {
        paired::report(bench, &stores)?;
        untold::report(bench, &stores);
        beside::report(bench, &stores);
    }
    if bench.wants("telemetry") {
        telemetry::report(bench);
    }
    if bench.wants("gates") {
        gates::report(bench, &stores);
    }
    if bench.wants("cycles") {
        uncontended::report(bench, &stores);
    }
    if bench.wants("handoff") {
        handoff::report(bench, &stores);
    }
    if bench.wants("waiting") {
        waiting::report(bench, &stores)?;
    }
    if bench.wants("scale") {
        scale::report(bench, &stores);
    }
    if bench.wants("longrun") {
        longrun::report(bench, &stores);
    }
    if bench.wants("memory") {
        memory::report(bench, &stores);
    }
    tail(bench);
    Ok(())
}

fn head(bench: &mut Bench) {
    bench.page.heading(1, "Performance");
    let mut text = "Written by `make bench`, which starts the servers it measures; the section \"Where the time goes\" is written by hand, and \
                    so is what stands in italics; both say when and at which commit. Every figure is the median of interleaved rounds with its quartiles in brackets; ratios to the floor are medians of the \
                    rounds' ratios. A cycle is one acquire and one release."
        .to_owned();
    if bench.plan.quick {
        text.push_str(
            "\n\n**A quick run: it shows that everything works, and its figures mean nothing.**",
        );
    }
    bench.page.prose(&text);
}

fn tail(bench: &mut Bench) {
    bench.page.heading(2, "Targets");
    let rows = std::mem::take(&mut bench.targets);
    bench.page.table(&["what", "target", "measured", ""], &rows);
    bench.page.heading(2, "Contenders");
    let rows: Vec<Vec<String>> = bench
        .versions
        .iter()
        .map(|(n, v)| vec![(*n).to_owned(), v.clone()])
        .collect();
    bench.page.table(&["contender", "version"], &rows);
    for line in bench.page.missing.clone() {
        bench.page.prose(&format!("- {line}"));
    }
    let findings = include_str!("findings.md");
    if !findings.trim().is_empty() {
        bench.page.heading(2, "Where the time goes");
        bench.page.prose(findings.trim());
    }
}

/// A plain loop of one contender, for a profiler.
fn profile(kind: &str, url: &str, cycles: &str) -> ExitCode {
    let result = Client::open(url)
        .and_then(|c| c.setup_schema())
        .map_err(|e| e.to_string())
        .and_then(|()| Contender::new(kind, url))
        .and_then(|c| c.crowd(1))
        .and_then(|mut crowd| {
            for _ in 0..cycles.parse().unwrap_or(0) {
                crowd[0].acquire()?;
                crowd[0].release()?;
            }
            Ok(())
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
