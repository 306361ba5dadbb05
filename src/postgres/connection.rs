//! One session: a whole transaction in one write, its answers in one read, and the request to give it up.

use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::error::{Refusal, Stage, garbled};
use super::startup::CancelKey;
use super::wire::{Channel, Param, Row, statement, unsendable};
use crate::error::{ErrorCode, LockError};
use crate::limits::Limits;
use crate::net::{Endpoint, Socket};
use crate::threads;

/// No answer of ours is near it.
const MAX_MESSAGES: usize = 4096;
/// How long the request to cancel may take, on a thread of its own.
const CANCEL_WITHIN: Duration = Duration::from_secs(1);

const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";
const COMMIT: &str = "COMMIT";

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    /// Writes whose loss only costs time.
    Write,
    /// Writes that must be as durable as the server was told to make them.
    Grant,
}

/// A session with nothing in flight. Dropping it closes the socket and sends nothing.
pub(crate) struct Connection {
    channel: Channel,
    endpoint: Endpoint,
    key: CancelKey,
    /// Whether the last exchange came to its end with no transaction open.
    usable: bool,
}

/// What came back up to the last `ReadyForQuery` that was asked for.
struct Answer {
    rows: Vec<Row>,
    refusal: Option<LockError>,
    /// A warning while committing: the server gave up waiting for its standbys.
    weakened: bool,
    tag: String,
    status: u8,
}

impl Connection {
    pub(crate) fn new(channel: Channel, endpoint: Endpoint, key: CancelKey) -> Self {
        Self {
            channel,
            endpoint,
            key,
            usable: true,
        }
    }

    /// Whether it may serve another call. A server that went away meanwhile has left a trace on the socket.
    pub(crate) fn is_usable(&mut self) -> bool {
        self.usable && self.channel.is_quiet()
    }

    /// The server's process, as it named itself.
    pub(crate) fn process(&self) -> i32 {
        self.key.process
    }

    /// Waits for a message that nobody asked for.
    pub(crate) fn receive(&mut self, limits: &Limits<'_>) -> Result<Message, LockError> {
        self.channel.receive(limits)
    }

    /// Whether the last exchange ended cleanly.
    pub(crate) fn is_clean(&self) -> bool {
        self.usable
    }

