//! Reads `sqlite:PATH`: which file a URL names, and the mode of new files. It uses `net::uri`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::net::uri::{self, UriOption};
use crate::types::error::LockError;
use crate::types::fence::FenceSource;

/// Only the user that makes a lock file may read it: it holds raw keys, and a reader can stop all writers.
const DEFAULT_MODE: u32 = 0o600;

/// What a URL says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SqliteUrl {
    /// Absolute; its last part may be a symbolic link.
    pub(super) path: PathBuf,
    /// The permissions of a file that is made.
    pub(super) mode: u32,
    /// Where fences come from, if the URL says it.
    pub(super) fences: Option<FenceSource>,
}

/// What stands behind the `?`.
#[derive(Default)]
struct SqliteOptions {
    mode: Option<u32>,
    fences: Option<FenceSource>,
}

impl SqliteUrl {
    /// The file a URL names. No I/O but asking for the working directory.
    ///
    /// `sqlite:locks.db`, `sqlite:/var/lib/locks.db` and `sqlite:///var/lib/locks.db`; `%20` and its like are decoded.
    /// Options: `?mode=0660`, `?fences=clock`.
    pub(super) fn parse(url: &str) -> Result<Self, LockError> {
        let (file, options) = match url.split_once('?') {
            Some((file, options)) => (file, Some(options)),
            None => (url, None),
        };
        if url.contains('#') {
            return Err(LockError::invalid(
                "a sqlite: URL has no fragment; write a # in the file's name as %23",
            ));
        }
        let SqliteOptions { mode, fences } =
            options.map_or(Ok(Default::default()), read_options)?;
        Ok(Self {
            mode: mode.unwrap_or(DEFAULT_MODE),
            fences,
            path: path(file)?,
        })
    }
}

fn read_options(query: &str) -> Result<SqliteOptions, LockError> {
    let mut said = SqliteOptions::default();
    for option in uri::options(query) {
        let UriOption { name, value } = option?;
        let fresh = match name.as_str() {
            "mode" => said.mode.replace(octal(&value)?).is_none(),
            "fences" => said.fences.replace(FenceSource::parse(&value)?).is_none(),
            _ => {
                let error = uri::unknown_option(&name, &["mode", "fences"]);
                return Err(LockError::invalid(format!(
                    "{}; write a ? in the file's name as %3F",
                    error.message()
                )));
            }
        };
        if !fresh {
            return Err(uri::repeated_option(&name));
        }
    }
    if said.mode.is_none() && said.fences.is_none() {
        return Err(LockError::invalid(
            "the sqlite: URL ends in a ? without an option; write a ? in the file's name as %3F",
        ));
    }
    Ok(said)
}

fn octal(digits: &str) -> Result<u32, LockError> {
    let is_octal =
        (3..=4).contains(&digits.len()) && digits.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let mode = u32::from_str_radix(digits, 8).ok().filter(|_| is_octal);
    match mode {
        Some(mode) if mode & !0o666 == 0 && mode & 0o600 == 0o600 => Ok(mode),
        _ => Err(LockError::invalid(
            "the mode of a sqlite: URL is not three or four octal digits that let the owner read and write and let no user \
             execute, such as 0600 or 0660",
        )),
    }
}

fn path(url: &str) -> Result<PathBuf, LockError> {
    let Some(rest) = url.strip_prefix("sqlite:") else {
        return Err(LockError::invalid("the URL does not begin with sqlite:"));
    };
    let rest = match rest.strip_prefix("//") {
        // An authority: only the empty one means this machine.
        Some(local) if local.starts_with('/') => local,
        Some(_) => {
            return Err(LockError::invalid(
                "a sqlite: URL names no host; write sqlite:PATH or sqlite:///PATH",
            ));
        }
        None => rest,
    };
    let name = uri::decode(rest, "path")?;
    if name.is_empty() {
        return Err(LockError::invalid("the sqlite: URL names no file"));
    }
    if name.first() == Some(&b':') {
        return Err(LockError::invalid(
            "a lock in memory excludes no other process: the sqlite: URL must name a file, in any other way than with a leading colon",
        ));
    }
    if name.ends_with(b"/") {
        return Err(LockError::invalid(
            "the sqlite: URL names a directory, not a file",
        ));
    }
    // Connections are opened later: the file must not depend on where the process has gone by then. An absolute path is
    // also never taken for one of SQLite's own `file:` URIs.
    std::path::absolute(Path::new(&OsString::from_vec(name))).map_err(|e| {
        LockError::invalid("the sqlite: URL has a relative path and the working directory is gone")
            .with_source(e)
    })
}

