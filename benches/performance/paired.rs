//! Floor, verbs and `lock()` in one thread, a cycle of each in turn: what disturbs one disturbs all.

use std::time::Instant;

use super::Bench;
use super::callers::{Caller, Contender};
use super::stats::{at, sorted};

/// For each contender the median cycle of each round, in microseconds.
pub fn rounds(
    bench: &Bench,
    kinds: &[&str],
    url: &str,
    cycles: usize,
) -> Result<Vec<Vec<f64>>, String> {
    let mut callers = Vec::new();
    for (n, kind) in kinds.iter().enumerate() {
        let contender = Contender::new(kind, url)?;
        // Every one has a key of its own, and so does its neighbour.
        callers.push(contender.crowd(n + 1)?.pop().ok_or("no caller")?);
    }
    interleave(&mut callers, bench.plan.paired_rounds, cycles)
}

pub fn interleave(
    callers: &mut [Box<dyn Caller>],
    rounds: usize,
    cycles: usize,
) -> Result<Vec<Vec<f64>>, String> {
    let mut medians = vec![Vec::new(); callers.len()];
    for round in 0..=rounds {
        let mut times = vec![Vec::with_capacity(cycles); callers.len()];
        for n in 0..cycles {
            for i in 0..callers.len() {
                let i = (i + n) % callers.len();
                let begun = Instant::now();
                if !callers[i].acquire()? {
                    return Err("a lock nobody else wants was taken".to_owned());
                }
                callers[i].release()?;
                times[i].push(begun.elapsed().as_secs_f64() * 1e6);
            }
        }
        // The first one warms up.
        if round > 0 {
            for (all, times) in medians.iter_mut().zip(times) {
                all.push(at(&sorted(times), 0.5));
            }
        }
    }
    Ok(medians)
}
