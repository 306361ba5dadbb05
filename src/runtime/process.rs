//! Which process this is, and what belongs to one process and must not be shared with a forked child. It uses `types` alone.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::types::error::LockError;
use crate::types::holder_text::HolderText;

/// The process that made something. Every check for a fork goes through this type.
///
/// A pid alone does not tell a process from its child: in a new pid namespace the child of PID 1 is PID 1 too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner(&'static Mark);

/// What a process can show and none of its children can.
#[derive(Debug)]
struct Mark {
    /// Differs from the numbers of all processes that this one was forked from. Never 0.
    number: u32,
    pid: u32,
    proof: imp::Proof,
}

/// The marks of this process and of those that it was forked from, by number.
static MARKS: PerProcess<Mark> = PerProcess::new();
/// The number of the last complete mark; 0 before the first.
static LATEST: AtomicU32 = AtomicU32::new(0);
/// The largest number that a thread took to make a mark. Each is taken once: a child never waits for a mark that a thread of
/// its parent was making at the fork.
static TAKEN: AtomicU32 = AtomicU32::new(0);

impl Owner {
    /// The process that calls.
    pub(crate) fn current() -> Self {
        loop {
            let latest = LATEST.load(Ordering::Acquire);
            if latest != 0 {
                let owner = Self(MARKS.get_as(latest, || Mark::new(latest)));
                if owner.is_this_process() {
                    return owner;
                }
            }
            let number = TAKEN.fetch_add(1, Ordering::Relaxed) + 1;
            let mark = MARKS.get_as(number, || Mark::new(number));
            // If another thread of this process was faster, all threads use its mark.
            if LATEST
                .compare_exchange(latest, number, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Self(mark);
            }
        }
    }

    /// False in a forked child, whatever its pid.
    pub(crate) fn is_this_process(self) -> bool {
        std::process::id() == self.0.pid && self.0.proof.holds(self.0.pid)
    }

    /// Refuses the use of something inherited. Asked before any mutex is touched: in a forked child it may be locked for ever.
    ///
    /// # Errors
    /// `Internal` in a forked child, with nothing applied.
    pub(crate) fn check(self) -> Result<(), LockError> {
        if self.is_this_process() {
            Ok(())
        } else {
            Err(LockError::forked())
        }
    }

    /// Tells this process from those it was forked from. Never 0.
    pub(crate) fn number(self) -> u32 {
        self.0.number
    }
}

impl Mark {
    fn new(number: u32) -> Self {
        Self {
            number,
            pid: std::process::id(),
            proof: imp::Proof::new(),
        }
    }
}

/// The text of this process, made once.
static HOLDER: PerProcess<HolderText> = PerProcess::new();

/// What this process says of itself beside its locks: `host/pid/program`.
pub(crate) fn holder_text() -> &'static HolderText {
    HOLDER.get(|| {
        let host = nix::unistd::gethostname().unwrap_or_default();
        // The name that it was started by says more than the file: one file may have many names.
        let program = std::env::args_os()
            .next()
            .or_else(|| std::env::current_exe().ok().map(Into::into))
            .unwrap_or_default();
        let program = std::path::Path::new(&program);
        let name = program.file_name().unwrap_or_default();
        HolderText::lossy(&format!(
            "{}/{}/{}",
            host.to_string_lossy(),
            std::process::id(),
            name.to_string_lossy()
        ))
    })
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;
    use nix::sys::stat::stat;

    /// What tells a process from one with the same pid in another pid namespace, or with its pid after its death.
    #[derive(Debug)]
    pub(super) enum Proof {
        /// A record lock, which no child inherits. Never closed, and never used but to ask for its lock: should the host
        /// close it, its number may be another file by then.
        Lock(OwnedFd),
        /// Where the lock cannot be had. Asking takes longer.
        Namespace(u64, u64),
        /// The system shows neither.
        Pid,
    }

    impl Proof {
        pub(super) fn new() -> Self {
            let pid = std::process::id();
            match lock() {
                Some(file) if is_locked_by(&file, pid) => Self::Lock(file),
                _ => namespace().map_or(Self::Pid, |(dev, ino)| Self::Namespace(dev, ino)),
            }
        }

        pub(super) fn holds(&self, pid: u32) -> bool {
            match self {
                Self::Lock(file) => is_locked_by(file, pid),
                Self::Namespace(dev, ino) => namespace() == Some((*dev, *ino)),
                Self::Pid => true,
            }
        }
    }

    /// Takes the lock on a socket: every sandbox in which the library is of use allows one, and it cannot be opened a second
    /// time through `/proc/self/fd`. Closing a second descriptor of the same file would give up the lock.
    fn lock() -> Option<OwnedFd> {
        let (socket, _) = UnixStream::pair().ok()?;
        fcntl(&socket, FcntlArg::F_SETLK(&first_byte())).ok()?;
        Some(socket.into())
    }

    /// Whether the process that asks, which has this pid, has the lock.
    ///
    /// Asked for an open file description, whose locks conflict with those of every process, also of this one. The answer
    /// is the pid of the process that has the lock, as seen from here; 0 if it is not to be seen from here.
    fn is_locked_by(file: &OwnedFd, pid: u32) -> bool {
        let mut asked = first_byte();
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked)).is_ok()
            && libc::c_int::from(asked.l_type) != libc::F_UNLCK
            && u32::try_from(asked.l_pid) == Ok(pid)
    }

    fn first_byte() -> libc::flock {
        libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 1,
            l_pid: 0,
        }
    }

    fn namespace() -> Option<(u64, u64)> {
        let found = stat("/proc/self/ns/pid").ok()?;
        // The width of the types differs between systems.
        #[allow(clippy::unnecessary_cast)]
        Some((found.st_dev as u64, found.st_ino as u64))
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    /// No pid namespaces here: the pid says enough.
    #[derive(Debug)]
    pub(super) struct Proof;

    impl Proof {
        pub(super) fn new() -> Self {
            Self
        }

        pub(super) fn holds(&self, _: u32) -> bool {
            true
        }
    }
}

