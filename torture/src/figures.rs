//! Prints what was found, and keeps it: a file of JSON for each run, and the evidence of a round with violations.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use crate::Options;
use crate::judge::{PROMISES, Verdict};
use crate::publish::{self, machine, today};
use crate::round::Evidence;
use crate::store::Kind;

/// How many violations of one promise are shown.
const SHOWN: usize = 5;

pub fn print(verdict: &Verdict) {
    let mut faults: Vec<String> = verdict
        .faults
        .iter()
        .map(|(fault, n)| format!("{fault:?} {n}"))
        .collect();
    faults.sort();
    println!("  faults: {}", faults.join(", "));
    println!("  contended cycles: {}", verdict.contended);
    println!("  acquires of unknown outcome: {}", verdict.unknown);
    for (n, (promise, finding)) in PROMISES.iter().zip(&verdict.findings).enumerate() {
        let mut line = format!(
            "  ({}) {}: {} {}",
            n + 1,
            promise.text,
            finding.count,
            promise.counted
        );
        if let Some(worst) = finding.worst.filter(|_| !promise.figure.is_empty()) {
            let _ = write!(line, ", {worst:.1} {}", promise.figure);
            if !finding.by.is_empty() {
                let _ = write!(line, " ({})", finding.by);
            }
        }
        if finding.excused > 0 {
            let _ = write!(
                line,
                "; off {} of them was taken what was not run, {:.0} ms at most",
                finding.excused, finding.taken_off
            );
        }
        println!("{line}; {} violations", finding.violations.len());
        for violation in finding.violations.iter().take(SHOWN) {
            println!("      {violation}");
        }
    }
}

/// Writes the figures of a run on one store, as they are after so many seconds of it. Runs that show less than the page says (of
/// broken clients, without faults, in one language) are not kept.
pub fn keep(out: &Path, kind: Kind, options: &Options, seconds: u64, verdict: &Verdict) {
    if options.broken.is_some() || options.rust_only || options.calm {
        return;
    }
    let faults: serde_json::Map<String, serde_json::Value> = verdict
        .faults
        .iter()
        .map(|(fault, n)| (format!("{fault:?}"), json!(n)))
        .collect();
    let promises: Vec<_> = PROMISES
        .iter()
        .zip(&verdict.findings)
        .map(|(promise, finding)| {
            json!({
                "promise": promise.text,
                "counted": promise.counted,
                "count": finding.count,
                "figure": promise.figure,
                "worst": finding.worst,
                "by": finding.by,
                "excused": finding.excused,
                "taken_off": finding.taken_off,
                "violations": finding.violations.len(),
            })
        })
        .collect();
    let store = kind.name();
    let figures = json!({
        "store": store,
        "seed": options.seed,
        "seconds": seconds,
        "command": format!(
            "make torture STORE={store} SECONDS={} SEED={}{}",
            options.seconds,
            options.seed,
            if crate::store::by_clock() { " FENCES=clock" } else { "" }
        ),
        "date": today(),
        "machine": machine(),
        "version": env!("CARGO_PKG_VERSION"),
        "commit": publish::commit(),
        "contended_cycles": verdict.contended,
        "unknown_acquires": verdict.unknown,
        "faults": faults,
        "promises": promises,
    });
    let fences = if crate::store::by_clock() {
        "-clock"
    } else {
        ""
    };
    let file = out.join(format!(
        "figures-{store}-{}-{}{fences}.json",
        options.seed, options.seconds
    ));
    std::fs::write(file, format!("{figures:#}\n")).expect("the figures are kept");
}

/// Copies the records and outputs of the workers, and what is wrong with them, to `out`.
pub fn keep_evidence(
    out: &Path,
    kind: Kind,
    seed: u64,
    dir: &tempfile::TempDir,
    evidence: &Evidence,
    verdict: &Verdict,
) {
    let to = out.join(format!("evidence-{}-{seed}", kind.name()));
    std::fs::create_dir_all(&to).expect("a folder for the evidence");
    for entry in std::fs::read_dir(dir.path())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let kept = ["log-", "output-", "ids-"].iter();
        if kept.clone().any(|p| name.to_string_lossy().starts_with(p)) {
            let _ = std::fs::copy(entry.path(), to.join(name));
        }
    }
    let mut text = String::new();
    for (n, finding) in verdict.findings.iter().enumerate() {
        for violation in &finding.violations {
            let _ = writeln!(text, "({}) {violation}", n + 1);
        }
    }
    for fault in &evidence.faults {
        let _ = writeln!(text, "{fault:?}");
    }
    for dead in &evidence.takeovers {
        let _ = writeln!(text, "{dead:?}");
    }
    for life in &evidence.lives {
        for record in &life.records {
            let _ = writeln!(text, "{} {record:?}", life.incarnation);
        }
    }
    std::fs::write(to.join("evidence.txt"), text).expect("the evidence is kept");
    println!("the evidence is in {}", to.display());
}
