//! The connections of one store: those that callers share, to the server that the route leads to, and one exchange on one of them. It
//! uses `connection`, `shared`, `error`, `route`, `backend`, `options` and `types`.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::limits::Limits;
use crate::backend::pool::Rank;
use crate::backend::pool::shared::{Entrance, OpenSlot, SharedPool, Wanted};
use crate::backend::store_clock::{self, StoreClock, TimedReply};
use crate::backend::trips::NotTaken;
use crate::options::client::ClientOptions;
use crate::stores::redis::cluster::Redirect;
use crate::stores::redis::connection::{Connector, RedisConnection};
use crate::stores::redis::error;
use crate::stores::redis::replies::too_late;
use crate::stores::redis::resp::Reply;
use crate::stores::redis::route::{Route, Routed, ServerPlace};
use crate::stores::redis::scripts::Script;
use crate::stores::redis::shared::SharedConnection;
use crate::types::error::LockError;

/// How often a call follows a cluster that moves. Twice is the most that a slot on its way needs.
const MAX_HOPS: usize = 5;

/// The connections to the server that has our keys.
pub(crate) struct RedisSessions {
    route: Route,
    connector: Connector,
    connect_timeout: Duration,
    pool: SharedPool<SharedConnection>,
}

/// What one call speaks to the server through.
pub(crate) struct RedisSession<'a> {
    sessions: &'a RedisSessions,
    rank: Rank,
    through: Through,
    /// That of a connection for this call alone.
    slot: Option<OpenSlot<'a, SharedConnection>>,
}

enum Through {
    Shared(SharedUse),
    /// A connection for this call alone, to a node that is only about to own the slot.
    Asking(Routed),
}

#[derive(Clone)]
struct SharedUse {
    connection: Arc<SharedConnection>,
    /// It is not that of our rank, and ours only while no other caller uses it.
    borrowed: bool,
}

impl RedisSessions {
    pub(crate) fn new(route: Route, connector: Connector, options: &ClientOptions) -> Self {
        Self {
            route,
            connector,
            connect_timeout: options.connect_timeout,
            pool: SharedPool::new(options.pool_size),
        }
    }

    pub(crate) fn check_name(&self, name: &str) -> Result<(), LockError> {
        self.route.check_name(name)
    }

    pub(crate) fn database(&self) -> u32 {
        self.connector.login.database
    }

    /// A connection outside the pool.
    pub(crate) fn connect(&self, limits: &Limits<'_>) -> Result<RedisConnection, LockError> {
        Ok(self.route.connect(&self.connector, limits)?.connection)
    }

