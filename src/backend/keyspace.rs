//! Where a key is stored: one derivation for all stores, shared with the TypeScript library. It uses `types` alone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::types::error::LockError;
use crate::types::key::{Key, nfc};
use crate::types::lock_id::LockId;

/// The names a key has in a store.
///
/// A backend of your own may use it, or any other mapping that never gives two keys one name.
///
/// ```
/// use syncguard::{Key, KeySpace};
///
/// let names = KeySpace::redis("app")?;
/// let lock = names.lock(&Key::new("invoice:42")?)?;
/// assert_eq!((lock.as_str(), names.fence(&lock)?.as_str()), ("app:invoice:42", "app:fence:app:invoice:42"));
/// # Ok::<(), syncguard::LockError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySpace {
    prefix: String,
    limit: usize,
    reserve: usize,
    /// Whether fence counters and indexes live among the lock keys, so that user keys could land on them.
    shared: bool,
}

/// Redis: keys of at most 1000 bytes, of which 26 are kept for what is derived.
const REDIS_LIMIT: usize = 1000;
const REDIS_RESERVE: usize = 26;
/// Postgres, and SQLite after it: what fits a B-tree page, with some bytes to spare.
const TABLE_LIMIT: usize = 1700;

impl KeySpace {
    /// The names in a Redis database under `prefix`.
    ///
    /// ```
    /// use syncguard::KeySpace;
    ///
    /// assert_eq!(KeySpace::redis("app:")?.prefix(), "app");
    /// assert!(KeySpace::redis("app:id").is_err());
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a prefix that would collide with fence counters or the index, holds
    /// a NUL, or is too long for any key to fit: choose another one.
    pub fn redis(prefix: &str) -> Result<Self, LockError> {
        check_redis_prefix(prefix)?;
        let space = Self {
            prefix: trim(prefix).to_owned(),
            limit: REDIS_LIMIT,
            reserve: REDIS_RESERVE,
            shared: true,
        };
        // The index key is the longest name that is never hashed away: if it fits, everything fits.
        space.index(&LockId::zero()).map_err(|_| {
            LockError::invalid("key_prefix is too long: not even a hashed key would fit behind it")
        })?;
        Ok(space)
    }

    /// The names in tables (Postgres, SQLite): no prefix, fences in a table of their own.
    ///
    /// ```
    /// use syncguard::{Key, KeySpace};
    ///
    /// assert_eq!(KeySpace::table().lock(&Key::new("invoice:42")?)?, "invoice:42");
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn table() -> Self {
        Self {
            prefix: String::new(),
            limit: TABLE_LIMIT,
            reserve: 0,
            shared: false,
        }
    }

    /// The prefix without its trailing colons.
    ///
    /// ```
    /// assert_eq!(syncguard::KeySpace::redis("app")?.prefix(), "app");
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The lock's own storage key.
    ///
    /// Where a long prefix leaves too few bytes a key is stored under its hash, 22 characters. A key that is itself exactly
    /// that text and the key it is the hash of share one lock: neither is ever held beside the other.
    ///
    /// ```
    /// use syncguard::{Key, KeySpace};
    ///
    /// assert_eq!(KeySpace::redis("app")?.lock(&Key::new("invoice:42")?)?, "app:invoice:42");
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the key lies in the namespace reserved for fence counters and the
    /// index: use another one.
    pub fn lock(&self, key: &Key) -> Result<String, LockError> {
        if self.shared && self.is_reserved(key.as_str()) {
            return Err(LockError::invalid("the key lies in the namespace of fence counters or of the lock-id index under this key_prefix").for_key(key));
        }
        storage_key(&self.prefix, key.as_str(), self.limit, self.reserve)
    }

    /// The fence counter of a lock, from the lock's storage key.
    ///
    /// ```
    /// use syncguard::{Key, KeySpace};
    ///
    /// let space = KeySpace::redis("app")?;
    /// let lock = space.lock(&Key::new("invoice:42")?)?;
    /// assert_eq!(space.fence(&lock)?, "app:fence:app:invoice:42");
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the prefix is too long for any key to fit: choose a shorter one.
    pub fn fence(&self, lock: &str) -> Result<String, LockError> {
        self.derived("fence:", lock)
    }

