//! A connection: how it is opened and how it waits.

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
use super::url::{Target, beside};
use crate::backend::limits::Limits;
use crate::runtime::cancel::CancelToken;
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::types::error::LockError;
use crate::types::random::random_bits;

/// The longest pause of a waiter. It does not grow with the wait: whoever waits longest must not look least often, which is
/// how SQLite's own busy timeout starves every second process.
const PAUSE: Duration = Duration::from_millis(2);
/// How many steps of its machine SQLite makes between two looks at the deadline.
const STEPS: std::ffi::c_int = 2000;

/// By when, and until whose cancel, the call that uses a connection may wait. SQLite's progress handler looks here.
#[derive(Debug, Default)]
struct Patience(Mutex<Option<(Instant, Option<CancelToken>)>>);

impl Patience {
    fn begin(&self, limits: &Limits<'_>) {
        *self.0.lock() = Some((limits.deadline(), limits.token().cloned()));
    }

    fn end(&self) {
        *self.0.lock() = None;
    }

    /// Pauses for a short random time; false if there is none left. The first pauses are shorter.
    fn wait(&self, tries: i32) -> bool {
        let Some((deadline, cancel)) = self.0.lock().clone() else {
            return false;
        };
        let now = Instant::now();
        let cancel = cancel.unwrap_or_default();
        if now >= deadline || cancel.is_cancelled() {
            return false;
        }
        let most = if tries < 2 { PAUSE / 8 } else { PAUSE };
        let pause = most.mul_f64(random_bits() as f64 / u64::MAX as f64);
        cancel.sleep_until(Some(deadline.min(now + pause)));
        !cancel.is_cancelled()
    }

    fn is_over(&self) -> bool {
        match &*self.0.lock() {
            Some((deadline, cancel)) => {
                Instant::now() >= *deadline
                    || cancel.as_ref().is_some_and(CancelToken::is_cancelled)
            }
            None => false,
        }
    }
}

/// An open, checked connection. Never closed in a forked child.
pub(super) struct Handle {
    pub(super) sqlite: Connection,
    patience: Arc<Patience>,
    file: FileId,
    /// Dropped last, after SQLite has closed the connection.
    _counted: OpenConnection,
}

impl Handle {
    /// Opens the database that `target` names, and makes it, its log and its tables where they are missing.
    pub(super) fn open(
        owner: Owner,
        target: &Target,
        limits: &Limits<'_>,
    ) -> Result<Self, Failure> {
        let counted = OpenConnection::count(owner)?;
        let patience = Arc::new(Patience::default());
        patience.begin(limits);
        // Where this fails, SQLite fails too, and knows the words for it.
        let path = files::real_path(&target.path).unwrap_or_else(|_| target.path.clone());
        refuse_pipes(&path)?;
        let _ = files::create(&counted, &path, target.mode);
        let before = FileId::of(&path).ok();
        // Not SQLITE_OPEN_CREATE: its mode would be the umask's.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut sqlite = Connection::open_with_flags(&path, flags)?;
        // Every statement that may find the file busy is repeated by `when_free`.
        sqlite.busy_timeout(Duration::ZERO)?;
        let bounds = Arc::clone(&patience);
        sqlite
            .progress_handler(STEPS, Some(move || bounds.is_over()))
            .into_result()?;
        // The last one to close would write the whole log back and delete it, and nothing bounds the time of a close.
        sqlite.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        when_free(&patience, || setup::prepare(&sqlite))?;
        // By the name that every call looks at. A file that was put there in the meantime is not the one that was opened.
        let file = FileId::of(&target.path).map_err(vanished)?;
        if before != Some(file) {
            return Err(vanished(std::io::ErrorKind::NotFound.into()).into());
        }
        Ok(Self {
            sqlite,
            patience,
            file,
            _counted: counted,
        })
    }

    pub(super) fn file(&self) -> FileId {
        self.file
    }

    /// Begins a call.
    pub(super) fn begin_call(&self, limits: &Limits<'_>) {
        self.patience.begin(limits);
    }

    /// Ends it.
    pub(super) fn end_call(&self) {
        self.patience.end();
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
        when_free(&self.patience, work)
    }
}

fn when_free<T>(
    patience: &Patience,
    mut work: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut tries = 0;
    loop {
        match work() {
            Err(e) if e.is_busy() && patience.wait(tries) => tries = tries.saturating_add(1),
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
