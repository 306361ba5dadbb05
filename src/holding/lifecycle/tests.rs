//! What an extend does to a lease, answer by answer. The interleavings are the model's.

use std::time::Duration;

use super::{
    Effect, ExtendTurn, Extension, Lease, Lifecycle, LossReason, Pace, ReleaseTurn, Ring,
    believed_until, renewed_after,
};
use crate::backend::call::Call;
use crate::types::ttl::Ttl;

/// What the store's clock shows when ours shows zero.
const EPOCH_MS: i64 = 1_700_000_000_000;

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).expect("a legal ttl")
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn life(ttl_ms: u64, pace: Pace) -> Lifecycle {
    life_with([false, false], ttl_ms, pace)
}

fn life_with(callbacks: [bool; 2], ttl_ms: u64, pace: Pace) -> Lifecycle {
    Lifecycle::new(Lease {
        sent: at(0),
        ttl: ttl(ttl_ms),
        pace,
        early: 0,
        max_hold: None,
        expires_at_ms: EPOCH_MS + i64::try_from(ttl_ms).expect("a short time"),
        callbacks,
    })
}

/// An extend for `ttl_ms` that is sent and answered at `now_ms`, and tried again 10 ms later if it fails.
fn extend(life: &Lifecycle, now_ms: u64, ttl_ms: u64, how: &Extension) -> Effect {
    begin(life, now_ms, ttl_ms);
    life.end_extend(at(now_ms), at(now_ms), ttl(ttl_ms), how, at(now_ms + 10))
}

fn begin(life: &Lifecycle, now_ms: u64, ttl_ms: u64) {
    let call = Call::new().within(Duration::from_secs(60));
    let (leave, _) = life.begin_extend(at(now_ms), ttl(ttl_ms), &call);
    assert!(matches!(leave, ExtendTurn::Send(..)));
}

/// The answer of a store whose clock shows what ours does.
fn extended(now_ms: u64, ttl_ms: u64) -> Extension {
    Extension::Extended(EPOCH_MS + i64::try_from(now_ms + ttl_ms).expect("a short time"))
}

fn unknown(not_after_ms: u64) -> Extension {
    Extension::Unknown {
        not_after_ms: Some(EPOCH_MS + i64::try_from(not_after_ms).expect("a short time")),
    }
}

#[test]
fn an_answer_after_the_deadline_revives_nothing() {
    // The timer has not rung yet: only the clock says that the lease is over.
    for (now_ms, revived) in [(29_000, true), (29_698, false), (31_000, false)] {
        let life = life(30_000, Pace::Never);
        begin(&life, 1_000, 30_000);
        let sent = at(1_000);
        let effect = life.end_extend(
            at(now_ms),
            sent,
            ttl(30_000),
            &extended(1_000, 30_000),
            at(now_ms + 10),
        );
        assert_eq!(effect.held, revived, "answered at {now_ms} ms");
        assert_eq!(effect.lost_now, !revived);
        assert_eq!(life.loss(), (!revived).then_some(LossReason::NotRenewed));
        let left = life.remaining(at(now_ms));
        assert_eq!(left.is_zero(), !revived);
    }
}

#[test]
fn while_an_extend_is_in_flight_the_shorter_lease_counts() {
    let sent = |ttl_ms| {
        let life = life(30_000, Pace::Never);
        begin(&life, 1_000, ttl_ms);
        let sooner = life.send_extend(at(1_000), ttl(ttl_ms));
        (life, sooner)
    };
    let short = believed_until(at(1_000), ttl(2_000));
    // The store may have applied it, and given the lock away after two seconds, before its answer is here.
    let (life, sooner) = sent(2_000);
    assert_eq!(sooner, Some(short));
    assert_eq!(life.remaining(at(1_000)), short - at(1_000));
    assert_eq!(life.is_lost(short - at(1)), (false, false));
    assert_eq!(life.is_lost(short), (true, true));
    // The timer sees it too, and an answer that comes then is of no use.
    let (life, _) = sent(2_000);
    assert!(matches!(life.ring(short), Ring::Lost));
    let late = life.end_extend(
        short,
        at(1_000),
        ttl(2_000),
        &extended(1_000, 2_000),
        at(9_000),
    );
    assert!(!late.held);
    // A store that refused it has changed nothing: the longer lease counts again.
    let (life, _) = sent(2_000);
    let effect = life.end_extend(
        at(1_500),
        at(1_000),
        ttl(2_000),
        &Extension::Refused,
        at(9_000),
    );
    let long = believed_until(at(0), ttl(30_000));
    assert_eq!(effect.alarm, Some(long));
    assert_eq!(life.remaining(at(1_500)), long - at(1_500));
    // A longer one promises nothing before it is answered.
    let (life, sooner) = sent(60_000);
    assert_eq!(sooner, None);
    assert_eq!(life.remaining(at(1_000)), long - at(1_000));
}

