//! One connection that callers share: each encodes its own requests and reads its own replies, and one of them writes and one reads for
//! all. It uses `backend::trips`, which has the roles, `connection`, `resp`, `error`, `net` and `backend`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::limits::Limits;
use crate::backend::pool::Rank;
use crate::backend::store_clock::StoreClock;
use crate::backend::trips::{
    Delivered, NotTaken, Question, ReadTurn, Ticket, TripStep, Trips, WriteTurn,
};
use crate::net::shared::{CancelWaker, SharedSocket};
use crate::runtime::sync::Mutex;
use crate::stores::redis::connection::RedisConnection;
use crate::stores::redis::error;
use crate::stores::redis::resp::{self, ParsedReply, Reply};
use crate::stores::redis::route::ServerPlace;
use crate::types::error::LockError;

/// Enough for the replies to some hundred requests.
const READ_SIZE: usize = 16 * 1024;

/// A connection that is logged in, for many callers at once.
pub(crate) struct SharedConnection {
    socket: SharedSocket,
    trips: Arc<Trips<Reply, CancelWaker>>,
    pub(crate) place: ServerPlace,
    /// The server's clock, once it has told.
    clock: Mutex<Option<StoreClock>>,
    /// The slot of the pool that it has.
    rank: Rank,
    has_slot: AtomicBool,
    /// It has served no request yet.
    is_new: AtomicBool,
}

impl SharedConnection {
    pub(crate) fn new(connection: RedisConnection, place: ServerPlace, rank: Rank) -> Self {
        let (socket, clock) = connection.into_parts();
        Self {
            socket: SharedSocket::new(socket),
            trips: Arc::new(Trips::new(vec![0; READ_SIZE])),
            place,
            clock: Mutex::new(clock),
            rank,
            has_slot: AtomicBool::new(true),
            is_new: AtomicBool::new(true),
        }
    }

    pub(crate) fn clock(&self) -> Option<StoreClock> {
        *self.clock.lock()
    }

    pub(crate) fn set_clock(&self, clock: Option<StoreClock>) {
        *self.clock.lock() = clock;
    }

    /// Sends `commands` in one piece, together with what others send, and waits for their replies. `use_replies` is given them in order.
    pub(crate) fn exchange<T>(
        &self,
        commands: &[&[&[u8]]],
        only_if_idle: bool,
        limits: &Limits<'_>,
        use_replies: fn(&mut Vec<Reply>) -> T,
    ) -> Result<T, NotTaken> {
        let question = Question {
            deadline: Some(limits.deadline()),
            replies: commands.len(),
            only_if_idle,
        };
        let (ticket, mut turn) = self.trips.ask(
            &question,
            |idle, side| {
                let Some(side) = side else {
                    return Ok(true);
                };
                SharedSocket::prepare(&mut side.io, limits)?;
                // After a restart of the server a connection that idled is dead: it must not cost a failed call. One that was just made
                // is used in any case: a server that always hangs up would be connected to again and again.
                let is_new = self.is_new.swap(false, Ordering::AcqRel);
                Ok(!idle || is_new || self.socket.is_quiet())
            },
            |outbox| {
                for command in commands {
                    resp::command(outbox, command);
                }
            },
        )?;
        let mut asked = AskedRequest {
            connection: self,
            ticket: Some(ticket),
        };
        asked
            .wait(ticket, &mut turn, limits)
            .map_err(NotTaken::Failed)?;
        asked.ticket = None;
        Ok(self.trips.take(ticket, use_replies))
    }

    /// Writes for all callers until nothing is left to write.
    fn write(
        &self,
        mut turn: WriteTurn<'_, Reply, CancelWaker>,
        ticket: Ticket,
        limits: &Limits<'_>,
    ) -> Result<(), LockError> {
        let failed = |e| self.failed(ticket, e, limits);
        loop {
            if turn.is_done() {
                match turn.more() {
                    Some(more) => turn = more,
                    None => return Ok(()),
                }
                // A crowd that goes on asking keeps no caller beyond its time.
                limits.left()?;
            }
            let (rest, unflushed, waker) = turn.rest();
            match self.socket.try_send(rest, unflushed).map_err(failed)? {
                Some(n) => turn.advance(n),
                None => self.socket.wait_to_send(waker, limits).map_err(failed)?,
            }
        }
    }

