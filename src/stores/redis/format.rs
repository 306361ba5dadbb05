//! What the Redis store sends and stores: the texts of its scripts, what their replies mean, and the value of a lock. It uses `replies`,
//! `value` and `types`.
//!
//! The keys and the arguments of each script are in its first lines and in `docs/wire-format.md`. Names come from
//! [`KeySpace::redis`](crate::KeySpace::redis), the tolerance is [`TIME_TOLERANCE_MS`](crate::TIME_TOLERANCE_MS), and the largest fence is
//! [`MAX_FENCE`](crate::MAX_FENCE).
//!
//! ```
//! use syncguard::format::redis;
//! use syncguard::{Key, KeySpace, LockId, MAX_FENCE, TIME_TOLERANCE_MS};
//!
//! // The command that takes a lock, as another client of Redis sends it.
//! let (key, id) = (Key::new("invoice:42")?, LockId::random()?);
//! let names = KeySpace::redis("syncguard")?;
//! let lock = names.lock(&key)?;
//! let (fence, index) = (names.fence(&lock)?, names.index(&id)?);
//! let head = redis::value_head(&key, &id);
//! let command = [
//!     "EVAL", redis::ACQUIRE, "3", &lock, &fence, &index,
//!     id.as_str(), "30000", &TIME_TOLERANCE_MS.to_string(), &MAX_FENCE.to_string(), &head, "",
//! ];
//! assert_eq!(command[3], "syncguard:invoice:42");
//! # Ok::<(), syncguard::LockError>(())
//! ```

use sha1::{Digest, Sha1};

use super::value;
use crate::types::error::LockError;
use crate::types::holder_text::HolderText;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;

pub use super::replies::{
    list_arguments, read_acquire, read_check, read_extend, read_find, read_is_locked, read_list,
    read_release, refusal, too_late,
};
pub use super::resp::Reply;
pub use super::value::{MAX_VALUE_BYTES, TIME_LIMIT_MS};

/// Every script begins with the same functions.
macro_rules! script {
    ($file:literal) => {
        concat!(include_str!("lua/prelude.lua"), include_str!($file))
    };
}

/// The script that takes a lock.
pub const ACQUIRE: &str = concat!(
    include_str!("lua/prelude.lua"),
    "local max_clock_ms = nil\n",
    include_str!("lua/acquire.lua")
);
/// The same where fences come from the server's clock ([`FenceSource::Clock`](crate::FenceSource::Clock)). The keys and the arguments
/// are those of [`ACQUIRE`].
pub const ACQUIRE_BY_CLOCK: &str = concat!(
    include_str!("lua/prelude.lua"),
    "local max_clock_ms = 5000000000000\n",
    include_str!("lua/acquire.lua")
);
/// The script that releases a lock.
pub const RELEASE: &str = script!("lua/release.lua");
/// The script that extends a lock.
pub const EXTEND: &str = script!("lua/extend.lua");
/// The script that says whether a key is locked.
pub const IS_LOCKED: &str = script!("lua/is_locked.lua");
/// The script that finds a lock by its key.
pub const FIND_BY_KEY: &str = script!("lua/find_by_key.lua");
/// The script that finds a lock by its lock id.
pub const FIND_BY_ID: &str = script!("lua/find_by_id.lua");
/// The script that lists live locks, one page at a time. It needs the right to `SCAN`.
pub const LIST: &str = script!("lua/list.lua");
/// The script that tries the rights of a user: it stores nothing of a lock. Its key is the index of a lock id that no lock has.
pub const REHEARSE: &str = script!("lua/rehearse.lua");

/// Stands before a script and refuses a former holder: [`gated`](crate::gate::redis::gated) puts it there.
pub const GATE_PRELUDE: &str = include_str!("lua/gate.lua");
/// The script behind [`Client::fenced_set`](crate::Client::fenced_set), for other clients of Redis.
///
/// Keys: the [gate](crate::gate::redis::gate_key), the name. Arguments: the fence, the value. Answers 1, or the error `SYNCGUARD_STALE` for
/// a former holder.
pub const FENCED_SET: &str = concat!(
    include_str!("lua/gate.lua"),
    include_str!("lua/fenced_set.lua")
);
pub(crate) const NEWEST_FENCE: &str = include_str!("lua/newest_fence.lua");
pub(crate) const RESET_GATE: &str = include_str!("lua/reset_gate.lua");

