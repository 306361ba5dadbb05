//! What a worker notes about itself while it works: when it or the timer of the library did not run, which calls are due, and how much
//! memory it uses.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::Shared;
use super::left::resident_kb;
use crate::clock::{self, MS, TICK_MS, sleep_ms};
use crate::record::{Record, kind};

/// How often the memory is noted.
const MEMORY_MS: i64 = 250;

/// Watches until the process ends.
pub fn watch(shared: &Shared) {
    let mut timer = TimerThread::default();
    clock::watch_for_stalls(
        |from, to| span(shared, kind::STALL, from, to),
        |now| {
            let calls = shared
                .watched
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            for call in calls.iter() {
                call.watch(now);
            }
            drop(calls);
            // It is told when the thread has run again, so by up to a tick late.
            let waited = timer.waited();
            if waited > MS {
                span(shared, kind::TIMER, now - waited - TICK_MS as i64 * MS, now);
            }
        },
    );
}

fn span(shared: &Shared, what: i64, from: i64, to: i64) {
    shared.write(Record {
        kind: what,
        at: to,
        a: from,
        ..Record::default()
    });
}

/// The thread of the library that notices when a lease has ended.
#[derive(Default)]
struct TimerThread {
    found: Option<(i32, i64)>,
}

impl TimerThread {
    /// How long it was ready since the last time, and did not run.
    fn waited(&mut self) -> i64 {
        if let Some((thread, before)) = self.found {
            if let Some(now) = clock::delayed_of(thread) {
                self.found = Some((thread, now));
                return now - before;
            }
            self.found = None;
        }
        // It began after the last look: all that it waited was since then.
        self.found = find("syncguard-timer").and_then(|t| Some((t, clock::delayed_of(t)?)));
        self.found.map_or(0, |(_, waited)| waited)
    }
}

fn find(name: &str) -> Option<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    tasks.flatten().find_map(|task| {
        let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let thread = task.file_name().to_string_lossy().parse().ok()?;
        (comm.trim_end() == name).then_some(thread)
    })
}

/// Notes the memory until the end of the work.
pub fn note_memory(shared: &Shared) {
    while clock::now() + MEMORY_MS * MS < shared.orders.end {
        sleep_ms(MEMORY_MS as u64);
        shared.write(Record {
            kind: kind::MEMORY,
            at: clock::now(),
            a: resident_kb(),
            b: shared.holds.load(Ordering::Relaxed),
            ..Record::default()
        });
    }
}
