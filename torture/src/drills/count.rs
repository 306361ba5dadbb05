//! Asks the new primary for what the old one had acknowledged, and counts.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use syncguard::{Backend, Call, ClientOptions, LockError, LookupBy, StoredLock};

use crate::clock::{self, MS};
use crate::load::{self, Grant};

/// What a round has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Grants that the old primary acknowledged.
    pub acknowledged: u64,
    /// Locks of them whose leases ran when the new primary was asked.
    pub running: u64,
    /// Locks of those that the new primary did not know.
    pub forgotten: u64,
    /// Grants with a fence that was not above all before it on its key.
    pub repeated: u64,
    /// Grants of a key while its holder before still believed in its own.
    pub two_holders: u64,
    /// Milliseconds from the kill to the first grant that was asked for after it.
    pub first_grant_ms: u64,
}

impl Counts {
    pub fn lost_nothing(&self) -> bool {
        self.running > 0 && self.forgotten == 0 && self.repeated == 0 && self.two_holders == 0
    }

    pub fn to_json(self) -> Value {
        json!({
            "acknowledged": self.acknowledged,
            "running": self.running,
            "forgotten": self.forgotten,
            "repeated": self.repeated,
            "two_holders": self.two_holders,
            "first_grant_ms": self.first_grant_ms,
        })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} acknowledged, {} of {} held locks forgotten, {} fences repeated, two holders {} times, first grant after {} ms",
            self.acknowledged,
            self.forgotten,
            self.running,
            self.repeated,
            self.two_holders,
            self.first_grant_ms,
        )
    }
}

/// Looks for every lock that is kept. A key whose lock is forgotten is taken by another holder, as it would be in earnest.
pub fn count(url: &str, options: &ClientOptions, mut grants: Vec<Grant>, killed: i64) -> Counts {
    let store = load::open(url, options);
    let mut counts = Counts {
        acknowledged: grants.iter().filter(|grant| grant.begun < killed).count() as u64,
        ..Counts::default()
    };
    if let Some(first) = load::first_after(&grants, killed) {
        counts.first_grant_ms = ((first - killed) / MS) as u64;
    }
    let before = |grant: &&Grant| grant.kept && grant.begun < killed;
    for grant in grants.iter().filter(before).cloned().collect::<Vec<_>>() {
        let found = look(&*store, &grant);
        // Its lease may have ended meanwhile.
        if clock::now() > grant.until {
            continue;
        }
        counts.running += 1;
        if found.is_none() {
            counts.forgotten += 1;
            let ttl = Duration::from_secs(60);
            grants.extend(load::acquire(&*store, &grant.key, ttl));
        }
    }
    (counts.repeated, counts.two_holders) = judge(&mut grants);
    counts
}

/// What the new primary says, as soon as it says anything.
fn look(store: &dyn Backend, grant: &Grant) -> Option<StoredLock> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let answer: Result<_, LockError> = store.find(LookupBy::LockId(&grant.id), &Call::new());
        match answer {
            Ok(found) => return found,
            Err(error) => assert!(Instant::now() < end, "the new primary fails: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many fences did not grow, and how many grants came while another holder believed.
fn judge(grants: &mut [Grant]) -> (u64, u64) {
    grants.sort_by_key(|grant| grant.from);
    let mut highest: HashMap<&str, (u64, i64)> = HashMap::new();
    let (mut repeated, mut two_holders) = (0, 0);
    for grant in grants.iter() {
        let (fence, until) = highest.entry(grant.key.as_str()).or_insert((0, 0));
        repeated += u64::from(grant.fence <= *fence);
        two_holders += u64::from(grant.from < *until);
        *fence = grant.fence.max(*fence);
        *until = grant.until.max(*until);
    }
    (repeated, two_holders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncguard::LockId;

    fn grant(name: &str, fence: u64, from: i64, until: i64) -> Grant {
        Grant {
            key: load::key(name),
            id: LockId::random().expect("randomness"),
            fence,
            begun: from,
            from,
            until,
            kept: false,
        }
    }

    #[test]
    fn fences_that_repeat_and_beliefs_that_overlap_are_counted_on_each_key() {
        let mut good = [
            grant("a", 2, 30, 40),
            grant("a", 1, 10, 30),
            grant("b", 1, 12, 20),
        ];
        assert_eq!(judge(&mut good), (0, 0));
        let mut repeated = [
            grant("a", 3, 10, 20),
            grant("a", 3, 20, 30),
            grant("a", 1, 31, 32),
        ];
        assert_eq!(judge(&mut repeated), (2, 0));
        let mut overlap = [
            grant("a", 1, 10, 50),
            grant("a", 2, 20, 30),
            grant("a", 3, 40, 60),
        ];
        assert_eq!(judge(&mut overlap), (0, 2));
    }

    #[test]
    fn a_round_that_held_nothing_has_not_shown_that_nothing_is_lost() {
        let held = Counts {
            running: 3,
            ..Counts::default()
        };
        assert!(held.lost_nothing() && !Counts::default().lost_nothing());
        for bad in [
            Counts {
                forgotten: 1,
                ..held
            },
            Counts {
                repeated: 1,
                ..held
            },
            Counts {
                two_holders: 1,
                ..held
            },
        ] {
            assert!(!bad.lost_nothing());
        }
    }
}
