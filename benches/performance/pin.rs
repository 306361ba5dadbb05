//! Which process runs on which core. A single call and its answer on one core take a fraction of what they take across two, so an
//! unpinned run has two speeds and shows either.

use std::sync::OnceLock;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Where clients and servers run.
#[derive(Clone, Debug)]
pub struct Cores {
    first: Vec<usize>,
    last: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All on one core: for the latency of a single caller.
    Together,
    /// The server on a core of its own: for throughput and waiting.
    Apart,
}

impl Cores {
    pub fn allowed() -> Self {
        let set = sched_getaffinity(Pid::from_raw(0)).expect("the allowed cores");
        let mut all: Vec<usize> = (0..CpuSet::count())
            .filter(|n| set.is_set(*n).unwrap_or(false))
            .collect();
        let _ = COUNT.set(all.len());
        let last = all.pop().expect("a core");
        Self {
            first: if all.is_empty() { vec![last] } else { all },
            last,
        }
    }

    /// The same core at both places: only clients move.
    pub fn server(&self) -> Vec<usize> {
        vec![self.last]
    }

    pub fn client(&self, place: Place) -> Vec<usize> {
        match place {
            Place::Together => vec![self.last],
            Place::Apart => self.first.clone(),
        }
    }

    pub fn describe(&self) -> String {
        format!(
            "one caller: client and server both on core {}; several callers: server on core {}, clients on {:?}",
            self.last, self.last, self.first
        )
    }
}

/// How many cores this bench was given, whatever is pinned where.
pub fn count() -> usize {
    *COUNT.get().unwrap_or(&1)
}

static COUNT: OnceLock<usize> = OnceLock::new();

/// Moves a process, its threads and its descendants.
pub fn tree(pid: u32, cores: &[usize]) {
    let tasks = format!("/proc/{pid}/task");
    for task in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
        if let Some(tid) = task.file_name().to_str().and_then(|t| t.parse().ok()) {
            set(tid, cores);
        }
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|c| c.parse().ok()) {
            tree(child, cores);
        }
    }
}

/// Moves the calling thread; those it starts stay with it.
pub fn me(cores: &[usize]) {
    set(0, cores);
}

fn set(tid: i32, cores: &[usize]) {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core).expect("a core of this machine");
    }
    // A thread may have ended meanwhile.
    let _ = sched_setaffinity(Pid::from_raw(tid), &set);
}
