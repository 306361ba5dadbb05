//! Tests the gate over a place that compares and sets.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::fence;
use syncguard::gate::{CompareAndSet, FenceGate, FencedRecord, GateOutcome};
use syncguard::{Call, CancelToken, ErrorCode, Fence, LockError};

/// Objects with a version, as in an object store.
pub struct Bucket<T>(Mutex<HashMap<String, FencedRecord<T, u64>>>);

impl<T> Default for Bucket<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> CompareAndSet for Bucket<T> {
    type Value = T;
    type Version = u64;

    fn load(&self, name: &str, _: &Call<'_>) -> Result<Option<FencedRecord<T, u64>>, LockError> {
        Ok(self.0.lock().expect("no panic").get(name).cloned())
    }

    fn store(
        &self,
        name: &str,
        expected: Option<&u64>,
        value: T,
        fence: Fence,
        _: &Call<'_>,
    ) -> Result<bool, LockError> {
        let mut objects = self.0.lock().expect("no panic");
        let version = objects.get(name).map(|record| record.version);
        if version.as_ref() != expected {
            return Ok(false);
        }
        let version = version.unwrap_or(0) + 1;
        let record = FencedRecord {
            value,
            fence,
            version,
        };
        objects.insert(name.to_owned(), record);
        Ok(true)
    }
}

/// A place in which another writer with a fence of its own is faster, as often as told.
struct Contended {
    bucket: Bucket<u64>,
    rivals: Cell<u32>,
    fence: Fence,
}

impl CompareAndSet for Contended {
    type Value = u64;
    type Version = u64;

    fn load(
        &self,
        name: &str,
        call: &Call<'_>,
    ) -> Result<Option<FencedRecord<u64, u64>>, LockError> {
        let found = self.bucket.load(name, call)?;
        if self.rivals.get() > 0 {
            self.rivals.set(self.rivals.get() - 1);
            let version = found.as_ref().map(|record| record.version);
            assert!(
                self.bucket
                    .store(name, version.as_ref(), 100, self.fence, call)?
            );
        }
        Ok(found)
    }

    fn store(
        &self,
        name: &str,
        expected: Option<&u64>,
        value: u64,
        fence: Fence,
        call: &Call<'_>,
    ) -> Result<bool, LockError> {
        self.bucket.store(name, expected, value, fence, call)
    }
}

fn contended(rivals: u32, rival: u64) -> FenceGate<Contended> {
    FenceGate::new(Contended {
        bucket: Bucket::default(),
        rivals: Cell::new(rivals),
        fence: fence(rival),
    })
}

#[test]
fn a_writer_that_lost_the_race_looks_again_and_then_passes_or_is_refused() {
    let add = |gate: &FenceGate<Contended>| {
        gate.write("r", fence(34), |old| old.unwrap_or(0) + 1, &Call::new())
            .expect("an answer")
    };
    let older_rival = contended(3, 33);
    assert!(add(&older_rival).is_passed());
    let stored = older_rival.place().bucket.load("r", &Call::new());
    let stored = stored.expect("an answer").expect("a value");
    assert_eq!(
        (stored.value, stored.fence),
        (101, fence(34)),
        "no write is lost"
    );
    let newer_rival = contended(1, 35);
    assert_eq!(
        add(&newer_rival),
        GateOutcome::Refused { newest: fence(35) }
    );
}

#[test]
fn a_writer_ends_by_its_deadline_and_its_cancel() {
    let gate = contended(u32::MAX, 33);
    let call = Call::new().within(Duration::from_millis(50));
    let error = gate.write("r", fence(34), |_| 1, &call).expect_err("never");
    assert_eq!(error.code(), ErrorCode::NetworkTimeout);
    assert!(!error.may_have_applied());
    let token = CancelToken::new();
    token.cancel();
    let call = Call::new().cancelled_by(&token);
    let error = gate
        .write("r", fence(34), |_| 1, &call)
        .expect_err("cancelled");
    assert_eq!(error.code(), ErrorCode::Aborted);
}

/// A place that tells what deadline it is given.
struct Bounded;

impl CompareAndSet for Bounded {
    type Value = u64;
    type Version = u64;

    fn load(&self, _: &str, call: &Call<'_>) -> Result<Option<FencedRecord<u64, u64>>, LockError> {
        let left = call.remaining().expect("a deadline");
        assert!(left <= Duration::from_secs(5), "{left:?}");
        Ok(Some(FencedRecord {
            value: 0,
            fence: fence(1),
            version: 1,
        }))
    }

    fn store(
        &self,
        _: &str,
        _: Option<&u64>,
        _: u64,
        _: Fence,
        call: &Call<'_>,
    ) -> Result<bool, LockError> {
        Ok(call.remaining().is_some())
    }
}

#[test]
fn every_call_has_a_deadline_and_a_cancel_before_it_begins() {
    let gate = FenceGate::new(Bounded);
    let call = Call::new();
    assert!(
        gate.write("r", fence(1), |_| 1, &call)
            .expect("an answer")
            .is_passed()
    );
    let newest = gate.newest_fence("r", &call).expect("an answer");
    assert_eq!(newest, Some(fence(1)));
    assert!(gate.reset("r", fence(1), &call).expect("an answer"));
    let token = CancelToken::new();
    token.cancel();
    let call = Call::new().cancelled_by(&token);
    for refused in [
        gate.newest_fence("r", &call).map(drop),
        gate.reset("r", fence(1), &call).map(drop),
    ] {
        let error = refused.expect_err("cancelled");
        assert_eq!(error.code(), ErrorCode::Aborted);
        assert!(!error.may_have_applied());
    }
}

/// With a pause of up to 100 ms between two looks, a place is asked a bounded number of times however long it is contended.
#[test]
fn a_contended_place_is_not_asked_all_the_time() {
    let gate = contended(u32::MAX, 33);
    let call = Call::new().within(Duration::from_millis(800));
    gate.write("r", fence(34), |_| 1, &call).expect_err("never");
    let looks = u32::MAX - gate.place().rivals.get();
    // 1, 2, 4 … 64 ms and then 100 ms, each of them at least half.
    assert!((2..=30).contains(&looks), "{looks}");
}

#[test]
fn bad_input_is_refused_before_the_place_is_asked() {
    let gate = FenceGate::new(Bucket::default());
    let write = |name: &str, n| gate.write(name, fence(n), |_| 1, &Call::new());
    let long = "x".repeat(10_000);
    for (name, n) in [
        ("", 1),
        (&long, 1),
        ("a\0b", 1),
        ("r", 0),
        ("r", 900_000_000_000_001),
    ] {
        let error = write(name, n).expect_err("bad input");
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
    assert_eq!(
        gate.newest_fence("r", &Call::new()).expect("an answer"),
        None
    );
}

#[test]
fn an_operator_looks_and_resets_deliberately() {
    let gate = FenceGate::new(Bucket::default());
    let write = |n| {
        gate.write("r", fence(n), |_| n, &Call::new())
            .expect("an answer")
    };
    assert!(write(34).is_passed());
    let newest = || gate.newest_fence("r", &Call::new()).expect("an answer");
    assert_eq!(newest(), Some(fence(34)));
    let reset = |n| gate.reset("r", fence(n), &Call::new()).expect("an answer");
    assert!(!reset(33) && !write(2).is_passed());
    assert!(reset(34));
    assert_eq!(newest(), None);
    assert!(write(2).is_passed());
}
