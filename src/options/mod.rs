//! What a user sets, checked once. Uses `types` and `runtime`.

mod backoff;
pub(crate) mod client;
pub(crate) mod connections;
pub(crate) mod hooks;
pub(crate) mod lock;
pub(crate) mod retry;
