//! What the replies to the scripts mean, and the arguments of a listing: for the verbs of this store and for other clients of Redis. It
//! uses `resp`, `value`, `check` and `error`.

use std::time::Duration;

use super::check;
use super::error;
use super::resp::Reply;
use super::value;
use crate::backend::keyspace::KeySpace;
use crate::backend::list::{self, ListCursor, ListPage, ListRequest};
use crate::backend::{Absence, AcquireOutcome, ExtendOutcome, LookupBy, ReleaseOutcome};
use crate::types::error::LockError;
use crate::types::fence::Fence;
use crate::types::holder::Holder;
use crate::types::holder_text::HolderText;
use crate::types::liveness::TIME_TOLERANCE_MS;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::{Acquired, StoredLock};

/// What [`ACQUIRE`](super::format::ACQUIRE) answered the caller with this lock id. Ask [`too_late`] before.
///
/// ```
/// use syncguard::format::redis::{Reply, read_acquire};
/// use syncguard::{AcquireOutcome, LockId};
///
/// let id = LockId::random()?;
/// let [fence, name] = ["000000000000007", id.as_str()].map(|text| Reply::Bulk(text.into()));
/// let reply = Reply::Array(vec![Reply::Integer(1), fence, Reply::Integer(1_790_000_000_000), name]);
/// let AcquireOutcome::Acquired(grant) = read_acquire(&reply, &id)? else { panic!("not granted") };
/// assert_eq!(grant.fence.get(), 7);
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// That of [`refusal`] for an error. [`Internal`](crate::ErrorCode::Internal) for a reply that is not one of the script: the server is
/// another service, or another program writes under the same prefix.
pub fn read_acquire(reply: &Reply, lock_id: &LockId) -> Result<AcquireOutcome, LockError> {
    let Reply::Array(items) = accepted(reply)? else {
        return Err(error::unexpected());
    };
    match &items[..] {
        [
            Reply::Integer(0),
            Reply::Integer(left),
            Reply::Bulk(fence),
            Reply::Bulk(id_hash),
            Reply::Bulk(text),
        ] => {
            let text = std::str::from_utf8(text).ok().and_then(HolderText::read);
            let holder = holder(*left, fence, id_hash).saying(text);
            Ok(AcquireOutcome::Locked(Some(holder)))
        }
        [
            Reply::Integer(1),
            Reply::Bulk(fence),
            Reply::Integer(expires),
            Reply::Bulk(id),
        ] => {
            check_addressee(id, lock_id)?;
            let fence = std::str::from_utf8(fence).ok().map(Fence::parse);
            match fence {
                Some(Ok(fence)) => Ok(AcquireOutcome::Acquired(Acquired::new(
                    *lock_id, fence, *expires,
                ))),
                // The script stores only well-formed fences: this is the repeated acquire of a lock that
                // another program wrote with our id.
                _ => Err(value::foreign()),
            }
        }
        _ => Err(error::unexpected()),
    }
}

/// A grant names the lock that it is of. A reply to another caller's request must not be believed: then two would hold one lock.
fn check_addressee(id: &[u8], lock_id: &LockId) -> Result<(), LockError> {
    if id == lock_id.as_bytes() {
        return Ok(());
    }
    Err(LockError::internal(
        "the server answered another request than the one it was sent; something between it and this program mixes up replies",
    ))
}

/// The server's time, if it refused a request of [`ACQUIRE`](super::format::ACQUIRE) or [`EXTEND`](super::format::EXTEND) because that
/// came after the time which it carries.
///
/// ```
/// use syncguard::format::redis::{Reply, too_late};
///
/// let reply = Reply::Array(vec![Reply::Integer(-3), Reply::Integer(1_790_000_000_000)]);
/// assert_eq!(too_late(&reply), Some(1_790_000_000_000));
/// assert_eq!(too_late(&Reply::Integer(1)), None);
/// ```
pub fn too_late(reply: &Reply) -> Option<i64> {
    let Reply::Array(items) = reply else {
        return None;
    };
    match items[..] {
        [Reply::Integer(-3), Reply::Integer(now_ms)] => Some(now_ms),
        _ => None,
    }
}

/// What [`RELEASE`](super::format::RELEASE) answered.
///
/// ```
/// use syncguard::format::redis::{Reply, read_release};
///
/// assert!(read_release(&Reply::Integer(1))?.is_released());
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// That of [`refusal`] for an error, [`Internal`](crate::ErrorCode::Internal) for a reply of another script, as [`read_acquire`].
pub fn read_release(reply: &Reply) -> Result<ReleaseOutcome, LockError> {
    match accepted(reply)? {
        Reply::Integer(1) => Ok(ReleaseOutcome::Released),
        reply => absence(reply).map(ReleaseOutcome::Absent),
    }
}