#[test]
fn a_delayed_extend_counts_until_the_store_refuses_it() {
    let life = life(30_000, Pace::Third);
    assert!(!extend(&life, 100, 2_000, &unknown(600)).held);
    assert_eq!(
        life.remaining(at(100)),
        believed_until(at(100), ttl(2_000)) - at(100)
    );
    // The store could still apply it after this answer: its lease would count from then.
    assert!(extend(&life, 500, 60_000, &extended(500, 60_000)).held);
    assert_eq!(life.remaining(at(500)), believed_until(at(0), ttl(2_000)));
    assert_eq!(life.alarm(), Some(at(500) + ttl(2_000).as_duration() / 3));
    assert!(extend(&life, 600, 60_000, &extended(600, 60_000)).held);
    assert_eq!(life.remaining(at(600)), believed_until(at(0), ttl(2_000)));
    // From here on it cannot.
    assert!(extend(&life, 601, 60_000, &extended(601, 60_000)).held);
    assert_eq!(life.remaining(at(601)), believed_until(at(0), ttl(60_000)));
    assert_eq!(life.alarm(), Some(at(20_601)));
}

#[test]
fn of_several_delayed_extends_the_shortest_and_the_latest_count() {
    let life = life(30_000, Pace::Never);
    for (ttl_ms, not_after) in [(9_000, 700), (2_000, 400), (50_000, 900)] {
        assert!(!extend(&life, 100, ttl_ms, &unknown(not_after)).held);
    }
    assert!(extend(&life, 800, 60_000, &extended(800, 60_000)).held);
    assert_eq!(life.remaining(at(800)), believed_until(at(0), ttl(2_000)));
    assert!(extend(&life, 901, 60_000, &extended(901, 60_000)).held);
    assert_eq!(life.remaining(at(901)), believed_until(at(0), ttl(60_000)));
}

#[test]
fn where_nothing_arrives_late_the_next_answer_counts() {
    let life = life(30_000, Pace::Never);
    let how = Extension::Unknown { not_after_ms: None };
    assert!(!extend(&life, 100, 2_000, &how).held);
    assert!(extend(&life, 500, 60_000, &extended(500, 60_000)).held);
    assert_eq!(life.remaining(at(500)), believed_until(at(0), ttl(60_000)));
}

#[test]
fn an_extend_of_unknown_outcome_is_followed_by_a_renewal() {
    let life = life(30_000, Pace::Third);
    let effect = extend(&life, 100, 1_000, &unknown(5_000));
    // Not at a third of the thirty seconds: the lease may be over after one.
    assert_eq!(effect.alarm, Some(at(110)));
    assert!(matches!(life.ring(at(110)), Ring::Start(_)));
    let (ttl, _) = life.next_renewal().expect("a renewal");
    assert_eq!(ttl.as_millis(), 30_000);
}

#[test]
fn a_short_lease_is_renewed_before_it_ends() {
    let life = life(30_000, Pace::Third);
    // Believed in until 100 + 8 − 2.08 ms: trying again after 10 ms would be too late.
    let effect = extend(&life, 100, 8, &unknown(5_000));
    let alarm = effect.alarm.expect("a renewal");
    assert!(alarm > at(100) && alarm < at(104), "{alarm:?}");
}

#[test]
fn without_a_heartbeat_nothing_is_renewed() {
    let life = life(30_000, Pace::Never);
    let effect = extend(&life, 100, 1_000, &unknown(5_000));
    assert_eq!(effect.alarm, Some(believed_until(at(100), ttl(1_000))));
    assert!(matches!(life.ring(at(500)), Ring::At(_)));
}

