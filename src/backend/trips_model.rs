//! Every interleaving of callers that share a connection, as they write and read for each other and leave in the middle, tried by loom
//! (`make model`).
//!
//! A request is one byte and its reply is the same byte. Loom has no time: a caller whose deadline passes is one that leaves.

use std::collections::VecDeque;

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use crate::backend::call::Call;
use crate::backend::trips::{
    Delivered, NotTaken, Question, ReadTurn, Ticket, TripStep, Trips, WriteTurn,
};
use crate::runtime::sync::{Condvar, Mutex};
use crate::types::error::LockError;

/// A server that answers what was sent, one request at a time.
struct Echo {
    trips: std::sync::Arc<Trips<u8, ()>>,
    sent: Mutex<VecDeque<u8>>,
    /// Everything that was ever sent.
    log: Mutex<Vec<u8>>,
    changed: Condvar,
}

impl Echo {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            trips: std::sync::Arc::new(Trips::new(Vec::new())),
            sent: Mutex::new(VecDeque::new()),
            log: Mutex::new(Vec::new()),
            changed: Condvar::new(),
        })
    }

    fn send(&self, byte: u8) {
        self.log.lock().push(byte);
        self.sent.lock().push_back(byte);
        self.changed.notify_all();
    }

    /// A reply; none if the connection is given up first: then a caller waits until its deadline.
    fn read(&self) -> Option<u8> {
        let mut sent = self.sent.lock();
        loop {
            if let Some(byte) = sent.pop_front() {
                return Some(byte);
            }
            if self.trips.is_closing() {
                return None;
            }
            self.changed.wait(&mut sent);
        }
    }

    fn ask(&self, byte: u8) -> Result<(Ticket, Option<WriteTurn<'_, u8, ()>>), NotTaken> {
        let question = Question {
            deadline: None,
            replies: 1,
            only_if_idle: false,
        };
        self.trips
            .ask(&question, |_, _| Ok(true), |outbox| outbox.push(byte))
    }

    fn write(&self, mut turn: WriteTurn<'_, u8, ()>) {
        loop {
            if turn.is_done() {
                match turn.more() {
                    Some(more) => turn = more,
                    None => return,
                }
            }
            let byte = turn.rest().0[0];
            self.send(byte);
            turn.advance(1);
        }
    }

    /// Whether the caller's time is not over.
    fn read_for_all(&self, mut turn: ReadTurn<'_, u8, ()>, ticket: Ticket) -> bool {
        loop {
            let Some(reply) = self.read() else {
                return false;
            };
            turn.side().replies.push(reply);
            let surplus = || LockError::internal("a reply without a request");
            match turn.deliver(ticket, surplus).expect("in step") {
                Delivered::GoOn(more) => turn = more,
                Delivered::GivenBack | Delivered::Answered => return true,
            }
        }
    }

    /// A caller that waits for its answer. Without one the connection takes no more requests.
    fn call(&self, byte: u8) -> Option<u8> {
        let answer = self.answer(byte);
        assert!(answer.is_some() || self.trips.is_closing());
        answer
    }

    fn answer(&self, byte: u8) -> Option<u8> {
        let (ticket, turn) = self.ask(byte).ok()?;
        let mut step = turn.map(TripStep::Write);
        loop {
            let next = step
                .take()
                .unwrap_or_else(|| self.trips.next(ticket, &Call::new()));
            let goes_on = match next {
                TripStep::Answered => return self.trips.take(ticket, Vec::pop),
                TripStep::Over | TripStep::Ended(_) => false,
                TripStep::Write(turn) => {
                    self.write(turn);
                    true
                }
                TripStep::Read(turn) => self.read_for_all(turn, ticket),
            };
            if !goes_on {
                self.leave(ticket, true);
                return None;
            }
        }
    }

    /// Whether the request may have been sent.
    fn leave(&self, ticket: Ticket, timed_out: bool) -> bool {
        let sent = self.trips.leave(ticket, timed_out);
        drop(self.sent.lock());
        self.changed.notify_all();
        sent
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    // All interleavings with so many switches that no thread asks for: more take hours.
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn spawn<T: 'static>(
    echo: &Arc<Echo>,
    work: impl FnOnce(&Echo) -> T + 'static,
) -> thread::JoinHandle<T> {
    let echo = Arc::clone(echo);
    thread::spawn(move || work(&echo))
}

#[test]
fn every_caller_gets_its_own_answer() {
    explore(|| {
        let echo = Echo::new();
        let others = [1, 2].map(|byte| spawn(&echo, move |echo| echo.call(byte)));
        assert_eq!(echo.call(0), Some(0));
        for (byte, other) in (1..).zip(others) {
            assert_eq!(other.join().expect("no panic"), Some(byte));
        }
        assert_eq!(echo.trips.waiting(), 0);
    });
}

#[test]
fn callers_after_each_other_get_their_own_answers() {
    explore(|| {
        let echo = Echo::new();
        let other = spawn(&echo, |echo| [1, 2].map(|byte| echo.call(byte)));
        assert_eq!([3, 4].map(|byte| echo.call(byte)), [Some(3), Some(4)]);
        assert_eq!(other.join().expect("no panic"), [Some(1), Some(2)]);
    });
}

/// One caller leaves before anything of its request is sent, and drops the role of the writer if it has it. If it is told that its
/// request was not sent, that is never sent.
#[test]
fn a_writer_that_leaves_takes_no_answer_from_others() {
    explore(|| {
        let echo = Echo::new();
        let leaver = spawn(&echo, |echo| {
            let Ok((ticket, turn)) = echo.ask(9) else {
                return false;
            };
            drop(turn);
            echo.leave(ticket, false)
        });
        let other = spawn(&echo, |echo| echo.call(1));
        let mine = echo.call(0);
        assert!(mine.is_none_or(|byte| byte == 0));
        assert!(other.join().expect("no panic").is_none_or(|byte| byte == 1));
        let may_be_sent = leaver.join().expect("no panic");
        assert!(may_be_sent || !echo.log.lock().contains(&9));
    });
}

/// One caller leaves with the role of the reader, or asleep: the others are answered, and its reply answers none of them.
#[test]
fn a_reader_that_leaves_hands_its_role_on() {
    explore(|| {
        let echo = Echo::new();
        let leaver = spawn(&echo, |echo| {
            let Ok((ticket, turn)) = echo.ask(9) else {
                return;
            };
            if let Some(turn) = turn {
                echo.write(turn);
            }
            match echo.trips.next(ticket, &Call::new()) {
                TripStep::Answered => assert_eq!(echo.trips.take(ticket, Vec::pop), Some(9)),
                step => {
                    drop(step);
                    echo.leave(ticket, false);
                }
            }
        });
        let other = spawn(&echo, |echo| echo.call(1));
        let other = other.join().expect("no panic");
        assert!(other.is_none_or(|byte| byte == 1));
        leaver.join().expect("no panic");
    });
}
