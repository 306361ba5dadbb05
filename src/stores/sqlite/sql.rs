//! Every statement of the verbs, and what a row of theirs means. It uses `lease_end` and `types`.

use rusqlite::Row;
use rusqlite::types::ValueRef;
use std::time::Duration;

use super::lease_end::{Now, StoredLease, left_ms};
use crate::types::error::LockError;
use crate::types::fence::Fence;
use crate::types::holder_text::HolderText;
use crate::types::key::MAX_KEY_BYTES;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

/// Takes the right to write first of all: a transaction that began by reading could not be sure to get it later.
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";

/// The row of a key (?1). Behind the columns that it names stands the whole row: files of older versions have no column `holder`.
pub const FIND_BY_KEY: &str = "SELECT boot_id, expires_boot_ms, lock_id, fence, expires_at_ms, acquired_at_ms, user_key, key, written_boot_ms, t.* \
     FROM syncguard_locks AS t WHERE key = ?1";
/// The row of a lock id (?1).
pub const FIND_BY_ID: &str = "SELECT boot_id, expires_boot_ms, lock_id, fence, expires_at_ms, acquired_at_ms, user_key, key, written_boot_ms, t.* \
     FROM syncguard_locks AS t WHERE lock_id = ?1";

/// At most ?2 rows from the key ?1 on, in the order of keys.
pub const LIST_FROM: &str = "SELECT boot_id, expires_boot_ms, lock_id, fence, expires_at_ms, acquired_at_ms, user_key, key, written_boot_ms, t.* \
     FROM syncguard_locks AS t WHERE key >= ?1 ORDER BY key LIMIT ?2";
/// At most ?2 rows behind the key ?1, in the order of keys.
pub const LIST_AFTER: &str = "SELECT boot_id, expires_boot_ms, lock_id, fence, expires_at_ms, acquired_at_ms, user_key, key, written_boot_ms, t.* \
     FROM syncguard_locks AS t WHERE key > ?1 ORDER BY key LIMIT ?2";

/// The counter under a fence key (?1).
pub const READ_FENCE: &str = "SELECT fence FROM syncguard_fence_counters WHERE fence_key = ?1";
/// Sets the counter under a fence key (?1) to ?2.
pub const WRITE_FENCE: &str = "INSERT INTO syncguard_fence_counters (fence_key, fence) VALUES (?1, ?2) \
     ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence";

/// Stores a granted lock; the parameters are the columns in the order that the statement names. Only ever run when the key is free:
/// the row it may meet is a dead one.
pub const GRANT: &str = "INSERT INTO syncguard_locks \
     (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, boot_id, expires_boot_ms, written_boot_ms) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
     ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms, \
     acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key, \
     boot_id = excluded.boot_id, expires_boot_ms = excluded.expires_boot_ms, written_boot_ms = excluded.written_boot_ms";
/// The same with what the holder says of itself (?10). Files of older versions have no such column before
/// [`setup_schema`](crate::Backend::setup_schema): then [`GRANT`] is used.
pub const GRANT_HELD: &str = "INSERT INTO syncguard_locks \
     (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, boot_id, expires_boot_ms, written_boot_ms, holder) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
     ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms, \
     acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key, boot_id = excluded.boot_id, \
     expires_boot_ms = excluded.expires_boot_ms, written_boot_ms = excluded.written_boot_ms, holder = excluded.holder";
/// Sets the lease of the lock of key ?1 if it has the lock id ?2.
pub const EXTEND: &str = "UPDATE syncguard_locks SET expires_at_ms = ?3, expires_boot_ms = ?4, written_boot_ms = ?5, boot_id = ?6 \
     WHERE key = ?1 AND lock_id = ?2";
/// Writes a row again as it is. An update would find nothing to change and write nothing.
pub(super) const WRITE_AGAIN: &str =
    "REPLACE INTO syncguard_locks SELECT * FROM syncguard_locks WHERE key = ?1 AND lock_id = ?2";
