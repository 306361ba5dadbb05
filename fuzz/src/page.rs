//! The table of docs/fuzzing.md: a row for each target, from what the last run of it has left.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::engine::{Finding, Plan, Report, read_corpus};
use crate::targets::TARGETS;

const BEGIN: &str = "<!-- figures: begin; `make fuzz PAGE=docs/fuzzing.md` writes what follows -->";
const END: &str = "<!-- figures: end -->";

/// 1234567 as 1 234 567.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn today() -> String {
    let out = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    out.map_or(String::new(), |out| {
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    })
}

fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find(|line| line.starts_with("model name"));
    let model = model
        .and_then(|line| line.split_once(": "))
        .map_or("?", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} × {model}")
}

const HEAD: &str = "| target | executions | per second | corpus | outcomes | seed | date | machine | findings |\n|---|---:|---:|---|---:|---:|---|---|---:|\n";

/// The row of a run.
#[derive(Debug)]
pub struct Row {
    name: &'static str,
    text: String,
}

impl Row {
    /// The row of a run without a finding.
    pub fn of(name: &'static str, plan: &Plan, report: &Report) -> Self {
        let outcomes = grouped(report.outcomes as u64);
        Self::new(name, plan, report.executions, report.took, &outcomes, 0)
    }

    /// The row of a run that ended with its first finding.
    pub fn of_finding(name: &'static str, plan: &Plan, finding: &Finding) -> Self {
        Self::new(name, plan, finding.executions, finding.took, "–", 1)
    }

    fn new(
        name: &'static str,
        plan: &Plan,
        executions: u64,
        took: Duration,
        outcomes: &str,
        findings: u32,
    ) -> Self {
        let corpus = read_corpus(&plan.corpus.join(name));
        let bytes: usize = corpus.iter().map(Vec::len).sum();
        let per_second = executions as f64 / took.as_secs_f64().max(0.001);
        let text = format!(
            "| `{name}` | {} | {} | {} files, {:.1} KB | {outcomes} | {} | {} | {} | {findings} |",
            grouped(executions),
            grouped(per_second as u64),
            corpus.len(),
            bytes as f64 / 1000.0,
            plan.seed,
            today(),
            machine(),
        );
        Self { name, text }
    }

    /// Keeps it for the page.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn keep(&self, folder: &Path) -> Result<(), String> {
        let write =
            fs::create_dir_all(folder).and_then(|()| fs::write(folder.join(self.name), &self.text));
        write.map_err(|e| format!("{}: {e}", folder.display()))
    }
}

/// Writes the rows of all targets that have run to `page`. A target that has not run here keeps the row that the page has.
///
/// # Errors
/// The page cannot be read or written, or has no place for the table.
pub fn write(folder: &Path, page: &Path) -> Result<(), String> {
    let name = page.display();
    let old = fs::read_to_string(page).map_err(|e| format!("{name}: {e}"))?;
    let parts = old
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
    let (before, (table, after)) =
        parts.ok_or(format!("{name} lacks the lines {BEGIN} and {END}"))?;
    let on_page = |target: &str| {
        let begin = format!("| `{target}` |");
        table.lines().find(|line| line.starts_with(&begin))
    };
    let rows: Vec<String> = TARGETS
        .iter()
        .filter_map(|target| {
            let here = fs::read_to_string(folder.join(target.name)).ok();
            here.or_else(|| on_page(target.name).map(str::to_owned))
        })
        .collect();
    let table = format!("{HEAD}{}", rows.join("\n"));
    fs::write(page, format!("{before}{BEGIN}\n\n{table}\n\n{END}{after}"))
        .map_err(|e| format!("{name}: {e}"))
}