    /// The index entry of a lock id.
    ///
    /// ```
    /// use syncguard::{KeySpace, LockId};
    ///
    /// let id = LockId::random()?;
    /// assert_eq!(KeySpace::redis("app")?.index(&id)?, format!("app:id:{}", id.as_str()));
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) if the prefix is too long for any key to fit: choose a shorter one.
    pub fn index(&self, id: &LockId) -> Result<String, LockError> {
        self.derived("id:", id.as_str())
    }

    fn derived(&self, kind: &str, of: &str) -> Result<String, LockError> {
        let mut name = String::with_capacity(kind.len() + of.len());
        name.push_str(kind);
        name.push_str(of);
        storage_key(&self.prefix, &name, self.limit, self.reserve)
    }

    fn is_reserved(&self, key: &str) -> bool {
        if let Some(rest) = key.strip_prefix("fence:") {
            if self.prefix.is_empty() {
                return true;
            }
            return rest
                .strip_prefix(self.prefix.as_str())
                .is_some_and(|r| r.starts_with(':'));
        }
        key.strip_prefix("id:").is_some_and(LockId::is_well_formed)
    }
}

/// The one derivation of a stored name: `prefix:key`, or a 22-character hash of it behind the prefix where that is over
/// `limit - reserve` bytes.
pub(crate) fn storage_key(
    prefix: &str,
    key: &str,
    limit: usize,
    reserve: usize,
) -> Result<String, LockError> {
    let key = nfc(key);
    if key.is_empty() {
        return Err(LockError::invalid("the key is empty"));
    }
    let prefix = trim(prefix);
    let head = if prefix.is_empty() {
        0
    } else {
        prefix.len() + 1
    };
    if head + reserve > limit {
        return Err(prefix_too_long());
    }
    // On the path of every call: one allocation of the right size.
    let join = |tail: &str| {
        let mut whole = String::with_capacity(head + tail.len());
        if !prefix.is_empty() {
            whole.push_str(prefix);
            whole.push(':');
        }
        whole.push_str(tail);
        whole
    };
    let whole = join(&key);
    if whole.len() + reserve <= limit {
        return Ok(whole);
    }
    let digest = Sha256::digest(whole.as_bytes());
    let hashed = join(&URL_SAFE_NO_PAD.encode(&digest[..16]));
    if hashed.len() + reserve > limit {
        Err(prefix_too_long())
    } else {
        Ok(hashed)
    }
}

fn prefix_too_long() -> LockError {
    LockError::invalid("the prefix is so long that no key fits within the store's limit")
}

fn trim(prefix: &str) -> &str {
    prefix.trim_end_matches(':')
}

fn check_redis_prefix(prefix: &str) -> Result<(), LockError> {
    let bare = trim(prefix);
    if prefix.contains('\0') {
        return Err(LockError::invalid("key_prefix holds a NUL"));
    }
    if prefix.contains("fence:") || bare.ends_with("fence") {
        return Err(LockError::invalid(
            "key_prefix must not contain \"fence:\" or end in \"fence\": fence counters live there",
        ));
    }
    if bare.rsplit(':').next() == Some("id") {
        return Err(LockError::invalid(
            "the last segment of key_prefix must not be \"id\": the lock-id index lives there",
        ));
    }
    Ok(())
}

/// The default table of locks.
pub(crate) const DEFAULT_TABLE: &str = "syncguard_locks";
/// The default table of fence counters.
pub(crate) const DEFAULT_FENCE_TABLE: &str = "syncguard_fence_counters";
/// Postgres cuts identifiers at 63 bytes without a word; a name that long could meet another one.
const MAX_IDENTIFIER: usize = 63;
/// The longest name derived from a table's: `idx_<table>_expires` and its like.
const DERIVED_BYTES: usize = "idx__lock_id".len();