/// A file of SQLite's own beside the database.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().as_bytes().to_vec();
    name.extend_from_slice(suffix.as_bytes());
    PathBuf::from(OsString::from_vec(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_files() {
        for (url, file) in [
            ("sqlite:/a/b.db", "/a/b.db"),
            ("sqlite:///a/b.db", "/a/b.db"),
            ("sqlite:/a%20b/%3f%C3%A9", "/a b/?é"),
            ("sqlite:/a/100%25", "/a/100%"),
            ("sqlite:/a@b:c/d", "/a@b:c/d"),
        ] {
            assert_eq!(
                SqliteUrl::parse(url).ok().map(|t| t.path),
                Some(PathBuf::from(file)),
                "{url}"
            );
        }
        for relative in [
            "sqlite:locks.db",
            "sqlite:file:locks.db?".trim_end_matches('?'),
        ] {
            assert!(
                SqliteUrl::parse(relative).is_ok_and(|t| t.path.is_absolute()),
                "{relative}"
            );
        }
    }

    #[test]
    fn new_files_are_the_users_own_unless_asked_otherwise() {
        for (url, mode) in [
            ("sqlite:/a", 0o600),
            ("sqlite:/a?mode=600", 0o600),
            ("sqlite:/a?mode=0660", 0o660),
            ("sqlite:/a?mode=0644", 0o644),
            ("sqlite:///a?mode=0666", 0o666),
        ] {
            let path = PathBuf::from("/a");
            assert_eq!(
                SqliteUrl::parse(url).ok(),
                Some(SqliteUrl {
                    path,
                    mode,
                    fences: None
                }),
                "{url}"
            );
        }
    }

    #[test]
    fn refuses_what_names_no_file() {
        for url in [
            "",
            "sqlite",
            "sqlit:/a",
            "sqlite:",
            "sqlite://",
            "sqlite:///",
            "sqlite://host/a",
            "sqlite::memory:",
            "sqlite:%3Amemory:",
            "sqlite:/a?mode=ro",
            "sqlite:/a?",
            "sqlite:/a?mode",
            "sqlite:/a?mode=",
            "sqlite:/a?mode=60",
            "sqlite:/a?mode=00660",
            "sqlite:/a?mode=0o660",
            "sqlite:/a?mode=+660",
            "sqlite:/a?mode=0680",
            "sqlite:/a?mode=0060",
            "sqlite:/a?mode=0400",
            "sqlite:/a?mode=0200",
            "sqlite:/a?mode=0700",
            "sqlite:/a?mode=0661",
            "sqlite:/a?mode=1660",
            "sqlite:/a?mode=7600",
            "sqlite:/a?mode=0660&mode=0600",
            "sqlite:/a?Mode=0660",
            "sqlite:/a?mode=0660#x",
            "sqlite:/a?cache=shared",
            "sqlite:?mode=0660",
            "sqlite:/a#b",
            "sqlite:/a%00b",
            "sqlite:/a%",
            "sqlite:/a%2",
            "sqlite:/a%zz",
            "sqlite:/a%+1",
            "sqlite:/a\0b",
            "sqlite:/a/",
        ] {
            assert_eq!(
                SqliteUrl::parse(url).map_err(|e| e.code()),
                Err(crate::ErrorCode::InvalidArgument),
                "{url:?}"
            );
        }
    }
}
