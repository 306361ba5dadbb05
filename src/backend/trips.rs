//! Callers that share a connection: requests that go out together, and answers that are given to those that asked. It does no I/O, and
//! uses `runtime` and `types` alone; ADR 30 has the reasons.
//!
//! Two roles are handed around. The *writer* sends what the callers have put into the outbox, the *reader* takes in replies for all of
//! them. A caller has a role only while it waits for its own answer, and gives it back when it leaves, whatever the reason; a sleeping
//! caller is then woken to take it. No mutex is held while a caller uses a role.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::backend::call::Call;
use crate::runtime::cancel::CancelSubscription;
use crate::runtime::sync::{Condvar, Mutex, MutexGuard};
use crate::runtime::wake::Wake;
use crate::types::error::LockError;

/// A buffer that has grown beyond this is not kept.
const KEPT_BYTES: usize = 64 * 1024;

/// Which request of a connection is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(usize);

/// What the callers of one connection have asked, and what they were answered. `X` is what each role keeps for its I/O.
pub(crate) struct Trips<R, X> {
    state: Mutex<TripState<R, X>>,
    /// Whether the connection takes no more requests: what is known without the mutex.
    closing: AtomicBool,
}

struct TripState<R, X> {
    seats: Vec<Seat<R>>,
    free: Vec<usize>,
    /// The seats of requests that lack replies, in the order of the requests.
    asked: VecDeque<usize>,
    /// Requests that no writer has taken.
    outbox: Vec<u8>,
    /// How many bytes were ever put into the outbox, and how many of them a writer has taken.
    put: u64,
    offered: u64,
    /// `None` while a caller has the role.
    write_side: Option<WriteSide<X>>,
    read_side: Option<ReadSide<R, X>>,
    /// How many callers wait for replies.
    waiting: usize,
    /// It takes no more requests. It ends when no caller waits for a reply.
    retired: bool,
    ended: Option<LockError>,
}

/// The place of one request. It is used again and again, so that a request makes nothing on the heap.
struct Seat<R> {
    wanted: usize,
    replies: Vec<R>,
    /// Where the request begins in all that was ever put into the outbox.
    begins: u64,
    deadline: Option<Instant>,
    /// Its caller has left: the replies are dropped.
    abandoned: bool,
    asleep: bool,
    bell: Arc<Condvar>,
}

/// What a writer needs.
#[derive(Default)]
pub(crate) struct WriteSide<X> {
    bytes: Vec<u8>,
    at: usize,
    /// What was taken from here may still be in a buffer of the transport.
    pub(crate) unflushed: bool,
    pub(crate) io: X,
}

/// What a reader needs.
pub(crate) struct ReadSide<R, X> {
    /// What was read; the first `filled` bytes of it count.
    pub(crate) input: Vec<u8>,
    pub(crate) filled: usize,
    /// Replies that are not given out yet.
    pub(crate) replies: Vec<R>,
    pub(crate) io: X,
}

impl<X> WriteSide<X> {
    fn has_unsent(&self) -> bool {
        self.at < self.bytes.len() || self.unflushed
    }
}

/// A request, before it is encoded.
pub(crate) struct Question {
    pub(crate) deadline: Option<Instant>,
    /// How many replies it has.
    pub(crate) replies: usize,
    /// It is not to wait behind requests of others.
    pub(crate) only_if_idle: bool,
}

/// A request that was taken, and the role of the writer if no other caller has it.
pub(crate) type Asking<'a, R, X> = (Ticket, Option<WriteTurn<'a, R, X>>);

/// Why a request was not taken. Nothing of it was sent.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// The connection ends or has ended, or is not idle: another one may take it.
    Elsewhere,
    Failed(LockError),
}

