//! The stored value of a lock: JSON, byte for byte as the TypeScript library's scripts write it. It uses `types` alone.

use serde_json::Value;

use crate::types::error::LockError;
use crate::types::fence::Fence;
use crate::types::holder_text::HolderText;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;

/// The longest value that is decoded. A lock is far shorter.
pub const MAX_VALUE_BYTES: usize = 65_536;
/// A lease ends before this time: a script writes numbers with 14 digits.
pub const TIME_LIMIT_MS: i64 = 100_000_000_000_000;

/// The value up to its fence; the script adds the fence and the times. The TypeScript library keeps the field `holder` when it
/// extends a lock, and does not write it.
pub(crate) fn head(key: &str, id: &LockId, holder: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + holder.len() + 80);
    out.extend_from_slice(b"{\"key\":\"");
    escape(key, &mut out);
    if !holder.is_empty() {
        out.extend_from_slice(b"\",\"holder\":\"");
        escape(holder, &mut out);
    }
    out.extend_from_slice(b"\",\"lockId\":\"");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b"\",\"fence\":\"");
    out
}

/// Escapes as the server's `cjson` does, which is not as `serde_json` does: the slash and DEL too.
fn escape(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for &byte in text.as_bytes() {
        let short = match byte {
            b'"' | b'\\' | b'/' => byte,
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0c => b'f',
            b'\r' => b'r',
            0..=0x1f | 0x7f => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
                continue;
            }
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
}

/// Reads a stored value, in whatever order its fields stand.
///
/// # Errors
/// `Internal` for anything that is not a lock.
pub(crate) fn parse(value: &[u8]) -> Result<StoredLock, LockError> {
    if value.len() > MAX_VALUE_BYTES {
        return Err(foreign());
    }
    let json: Value = serde_json::from_slice(value).map_err(|_| foreign())?;
    let text = |name: &str| json.get(name).and_then(Value::as_str).ok_or_else(foreign);
    // A number with a fraction or an exponent is not a time.
    let time = |name: &str| json.get(name).and_then(Value::as_i64).ok_or_else(foreign);
    let expires_at_ms = time("expiresAtMs")?;
    if !(0..TIME_LIMIT_MS).contains(&expires_at_ms) {
        return Err(foreign());
    }
    Ok(StoredLock::new(
        text("key")?,
        LockId::parse(text("lockId")?).map_err(|_| foreign())?,
        Fence::parse(text("fence")?).map_err(|_| foreign())?,
        expires_at_ms,
        time("acquiredAtMs")?,
    )
    .saying(text("holder").ok().and_then(HolderText::read)))
}

/// What is said of a value under our key that is not ours.
pub(crate) fn foreign() -> LockError {
    LockError::internal(
        "the value stored under this lock's key is not a lock of syncguard; another program writes under the same key_prefix",
    )
    .nothing_applied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::key::Key;

    #[test]
    fn the_head_is_the_reference_s() {
        let id = LockId::parse("JjYEnSICuoi1IlfW3NFLOw").expect("an id");
        let key = Key::new("a/b\"\\\tnl\n\u{7f}\u{1}é😀").expect("a key");
        assert_eq!(
            String::from_utf8(head(key.as_str(), &id, "")).expect("UTF-8"),
            "{\"key\":\"a\\/b\\\"\\\\\\tnl\\n\\u007f\\u0001é😀\",\"lockId\":\"JjYEnSICuoi1IlfW3NFLOw\",\"fence\":\""
        );
    }

    #[test]
    fn values_are_read_in_any_order_or_refused() {
        let good = r#"{"expiresAtMs":2,"key":"a\/b","extra":null,"fence":"000000000000007","acquiredAtMs":1,"lockId":"JjYEnSICuoi1IlfW3NFLOw"}"#;
        let lock = parse(good.as_bytes()).expect("a lock");
        assert_eq!(
            (lock.key.as_str(), lock.fence.get(), lock.expires_at_ms),
            ("a/b", 7, 2)
        );
        for (field, bad) in [
            (r#""expiresAtMs":2"#, r#""expiresAtMs":2.5"#),
            (r#""expiresAtMs":2"#, r#""expiresAtMs":"2""#),
            (r#""expiresAtMs":2"#, r#""expiresAtMs":-1"#),
            (r#""expiresAtMs":2"#, r#""expiresAtMs":100000000000000"#),
            (r#""acquiredAtMs":1,"#, ""),
            (r#""000000000000007""#, "7"),
            (r#""000000000000007""#, r#""7""#),
            ("JjYEnSICuoi1IlfW3NFLOw", "short"),
        ] {
            assert!(parse(good.replace(field, bad).as_bytes()).is_err(), "{bad}");
        }
        let long = good.replace("null", &format!("\"{}\"", "x".repeat(MAX_VALUE_BYTES)));
        assert!(parse(long.as_bytes()).is_err());
        for bad in ["", "null", "{}", "[]", "1", "\u{0}"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
