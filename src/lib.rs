#![forbid(unsafe_code)]
// Rooms that only some stores use have corners that nobody uses without them; with all of them nothing may be dead.
#![cfg_attr(
    not(all(
        feature = "redis",
        feature = "postgres",
        feature = "sqlite",
        feature = "tls",
        feature = "testkit"
    )),
    allow(dead_code)
)]
#![doc = include_str!("../README.md")]

mod ahead;
mod backend;
mod backoff;
mod callbacks;
mod cancel;
mod client;
mod clock;
mod diagnostics;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod ear;
mod ending;
mod error;
mod guard;
mod heartbeat;
mod key;
mod keyspace;
mod lease;
mod lifecycle;
#[cfg(all(test, loom))]
mod lifecycle_model;
mod limits;
mod liveness;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod net;
mod open;
mod options;
#[cfg(any(feature = "redis", feature = "postgres", feature = "sqlite"))]
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
mod process;
mod queue;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod resolve;
mod runtime;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod store_clock;
mod sync;
mod telemetry;
#[cfg(feature = "testkit")]
pub mod testkit;
mod threads;
mod timer;
#[cfg(all(feature = "tls", any(feature = "redis", feature = "postgres")))]
mod tls;
mod undo;
mod wait;
mod waiter;
mod wake;

pub use backend::{
    Absence, AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome,
    TimeAuthority, Watch,
};
pub use cancel::CancelToken;
pub use client::{Checked, Client};
pub use diagnostics::{LockInfo, LockInfoDebug, StoredLock};
pub use error::{ErrorCode, LockError, LossReason};
pub use guard::Guard;
pub use key::{Key, MAX_KEY_BYTES, hash_key};
pub use keyspace::KeySpace;
pub use lease::{Acquired, Fence, Holder, LockId, MAX_FENCE, Ttl};
pub use liveness::{TIME_TOLERANCE_MS, is_live};
pub use open::{
    ClientOptions, DEFAULT_CONNECT_TIMEOUT, DEFAULT_DISPOSE_TIMEOUT, DEFAULT_KEY_PREFIX,
    DEFAULT_OPERATION_TIMEOUT, DEFAULT_POOL_SIZE,
};
pub use options::{
    Backoff, DEFAULT_ACQUIRE_TIMEOUT, DEFAULT_MAX_RETRIES, DEFAULT_RETRY_DELAY, DEFAULT_TTL,
    Jitter, LockOptions, ReleaseError,
};
#[cfg(feature = "postgres")]
pub use postgres::PostgresBackend;
#[cfg(feature = "redis")]
pub use redis::RedisBackend;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteBackend;
pub use telemetry::{IncludeRaw, LockEvent, LockEventType, Telemetry};
pub use waiter::{Turn, Waiter};
