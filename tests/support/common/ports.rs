//! Finds ports for servers that a test stops and starts again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;

/// A port on which nothing listens now, below those that the kernel gives to clients: while its server is down, no connection
/// can take it. Chosen at random, so that test programs which run at once do not meet.
pub fn free_port() -> u16 {
    let range = fixed_ports();
    for _ in 0..1000 {
        let random = RandomState::new().build_hasher().finish();
        let port = range.start + (random % u64::from(range.end - range.start)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port in {range:?}");
}

/// A node of a Redis Cluster also listens on its port plus 10000, which has to lie below the clients' ports too.
fn fixed_ports() -> Range<u16> {
    const LOWEST: u16 = 2_000;
    let text =
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let clients = text.split_whitespace().next().and_then(|n| n.parse().ok());
    let end = clients.unwrap_or(32_768_u16).saturating_sub(10_000);
    if end >= LOWEST + 1_000 {
        return LOWEST.max(end.saturating_sub(10_000))..end;
    }
    // The kernel gives clients almost every port here: no port is safe then.
    1_024..10_000
}
