//! Visits every state of the model, with the rules as they are and with each of them left out.
//! `make proof` does it with larger models.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};
use syncguard_model::{Mistake, Rules, TwoSteps, Wants, scenarios};

const RIVAL: Wants = Wants::ONE_LOCK;
const BELIEF: &str = "no two holders believe at once";
const FENCE: &str = "the fence grows with every grant";
const UNDO: &str = "an acquire whose answer was lost is undone";

fn rules() -> Rules {
    Rules::default()
}

#[test]
fn no_promise_is_broken() {
    for (name, rules) in scenarios(5) {
        let begun = Instant::now();
        let checker = rules.checker().threads(2).spawn_bfs().join();
        checker.assert_properties();
        println!(
            "model: {name}: {} states in {:.1} s, no promise is broken",
            checker.unique_state_count(),
            begun.elapsed().as_secs_f64()
        );
    }
}

/// Looks for the shortest way to a broken promise, which must be the one that is named.
fn breaks(mistake: Mistake, promise: &'static str, rules: Rules) {
    let rules = Rules {
        mistake: Some(mistake),
        ..rules
    };
    let checker = rules
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyOf([promise].into()))
        .spawn_bfs()
        .join();
    let broken = checker.discoveries();
    let way = broken
        .get(promise)
        .unwrap_or_else(|| panic!("{mistake:?} does not break \"{promise}\" but {broken:?}"));
    println!(
        "model: {mistake:?}: \"{promise}\" is broken after {} steps",
        way.clone().into_actions().len()
    );
}

const EXTENDS: &[Wants] = &[
    Wants {
        extends: 2,
        ..RIVAL
    },
    RIVAL,
];
const REPEATS: &[Wants] = &[
    Wants {
        repeats: 1,
        ..RIVAL
    },
    RIVAL,
];
const CHANGES_HANDS: &[Wants] = &[
    Wants {
        locks: 2,
        extends: 1,
        ..RIVAL
    },
    RIVAL,
];
const COMES_BACK: &[Wants] = &[Wants { locks: 2, ..RIVAL }, RIVAL];

#[test]
fn the_mistakes_of_the_reference_are_found() {
    // The store takes an acquire that waited for the row for one that came in time, after its undoing has ended.
    let waits = Rules {
        two_steps: TwoSteps::Always,
        ..rules()
    };
    breaks(Mistake::ClockBeforeTheLock, UNDO, waits);
    // The holder releases while its extend is on its way, and the extend changes the lease of the next holder.
    let changes_hands = Rules {
        ticks: 3,
        callers: CHANGES_HANDS,
        two_steps: TwoSteps::Extends,
        ..rules()
    };
    breaks(Mistake::NoSecondLook, BELIEF, changes_hands);
}

#[test]
fn late_requests_are_found() {
    let extends = Rules {
        callers: EXTENDS,
        ..rules()
    };
    breaks(Mistake::LateExtend, BELIEF, extends);
    breaks(Mistake::ShortExtendInFlight, BELIEF, extends);
    breaks(Mistake::LateAcquire, UNDO, rules());
    breaks(Mistake::UndoLooksOnce, UNDO, rules());
    breaks(Mistake::NoUndo, UNDO, rules());
}

#[test]
fn leases_counted_too_long_are_found() {
    let drift = Rules {
        drift: 1,
        ..rules()
    };
    breaks(Mistake::NoMargin, BELIEF, drift);
    breaks(Mistake::CountsFromTheAnswer, BELIEF, rules());
    let repeats = Rules {
        callers: REPEATS,
        ..rules()
    };
    breaks(Mistake::CountsFromTheRepeat, BELIEF, repeats);
}

#[test]
fn drift_beyond_the_margin_is_found() {
    let rules = Rules {
        drift: 2,
        ..rules()
    };
    let checker = rules
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    assert!(checker.discovery(BELIEF).is_some());
}

#[test]
fn a_release_of_any_lock_is_found() {
    let rules = Rules {
        callers: COMES_BACK,
        ..rules()
    };
    breaks(Mistake::ReleasesAnyLock, BELIEF, rules);
}

#[test]
fn a_store_without_durability_is_found() {
    let rules = Rules {
        crashes: 1,
        ..rules()
    };
    breaks(Mistake::ForgetsAnswers, BELIEF, rules);
    breaks(Mistake::ForgetsAnswers, FENCE, rules);
}
