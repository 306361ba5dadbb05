//! Roles and replies go to the callers that they are for, also when one leaves, panics or is late.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::*;

type Wire = Trips<u8, ()>;

fn ask(trips: &Wire, byte: u8) -> Asking<'_, u8, ()> {
    let question = Question {
        deadline: None,
        replies: 1,
        only_if_idle: false,
    };
    trips
        .ask(&question, |_, _| Ok(true), |outbox| outbox.push(byte))
        .expect("it takes requests")
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
    let question = Question {
        deadline: None,
        replies: 1,
        only_if_idle: false,
    };
    let refused = trips.ask(&question, |_, _| Ok(true), |_| {}).err();
    assert!(matches!(refused, Some(NotTaken::Elsewhere)));
}

#[test]
fn the_last_caller_that_leaves_ends_the_connection_and_a_late_one_retires_it() {
    let trips = Arc::new(Wire::new(Vec::new()));
    let (late, turn) = ask(&trips, 1);
    let mut turn = turn.expect("it writes");
    turn.advance(1);
    assert!(turn.more().is_none());
    let (other, turn) = ask(&trips, 2);
    let mut turn = turn.expect("it writes");
    turn.advance(1);
    assert!(turn.more().is_none());
    let over = Call::new().within(Duration::ZERO);
    assert!(matches!(trips.next(late, &over), TripStep::Over));
    trips.leave(late, true);
    assert!(trips.is_closing() && !trips.has_ended());
    assert!(read(&trips, other, &[1, 2]).expect("in step"));
    assert!(trips.has_ended(), "it is drained");
    assert_eq!(trips.take(other, Vec::pop), Some(2));
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