/// Checked names of the lock and fence tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableNames {
    pub(crate) schema: Option<String>,
    pub(crate) lock: String,
    pub(crate) fence: String,
}

impl TableNames {
    pub(crate) fn new(
        schema: Option<&str>,
        lock: Option<&str>,
        fence: Option<&str>,
    ) -> Result<Self, LockError> {
        let lock = lock.unwrap_or(DEFAULT_TABLE);
        let fence = fence.unwrap_or(DEFAULT_FENCE_TABLE);
        if let Some(schema) = schema {
            check_identifier("schema", schema, MAX_IDENTIFIER)?;
        }
        check_identifier("table_name", lock, MAX_IDENTIFIER - DERIVED_BYTES)?;
        check_identifier("fence_table_name", fence, MAX_IDENTIFIER)?;
        if lock.eq_ignore_ascii_case(fence) {
            return Err(LockError::invalid(
                "table_name and fence_table_name must differ, also in more than case",
            ));
        }
        Ok(Self {
            schema: schema.map(str::to_owned),
            lock: lock.to_owned(),
            fence: fence.to_owned(),
        })
    }
}

fn check_identifier(option: &str, name: &str, max: usize) -> Result<(), LockError> {
    let mut bytes = name.bytes();
    let head = bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !head || !bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(LockError::invalid(format!(
            "{option} must match [A-Za-z_][A-Za-z0-9_]*"
        )));
    }
    if name.len() > max {
        return Err(LockError::invalid(format!(
            "{option} is longer than {max} bytes"
        )));
    }
    Ok(())
}

/// The pure functions under the names the TypeScript library's vectors give them.
#[cfg(test)]
mod vectors {
    use super::*;
    use crate::types::fence::Fence;
    use crate::types::liveness::is_live_within;
    use serde_json::Value;

    fn text(v: &Value) -> &str {
        v.as_str().expect("a text argument")
    }

    fn opt(v: &Value) -> Option<&str> {
        v.as_str()
    }

    /// The reference derives fence and index names without our stricter checks: the plain space.
    fn redis(prefix: &str) -> KeySpace {
        KeySpace {
            prefix: trim(prefix).to_owned(),
            limit: REDIS_LIMIT,
            reserve: REDIS_RESERVE,
            shared: false,
        }
    }

    fn num(v: &Value) -> i64 {
        v.as_i64().expect("a number")
    }

    fn compute(name: &str, a: &[Value]) -> Result<Value, LockError> {
        let unchecked = |key: &str| storage_key("", key, TABLE_LIMIT, 0);
        Ok(match name {
            "hashKey" => crate::hash_key(text(&a[0])).into(),
            "makeStorageKey" => storage_key(
                text(&a[0]),
                text(&a[1]),
                num(&a[2]) as usize,
                num(&a[3]) as usize,
            )?
            .into(),
            "redisLockKey" => {
                storage_key(text(&a[0]), text(&a[1]), REDIS_LIMIT, REDIS_RESERVE)?.into()
            }
            "redisFenceKey" => {
                let lock = storage_key(text(&a[0]), text(&a[1]), REDIS_LIMIT, REDIS_RESERVE)?;
                redis(text(&a[0])).fence(&lock)?.into()
            }
            "redisIdKey" => storage_key(
                text(&a[0]),
                &format!("id:{}", text(&a[1])),
                REDIS_LIMIT,
                REDIS_RESERVE,
            )?
            .into(),
            "pgLockKey" => unchecked(text(&a[0]))?.into(),
            "pgFenceKey" => KeySpace::table().fence(&unchecked(text(&a[0]))?)?.into(),
            "normalizeAndValidateKey" => Key::new(text(&a[0]))?.as_str().into(),
            "validateLockId" => {
                LockId::parse(text(&a[0]))?;
                Value::Null
            }
            "formatFence" => {
                let n: i128 = text(&a[0]).parse().expect("a decimal");
                Fence::new(u64::try_from(n).map_err(|_| LockError::invalid("negative"))?)?
                    .to_string()
                    .into()
            }
            "redisConfigPrefix" => {
                let prefix = opt(&a[0]).unwrap_or("syncguard");
                check_redis_prefix(prefix)?;
                prefix.into()
            }
            "pgConfigTables" => {
                let names = TableNames::new(None, opt(&a[0]), opt(&a[1]))?;
                vec![names.lock, names.fence].into()
            }
            "isLive" => is_live_within(num(&a[0]), num(&a[1]), num(&a[2])).into(),
            other => panic!("a vector of an unknown function: {other}"),
        })
    }

