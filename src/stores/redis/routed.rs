//! [`Routed`]: a connection and where it leads; and what cluster and sentinels share when they look for a server. It uses
//! `connection`.

use std::sync::atomic::AtomicBool;

use crate::backend::limits::Limits;
use crate::net::uri::{self, Endpoint};
use crate::stores::redis::connection::RedisConnection;
use crate::types::error::LockError;

/// A connection, and where it leads.
pub(crate) struct Routed {
    pub(crate) connection: RedisConnection,
    pub(crate) place: ServerPlace,
}

/// Where a connection leads.
pub(crate) struct ServerPlace {
    pub(super) endpoint: Endpoint,
    /// Which view of the world it was made in.
    pub(super) generation: u64,
    /// Whether it has served a request.
    pub(super) confirmed: AtomicBool,
}

impl Routed {
    pub(crate) fn new(connection: RedisConnection, endpoint: Endpoint, generation: u64) -> Self {
        Self {
            connection,
            place: ServerPlace {
                endpoint,
                generation,
                confirmed: AtomicBool::new(false),
            },
        }
    }
}

impl ServerPlace {
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

/// The limits of one of several servers that are tried in turn, with `others` still to come. One that hangs leaves time for
/// the rest; one that fails at once leaves all of it.
pub(crate) fn share<'a>(limits: &Limits<'a>, others: usize) -> Result<Limits<'a>, LockError> {
    let parts = u32::try_from(others + 1).unwrap_or(u32::MAX).min(4);
    Ok(limits.within(limits.left()? / parts))
}

/// An address that a server told us, if it can be one. It may be shown in a message.
pub(crate) fn endpoint(host: &str, port: &str) -> Option<Endpoint> {
    let is_host = (1..=255).contains(&host.len())
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".-_:%".contains(&b));
    let port = uri::port(port).ok()?;
    is_host.then(|| Endpoint::Tcp {
        host: host.to_owned(),
        port,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::call::Call;
    use crate::runtime::process::Owner;

    #[test]
    fn addresses_are_judged() {
        for (host, port) in [("10.0.0.1", "1"), ("::1", "65535"), ("a-b.c_d", "7000")] {
            assert!(endpoint(host, port).is_some(), "{host}");
        }
        let long = "h".repeat(256);
        for (host, port) in [
            ("", "1"),
            ("?", "1"),
            ("a b", "1"),
            ("h", "0"),
            ("h", "65536"),
            ("h", ""),
            ("h\u{e9}", "1"),
            (long.as_str(), "1"),
        ] {
            assert!(endpoint(host, port).is_none(), "{host} {port}");
        }
    }

    #[test]
    fn only_the_last_server_gets_all_the_time() {
        let limits = Limits::enter(Owner::current(), Duration::from_secs(60), &Call::new())
            .expect("time is left");
        let turn = |others| {
            let turn = share(&limits, others).expect("time is left");
            turn.left().expect("time is left")
        };
        assert!(turn(0) > Duration::from_secs(50));
        assert!(turn(1) <= Duration::from_secs(30));
        assert!(turn(9) <= Duration::from_secs(15) && turn(9) > Duration::from_secs(10));
    }
}
