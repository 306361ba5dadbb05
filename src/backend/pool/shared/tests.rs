//! Connections that callers share: upkeep has its own, and a caller that connects for all keeps no other waiting beyond its time.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use super::*;
use crate::backend::call::Call;
use crate::runtime::cancel::CancelToken;
use crate::runtime::process::Owner;
use crate::types::error::ErrorCode;

const AMPLE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

fn within(timeout: Duration) -> Limits<'static> {
    Limits::enter(Owner::current(), timeout, &Call::new()).expect("time is left")
}

fn enter(pool: &SharedPool<u8>, rank: Rank, wanted: Wanted) -> Entrance<'_, u8> {
    let entrance = pool.enter(rank, wanted, &within(AMPLE), |_| true);
    entrance.expect("an entrance")
}

/// The code of a caller that gets nothing in a short time.
fn refused(pool: &SharedPool<u8>, rank: Rank) -> ErrorCode {
    let answer = pool.enter(rank, Wanted::Any, &within(SHORT), |_| true);
    let error = answer.err().expect("no entrance");
    assert!(!error.may_have_applied());
    error.code()
}

fn slot(entrance: Entrance<'_, u8>) -> OpenSlot<'_, u8> {
    match entrance {
        Entrance::Slot(slot) => slot,
        _ => panic!("there is a connection"),
    }
}

fn shared(entrance: Entrance<'_, u8>) -> u8 {
    match entrance {
        Entrance::Shared(connection) => *connection,
        _ => panic!("it is not shared"),
    }
}

/// Makes a connection of this rank.
fn connect(pool: &SharedPool<u8>, rank: Rank, name: u8) -> Arc<u8> {
    let connection = Arc::new(name);
    let before = slot(enter(pool, rank, Wanted::OfItsRank)).share(&connection);
    assert_eq!(before, None);
    connection
}

fn is_waited<C>(pool: &SharedPool<C>, callers: usize) {
    let end = Instant::now() + AMPLE;
    while pool.state.lock().waiting.len() != callers {
        assert!(Instant::now() < end, "no caller waits");
        thread::yield_now();
    }
}

#[test]
fn upkeep_has_its_own_connection_and_may_borrow_that_of_ordinary_callers() {
    let pool = SharedPool::new(3);
    connect(&pool, Rank::Ordinary, 1);
    assert!(matches!(
        enter(&pool, Rank::Upkeep, Wanted::Any),
        Entrance::Borrowed(connection) if *connection == 1
    ));
    // It was not idle: then upkeep asks for one of its own.
    connect(&pool, Rank::Upkeep, 2);
    for (rank, name) in [(Rank::Ordinary, 1), (Rank::Upkeep, 2)] {
        assert_eq!(shared(enter(&pool, rank, Wanted::Any)), name);
    }
    let one = SharedPool::new(1);
    connect(&one, Rank::Ordinary, 3);
    assert_eq!(shared(enter(&one, Rank::Upkeep, Wanted::Any)), 3);
}

#[test]
fn a_slot_is_kept_for_upkeep_while_a_connection_of_ordinary_callers_drains() {
    let pool = SharedPool::new(2);
    let draining = connect(&pool, Rank::Ordinary, 1);
    assert!(pool.remove(&draining) && !pool.remove(&draining));
    assert_eq!(refused(&pool, Rank::Ordinary), ErrorCode::RateLimited);
    connect(&pool, Rank::Upkeep, 2);
    // The first one is closed.
    pool.give_back(Rank::Ordinary);
    connect(&pool, Rank::Ordinary, 3);
}

#[test]
fn a_connection_that_is_of_no_use_leaves_the_pool() {
    let pool = SharedPool::new(3);
    let first = connect(&pool, Rank::Ordinary, 1);
    let entrance = pool.enter(Rank::Ordinary, Wanted::Any, &within(AMPLE), |_| false);
    assert!(matches!(entrance, Ok(Entrance::Left(c)) if Arc::ptr_eq(&c, &first)));
    connect(&pool, Rank::Ordinary, 2);
    // A caller that needs a slot takes a shared connection's if there is no other.
    let left = enter(&pool, Rank::Ordinary, Wanted::Slot);
    assert!(matches!(left, Entrance::Left(c) if *c == 2));
}

#[test]
fn one_connects_for_all_and_the_next_one_if_that_fails() {
    // No slot is left for one that waits no longer.
    let pool = SharedPool::new(2);
    let first = slot(enter(&pool, Rank::Ordinary, Wanted::Any));
    thread::scope(|scope| {
        let (tells, told) = mpsc::channel();
        for _ in 0..5 {
            let (pool, tells) = (&pool, tells.clone());
            scope.spawn(move || {
                let connects = match enter(pool, Rank::Ordinary, Wanted::Any) {
                    Entrance::Slot(slot) => {
                        assert_eq!(slot.share(&Arc::new(7)), None);
                        true
                    }
                    other => shared(other) != 7,
                };
                tells.send(connects).expect("heard");
            });
        }
        is_waited(&pool, 5);
        // It could not connect.
        drop(first);
        let connected = (0..5).filter(|_| told.recv_timeout(AMPLE).expect("an answer"));
        assert_eq!(connected.count(), 1);
    });
    let state = pool.state.lock();
    assert_eq!((state.slots.used, state.opening), (1, [0, 0]));
}

/// The thread of the one that connects may be stopped.
#[test]
fn a_caller_that_connects_for_too_long_is_not_waited_for() {
    let pool = SharedPool::new(4);
    let stopped = slot(enter(&pool, Rank::Ordinary, Wanted::Any));
    let entrance = pool.enter(Rank::Ordinary, Wanted::Any, &within(AMPLE / 6), |_| true);
    let second = slot(entrance.expect("a slot in a part of its time"));
    assert_eq!(second.share(&Arc::new(2)), None);
    assert_eq!(shared(enter(&pool, Rank::Ordinary, Wanted::Any)), 2);
    // It comes too late, and is told which connection it replaces: that one must not stay open.
    let before = stopped.share(&Arc::new(1));
    assert_eq!(before.as_deref(), Some(&2));
}

#[test]
fn a_cancel_ends_the_wait_for_one_that_connects() {
    let pool = SharedPool::new(2);
    let _connecting = slot(enter(&pool, Rank::Ordinary, Wanted::Any));
    let token = CancelToken::new();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let call = Call::new().cancelled_by(&token);
            let limits = Limits::enter(Owner::current(), AMPLE, &call).expect("time is left");
            let answer = pool.enter(Rank::Ordinary, Wanted::Any, &limits, |_| true);
            answer.err().expect("cancelled").code()
        });
        is_waited(&pool, 1);
        token.cancel();
        assert_eq!(waiting.join().expect("it ends"), ErrorCode::Aborted);
    });
    assert!(pool.state.lock().waiting.is_empty(), "it is still called");
}
