//! `sqlite:PATH`: which file a URL names.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::LockError;

/// The absolute path a URL names. No I/O but asking for the working directory.
///
/// `sqlite:locks.db`, `sqlite:/var/lib/locks.db` and `sqlite:///var/lib/locks.db`; `%20` and its like are decoded.
pub(super) fn path(url: &str) -> Result<PathBuf, LockError> {
    let Some(rest) = url.strip_prefix("sqlite:") else {
        return Err(LockError::invalid("the URL does not begin with sqlite:"));
    };
    if rest.contains(['?', '#']) {
        return Err(LockError::invalid(
            "a sqlite: URL has no options; write a ? or # in the file's name as %3F or %23",
        ));
    }
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
    let name = decode(rest)?;
    if name.is_empty() {
        return Err(LockError::invalid("the sqlite: URL names no file"));
    }
    if name.first() == Some(&b':') {
        return Err(LockError::invalid(
            "a lock in memory excludes nobody: the sqlite: URL must name a file, in any other way than with a leading colon",
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

fn decode(text: &str) -> Result<Vec<u8>, LockError> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let byte = if bytes[i] == b'%' {
            let digits = bytes
                .get(i + 1..i + 3)
                .filter(|d| d.iter().all(u8::is_ascii_hexdigit))
                .and_then(|d| std::str::from_utf8(d).ok());
            match digits.map(|d| u8::from_str_radix(d, 16)) {
                Some(Ok(byte)) => {
                    i += 2;
                    byte
                }
                _ => {
                    return Err(LockError::invalid(
                        "the sqlite: URL has a % that two hex digits do not follow; write the sign itself as %25",
                    ));
                }
            }
        } else {
            bytes[i]
        };
        if byte == 0 {
            return Err(LockError::invalid("the sqlite: URL holds a NUL"));
        }
        out.push(byte);
        i += 1;
    }
    Ok(out)
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
            assert_eq!(path(url).ok(), Some(PathBuf::from(file)), "{url}");
        }
        for relative in [
            "sqlite:locks.db",
            "sqlite:file:locks.db?".trim_end_matches('?'),
        ] {
            assert!(path(relative).is_ok_and(|p| p.is_absolute()), "{relative}");
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
                path(url).map_err(|e| e.code()),
                Err(crate::ErrorCode::InvalidArgument),
                "{url:?}"
            );
        }
    }
}
