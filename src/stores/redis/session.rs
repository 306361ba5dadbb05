//! The connections of one store: a pool of those to the server that the route leads to, and one exchange on one of them.

use std::time::Duration;

use crate::backend::limits::Limits;
use crate::backend::pool::{Pool, Rank};
use crate::options::client::ClientOptions;
use crate::stores::redis::connection::{Connector, RedisConnection};
use crate::stores::redis::error;
use crate::stores::redis::route::{Route, Routed};
use crate::types::error::LockError;

/// How often a call follows a cluster that moves. Twice is the most that a slot on its way needs.
const MAX_HOPS: usize = 5;

/// Pooled connections to the server that has our keys.
pub(crate) struct RedisSessions {
    route: Route,
    connector: Connector,
    connect_timeout: Duration,
    pool: Pool<Routed>,
}

impl RedisSessions {
    pub(crate) fn new(route: Route, connector: Connector, options: &ClientOptions) -> Self {
        Self {
            route,
            connector,
            connect_timeout: options.connect_timeout,
            pool: Pool::new(options.pool_size),
        }
    }

    pub(crate) fn database(&self) -> u32 {
        self.connector.login.database
    }

    /// A connection outside the pool.
    pub(crate) fn connect(&self, limits: &Limits<'_>) -> Result<RedisConnection, LockError> {
        Ok(self.route.connect(&self.connector, limits)?.connection)
    }

    /// One exchange on a pooled connection, which goes back only if it is still in step with the server, and wherever a
    /// cluster sends it. `refusal` finds the error in an answer.
    pub(crate) fn exchange<T>(
        &self,
        rank: Rank,
        limits: &Limits<'_>,
        mut send: impl FnMut(&mut RedisConnection) -> Result<T, LockError>,
        refusal: impl Fn(&T) -> Option<&str>,
    ) -> Result<T, LockError> {
        let mut slot = self.pool.slot(rank, limits)?;
        // After a restart of the server the connections that idled are dead: such a one must not cost a failed call.
        let pooled = slot
            .take()
            .and_then(|mut c| (self.route.is_current(&c) && c.connection.is_quiet()).then_some(c));
        let mut routed = match pooled {
            Some(routed) => routed,
            None => self
                .route
                .connect(&self.connector, &limits.within(self.connect_timeout))?,
        };
        for _ in 0..MAX_HOPS {
            let since = self.route.watch();
            let answer = send(&mut routed.connection)
                .inspect_err(|e| self.route.failed(routed.generation(), since, e))?;
            if let Some(line) = refusal(&answer) {
                if let Some(redirect) = self.route.redirect(line, &routed)? {
                    let limits = limits.within(self.connect_timeout);
                    routed = self.route.follow(redirect, &self.connector, &limits)?;
                    continue;
                }
                if error::is_stale(line) {
                    self.route.lost(routed.generation());
                    return Ok(answer);
                }
            }
            if self.route.served(&mut routed) {
                slot.put(routed);
            }
            return Ok(answer);
        }
        Err(LockError::unavailable(format!(
            "the nodes of the Redis Cluster sent us around in {MAX_HOPS} steps; it is being changed"
        ))
        .nothing_applied())
    }
}
