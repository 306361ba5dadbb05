//! Tests that the contract fails for broken stores: one fault per test, in a store that is right otherwise.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use syncguard::testkit::contract::{CHECKS, ContractStore};
use syncguard::testkit::{self, ManualClock, MemoryBackend};
use syncguard::{
    Absence, AcquireOutcome, Acquired, Backend, Call, Capabilities, ExtendOutcome, Fence, Holder,
    Key, LockError, LockId, LockInfo, LookupBy, ReleaseOutcome, StoredLock, Ttl,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// Grants a lock that another caller holds.
    GrantsHeldLock,
    /// Looks and then writes, without a lock around both.
    LooksThenWrites,
    FoldsCase,
    NamesAnotherHolder,
    /// Counts fences from one again after every release.
    FenceGoesBack,
    PurgesFenceCounters,
    /// Does not know its own grant again.
    RefusesSameIdAgain,
    /// Begins the lease anew when an acquire is repeated.
    RenewsForSameId,
    /// Removes the lock of another caller.
    ReleasesForAnyId,
    ReleasesTwice,
    ExtendsForAnyId,
    AddsOnExtend,
    IgnoresExtend,
    /// Only `is_locked` knows nothing of the tolerance.
    DisagreesInTolerance,
    ReleasesExpired,
    RevivesOnExtend,
    /// The release of an old owner removes the lock of the next one.
    ReleasesByKey,
    RenewsOnRead,
    LookupFindsNothing,
    PurgesLiveLocks,
    SetupRemovesLocks,
    /// Looks at neither the deadline nor the token before it begins.
    IgnoresCallBefore,
    IgnoresDeadlineInFlight,
    IgnoresCancelInFlight,
}

struct Broken {
    store: MemoryBackend,
    clock: ManualClock,
    fault: Planted,
    hangs: Arc<AtomicBool>,
}

fn k() -> Key {
    Key::new("k").expect("a key")
}

impl Broken {
    fn key(&self, key: &Key) -> Key {
        match self.fault {
            Planted::FoldsCase => Key::new(&key.as_str().to_lowercase()).expect("a key"),
            _ => key.clone(),
        }
    }

    /// What every verb does first.
    fn enter<'a>(&self, call: &Call<'a>) -> Result<Call<'a>, LockError> {
        while self.hangs.load(SeqCst) {
            let over = match self.fault {
                Planted::IgnoresDeadlineInFlight => call.is_cancelled(),
                Planted::IgnoresCancelInFlight => call.remaining() == Some(Duration::ZERO),
                _ => call.check().is_err(),
            };
            if over {
                call.check()?;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(match self.fault {
            Planted::IgnoresCallBefore => Call::new(),
            _ => *call,
        })
    }

    fn find_id(&self, id: &LockId) -> Option<StoredLock> {
        let found = self.store.find(LookupBy::LockId(id), &Call::new());
        found.expect("a look")
    }
}

impl Backend for Broken {
    fn acquire(
        &self,
        key: &Key,
        id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let call = &self.enter(call)?;
        let key = &self.key(key);
        let own = self.find_id(id);
        match self.fault {
            Planted::LooksThenWrites => {
                if self.store.is_locked(key, call)? {
                    return Ok(AcquireOutcome::Locked(None));
                }
                std::thread::sleep(Duration::from_millis(5));
                self.store.evict(key.as_str())?;
            }
            Planted::FenceGoesBack if !self.store.is_locked(key, call)? => {
                self.store.set_fence_counter(key.as_str(), 0)?;
            }
            Planted::RefusesSameIdAgain if own.is_some() => {
                return Ok(AcquireOutcome::Locked(None));
            }
            Planted::RenewsForSameId if own.is_some() => {
                let _ = self.store.extend(id, ttl, call)?;
            }
            _ => {}
        }
        let outcome = self.store.acquire(key, id, ttl, call)?;
        Ok(match (self.fault, outcome) {
            (Planted::GrantsHeldLock, AcquireOutcome::Locked(_)) => {
                AcquireOutcome::Acquired(Acquired::new(*id, Fence::new(999)?, 0))
            }
            (Planted::NamesAnotherHolder, AcquireOutcome::Locked(_)) => {
                let hash = Some("000000000000000000000000".to_owned());
                AcquireOutcome::Locked(Some(Holder::new(hash, None, None)))
            }
            (_, outcome) => outcome,
        })
    }

