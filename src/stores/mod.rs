//! The stores that come with the crate, one folder each, and how a URL becomes one of them. They use `types`, `runtime`, `options`,
//! `backend` and `net`, and never each other.

pub mod format;
pub mod gate;
#[cfg(feature = "testkit")]
pub mod memory;
pub(crate) mod open;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
pub(crate) mod unused_options;