/// What [`EXTEND`](super::format::EXTEND) answered the caller with this lock id. Ask [`too_late`] before.
///
/// ```
/// use syncguard::format::redis::{Reply, read_extend};
///
/// let id = syncguard::LockId::random()?;
/// let reply = vec![Reply::Integer(1), Reply::Integer(1_790_000_000_000), Reply::Bulk(id.as_str().into())];
/// assert_eq!(read_extend(&Reply::Array(reply), &id)?.expect_extended(), 1_790_000_000_000);
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// That of [`refusal`] for an error, [`Internal`](crate::ErrorCode::Internal) for a reply of another script, as [`read_acquire`].
pub fn read_extend(reply: &Reply, lock_id: &LockId) -> Result<ExtendOutcome, LockError> {
    match accepted(reply)? {
        Reply::Array(items) => match &items[..] {
            [Reply::Integer(1), Reply::Integer(expires), Reply::Bulk(id)] => {
                check_addressee(id, lock_id)?;
                Ok(ExtendOutcome::Extended(*expires))
            }
            _ => Err(error::unexpected()),
        },
        reply => absence(reply).map(ExtendOutcome::Absent),
    }
}

/// What [`IS_LOCKED`](super::format::IS_LOCKED) answered.
///
/// ```
/// use syncguard::format::redis::{Reply, read_is_locked};
///
/// assert!(read_is_locked(&Reply::Integer(1))?);
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// That of [`refusal`] for an error, [`Internal`](crate::ErrorCode::Internal) for a reply of another script, as [`read_acquire`].
pub fn read_is_locked(reply: &Reply) -> Result<bool, LockError> {
    match accepted(reply)? {
        Reply::Integer(live @ (0 | 1)) => Ok(*live == 1),
        _ => Err(error::unexpected()),
    }
}

/// What [`FIND_BY_KEY`](super::format::FIND_BY_KEY) or [`FIND_BY_ID`](super::format::FIND_BY_ID) answered.
///
/// ```
/// use syncguard::format::redis::{Reply, read_find};
/// use syncguard::{Key, LookupBy};
///
/// let key = Key::new("invoice:42")?;
/// assert!(read_find(&Reply::Nil, LookupBy::Key(&key))?.is_none());
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// That of [`refusal`] for an error, [`Internal`](crate::ErrorCode::Internal) for a reply of another script or a value that
/// [`decode`](super::format::decode) refuses.
pub fn read_find(reply: &Reply, by: LookupBy<'_>) -> Result<Option<StoredLock>, LockError> {
    let lock = match accepted(reply)? {
        Reply::Bulk(value) => Some(value::parse(value)?),
        Reply::Nil => None,
        _ => return Err(error::unexpected()),
    };
    // The script compares them too; a lock of another holder must not be answered in any case.
    Ok(lock.filter(|lock| !matches!(by, LookupBy::LockId(id) if *id != lock.lock_id)))
}

/// The arguments of [`LIST`](super::format::LIST) for one page. Its key is any name in the slot of the locks.
///
/// ```
/// use syncguard::format::redis::list_arguments;
/// use syncguard::{KeySpace, ListOptions};
///
/// let options = ListOptions::new();
/// let arguments = list_arguments(&KeySpace::redis("app")?, &options.checked()?)?;
/// assert_eq!(arguments[..3], ["0", "app:*", "500"]);
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a cursor that is not one of Redis: begin the listing anew.
pub fn list_arguments(
    names: &KeySpace,
    request: &ListRequest<'_>,
) -> Result<[String; 8], LockError> {
    let (server, position) = match request.after {
        None => ("", "0"),
        Some(cursor) => position(cursor)?,
    };
    let listed = ListNames::new(names.prefix());
    Ok([
        position.to_owned(),
        listed.pattern,
        request.examine.to_string(),
        TIME_TOLERANCE_MS.to_string(),
        request.prefix.clone(),
        listed.indexes,
        listed.fences,
        server.to_owned(),
    ])
}

/// What [`LIST`](super::format::LIST) answered.
///
/// ```
/// use syncguard::format::redis::{Reply, read_list};
///
/// let reply = Reply::Array(vec![Reply::Bulk(b"0".to_vec()), Reply::Bulk(b"run-id".to_vec())]);
/// assert!(read_list(&reply)?.next.is_none());
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// That of [`refusal`] for an error, [`Internal`](crate::ErrorCode::Internal) for a reply of another script, as [`read_acquire`].
pub fn read_list(reply: &Reply) -> Result<ListPage<StoredLock>, LockError> {
    let Reply::Array(items) = accepted(reply)? else {
        return Err(error::unexpected());
    };
    let text = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).map_err(|_| error::unexpected()),
        _ => Err(error::unexpected()),
    };
    let [next, server, values @ ..] = &items[..] else {
        return Err(error::unexpected());
    };
    let (next, server) = (text(next)?, text(server)?);
    // What is not one of ours is another program's, and not in the way of a list.
    let locks = values.iter().filter_map(|value| match value {
        Reply::Bulk(value) => value::parse(value).ok(),
        _ => None,
    });
    let more = (next != "0").then(|| ListCursor::new(format!("scan:{server}:{next}")));
    Ok(ListPage::new(locks.collect(), more))
}

