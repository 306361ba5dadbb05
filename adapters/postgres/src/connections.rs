//! Connections of the program's pool: one exchange on one of them, or on another if it was dropped while it idled.

use std::sync::Arc;
use std::time::Duration;

use postgres::types::{ToSql, Type};
use postgres::{Client, Error, SimpleQueryMessage};
use r2d2::{ManageConnection, PooledConnection};
use syncguard::format::postgres::{Param, Row, SchemaSession, refusal};
use syncguard::{ErrorCode, HelperCall, LockError, StoreClock};

use crate::literals::filled;

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

/// A connection of a pool. Dropped, it goes back, or away if it was closed.
pub(crate) trait Pooled: Send {
    fn client(&mut self) -> &mut Client;

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

impl<M: ManageConnection<Connection = Client>> Connections for SharedPool<M> {
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

impl<M: ManageConnection<Connection = Client>> Pooled for PooledConnection<M> {
    fn client(&mut self) -> &mut Client {
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

/// A connection for the time of one exchange.
pub(crate) struct Borrowed<'a> {
    pooled: &'a mut dyn Pooled,
    helper: &'a HelperCall,
}

/// Whether a statement writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

/// Stands in each transaction of ours: divides by zero in one that was open before. The program has given such a connection back with a
/// transaction of its own, and nothing of ours may wait for its end.
const OURS_ALONE: &str = "1 OPERATOR(pg_catalog./) (pg_catalog.transaction_timestamp() \
    OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp())::pg_catalog.int4";

/// How much earlier than the caller the server gives up, at the most: its refusal is a certain answer, the caller's timeout is not.
const SERVER_FIRST: Duration = Duration::from_millis(100);

impl Borrowed<'_> {
    /// Runs one statement in a transaction of its own, in one round trip: several statements in one text of the simple protocol are
    /// one transaction, which their end commits and an error rolls back. It works behind a pooler, and leaves nothing in the session.
    pub(crate) fn run(
        &mut self,
        mode: Mode,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, LockError> {
        let access = match mode {
            Mode::Read => "READ ONLY",
            Mode::Write => "READ WRITE",
        };
        let ms = self.server_ms();
        let set =
            |name: &str, value: &str| format!("pg_catalog.set_config('{name}', '{value}', true)");
        let text = format!(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, {access}; SELECT {}, {}, {}, {OURS_ALONE}; {}",
            set("statement_timeout", &ms.to_string()),
            set("lock_timeout", &ms.to_string()),
            set("enable_seqscan", "off"),
            filled(sql, params)?
        );
        self.query_text(&text)
    }

    fn query_text(&mut self, text: &str) -> Result<Vec<Row>, LockError> {
        let answer = self.pooled.client().simple_query(text);
        let messages = match answer {
            Ok(messages) => messages,
            Err(error) => return Err(self.failure(error)),
        };
        let mut rows = Vec::new();
        for message in &messages {
            match message {
                // The rows of the last statement count.
                SimpleQueryMessage::RowDescription(_) => rows.clear(),
                SimpleQueryMessage::Row(row) => {
                    rows.push(Row::from_texts(
                        (0..row.len()).map(|column| row.get(column)),
                    ));
                }
                _ => {}
            }
        }
        Ok(rows)
    }

    fn failure(&mut self, error: Error) -> LockError {
        let Some(said) = error.as_db_error() else {
            let text = "the connection to Postgres was lost";
            return LockError::new(ErrorCode::ServiceUnavailable, text).with_source(error);
        };
        let severity = match said.parsed_severity() {
            Some(severity) => severity.to_string(),
            None => said.severity().to_owned(),
        };
        if matches!(said.code().code(), "22012" | "25001" | "25P02") {
            let _ = self.pooled.client().batch_execute("ROLLBACK");
            return LockError::new(
                ErrorCode::Internal,
                "the pool gave out a connection with an open transaction, which was rolled back now: the program ends its transactions \
                 before it gives a connection back",
            )
            .nothing_applied();
        }
        refusal(said.code().code(), &severity, said.message())
    }

    /// For how long a statement may run.
    pub(crate) fn server_ms(&self) -> i32 {
        let left = self.helper.remaining();
        let left = left - SERVER_FIRST.min(left / 8);
        i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1)
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        self.pooled.client().is_closed()
    }

