//! One write of a verb, in two forms: a transaction block, which works anywhere, and a prepared statement in a session that is
//! ours alone, which costs the server half. It adds to `connection`. It uses `connection`, `error`, `message`, `sql`, `backend` and
//! `types`.

use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use super::connection::{Answer, Form, Mode, PostgresConnection};
use super::error::garbled;
use super::message::{Param, Row, execute, prepare, statement, unsendable};
use super::sql::FunctionCall;
use crate::backend::limits::Limits;
use crate::backend::store_clock::{self, TimedReply};
use crate::types::error::{ErrorCode, LockError};

const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";
/// Fails in any session but that of the process $1: what is prepared behind it is prepared there and nowhere else.
const STILL_OURS: &str = "SELECT 1 OPERATOR(pg_catalog./) \
    (pg_catalog.pg_backend_pid()::pg_catalog.int8 OPERATOR(pg_catalog.=) $1)::pg_catalog.int4";
/// The functions' plans stay with the session: one made while the table was small would read all of it when it is not.
pub(crate) const NO_SEQSCAN: &str = "SET LOCAL enable_seqscan = off";

impl PostgresConnection {
    /// Runs one of the frequent statements: one write, one round trip.
    ///
    /// A session of our own runs it by name. If it turns out that it is not known there any more, nothing was done, and the
    /// other form runs it, within the same time and ever after: that is the connection's recovery, not a second attempt.
    pub(crate) fn call(
        &mut self,
        mode: Mode,
        call: &FunctionCall,
        params: &[Param<'_>],
        limits: &Limits<'_>,
    ) -> Result<Vec<Row>, LockError> {
        if self.own.is_some()
            && let Some(rows) = self.call_by_name(mode, call, params, limits)?
        {
            return Ok(rows);
        }
        self.transact(mode, &call.text, params, limits)
    }

    /// Runs a function that changes a lease, and answers its record. The last parameter is the time after which the server
    /// refuses it; then its column `late_column` says what time it is.
    pub(crate) fn call_in_time(
        &mut self,
        call: &FunctionCall,
        params: &[Param<'_>],
        late_column: usize,
        limits: &Limits<'_>,
    ) -> Result<Row, LockError> {
        let mut clock = self.clock;
        let record = store_clock::send_in_time(&mut clock, limits, |not_after| {
            let not_after = Param::Int8(not_after.unwrap_or(i64::MAX));
            let params = [params, &[not_after]].concat();
            let rows = self.call(Mode::Grant, call, &params, limits)?;
            let record = rows.first().ok_or_else(garbled)?.record()?;
            Ok(match record.int8(late_column)? {
                Some(now_ms) => TimedReply::TooLate { now_ms },
                None => TimedReply::Answer(record),
            })
        });
        self.clock = clock;
        record
    }

    /// `None` if the session has lost what was prepared in it.
    fn call_by_name(
        &mut self,
        mode: Mode,
        call: &FunctionCall,
        params: &[Param<'_>],
        limits: &Limits<'_>,
    ) -> Result<Option<Vec<Row>>, LockError> {
        let Some(own) = &self.own else {
            return Ok(None);
        };
        let mut out = BytesMut::with_capacity(512);
        let mut before = 0;
        let wanted = ServerLimit::of(limits)?;
        let limit = own.limit_ms.filter(|set| wanted.allows(*set));
        if limit.is_none() {
            // Taken back if what follows fails.
            let set = format!("SET statement_timeout = {}", wanted.ms);
            statement(&mut out, &set, &[])?;
            before += 1;
        }
        let known = own.prepared.contains(&call.name);
        let name = format!("{}_{:016x}", call.name, own.mark);
        if !known {
            statement(&mut out, STILL_OURS, &[Param::Int8(self.process().into())])?;
            before += 1;
            prepare(&mut out, &name, &call.text, params)?;
        }
        execute(&mut out, &name, params)?;
        frontend::sync(&mut out);

        let answer = self.exchange(&out, Form::Implicit { before }, limits)?;
        if answer.stale {
            self.own = None;
            self.reached_another_session |= answer.elsewhere;
        }
        if let Some(own) = &mut self.own {
            // A prepared statement outlives the rollback, a setting does not.
            if !known && answer.parsed == 1 + before {
                own.prepared.push(call.name);
            }
            if answer.refusal.is_none() {
                own.limit_ms = limit.or(Some(wanted.ms));
            }
        }
        if answer.stale && answer.status == b'I' {
            self.usable = true;
            return Ok(None);
        }
        self.settle(answer, mode).map(Some)
    }

    /// Runs one statement in a transaction of its own: one write, one round trip.
    ///
    /// `BEGIN`, the settings and the statement go up to one `Sync`: if any fails, the rest is skipped. The `COMMIT` behind
    /// it is a message of its own and is always reached; of a failed transaction it is the rollback. So the session is idle
    /// again whatever happens, and no second trip is needed to clean up.
    pub(crate) fn transact(
        &mut self,
        mode: Mode,
        sql: &str,
        params: &[Param<'_>],
        limits: &Limits<'_>,
    ) -> Result<Vec<Row>, LockError> {
        self.transact_with(mode, &[], sql, params, limits)
    }

    /// The same, with other settings for the transaction.
    pub(crate) fn transact_with(
        &mut self,
        mode: Mode,
        settings: &[&str],
        sql: &str,
        params: &[Param<'_>],
        limits: &Limits<'_>,
    ) -> Result<Vec<Row>, LockError> {
        let mut out = BytesMut::with_capacity(1024);
        let ms = millis_left(limits)?;
        // Set before the statement it shall bound: inside of it would be too late.
        let limit = format!("SET LOCAL statement_timeout = {ms}");
        if mode == Mode::Read {
            statement(&mut out, BEGIN_READ, &[])?;
            statement(&mut out, &limit, &[])?;
        } else {
            statement(&mut out, BEGIN_WRITE, &[])?;
            statement(&mut out, &limit, &[])?;
            statement(&mut out, &format!("SET LOCAL lock_timeout = {ms}"), &[])?;
            statement(&mut out, NO_SEQSCAN, &[])?;
        }
        for setting in settings {
            statement(&mut out, setting, &[])?;
        }
        statement(&mut out, sql, params)?;
        frontend::sync(&mut out);
        frontend::query("COMMIT", &mut out).map_err(unsendable)?;

        let answer = self.exchange(&out, Form::Block, limits)?;
        if answer.refusal.is_none() && !answer.committed {
            return Err(garbled());
        }
        self.settle(answer, mode)
    }

    fn settle(&mut self, answer: Answer, mode: Mode) -> Result<Vec<Row>, LockError> {
        self.usable = answer.status == b'I';
        if let Some(refusal) = answer.refusal {
            return Err(refusal);
        }
        if !self.usable {
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
}

/// How much earlier than we the server gives up, at the most: its refusal is a certain answer, our silence is not.
const SERVER_FIRST: Duration = Duration::from_millis(100);

/// The server's share of what is left of a call.
#[derive(Clone, Copy, Debug)]
struct ServerLimit {
    ms: i32,
    /// How much earlier than we that is.
    margin_ms: i32,
}

impl ServerLimit {
    fn of(limits: &Limits<'_>) -> Result<Self, LockError> {
        let left = limits.left().map_err(LockError::nothing_applied)?;
        let margin = SERVER_FIRST.min(left / 8);
        let ms = |d: Duration| i32::try_from(d.as_millis()).unwrap_or(i32::MAX);
        Ok(Self {
            ms: ms(left - margin).max(1),
            margin_ms: ms(margin),
        })
    }

    /// Whether a limit that is set already will do: the server still gives up first, and not much too early.
    fn allows(self, set_ms: i32) -> bool {
        let (low, high) = (
            self.ms - self.margin_ms,
            self.ms.saturating_add(self.margin_ms / 2),
        );
        (low..=high).contains(&set_ms)
    }
}

/// What is left of the call, as the server's settings want it.
pub(crate) fn millis_left(limits: &Limits<'_>) -> Result<i32, LockError> {
    ServerLimit::of(limits).map(|limit| limit.ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::call::Call;
    use crate::runtime::process::Owner;

    #[test]
    fn the_server_gives_up_first_and_not_much_too_early() {
        for ms in [1, 7, 100, 800, 5_000, 3_600_000, u64::MAX / 2_000_000] {
            let limits = Limits::enter(Owner::current(), Duration::from_millis(ms), &Call::new());
            let limit = ServerLimit::of(&limits.expect("limits")).expect("time left");
            assert!(limit.ms >= 1 && limit.allows(limit.ms), "{limit:?}");
            let ours = i64::from(limit.ms) + i64::from(limit.margin_ms);
            for set in 1..=10_000 {
                if limit.allows(set) {
                    assert!(i64::from(set) <= ours, "{set} is later than we: {limit:?}");
                    assert!(
                        set >= limit.ms - limit.margin_ms,
                        "{set} is too early: {limit:?}"
                    );
                }
            }
        }
    }
}