/// A static that every process has for itself: a forked child never sees its parent's value, whose threads do not exist in
/// it and whose mutexes may be locked for ever. What the parent left is kept, untouched, also where the fork fell into its
/// making.
///
/// It is a list of places. The first is in the static itself; a process that finds all places taken by its ancestors adds one.
pub(crate) struct PerProcess<T> {
    /// The number of the process that has this place; 0 for none. Decides, without a lock, whether `value` may be touched.
    owner: AtomicU32,
    value: OnceLock<T>,
    next: OnceLock<Box<Self>>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self {
            owner: AtomicU32::new(0),
            value: OnceLock::new(),
            next: OnceLock::new(),
        }
    }

    /// This process's value, made with `make` at its first use.
    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> &T {
        self.get_as(Owner::current().number(), make)
    }

    fn get_as(&self, number: u32, make: impl FnOnce() -> T) -> &T {
        let mut place = self;
        while !place.belongs_to(number) {
            place = place.next();
        }
        place.value.get_or_init(make)
    }

    /// Whether the process with this number has the place, or could take it just now.
    fn belongs_to(&self, number: u32) -> bool {
        let before = self
            .owner
            .compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
        before.is_ok() || before == Err(number)
    }

    fn next(&self) -> &Self {
        if let Some(next) = self.next.get() {
            return next;
        }
        // Allocated before the cell is touched: a child that is forked while another thread writes into the cell waits for ever,
        // and only a few instructions may be left in which that can happen (ADR 4).
        let place = Box::new(Self::new());
        self.next.get_or_init(|| place)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn no_process_waits_for_another_one() {
        static VALUES: PerProcess<u32> = PerProcess::new();
        let (begin, begun) = mpsc::channel();
        let (make, made) = mpsc::channel::<()>();
        let first = std::thread::spawn(move || {
            *VALUES.get_as(1, || {
                begin.send(()).expect("a listener");
                made.recv().expect("its end");
                10
            })
        });
        begun.recv().expect("it began");
        // As a child forked just now.
        assert_eq!(VALUES.get_as(2, || 20), &20);
        make.send(()).expect("a listener");
        assert_eq!(first.join().expect("no panic"), 10);
        for number in 1..100 {
            assert_eq!(VALUES.get_as(number, || number * 10), &(number * 10));
        }
        assert_eq!(VALUES.get_as(1, || 0), &10);
    }

    #[test]
    fn all_threads_are_one_process() {
        let numbers = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..32)
                .map(|_| scope.spawn(|| Owner::current().number()))
                .collect();
            let end = |thread: std::thread::ScopedJoinHandle<'_, u32>| thread.join();
            threads.into_iter().map(end).collect::<Vec<_>>()
        });
        let own = Owner::current();
        assert!(own.is_this_process() && own.number() != 0);
        for number in numbers {
            assert_eq!(number.expect("no panic"), own.number());
        }
    }
}