    /// One exchange on a connection of the pool, which serves others only as long as it is in step with the server, and wherever a
    /// cluster sends it. `refusal` finds the error in an answer.
    pub(crate) fn exchange<T>(
        &self,
        rank: Rank,
        limits: &Limits<'_>,
        mut send: impl FnMut(&mut RedisSession<'_>) -> Result<T, LockError>,
        refusal: impl Fn(&T) -> Option<&str>,
    ) -> Result<T, LockError> {
        let mut session = RedisSession {
            sessions: self,
            rank,
            through: Through::Shared(self.join(rank, Wanted::Any, limits)?),
            slot: None,
        };
        for _ in 0..MAX_HOPS {
            let since = self.route.watch();
            let answer = send(&mut session).inspect_err(|e| {
                self.route.failed(session.place().generation(), since, e);
            })?;
            if let Some(line) = refusal(&answer) {
                if let Some(redirect) = self.route.redirect(line, session.place())? {
                    session.follow(redirect, limits)?;
                    continue;
                }
                if error::is_stale(line) {
                    self.route.lost(session.place().generation());
                    session.leave();
                    return Ok(answer);
                }
            }
            if !session.is_asking() {
                self.route.served(session.place());
            }
            return Ok(answer);
        }
        Err(LockError::unavailable(format!(
            "the nodes of the Redis Cluster sent us around in {MAX_HOPS} steps; it is being changed"
        ))
        .nothing_applied())
    }

    /// A connection that callers share. One of them makes it.
    fn join(
        &self,
        rank: Rank,
        wanted: Wanted,
        limits: &Limits<'_>,
    ) -> Result<SharedUse, LockError> {
        let shared = |connection, borrowed| {
            Ok(SharedUse {
                connection,
                borrowed,
            })
        };
        loop {
            let entrance = self.pool.enter(rank, wanted, limits, |c| {
                !c.is_closing() && self.route.is_current(&c.place)
            })?;
            match entrance {
                Entrance::Shared(connection) => return shared(connection, false),
                Entrance::Borrowed(connection) => return shared(connection, true),
                Entrance::Left(connection) => self.retire(&connection),
                Entrance::Slot(slot) => {
                    let limits = limits.within(self.connect_timeout);
                    let Routed { connection, place } =
                        self.route.connect(&self.connector, &limits)?;
                    let connection = Arc::new(SharedConnection::new(connection, place, rank));
                    if let Some(before) = slot.share(&connection) {
                        self.retire(&before);
                    }
                    return shared(connection, false);
                }
            }
        }
    }

    /// A slot for a connection of one call. A shared connection gives its own up for it if it must.
    fn slot(
        &self,
        rank: Rank,
        limits: &Limits<'_>,
    ) -> Result<OpenSlot<'_, SharedConnection>, LockError> {
        loop {
            match self.pool.enter(rank, Wanted::Slot, limits, |_| false)? {
                Entrance::Slot(slot) => return Ok(slot),
                Entrance::Shared(connection)
                | Entrance::Borrowed(connection)
                | Entrance::Left(connection) => self.retire(&connection),
            }
        }
    }

    /// No more requests go to `connection`.
    fn retire(&self, connection: &Arc<SharedConnection>) {
        connection.retire();
        self.settle(connection);
    }

    /// Takes a connection out of the pool that takes no more requests, and closes one that has ended.
    fn settle(&self, connection: &Arc<SharedConnection>) {
        if !connection.is_closing() {
            return;
        }
        self.pool.remove(connection);
        if let Some(rank) = connection.close_if_ended() {
            self.pool.give_back(rank);
        }
    }
}

/// Looks after a connection when a call is through with it, also after a panic.
struct Settled<'a> {
    sessions: &'a RedisSessions,
    connection: &'a Arc<SharedConnection>,
}

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        self.sessions.settle(self.connection);
    }
}

