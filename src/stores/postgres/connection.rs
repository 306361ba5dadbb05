//! One session: what is sent in one write, its answers, and the request to cancel it. `transaction` has what is sent for a verb. It
//! uses `error`, `message`, `startup`, `backend`, `runtime` and `types`.

use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::error::{Refusal, Stage, garbled, too_long};
use super::message::{Channel, Param, Row, statement, unsendable};
use super::startup::{CancelKey, CancelRoute, StartedSession};
use crate::backend::call::Call;
use crate::backend::limits::Limits;
use crate::backend::store_clock::StoreClock;
use crate::runtime::process::Owner;
use crate::runtime::threads;
use crate::types::error::{ErrorCode, LockError};
use crate::types::random::random_bits;

/// No answer of ours is near it.
const MAX_MESSAGES: usize = 4096;
/// How long the request to cancel may take, on a thread of its own.
const CANCEL_WITHIN: Duration = Duration::from_secs(1);

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    /// Writes whose loss only costs time.
    Write,
    /// Writes that must be as durable as the server was told to make them.
    Grant,
}

/// How the end of an exchange is known, and where its commit begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One `Sync`, or one simple query: a step of a transaction, or something without one.
    Step,
    /// A transaction's statements up to a `Sync`, then the simple query `COMMIT`.
    Block,
    /// Statements up to the `Sync` that commits them. The last one counts; so many come before it.
    Implicit { before: usize },
}

/// A session with nothing in flight. Dropping it closes the socket and sends nothing.
pub(crate) struct PostgresConnection {
    channel: Channel,
    cancel_route: CancelRoute,
    cancel_key: CancelKey,
    /// Whether the last exchange came to its end with no transaction open.
    pub(super) usable: bool,
    /// What the session keeps between calls, if it is ours alone.
    pub(super) own: Option<OwnSession>,
    /// Whether a call reached another session than the first one did.
    pub(super) reached_another_session: bool,
    /// The server's clock, once it has told.
    pub(super) clock: Option<StoreClock>,
}

/// What was set and prepared in a session that no pooler gives to others.
#[derive(Debug)]
pub(super) struct OwnSession {
    /// Part of the names of its prepared statements. A pooler that shows a process of the server looks like the server: a
    /// statement with this name is known only in the session in which this client has prepared it.
    pub(super) mark: u64,
    /// Names of prepared statements.
    pub(super) prepared: Vec<&'static str>,
    /// The session's `statement_timeout`, if we have set it.
    pub(super) limit_ms: Option<i32>,
}

/// What came back up to the last `ReadyForQuery` that was asked for.
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    pub(super) refusal: Option<LockError>,
    /// The refusal was about a prepared statement, and nothing was done.
    pub(super) stale: bool,
    /// The refusal was that this is another session, and nothing was done.
    pub(super) elsewhere: bool,
    /// A warning while committing: the server gave up waiting for its standbys.
    pub(super) weakened: bool,
    /// How many statements were prepared, with a name or without.
    pub(super) parsed: usize,
    /// How many statements came to their end.
    completed: usize,
    /// Whether the last command was a `COMMIT` that committed.
    pub(super) committed: bool,
    stage: Stage,
    pub(super) status: u8,
}

impl PostgresConnection {
    pub(crate) fn new(session: StartedSession) -> Self {
        Self {
            channel: session.channel,
            cancel_route: session.cancel_route,
            cancel_key: session.cancel_key,
            usable: true,
            own: None,
            reached_another_session: false,
            clock: None,
        }
    }

    /// Whether it may serve another call. A server that went away meanwhile has left a trace on the socket.
    pub(crate) fn is_usable(&mut self) -> bool {
        self.usable && self.channel.is_quiet()
    }

    /// From now on the session keeps what is set and prepared in it. Only for one that was seen to be the server's own.
    pub(crate) fn own(&mut self) {
        self.own = Some(OwnSession {
            mark: random_bits(),
            prepared: Vec::new(),
            limit_ms: None,
        });
    }

    /// Whether the session is taken for the server's own.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Whether it was taken for that, and then a call reached another session: a pooler is in between.
    pub(crate) fn reached_another_session(&self) -> bool {
        self.reached_another_session
    }

    /// The server's process, as it named itself.
    pub(crate) fn process(&self) -> i32 {
        self.cancel_key.process
    }

