//! Tests the locks over a pool of the crate `redis`: the contract of a store, the same locks as those of the built-in driver, and pools
//! and servers in trouble.

mod contract;
#[path = "../../../cases/faults.rs"]
mod faults;
#[path = "../../../cases/interop.rs"]
mod interop;
mod poisoned;
mod support;
