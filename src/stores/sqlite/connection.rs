//! One connection: how it is opened and how it waits while the file is busy. It uses `files`, `setup` and `fork`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::Failure;
use super::files::{self, FileId};
use super::fork::OpenConnection;
use super::setup;
use super::sql;
use super::url::{SqliteUrl, beside};
use crate::backend::limits::Limits;
use crate::runtime::cancel::CancelToken;
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::types::error::LockError;
use crate::types::random::random_bits;

/// The longest pause of a caller that finds the file busy. It does not grow with the wait: the caller that waits longest must not
/// try least often, which is how SQLite's own busy timeout starves every second process.
const MAX_PAUSE: Duration = Duration::from_millis(2);
/// After how many steps of its machine SQLite asks whether the call is over.
const STEPS_PER_CHECK: std::ffi::c_int = 2000;

/// How long the call that uses a connection may wait.
#[derive(Clone, Debug)]
struct CallBounds {
    deadline: Instant,
    cancel: Option<CancelToken>,
}

impl CallBounds {
    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
            || self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }
}

/// The bounds of the call under way, if there is one. SQLite's progress handler looks here.
#[derive(Debug, Default)]
struct CurrentCall {
    bounds: Mutex<Option<CallBounds>>,
}

impl CurrentCall {
    fn begin(&self, limits: &Limits<'_>) {
        *self.bounds.lock() = Some(CallBounds {
            deadline: limits.deadline(),
            cancel: limits.token().cloned(),
        });
    }

    fn end(&self) {
        *self.bounds.lock() = None;
    }

    /// Pauses for a short random time; false if the call has no time left. The first pauses are shorter.
    fn pause(&self, tries: i32) -> bool {
        let Some(bounds) = self.bounds.lock().clone() else {
            return false;
        };
        if bounds.is_over() {
            return false;
        }
        let longest = if tries < 2 { MAX_PAUSE / 8 } else { MAX_PAUSE };
        let pause = longest.mul_f64(random_bits() as f64 / u64::MAX as f64);
        let cancel = bounds.cancel.unwrap_or_default();
        cancel.sleep_until(Some(bounds.deadline.min(Instant::now() + pause)));
        !cancel.is_cancelled()
    }

    fn is_over(&self) -> bool {
        self.bounds.lock().as_ref().is_some_and(CallBounds::is_over)
    }
}

/// An open, checked connection. Never closed in a forked child.
pub(super) struct SqliteConnection {
    pub(super) sqlite: Connection,
    call: Arc<CurrentCall>,
    file: FileId,
    /// Dropped last, after SQLite has closed the connection.
    _counted: OpenConnection,
}

impl SqliteConnection {
    /// Opens the database that `url` names, and makes it, its log and its tables where they are missing.
    pub(super) fn open(
        owner: Owner,
        url: &SqliteUrl,
        limits: &Limits<'_>,
    ) -> Result<Self, Failure> {
        let counted = OpenConnection::count(owner)?;
        let call = Arc::new(CurrentCall::default());
        call.begin(limits);
        // Where this fails, SQLite fails too, and its error says more.
        let path = files::real_path(&url.path).unwrap_or_else(|_| url.path.clone());
        refuse_pipes(&path)?;
        let _ = files::create(&counted, &path, url.mode);
        let before = FileId::of(&path).ok();
        // Not SQLITE_OPEN_CREATE: its mode would be the umask's.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut sqlite = Connection::open_with_flags(&path, flags)?;
        // Every statement that may find the file busy is repeated by `when_free`.
        sqlite.busy_timeout(Duration::ZERO)?;
        let bounds = Arc::clone(&call);
        sqlite
            .progress_handler(STEPS_PER_CHECK, Some(move || bounds.is_over()))
            .into_result()?;
        // The last one to close would write the whole log back and delete it, and nothing bounds the time of a close.
        sqlite.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        when_free(&call, || setup::prepare(&sqlite))?;
        // By the name that every call looks at. A file that was put there in the meantime is not the one that was opened.
        let file = FileId::of(&url.path).map_err(vanished)?;
        if before != Some(file) {
            return Err(vanished(std::io::ErrorKind::NotFound.into()).into());
        }
        Ok(Self {
            sqlite,
            call,
            file,
            _counted: counted,
        })
    }

    pub(super) fn file(&self) -> FileId {
        self.file
    }

    /// Begins a call.
    pub(super) fn begin_call(&self, limits: &Limits<'_>) {
        self.call.begin(limits);
    }

    /// Ends it.
    pub(super) fn end_call(&self) {
        self.call.end();
    }

    /// Takes the right to write, waiting for it.
    pub(super) fn begin(&self) -> Result<(), Failure> {
        self.when_free(|| {
            self.sqlite.execute(sql::BEGIN, [])?;
            Ok(())
        })
    }

    /// Repeats `work` while another connection is in its way. SQLite answers "busy" at once: its own waiting is switched off.
    pub(super) fn when_free<T>(
        &self,
        work: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        when_free(&self.call, work)
    }
}

fn when_free<T>(
    call: &CurrentCall,
    mut work: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut tries = 0;
    loop {
        match work() {
            Err(e) if e.is_busy() && call.pause(tries) => tries = tries.saturating_add(1),
            done => return done,
        }
    }
}

/// SQLite opens for reading what it may not write, and to open a pipe without a writer for reading has no end.
fn refuse_pipes(path: &Path) -> Result<(), LockError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let file = std::fs::metadata(beside(path, suffix));
        if file.is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Err(LockError::invalid(format!(
                "the lock file{suffix} is a pipe, a socket or a device; sqlite: needs the path of a regular file"
            ))
            .nothing_applied());
        }
    }
    Ok(())
}

/// What setting a handler answers: nothing in older versions of rusqlite, a result in newer ones.
trait IntoResult {
    fn into_result(self) -> rusqlite::Result<()>;
}

impl IntoResult for () {
    fn into_result(self) -> rusqlite::Result<()> {
        Ok(())
    }
}

impl IntoResult for rusqlite::Result<()> {
    fn into_result(self) -> rusqlite::Result<()> {
        self
    }
}

fn vanished(e: std::io::Error) -> LockError {
    LockError::unavailable("the lock file was removed or replaced while it was being opened")
        .with_source(e)
        .nothing_applied()
}
