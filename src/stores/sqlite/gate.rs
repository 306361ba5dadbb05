//! The gate of SQLite: a table with the newest fence per resource, whose triggers refuse a former holder. It uses `error`, `verbs`,
//! `backend` and `types`.
//!
//! Run [`SETUP`] once on the database that has your data, or [`Client::setup_fence_gate`](crate::Client::setup_fence_gate) if that is
//! the file of the locks too. Then begin every write with [`PASS`], in the same transaction.
//!
//! ```
//! use rusqlite::{Connection, TransactionBehavior::Immediate};
//! use syncguard::gate::sqlite;
//!
//! let mut db = Connection::open_in_memory()?;
//! db.execute_batch(sqlite::SETUP)?;
//! db.execute_batch("CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (0)")?;
//! let mut deposit = |fence: i64, amount: i64| -> rusqlite::Result<()> {
//!     let transaction = db.transaction_with_behavior(Immediate)?;
//!     transaction.execute(sqlite::PASS, ("account", fence))?;
//!     transaction.execute("UPDATE account SET balance = balance + ?1", [amount])?;
//!     transaction.commit()
//! };
//! deposit(33, 100)?;
//! deposit(34, 10)?;
//! let late = deposit(33, 1000).expect_err("a former holder");
//! assert!(late.to_string().contains(sqlite::STALE));
//! # Ok::<(), rusqlite::Error>(())
//! ```

use rusqlite::{Connection, OptionalExtension};

use super::error::Failure;
use super::verbs::SqliteVerbs;
use crate::backend::call::Call;
use crate::backend::gate::{GateStore, check_resource};
use crate::backend::pool::Rank;
use crate::types::error::LockError;
use crate::types::fence::Fence;

/// Creates the table and its triggers; may be repeated.
pub const SETUP: &str = include_str!("gate.sql");
const SEPARATOR: &str = "----\n";
const TABLE: &str = "syncguard_fence_gates";

/// Passes the gate of the resource ?1 with the fence ?2. An error means that nothing was changed: the whole transaction is rolled back.
///
/// Stop at an error. The connection is in autocommit then: a program that goes on commits each further statement by itself, behind no gate.
/// The message is "no such table: syncguard_fence_gates" where the gate is missing: run [`SETUP`], or
/// [`setup_fence_gate`](crate::Client::setup_fence_gate) on a client of the file.
pub const PASS: &str = "INSERT INTO syncguard_fence_gates (resource, fence) VALUES (?1, ?2) \
     ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence";
/// The newest fence of the resource ?1.
pub const NEWEST: &str = "SELECT fence FROM syncguard_fence_gates WHERE resource = ?1";
/// Forgets the newest fence of the resource ?1 if it is ?2.
pub const RESET: &str = "DELETE FROM syncguard_fence_gates WHERE resource = ?1 AND fence = ?2";
/// What the message to a former holder holds.
pub const STALE: &str = "syncguard: refused";

impl GateStore for SqliteVerbs {
    fn setup_fence_gate(&self, call: &Call<'_>) -> Result<(), LockError> {
        self.file.write(Rank::Ordinary, call, |sqlite, _| {
            sqlite.execute_batch(SETUP).map_err(|e| match e {
                // A view or an index has the table's name.
                e if e.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown) => {
                    Failure::from(foreign())
                }
                e => e.into(),
            })?;
            check(sqlite)
        })
    }

    fn newest_fence(&self, resource: &str, call: &Call<'_>) -> Result<Option<Fence>, LockError> {
        check_resource(resource)?;
        let limits = self.file.limits(call)?;
        let found = self
            .file
            .with_connection(Rank::Ordinary, &limits, |connection| {
                connection.when_free(|| {
                    let row = connection
                        .sqlite
                        .query_row(NEWEST, [resource], |row| row.get::<_, i64>(0));
                    row.optional().map_err(missing)
                })
            })?;
        match found.map(Fence::try_from).transpose() {
            Ok(fence) => Ok(fence),
            Err(_) => Err(LockError::internal(
                "the row of the gate holds something else than a fence",
            )),
        }
    }

    fn reset_fence_gate(
        &self,
        resource: &str,
        seen: Fence,
        call: &Call<'_>,
    ) -> Result<bool, LockError> {
        check_resource(resource)?;
        self.file.write(Rank::Ordinary, call, |sqlite, _| {
            let gone = sqlite.execute(RESET, (resource, i64::from(seen)));
            Ok(gone.map_err(missing)? == 1)
        })
    }
}

/// A gate that another program made under the same names would let former holders pass.
fn check(sqlite: &Connection) -> Result<(), Failure> {
    let mut find = sqlite.prepare(
        "SELECT sql FROM sqlite_schema WHERE tbl_name = ?1 AND sql IS NOT NULL ORDER BY name",
    )?;
    let found: Vec<String> = find
        .query_map([TABLE], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    // As SQLite keeps them: from the first word to the last, without the words that let them be repeated.
    let plain = |text: &str| -> String {
        let text = text.replace("IF NOT EXISTS ", "");
        let lines = text.lines().filter(|line| !line.starts_with("--"));
        let text: Vec<_> = lines.collect();
        text.join("\n").trim().trim_end_matches(';').to_owned()
    };
    let mut expected: Vec<_> = SETUP.split(SEPARATOR).map(plain).collect();
    let mut found: Vec<_> = found.iter().map(|text| plain(text)).collect();
    expected.sort();
    found.sort();
    if found == expected {
        Ok(())
    } else {
        Err(foreign().into())
    }
}

fn foreign() -> LockError {
    LockError::invalid(format!(
        "the file has another table {TABLE} than that of the fence gate; drop it, then call setup_fence_gate()"
    ))
}

fn missing(error: rusqlite::Error) -> Failure {
    let text = error.to_string();
    if text.contains("no such table") && text.contains(TABLE) {
        return LockError::invalid(
            "the fence gate is missing in this file; call setup_fence_gate() once",
        )
        .into();
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::gate::MAX_RESOURCE_BYTES;
    use crate::types::fence::MAX_FENCE;

    #[test]
    fn the_limits_are_those_of_the_library() {
        assert!(SETUP.contains(&format!("BETWEEN 1 AND {MAX_RESOURCE_BYTES};")));
        assert!(SETUP.contains(&format!("BETWEEN 1 AND {MAX_FENCE};")));
        assert!(SETUP.contains(STALE) && SETUP.contains(TABLE));
    }
}
