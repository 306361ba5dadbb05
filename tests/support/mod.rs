//! What several test programs use.
// Every program has all of it and uses a part.
#![allow(dead_code, unused_imports)]

pub mod certificates;
pub mod common;
pub mod fake_postgres;
pub mod forwarding_pooler;
// The one feature that the programs do not all have.
#[cfg(feature = "testkit")]
pub mod kit;
pub mod passing;
pub mod process;
pub mod verbs;

pub use common::{postgres, proxy, redis, stopwatch, topologies};

use std::fs::File;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Moves the clock of a server with `clock_shim.c` to this many seconds from the right one. In place: the server has the file mapped,
/// and a look at one that is cut short would end it.
pub fn set_server_clock(file: &std::path::Path, seconds: i64) {
    use std::os::unix::fs::FileExt;
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(file)
        .and_then(|file| file.write_all_at(&seconds.to_ne_bytes(), 0))
        .expect("the clock's file");
}

/// How long a test waits for what must happen: far longer than it takes, for machines that are busy.
pub const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// Waits until `what` holds.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT_LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "it did not happen in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What a thread came to, which must end by itself: one that hangs fails the test that waits for it, and no more.
#[track_caller]
pub fn ended<T>(thread: JoinHandle<T>) -> T {
    eventually("the end of a thread", || thread.is_finished());
    thread.join().expect("no panic")
}

/// The number of threads of this process whose name begins with `prefix`.
pub fn threads_named(prefix: &str) -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    tasks
        .filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// Lowers this process's limit so that `more` descriptors can be opened, however many it has inherited and under
/// whatever numbers. What is returned fills the gaps below; dropping it frees descriptors.
pub fn leave_descriptors(more: u64) -> Vec<File> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use std::os::fd::AsRawFd;
    let highest = std::fs::read_dir("/proc/self/fd")
        .expect("our descriptors")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .max()
        .unwrap_or(2);
    let open = || File::open("/dev/null").expect("a descriptor");
    let mut gaps = Vec::new();
    let above = loop {
        let file = open();
        if file.as_raw_fd() > highest {
            break u64::try_from(file.as_raw_fd()).expect("a number");
        }
        gaps.push(file);
    };
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit");
    setrlimit(Resource::RLIMIT_NOFILE, (above + more).min(hard), hard).expect("a limit");
    gaps
}

/// A directory whose path can stand in `LD_PRELOAD`, which knows no escapes, wherever `TMPDIR` points.
pub fn plain_directory() -> tempfile::TempDir {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-".contains(b);
    let given = std::path::absolute(std::env::temp_dir())
        .ok()
        .filter(|path| path.as_os_str().as_encoded_bytes().iter().all(plain));
    tempfile::tempdir_in(given.unwrap_or_else(|| "/tmp".into())).expect("a directory")
}
