//! What the rows of the statements mean: for the verbs of this store and for other clients of Postgres. It uses `message` and `error`.

use super::error;
use super::message::{Param, Row};
use crate::backend::list::{ListCursor, ListPage, ListRequest};
use crate::backend::store_clock::TimedReply;
use crate::backend::{Absence, AcquireOutcome, ExtendOutcome, LookupBy, ReleaseOutcome};
use crate::types::error::LockError;
use crate::types::fence::{Fence, FenceSource, MAX_CLOCK_MS};
use crate::types::holder::Holder;
use crate::types::holder_text::HolderText;
use crate::types::key::hash_key;
use crate::types::liveness::is_live;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::{Acquired, StoredLock};

/// Where the functions say that a request came too late: `o_late_ms` in functions.sql.
pub(crate) const ACQUIRE_LATE_COLUMN: usize = 5;
pub(crate) const EXTEND_LATE_COLUMN: usize = 2;
/// Where the function that stores the holder's text, and a row with it, have that text.
const HELD_TEXT_COLUMN: usize = 6;
const ROW_TEXT_COLUMN: usize = 6;
/// Where a listed row has its stored name, and whether that is ordered by its bytes.
const LISTED_KEY_COLUMN: usize = 7;
const LISTED_ORDER_COLUMN: usize = 8;

/// The parameter $8 of `acquire`: 0 where fences are counted, or the latest time that may become a fence.
///
/// ```
/// use syncguard::FenceSource;
/// use syncguard::format::postgres::latest_clock_ms;
///
/// assert_eq!(latest_clock_ms(FenceSource::Counter), 0);
/// ```
pub fn latest_clock_ms(fences: FenceSource) -> i64 {
    match fences {
        FenceSource::Counter => 0,
        FenceSource::Clock => MAX_CLOCK_MS,
    }
}

/// What `acquire` or `acquire_held` answered the caller with this lock id.
///
/// ```
/// use syncguard::format::postgres::{Row, read_acquire};
/// use syncguard::{LockId, TimedReply};
///
/// let row = Row::from_texts([Some("(f,,,,1790000000000,1790000000000)")]);
/// let late = read_acquire(&[row], &LockId::random()?)?;
/// assert_eq!(late, TimedReply::TooLate { now_ms: 1_790_000_000_000 });
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// [`Internal`](crate::ErrorCode::Internal) for a row that is not one of the function's: the tables are another program's.
pub fn read_acquire(
    rows: &[Row],
    lock_id: &LockId,
) -> Result<TimedReply<AcquireOutcome>, LockError> {
    timed(rows, ACQUIRE_LATE_COLUMN, |record| grant(record, lock_id))
}

/// What `extend` answered.
///
/// ```
/// use syncguard::format::postgres::{Row, read_extend};
/// use syncguard::{ExtendOutcome, TimedReply};
///
/// let row = Row::from_texts([Some("(t,1790000030000,)")]);
/// assert_eq!(read_extend(&[row])?, TimedReply::Answer(ExtendOutcome::Extended(1_790_000_030_000)));
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// [`Internal`](crate::ErrorCode::Internal) for a row that is not one of ours, as [`read_acquire`].
pub fn read_extend(rows: &[Row]) -> Result<TimedReply<ExtendOutcome>, LockError> {
    timed(rows, EXTEND_LATE_COLUMN, extension)
}

/// What `release` answered.
///
/// ```
/// use syncguard::format::postgres::{Row, read_release};
///
/// assert!(read_release(&[Row::from_texts([Some("(t,t)")])])?.is_released());
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// [`Internal`](crate::ErrorCode::Internal) for a row that is not one of ours, as [`read_acquire`].
pub fn read_release(rows: &[Row]) -> Result<ReleaseOutcome, LockError> {
    let record = only(rows)?.record()?;
    Ok(match (record.bool(0)?, record.bool(1)?) {
        (_, true) => ReleaseOutcome::Released,
        (true, false) => ReleaseOutcome::Absent(Absence::Expired),
        (false, false) => ReleaseOutcome::Absent(Absence::NotFound),
    })
}

