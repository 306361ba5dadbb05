//! Which server to connect to: the one of the URL, the one that sentinels name, or the owner of a cluster's slot. It uses `cluster`,
//! `sentinel`, `routed` and `connection`, which has how to connect.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backend::limits::Limits;
use crate::net::uri::Endpoint;
use crate::stores::redis::cluster::{Cluster, Redirect};
use crate::stores::redis::connection::Connector;
pub(crate) use crate::stores::redis::routed::{Routed, ServerPlace};
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

impl Route {
    /// Refuses the name of a user's own key that this store cannot reach together with its gate.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), LockError> {
        match self {
            Self::Cluster(cluster) => cluster.check_name(name),
            Self::Fixed(_) | Self::Sentinel(_) => Ok(()),
        }
    }

    fn generation(&self) -> u64 {
        match self {
            Self::Fixed(_) => 0,
            Self::Sentinel(sentinels) => sentinels.generation(),
            Self::Cluster(cluster) => cluster.generation(),
        }
    }

    /// Whether a pooled connection still leads to where a new one would.
    pub(crate) fn is_current(&self, place: &ServerPlace) -> bool {
        place.generation == self.generation()
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
        from: &ServerPlace,
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

    /// A connection that is not for one request only has served one.
    pub(crate) fn served(&self, place: &ServerPlace) {
        if let Self::Cluster(cluster) = self
            && !place.confirmed.swap(true, Ordering::Relaxed)
        {
            cluster.confirm(&place.endpoint);
        }
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
