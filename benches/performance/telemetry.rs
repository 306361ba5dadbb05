//! What telemetry costs a lock and a release: off, compiled in as the feature `tracing` without a subscriber, and told to `on_event`.
//!
//! In the memory store, where nothing else is in the way. The program is `benches/instructions.rs`, built twice by cargo: with the feature
//! `tracing` and without it. Each round runs it in each way.

use std::path::PathBuf;
use std::process::Command;

use super::Bench;
use super::stats::{Figure, ratio};

/// One way of running the program: what the table calls it, whether `tracing` is compiled in, and its second argument.
const WAYS: [(&str, bool, &str); 4] = [
    ("off", false, "off"),
    ("off, once more", false, "off"),
    ("feature `tracing`, no subscriber", true, "off"),
    ("`on_event` is set", false, "hook"),
];

pub fn report(bench: &mut Bench) {
    let cycles = bench.plan.telemetry_cycles;
    let text = format!(
        "What telemetry costs a lock and a release in the memory store, in one thread: {} rounds of {cycles} cycles, each of them in every way. \
         The second row is the first one again, and shows what the method cannot tell apart. With `on_event` the time holds the delivery of \
         all three events of a cycle. `make instructions` counts instead of timing, where valgrind is installed.",
        bench.plan.paired_rounds
    );
    bench.page.heading(2, "Telemetry");
    bench.page.prose(&text);
    let measured = rounds(bench, cycles);
    let Some(measured) = bench.tried("telemetry", measured) else {
        return;
    };
    let off = &measured[0];
    let rows: Vec<Vec<String>> = WAYS
        .iter()
        .zip(&measured)
        .map(|((name, ..), ns)| {
            let micros: Vec<f64> = ns.iter().map(|ns| ns / 1000.0).collect();
            vec![
                (*name).to_owned(),
                Figure::of(&micros).show(),
                ratio(ns, off).show3(),
            ]
        })
        .collect();
    bench.page.table(&["telemetry", "cycle µs", "÷ off"], &rows);
    let compiled_in = ratio(&measured[2], off);
    bench.target_shown(
        "telemetry: cycle with the feature tracing and no subscriber ÷ off, p50",
        "≤ 1.1",
        compiled_in.show3(),
        compiled_in.median <= 1.1,
    );
}

/// The nanoseconds of a cycle in each round, for each way.
fn rounds(bench: &Bench, cycles: u32) -> Result<[Vec<f64>; 4], String> {
    let programs = [build(bench, "testkit")?, build(bench, "testkit,tracing")?];
    let mut measured = [const { Vec::new() }; 4];
    for round in 0..bench.plan.paired_rounds {
        for step in 0..WAYS.len() {
            // Another one begins each round, so that none is always behind the same one.
            let way = (round + step) % WAYS.len();
            let (_, tracing, hook) = WAYS[way];
            let output = Command::new(&programs[usize::from(tracing)])
                .args([cycles.to_string().as_str(), hook])
                .output()
                .map_err(|e| e.to_string())?;
            let text = String::from_utf8_lossy(&output.stdout);
            let ns = text.trim().parse::<f64>();
            match ns {
                Ok(ns) if output.status.success() => measured[way].push(ns),
                _ => {
                    let trouble = String::from_utf8_lossy(&output.stderr);
                    return Err(format!("instructions {cycles} {hook}: {text}{trouble}"));
                }
            }
        }
    }
    Ok(measured)
}

/// Builds the program with these features alone, in the profile of this bench.
fn build(bench: &Bench, features: &str) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let profile = if bench.plan.quick { "dev" } else { "bench" };
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["bench", "--quiet", "--no-run", "--bench", "instructions"])
        .args(["--profile", profile, "--no-default-features"])
        .args(["--features", features, "--message-format=json"])
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.split("\"executable\":\"").skip(1);
    let paths = found.filter_map(|rest| rest.split('"').next());
    let program = paths.filter(|path| path.contains("instructions")).last();
    program.map(PathBuf::from).ok_or_else(|| {
        let trouble = String::from_utf8_lossy(&output.stderr);
        format!("cargo built no program with the features {features}: {trouble}")
    })
}