/// What a caller that waits for its answer does next.
pub(crate) enum TripStep<'a, R, X> {
    Answered,
    /// The call's own time is over, or it was cancelled.
    Over,
    /// The connection has ended.
    Ended(LockError),
    Write(WriteTurn<'a, R, X>),
    Read(ReadTurn<'a, R, X>),
}

impl<R, X> TripState<R, X> {
    fn is_idle(&self) -> bool {
        self.asked.is_empty() && !self.has_unsent()
    }

    fn has_unsent(&self) -> bool {
        let side = self.write_side.as_ref();
        !self.outbox.is_empty() || side.is_some_and(WriteSide::has_unsent)
    }

    /// Whether a caller should take a role that is free now.
    fn wants_a_hand(&self) -> bool {
        (self.read_side.is_some() && !self.asked.is_empty())
            || (self.write_side.is_some() && self.has_unsent())
    }

    /// The caller to wake for a role that is free, if one should be. The latest to ask has it for the longest time: it is the last to be
    /// answered.
    fn successor(&mut self) -> Option<Arc<Condvar>> {
        if !self.wants_a_hand() {
            return None;
        }
        let seats = &mut self.seats;
        let latest = self.asked.iter().rev().find(|at| seats[**at].asleep)?;
        let seat = &mut seats[*latest];
        // The next one is woken for the next role.
        seat.asleep = false;
        Some(Arc::clone(&seat.bell))
    }

    fn end_if_drained(&mut self) {
        if self.retired && self.waiting == 0 && self.ended.is_none() {
            self.ended = Some(LockError::unavailable("the connection was closed"));
        }
    }

    /// Whether no caller waits but those whose time was over long ago: they have left, or their threads do not run.
    fn only_overdue(&self, now: Instant) -> bool {
        self.asked.iter().all(|at| {
            let seat = &self.seats[*at];
            seat.abandoned || seat.deadline.is_some_and(|deadline| deadline < now)
        })
    }

    /// Gives a writer what is to be sent next.
    fn offer(&mut self, side: &mut WriteSide<X>) {
        side.bytes.clear();
        side.bytes.shrink_to(KEPT_BYTES);
        side.at = 0;
        std::mem::swap(&mut side.bytes, &mut self.outbox);
        self.offered = self.put;
    }

    /// Whether something of the request at `at` may have been sent: a writer has taken it.
    fn may_be_sent(&self, at: usize) -> bool {
        self.seats[at].begins < self.offered
    }

    /// Takes the request at `at` out of the outbox: it is never sent.
    fn withdraw(&mut self, at: usize) {
        let Some(place) = self.asked.iter().position(|asked| *asked == at) else {
            return;
        };
        self.asked.remove(place);
        let begins = self.seats[at].begins;
        let next = self.asked.get(place).map(|next| self.seats[*next].begins);
        let bytes = next.unwrap_or(self.put) - begins;
        for later in self.asked.range(place..) {
            self.seats[*later].begins -= bytes;
        }
        // The outbox is in memory: what is in it fits a `usize`.
        let from = (begins - self.offered) as usize;
        self.outbox.drain(from..from + bytes as usize);
        self.put -= bytes;
        self.vacate(at);
    }

    fn vacate(&mut self, at: usize) {
        self.seats[at].replies.clear();
        self.free.push(at);
    }

    fn seat(&mut self, question: &Question) -> usize {
        let at = self.free.pop().unwrap_or_else(|| {
            self.seats.push(Seat {
                wanted: 0,
                replies: Vec::new(),
                begins: 0,
                deadline: None,
                abandoned: false,
                asleep: false,
                bell: Arc::new(Condvar::new()),
            });
            self.seats.len() - 1
        });
        let seat = &mut self.seats[at];
        seat.wanted = question.replies;
        seat.deadline = question.deadline;
        seat.begins = self.put;
        seat.abandoned = false;
        at
    }

    /// How the end of the connection looks to the caller at `at`.
    fn ending(&self, at: usize, error: &LockError) -> LockError {
        let copy = LockError::new(error.code(), error.message());
        if self.may_be_sent(at) {
            copy
        } else {
            copy.nothing_applied()
        }
    }

    fn end(&mut self, error: LockError) -> Vec<Arc<Condvar>> {
        self.ended.get_or_insert(error);
        self.retired = true;
        let asleep = self.seats.iter_mut().filter(|seat| seat.asleep);
        asleep.map(|seat| Arc::clone(&seat.bell)).collect()
    }
}

fn ring(bells: impl IntoIterator<Item = Arc<Condvar>>) {
    for bell in bells {
        bell.notify_one();
    }
}

impl<R, X: Default> Trips<R, X> {
    /// No request yet, on a connection of which nothing was read that is not answered.
    pub(crate) fn new(input: Vec<u8>) -> Self {
        Self {
            closing: AtomicBool::new(false),
            state: Mutex::new(TripState {
                seats: Vec::new(),
                free: Vec::new(),
                asked: VecDeque::new(),
                outbox: Vec::with_capacity(1024),
                put: 0,
                offered: 0,
                write_side: Some(WriteSide {
                    bytes: Vec::with_capacity(1024),
                    at: 0,
                    unflushed: false,
                    io: X::default(),
                }),
                read_side: Some(ReadSide {
                    input,
                    filled: 0,
                    replies: Vec::new(),
                    io: X::default(),
                }),
                waiting: 0,
                retired: false,
                ended: None,
            }),
        }
    }
}

impl<R, X> Trips<R, X> {
    /// Puts a request behind those that were asked before. `check` looks at the connection first: it is told whether it is idle, and
    /// answers whether it may be used. It must not block.
    pub(crate) fn ask(
        &self,
        question: &Question,
        check: impl FnOnce(bool, Option<&mut ReadSide<R, X>>) -> Result<bool, LockError>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Asking<'_, R, X>, NotTaken> {
        let mut state = self.state.lock();
        let idle = state.is_idle();
        if state.retired || (question.only_if_idle && !idle) {
            return Err(NotTaken::Elsewhere);
        }
        if !check(idle, state.read_side.as_mut()).map_err(NotTaken::Failed)? {
            self.retire_locked(&mut state);
            return Err(NotTaken::Elsewhere);
        }
        let at = state.seat(question);
        let before = state.outbox.len();
        encode(&mut state.outbox);
        state.put += (state.outbox.len() - before) as u64;
        state.asked.push_back(at);
        state.waiting += 1;
        let turn = state.write_side.take().map(|mut side| {
            if !side.has_unsent() {
                state.offer(&mut side);
            }
            WriteTurn {
                trips: self,
                side: Some(side),
            }
        });
        Ok((Ticket(at), turn))
    }

    /// The replies to a request that is answered. Its caller has left then.
    pub(crate) fn take<T>(&self, ticket: Ticket, use_replies: impl FnOnce(&mut Vec<R>) -> T) -> T {
        let mut state = self.state.lock();
        let used = use_replies(&mut state.seats[ticket.0].replies);
        state.vacate(ticket.0);
        used
    }

    /// The caller goes, answered or not, and is told whether its request may have been sent. A request that no writer has taken is taken
    /// back; replies to another one are dropped when they come. After a time that was over the connection takes no more requests. The
    /// last caller that leaves while a reply is to come ends it.
    pub(crate) fn leave(&self, ticket: Ticket, timed_out: bool) -> bool {
        let mut state = self.state.lock();
        let seat = &mut state.seats[ticket.0];
        seat.asleep = false;
        if seat.replies.len() == seat.wanted {
            // It came at the last moment.
            state.vacate(ticket.0);
            return true;
        }
        state.waiting -= 1;
        let sent = state.may_be_sent(ticket.0);
        if sent {
            state.seats[ticket.0].abandoned = true;
        } else {
            state.withdraw(ticket.0);
        }
        if timed_out {
            self.retire_locked(&mut state);
        }
        let mut bells = Vec::new();
        let given_up = state.waiting == 0 && !state.asked.is_empty();
        if given_up || (state.retired && state.only_overdue(Instant::now())) {
            bells = self.end_locked(
                &mut state,
                LockError::unavailable("the connection was given up"),
            );
        }
        // It may have been woken for a role.
        let next = state.successor();
        drop(state);
        ring(bells.into_iter().chain(next));
        sent
    }

    /// Takes no more requests from now on.
    pub(crate) fn retire(&self) {
        self.retire_locked(&mut self.state.lock());
    }

    fn retire_locked(&self, state: &mut TripState<R, X>) {
        state.retired = true;
        state.end_if_drained();
        self.closing.store(true, Ordering::Release);
    }

    /// Whether it takes no more requests.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The connection is of no more use to any caller. The first reason is the one that all are told: it is answered if there was one.
    pub(crate) fn end(&self, ticket: Ticket, error: LockError) -> LockError {
        let mut state = self.state.lock();
        if let Some(first) = &state.ended {
            return state.ending(ticket.0, first);
        }
        let copy = LockError::new(error.code(), error.message());
        let bells = self.end_locked(&mut state, copy);
        let sent = state.may_be_sent(ticket.0);
        drop(state);
        ring(bells);
        error.applied_perhaps(sent)
    }

    fn end_locked(&self, state: &mut TripState<R, X>, error: LockError) -> Vec<Arc<Condvar>> {
        self.closing.store(true, Ordering::Release);
        state.end(error)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().ended.is_some()
    }

    pub(crate) fn is_answered(&self, ticket: Ticket) -> bool {
        let state = self.state.lock();
        let seat = &state.seats[ticket.0];
        seat.replies.len() == seat.wanted
    }

    #[cfg(all(test, loom))]
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}

impl<R: Send + 'static, X: Send + 'static> Trips<R, X> {
    /// What the caller of `ticket` does next. It sleeps here while others write and read for it.
    pub(crate) fn next<'a>(
        self: &'a Arc<Self>,
        ticket: Ticket,
        call: &Call<'_>,
    ) -> TripStep<'a, R, X> {
        let at = ticket.0;
        let mut subscription: Option<CancelSubscription> = None;
        let mut state = self.state.lock();
        loop {
            let seat = &state.seats[at];
            if seat.replies.len() == seat.wanted {
                return TripStep::Answered;
            }
            // Both may be true of a caller that is late: it was told a time.
            if call.is_over() {
                return TripStep::Over;
            }
            if let Some(error) = &state.ended {
                return TripStep::Ended(state.ending(at, error));
            }
            if state.has_unsent()
                && let Some(side) = state.write_side.take()
            {
                return TripStep::Write(WriteTurn {
                    trips: self,
                    side: Some(side),
                });
            }
            if let Some(side) = state.read_side.take() {
                return TripStep::Read(ReadTurn {
                    trips: self,
                    side: Some(side),
                });
            }
            if let (Some(token), None) = (call.token(), &subscription) {
                let bell = Arc::clone(&state.seats[at].bell);
                // A token that is cancelled already wakes at once, and that takes our mutex.
                drop(state);
                subscription = Some(token.subscribe(Arc::new(CancelledSeat {
                    trips: Arc::clone(self),
                    bell,
                })));
                state = self.state.lock();
                continue;
            }
            state = self.sleep(state, at, call.deadline());
        }
    }

    fn sleep<'a>(
        &self,
        mut state: MutexGuard<'a, TripState<R, X>>,
        at: usize,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, TripState<R, X>> {
        let seat = &mut state.seats[at];
        seat.asleep = true;
        let bell = Arc::clone(&seat.bell);
        bell.wait_until(&mut state, deadline);
        state.seats[at].asleep = false;
        state
    }
}

