//! Creates the tables at first use, and refuses tables of another program under their names. It uses `error` and `types`.

use rusqlite::Connection;

use super::error::Failure;
use crate::types::error::LockError;

/// Creates the tables and the indexes.
pub const SCHEMA: &str = include_str!("schema.sql");

const LOCKS: &str = "syncguard_locks";
const FENCES: &str = "syncguard_fence_counters";
/// The columns of a table in order, and which of them are its primary key.
const LOCK_COLUMNS: &str = "key*,lock_id,expires_at_ms,acquired_at_ms,fence,user_key,boot_id,expires_boot_ms,written_boot_ms,holder";
/// The same before there was a text of the holder. Programs of that version refuse a file with more columns, so the column is
/// added by [`setup_schema`](crate::Backend::setup_schema) alone.
const FORMER_LOCK_COLUMNS: &str = "key*,lock_id,expires_at_ms,acquired_at_ms,fence,user_key,boot_id,expires_boot_ms,written_boot_ms";
const ADD_HOLDER: &str = "ALTER TABLE syncguard_locks ADD COLUMN holder TEXT";
/// The same in files of still older versions; the missing column is added at first use.
const OLDER_LOCK_COLUMNS: &str =
    "key*,lock_id,expires_at_ms,acquired_at_ms,fence,user_key,boot_id,expires_boot_ms";
const ADD_COLUMN: &str = "ALTER TABLE syncguard_locks ADD COLUMN written_boot_ms INTEGER";
const FENCE_COLUMNS: &str = "fence_key*,fence";

/// How many pages a connection keeps, in place of two megabytes: what a call looks at, and as many as SQLite allocates in one piece.
/// Another connection's write makes all of them stale, so that more are read anew each time, and scatter over the heap.
const CACHED_PAGES: u32 = 20;

/// Makes a fresh connection ready: log, durability, tables. May answer "busy" at once; may be repeated.
pub(super) fn prepare(sqlite: &Connection) -> Result<(), Failure> {
    // FULL: the log reaches the disk at every commit. With NORMAL a power loss may take back a fence that was handed out.
    // The two `fullfsync` matter on macOS alone, whose plain fsync stops at the drive's cache.
    sqlite.execute_batch(&format!(
        "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; PRAGMA trusted_schema = OFF; \
         PRAGMA cache_size = {CACHED_PAGES};",
    ))?;
    use_log(sqlite)?;
    if !is_complete(sqlite)? {
        create(sqlite, false)?;
    }
    Ok(())
}

/// Creates what is missing, the column for the holder's text if `add_holder`, and checks the whole.
pub(super) fn create(sqlite: &Connection, add_holder: bool) -> Result<(), Failure> {
    sqlite.execute_batch("BEGIN IMMEDIATE")?;
    let done = create_inside(sqlite, add_holder).and_then(|()| Ok(sqlite.execute_batch("COMMIT")?));
    if done.is_err() && !sqlite.is_autocommit() {
        // The error to tell is the first one; a connection that cannot even roll back is closed.
        let _ = sqlite.execute_batch("ROLLBACK");
    }
    done
}

fn create_inside(sqlite: &Connection, add_holder: bool) -> Result<(), Failure> {
    // Another process may have been faster.
    if !is_complete(sqlite)? {
        if columns(sqlite, LOCKS)?.as_deref() == Some(OLDER_LOCK_COLUMNS) {
            sqlite.execute_batch(ADD_COLUMN)?;
        }
        sqlite.execute_batch(SCHEMA)?;
    }
    if add_holder && columns(sqlite, LOCKS)?.as_deref() == Some(FORMER_LOCK_COLUMNS) {
        sqlite.execute_batch(ADD_HOLDER)?;
    }
    if is_complete(sqlite)? {
        Ok(())
    } else {
        Err(foreign(LOCKS, "lacks its indexes").into())
    }
}

fn use_log(sqlite: &Connection) -> Result<(), Failure> {
    let mode = |sql: &str| sqlite.query_row(sql, [], |row| row.get::<_, String>(0));
    if mode("PRAGMA journal_mode")? == "wal" {
        return Ok(());
    }
    let others: i64 = sqlite.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE tbl_name NOT IN (?1, ?2)",
        [LOCKS, FENCES],
        |row| row.get(0),
    )?;
    if others > 0 {
        return Err(LockError::invalid(
            "the file is the database of another application and does not use a write-ahead log; give the locks a file of their own",
        )
        .into());
    }
    match mode("PRAGMA journal_mode = WAL")?.as_str() {
        "wal" => Ok(()),
        _ => Err(LockError::invalid(
            "the file system of the lock file cannot share memory between processes, which SQLite's write-ahead log needs",
        )
        .into()),
    }
}

/// Whether all our tables and indexes are there.
///
/// # Errors
/// `InvalidArgument` if something else has one of our names, or the counters are gone while locks are there.
pub(super) fn is_complete(sqlite: &Connection) -> Result<bool, Failure> {
    let found = columns(sqlite, LOCKS)?;
    let older = found.as_deref() == Some(OLDER_LOCK_COLUMNS);
    let former = found.as_deref() == Some(FORMER_LOCK_COLUMNS);
    let locks = older || former || is_ours(LOCKS, found, LOCK_COLUMNS)?;
    let fences = is_ours(FENCES, columns(sqlite, FENCES)?, FENCE_COLUMNS)?;
    if locks && !fences {
        return Err(foreign(
            FENCES,
            "is missing; counters that started anew would repeat fences",
        )
        .into());
    }
    Ok(locks
        && !older
        && fences
        && has_index(sqlite, "lock_id", true)?
        && has_index(sqlite, "boot_id,expires_boot_ms", false)?)
}

/// The columns of a plain table without triggers; `None` if nothing has its name.
fn columns(sqlite: &Connection, table: &str) -> Result<Option<String>, Failure> {
    let mut find = sqlite.prepare(
        "SELECT type = 'table' AND name = ?1 COLLATE NOCASE FROM sqlite_schema
         WHERE name = ?1 COLLATE NOCASE OR (type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE)
         ORDER BY 1 LIMIT 2",
    )?;
    let ours: Vec<bool> = find
        .query_map([table], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    match ours.as_slice() {
        [] => return Ok(None),
        [true] => {}
        _ => return Err(foreign(table, "is not a plain table without triggers").into()),
    }
    Ok(sqlite
        .prepare(
            "SELECT group_concat(name || iif(pk, '*', ''), ',') FROM (SELECT name, pk FROM pragma_table_info(?1) ORDER BY cid)",
        )?
        .query_row([table], |row| row.get(0))?)
}

fn is_ours(table: &str, found: Option<String>, expected: &str) -> Result<bool, Failure> {
    match found {
        None => Ok(false),
        Some(found) if found == expected => Ok(true),
        Some(_) => Err(foreign(table, "has other columns than it should").into()),
    }
}

fn has_index(sqlite: &Connection, columns: &str, unique: bool) -> Result<bool, Failure> {
    Ok(sqlite
        .prepare(
            "SELECT EXISTS (
                 SELECT 1 FROM pragma_index_list(?1) AS l
                 WHERE l.partial = 0 AND l.\"unique\" >= ?3 AND ?2 =
                     (SELECT group_concat(name, ',') FROM (SELECT name FROM pragma_index_info(l.name) ORDER BY seqno)))",
        )?
        .query_row((LOCKS, columns, unique), |row| row.get(0))?)
}

fn foreign(table: &str, what: &str) -> LockError {
    LockError::invalid(format!(
        "the file is not a lock file of this version of syncguard: its table {table} {what}; give the locks a file of their own"
    ))
}
