//! What the figures were measured on.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::Bench;
use super::servers::Stores;
use super::stats::Figure;

/// A machine on which as much of the processor is idle is quiet enough.
const QUIET: f64 = 0.97;
/// How often it is looked at, and how long each time.
const LOOKS: usize = 30;
const LOOK: Duration = Duration::from_secs(2);

pub fn report(bench: &mut Bench, stores: &Stores) {
    let mut rows = facts();
    let idle = wait_until_idle(if bench.plan.quick { 0 } else { LOOKS });
    let shown = match idle {
        Some(part) if part >= QUIET => format!("{:.0} %", part * 100.0),
        Some(part) => format!("**{:.0} %: other programs ran beside it**", part * 100.0),
        None => "not known".to_owned(),
    };
    rows.push(("idle before the run".to_owned(), shown));
    for (name, store) in [
        ("Redis", &stores.redis),
        ("Postgres", &stores.postgres_disk),
    ] {
        rows.push((name.to_owned(), store.version.clone()));
    }
    rows.push((
        "sockets".to_owned(),
        "unix, for everybody, unless a row says TCP".to_owned(),
    ));
    rows.push(("pinned".to_owned(), bench.cores.describe()));
    for (name, store) in [
        ("fdatasync on disk", &stores.sqlite_disk),
        ("fdatasync on tmpfs", &stores.sqlite_tmpfs),
    ] {
        let shown = fsync(&store.path).map_or_else(|e| e, |f| format!("{} µs", f.show()));
        rows.push((name.to_owned(), shown));
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(n, v)| vec![n, v]).collect();
    bench.page.table(&["", ""], &rows);
}

/// Waits until nothing else runs, and answers which part of the processor was idle at the last look.
fn wait_until_idle(looks: usize) -> Option<f64> {
    let mut part = None;
    for _ in 0..looks {
        let before = processor_time()?;
        std::thread::sleep(LOOK);
        let after = processor_time()?;
        let all = (after.1 - before.1).max(1) as f64;
        let idle = (after.0 - before.0) as f64 / all;
        part = Some(idle);
        if idle >= QUIET {
            break;
        }
    }
    part
}

/// Of all cores since they were started: idle, and in all.
fn processor_time() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?;
    let parts: Vec<u64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    // user, nice, system, idle, iowait
    Some((parts.get(3)? + parts.get(4)?, parts.iter().take(8).sum()))
}

fn facts() -> Vec<(String, String)> {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        cpu.lines()
            .find(|l| l.starts_with(name))
            .and_then(|l| l.split_once(':'))
            .map_or("?", |(_, v)| v.trim())
            .to_owned()
    };
    let cores = cpu.lines().filter(|l| l.starts_with("processor")).count();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory
        .lines()
        .find_map(|l| {
            l.strip_prefix("MemTotal:")?
                .trim()
                .strip_suffix(" kB")?
                .trim()
                .parse()
                .ok()
        })
        .unwrap_or(0);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut facts = vec![
        (
            "CPU".to_owned(),
            format!(
                "{}, {cores} cores, {} MHz",
                field("model name"),
                field("cpu MHz")
            ),
        ),
        (
            "memory".to_owned(),
            format!("{:.1} GiB", kib as f64 / 1048576.0),
        ),
        ("kernel".to_owned(), line("uname", &["-srm"])),
        (
            "load before the run".to_owned(),
            load.split_whitespace()
                .take(3)
                .collect::<Vec<_>>()
                .join(" "),
        ),
        ("syncguard".to_owned(), revision()),
        ("measured".to_owned(), line("date", &["-u", "+%F"])),
        ("rustc".to_owned(), line("rustc", &["--version"])),
    ];
    for (name, program, args) in [
        ("Python", "python3", vec!["--version"]),
        ("Node", "node", vec!["--version"]),
        ("Go", "go", vec!["version"]),
    ] {
        facts.push((name.to_owned(), line(program, &args)));
    }
    facts
}

fn revision() -> String {
    let commit = line("git", &["rev-parse", "--short=12", "HEAD"]);
    format!("{} ({commit})", env!("CARGO_PKG_VERSION"))
}

fn line(program: &str, args: &[&str]) -> String {
    Command::new(program)
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()
        .filter(|o| o.status.success())
        .map_or("not there".to_owned(), |o| {
            String::from_utf8_lossy(&o.stdout).trim().to_owned()
        })
}

/// Microseconds that `fdatasync` of one page takes in this directory.
fn fsync(dir: &Path) -> Result<Figure, String> {
    let text = |e: std::io::Error| e.to_string();
    let mut file: File = tempfile::tempfile_in(dir).map_err(text)?;
    let mut times = Vec::new();
    for _ in 0..50 {
        file.rewind().map_err(text)?;
        file.write_all(&[7; 8192]).map_err(text)?;
        let begun = Instant::now();
        file.sync_data().map_err(text)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Figure::of(&times))
}