    fn release(&self, id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        let call = &self.enter(call)?;
        let outcome = self.store.release(id, call)?;
        let ReleaseOutcome::Absent(why) = outcome else {
            return Ok(outcome);
        };
        Ok(match self.fault {
            Planted::ReleasesForAnyId => {
                self.store.evict("k")?;
                ReleaseOutcome::Released
            }
            Planted::ReleasesByKey => {
                self.store.evict("k")?;
                outcome
            }
            Planted::ReleasesTwice => ReleaseOutcome::Released,
            Planted::ReleasesExpired if why == Absence::Expired => ReleaseOutcome::Released,
            _ => outcome,
        })
    }

    fn extend(&self, id: &LockId, ttl: Ttl, call: &Call<'_>) -> Result<ExtendOutcome, LockError> {
        let call = &self.enter(call)?;
        let own = self.find_id(id);
        match (self.fault, own) {
            (Planted::IgnoresExtend, Some(own)) => Ok(ExtendOutcome::Extended(own.expires_at_ms)),
            (Planted::AddsOnExtend, Some(_)) => {
                let more = Ttl::new(ttl.as_duration() * 2)?;
                self.store.extend(id, more, call)
            }
            (Planted::ExtendsForAnyId, None) => Ok(ExtendOutcome::Extended(0)),
            (Planted::RevivesOnExtend, None) => match self.store.acquire(&k(), id, ttl, call)? {
                AcquireOutcome::Acquired(grant) => Ok(ExtendOutcome::Extended(grant.expires_at_ms)),
                AcquireOutcome::Locked(_) => Ok(ExtendOutcome::Absent(Absence::NotFound)),
            },
            _ => self.store.extend(id, ttl, call),
        }
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let call = &self.enter(call)?;
        let found = self.store.find(LookupBy::Key(&self.key(key)), call)?;
        match (self.fault, &found) {
            (Planted::RenewsOnRead, Some(lock)) => {
                let ttl = Ttl::new(Duration::from_secs(600))?;
                let _ = self.store.extend(&lock.lock_id, ttl, call)?;
            }
            (Planted::DisagreesInTolerance, Some(lock)) => {
                let lived = i64::try_from(self.clock.now().as_millis()).expect("a short time");
                return Ok(lock.expires_at_ms > 1_700_000_000_000 + lived);
            }
            _ => {}
        }
        Ok(found.is_some())
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let call = &self.enter(call)?;
        match by {
            LookupBy::Key(key) => self.store.find(LookupBy::Key(&self.key(key)), call),
            by => self.store.find(by, call),
        }
    }

    fn lookup(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<LockInfo>, LockError> {
        match self.fault {
            Planted::LookupFindsNothing => Ok(None),
            _ => Ok(self.find(by, call)?.as_ref().map(StoredLock::info)),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("broken")
    }

    fn setup_schema(&self, _: &Call<'_>) -> Result<(), LockError> {
        match self.fault {
            Planted::SetupRemovesLocks => self.store.evict("k"),
            _ => Ok(()),
        }
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        match self.fault {
            Planted::PurgesLiveLocks => self.store.evict("live")?,
            Planted::PurgesFenceCounters => {
                self.store.set_fence_counter("k", 0)?;
                self.store.set_fence_counter("dead", 0)?;
            }
            _ => {}
        }
        self.store.purge_expired(limit, call)
    }
}

fn broken(fault: Planted) -> ContractStore {
    let clock = ManualClock::new();
    let hangs = Arc::new(AtomicBool::new(false));
    let store = Broken {
        store: MemoryBackend::with_clock(&clock),
        clock: clock.clone(),
        fault,
        hangs: Arc::clone(&hangs),
    };
    ContractStore::new(store)
        .pass_time(move |by| clock.advance(by))
        .while_hanging(move |work| {
            hangs.store(true, SeqCst);
            work();
            hangs.store(false, SeqCst);
        })
}

// The store without a fault, so that a check which fails does so because of the fault.
testkit::contract!(without_a_fault, || broken(Planted::Nothing));

/// What the check says of a store with the fault.
fn complaint(fault: Planted, name: &str) -> String {
    let (_, check) = CHECKS
        .iter()
        .find(|(check, _)| *check == name)
        .expect("a check");
    let panic = catch_unwind(AssertUnwindSafe(|| broken(fault).run(*check)))
        .expect_err("the check passes for a broken store");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()))
        .expect("a message")
}

