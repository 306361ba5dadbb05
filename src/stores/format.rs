//! What the stores store and send: the scripts of Redis, the statements of Postgres and SQLite, names, and the codec of a stored
//! lock. It uses `postgres::format`, `redis::format`, `sqlite::format` and `backend`.
//!
//! For a tool of an operator or a client of another kind that shares locks with this library. These are the texts that the library
//! itself sends. `docs/wire-format.md` explains them, and a test compares the page with this module.
//!
//! ```
//! use syncguard::format::{self, KeySpace};
//! use syncguard::Key;
//!
//! assert_eq!(format::VERSION, 1);
//! let names = KeySpace::redis("syncguard")?;
//! assert_eq!(names.lock(&Key::new("invoice:42")?)?, "syncguard:invoice:42");
//! # Ok::<(), syncguard::LockError>(())
//! ```

pub use crate::backend::keyspace::KeySpace;
pub use crate::types::liveness::CLEANUP_GUARD_MS;

#[cfg(feature = "postgres")]
pub use super::postgres::format as postgres;
#[cfg(feature = "redis")]
pub use super::redis::format as redis;
#[cfg(feature = "sqlite")]
pub use super::sqlite::format as sqlite;

/// The version of what is stored. A program that was made for another version must not share locks with this one. Texts of scripts
/// and statements may change without it, as long as they store the same.
pub const VERSION: u32 = 1;
