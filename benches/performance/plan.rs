//! How much is measured: enough to be cited, or just enough to see that everything runs.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Plan {
    pub quick: bool,
    /// Rounds of everything but the paired comparison.
    pub rounds: usize,
    pub cycle_rounds: usize,
    pub cycle_time: Duration,
    pub paired_rounds: usize,
    pub paired_cycles: usize,
    /// Cycles of one run in the memory store.
    pub telemetry_cycles: u32,
    pub contend_time: Duration,
    pub wait_settle: Duration,
    pub wait_window: Duration,
    pub others: &'static [u64],
    pub scale_cycles: usize,
    pub guards: &'static [usize],
    /// Cycles on one key, and how many of its first and last are compared.
    pub long_run: (usize, usize),
}

impl Plan {
    pub fn new(quick: bool) -> Self {
        let ms = Duration::from_millis;
        if quick {
            Self {
                quick,
                rounds: 2,
                cycle_rounds: 2,
                cycle_time: ms(30),
                paired_rounds: 15,
                paired_cycles: 20,
                telemetry_cycles: 200,
                contend_time: ms(150),
                wait_settle: ms(200),
                wait_window: ms(300),
                others: &[0, 10_000],
                scale_cycles: 20,
                guards: &[1, 1_000],
                long_run: (2_000, 200),
            }
        } else {
            Self {
                quick,
                rounds: 5,
                cycle_rounds: 7,
                cycle_time: ms(200),
                paired_rounds: 31,
                paired_cycles: 200,
                telemetry_cycles: 20_000,
                contend_time: ms(1_000),
                wait_settle: ms(3_000),
                wait_window: ms(1_000),
                others: &[0, 10_000, 1_000_000],
                scale_cycles: 200,
                guards: &[1, 1_000, 10_000],
                long_run: (300_000, 10_000),
            }
        }
    }
}

/// Set to anything but `0` or nothing.
pub fn flag(name: &str) -> bool {
    std::env::var(name).is_ok_and(|v| !v.is_empty() && v != "0")
}
