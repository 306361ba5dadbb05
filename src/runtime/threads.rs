//! Starting the library's own threads.

use std::io;
use std::thread::Builder;

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::ending;

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