    /// Where we are knowingly stricter than the reference.
    fn stricter(name: &str, args: &[Value]) -> bool {
        match name {
            "normalizeAndValidateKey" => text(&args[0]).contains('\0'),
            "pgConfigTables" => args
                .iter()
                .filter_map(opt)
                .any(|t| t.is_empty() || t.len() > MAX_IDENTIFIER - DERIVED_BYTES),
            "redisConfigPrefix" => opt(&args[0])
                .is_some_and(|p| p.contains('\0') || trim(p).rsplit(':').next() == Some("id")),
            _ => false,
        }
    }

    #[test]
    fn every_pair_of_the_reference_holds() {
        let file: Value = serde_json::from_str(include_str!("../../tests/data/vectors.json"))
            .expect("the vectors parse");
        let vectors = file["vectors"].as_array().expect("a list");
        assert_eq!(vectors.len(), 556);
        for v in vectors {
            let name = text(&v["fn"]);
            let args = v["args"].as_array().expect("arguments");
            let ours = compute(name, args);
            match (&ours, v.get("error")) {
                (Ok(value), None) => assert_eq!(value, &v["result"], "{name}({args:?})"),
                (Err(e), Some(wanted)) => {
                    assert_eq!(e.code().as_str(), wanted["code"], "{name}({args:?})")
                }
                (Err(e), None) => assert!(stricter(name, args), "{name}({args:?}): {e}"),
                (Ok(value), Some(_)) => {
                    panic!("{name}({args:?}) gave {value} where the reference fails")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(text: &str) -> Key {
        Key::new(text).expect("a legal key")
    }

    #[test]
    fn reserved_names_are_refused_where_they_would_collide() {
        let space = KeySpace::redis("syncguard").expect("a legal prefix");
        for bad in [
            "fence:syncguard:foo",
            "fence:syncguard:",
            "id:AAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert!(space.lock(&key(bad)).is_err(), "{bad}");
        }
        for good in [
            "fence:other:foo",
            "fence:syncguardfoo",
            "id:42",
            "id:AAAAAAAAAAAAAAAAAAAAA+",
            "fence",
        ] {
            assert!(space.lock(&key(good)).is_ok(), "{good}");
        }
        let bare = KeySpace::redis("").expect("no prefix");
        assert!(bare.lock(&key("fence:x")).is_err());
        assert!(KeySpace::table().lock(&key("fence:x")).is_ok());
    }

    #[test]
    fn prefixes_that_cannot_work_are_refused() {
        for bad in [
            "fence", "a:fence", "a:fence:", "xfence", "fence:b", "id", "a:id", "a:id::", "a\0b",
        ] {
            assert!(KeySpace::redis(bad).is_err(), "{bad:?}");
        }
        assert!(KeySpace::redis(&"p".repeat(952)).is_err());
        assert!(KeySpace::redis(&"p".repeat(951)).is_ok());
        assert_eq!(
            KeySpace::redis("a:").map(|s| s.prefix().to_owned()).ok(),
            Some("a".to_owned())
        );
    }

    proptest! {
        #[test]
        fn storage_keys_stay_within_the_limit(prefix in "[a-z:]{0,80}", text in "\\PC{1,120}", limit in 40usize..400, reserve in 0usize..40) {
            if let Ok(stored) = storage_key(&prefix, &text, limit, reserve) {
                prop_assert!(stored.len() + reserve <= limit);
                prop_assert!(stored.starts_with(trim(&prefix)));
            }
        }
    }
}
