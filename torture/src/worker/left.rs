//! What a worker has left when all of its clients are gone.

use super::Shared;
use crate::clock::{self, MS, sleep_ms};
use crate::record::{Record, kind};

/// What the library keeps for the life of a process, whatever it does.
const KEPT_THREADS: usize = 1;
const KEPT_DESCRIPTORS: usize = 2;

pub struct Resources {
    threads: usize,
    descriptors: usize,
}

fn entries(dir: &str) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

pub fn resident_kb() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

impl Resources {
    pub fn now() -> Self {
        Self {
            threads: entries("/proc/self/task"),
            descriptors: entries("/proc/self/fd"),
        }
    }
}

/// Waits for what ends soon, and writes down what is left.
pub fn report(shared: &Shared, start: &Resources) {
    // The thread that watches, the file of the records, and that of the lock ids.
    let threads = start.threads + 1 + KEPT_THREADS;
    let descriptors = start.descriptors + 2 + KEPT_DESCRIPTORS;
    // The undo of an acquire looks for the last time more than six seconds later, and each look may take its operation timeout. What
    // leaks is there after any time.
    let until = clock::now() + 30_000 * MS;
    let mut left = Resources::now();
    while (left.threads > threads || left.descriptors > descriptors) && clock::now() < until {
        sleep_ms(20);
        left = Resources::now();
    }
    if left.threads > threads || left.descriptors > descriptors {
        describe();
    }
    shared.write(Record {
        kind: kind::LEFT,
        at: clock::now(),
        a: left.threads.saturating_sub(threads) as i64,
        b: left.descriptors.saturating_sub(descriptors) as i64,
        ..Record::default()
    });
}

/// Names what is left, on stderr.
fn describe() {
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten() {
        let name = task.and_then(|t| std::fs::read_to_string(t.path().join("comm")));
        eprintln!("thread {}", name.unwrap_or_default().trim_end());
    }
    for fd in std::fs::read_dir("/proc/self/fd").into_iter().flatten() {
        let Ok(fd) = fd else { continue };
        let to = std::fs::read_link(fd.path()).unwrap_or_default();
        eprintln!("descriptor {}", to.display());
    }
}
