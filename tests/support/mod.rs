//! What several test programs need.
#![allow(dead_code)]

use std::fs::File;
use std::time::{Duration, Instant};

/// How long a test waits for what must happen: far longer than it takes, for machines that are busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `what` holds.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The shortest of three runs: a bound on time must not fail because the machine was busy once.
pub fn best_of_three(mut run: impl FnMut() -> Duration) -> Duration {
    (0..3).map(|_| run()).min().unwrap_or_default()
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

/// Lowers this process's limit so that `room` more descriptors can be opened, however many it has inherited and under
/// whatever numbers. What is returned fills the gaps below; dropping it makes more room.
pub fn leave_descriptors(room: u64) -> Vec<File> {
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
    setrlimit(Resource::RLIMIT_NOFILE, (above + room).min(hard), hard).expect("a limit");
    gaps
}
