//! The rules of a line, without a store.

use super::*;
use crate::types::error::ErrorCode;

struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn bell() -> Arc<Counter> {
    Arc::new(Counter(AtomicUsize::new(0)))
}

fn rung(bell: &Counter) -> usize {
    bell.0.load(Ordering::SeqCst)
}

#[test]
fn the_first_is_called_and_the_others_wait_for_their_turn() {
    let lines = Arc::new(WaitLines::default());
    let key = Key::new("k").expect("a key");
    let (a, b) = (bell(), bell());
    let first = lines.join(&key, a.clone());
    let second = lines.join(&key, b.clone());
    assert!(
        first.standing().called && !second.standing().called,
        "what was freed before the line was there"
    );
    first.begin_attempt();
    assert!(!first.standing().called);
    lines.freed(&key);
    assert!(first.standing().called && rung(&a) == 1 && rung(&b) == 0);
    drop(first);
    assert!(
        second.standing().first && second.standing().called && rung(&b) == 1,
        "a call that was not answered is passed on"
    );
    second.begin_attempt();
    drop(second);
    assert!(!lines.is_waited_for(&key) && lines.by_key.lock().is_empty());
}

#[test]
fn one_that_leaves_the_middle_is_not_missed() {
    let lines = Arc::new(WaitLines::default());
    let key = Key::new("k").expect("a key");
    let bells = [bell(), bell(), bell()];
    let mut places: Vec<_> = bells.iter().map(|b| lines.join(&key, b.clone())).collect();
    places[0].begin_attempt();
    drop(places.remove(1));
    assert_eq!(rung(&bells[2]), 0);
    drop(places.remove(0));
    assert!(places[0].standing().first && !places[0].standing().called && rung(&bells[2]) == 1);
}

#[test]
fn callers_that_come_during_a_first_attempt_wait_for_its_outcome() {
    let lines = Arc::new(WaitLines::default());
    let key = Key::new("k").expect("a key");
    let entry = lines.enter(&key).expect("no other caller");
    assert!(lines.enter(&key).is_none());
    let second = bell();
    let place = lines.join(&key, second.clone());
    assert!(!place.standing().first);
    entry.granted();
    assert!(
        place.standing().first && !place.standing().called && rung(&second) == 1,
        "the holder's release will call"
    );
    lines.freed(&key);
    assert!(place.standing().called);
    drop(place);
    // An attempt that failed calls the first that came meanwhile; one that was not granted stands before it.
    let entry = lines.enter(&key).expect("no other caller");
    let third = bell();
    let place = lines.join(&key, third.clone());
    drop(entry);
    assert!(place.standing().called && rung(&third) == 1);
    drop(place);
    let entry = lines.enter(&key).expect("no other caller");
    let place = lines.join(&key, bell());
    let first = entry.into_ticket(bell());
    assert!(first.standing().first && first.standing().called && !place.standing().first);
    drop((first, place));
    assert!(lines.by_key.lock().is_empty() && !lines.is_waited_for(&key));
}

#[test]
fn what_one_met_is_known_to_all_in_line() {
    let lines = Arc::new(WaitLines::default());
    let key = Key::new("k").expect("a key");
    let (first, second) = (lines.join(&key, bell()), lines.join(&key, bell()));
    assert!(second.last_outcome().is_none(), "no attempt was made");
    first.note(Some(&LockError::unavailable("refused")));
    assert!(matches!(
        second.last_outcome(),
        Some(LineOutcome::Trouble(e)) if e.message() == "refused" && !e.may_have_applied()
    ));
    // A caller's own cancel is not the line's trouble.
    first.note(Some(&LockError::new(ErrorCode::Aborted, "cancelled")));
    assert!(matches!(
        second.last_outcome(),
        Some(LineOutcome::Trouble(_))
    ));
    first.note(None);
    assert!(matches!(second.last_outcome(), Some(LineOutcome::Answered)));
}

#[test]
fn a_release_under_way_calls_and_calls_again_unless_it_was_answered() {
    let lines = Arc::new(WaitLines::default());
    let key = Key::new("k").expect("a key");
    let first = lines.join(&key, bell());
    let second = lines.join(&key, bell());
    first.begin_attempt();
    // The attempt made upon it came too early.
    let before = lines.releasing(&key);
    assert!(first.standing().called);
    first.begin_attempt();
    lines.released(&key, Some(before));
    assert!(first.standing().called);
    // It came in time, and its answer before the release's.
    let before = lines.releasing(&key);
    first.begin_attempt();
    first.granted();
    drop(first);
    lines.released(&key, Some(before));
    assert!(second.standing().first && !second.standing().called);
    // Or after it.
    let before = lines.releasing(&key);
    second.begin_attempt();
    lines.released(&key, Some(before));
    let third = lines.join(&key, bell());
    second.granted();
    drop(second);
    assert!(third.standing().first && !third.standing().called);
    // A caller that leaves without an answer passes the call on, and what follows.
    let before = lines.releasing(&key);
    let fourth = lines.join(&key, bell());
    third.begin_attempt();
    drop(third);
    lines.released(&key, Some(before));
    assert!(fourth.standing().called);
}
