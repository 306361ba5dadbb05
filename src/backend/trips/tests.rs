//! The roles of callers that share a connection: each is handed on, and each reply goes to the request that it answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::Scope;
use std::time::Duration;

use super::*;
use crate::runtime::cancel::CancelToken;

/// How long a test waits for what must happen: far longer than it takes, for machines that are busy.
const WAIT: Duration = Duration::from_secs(30);

type Wire = Trips<u8, ()>;

fn try_ask(trips: &Wire, byte: u8, only_if_idle: bool) -> Result<Asking<'_, u8, ()>, NotTaken> {
    let question = Question {
        deadline: None,
        replies: 1,
        only_if_idle,
    };
    trips.ask(&question, |_, _| Ok(true), |outbox| outbox.push(byte))
}

fn ask(trips: &Wire, byte: u8) -> Asking<'_, u8, ()> {
    try_ask(trips, byte, false).expect("it takes requests")
}

/// Asks, and sends the request.
fn sent(trips: &Wire, byte: u8) -> Ticket {
    let (ticket, turn) = ask(trips, byte);
    let mut turn = turn.expect("it writes");
    turn.advance(1);
    assert!(turn.more().is_none());
    ticket
}

fn surplus() -> LockError {
    LockError::internal("a reply without a request")
}

/// Sends all there is, and answers what that was.
fn write(mut turn: WriteTurn<'_, u8, ()>) -> Vec<u8> {
    let mut sent = Vec::new();
    loop {
        let rest = turn.rest().0.to_vec();
        turn.advance(rest.len());
        sent.extend(rest);
        match turn.more() {
            Some(more) => turn = more,
            None => return sent,
        }
    }
}

/// Reads these replies for the caller of `ticket`, and answers whether that was answered.
fn read(trips: &Arc<Wire>, ticket: Ticket, replies: &[u8]) -> Result<bool, LockError> {
    let TripStep::Read(mut turn) = trips.next(ticket, &Call::new()) else {
        panic!("no role is free");
    };
    turn.side().replies.extend_from_slice(replies);
    Ok(matches!(
        turn.deliver(ticket, surplus)?,
        Delivered::Answered
    ))
}

#[test]
fn a_caller_that_panics_gives_its_role_back_and_its_reply_is_dropped() {
    let trips = Arc::new(Wire::new(Vec::new()));
    let (panics, turn) = ask(&trips, 1);
    let (other, none) = ask(&trips, 2);
    assert!(none.is_none(), "two writers");
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _turn = turn;
        panic!("a hook of the test");
    }));
    assert!(unwound.is_err());
    trips.leave(panics, false);
    // The other one sends both requests: the first may have been sent in part.
    let TripStep::Write(turn) = trips.next(other, &Call::new()) else {
        panic!("the role of the writer is lost");
    };
    assert_eq!(write(turn), [1, 2]);
    assert!(read(&trips, other, &[1, 2]).expect("in step"));
    assert_eq!(trips.take(other, Vec::pop), Some(2));
    assert!(!trips.has_ended());
}

#[test]
fn a_reply_to_what_was_not_sent_ends_the_connection_for_all() {
    let trips = Arc::new(Wire::new(Vec::new()));
    let (first, turn) = ask(&trips, 1);
    let mut turn = turn.expect("the first one writes");
    turn.advance(1);
    let (second, _) = ask(&trips, 2);
    // The second request is in the outbox.
    assert!(read(&trips, first, &[1, 2]).is_err());
    let TripStep::Ended(error) = trips.next(second, &Call::new()) else {
        panic!("it goes on");
    };
    assert!(!error.may_have_applied(), "it was never sent");
    let TripStep::Ended(error) = trips.next(first, &Call::new()) else {
        panic!("it goes on");
    };
    assert!(error.may_have_applied());
    drop(turn);
    let refused = try_ask(&trips, 3, false).err();
    assert!(matches!(refused, Some(NotTaken::Elsewhere)));
}

#[test]
fn the_last_caller_that_leaves_ends_the_connection_and_a_late_one_retires_it() {
    let trips = Arc::new(Wire::new(Vec::new()));
    let (late, other) = (sent(&trips, 1), sent(&trips, 2));
    let over = Call::new().within(Duration::ZERO);
    assert!(matches!(trips.next(late, &over), TripStep::Over));
    trips.leave(late, true);
    assert!(trips.is_closing() && !trips.has_ended());
    assert!(read(&trips, other, &[1, 2]).expect("in step"));
    assert!(trips.has_ended(), "it is drained");
    assert_eq!(trips.take(other, Vec::pop), Some(2));
}

#[test]
fn a_caller_that_leaves_alone_ends_the_connection() {
    let trips = Arc::new(Wire::new(Vec::new()));
    let alone = sent(&trips, 1);
    // Its reply would be that of the next request.
    trips.leave(alone, false);
    assert!(trips.is_closing() && trips.has_ended());
    assert!(matches!(
        try_ask(&trips, 2, false),
        Err(NotTaken::Elsewhere)
    ));
}

