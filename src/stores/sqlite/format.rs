//! What the SQLite store creates and sends. It uses `sql` and `setup`.
//!
//! For tools that read the file, and for tests that write rows. A row is alive by the machine's boot-time clock: the columns `boot_id`,
//! `written_boot_ms` and `expires_boot_ms` decide, and those of the wall clock are only shown (`docs/adr/005-sqlite.md`). A program that writes
//! keeps the rules of that page too: the same clock, `BEGIN IMMEDIATE`, WAL and `synchronous=FULL`.
//!
//! ```
//! use syncguard::format::sqlite;
//!
//! assert!(sqlite::SCHEMA.contains("CREATE TABLE IF NOT EXISTS syncguard_locks"));
//! assert!(sqlite::FIND_BY_KEY.ends_with("WHERE key = ?1"));
//! ```

pub use super::setup::SCHEMA;
pub use super::sql::{
    DELETE, EXTEND, FIND_BY_ID, FIND_BY_KEY, GRANT, GRANT_HELD, LIST_AFTER, LIST_FROM, READ_FENCE,
    WRITE_FENCE,
};
