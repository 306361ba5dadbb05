//! What the tests of the C ABI use too: the limit of a test program, servers, a proxy, and a stopwatch.

mod limit;
mod ports;
pub mod postgres;
pub mod proxy;
pub mod redis;
pub mod stopwatch;
