//! What every page of figures needs: the date, the machine, numbers that can be read, and the place between two markers.

use std::path::Path;

use serde_json::Value;

/// The date.
pub fn today() -> String {
    let out = std::process::Command::new("date")
        .args(["-u", "+%Y-%m-%d"])
        .output();
    out.map_or(String::new(), |out| {
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    })
}

/// The commit that this program was made from, short; with "+changes" if the work tree has others. The package has no git, and says
/// so.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let out = std::process::Command::new("git")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(arguments)
            .output()
            .ok()
            .filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=9", "HEAD"]) else {
        return "no commit, without git".to_owned();
    };
    // Of files that git knows: a run writes others.
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}+changes"),
    }
}

/// The machine, in a few words.
pub fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{cores} × {}, Linux {}",
        model.map_or("?", |(_, name)| name.trim()),
        kernel.trim()
    )
}

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

/// Replaces what stands between two lines of a page, unless that would show less than the page does: `shows` says how much a text
/// shows. Figures of other checkouts are easily left behind.
pub fn replace(
    page: &Path,
    (begin, end): (&str, &str),
    text: &str,
    shows: impl Fn(&str) -> u64,
) -> Result<(), String> {
    let name = page.display();
    let old = std::fs::read_to_string(page).map_err(|e| format!("{name}: {e}"))?;
    let parts = old.split_once(begin).and_then(|(before, rest)| {
        let (table, after) = rest.split_once(end)?;
        Some((before, table, after))
    });
    let (before, table, after) =
        parts.ok_or(format!("{name} lacks the lines {begin} and {end}"))?;
    let (now, then) = (shows(text), shows(table));
    if now < then {
        return Err(format!(
            "{name} shows {then}, and the figures here only {now}: put those of the other runs into the same folder, or remove the \
             table from the page first"
        ));
    }
    let new = format!("{before}{begin}\n\n{text}\n{end}{after}");
    std::fs::write(page, new).map_err(|e| format!("{name}: {e}"))
}

/// The sum of the numbers in one column of the rows that `chosen` names by their first cell.
pub fn sum_of(text: &str, column: usize, chosen: impl Fn(&str) -> bool) -> u64 {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    let numbers = cells.filter(|cells| chosen(cells[0])).filter_map(|cells| {
        let cell = cells.get(column)?.trim_end_matches(" |");
        cell.replace(' ', "").parse::<u64>().ok()
    });
    numbers.sum()
}

/// The figures in a folder, and which command writes them if there are none.
pub fn read(dir: &Path, command: &str) -> Result<Vec<Value>, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
    paths.sort();
    let runs: Vec<Value> = paths
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).map_err(|e| e.to_string());
            let run = text.and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string()));
            run.map_err(|e| format!("{}: {e}", path.display()))
        })
        .collect::<Result<_, _>>()?;
    match runs.is_empty() {
        true => Err(format!(
            "no figures in {}; {command} writes them",
            dir.display()
        )),
        false => Ok(runs),
    }
}
