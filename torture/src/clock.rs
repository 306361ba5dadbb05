//! The boot-time clock, which all workers share and a pause does not stop.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

pub const MS: i64 = 1_000_000;

/// Nanoseconds since boot.
pub fn now() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("the boot-time clock");
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

pub fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// How long this thread was ready to run and did not, in nanoseconds.
pub fn delayed() -> i64 {
    waited("/proc/thread-self/schedstat").unwrap_or(0)
}

/// The same of another thread of this process; nothing if it has ended.
pub fn delayed_of(thread: i32) -> Option<i64> {
    waited(&format!("/proc/self/task/{thread}/schedstat"))
}

fn waited(schedstat: &str) -> Option<i64> {
    let stat = std::fs::read_to_string(schedstat).ok()?;
    stat.split(' ').nth(1)?.parse().ok()
}

/// How often a process looks whether it runs.
pub const TICK_MS: u64 = 5;

/// Calls `stalled` with each time in which this process did not run, and `tick` every few milliseconds. It never ends.
pub fn watch_for_stalls(stalled: impl Fn(i64, i64), mut tick: impl FnMut(i64)) {
    let mut last = now();
    loop {
        sleep_ms(TICK_MS);
        let at = now();
        if at - last > 2 * TICK_MS as i64 * MS {
            stalled(last + TICK_MS as i64 * MS, at);
        }
        tick(at);
        last = at;
    }
}
