#![forbid(unsafe_code)]
// Shared modules contain code that only some backends use, so dead code is denied only when every feature is on.
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

mod backend;
mod client;
mod holding;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod net;
mod options;
mod runtime;
mod stores;
mod types;
mod waiting;

// The crate's own short names for what the folders hold.
#[cfg(any(
    feature = "redis",
    feature = "postgres",
    feature = "sqlite",
    feature = "testkit"
))]
use backend::limits;
#[cfg(any(feature = "redis", feature = "postgres", feature = "sqlite"))]
use backend::pool;
use backend::{call, keyspace, telemetry};
#[cfg(any(feature = "redis", feature = "postgres"))]
use backend::{ear, store_clock};
use client::{diagnostics, waiter};
use holding::{guard, heartbeat, lifecycle};
#[cfg(any(feature = "redis", feature = "postgres"))]
use net::resolve;
#[cfg(all(feature = "tls", any(feature = "redis", feature = "postgres")))]
use net::tls;
use runtime::{callbacks, cancel, clock, ending, process, sync, threads, timer, wake};
use stores::open;
#[cfg(feature = "postgres")]
use stores::postgres;
#[cfg(feature = "redis")]
use stores::redis;
#[cfg(feature = "sqlite")]
use stores::sqlite;
use types::{error, key, lease, liveness};
use waiting::{policy, queue, undo, wait};

pub use backend::{
    Absence, AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome,
    TimeAuthority, Watch,
};
pub use call::{Call, OnCancel};
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
#[cfg(feature = "testkit")]
pub use stores::testkit;
pub use telemetry::{IncludeRaw, LockEvent, LockEventType, Telemetry};
pub use wait::WaiterEvent;
pub use waiter::{Turn, Waiter, WaiterStep};
