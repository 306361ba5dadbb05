//! Tests what bad input and abuse get: one test per case, named after its number in the list of cases.

mod holding;
mod host;
mod ids;
mod keys;
mod limits;
mod places;
mod stored;
#[path = "../support/mod.rs"]
mod support;
mod times;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use support::kit::{TTL, counter, kit};
use support::process;
use syncguard::testkit::MemoryBackend;
use syncguard::{
    Backend, Call, Client, ClientOptions, ErrorCode, Guard, Key, LockError, LockOptions,
};

/// Not a test of its own: what the other processes run.
#[test]
fn stage() {
    process::play(&[
        ("fork", host::fork_stage),
        ("threads", limits::threads_stage),
        ("descriptors", limits::descriptors_stage),
        ("signals", host::signals_stage),
        ("deaf", host::deaf_stage),
        ("exit", host::exit_stage),
        ("abort", host::abort_stage),
        ("static", host::static_stage),
        ("wall clock", host::wall_clock_stage),
        ("odd years", host::odd_years_stage),
    ]);
}

/// A store to abuse.
struct Store {
    kind: &'static str,
    client: Client,
    /// The lock file's folder, if there is one.
    dir: Option<tempfile::TempDir>,
}

impl Store {
    fn memory() -> Self {
        Self {
            kind: "memory",
            client: Client::from_backend(MemoryBackend::new()),
            dir: None,
        }
    }

    fn sqlite() -> Self {
        let dir = tempfile::tempdir().expect("a temp dir");
        Self {
            kind: "sqlite",
            client: open(dir.path()),
            dir: Some(dir),
        }
    }

    fn file(&self) -> PathBuf {
        lock_file(self.dir.as_ref().expect("a store in a file").path())
    }
}

fn stores() -> [Store; 2] {
    [Store::memory(), Store::sqlite()]
}

fn lock_file(dir: &Path) -> PathBuf {
    dir.join("locks.db")
}

/// A client of the lock file in `dir`, patient enough for a busy machine.
fn open(dir: &Path) -> Client {
    let options = ClientOptions::new()
        .operation_timeout(support::WAIT_LIMIT)
        .dispose_timeout(support::WAIT_LIMIT);
    Client::open_with(&format!("sqlite:{}", lock_file(dir).display()), &options)
        .expect("a legal URL")
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a legal key")
}

#[track_caller]
fn is_locked(client: &Client, name: &str) -> bool {
    client
        .is_locked_with(key(name), &Call::new())
        .expect("an answer")
}

/// One attempt that must succeed.
#[track_caller]
fn take(client: &Client, name: &str) -> Guard {
    client
        .try_lock(name)
        .expect("an answer")
        .expect("a free lock")
}

#[track_caller]
fn refused<T>(answer: Result<T, LockError>) -> LockError {
    let Err(error) = answer else {
        panic!("was accepted")
    };
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(!error.may_have_applied());
    error
}
