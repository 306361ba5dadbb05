//! The embedded store: one SQLite file, for programs on one machine. No server, the same contract. It uses `backend`, `options`,
//! `runtime`, `types` and `net::uri`.

mod connection;
mod error;
mod files;
mod fork;
pub mod format;
pub mod gate;
mod lease_end;
mod session;
mod setup;
mod sql;
mod transaction;
mod url;
mod verbs;
mod volume;
mod watch;

use std::fmt;

use self::url::SqliteUrl;
use self::verbs::SqliteVerbs;
use self::watch::WalPoller;
use crate::backend::call::Call;
use crate::backend::gate::GateStore;
use crate::backend::list::{ListOptions, ListPage};
use crate::backend::{
    AcquireOutcome, Backend, Capabilities, ExtendOutcome, Freed, LookupBy, ReleaseOutcome, Watch,
};
use crate::options::client::ClientOptions;
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

/// Locks in an SQLite file: `sqlite:PATH`.
///
/// For the processes of one machine that share a local disk, and for trying the library without a server; programs on several
/// machines need a shared store. Never on a network file system.
///
/// The file is made at first use, with `-wal` and `-shm` beside it that belong to it and stay. Every grant is on the disk
/// before it is answered. Leases are counted on the machine's boot-time clock, also between containers on one machine:
/// setting the wall clock neither frees nor freezes a lock. A reboot frees all of them (their holders are gone), most at once
/// and each after its TTL at the latest, and never a fence.
///
/// New files can be opened by their owner alone (0600), whatever the umask; `sqlite:PATH?mode=0660` asks for another mode.
/// Files that exist keep theirs, and [`check`](Backend::check) warns about wider ones.
///
/// In a forked child an inherited backend answers an error. A new one works if no `sqlite:` store was open at the fork, in this
/// process or one it was forked from; otherwise its calls answer an error too, and only a new program, by `exec`, can use one.
///
/// ```
/// use syncguard::{Client, ClientOptions, SqliteBackend};
///
/// # let dir = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}", dir.path().join("locks.db").display());
/// let client = Client::from_backend(SqliteBackend::open(&url, &ClientOptions::new())?);
/// client.lock("nightly")?.release()?.expect_released();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteBackend {
    verbs: SqliteVerbs,
    poller: WalPoller,
}

impl SqliteBackend {
    /// The store that `url` names. Does no I/O: the file is opened, and made, by the first call.
    ///
    /// Uses [`ClientOptions::operation_timeout`] and [`ClientOptions::pool_size`]: how many calls use the
    /// file at a time, one of them a renewal or a release; further ones wait, within their own timeout. Of those that write it is
    /// six at the most, in the order in which they came: SQLite has one writer.
    ///
    /// ```
    /// use syncguard::{ClientOptions, SqliteBackend};
    ///
    /// let store = SqliteBackend::open("sqlite:/var/lib/app/locks.db", &ClientOptions::new())?;
    /// # drop(store);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a URL that names no file, or bad options: correct what the message
    /// names.
    pub fn open(url: &str, options: &ClientOptions) -> Result<Self, LockError> {
        options.checked()?;
        let owner = Owner::current();
        let url = SqliteUrl::parse(url)?;
        Ok(Self {
            poller: WalPoller::new(owner, &url.path),
            verbs: SqliteVerbs::new(owner, url, options),
        })
    }
}

impl Backend for SqliteBackend {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        self.verbs.acquire(key, lock_id, ttl, call)
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        self.verbs.release(lock_id, call)
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        self.verbs.extend(lock_id, ttl, call)
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        self.verbs.is_locked(key, call)
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        self.verbs.find(by, call)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("sqlite").with_fence_source(self.verbs.fences)
    }

    fn gate(&self) -> Option<&dyn GateStore> {
        Some(&self.verbs)
    }

    /// A thread looks for changes of the file while there is a waiter.
    fn watch(&self, _key: &Key, freed: Freed) -> Option<Watch> {
        self.poller.watch(freed)
    }

    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        self.verbs.check(call)
    }

    fn version(&self, _call: &Call<'_>) -> Result<Option<String>, LockError> {
        Ok(Some(rusqlite::version().to_owned()))
    }

    fn setup_schema(&self, call: &Call<'_>) -> Result<(), LockError> {
        self.verbs.setup_schema(call)
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        self.verbs.purge_expired(limit, call)
    }

    fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        self.verbs.list(options, call)
    }
}

impl fmt::Debug for SqliteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBackend")
            .field("path", &self.verbs.file.url().path)
            .finish_non_exhaustive()
    }
}
