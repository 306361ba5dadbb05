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
// The README links to pages of docs/, which are no files of rustdoc. Here the same names lead to the modules of `docs`, which hold
// those pages: of two definitions of a link, the first one counts.
//! [docs/bounds.md]: crate::docs::bounds
//! [docs/postgres.md]: crate::docs::postgres
//! [docs/topologies.md]: crate::docs::topologies
//! [docs/wire-format.md]: crate::docs::wire_format
#![doc = include_str!("../README.md")]

// Every item below is for Unix, so that this is the only error elsewhere.
#[cfg(not(unix))]
compile_error!(
    "syncguard needs a Unix system: Linux, macOS or a BSD. It does not run on this one; on Windows, use it inside WSL"
);

/// The pages of the folder `docs`. This module exists in the documentation only.
#[cfg(all(unix, doc))]
pub mod docs {
    #[doc = include_str!("../docs/bounds.md")]
    pub mod bounds {}
    #[doc = include_str!("../docs/postgres.md")]
    pub mod postgres {}
    #[doc = include_str!("../docs/topologies.md")]
    pub mod topologies {}
    #[doc = include_str!("../docs/wire-format.md")]
    pub mod wire_format {}
}

#[cfg(unix)]
mod backend;
#[cfg(unix)]
mod client;
#[cfg(unix)]
mod holding;
#[cfg(all(unix, any(feature = "redis", feature = "postgres")))]
mod net;
#[cfg(unix)]
mod options;
#[cfg(unix)]
mod runtime;
#[cfg(unix)]
mod stores;
#[cfg(unix)]
mod types;
#[cfg(unix)]
mod waiting;

// The crate's own short names for what the folders hold.
#[cfg(all(
    unix,
    any(
        feature = "redis",
        feature = "postgres",
        feature = "sqlite",
        feature = "testkit"
    )
))]
use backend::limits;
#[cfg(all(unix, any(feature = "redis", feature = "postgres", feature = "sqlite")))]
use backend::pool;
#[cfg(unix)]
use backend::{call, keyspace, telemetry};
#[cfg(all(unix, any(feature = "redis", feature = "postgres")))]
use backend::{ear, store_clock};
#[cfg(unix)]
use client::{diagnostics, waiter};
#[cfg(unix)]
use holding::{guard, heartbeat, lifecycle};
#[cfg(all(unix, any(feature = "redis", feature = "postgres")))]
use net::resolve;
#[cfg(all(unix, feature = "tls", any(feature = "redis", feature = "postgres")))]
use net::tls;
#[cfg(unix)]
use runtime::{callbacks, cancel, clock, ending, process, sync, threads, timer, wake};
#[cfg(unix)]
use stores::open;
#[cfg(all(unix, feature = "postgres"))]
use stores::postgres;
#[cfg(all(unix, feature = "redis"))]
use stores::redis;
#[cfg(all(unix, feature = "sqlite"))]
use stores::sqlite;
#[cfg(unix)]
use types::{error, key, lease, liveness};
#[cfg(unix)]
use waiting::{policy, queue, undo, wait};

#[cfg(unix)]
pub use backend::{
    Absence, AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome,
    TimeAuthority, Watch,
};
#[cfg(unix)]
pub use call::{Call, OnCancel};
#[cfg(unix)]
pub use cancel::CancelToken;
#[cfg(unix)]
pub use client::{Checked, Client};
#[cfg(unix)]
pub use diagnostics::{LockInfo, LockInfoDebug, StoredLock};
#[cfg(unix)]
pub use error::{ErrorCode, LockError, LossReason};
#[cfg(unix)]
pub use guard::Guard;
#[cfg(unix)]
pub use key::{Key, MAX_KEY_BYTES, hash_key};
#[cfg(unix)]
pub use keyspace::KeySpace;
#[cfg(unix)]
pub use lease::{Acquired, Fence, Holder, LockId, MAX_FENCE, Ttl};
#[cfg(unix)]
pub use liveness::{TIME_TOLERANCE_MS, is_live};
#[cfg(unix)]
pub use open::{
    ClientOptions, DEFAULT_CONNECT_TIMEOUT, DEFAULT_DISPOSE_TIMEOUT, DEFAULT_KEY_PREFIX,
    DEFAULT_OPERATION_TIMEOUT, DEFAULT_POOL_SIZE,
};
#[cfg(unix)]
pub use options::{
    Backoff, DEFAULT_ACQUIRE_TIMEOUT, DEFAULT_MAX_RETRIES, DEFAULT_RETRY_DELAY, DEFAULT_TTL,
    Jitter, LockOptions, ReleaseError,
};
#[cfg(all(unix, feature = "postgres"))]
pub use postgres::PostgresBackend;
#[cfg(all(unix, feature = "redis"))]
pub use redis::RedisBackend;
#[cfg(all(unix, feature = "sqlite"))]
pub use sqlite::SqliteBackend;
#[cfg(all(unix, feature = "testkit"))]
pub use stores::testkit;
#[cfg(unix)]
pub use telemetry::{IncludeRaw, LockEvent, LockEventType, Telemetry};
#[cfg(unix)]
pub use wait::WaiterEvent;
#[cfg(unix)]
pub use waiter::{Turn, Waiter, WaiterStep};
