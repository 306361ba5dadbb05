//! Writes the figures to docs/load.md, between two markers.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::publish::{self, grouped, machine, today};
use crate::{Options, Row};

const BEGIN: &str = "<!-- figures: begin; `make load PAGE=docs/load.md` writes what follows -->";
const END: &str = "<!-- figures: end -->";

pub fn write(page: &Path, options: &Options, rows: &[Row]) -> Result<(), String> {
    let mut text = format!(
        "Version {} (commit {}), {}, on {}: `make load COUNT={} SECONDS={}`.\n\n| store | load | figures |\n|---|---|---|\n",
        env!("CARGO_PKG_VERSION"),
        publish::commit(),
        today(),
        machine(),
        options.count,
        options.time.as_secs(),
    );
    for row in rows {
        let figures = row.figures.as_object().into_iter().flatten();
        let figures: Vec<_> = figures
            .filter(|(_, figure)| !figure.is_array())
            .map(|(name, f)| format!("{name}: {}", shown(f)))
            .collect();
        let cells = (row.kind.name(), &row.what, figures.join("; "));
        let _ = writeln!(text, "| {} | {} | {} |", cells.0, cells.1, cells.2);
    }
    let rows = |text: &str| text.lines().filter(|line| line.starts_with('|')).count() as u64;
    publish::replace(page, (BEGIN, END), &text, rows)
}

fn shown(figure: &Value) -> String {
    match (figure.as_u64(), figure.as_f64()) {
        (Some(n), _) => grouped(n),
        (None, Some(x)) => format!("{x:.1}"),
        (None, None) => figure.to_string(),
    }
}
