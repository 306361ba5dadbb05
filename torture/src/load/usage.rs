//! What a process has: memory, threads, sockets, and the processor time of a server.

use std::fs;

/// Resident bytes of this process.
pub fn resident() -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find_map(|l| l.strip_prefix("Rss:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

pub fn threads() -> u64 {
    fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count() as u64)
}

/// The connections of this process.
pub fn sockets() -> u64 {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return 0;
    };
    let targets = entries
        .flatten()
        .filter_map(|e| fs::read_link(e.path()).ok());
    let is_socket = |path: &std::path::PathBuf| path.to_string_lossy().starts_with("socket:");
    targets.filter(is_socket).count() as u64
}

/// Milliseconds of processor time of a process and of those that it started: a Postgres has one for each session. What has
/// ended meanwhile is counted by its parent.
pub fn processor_ms(pid: i32) -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else {
        return 0;
    };
    let mut ticks = 0;
    for entry in entries.flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let Some((head, tail)) = stat.rsplit_once(") ") else {
            continue;
        };
        let fields: Vec<&str> = tail.split(' ').collect();
        let number = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok());
        let own = head.split(' ').next().and_then(|f| f.parse::<i32>().ok()) == Some(pid);
        let child = number(1) == u64::try_from(pid).ok();
        if own || child {
            ticks += number(11).unwrap_or(0) + number(12).unwrap_or(0);
        }
        if own {
            ticks += number(13).unwrap_or(0) + number(14).unwrap_or(0);
        }
    }
    // A tick is a hundredth of a second on every Linux that Rust runs on.
    ticks * 10
}