/// What `is_locked` answered.
///
/// ```
/// use syncguard::format::postgres::read_is_locked;
///
/// assert!(!read_is_locked(&[])?);
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// [`Internal`](crate::ErrorCode::Internal) for a row that is not one of ours, as [`read_acquire`].
pub fn read_is_locked(rows: &[Row]) -> Result<bool, LockError> {
    let Some(row) = rows.first() else {
        return Ok(false);
    };
    let (expires, now) = (row.int8(0)?, row.int8(1)?);
    Ok(is_live(
        expires.ok_or_else(foreign)?,
        now.ok_or_else(foreign)?,
    ))
}

/// What `find_by_key` or `find_by_id` answered, or one of them with the holder's text: the lock, if it is live.
///
/// ```
/// use syncguard::format::postgres::read_find;
/// use syncguard::{Key, LookupBy};
///
/// assert!(read_find(&[], LookupBy::Key(&Key::new("invoice:42")?))?.is_none());
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// [`Internal`](crate::ErrorCode::Internal) for a row that is not one of ours, as [`read_acquire`].
pub fn read_find(rows: &[Row], by: LookupBy<'_>) -> Result<Option<StoredLock>, LockError> {
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let expires = row.int8(2)?.ok_or_else(foreign)?;
    let now = row.int8(5)?.ok_or_else(foreign)?;
    if !is_live(expires, now) {
        return Ok(None);
    }
    let lock = stored_lock(row)?;
    if matches!(by, LookupBy::LockId(wanted) if *wanted != lock.lock_id) {
        return Ok(None);
    }
    Ok(Some(lock))
}

/// The parameters of [`list`](super::format::PostgresStatements::list) for one page, of the lock table `table` in `schema`.
///
/// ```
/// use syncguard::ListOptions;
/// use syncguard::format::postgres::list_params;
///
/// let options = ListOptions::new();
/// assert_eq!(list_params(&options.checked()?, "public", "syncguard_locks")?.len(), 5);
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a cursor that is not one of a table: begin the listing anew.
pub fn list_params<'a>(
    request: &'a ListRequest<'_>,
    schema: &'a str,
    table: &'a str,
) -> Result<[Param<'a>; 5], LockError> {
    let after = request.after.map(ListCursor::key).transpose()?;
    Ok([
        Param::Text(after.unwrap_or(&request.prefix)),
        Param::Int8(request.examine.into()),
        Param::Text(schema),
        Param::Text(table),
        Param::Text(if after.is_some() { "cursor" } else { "" }),
    ])
}

/// What `list` answered.
///
/// ```
/// use syncguard::ListOptions;
/// use syncguard::format::postgres::read_list;
///
/// assert!(read_list(&[], &ListOptions::new().checked()?)?.next.is_none());
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// [`Internal`](crate::ErrorCode::Internal) for a row that is not one of ours, as [`read_acquire`].
pub fn read_list(
    rows: &[Row],
    request: &ListRequest<'_>,
) -> Result<ListPage<StoredLock>, LockError> {
    let mut next = None;
    if rows.len() == request.examine as usize
        && let Some(last) = rows.last()
    {
        let key = last.text(LISTED_KEY_COLUMN)?.ok_or_else(foreign)?;
        // In the order of bytes no key behind one that is larger than the prefix begins with it.
        let over = last.bool(LISTED_ORDER_COLUMN)?
            && key > request.prefix.as_str()
            && !key.starts_with(&request.prefix);
        next = (!over).then(|| ListCursor::after_key(key));
    }
    // A row that is not one of ours is another program's, and not in the way of a list.
    let listed = |row: &Row| {
        let (expires, now) = (row.int8(2).ok()??, row.int8(5).ok()??);
        let lock = stored_lock(row).ok()?;
        (is_live(expires, now) && lock.key.starts_with(&request.prefix)).then_some(lock)
    };
    Ok(ListPage::new(
        rows.iter().filter_map(listed).collect(),
        next,
    ))
}

