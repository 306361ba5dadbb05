//! Tests what every store promises, on every store: the verbs, late requests, and the waking of waiters.

mod cases;
mod late_requests;
#[path = "../support/mod.rs"]
mod support;
mod waiting;
