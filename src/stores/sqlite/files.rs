//! The files of the store: their real path, how the first one is made, which users may open them. It uses `fork`, `url` and
//! `runtime`.

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::libc;

use super::fork::OpenConnection;
use super::url::{SqliteUrl, beside};
use crate::runtime::sync::Mutex;

/// As many links as the kernel follows.
const LINKS: usize = 40;

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    dev: u64,
    ino: u64,
}

impl FileId {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
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

/// The path without symbolic links, also where the file does not exist yet. SQLite puts its other files beside this one.
pub(super) fn real_path(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match std::fs::canonicalize(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let parent = std::fs::canonicalize(parent)?;
        match std::fs::read_link(parent.join(name)) {
            // A link to nothing: its target is what will be made.
            Ok(target) => path = parent.join(target),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(parent.join(name)),
            // Made in the meantime, and not as a link.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return Ok(parent.join(name)),
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Makes the file at the real path `path`, empty, if there is none. SQLite gives its other files the mode of this one.
///
/// One thread at a time: closing a descriptor of the file gives up all locks that SQLite has on it in this process, so no
/// connection may be opened between the creation and the end of this.
pub(super) fn create(_: &OpenConnection, path: &Path, mode: u32) -> io::Result<()> {
    // Locked only while a connection is counted, and so never in a child that may open one.
    static CREATING: OnceLock<Mutex<()>> = OnceLock::new();
    let _one = CREATING.get_or_init(Mutex::default).lock();
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(libc::O_CLOEXEC)
        .open(path);
    match made {
        Ok(file) if file.metadata()?.permissions().mode() & 0o777 != mode => {
            // The umask took something that the URL asks for.
            file.set_permissions(Permissions::from_mode(mode))
        }
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

/// What an operator should know about the files themselves.
pub(super) fn warnings(url: &SqliteUrl) -> Vec<String> {
    let Ok(real) = real_path(&url.path) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let wider: Vec<String> = ["", "-wal", "-shm"]
        .into_iter()
        .filter_map(|suffix| {
            let mode = std::fs::metadata(beside(&real, suffix)).ok()?.mode() & 0o777;
            let name = match suffix {
                "" => "the file itself",
                other => other,
            };
            (mode & !url.mode != 0).then(|| format!("{name} {mode:04o}"))
        })
        .collect();
    if !wider.is_empty() {
        found.push(format!(
            "more users than asked for may open the lock file ({}; asked for: {:04o}): a reader sees the names of locks and can stop \
             all writers; change the mode of the file and of -wal and -shm beside it, or allow it with ?mode= in the URL",
            wider.join(", "),
            url.mode
        ));
    }
    if std::fs::metadata(&real).is_ok_and(|meta| meta.nlink() > 1) {
        found.push(
            "the lock file has several names (hard links): programs that open it by different names do not exclude each other; \
             remove the other names"
                .to_owned(),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_also_to_files_that_do_not_exist() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let dir = std::fs::canonicalize(dir.path()).expect("a directory");
        let at = |name: &str| dir.join(name);
        std::fs::create_dir(at("data")).expect("a directory");
        symlink("data/locks.db", at("relative")).expect("a link");
        symlink(at("relative"), at("absolute")).expect("a link");
        symlink("data", at("folder")).expect("a link");
        symlink("loop", at("loop")).expect("a link");
        let names = [
            "relative",
            "absolute",
            "folder/locks.db",
            "data/../data/locks.db",
        ];
        for exists in [false, true] {
            if exists {
                std::fs::write(at("data/locks.db"), "").expect("a file");
            }
            for name in names {
                let real = real_path(&at(name)).expect(name);
                assert_eq!(real, at("data/locks.db"), "{name} {exists}");
            }
        }
        for name in ["loop", "missing/locks.db"] {
            assert!(real_path(&at(name)).is_err(), "{name}");
        }
    }
}