/// Starting one when the lease has ended can take longer than the holder has.
#[test]
fn before_the_lease_ends_a_thread_is_made_ready_for_its_callbacks() {
    let life = life_with([true, false], 30_000, Pace::Never);
    let end = believed_until(at(0), ttl(30_000));
    assert_eq!(life.alarm(), Some(end - at(50)));
    assert_eq!(life.ring(end - at(51)), Ring::At(end - at(50)));
    assert_eq!(life.ring(end - at(50)), Ring::Ready(end));
    // Once is enough for this end; a later one needs another.
    assert_eq!(life.ring(end - at(49)), Ring::At(end));
    assert!(extend(&life, 29_690, 30_000, &extended(29_690, 30_000)).held);
    let end = believed_until(at(29_690), ttl(30_000));
    assert_eq!(life.alarm(), Some(end - at(50)));
    assert_eq!(life.ring(end - at(1)), Ring::Ready(end));
    assert_eq!(life.ring(end), Ring::Lost);
    // A guard that is renewed needs none: its lease has long to go whenever a renewal is due.
    let renewed = life_with([true, true], 30_000, Pace::Third);
    assert_eq!(renewed.alarm(), Some(at(10_000)));
}

#[test]
fn a_refused_extend_leaves_the_next_renewal_where_it_was() {
    let life = life(30_000, Pace::Third);
    let effect = extend(&life, 100, 1_000, &Extension::Refused);
    assert_eq!(effect.alarm, Some(at(10_000)));
    assert_eq!(
        life.remaining(at(100)),
        believed_until(at(0), ttl(30_000)) - at(100)
    );
}

#[test]
fn a_lease_that_ran_out_says_why() {
    let over = at(30_000);
    let lost = |life: Lifecycle| {
        assert!(life.is_lost(over).0);
        life.loss()
    };
    assert_eq!(
        lost(life(30_000, Pace::Third)),
        Some(LossReason::Unconfirmed)
    );
    assert_eq!(
        lost(life(30_000, Pace::Never)),
        Some(LossReason::NotRenewed)
    );
    let held = Lifecycle::new(Lease {
        sent: at(0),
        ttl: ttl(30_000),
        pace: Pace::Third,
        early: 0,
        max_hold: Some(at(5_000)),
        expires_at_ms: EPOCH_MS,
        callbacks: [false, false],
    });
    assert_eq!(lost(held), Some(LossReason::MaxHold));
}

#[test]
fn guards_renew_up_to_a_tenth_early_unless_the_caller_chose_the_interval() {
    let after = |early, pace| renewed_after(pace, early, ttl(30_000));
    assert_eq!(after(0, Pace::Third), Some(at(10_000)));
    assert_eq!(after(128, Pace::Third), Some(at(9_500)));
    assert!(after(255, Pace::Third) > Some(at(9_000)));
    assert_eq!(after(255, Pace::Every(at(7_000))), Some(at(7_000)));
    assert_eq!(after(255, Pace::Never), None);
}

/// The thread for a renewal leaves while a manual extend is in flight: if that fails, the renewal is due once more.
#[test]
fn a_failed_extend_does_not_swallow_the_renewal_that_was_due() {
    for how in [Extension::Refused, unknown(60_000)] {
        let life = life(30_000, Pace::Third);
        let (turn, _) = life.begin_extend(at(9_999), ttl(30_000), &Call::new());
        assert!(matches!(turn, ExtendTurn::Send(..)));
        assert!(matches!(life.ring(at(10_000)), Ring::Start(_)));
        assert!(life.next_renewal().is_none(), "one extend at a time");
        let effect = life.end_extend(at(10_001), at(9_999), ttl(30_000), &how, at(10_100));
        assert_eq!(effect.alarm, Some(at(10_001)));
        assert!(matches!(life.ring(at(10_001)), Ring::Start(_)));
        assert!(life.next_renewal().is_some());
    }
}

/// Thousands of renewals may wait for a thread: a release does not wait with them.
#[test]
fn a_release_does_not_wait_for_a_renewal_that_has_not_begun() {
    let life = life(30_000, Pace::Third);
    assert!(matches!(life.ring(at(10_000)), Ring::Start(_)));
    let at_once = Call::new().within(Duration::from_secs(30));
    assert!(matches!(life.begin_release(&at_once), ReleaseTurn::Send));
    assert!(life.next_renewal().is_none(), "nothing is sent any more");
}

#[test]
fn a_look_finds_the_loss_before_the_timer_rings() {
    let life = life(30_000, Pace::Never);
    assert_eq!(life.is_lost(at(29_697)), (false, false));
    assert_eq!(life.is_lost(at(29_698)), (true, true));
    assert_eq!(life.is_lost(at(29_699)), (true, false), "it is told once");
}
