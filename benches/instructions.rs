//! Locks and releases as often as it is told, in the memory store: `instructions CYCLES`. `benches/instructions.sh` counts what a
//! cycle costs. With `hook` as a second argument every operation is told to `on_event`. Prints how many nanoseconds a cycle took: the
//! section on telemetry of `make bench` compares them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use syncguard::testkit::MemoryBackend;
use syncguard::{Client, ClientOptions};

/// After so many cycles the hook has to have been told of all of them. Their events fit into the queue: none is dropped.
const ROUND: u32 = 100;
/// An acquire, a wait and a release.
const EVENTS_A_CYCLE: u32 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().filter(|a| a != "--bench").collect();
    let cycles: u32 = arguments.get(1).map_or(Ok(1000), |n| n.parse())?;
    let hooked = arguments.get(2).is_some_and(|a| a == "hook");
    let (round_told, all_told) = mpsc::channel();
    let (round_told, told) = (Mutex::new(round_told), AtomicU32::new(0));
    let mut options = ClientOptions::new();
    if hooked {
        options = options.on_event(move |event| {
            std::hint::black_box(event);
            let told = told.fetch_add(1, Ordering::Relaxed) + 1;
            if told.is_multiple_of(ROUND * EVENTS_A_CYCLE) {
                let _ = round_told.lock().map(|round_told| round_told.send(()));
            }
        });
    }
    let client = Client::from_backend_with(MemoryBackend::new(), &options)?;
    let begun = Instant::now();
    for cycle in 1..=cycles {
        client.lock("key")?.release()?.expect_released();
        if hooked && cycle.is_multiple_of(ROUND) {
            all_told.recv_timeout(Duration::from_secs(60))?;
        }
    }
    let nanoseconds = begun.elapsed().as_nanos();
    println!("{}", nanoseconds / u128::from(cycles.max(1)));
    Ok(())
}