    /// Runs one statement in a transaction of its own: one write, one round trip.
    ///
    /// `BEGIN`, the time limit and the statement go up to one `Sync`: if any fails, the rest is skipped. The `COMMIT` behind
    /// it is a message of its own and is always reached; of a failed transaction it is the rollback. So the session is idle
    /// again whatever happens, and no second trip is needed to clean up.
    pub(crate) fn transact(
        &mut self,
        mode: Mode,
        sql: &str,
        params: &[Param<'_>],
        limits: &Limits<'_>,
    ) -> Result<Vec<Row>, LockError> {
        self.transact_with(mode, None, sql, params, limits)
    }

    /// The same, with another setting for the transaction.
    pub(crate) fn transact_with(
        &mut self,
        mode: Mode,
        setting: Option<&str>,
        sql: &str,
        params: &[Param<'_>],
        limits: &Limits<'_>,
    ) -> Result<Vec<Row>, LockError> {
        let begin = if mode == Mode::Read {
            BEGIN_READ
        } else {
            BEGIN_WRITE
        };
        let mut out = BytesMut::with_capacity(1024);
        statement(&mut out, begin, &[])?;
        // Set before the statement it shall bound: inside of it would be too late.
        let limit = format!("SET LOCAL statement_timeout = {}", millis_left(limits)?);
        statement(&mut out, &limit, &[])?;
        if let Some(setting) = setting {
            statement(&mut out, setting, &[])?;
        }
        statement(&mut out, sql, params)?;
        frontend::sync(&mut out);
        frontend::query(COMMIT, &mut out).map_err(unsendable)?;

        let answer = self.exchange(&out, &[Stage::Body, Stage::Commit], limits)?;
        self.usable = answer.status == b'I';
        if let Some(refusal) = answer.refusal {
            return Err(refusal);
        }
        if answer.tag != COMMIT || !self.usable {
            return Err(garbled());
        }
        if answer.weakened && mode == Mode::Grant {
            return Err(LockError::new(
                ErrorCode::NetworkTimeout,
                "the server stored the change and gave up waiting for its standbys",
            ));
        }
        Ok(answer.rows)
    }

    /// Runs statements of a transaction that takes several trips; for set-up only. `sql` may hold several without parameters.
    pub(crate) fn script(&mut self, sql: &str, limits: &Limits<'_>) -> Result<(), LockError> {
        let mut out = BytesMut::with_capacity(sql.len() + 16);
        frontend::query(sql, &mut out).map_err(unsendable)?;
        self.step(&out, limits).map(drop)
    }

    /// Runs one statement of such a transaction.
    pub(crate) fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        limits: &Limits<'_>,
    ) -> Result<Vec<Row>, LockError> {
        let mut out = BytesMut::with_capacity(1024);
        statement(&mut out, sql, params)?;
        frontend::sync(&mut out);
        self.step(&out, limits)
    }

    fn step(&mut self, out: &[u8], limits: &Limits<'_>) -> Result<Vec<Row>, LockError> {
        let answer = self.exchange(out, &[Stage::Body], limits)?;
        self.usable = answer.status == b'I';
        match answer.refusal {
            Some(refusal) => Err(refusal),
            None => Ok(answer.rows),
        }
    }

    /// Sends, and reads one `ReadyForQuery` per stage.
    fn exchange(
        &mut self,
        out: &[u8],
        stages: &[Stage],
        limits: &Limits<'_>,
    ) -> Result<Answer, LockError> {
        limits.left().map_err(LockError::nothing_applied)?;
        self.usable = false;
        let answer = match self.channel.send(out, limits) {
            Ok(()) => self.collect(stages, limits),
            Err(e) => Err(e),
        };
        if let Err(e) = &answer
            && matches!(e.code(), ErrorCode::NetworkTimeout | ErrorCode::Aborted)
            && limits.left().is_err()
        {
            self.give_up();
        }
        answer
    }

    fn collect(&mut self, stages: &[Stage], limits: &Limits<'_>) -> Result<Answer, LockError> {
        let mut answer = Answer {
            rows: Vec::new(),
            refusal: None,
            weakened: false,
            tag: String::new(),
            status: 0,
        };
        let mut stages = stages.iter().copied();
        let mut stage = stages.next().ok_or_else(garbled)?;
        for _ in 0..MAX_MESSAGES {
            match self.channel.receive(limits)? {
                Message::DataRow(body) => answer.rows.push(Row::read(&body)?),
                Message::CommandComplete(body) => {
                    answer.tag = body.tag().map_err(|_| garbled())?.to_owned();
                }
                Message::ErrorResponse(body) => {
                    let refusal = Refusal::read(body.fields()).map_err(|_| garbled())?;
                    let fatal = refusal.is_fatal();
                    let refusal = refusal.into_error(stage);
                    if fatal {
                        // The first refusal is the reason; the server ends the session with this one.
                        return Err(answer.refusal.unwrap_or(refusal));
                    }
                    answer.refusal.get_or_insert(refusal);
                }
                Message::NoticeResponse(body) => {
                    let notice = Refusal::read(body.fields()).map_err(|_| garbled())?;
                    answer.weakened |= stage == Stage::Commit && notice.severity == "WARNING";
                }
                Message::ReadyForQuery(body) => {
                    answer.status = body.status();
                    match stages.next() {
                        Some(next) => stage = next,
                        None => return Ok(answer),
                    }
                }
                Message::ParseComplete
                | Message::BindComplete
                | Message::EmptyQueryResponse
                | Message::NoData
                | Message::RowDescription(_)
                | Message::ParameterStatus(_)
                | Message::NotificationResponse(_) => {}
                _ => return Err(garbled()),
            }
        }
        Err(garbled())
    }

    /// Asks the server to stop what this session does, without waiting for it: a query that still waits for a lock would
    /// otherwise be granted one that nobody wants. Best effort, on a connection of its own as the protocol has it.
    fn give_up(&self) {
        if self.key.process == 0 {
            return;
        }
        let endpoint = self.endpoint.clone();
        let mut out = BytesMut::new();
        frontend::cancel_request(self.key.process, self.key.secret, &mut out);
        let pid = std::process::id();
        // Without a thread to spare the server's own time limit does it.
        let _ = threads::spawn("syncguard-cancel", move || {
            if let Ok(limits) = Limits::enter(pid, CANCEL_WITHIN, None)
                && let Ok(mut socket) = Socket::connect(&endpoint, &limits)
                && socket.write_all(&out, &limits).is_ok()
            {
                // The server closes when it has passed the request on.
                let _ = socket.read(&mut [0; 1], &limits);
            }
        });
    }
}

/// How much earlier than we the server gives up, at the most: its refusal is a certain answer, our silence is not.
const SERVER_FIRST: Duration = Duration::from_millis(100);

/// What is left of the call, as the server's settings want it.
pub(crate) fn millis_left(limits: &Limits<'_>) -> Result<i32, LockError> {
    let left = limits.left().map_err(LockError::nothing_applied)?;
    let left = left - SERVER_FIRST.min(left / 8);
    Ok(i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1))
}