#[test]
fn the_place_of_a_caller_that_has_left_serves_another_request() {
    let trips = Arc::new(Wire::new(Vec::new()));
    let (left, stays) = (sent(&trips, 1), sent(&trips, 2));
    trips.leave(left, false);
    assert!(read(&trips, stays, &[1, 2]).expect("in step"));
    assert_eq!(trips.take(stays, Vec::pop), Some(2));
    // Both places are free, and one of them was left.
    let both = [sent(&trips, 3), sent(&trips, 4)];
    assert!(read(&trips, both[1], &[3, 4]).expect("in step"));
    assert_eq!(both.map(|t| trips.take(t, Vec::pop)), [Some(3), Some(4)]);
    assert!(!trips.has_ended());
}

#[test]
fn a_request_that_must_not_wait_behind_others_is_taken_by_an_idle_connection_alone() {
    let trips = Arc::new(Wire::new(Vec::new()));
    let first = sent(&trips, 1);
    assert!(matches!(try_ask(&trips, 2, true), Err(NotTaken::Elsewhere)));
    assert!(!trips.is_closing(), "it serves the others");
    assert!(read(&trips, first, &[1]).expect("in step"));
    trips.take(first, Vec::pop);
    assert!(try_ask(&trips, 2, true).is_ok());
}

/// What a caller on another thread does next, asleep or not.
fn next_elsewhere<'a>(
    scope: &'a Scope<'a, '_>,
    trips: &'a Arc<Wire>,
    ticket: Ticket,
    token: &'a CancelToken,
) -> mpsc::Receiver<&'static str> {
    let (tells, told) = mpsc::channel();
    scope.spawn(move || {
        let call = Call::new().within(WAIT).cancelled_by(token);
        let step = match trips.next(ticket, &call) {
            TripStep::Answered => "answered",
            TripStep::Over => "over",
            TripStep::Ended(_) => "ended",
            TripStep::Write(_) => "write",
            TripStep::Read(_) => "read",
        };
        tells.send(step).unwrap_or_default();
    });
    let end = Instant::now() + WAIT;
    while !trips.state.lock().seats[ticket.0].asleep {
        assert!(Instant::now() < end, "it does not sleep");
        std::thread::yield_now();
    }
    told
}

#[test]
fn a_reader_that_leaves_hands_its_role_to_one_that_sleeps() {
    let trips = Arc::new(Wire::new(Vec::new()));
    let (leaver, sleeper) = (sent(&trips, 1), sent(&trips, 2));
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let TripStep::Read(turn) = trips.next(leaver, &Call::new()) else {
            panic!("no role is free");
        };
        let told = next_elsewhere(scope, &trips, sleeper, &token);
        drop(turn);
        trips.leave(leaver, false);
        assert_eq!(told.recv_timeout(WAIT * 2), Ok("read"));
    });
}

#[test]
fn a_reader_that_has_its_answer_hands_its_role_to_one_that_sleeps() {
    let trips = Arc::new(Wire::new(Vec::new()));
    let (answered, sleeper) = (sent(&trips, 1), sent(&trips, 2));
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let TripStep::Read(mut turn) = trips.next(answered, &Call::new()) else {
            panic!("no role is free");
        };
        let told = next_elsewhere(scope, &trips, sleeper, &token);
        turn.side().replies.push(1);
        let delivered = turn.deliver(answered, surplus);
        assert!(matches!(delivered, Ok(Delivered::Answered)));
        assert_eq!(told.recv_timeout(WAIT * 2), Ok("read"));
    });
}

#[test]
fn a_cancel_wakes_a_caller_that_sleeps_and_no_other() {
    let trips = Arc::new(Wire::new(Vec::new()));
    let (reader, sleeper) = (sent(&trips, 1), sent(&trips, 2));
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let TripStep::Read(turn) = trips.next(reader, &Call::new()) else {
            panic!("no role is free");
        };
        let told = next_elsewhere(scope, &trips, sleeper, &token);
        let begun = Instant::now();
        token.cancel();
        assert_eq!(told.recv_timeout(WAIT * 2), Ok("over"));
        assert!(begun.elapsed() < WAIT, "its deadline woke it");
        trips.leave(sleeper, false);
        // The reader goes on, and the reply to the other one is dropped.
        let mut turn = turn;
        turn.side().replies.extend([1, 2]);
        assert!(matches!(
            turn.deliver(reader, surplus),
            Ok(Delivered::Answered)
        ));
        assert_eq!(trips.take(reader, Vec::pop), Some(1));
    });
}

/// Its caller is told that nothing was applied, and so does not undo it: it must never be sent.
#[test]
fn a_request_whose_caller_leaves_before_it_is_sent_is_taken_back() {
    let trips = Arc::new(Wire::new(Vec::new()));
    let (writes, turn) = ask(&trips, 1);
    let [leaves, stays, last] = [2, 3, 4].map(|byte| ask(&trips, byte).0);
    assert!(!trips.leave(leaves, false));
    assert!(!trips.leave(last, false));
    let (after, none) = ask(&trips, 5);
    assert!(none.is_none(), "two writers");
    assert_eq!(write(turn.expect("it writes")), [1, 3, 5]);
    assert!(read(&trips, writes, &[1, 3, 5]).expect("in step"));
    for (ticket, byte) in [(writes, 1), (stays, 3), (after, 5)] {
        assert_eq!(trips.take(ticket, Vec::pop), Some(byte));
    }
    let (sent, turn) = ask(&trips, 6);
    assert_eq!(write(turn.expect("it writes")), [6]);
    assert!(trips.leave(sent, false), "it is on its way");
}
