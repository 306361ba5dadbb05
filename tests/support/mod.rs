//! What several test programs need.
#![allow(dead_code)]

use std::time::{Duration, Instant};

/// How long a test waits for what must happen: far longer than it takes, for machines that are busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `what` holds.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The shortest of three runs: a bound on time must not fail because the machine was busy once.
pub fn best_of_three(mut run: impl FnMut() -> Duration) -> Duration {
    (0..3).map(|_| run()).min().unwrap_or_default()
}

/// The number of threads of this process whose name begins with `prefix`.
pub fn threads_named(prefix: &str) -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    tasks
        .filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with(prefix))
        .count()
}