/// Wakes a sleeping caller whose token was cancelled.
struct CancelledSeat<R, X> {
    trips: Arc<Trips<R, X>>,
    bell: Arc<Condvar>,
}

impl<R: Send, X: Send> Wake for CancelledSeat<R, X> {
    fn wake(&self) {
        // Taking the mutex makes sure that the caller either sees the cancel or is already asleep.
        drop(self.trips.state.lock());
        self.bell.notify_one();
    }
}

/// The role of the writer, until it is dropped.
pub(crate) struct WriteTurn<'a, R, X> {
    trips: &'a Trips<R, X>,
    /// `None` once it is given back.
    side: Option<WriteSide<X>>,
}

impl<'a, R, X> WriteTurn<'a, R, X> {
    fn side(&mut self) -> &mut WriteSide<X> {
        match &mut self.side {
            Some(side) => side,
            None => unreachable!("a turn that was given back is not used"),
        }
    }

    /// What is to be sent next, and what the I/O keeps.
    pub(crate) fn rest(&mut self) -> (&[u8], &mut bool, &mut X) {
        let side = self.side();
        (&side.bytes[side.at..], &mut side.unflushed, &mut side.io)
    }

    /// The next `n` bytes were sent.
    pub(crate) fn advance(&mut self, n: usize) {
        self.side().at += n;
    }