/// Stands behind the name of a lock in the name of the channel on which its release is published.
pub const CHANNEL_SUFFIX: &str = ":freed";

/// The name by which a server knows a script once it has run: its SHA-1, for `EVALSHA`.
///
/// ```
/// use syncguard::format::redis::{ACQUIRE, digest};
///
/// assert_eq!(digest("return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
/// assert_eq!(digest(ACQUIRE).len(), 40);
/// ```
pub fn digest(script: &str) -> String {
    let digest = Sha1::digest(script.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value of a lock up to its fence, which [`ACQUIRE`] is given: the script adds the fence and the times.
///
/// ```
/// use syncguard::format::redis::value_head;
/// use syncguard::{Key, LockId};
///
/// let id = LockId::parse("W647iISzFHXC1Nia_Mdz2Q")?;
/// assert_eq!(
///     value_head(&Key::new("a/b")?, &id),
///     r#"{"key":"a\/b","lockId":"W647iISzFHXC1Nia_Mdz2Q","fence":""#
/// );
/// # Ok::<(), syncguard::LockError>(())
/// ```
pub fn value_head(key: &Key, id: &LockId) -> String {
    head(key.as_str(), id, "")
}

/// The same with what the holder says of itself. An empty text leaves the field out.
///
/// ```
/// use syncguard::format::redis::value_head_of;
/// use syncguard::{HolderText, Key, LockId};
///
/// let id = LockId::parse("W647iISzFHXC1Nia_Mdz2Q")?;
/// assert_eq!(
///     value_head_of(&Key::new("k")?, &id, &HolderText::new("a")?),
///     r#"{"key":"k","holder":"a","lockId":"W647iISzFHXC1Nia_Mdz2Q","fence":""#
/// );
/// # Ok::<(), syncguard::LockError>(())
/// ```
pub fn value_head_of(key: &Key, id: &LockId, holder: &HolderText) -> String {
    head(key.as_str(), id, holder.as_str())
}

/// The value of a lock, byte for byte as [`ACQUIRE`] stores it.
///
/// ```
/// use syncguard::format::redis::{decode, encode};
/// use syncguard::{Fence, LockId, StoredLock};
///
/// let id = LockId::parse("W647iISzFHXC1Nia_Mdz2Q")?;
/// let lock = StoredLock::new("resource:123", id, Fence::new(1)?, 1794786941069, 1794786911069);
/// let value = encode(&lock);
/// assert!(value.ends_with(r#""fence":"000000000000001","acquiredAtMs":1794786911069,"expiresAtMs":1794786941069}"#));
/// assert_eq!(decode(value.as_bytes())?, lock);
/// # Ok::<(), syncguard::LockError>(())
/// ```
pub fn encode(lock: &StoredLock) -> String {
    format!(
        "{}{}\",\"acquiredAtMs\":{},\"expiresAtMs\":{}}}",
        head(
            &lock.key,
            &lock.lock_id,
            lock.holder.as_deref().unwrap_or_default()
        ),
        lock.fence,
        lock.acquired_at_ms,
        lock.expires_at_ms
    )
}

/// The lock in a stored value, in whatever order its fields stand. Other fields are passed over.
///
/// ```
/// use syncguard::format::redis::decode;
///
/// assert!(decode(b"not a lock").is_err());
/// ```
///
/// # Errors
/// [`Internal`](crate::ErrorCode::Internal) for a value that is not a lock: another program wrote the key. Leave it as it is, and
/// use another prefix.
pub fn decode(value: &[u8]) -> Result<StoredLock, LockError> {
    value::parse(value)
}

/// The head as a text. It is UTF-8: the key is, and the rest is ASCII.
fn head(key: &str, id: &LockId, holder: &str) -> String {
    String::from_utf8_lossy(&value::head(key, id, holder)).into_owned()
}
