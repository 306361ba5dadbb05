//! Gates: the check at the resource, ready made. A gate remembers the newest [`Fence`](crate::Fence) per resource and refuses a smaller
//! one, in the same step as the write. Equal fences pass: one holder writes many times. It uses `postgres::gate`, `redis::gate`,
//! `sqlite::gate` and `backend`.
//!
//! | your data is in | the gate |
//! |---|---|
//! | Postgres | `SELECT syncguard_pass(resource, fence)` inside your own transaction: [`PostgresGate`](postgres::PostgresGate) |
//! | the Postgres database that has the locks | the row of the counter, `FOR SHARE`: [`PostgresGate::share`](postgres::PostgresGate::share) |
//! | SQLite | [`sqlite::PASS`] inside your own transaction |
//! | Redis | [`Client::fenced_set`](crate::Client::fenced_set), or a script of your own [behind the check](redis::gated) |
//! | anything that can compare and set | [`FenceGate`] |
//!
//! `docs/fencing.md` shows each of them with a holder that is late.

pub use crate::backend::gate::{
    CompareAndSet, FenceGate, FencedRecord, GateOutcome, GateStore, MAX_RESOURCE_BYTES,
};

#[cfg(feature = "postgres")]
pub use super::postgres::gate as postgres;
#[cfg(feature = "redis")]
pub use super::redis::gate as redis;
#[cfg(feature = "sqlite")]
pub use super::sqlite::gate as sqlite;
