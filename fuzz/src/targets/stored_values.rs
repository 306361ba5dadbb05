//! Any bytes as the stored value of a lock in Redis.
//!
//! A value that is read as a lock is read as the same one if it is written anew; any other is refused without a word of it.

use syncguard::ErrorCode;
use syncguard::format::redis::{MAX_VALUE_BYTES, TIME_LIMIT_MS, decode, encode};

use crate::engine::Target;
use crate::{SECRET, gist, outcome, says_nothing};

/// How it is run.
pub const TARGET: Target = Target {
    name: "stored_values",
    run,
    words: &[
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b",",
        b":",
        b"\\u0000",
        b"\\ud83d\\ude00",
        b"\\ud83d",
        b"\\/",
        b"/",
        b"\x7f",
        b"null",
        b"1e3",
        b"-0",
        b"99999999999999",
        b"100000000000000",
        b"9223372036854775808",
        b"\"key\":",
        b"\"lockId\":",
        b"\"fence\":",
        b"\"expiresAtMs\":",
        b"\"acquiredAtMs\":",
        b"000000000000001",
        b"JjYEnSICuoi1IlfW3NFLOw",
        b"hunter2zq",
        b"[[[[[[[[[[[[[[[[",
    ],
    max_len: 70_000,
    short: 30_000,
    // A value of 64 KiB, of nothing but small parts.
    memory: 16 << 20,
};

/// Executes one input.
pub fn run(data: &[u8]) -> u64 {
    let lock = match decode(data) {
        Ok(lock) => lock,
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::Internal, "{error}");
            says_nothing(&error, &[SECRET]);
            return gist(&error);
        }
    };
    assert!(data.len() <= MAX_VALUE_BYTES);
    assert!(
        (0..TIME_LIMIT_MS).contains(&lock.expires_at_ms),
        "{}",
        lock.expires_at_ms
    );
    let anew = encode(&lock);
    // Escapes make a value longer.
    if anew.len() <= MAX_VALUE_BYTES {
        assert_eq!(decode(anew.as_bytes()).expect("a lock"), lock);
        assert_eq!(encode(&lock), anew);
    }
    let shown = format!("{lock:?}");
    assert!(
        lock.key.len() < 8 || !shown.contains(&lock.key),
        "Debug shows the key"
    );
    assert!(
        !shown.contains(lock.lock_id.as_str()),
        "Debug shows the lock id"
    );
    outcome((
        lock.key.len().min(3),
        lock.fence.get() == 0,
        lock.acquired_at_ms < 0,
        anew.as_bytes() == data,
    ))
}
