//! SQLite in a forked child.
//!
//! SQLite keeps one table of open files per process, by inode, and believes what it says about the locks held. After a fork
//! the child has the table but not the POSIX locks, which do not cross a fork. In WAL mode every open connection holds two
//! for its whole life: SHARED on the database, which keeps the last closer elsewhere from deleting the log, and one on the
//! `-shm` file, which keeps the next opener from truncating it. A child that opened the same file would go on without both.
//! So it takes exactly these two first, with descriptors of its own: POSIX locks belong to the process, not to the
//! descriptor, and what the inherited table says is true again. Inherited connections stay open, untouched, for good.
//!
//! None of this helps a child forked while another thread was inside SQLite, whose mutexes are then locked for ever. Such a
//! child is told so instead of hanging.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::connection::Patience;
use crate::backend::limits::Limits;
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::types::error::LockError;

/// The number of the process in the upper half, how many of its threads are inside SQLite in the lower one. One word, so that a
/// fork cannot fall between the two.
static INSIDE: AtomicU64 = AtomicU64::new(0);
const COUNT: u64 = u32::MAX as u64;

/// A thread's stay inside SQLite, or about to enter it or just out of it.
pub(super) struct Inside(());

impl Inside {
    /// Enters, in the process `owner`, which the caller has checked already: asking costs system calls.
    ///
    /// # Errors
    /// `Internal` in a child that was forked while another thread of its parent was inside.
    pub(super) fn enter(owner: Owner) -> Result<Self, LockError> {
        let process = u64::from(owner.number()) << 32;
        let mut seen = INSIDE.load(Ordering::Acquire);
        loop {
            let next = if seen & !COUNT == process {
                seen + 1
            } else if seen & COUNT == 0 {
                process | 1
            } else {
                return Err(LockError::internal(
                    "this process was forked while another thread of its parent was using an sqlite: store, and cannot use \
                     one itself; fork before the first use, or while no lock operation runs, or exec after the fork",
                )
                .nothing_applied());
            };
            match INSIDE.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(Self(())),
                Err(now) => seen = now,
            }
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    dev: u64,
    ino: u64,
}

impl FileId {
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        // Plain `stat`: every call asks, and `statx` behind `std::fs::metadata` takes longer.
        let stat = nix::sys::stat::stat(path)?;
        // The width of the types differs between systems.
        #[allow(clippy::unnecessary_cast)]
        Ok(Self {
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
        })
    }
}

/// A database that this process, or one it was forked from, has opened.
struct Opened {
    /// The number of the process.
    process: u32,
    file: FileId,
    shm: FileId,
    /// The connections of this process.
    connections: usize,
    /// Whether an ancestor had it open: its connections are in SQLite's table for good.
    inherited: bool,
}

/// Locked only by threads that are [`Inside`], and so never in a child that may enter.
fn opened() -> &'static Mutex<Vec<Opened>> {
    static OPENED: OnceLock<Mutex<Vec<Opened>>> = OnceLock::new();
    OPENED.get_or_init(Mutex::default)
}

/// Remembers that SQLite has this database in its table, with one connection more.
pub(super) fn note(_: &Inside, file: FileId, shm: FileId) {
    let process = Owner::current().number();
    let mut list = opened().lock();
    match list.iter_mut().find(|o| o.file == file) {
        Some(known) => {
            // Where nothing had to be adopted, an ancestor had closed its connections.
            if known.process != process {
                known.connections = 0;
            }
            known.connections += 1;
            (known.process, known.shm) = (process, shm);
        }
        None => list.push(Opened {
            process,
            file,
            shm,
            connections: 1,
            inherited: false,
        }),
    }
}

/// Forgets a connection that is about to be closed, and with the last one the database: a process may open any number of
/// files in its life. Called by threads that are [`Inside`].
pub(super) fn forget(file: FileId) {
    let mut list = opened().lock();
    if let Some(n) = list.iter().position(|o| o.file == file) {
        list[n].connections = list[n].connections.saturating_sub(1);
        if list[n].connections == 0 && !list[n].inherited {
            list.swap_remove(n);
        }
    }
}

/// Makes true what SQLite's inherited table says about the database at `path`, before SQLite is asked to open it.
///
/// # Errors
/// `NetworkTimeout` or `Aborted` by the limits; `Internal` where the inherited state cannot be made true.
pub(super) fn adopt(
    _: &Inside,
    path: &Path,
    limits: &Limits<'_>,
    patience: &Patience,
) -> Result<(), LockError> {
    let Ok(file) = FileId::of(path) else {
        return Ok(()); // No file, nothing inherited.
    };
    let process = Owner::current().number();
    let mut list = opened().lock();
    let Some(known) = list
        .iter_mut()
        .find(|o| o.file == file && o.process != process)
    else {
        return Ok(());
    };
    imp::take_locks(path, file, known.shm, limits, patience).map_err(LockError::nothing_applied)?;
    known.process = process;
    known.connections = 0;
    known.inherited = true;
    Ok(())
}

fn stale() -> LockError {
    LockError::internal(
        "this process was forked from one that had the lock file open, and what it inherited is out of date or cannot be \
         verified; open the first client after the fork, or exec after it",
    )
}

#[cfg(target_os = "linux")]
mod imp {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;

    use super::{FileId, Patience, stale};
    use crate::backend::limits::Limits;
    use crate::stores::sqlite::url::beside;
    use crate::types::error::LockError;