    /// After everything was sent: the turn goes on with what was asked meanwhile, or the role is given back.
    pub(crate) fn more(mut self) -> Option<Self> {
        let mut side = self.side.take()?;
        let mut state = self.trips.state.lock();
        if state.outbox.is_empty() {
            state.write_side = Some(side);
            return None;
        }
        state.offer(&mut side);
        drop(state);
        self.side = Some(side);
        Some(self)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.side.as_ref().is_none_or(|side| !side.has_unsent())
    }
}

impl<R, X> Drop for WriteTurn<'_, R, X> {
    /// The caller leaves in the middle: a sleeping one goes on.
    fn drop(&mut self) {
        let Some(side) = self.side.take() else {
            return;
        };
        let mut state = self.trips.state.lock();
        state.write_side = Some(side);
        let next = state.successor();
        if next.is_none() && state.has_unsent() && state.read_side.is_none() {
            // The reader may be the only one left, and goes on with it when it has read something.
            self.trips.retire_locked(&mut state);
        }
        drop(state);
        ring(next);
    }
}

/// The role of the reader, until it is dropped.
pub(crate) struct ReadTurn<'a, R, X> {
    trips: &'a Trips<R, X>,
    /// `None` once it is given back.
    side: Option<ReadSide<R, X>>,
}

