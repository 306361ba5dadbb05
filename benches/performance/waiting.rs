//! What a hundred waiters cost the server while nothing happens.

use std::time::{Duration, Instant};

use super::contenders::{Entry, Running};
use super::pin::Place;
use super::stats::Figure;
use super::{Bench, Server};

const WAITERS: usize = 100;

/// `count` says how many requests the server has had since it was last asked; `clear` removes what the ended contender has left.
pub fn measure(
    bench: &mut Bench,
    server: &Server<'_>,
    entries: &[Entry],
    count: &mut dyn FnMut() -> Result<f64, String>,
    clear: &mut dyn FnMut() -> Result<(), String>,
) {
    server.pin(&bench.cores, Place::Apart);
    bench.page.heading(4, server.name);
    let mut rows = Vec::new();
    for entry in entries.iter().filter(|e| e.waits && e.missing.is_none()) {
        for wait in ["patient", "tuned"] {
            if wait == "tuned" && !entry.tunes {
                continue;
            }
            match windows(bench, entry, wait, count) {
                Ok(figure) => rows.push(vec![
                    if entry.tunes {
                        format!(
                            "{}, {}",
                            entry.name,
                            if wait == "tuned" {
                                "tuned"
                            } else {
                                "default pace"
                            }
                        )
                    } else {
                        entry.name.to_owned()
                    },
                    figure.show(),
                ]),
                Err(e) => bench.page.trouble(e),
            }
            if let Err(e) = clear() {
                bench.page.trouble(e);
            }
        }
    }
    bench
        .page
        .table(&["contender", "requests/s of 100 waiters"], &rows);
}

fn windows(
    bench: &Bench,
    entry: &Entry,
    wait: &str,
    count: &mut dyn FnMut() -> Result<f64, String>,
) -> Result<Figure, String> {
    let mut running = Running::start(entry)?;
    running.pin(&bench.cores, Place::Apart);
    running.ask(&format!("wait {WAITERS} {wait}"))?;
    std::thread::sleep(bench.plan.wait_settle);
    let mut rates = Vec::new();
    for _ in 0..bench.plan.rounds.max(5) {
        count()?;
        let begun = Instant::now();
        std::thread::sleep(bench.plan.wait_window);
        let spent: Duration = begun.elapsed();
        rates.push(count()? / spent.as_secs_f64());
    }
    Ok(Figure::of(&rates))
}