    pub(crate) fn clock(&mut self) -> Option<StoreClock> {
        self.pooled.clock().0
    }

    pub(crate) fn set_clock(&mut self, clock: Option<StoreClock>) {
        self.pooled.clock().0 = clock;
    }

    /// Ends what [`SchemaSession`] has begun.
    pub(crate) fn roll_back(&mut self) -> Result<(), LockError> {
        self.script("ROLLBACK")
    }
}

impl<'a> Borrowed<'a> {
    pub(crate) fn helper(&self) -> &'a HelperCall {
        self.helper
    }
}

impl SchemaSession for Borrowed<'_> {
    fn script(&mut self, sql: &str) -> Result<(), LockError> {
        match self.pooled.client().batch_execute(sql) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failure(error)),
        }
    }

    /// Statements of a set-up are long and have comments: their parameters are sent beside them.
    fn query(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, LockError> {
        let typed: Vec<(&(dyn ToSql + Sync), Type)> = params
            .iter()
            .filter_map(|param| match param {
                Param::Text(text) => Some((text as &(dyn ToSql + Sync), Type::TEXT)),
                Param::Int8(n) => Some((n as &(dyn ToSql + Sync), Type::INT8)),
                _ => None,
            })
            .collect();
        let rows = match self.pooled.client().query_typed(sql, &typed) {
            Ok(rows) => rows,
            Err(error) => return Err(self.failure(error)),
        };
        // All that they answer is texts.
        let texts = |row: &postgres::Row| {
            let text = |column| row.try_get::<_, Option<&str>>(column);
            let texts: Result<Vec<_>, _> = (0..row.len()).map(text).collect();
            texts.map(Row::from_texts)
        };
        let rows: Result<Vec<_>, _> = rows.iter().map(texts).collect();
        rows.map_err(|error| self.failure(error))
    }
}

/// What an exchange came to.
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    /// The error of an earlier connection, which was dropped after the request had been given to it.
    pub(crate) lost: Option<LockError>,
}

/// One exchange on a connection of the pool. If that was dropped, as all those are that idled while the server was started again, the
/// next one is taken: that is the pool's recovery, not a second attempt.
pub(crate) fn exchange<T>(
    connections: &Arc<dyn Connections>,
    helper: &HelperCall,
    mut send: impl FnMut(&mut Borrowed<'_>) -> Result<T, LockError>,
) -> Result<Answer<T>, LockError> {
    let mut lost: Option<LockError> = None;
    // All of a pool may be dead, and then there is a new one.
    for _ in 0..=connections.counts().limit {
        let mut pooled = match checkout(connections.as_ref(), helper) {
            Ok(pooled) => pooled,
            // An earlier request may have arrived, and its error says so.
            Err(error) => return Err(lost.unwrap_or(error)),
        };
        let mut borrowed = Borrowed {
            pooled: pooled.as_mut(),
            helper,
        };
        match send(&mut borrowed) {
            Ok(value) => return Ok(Answer { value, lost }),
            Err(error) if borrowed.is_closed() => {
                lost = Some(match lost {
                    // What became of the earlier request is not known.
                    Some(lost) if !error.may_have_applied() => lost,
                    _ => error,
                });
            }
            Err(error) => {
                let lost = lost.filter(|lost| lost.may_have_applied() && !error.may_have_applied());
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
            let text = "Postgres refuses the user or password of the pool's connections";
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
        "password authentication failed",
        "no pg_hba.conf entry",
        "password missing",
    ]
    .iter()
    .any(|part| text.contains(part))
}