/// What has become of a reader's turn.
pub(crate) enum Delivered<T> {
    /// The caller still waits for its own answer, and has the role.
    GoOn(T),
    /// There is something to write, and the caller has no role.
    GivenBack,
    /// The caller has its answer, and no role.
    Answered,
}

impl<'a, R, X> ReadTurn<'a, R, X> {
    pub(crate) fn side(&mut self) -> &mut ReadSide<R, X> {
        match &mut self.side {
            Some(side) => side,
            None => unreachable!("a turn that was given back is not used"),
        }
    }

    /// Gives the replies out. The turn goes on until the caller of `ticket` is answered, or there is something to write. Replies to
    /// nothing end the connection with `surplus`.
    pub(crate) fn deliver(
        mut self,
        ticket: Ticket,
        surplus: fn() -> LockError,
    ) -> Result<Delivered<Self>, LockError> {
        let trips = self.trips;
        let mut state = trips.state.lock();
        let side = self.side();
        if !is_in_step(&state, side) {
            let bells = trips.end_locked(&mut state, surplus());
            drop(state);
            ring(bells);
            return Err(surplus());
        }
        let mut bells = Vec::new();
        for reply in side.replies.drain(..) {
            let Some(&at) = state.asked.front() else {
                break;
            };
            let seat = &mut state.seats[at];
            seat.replies.push(reply);
            if seat.replies.len() < seat.wanted {
                continue;
            }
            let abandoned = seat.abandoned;
            if std::mem::take(&mut seat.asleep) {
                bells.push(Arc::clone(&seat.bell));
            }
            state.asked.pop_front();
            if abandoned {
                state.vacate(at);
            } else {
                state.waiting -= 1;
            }
        }
        state.end_if_drained();
        let seat = &state.seats[ticket.0];
        let answered = seat.replies.len() == seat.wanted;
        let to_write = state.write_side.is_some() && state.has_unsent();
        if !answered && !to_write {
            drop(state);
            ring(bells);
            return Ok(Delivered::GoOn(self));
        }
        state.read_side = self.side.take();
        if answered {
            bells.extend(state.successor());
        }
        drop(state);
        ring(bells);
        Ok(if answered {
            Delivered::Answered
        } else {
            Delivered::GivenBack
        })
    }
}

/// Whether there are no more replies than were asked for, and none to a request that no writer has taken.
fn is_in_step<R, X>(state: &TripState<R, X>, side: &ReadSide<R, X>) -> bool {
    let mut open = 0;
    for at in &state.asked {
        let seat = &state.seats[*at];
        if !state.may_be_sent(*at) {
            break;
        }
        open += seat.wanted - seat.replies.len();
        if open > side.replies.len() {
            return true;
        }
    }
    open == side.replies.len() && side.filled == 0
}

impl<R, X> Drop for ReadTurn<'_, R, X> {
    /// The caller leaves without its answer: a sleeping one goes on.
    fn drop(&mut self) {
        let Some(side) = self.side.take() else {
            return;
        };
        let mut state = self.trips.state.lock();
        state.read_side = Some(side);
        let next = state.successor();
        drop(state);
        ring(next);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