pub(super) const DELETE_ID: &str = "DELETE FROM syncguard_locks WHERE lock_id = ?1";
/// Removes the lock of key ?1 if it has the lock id ?2.
pub const DELETE: &str = "DELETE FROM syncguard_locks WHERE key = ?1 AND lock_id = ?2";

/// Two ranges and a point of the expiry index; the cuts are the caller's. It takes what [`left_ms`] calls dead, except
/// a few rows of earlier boots that only the next acquire of their key replaces.
pub(super) const PURGE: &str = "DELETE FROM syncguard_locks WHERE key IN (SELECT key FROM syncguard_locks \
     WHERE (boot_id = ?1 AND expires_boot_ms < ?2) OR ((boot_id < ?1 OR boot_id > ?1) AND (expires_boot_ms < ?2 \
     OR written_boot_ms > ?4 OR (written_boot_ms IS NULL AND expires_at_ms < ?5))) LIMIT ?3)";

/// The name of the column that files of older versions do not have.
pub(super) const HOLDER_COLUMN: &str = "holder";

/// Where a row has the name that it is stored under.
pub(super) const KEY_COLUMN: usize = 7;

/// A stored lock, judged.
pub(super) enum Stored {
    Dead,
    Live(Live),
}

impl Stored {
    pub(super) fn live(self) -> Option<Live> {
        match self {
            Self::Live(live) => Some(live),
            Self::Dead => None,
        }
    }
}

pub(super) struct Live {
    pub(super) lock: StoredLock,
    /// What the lease has to go, less than zero in the tolerance.
    pub(super) left_ms: i64,
    /// The name it is stored under.
    pub(super) key: String,
}

/// What a row of [`FIND_BY_KEY`] or [`FIND_BY_ID`] says.
///
/// # Errors
/// `Internal` for a row that is alive, or may be, and that we did not write.
pub(super) fn judge(row: &Row<'_>, now: &Now<'_>) -> Result<Stored, LockError> {
    let foreign = || {
        LockError::internal("the stored lock is not one that syncguard wrote; nothing was changed")
            .nothing_applied()
    };
    let text = |column| match row.get_ref(column) {
        Ok(ValueRef::Text(bytes)) => std::str::from_utf8(bytes).map_err(|_| foreign()),
        _ => Err(foreign()),
    };
    let number = |column| match row.get_ref(column) {
        Ok(ValueRef::Integer(n)) => Ok(n),
        _ => Err(foreign()),
    };
    let lease = StoredLease {
        boot_id: text(0)?,
        written_boot_ms: match row.get_ref(8) {
            Ok(ValueRef::Null) => None,
            _ => Some(number(8)?),
        },
        expires_boot_ms: number(1)?,
        // A row that is over may hold anything in its other columns.
        expires_at_ms: number(4).unwrap_or(i64::MIN),
    };
    let Some(left_ms) = left_ms(&lease, now) else {
        return Ok(Stored::Dead);
    };
    if left_ms > 0 && Ttl::new(Duration::from_millis(left_ms.unsigned_abs())).is_err() {
        return Err(foreign());
    }
    let user_key = text(6)?;
    if user_key.len() > MAX_KEY_BYTES {
        return Err(foreign());
    }
    let fence = u64::try_from(number(3)?).map_err(|_| foreign())?;
    let id = LockId::parse(text(2)?).map_err(|_| foreign())?;
    let holder = match row.get_ref(HOLDER_COLUMN) {
        Ok(ValueRef::Text(bytes)) => std::str::from_utf8(bytes).ok(),
        _ => None,
    };
    Ok(Stored::Live(Live {
        lock: StoredLock::new(
            user_key,
            id,
            Fence::new(fence).map_err(|_| foreign())?,
            number(4)?,
            number(5)?,
        )
        .saying(holder.and_then(|text| HolderText::read_bound(text, id.as_str()))),
        left_ms,
        key: text(7)?.to_owned(),
    }))
}