macro_rules! planted {
    ($($test:ident: $fault:ident => $($check:ident: $says:literal),+;)+) => {
        $(#[test]
        fn $test() {
            $(let text = complaint(Planted::$fault, stringify!($check));
            assert!(text.contains($says), "{text}");)+
        })+

        /// A check that no fault fails may check nothing.
        #[test]
        fn every_check_fails_for_some_fault() {
            let failed = [$($(stringify!($check)),+),+];
            for (name, _) in CHECKS {
                assert!(failed.contains(name), "no fault is planted for {name}");
            }
        }
    };
}

planted! {
    a_second_holder: GrantsHeldLock => one_holder_per_key: "two lock ids hold one key";
    a_race_between_acquires: LooksThenWrites =>
        one_of_many_acquires_wins: "one must be granted", holders_never_overlap: "";
    keys_that_share_a_lock: FoldsCase => every_text_is_a_key_of_its_own: "shares a lock";
    a_holder_that_is_another: NamesAnotherHolder => a_named_holder_is_the_right_one: "another hash";
    a_fence_that_goes_back: FenceGoesBack => fences_grow: "after a release the fence was 1";
    a_fence_counter_that_is_purged: PurgesFenceCounters =>
        fences_grow: "after a purge", a_purge_removes_only_expired_locks: "removed a fence counter";
    an_acquire_that_cannot_be_repeated: RefusesSameIdAgain =>
        the_same_id_again_answers_the_stored_grant: "answered Locked";
    an_acquire_that_renews_when_repeated: RenewsForSameId =>
        the_same_id_again_answers_the_stored_grant: "must answer the stored grant";
    a_release_of_anothers_lock: ReleasesForAnyId => only_the_owner_releases: "holds nothing answered Released";
    a_second_release: ReleasesTwice => a_release_succeeds_once: "released twice";
    an_extend_of_anothers_lock: ExtendsForAnyId => only_the_owner_extends: "holds nothing answered Extended";
    an_extend_that_adds: AddsOnExtend => an_extend_replaces_the_lease: "was added";
    an_extend_that_does_nothing: IgnoresExtend =>
        an_extend_replaces_the_lease: "must move the end", times_are_those_of_one_clock: "ends no later";
    a_verb_with_a_tolerance_of_its_own: DisagreesInTolerance => a_lease_lasts_its_time: "alive for all verbs";
    a_release_of_an_expired_lock: ReleasesExpired => an_expired_lock_is_absent: "expired lock answered Released";
    an_extend_of_an_expired_lock: RevivesOnExtend => an_extend_revives_nothing: "revived an expired lock";
    an_old_owner_that_releases: ReleasesByKey =>
        an_old_owner_changes_nothing: "changed the lock of the next holder", only_the_owner_releases: "";
    a_read_that_changes_a_lock: RenewsOnRead => reads_change_nothing: "a read changed";
    a_lookup_that_finds_nothing: LookupFindsNothing => lookups_agree: "lookup must answer";
    a_purge_of_a_live_lock: PurgesLiveLocks => a_purge_removes_only_expired_locks: "live lock";
    a_setup_that_removes_locks: SetupRemovesLocks => setup_and_check_can_be_repeated: "changed a lock";
    a_call_that_is_not_looked_at: IgnoresCallBefore =>
        a_cancelled_call_is_not_made: "though the call was cancelled", a_late_call_is_not_made: "deadline of the call has passed";
    a_deadline_that_is_ignored: IgnoresDeadlineInFlight => a_deadline_ends_a_call: "went on";
    a_cancel_that_is_ignored: IgnoresCancelInFlight => a_cancel_ends_a_call: "went on";
}

#[test]
fn a_store_must_say_how_it_hangs() {
    for name in ["a_deadline_ends_a_call", "a_cancel_ends_a_call"] {
        let check = CHECKS.iter().find(|(check, _)| *check == name);
        let (_, check) = check.expect("a check");
        let unsaid = catch_unwind(|| ContractStore::new(MemoryBackend::new()).run(*check));
        let text = unsaid.expect_err("it says nothing");
        let text = text.downcast_ref::<&str>().expect("a message");
        assert!(
            text.contains("while_hanging") && text.contains("cannot_hang"),
            "{text}"
        );
        let idle = ContractStore::new(MemoryBackend::new()).while_hanging(|_| ());
        let idle = catch_unwind(AssertUnwindSafe(|| idle.run(*check)));
        let text = idle.expect_err("its hook does nothing");
        let text = text.downcast_ref::<&str>().expect("a message");
        assert!(text.contains("did not call"), "{text}");
        ContractStore::new(MemoryBackend::new())
            .cannot_hang("a test says so")
            .run(*check);
    }
}
