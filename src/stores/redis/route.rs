//! Which server to connect to: the one of the URL, the one that sentinels name, or the owner of a cluster's slot. `connection`
//! has how to connect.

use std::time::{Duration, Instant};

use crate::backend::limits::Limits;
use crate::net::uri::{self, Endpoint};
use crate::stores::redis::cluster::{Cluster, Redirect};
use crate::stores::redis::connection::{Connector, RedisConnection};
use crate::stores::redis::sentinel::Sentinels;
use crate::types::error::{ErrorCode, LockError};

/// A server that was silent for this long is suspected.
const TELLING: Duration = Duration::from_millis(200);

/// The way to the server that takes writes.
pub(crate) enum Route {
    /// The one the URL names.
    Fixed(Endpoint),
    /// The one the sentinels name.
    Sentinel(Sentinels),
    /// The owner of the slot of our keys.
    Cluster(Cluster),
}

/// A connection, and where it leads.
pub(crate) struct Routed {
    pub(crate) connection: RedisConnection,
    endpoint: Endpoint,
    /// Which view of the world it was made in.
    generation: u64,
    /// Whether it has served a request.
    confirmed: bool,
}

impl Route {
    fn generation(&self) -> u64 {
        match self {
            Self::Fixed(_) => 0,
            Self::Sentinel(sentinels) => sentinels.generation(),
            Self::Cluster(cluster) => cluster.generation(),
        }
    }

    /// Whether a pooled connection still leads to where a new one would.
    pub(crate) fn is_current(&self, routed: &Routed) -> bool {
        routed.generation == self.generation()
    }

    /// A new connection. Nothing of the caller's was sent if it fails.
    pub(crate) fn connect(
        &self,
        connector: &Connector,
        limits: &Limits<'_>,
    ) -> Result<Routed, LockError> {
        match self {
            Self::Fixed(endpoint) => {
                let connection = connector.connect(endpoint, limits)?;
                Ok(Routed::new(connection, endpoint.clone(), 0))
            }
            Self::Sentinel(sentinels) => sentinels.connect(connector, limits),
            Self::Cluster(cluster) => cluster.connect(connector, limits),
        }
    }

    /// What an error reply says about the way. Only a cluster's route is followed.
    pub(crate) fn redirect(
        &self,
        line: &str,
        from: &Routed,
    ) -> Result<Option<Redirect>, LockError> {
        match self {
            Self::Cluster(cluster) => cluster.redirect(line, &from.endpoint),
            Self::Fixed(_) | Self::Sentinel(_) => Ok(None),
        }
    }

    /// Goes where a node sent us.
    pub(crate) fn follow(
        &self,
        redirect: Redirect,
        connector: &Connector,
        limits: &Limits<'_>,
    ) -> Result<Routed, LockError> {
        let connected = connector.connect(&redirect.endpoint, limits);
        if let (Err(_), Self::Cluster(cluster)) = (&connected, self) {
            cluster.forget(&redirect.endpoint);
        }
        let mut routed = Routed::new(connected?, redirect.endpoint, redirect.generation);
        routed.connection.asking = redirect.ask;
        Ok(routed)
    }

    /// The connection has served a request; whether it may serve the next one.
    pub(crate) fn served(&self, routed: &mut Routed) -> bool {
        if let (Self::Cluster(cluster), false) = (self, routed.confirmed) {
            if routed.connection.asking {
                return false;
            }
            cluster.confirm(&routed.endpoint);
            routed.confirmed = true;
        }
        true
    }

    /// The server behind a connection is gone, or not what it should be: the next call looks for another one.
    pub(crate) fn lost(&self, generation: u64) {
        match self {
            Self::Fixed(_) => {}
            Self::Sentinel(sentinels) => sentinels.lost(generation),
            Self::Cluster(cluster) => cluster.lost(generation),
        }
    }

    /// When an exchange began, where its failure would tell something about the way.
    pub(crate) fn watch(&self) -> Option<Instant> {
        (!matches!(self, Self::Fixed(_))).then(Instant::now)
    }

    /// An exchange broke down. A cancel, and silence in a call that had hardly any time, say nothing about the server.
    pub(crate) fn failed(&self, generation: u64, since: Option<Instant>, error: &LockError) {
        let telling = match error.code() {
            ErrorCode::Aborted => false,
            ErrorCode::NetworkTimeout => since.is_some_and(|since| since.elapsed() > TELLING),
            _ => true,
        };
        if telling {
            self.lost(generation);
        }
    }
}

impl Routed {
    pub(crate) fn new(connection: RedisConnection, endpoint: Endpoint, generation: u64) -> Self {
        Self {
            connection,
            endpoint,
            generation,
            confirmed: false,
        }
    }

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
