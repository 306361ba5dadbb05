//! Connections of the program's pool: one exchange on one of them, or on another if it was dropped while it idled.

use std::sync::Arc;
use std::time::Duration;

use r2d2::{ManageConnection, PooledConnection};
use redis::{ConnectionLike, RedisError, Value};
use syncguard::format::redis::Reply;
use syncguard::{Call, ErrorCode, HelperCall, LockError, StoreClock};

/// How soon a connection that must be closed, and is not, is asked to close again.
const CLOSE_AGAIN: Duration = Duration::from_millis(20);

/// A pool, whatever makes its connections.
pub(crate) trait Connections: Send + Sync {
    fn get(&self, within: Duration) -> Result<Box<dyn Pooled>, r2d2::Error>;

    /// How many connections there are, how many of them idle, and how many there may be.
    fn counts(&self) -> Counts;

    fn tests_on_check_out(&self) -> bool;
}

pub(crate) struct Counts {
    made: u32,
    idle: u32,
    limit: u32,
}

/// A connection of a pool. Dropped, it goes back.
pub(crate) trait Pooled: Send {
    fn connection(&mut self) -> &mut redis::Connection;

    fn clock(&mut self) -> &mut ConnectionClock;
}

/// What is known of the server's clock, kept with the connection in the pool.
#[derive(Default)]
pub(crate) struct ConnectionClock(Option<StoreClock>);

pub(crate) struct SharedPool<M: ManageConnection>(r2d2::Pool<M>);

impl<M: ManageConnection> SharedPool<M> {
    pub(crate) fn new(pool: r2d2::Pool<M>) -> Self {
        Self(pool)
    }
}

impl<M: ManageConnection<Connection = redis::Connection>> Connections for SharedPool<M> {
    fn get(&self, within: Duration) -> Result<Box<dyn Pooled>, r2d2::Error> {
        Ok(Box::new(self.0.get_timeout(within)?))
    }

    fn counts(&self) -> Counts {
        let state = self.0.state();
        Counts {
            made: state.connections,
            idle: state.idle_connections,
            limit: self.0.max_size(),
        }
    }

    fn tests_on_check_out(&self) -> bool {
        self.0.test_on_check_out()
    }
}

impl<M: ManageConnection<Connection = redis::Connection>> Pooled for PooledConnection<M> {
    fn connection(&mut self) -> &mut redis::Connection {
        self
    }

    fn clock(&mut self) -> &mut ConnectionClock {
        let extensions = Self::extensions_mut(self);
        if extensions.get::<ConnectionClock>().is_none() {
            extensions.insert(ConnectionClock::default());
        }
        match extensions.get_mut() {
            Some(clock) => clock,
            None => unreachable!("it was put there"),
        }
    }
}

/// Why there is no answer.
pub(crate) enum Failure {
    /// The connection was dropped, perhaps before this call: another one may do.
    Dropped(LockError),
    /// What is on its way on this connection is not known any more.
    Poisoned(LockError),
    /// The connection is as good as it was.
    Final(LockError),
}

impl Failure {
    /// The error, with a note of what kind it was.
    pub(crate) fn into_error(self, kind: &mut Option<FailureKind>) -> LockError {
        let (found, error) = match self {
            Self::Dropped(error) => (FailureKind::Dropped, error),
            Self::Poisoned(error) => (FailureKind::Poisoned, error),
            Self::Final(error) => return error,
        };
        *kind = Some(found);
        error
    }

    /// The failure again that [`into_error`](Self::into_error) has noted.
    pub(crate) fn again(kind: Option<FailureKind>, error: LockError) -> Self {
        match kind {
            Some(FailureKind::Dropped) => Self::Dropped(error),
            Some(FailureKind::Poisoned) => Self::Poisoned(error),
            None => Self::Final(error),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum FailureKind {
    Dropped,
    Poisoned,
}

/// A connection for the time of one exchange.
pub(crate) struct Borrowed<'a>(&'a mut dyn Pooled);

impl Borrowed<'_> {
    /// Sends one command and waits for its reply, however long that takes.
    pub(crate) fn ask<S: AsRef<str>>(&mut self, command: &[S]) -> Result<Reply, Failure> {
        let mut cmd = redis::Cmd::new();
        for part in command {
            cmd.arg(part.as_ref());
        }
        match self.0.connection().req_command(&cmd) {
            Ok(value) => Ok(reply(value)),
            Err(error) => failure(error),
        }
    }

    pub(crate) fn clock(&mut self) -> Option<StoreClock> {
        self.0.clock().0
    }

    pub(crate) fn set_clock(&mut self, clock: Option<StoreClock>) {
        self.0.clock().0 = clock;
    }
}

/// What an exchange came to.
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    /// The error of an earlier connection, which was dropped after the request had been given to it.
    pub(crate) lost: Option<LockError>,
}