    /// Waits for a message that the server sends without a request.
    pub(crate) fn receive(&mut self, limits: &Limits<'_>) -> Result<Message, LockError> {
        self.channel.expect_answer();
        self.channel.receive(limits)
    }

    /// Whether the last exchange ended cleanly.
    pub(crate) fn is_clean(&self) -> bool {
        self.usable
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
        let answer = self.exchange(out, Form::Step, limits)?;
        self.usable = answer.status == b'I';
        match answer.refusal {
            Some(refusal) => Err(refusal),
            None => Ok(answer.rows),
        }
    }

    /// Sends, and reads up to the last `ReadyForQuery` of the form.
    pub(super) fn exchange(
        &mut self,
        out: &[u8],
        form: Form,
        limits: &Limits<'_>,
    ) -> Result<Answer, LockError> {
        limits.left().map_err(LockError::nothing_applied)?;
        self.usable = false;
        let answer = match self.channel.send(out, limits) {
            Ok(()) => self.collect(form, limits),
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

    fn collect(&mut self, form: Form, limits: &Limits<'_>) -> Result<Answer, LockError> {
        let mut answer = Answer {
            rows: Vec::new(),
            refusal: None,
            stale: false,
            elsewhere: false,
            weakened: false,
            parsed: 0,
            completed: 0,
            committed: false,
            stage: Stage::Body,
            status: 0,
        };
        self.channel.expect_answer();
        for _ in 0..MAX_MESSAGES {
            match self.channel.receive(limits)? {
                Message::DataRow(body) => answer.rows.push(Row::read(&body)?),
                Message::CommandComplete(body) => {
                    let tag = body.tag().map_err(|_| garbled())?;
                    answer.committed = tag == "COMMIT";
                    if let Form::Implicit { before } = form {
                        if answer.completed < before {
                            answer.rows.clear();
                        } else {
                            answer.stage = Stage::Commit;
                        }
                        answer.completed += 1;
                    }
                }
                Message::ErrorResponse(body) => {
                    let refusal = Refusal::read(body.fields()).map_err(|_| garbled())?;
                    let fatal = refusal.is_fatal();
                    answer.stale |= answer.stage == Stage::Body && refusal.is_stale();
                    answer.elsewhere |= answer.stale && refusal.is_elsewhere();
                    let refusal = refusal
                        .into_error(answer.stage)
                        .if_timed_out(self.channel.socket.server(), &limits.allowed());
                    if fatal {
                        // The first refusal is the reason; the server ends the session with this one.
                        return Err(answer.refusal.unwrap_or(refusal));
                    }
                    answer.refusal.get_or_insert(refusal);
                }
                Message::NoticeResponse(body) => {
                    let notice = Refusal::read(body.fields()).map_err(|_| garbled())?;
                    answer.weakened |=
                        answer.stage == Stage::Commit && notice.severity == "WARNING";
                }
                Message::ReadyForQuery(body) => {
                    answer.status = body.status();
                    if form != Form::Block || answer.stage == Stage::Commit {
                        return Ok(answer);
                    }
                    answer.stage = Stage::Commit;
                }
                Message::ParseComplete => answer.parsed += 1,
                Message::BindComplete
                | Message::EmptyQueryResponse
                | Message::NoData
                | Message::RowDescription(_)
                | Message::ParameterStatus(_)
                | Message::NotificationResponse(_) => {}
                _ => return Err(garbled()),
            }
        }
        Err(too_long())
    }

    /// Asks the server to stop what this session does, without waiting for it: a query that still waits for a lock would
    /// otherwise be granted one that is not wanted any more. Best effort, on a connection of its own as the protocol has it. The
    /// key that cancels goes under TLS if the session does; if that takes too long, nothing is sent.
    fn give_up(&self) {
        if self.cancel_key.process == 0 {
            return;
        }
        let cancel_route = self.cancel_route.clone();
        let mut out = BytesMut::new();
        frontend::cancel_request(self.cancel_key.process, self.cancel_key.secret, &mut out);
        let owner = Owner::current();
        // Without a thread to spare the server's own time limit does it.
        let _ = threads::spawn("syncguard-cancel", move || {
            if let Ok(limits) = Limits::enter(owner, CANCEL_WITHIN, &Call::new())
                && let Ok(mut socket) = cancel_route.connect(&limits)
                && socket.write_all(&out, &limits).is_ok()
            {
                // The server closes when it has passed the request on.
                let _ = socket.read(&mut [0; 1], &limits);
            }
        });
    }
}
