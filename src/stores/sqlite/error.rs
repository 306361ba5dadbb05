//! What SQLite's result codes mean as a [`LockError`]. It uses `backend` and `types`.

use rusqlite::ErrorCode as Sqlite;

use crate::backend::limits::Limits;
use crate::types::error::{ErrorCode, LockError};

/// What can go wrong in the middle of an operation: SQLite's own trouble, or something we found in the file.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    /// Found before anything was committed.
    Lock(LockError),
    /// A commit that failed; its effect is what the error says.
    Commit(LockError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl Failure {
    /// Whether another connection was in the way, and trying again may help.
    pub(super) fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Sqlite(e) if matches!(
                e.sqlite_error_code(),
                Some(Sqlite::DatabaseBusy | Sqlite::DatabaseLocked | Sqlite::FileLockingProtocolFailed)
            )
        )
    }

    /// Whether the connection that met it may be used again.
    pub(super) fn spares_the_connection(&self) -> bool {
        match self {
            Self::Lock(_) => true,
            Self::Commit(_) => false,
            Self::Sqlite(e) => {
                self.is_busy() || e.sqlite_error_code() == Some(Sqlite::OperationInterrupted)
            }
        }
    }

    pub(super) fn into_error(self, limits: &Limits<'_>) -> LockError {
        match self {
            Self::Lock(error) => error.nothing_applied(),
            Self::Commit(error) => error,
            // Every statement but a commit is rolled back.
            Self::Sqlite(error) => from_sqlite(error, limits).nothing_applied(),
        }
    }
}

/// SQLite's words for a code are constants, so they hold no key and no id; its messages are not quoted.
pub(super) fn from_sqlite(error: rusqlite::Error, limits: &Limits<'_>) -> LockError {
    let rusqlite::Error::SqliteFailure(cause, _) = &error else {
        return LockError::internal(
            "the lock file answered something that is not a lock of syncguard",
        )
        .with_source(error);
    };
    let code = cause.extended_code;
    let words = rusqlite::ffi::code_to_str(code);
    let new = |kind, text: &str| LockError::new(kind, format!("{text} (SQLite {code}: {words})"));
    match cause.code {
        Sqlite::DatabaseBusy
        | Sqlite::DatabaseLocked
        | Sqlite::FileLockingProtocolFailed
        | Sqlite::OperationInterrupted => limits.overrun(),
        Sqlite::SystemIoFailure => new(
            ErrorCode::ServiceUnavailable,
            "the disk failed while reading or writing the lock file",
        ),
        Sqlite::DiskFull => new(
            ErrorCode::ServiceUnavailable,
            "the disk of the lock file is full",
        ),
        Sqlite::OutOfMemory => new(ErrorCode::ServiceUnavailable, "there is no memory left"),
        Sqlite::ReadOnly | Sqlite::PermissionDenied => new(
            ErrorCode::AuthFailed,
            "this user may not write the lock file; it needs to write the file and its directory",
        ),
        Sqlite::CannotOpen if out_of_descriptors() => new(
            ErrorCode::ServiceUnavailable,
            NO_DESCRIPTORS,
        ),
        Sqlite::CannotOpen => new(
            ErrorCode::InvalidArgument,
            "the lock file cannot be opened; its directory must exist and its path must name a file",
        ),
        Sqlite::NotADatabase => new(
            ErrorCode::InvalidArgument,
            "the file is not an SQLite database",
        ),
        Sqlite::DatabaseCorrupt => new(ErrorCode::Internal, "the lock file is damaged"),
        _ => new(ErrorCode::Internal, "the lock file refused a statement"),
    }
    .with_source(error)
}

pub(super) const NO_DESCRIPTORS: &str =
    "the process has no file descriptor left to open the lock file with";

/// SQLite has one code for a wrong path and for a full descriptor table, and keeps the reason to itself. A connection that
/// failed has given its own descriptors back by now, so the question is whether as many as it takes can be had at once.
pub(super) fn out_of_descriptors() -> bool {
    use nix::errno::Errno::{EMFILE, ENFILE};
    let mut had = Vec::new();
    for _ in 0..DESCRIPTORS {
        match std::fs::File::open("/dev/null") {
            Ok(file) => had.push(file),
            Err(e) => {
                let errno = e.raw_os_error().map(nix::errno::Errno::from_raw);
                return matches!(errno, Some(EMFILE | ENFILE));
            }
        }
    }
    false
}

/// What a connection needs at most: the file, its log, the log's index, the directory, a temporary file, with some to spare.
const DESCRIPTORS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::call::Call;
    use crate::runtime::process::Owner;
    use rusqlite::ffi;
    use std::time::Duration;

    #[test]
    fn every_code_has_its_place() {
        let limits =
            Limits::enter(Owner::current(), Duration::from_secs(5), &Call::new()).expect("time");
        for (sqlite, code) in [
            (ffi::SQLITE_IOERR, ErrorCode::ServiceUnavailable),
            (ffi::SQLITE_IOERR_FSYNC, ErrorCode::ServiceUnavailable),
            (ffi::SQLITE_FULL, ErrorCode::ServiceUnavailable),
            (ffi::SQLITE_READONLY, ErrorCode::AuthFailed),
            (ffi::SQLITE_READONLY_DIRECTORY, ErrorCode::AuthFailed),
            (ffi::SQLITE_PERM, ErrorCode::AuthFailed),
            (ffi::SQLITE_CANTOPEN, ErrorCode::InvalidArgument),
            (ffi::SQLITE_NOTADB, ErrorCode::InvalidArgument),
            (ffi::SQLITE_BUSY, ErrorCode::NetworkTimeout),
            (ffi::SQLITE_BUSY_RECOVERY, ErrorCode::NetworkTimeout),
            (ffi::SQLITE_INTERRUPT, ErrorCode::NetworkTimeout),
            (ffi::SQLITE_CORRUPT, ErrorCode::Internal),
            (ffi::SQLITE_CONSTRAINT, ErrorCode::Internal),
            (ffi::SQLITE_ERROR, ErrorCode::Internal),
        ] {
            let error = rusqlite::Error::SqliteFailure(
                ffi::Error::new(sqlite),
                Some("a secret in SQLite's message".to_owned()),
            );
            let error = Failure::from(error).into_error(&limits);
            assert_eq!(error.code(), code, "{sqlite}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn an_interrupt_by_cancel_is_aborted() {
        let token = crate::CancelToken::new();
        let limits = Limits::enter(
            Owner::current(),
            Duration::from_secs(5),
            &Call::new().cancelled_by(&token),
        )
        .expect("time");
        token.cancel();
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_INTERRUPT), None);
        assert_eq!(
            Failure::from(error).into_error(&limits).code(),
            ErrorCode::Aborted
        );
    }
}
