//! Short forms for tests of a store: keys, ids, times and what a verb answered.

use std::time::Duration;

use syncguard::{AcquireOutcome, Acquired, ClientOptions, ErrorCode, Key, LockError, LockId, Ttl};

pub fn key(text: &str) -> Key {
    Key::new(text).expect("a legal key")
}

pub fn id() -> LockId {
    LockId::random().expect("randomness")
}

pub fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).expect("a legal ttl")
}

#[track_caller]
pub fn granted(outcome: Result<AcquireOutcome, LockError>) -> Acquired {
    match outcome {
        Ok(AcquireOutcome::Acquired(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
pub fn code<T: std::fmt::Debug>(result: Result<T, LockError>) -> ErrorCode {
    result.expect_err("an error").code()
}

/// Options for what must succeed on a machine that is busy with something else.
pub fn patient() -> ClientOptions {
    let long = Duration::from_secs(60);
    ClientOptions::new()
        .operation_timeout(long)
        .connect_timeout(long)
}