/// One exchange on a connection of the pool. If that was dropped, as all those are that idled while the server was started again, the
/// next one is taken: that is the pool's recovery, not a second attempt.
pub(crate) fn exchange(
    connections: &Arc<dyn Connections>,
    helper: &HelperCall,
    send: impl Fn(&mut Borrowed<'_>) -> Result<Reply, Failure>,
) -> Result<Answer, LockError> {
    let mut lost = None;
    // All of a pool may be dead, and then there is a new one.
    for _ in 0..=connections.counts().limit {
        let mut pooled = match checkout(connections.as_ref(), helper) {
            Ok(pooled) => pooled,
            // An earlier request may have arrived, and its error says so.
            Err(error) => return Err(lost.unwrap_or(error)),
        };
        match send(&mut Borrowed(pooled.as_mut())) {
            Ok(reply) => {
                return Ok(Answer { reply, lost });
            }
            Err(Failure::Dropped(error)) => {
                close(pooled, helper);
                lost = Some(error);
            }
            Err(Failure::Poisoned(error)) => {
                close(pooled, helper);
                return Err(error);
            }
            Err(Failure::Final(error)) => {
                // What became of the earlier request is not known either way.
                let lost = lost.filter(|_| !error.may_have_applied());
                return Err(lost.unwrap_or(error));
            }
        }
    }
    Err(lost.unwrap_or_else(|| LockError::new(ErrorCode::Internal, "a pool of no connections")))
}

fn checkout(
    connections: &dyn Connections,
    helper: &HelperCall,
) -> Result<Box<dyn Pooled>, LockError> {
    if let Some((code, text)) = exhausted(connections) {
        helper.waits_because(code, text);
    }
    // A little less than there is: what the pool says tells more than that time is over.
    let left = helper.remaining();
    let left = left - POOL_FIRST.min(left / 8);
    connections.get(left).map_err(|error| {
        let said = error.to_string();
        let (code, text) = if is_refused_login(&said) {
            let text = "Redis refuses the user or password of the pool's connections";
            (ErrorCode::AuthFailed, text.to_owned())
        } else if let Some(exhausted) = exhausted(connections) {
            exhausted
        } else if said.contains(": ") {
            let text = "the pool can make no connection; is the server up, and are its address and TLS right?";
            (ErrorCode::ServiceUnavailable, text.to_owned())
        } else {
            let text = "the pool made no connection by the deadline of the call";
            (ErrorCode::NetworkTimeout, text.to_owned())
        };
        LockError::new(code, text).nothing_applied()
    })
}

/// How much earlier than the caller the pool gives up, at the most.
const POOL_FIRST: Duration = Duration::from_millis(100);

/// What is said if all connections are in use.
fn exhausted(connections: &dyn Connections) -> Option<(ErrorCode, String)> {
    let counts = connections.counts();
    (counts.idle == 0 && counts.made >= counts.limit).then(|| {
        let text = format!(
            "all {} connections of the pool were in use until the deadline; allow it more, or hold them for a shorter time",
            counts.limit
        );
        (ErrorCode::RateLimited, text)
    })
}

/// Whether the pool could make no connection because of its credentials. Its text may hold them, and is not repeated.
fn is_refused_login(text: &str) -> bool {
    [
        "WRONGPASS",
        "NOAUTH",
        "Password authentication failed",
        "invalid password",
        "AuthenticationFailed",
    ]
    .iter()
    .any(|part| text.contains(part))
}

/// Sees to it that the connection does not go back into the pool as a good one. The crate `redis` has no way to say so: the connection is
/// dropped by the pool only once the crate has seen its end, so it is asked to close until that has come. The caller does
/// not wait for that.
fn close(mut pooled: Box<dyn Pooled>, helper: &HelperCall) {
    if !pooled.connection().is_open() {
        return;
    }
    helper.afterwards(move || {
        loop {
            let _ = pooled.connection().req_command(&redis::cmd("QUIT"));
            if !pooled.connection().is_open() {
                return;
            }
            let _ = Call::new().sleep(CLOSE_AGAIN);
        }
    });
}

fn failure(error: RedisError) -> Result<Reply, Failure> {
    if let Some(code) = error.code() {
        return Ok(Reply::Error(line(code, error.detail())));
    }
    if error.is_timeout() {
        let text = "the server did not answer within the read timeout of the connection";
        let error = LockError::new(ErrorCode::NetworkTimeout, text).with_source(error);
        return Err(Failure::Poisoned(error));
    }
    if error.is_io_error() {
        let text = "the connection to Redis was lost";
        let error = LockError::new(ErrorCode::ServiceUnavailable, text).with_source(error);
        return Err(Failure::Dropped(error));
    }
    Err(Failure::Poisoned(LockError::new(
        ErrorCode::Internal,
        "the server does not answer like Redis; is the port another service's?",
    )))
}

fn line(code: &str, detail: Option<&str>) -> String {
    format!("{code} {}", detail.unwrap_or_default())
}

/// A reply of either version of the protocol.
fn reply(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(n) => Reply::Integer(n),
        Value::BulkString(bytes) => Reply::Bulk(bytes),
        Value::VerbatimString { text, .. } => Reply::Bulk(text.into_bytes()),
        Value::SimpleString(text) => Reply::Status(text),
        Value::Okay => Reply::Status("OK".to_owned()),
        Value::Array(items) | Value::Set(items) => {
            Reply::Array(items.into_iter().map(reply).collect())
        }
        Value::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            Reply::Array(flat.map(reply).collect())
        }
        Value::Attribute { data, .. } => reply(*data),
        Value::Boolean(yes) => Reply::Integer(i64::from(yes)),
        Value::ServerError(error) => Reply::Error(line(error.code(), error.details())),
        // No script of the library answers any of these.
        _ => Reply::Status("unknown".to_owned()),
    }
}