    /// Where SQLite locks: part of its file format.
    const PENDING: (libc::off_t, libc::off_t) = (0x4000_0000, 1);
    const SHARED: (libc::off_t, libc::off_t) = (0x4000_0002, 510);
    const DEAD_MAN_SWITCH: (libc::off_t, libc::off_t) = (128, 1);
    const PAGE: u64 = 4096;

    pub(super) fn take_locks(
        path: &Path,
        file: FileId,
        shm: FileId,
        limits: &Limits<'_>,
        patience: &Patience,
    ) -> Result<(), LockError> {
        let Some(mapped) = mapped_length(shm.ino).map_err(|e| stale().with_source(e))? else {
            // Every connection was closed again before the fork: SQLite's table does not have the file.
            return Ok(());
        };
        let real = std::fs::canonicalize(path).map_err(|e| stale().with_source(e))?;
        for tries in 0.. {
            let db = open(&real, file)?;
            let index = open(&beside(&real, "-shm"), shm)?;
            match lock_both(&db, &index) {
                Ok(true) => {
                    // From here on nobody may delete or truncate them. What happened before shows now.
                    if FileId::of(&beside(&real, "-shm")).ok() != Some(shm) {
                        return Err(stale());
                    }
                    grow(&index, mapped).map_err(|e| stale().with_source(e))?;
                    // Closing any descriptor of the files would give up the locks.
                    std::mem::forget((db, index));
                    return Ok(());
                }
                Ok(false) => {}
                Err(e) => return Err(stale().with_source(e)),
            }
            drop((db, index));
            if !patience.wait(tries) {
                return Err(limits.overrun());
            }
        }
        Err(limits.overrun())
    }

    fn open(path: &Path, expected: FileId) -> Result<File, LockError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(path)
            .map_err(|e| stale().with_source(e))?;
        let meta = file.metadata().map_err(|e| stale().with_source(e))?;
        if (meta.dev(), meta.ino()) == (expected.dev, expected.ino) {
            Ok(file)
        } else {
            Err(stale())
        }
    }

    /// In SQLite's own order; false if somebody has one of them exclusively.
    fn lock_both(db: &File, index: &File) -> io::Result<bool> {
        let read = libc::F_RDLCK;
        Ok(set(db, read, PENDING)?
            && set(db, read, SHARED)?
            && set(db, libc::F_UNLCK, PENDING)?
            && set(index, read, DEAD_MAN_SWITCH)?)
    }

    fn set(
        file: &File,
        kind: libc::c_int,
        (start, len): (libc::off_t, libc::off_t),
    ) -> io::Result<bool> {
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start,
            l_len: len,
            l_pid: 0,
        };
        match fcntl(file, FcntlArg::F_SETLK(&lock)) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// How far the inherited mapping of the file with this inode reaches; `None` if there is no mapping.
    fn mapped_length(ino: u64) -> io::Result<Option<u64>> {
        let maps = std::fs::read("/proc/self/maps")?;
        let maps = String::from_utf8_lossy(&maps);
        Ok(maps
            .lines()
            .filter_map(|line| {
                // from-to rights offset device inode path
                let mut words = line.split_ascii_whitespace();
                let (from, to) = words.next()?.split_once('-')?;
                let offset = hex(words.nth(1)?)?;
                let inode: u64 = words.nth(1)?.parse().ok()?;
                let path = line.trim_end_matches(" (deleted)");
                (inode == ino && path.ends_with("-shm"))
                    .then_some(offset + hex(to)?.checked_sub(hex(from)?)?)
            })
            .max())
    }

    fn hex(digits: &str) -> Option<u64> {
        u64::from_str_radix(digits, 16).ok()
    }

    /// An opener that found nobody in between has truncated the file: touching the mapping beyond its end would be a SIGBUS.
    /// As SQLite does it, a byte at the end of every page, so that a full disk shows here and not there.
    fn grow(file: &File, length: u64) -> io::Result<()> {
        for page in file.metadata()?.len() / PAGE..length / PAGE {
            if file.metadata()?.len() < (page + 1) * PAGE {
                file.write_all_at(&[0], (page + 1) * PAGE - 1)?;
            }
        }
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::path::Path;

    use super::{FileId, Patience, stale};
    use crate::backend::limits::Limits;
    use crate::types::error::LockError;

    /// What the parent left mapped cannot be verified here.
    pub(super) fn take_locks(
        _: &Path,
        _: FileId,
        _: FileId,
        _: &Limits<'_>,
        _: &Patience,
    ) -> Result<(), LockError> {
        Err(stale())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::call::Call;
    use crate::stores::sqlite::connection::Handle;
    use crate::stores::sqlite::url::Target;
    use std::time::Duration;

    #[test]
    fn a_database_is_forgotten_with_its_last_connection() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let target = Target {
            path: dir.path().join("locks.db"),
            mode: 0o600,
        };
        let owner = Owner::current();
        let limits = Limits::enter(owner, Duration::from_secs(60), &Call::new()).expect("time");
        let inside = Inside::enter(owner).expect("not forked");
        let open = || Handle::open(&target, &inside, &limits).expect("a connection");
        let (first, second) = (open(), open());
        let file = first.file();
        let known = || opened().lock().iter().any(|o| o.file == file);
        drop(first);
        assert!(known());
        drop(second);
        assert!(!known());
    }
}
