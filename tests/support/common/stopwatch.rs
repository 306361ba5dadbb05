//! Measures a call without the time in which the machine did not let this process run, so that the worst of several calls can be held
//! to its bound on a busy machine too.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Started on the thread that makes the call, and stopped there.
pub struct Stopwatch {
    begun: Instant,
    delayed: Duration,
}

impl Stopwatch {
    pub fn start() -> Self {
        metronome();
        Self {
            delayed: delayed(),
            begun: Instant::now(),
        }
    }

    /// What it took, without what was lost.
    pub fn stop(self) -> Duration {
        let (took, lost) = self.stop_after(Duration::ZERO);
        took.saturating_sub(lost)
    }

    /// What it took, and what was lost of the time after `bound`: only that can excuse a call for coming late.
    pub fn stop_after(self, bound: Duration) -> (Duration, Duration) {
        let ended = Instant::now();
        let delayed = delayed().saturating_sub(self.delayed);
        let stalled = stalled(self.begun + bound, ended);
        (ended - self.begun, delayed.max(stalled))
    }
}

/// The longest of three runs; both ends are shown.
pub fn worst_of_three(mut run: impl FnMut() -> Duration) -> Duration {
    let mut all = [(); 3].map(|()| run());
    all.sort();
    eprintln!("best {:?}, worst {:?}", all[0], all[2]);
    all[2]
}

/// How long this thread was ready to run and did not.
fn delayed() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = stat.split(' ').nth(1).and_then(|n| n.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}

const TICK: Duration = Duration::from_millis(2);
static STALLS: Mutex<Vec<(Instant, Instant)>> = Mutex::new(Vec::new());

/// A thread that sleeps for a tick at a time: if it wakes up late, the process did not run.
fn metronome() {
    static TICKING: OnceLock<()> = OnceLock::new();
    TICKING.get_or_init(|| {
        std::thread::spawn(|| {
            let mut last = Instant::now();
            loop {
                std::thread::sleep(TICK);
                let now = Instant::now();
                if now - last > TICK * 2 {
                    stalls().push((last + TICK, now));
                }
                last = now;
            }
        });
    });
}

fn stalls() -> std::sync::MutexGuard<'static, Vec<(Instant, Instant)>> {
    STALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much of this time the process did not run.
fn stalled(from: Instant, to: Instant) -> Duration {
    // The metronome may not have noticed yet.
    std::thread::sleep(TICK * 2);
    stalls()
        .iter()
        .map(|(begin, end)| (*end).min(to).saturating_duration_since((*begin).max(from)))
        .sum()
}
