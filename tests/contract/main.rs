//! Tests what every store promises, on every store: the contract, late requests, and the waking of waiters. The contract is also
//! tested itself: stores written after the documentation keep it, and broken ones do not.

mod broken_stores;
mod cases;
mod clock_fences;
mod file_store;
mod holders;
mod late_requests;
mod listing;
mod own_store;
#[path = "../support/mod.rs"]
mod support;
mod waiting;
