//! Fuzz targets for everything that a server or a caller feeds the library, and a harness on stable Rust that runs them.
//!
//! A target is a function of bytes. It panics if a promise is broken, and answers a number that stands for what happened. `cargo fuzz`
//! runs the same functions with a compiler that tells which code was reached.

pub mod allocation;
pub mod engine;
mod mutate;
pub mod page;
pub mod seeds;
mod server;
pub mod targets;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What a file of the library that is compiled here finds under `crate::types`.
mod types {
    pub(crate) mod error {
        pub(crate) use syncguard::{ErrorCode, LockError};
    }
}

/// Stands where a password stands. It is no word of any message.
pub const SECRET: &str = "hunter2zq";

/// A number for what a target saw. Inputs with a new one are kept and changed further.
pub(crate) fn outcome(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// What an error says, without its numbers: two that differ only there are one outcome.
pub(crate) fn gist(error: &syncguard::LockError) -> u64 {
    let text: String = error
        .message()
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .collect();
    outcome((error.code().as_str(), text, error.may_have_applied()))
}

/// Fails if an error repeats one of `secrets`, also in its causes.
#[track_caller]
pub(crate) fn says_nothing(error: &syncguard::LockError, secrets: &[&str]) {
    let mut said = format!("{error} {error:?}");
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        said.push_str(&format!(" {inner} {inner:?}"));
        cause = inner.source();
    }
    for secret in secrets {
        assert!(!said.contains(secret), "an error repeats a secret: {said}");
    }
}

/// A folder of this process for sockets and databases, in memory where the system has such a place.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        // What a killed process has left.
        for entry in base.read_dir().into_iter().flatten().flatten() {
            let name = entry.file_name();
            let id = name
                .to_str()
                .and_then(|name| name.strip_prefix(FOLDER_PREFIX));
            if id.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let own = base.join(format!("{FOLDER_PREFIX}{}", std::process::id()));
        std::fs::create_dir_all(&own).expect("a folder can be made");
        own
    })
}

const FOLDER_PREFIX: &str = "syncguard-fuzz-";

/// Removes what the targets have left in the file system. No target may run after it.
pub fn clean_up() {
    let _ = std::fs::remove_dir_all(folder());
}
