//! What the tests of the C ABI use too: the limit of a test program, the passwords that no output may
//! hold, servers, a proxy, and a stopwatch.

mod limit;
pub mod passwords;
mod ports;
pub mod postgres;
pub mod proxy;
pub mod redis;
pub mod stopwatch;
pub mod topologies;