/// How many locks `purge_expired` has removed.
///
/// ```
/// use syncguard::format::postgres::{Row, read_purge};
///
/// assert_eq!(read_purge(&[Row::from_texts([Some("3")])])?, 3);
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// [`Internal`](crate::ErrorCode::Internal) for a row that is not one of ours, as [`read_acquire`].
pub fn read_purge(rows: &[Row]) -> Result<u64, LockError> {
    let count = only(rows)?.int8(0)?.unwrap_or(0);
    Ok(count.unsigned_abs())
}

/// The outcome in the record of `acquire` or `acquire_held`.
pub(crate) fn grant(record: &Row, lock_id: &LockId) -> Result<AcquireOutcome, LockError> {
    let (granted, owner) = (record.bool(0)?, record.text(1)?);
    let fence = record.text(2)?.and_then(|text| Fence::parse(text).ok());
    let (expires, now) = (record.int8(3)?, record.int8(4)?.ok_or_else(foreign)?);
    if granted {
        return match (fence, expires) {
            (Some(fence), Some(expires)) if owner == Some(lock_id.as_str()) => Ok(
                AcquireOutcome::Acquired(Acquired::new(*lock_id, fence, expires)),
            ),
            _ => Err(foreign()),
        };
    }
    let hash = owner.map(hash_key);
    let text = stored_text(record, HELD_TEXT_COLUMN, owner);
    Ok(AcquireOutcome::Locked(Some(
        match expires {
            Some(at) => Holder::with_left(hash, fence, at.saturating_sub(now)),
            None => Holder::new(hash, fence, None),
        }
        .saying(text),
    )))
}

/// The outcome in the record of `extend`.
pub(crate) fn extension(record: &Row) -> Result<ExtendOutcome, LockError> {
    Ok(match (record.bool(0)?, record.int8(1)?) {
        (_, Some(expires)) => ExtendOutcome::Extended(expires),
        (true, None) => ExtendOutcome::Absent(Absence::Expired),
        (false, None) => ExtendOutcome::Absent(Absence::NotFound),
    })
}

fn timed<T>(
    rows: &[Row],
    late_column: usize,
    read: impl FnOnce(&Row) -> Result<T, LockError>,
) -> Result<TimedReply<T>, LockError> {
    let record = only(rows)?.record()?;
    Ok(match record.int8(late_column)? {
        Some(now_ms) => TimedReply::TooLate { now_ms },
        None => TimedReply::Answer(read(&record)?),
    })
}

/// The holder's text in a column that only some tables have.
fn stored_text(row: &Row, column: usize, owner: Option<&str>) -> Option<String> {
    let text = row.text(column).ok().flatten()?;
    HolderText::read_bound(text, owner?)
}

/// The lock in a row of a lookup or a listing.
fn stored_lock(row: &Row) -> Result<StoredLock, LockError> {
    let text = |i| row.text(i)?.ok_or_else(foreign);
    let number = |i| row.int8(i)?.ok_or_else(foreign);
    let id = LockId::parse(text(0)?).map_err(|_| foreign())?;
    let fence = Fence::parse(text(1)?).map_err(|_| foreign())?;
    let holder = stored_text(row, ROW_TEXT_COLUMN, Some(id.as_str()));
    Ok(StoredLock::new(text(4)?, id, fence, number(2)?, number(3)?).saying(holder))
}

pub(super) fn only(rows: &[Row]) -> Result<&Row, LockError> {
    rows.first().ok_or_else(error::garbled)
}

fn foreign() -> LockError {
    LockError::internal("the stored row of this lock is not one of ours")
}
