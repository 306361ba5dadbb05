//! Any text to what checks keys, lock ids, fences, prefixes and names of tables.
//!
//! What is accepted is within its limits, stays the same if it is read again, and gives stored names that fit the store.

use syncguard::format::postgres::PostgresStatements;
use syncguard::{ErrorCode, Fence, Key, KeySpace, LockError, LockId, MAX_KEY_BYTES};

use crate::engine::Target;
use crate::{gist, outcome};

/// How it is run.
pub const TARGET: Target = Target {
    name: "names",
    run,
    words: &[
        b"fence:",
        b"id:",
        b":",
        b"\0",
        b"{app}",
        b"JjYEnSICuoi1IlfW3NFLOw",
        b"000000000000001",
        b"900000000000000",
        b"999999999999999",
        "é".as_bytes(),
        "e\u{301}".as_bytes(),
        "\u{fb01}".as_bytes(),
        "\u{1d15e}".as_bytes(),
        "\u{ac00}".as_bytes(),
        b"\"",
        b"_",
        b"locks",
    ],
    max_len: 2048,
    short: 20_000,
    memory: 1 << 20,
};

/// The longest name that Redis is given.
const REDIS_NAME: usize = 1000;
/// The longest name in a table.
const TABLE_NAME: usize = 512;

fn refused(error: &LockError) -> u64 {
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(!error.may_have_applied(), "{error}");
    gist(error)
}

fn stored(key: &Key, prefix: &str) -> u64 {
    let space = match KeySpace::redis(prefix) {
        Ok(space) => space,
        Err(error) => return refused(&error),
    };
    let lock = match space.lock(key) {
        Ok(lock) => lock,
        Err(error) => return refused(&error),
    };
    let fence = space.fence(&lock).expect("a fence's name");
    assert!(
        lock.len() <= REDIS_NAME && fence.len() <= REDIS_NAME,
        "{} and {} bytes",
        lock.len(),
        fence.len()
    );
    assert!(lock.starts_with(space.prefix()) && fence.starts_with(space.prefix()));
    assert_ne!(lock, fence, "a lock and its counter have one name");
    outcome(lock.ends_with(key.as_str()))
}

fn identifiers(text: &str) -> u64 {
    match PostgresStatements::new(text, Some(text), None) {
        Ok(_) => {
            let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            assert!(
                plain && (1..=63).contains(&text.len()),
                "{text:?} is no name of a table"
            );
            outcome("a table")
        }
        Err(error) => refused(&error),
    }
}

/// Executes one input: a text, cut in two at the first line feed.
pub fn run(data: &[u8]) -> u64 {
    let whole = String::from_utf8_lossy(data);
    let (text, prefix) = whole.split_once('\n').unwrap_or((&whole, "syncguard"));
    let key = match Key::new(text) {
        Ok(key) => {
            assert!(
                (1..=MAX_KEY_BYTES).contains(&key.as_str().len()) && !key.as_str().contains('\0')
            );
            assert_eq!(
                Key::new(key.as_str()).expect("a key"),
                key,
                "another key the second time"
            );
            let table = KeySpace::table();
            let lock = table.lock(&key).expect("a name");
            assert!(lock.len() <= TABLE_NAME, "{} bytes", lock.len());
            table.fence(&lock).expect("a fence's name");
            stored(&key, prefix)
        }
        Err(error) => refused(&error),
    };
    let id = match LockId::parse(text) {
        Ok(id) => {
            assert_eq!(id.as_str(), text);
            outcome("an id")
        }
        Err(error) => refused(&error),
    };
    let fence = match Fence::parse(text) {
        Ok(fence) => {
            assert_eq!(fence.to_string(), text);
            outcome("a fence")
        }
        Err(error) => refused(&error),
    };
    outcome((key, id, fence, identifiers(text)))
}
