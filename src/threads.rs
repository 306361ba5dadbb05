//! Starting the library's own threads.

use std::io;
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};

/// Enough for debug builds; about 10 KiB of it become resident.
const STACK: usize = 256 * 1024;

/// Starts a named thread in which every signal is blocked: the host's handlers run on the host's threads.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    // A thread inherits the mask of the one that starts it; setting it inside would leave a gap.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let started = Builder::new()
        .name(name.to_owned())
        .stack_size(STACK)
        .spawn(body);
    before.thread_set_mask()?;
    started
}