/// What a check of the server comes to: its replies to [`REHEARSE`](super::format::REHEARSE), to `INFO`, and to
/// `CONFIG GET *appendfsync*`. Answers what a user must know before trusting locks to it, a sentence each.
///
/// ```
/// use syncguard::format::redis::{Reply, read_check};
///
/// let denied = Reply::Error("NOPERM no right".to_owned());
/// let info = Reply::Bulk(b"aof_enabled:0\r\n".to_vec());
/// assert!(read_check(&Reply::Integer(1), &info, &denied)?[0].contains("appendonly"));
/// # Ok::<(), syncguard::LockError>(())
/// ```
///
/// # Errors
/// That of [`refusal`] if the scripts may not run, which is [`AuthFailed`](crate::ErrorCode::AuthFailed) if the user lacks a right.
pub fn read_check(
    rehearsed: &Reply,
    info: &Reply,
    config: &Reply,
) -> Result<Vec<String>, LockError> {
    accepted(rehearsed)?;
    Ok(check::warnings(info, config))
}

/// The error for an error of the server, which begins with its code. Nothing of it is repeated that may be a key or a lock id, and
/// nothing was applied: no script writes before its last check has passed.
///
/// ```
/// use syncguard::ErrorCode;
/// use syncguard::format::redis::refusal;
///
/// assert_eq!(refusal("READONLY You can't write against a read only replica.").code(), ErrorCode::ServiceUnavailable);
/// ```
pub fn refusal(line: &str) -> LockError {
    error::refused(line)
}

fn accepted(reply: &Reply) -> Result<&Reply, LockError> {
    match reply {
        Reply::Error(line) => Err(error::refused(line)),
        reply => Ok(reply),
    }
}

/// The server and the position of a cursor.
fn position(cursor: &ListCursor) -> Result<(&str, &str), LockError> {
    let parts = cursor.as_str().strip_prefix("scan:");
    let (server, position) = parts
        .and_then(|parts| parts.split_once(':'))
        .ok_or_else(list::not_ours)?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if server.is_empty() || !digits(position) || position.len() > 20 {
        return Err(list::not_ours());
    }
    Ok((server, position))
}

/// Which names a listing looks at.
struct ListNames {
    /// The glob of all names under the prefix.
    pattern: String,
    /// What the names that are no locks begin with.
    indexes: String,
    fences: String,
}

impl ListNames {
    fn new(prefix: &str) -> Self {
        let under = match prefix {
            "" => String::new(),
            prefix => format!("{prefix}:"),
        };
        let mut pattern = String::with_capacity(under.len() + 1);
        for c in under.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern.push('*');
        Self {
            pattern,
            indexes: format!("{under}id:"),
            fences: format!("{under}fence:{under}"),
        }
    }
}

/// The holder of a contended lock, as far as its value is one of ours.
fn holder(left_ms: i64, fence: &[u8], id_hash: &[u8]) -> Holder {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let is_hash = |text: &&str| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let holder = Holder::with_left(
        text(id_hash).filter(is_hash).map(str::to_owned),
        text(fence).and_then(|fence| Fence::parse(fence).ok()),
        left_ms,
    );
    match u64::try_from(left_ms) {
        // Redis deletes a key in the millisecond after its last one.
        Ok(left) => holder.with_free_in(Duration::from_millis(left + 1)),
        Err(_) => holder,
    }
}

fn absence(reply: &Reply) -> Result<Absence, LockError> {
    match reply {
        Reply::Integer(-2) => Ok(Absence::Expired),
        Reply::Integer(0 | -1) => Ok(Absence::NotFound),
        _ => Err(error::unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::error::ErrorCode;

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(text.into())
    }

    #[test]
    fn a_grant_or_an_extension_of_another_lock_is_not_believed() {
        let [mine, other] = [(); 2].map(|()| LockId::random().expect("an id"));
        let grant = |id: &LockId| {
            let fence = bulk("000000000000007");
            let items = vec![
                Reply::Integer(1),
                fence,
                Reply::Integer(5),
                bulk(id.as_str()),
            ];
            read_acquire(&Reply::Array(items), &mine)
        };
        let extension = |id: &LockId| {
            let items = vec![Reply::Integer(1), Reply::Integer(5), bulk(id.as_str())];
            read_extend(&Reply::Array(items), &mine)
        };
        assert!(matches!(grant(&mine), Ok(AcquireOutcome::Acquired(_))));
        assert_eq!(extension(&mine).expect("mine"), ExtendOutcome::Extended(5));
        for error in [
            grant(&other).expect_err("another's"),
            extension(&other).expect_err("another's"),
        ] {
            assert_eq!(error.code(), ErrorCode::Internal);
            // It may hold the lock by now: an acquire is undone.
            assert!(error.may_have_applied());
            assert!(!error.to_string().contains(other.as_str()));
        }
    }
}
