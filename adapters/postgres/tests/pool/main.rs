//! Tests the locks over a pool of the crate `postgres`: the contract of a store, also behind PgBouncer, the same locks as those of the
//! built-in driver, and pools and servers in trouble.

mod contract;
#[path = "../../../cases/faults.rs"]
mod faults;
#[path = "../../../cases/interop.rs"]
mod interop;
mod sessions;
mod support;