impl<'a> RedisSession<'a> {
    /// Whether the node is only about to own the slot.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.through, Through::Asking(_))
    }

    fn place(&self) -> &ServerPlace {
        match &self.through {
            Through::Shared(shared) => &shared.connection.place,
            Through::Asking(routed) => &routed.place,
        }
    }

    /// Goes where a node sent us.
    fn follow(&mut self, redirect: Redirect, limits: &Limits<'_>) -> Result<(), LockError> {
        let sessions = self.sessions;
        if !redirect.ask {
            self.leave();
            self.slot = None;
            self.through = Through::Shared(sessions.join(self.rank, Wanted::Any, limits)?);
            return Ok(());
        }
        if let Through::Asking(routed) = &self.through {
            routed.connection.shut();
        } else {
            self.slot = Some(sessions.slot(self.rank, limits)?);
        }
        let limits = limits.within(sessions.connect_timeout);
        let routed = sessions
            .route
            .follow(redirect, &sessions.connector, &limits)?;
        self.through = Through::Asking(routed);
        Ok(())
    }

    /// The server is not the one to ask.
    fn leave(&self) {
        match &self.through {
            Through::Shared(shared) => self.sessions.retire(&shared.connection),
            Through::Asking(routed) => routed.connection.shut(),
        }
    }

    /// Runs a script that changes a lease. Its last argument is the time after which the server refuses it.
    pub(crate) fn run_in_time(
        &mut self,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        limits: &Limits<'_>,
    ) -> Result<Reply, LockError> {
        let mut clock = self.clock();
        let mut was_late = false;
        let reply = store_clock::send_in_time(&mut clock, limits, |not_after| {
            let not_after = not_after.map(|ms| ms.to_string()).unwrap_or_default();
            let args = [args, &[not_after.as_bytes()]].concat();
            let reply = self.run(script, keys, &args, limits)?;
            Ok(match too_late(&reply) {
                Some(now_ms) => {
                    was_late = true;
                    TimedReply::TooLate { now_ms }
                }
                None => TimedReply::Answer(reply),
            })
        });
        if was_late {
            self.set_clock(clock);
        }
        reply
    }

    fn clock(&mut self) -> Option<StoreClock> {
        match &mut self.through {
            Through::Shared(shared) => shared.connection.clock(),
            Through::Asking(routed) => *routed.connection.clock_mut(),
        }
    }

    fn set_clock(&mut self, clock: Option<StoreClock>) {
        match &mut self.through {
            Through::Shared(shared) => shared.connection.set_clock(clock),
            Through::Asking(routed) => *routed.connection.clock_mut() = clock,
        }
    }

    /// Runs a script by its digest, or by its text if the server does not know it yet: `SCRIPT LOAD` would be a trip
    /// and a right more.
    pub(crate) fn run(
        &mut self,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        limits: &Limits<'_>,
    ) -> Result<Reply, LockError> {
        let by_digest = eval(b"EVALSHA", script.digest.as_bytes(), keys, args);
        let reply = self.call(&by_digest, limits)?;
        match reply {
            Reply::Error(line) if error::is_no_script(&line) => {
                let by_text = eval(b"EVAL", script.text.as_bytes(), keys, args);
                self.call(&by_text, limits)
            }
            reply => Ok(reply),
        }
    }

    fn call(&mut self, command: &[&[u8]], limits: &Limits<'_>) -> Result<Reply, LockError> {
        self.trip(&[command], limits, Vec::pop)?
            .ok_or_else(error::unexpected)
    }

    /// Several commands in one trip.
    pub(crate) fn pipeline(
        &mut self,
        commands: &[&[&[u8]]],
        limits: &Limits<'_>,
    ) -> Result<Vec<Reply>, LockError> {
        self.trip(commands, limits, std::mem::take)
    }

    fn trip<T>(
        &mut self,
        commands: &[&[&[u8]]],
        limits: &Limits<'_>,
        use_replies: fn(&mut Vec<Reply>) -> T,
    ) -> Result<T, LockError> {
        let mut wanted = Wanted::Any;
        loop {
            let shared = match &mut self.through {
                Through::Asking(routed) => {
                    let mut replies = routed.connection.pipeline(commands, limits)?;
                    return Ok(use_replies(&mut replies));
                }
                Through::Shared(shared) => shared,
            };
            let settled = Settled {
                sessions: self.sessions,
                connection: &shared.connection,
            };
            match shared
                .connection
                .exchange(commands, shared.borrowed, limits, use_replies)
            {
                Ok(answer) => return Ok(answer),
                Err(NotTaken::Failed(e)) => return Err(e),
                Err(NotTaken::Elsewhere) if shared.borrowed => wanted = Wanted::OfItsRank,
                Err(NotTaken::Elsewhere) => {}
            }
            drop(settled);
            *shared = self.sessions.join(self.rank, wanted, limits)?;
        }
    }
}

fn eval<'a>(
    verb: &'a [u8],
    script: &'a [u8],
    keys: &[&'a [u8]],
    args: &[&'a [u8]],
) -> Vec<&'a [u8]> {
    const COUNTS: [&[u8]; 4] = [b"0", b"1", b"2", b"3"];
    let mut command = Vec::with_capacity(3 + keys.len() + args.len());
    command.extend([verb, script, COUNTS[keys.len()]]);
    command.extend_from_slice(keys);
    command.extend_from_slice(args);
    command
}
