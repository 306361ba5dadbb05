//! Starting the library's own threads. It uses `ending` alone.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::runtime::ending;

/// The number of the calling thread. No two threads of a process have the same, not even one after the other.
///
/// `std::thread::current` has one too, but panics in a thread whose local data are destroyed, and a host may call from there.
pub(crate) fn number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        number.get()
    })
}

/// Starts a named thread in which every signal is blocked: the host's handlers run on the host's threads.
///
/// Its stack has the size of every thread that Rust starts. A user's code can run on each of them: callbacks, a user's own
/// store, the drop of either, and what `getaddrinfo` loads. A stack costs address space; only what was used is resident.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // A thread inherits the mask of the one that starts it; setting it inside would leave a gap.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let started = ending::start(body, |body| {
        Builder::new().name(name.to_owned()).spawn(body)
    });
    before.thread_set_mask()?;
    started
}