    /// Reads for all callers; answers whether that of `ticket` is answered.
    fn read(
        &self,
        mut turn: ReadTurn<'_, Reply, CancelWaker>,
        ticket: Ticket,
        limits: &Limits<'_>,
    ) -> Result<bool, LockError> {
        let failed = |e| self.failed(ticket, e, limits);
        loop {
            let side = turn.side();
            if side.filled == side.input.len() {
                // The parser refuses a reply before this grows without end.
                side.input.resize(side.input.len() * 2, 0);
            }
            side.filled += self
                .socket
                .read(&mut side.input[side.filled..], &mut side.io, limits)
                .map_err(failed)?;
            let mut at = 0;
            while at < side.filled {
                let parsed = resp::parse(&side.input[at..side.filled])
                    .map_err(|what| failed(error::malformed(what)))?;
                let Some(ParsedReply { reply, bytes }) = parsed else {
                    break;
                };
                at += bytes;
                side.replies.push(reply);
            }
            if at > 0 {
                side.input.copy_within(at..side.filled, 0);
                side.filled -= at;
            }
            if side.filled == 0 && side.input.len() > READ_SIZE {
                side.input = vec![0; READ_SIZE];
            }
            turn = match turn.deliver(ticket, error::surplus)? {
                Delivered::GoOn(turn) => turn,
                Delivered::Answered => return Ok(true),
                Delivered::GivenBack => return Ok(false),
            };
        }
    }

    /// After an error that is not the end of the caller's own time the connection has ended. This happens before the role is given back:
    /// no caller takes it then.
    fn failed(&self, ticket: Ticket, error: LockError, limits: &Limits<'_>) -> LockError {
        match limits.is_over() {
            true => error,
            false => self.trips.end(ticket, error),
        }
    }

    /// Takes no more requests. It is closed once no caller waits for a reply.
    pub(crate) fn retire(&self) {
        self.trips.retire();
    }

    /// Whether it takes no more requests.
    pub(crate) fn is_closing(&self) -> bool {
        self.trips.is_closing()
    }

    /// Closes the connection if it has ended, and answers the rank of the slot that is free then: once.
    pub(crate) fn close_if_ended(&self) -> Option<Rank> {
        if !self.trips.has_ended() {
            return None;
        }
        self.socket.shut();
        self.has_slot
            .swap(false, Ordering::AcqRel)
            .then_some(self.rank)
    }
}

/// A request on its way, until it is dropped: then its caller has left.
struct AskedRequest<'a> {
    connection: &'a SharedConnection,
    /// `None` once its caller was answered or has left.
    ticket: Option<Ticket>,
}

impl<'a> AskedRequest<'a> {
    fn wait(
        &mut self,
        ticket: Ticket,
        first: &mut Option<WriteTurn<'a, Reply, CancelWaker>>,
        limits: &Limits<'_>,
    ) -> Result<(), LockError> {
        let connection = self.connection;
        let mut told = false;
        loop {
            let step = match first.take() {
                Some(turn) => TripStep::Write(turn),
                None => connection.trips.next(ticket, limits),
            };
            let answered = match step {
                TripStep::Answered => Ok(true),
                TripStep::Ended(e) => return Err(e),
                TripStep::Over => return Err(self.over(ticket, limits)),
                TripStep::Write(turn) => connection.write(turn, ticket, limits).map(|()| {
                    // Redis serves requests in the order in which it gets them. The caller has no role now: what it does here keeps no
                    // other caller waiting.
                    if !std::mem::replace(&mut told, true) {
                        limits.ordered();
                    }
                    false
                }),
                TripStep::Read(turn) => connection.read(turn, ticket, limits),
            };
            match answered {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // Its own time is over: others go on.
                Err(_) if limits.is_over() => {}
                // Another caller may have read the answer before.
                Err(_) if connection.trips.is_answered(ticket) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// The call's own time is over, or it was cancelled.
    fn over(&mut self, ticket: Ticket, limits: &Limits<'_>) -> LockError {
        let connection = self.connection;
        self.ticket = None;
        // In one step: a writer that took the request meanwhile would make a known outcome of an unknown one.
        let sent = connection.trips.leave(ticket, !limits.is_cancelled());
        limits
            .talking_to(connection.socket.server())
            .overrun()
            .applied_perhaps(sent)
    }
}

impl Drop for AskedRequest<'_> {
    /// After an error of the connection, or a panic.
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.connection.trips.leave(ticket, false);
        }
    }
}
