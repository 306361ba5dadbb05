#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]
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
#![doc = include_str!("guide/front_page.md")]

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
    #[doc = include_str!("../docs/cli.md")]
    pub mod cli {}
    #[doc = include_str!("../docs/connections.md")]
    pub mod connections {}
    #[doc = include_str!("../docs/postgres.md")]
    pub mod postgres {}
    #[doc = include_str!("../docs/telemetry.md")]
    pub mod telemetry {}
    #[doc = include_str!("../docs/tokio.md")]
    pub mod tokio {}
    #[doc = include_str!("../docs/topologies.md")]
    pub mod topologies {}
    #[doc = include_str!("../docs/wire-format.md")]
    pub mod wire_format {}
}

#[cfg(all(unix, doc))]
pub mod guide;

/// The examples of the README are tests.
#[cfg(all(unix, doctest))]
#[doc = include_str!("../README.md")]
mod readme {}

/// So are those of the page on fencing, which has a drawing and is for readers of the repository.
#[cfg(all(unix, doctest))]
#[doc = include_str!("../docs/fencing.md")]
mod fencing_page {}

#[cfg(unix)]
mod backend;
#[cfg(unix)]
mod client;
#[cfg(unix)]
mod holding;
#[cfg(all(unix, any(feature = "redis", feature = "postgres", feature = "sqlite")))]
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

#[cfg(unix)]
pub use backend::call::{Call, OnCancel};
#[cfg(unix)]
pub use backend::helper_call::HelperCall;
#[cfg(unix)]
pub use backend::helpers::HelperThreads;
#[cfg(unix)]
pub use backend::keyspace::KeySpace;
#[cfg(unix)]
pub use backend::list::{ListCursor, ListOptions, ListPage, ListRequest};
#[cfg(unix)]
pub use backend::store_clock::{StoreClock, TimedReply};
#[cfg(unix)]
pub use backend::telemetry::Telemetry;
#[cfg(unix)]
pub use backend::{
    Absence, AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome,
    TimeAuthority, Watch,
};
#[cfg(unix)]
pub use client::report::{CheckFinding, CheckLevel, CheckReport, CheckSubject};
#[cfg(unix)]
pub use client::waiter::{Turn, Waiter, WaiterStep};
#[cfg(unix)]
pub use client::{Checked, Client};
#[cfg(unix)]
pub use holding::guard::{Guard, WaitEnd};
#[cfg(unix)]
pub use options::client::{
    ClientOptions, DEFAULT_CONNECT_TIMEOUT, DEFAULT_DISPOSE_TIMEOUT, DEFAULT_KEY_PREFIX,
    DEFAULT_OPERATION_TIMEOUT, DEFAULT_POOL_SIZE,
};
#[cfg(unix)]
pub use options::connections::ConnectRequest;
#[cfg(unix)]
pub use options::hooks::IncludeRaw;
#[cfg(unix)]
pub use options::lock::{DEFAULT_ACQUIRE_TIMEOUT, DEFAULT_TTL, LockOptions};
#[cfg(unix)]
pub use options::retry::{Backoff, DEFAULT_MAX_RETRIES, DEFAULT_RETRY_DELAY, Jitter};
#[cfg(unix)]
pub use runtime::cancel::CancelToken;
/// The version of rustls that [`ClientOptions::tls_config`] takes.
#[cfg(all(unix, feature = "tls"))]
pub use rustls;
#[cfg(unix)]
pub use stores::format;
#[cfg(unix)]
pub use stores::gate;
#[cfg(all(unix, feature = "testkit"))]
pub use stores::memory as testkit;
#[cfg(all(unix, feature = "postgres"))]
pub use stores::postgres::PostgresBackend;
#[cfg(all(unix, feature = "redis"))]
pub use stores::redis::RedisBackend;
#[cfg(all(unix, feature = "sqlite"))]
pub use stores::sqlite::SqliteBackend;
#[cfg(unix)]
pub use types::error::{ErrorCode, LockError, LossReason};
#[cfg(unix)]
pub use types::event::{EventReason, LockEvent, LockEventType};
#[cfg(unix)]
pub use types::failed_release::{FailedRelease, ReleaseOrigin};
#[cfg(unix)]
pub use types::fence::{Fence, FenceSource, MAX_FENCE};
#[cfg(unix)]
pub use types::holder::Holder;
#[cfg(unix)]
pub use types::holder_text::{HolderText, MAX_HOLDER_BYTES};
#[cfg(unix)]
pub use types::key::{IntoKey, Key, MAX_KEY_BYTES, hash_key};
#[cfg(unix)]
pub use types::liveness::{TIME_TOLERANCE_MS, is_live};
#[cfg(unix)]
pub use types::lock_id::{IntoLockId, LockId};
#[cfg(unix)]
pub use types::lost_lock::LostLock;
#[cfg(unix)]
pub use types::stored_lock::Acquired;
#[cfg(unix)]
pub use types::stored_lock::{LockInfo, LockInfoDebug, StoredLock};
#[cfg(unix)]
pub use types::ttl::Ttl;
#[cfg(unix)]
pub use waiting::blocking::WaiterEvent;
