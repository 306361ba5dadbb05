//! Tests every ordering of two writers that can be forced, around the expiry: never two grants, never a lease shortened or revived.
//!
//! The other writer is a psql session: it takes the locks that the TypeScript library takes, or ours, and stops in the middle.
//! Each ordering runs on the real functions and must hold; then on functions with a mistake planted, and must not.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::postgres::{Disguise, Server, Session, wait_for};
use syncguard::*;

const NOW: &str = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint";
const OLD: &str = "AAAAAAAAAAAAAAAAAAAAAA";
const NEW: &str = "BBBBBBBBBBBBBBBBBBBBBB";
const TTL_MS: i64 = 60_000;

fn key() -> Key {
    Key::new("k").expect("a key")
}

fn id(text: &str) -> LockId {
    LockId::parse(text).expect("an id")
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_millis(TTL_MS as u64)).expect("a ttl")
}

/// A schema with tables and functions, and a row for `k` that [`OLD`] holds.
struct Field<'a> {
    server: &'a Server,
    schema: String,
    store: PostgresBackend,
}

impl<'a> Field<'a> {
    fn new(server: &'a Server, schema: &str, plant: Option<Plant>) -> Self {
        Self::at(&server.url(), server, schema, plant)
    }

    /// The same, with a store that reaches the server by this URL.
    fn at(url: &str, server: &'a Server, schema: &str, plant: Option<Plant>) -> Self {
        let options = ClientOptions::new()
            .schema(schema)
            .operation_timeout(Duration::from_secs(60));
        let store = PostgresBackend::open(url, &options).expect("a store");
        store.setup_schema(&Call::new()).expect("set-up");
        if let Some((from, to)) = plant {
            for function in ["acquire", "acquire_held", "extend", "release"] {
                let name = format!("{schema}.syncguard_v1_{function}");
                let changed = server.sql(&format!(
                    "DO $$ BEGIN EXECUTE replace(pg_get_functiondef('{name}'::regproc), '{from}', '{to}'); END $$; \
                     SELECT position('{to}' in prosrc) > 0 AND position('{from}' in prosrc) = 0 FROM pg_proc WHERE oid = '{name}'::regproc"
                ));
                assert_eq!(changed, "t", "the mistake is planted");
            }
        }
        Self {
            server,
            schema: schema.to_owned(),
            store,
        }
    }

    /// Puts the row back: [`OLD`] holds the key, and its lease ends `in_ms` from now.
    fn lay(&self, in_ms: i64) {
        self.server.sql(&format!(
            "DELETE FROM {0}.syncguard_locks; INSERT INTO {0}.syncguard_locks VALUES ('k', '{OLD}', {NOW} + {in_ms}, 1, '000000000000001', 'k'); \
             INSERT INTO {0}.syncguard_fence_counters VALUES ('fence:k', 1, 'k') ON CONFLICT DO NOTHING",
            self.schema
        ));
    }

    fn session(&self) -> Session {
        let mut session = self.server.session();
        session.run(&format!("SET search_path = {}", self.schema));
        session
    }

    fn row(&self) -> (String, i64) {
        let row = self.server.sql(&format!(
            "SELECT lock_id || ' ' || expires_at_ms FROM {}.syncguard_locks",
            self.schema
        ));
        let (id, expires) = row.split_once(' ').expect("a row");
        (id.to_owned(), expires.parse().expect("a time"))
    }

    /// Starts `call` while `before` holds its locks, waits until it waits, lets `after` end the other transaction.
    fn force<T: Send>(
        &self,
        before: &str,
        call: impl FnOnce(&PostgresBackend) -> Result<T, LockError> + Send,
        after: impl FnOnce(&mut Session),
    ) -> T {
        let mut other = self.session();
        other.run(&format!("BEGIN; {before}"));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| call(&self.store).expect("an answer"));
            // With a mistake planted a call may not wait at all.
            wait_for("the call waits or ends", || {
                (call.is_finished() || self.server.waiting(&self.schema) > 0).then_some(())
            });
            after(&mut other);
            call.join().expect("the call")
        })
    }
}

type Plant = (&'static str, &'static str);
type Ordering1 = fn(&Field<'_>) -> Result<(), String>;

/// The reference's mistakes.
const NO_ROW_LOCK: Plant = (" FOR UPDATE", "/* no row lock */");
const START_TIME: Plant = ("pg_catalog.clock_timestamp()", "pg_catalog.now()");

const ROW_LOCK: &str = "SELECT * FROM syncguard_locks WHERE key = 'k' FOR UPDATE";
const KEY_LOCK: &str = "SELECT pg_advisory_xact_lock(hashtext('k'))";

fn commit(other: &mut Session) {
    other.run("COMMIT");
}

fn expect(what: &str, holds: bool) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// The other extends a lease that has just ended by our clock; we come to acquire.
fn acquire_after_an_extend(field: &Field<'_>) -> Result<(), String> {
    field.lay(-5_000);
    let outcome = field.force(
        ROW_LOCK,
        |store| store.acquire(&key(), &id(NEW), ttl(), &Call::new()),
        |other| {
            other.run(&format!("UPDATE syncguard_locks SET expires_at_ms = {NOW} + {TTL_MS} WHERE key = 'k'; COMMIT"));
        },
    );
    expect(
        "a live lease was granted twice",
        matches!(outcome, AcquireOutcome::Locked(_)),
    )?;
    expect("the extended lease was overwritten", field.row().0 == OLD)
}

/// The other acquires the dead lease; its late owner comes to extend.
fn extend_after_an_acquire(field: &Field<'_>) -> Result<(), String> {
    for locks in [
        KEY_LOCK.to_owned(),
        ROW_LOCK.to_owned(),
        format!("{KEY_LOCK}; {ROW_LOCK}"),
    ] {
        field.lay(TTL_MS);
        let outcome = field.force(
            &locks,
            |store| store.extend(&id(OLD), ttl(), &Call::new()),
            |other| {
                other.run(&format!("UPDATE syncguard_locks SET lock_id = '{NEW}', expires_at_ms = 99999999999999 WHERE key = 'k'; COMMIT"));
            },
        );
        expect(
            "a lost lease was extended",
            matches!(outcome, ExtendOutcome::Absent(_)),
        )?;
        expect(
            "the new holder's lease was changed",
            field.row() == (NEW.to_owned(), 99_999_999_999_999),
        )?;
    }
    Ok(())
}

/// The other acquires the dead lease; its late owner comes to release.
fn release_after_an_acquire(field: &Field<'_>) -> Result<(), String> {
    for locks in [
        KEY_LOCK.to_owned(),
        ROW_LOCK.to_owned(),
        format!("{KEY_LOCK}; {ROW_LOCK}"),
    ] {
        field.lay(TTL_MS);
        let outcome = field.force(
            &locks,
            |store| store.release(&id(OLD), &Call::new()),
            |other| {
                other.run(&format!(
                    "UPDATE syncguard_locks SET lock_id = '{NEW}' WHERE key = 'k'; COMMIT"
                ));
            },
        );
        expect(
            "a release claims a lock that was lost",
            !outcome.is_released(),
        )?;
        expect("the new holder's lock is gone", field.row().0 == NEW)?;
    }
    Ok(())
}

/// The lease is cut short while the extend waits.
fn extend_of_a_lease_that_died_meanwhile(field: &Field<'_>) -> Result<(), String> {
    field.lay(TTL_MS);
    let outcome = field.force(
        ROW_LOCK,
        |store| store.extend(&id(OLD), ttl(), &Call::new()),
        |other| {
            other.run("UPDATE syncguard_locks SET expires_at_ms = 5 WHERE key = 'k'; COMMIT");
        },
    );
    expect(
        "a dead lease was revived",
        outcome == ExtendOutcome::Absent(Absence::Expired),
    )?;
    expect("a dead lease was changed", field.row().1 == 5)
}

/// The lease runs out while the call waits; nothing else changes.
fn run_out(field: &Field<'_>, other: &mut Session) {
    wait_for("the lease runs out", || {
        (field.server.sql(&format!(
            "SELECT {NOW} - 1000 > expires_at_ms FROM {}.syncguard_locks",
            field.schema
        )) == "t")
            .then_some(())
    });
    other.run("COMMIT");
}

fn extend_of_a_lease_that_ran_out(field: &Field<'_>) -> Result<(), String> {
    for locks in [KEY_LOCK, ROW_LOCK] {
        field.lay(2_000);
        let outcome = field.force(
            locks,
            |store| store.extend(&id(OLD), ttl(), &Call::new()),
            |other| run_out(field, other),
        );
        expect(
            "a lease that ran out was revived",
            outcome == ExtendOutcome::Absent(Absence::Expired),
        )?;
    }
    Ok(())
}

fn release_of_a_lease_that_ran_out(field: &Field<'_>) -> Result<(), String> {
    field.lay(2_000);
    let outcome = field.force(
        KEY_LOCK,
        |store| store.release(&id(OLD), &Call::new()),
        |other| run_out(field, other),
    );
    expect(
        "a dead lease was released as if alive",
        outcome == ReleaseOutcome::Absent(Absence::Expired),
    )
}

fn acquire_of_a_lease_that_ran_out(field: &Field<'_>) -> Result<(), String> {
    field.lay(2_000);
    let outcome = field.force(
        KEY_LOCK,
        |store| store.acquire(&key(), &id(NEW), ttl(), &Call::new()),
        |other| run_out(field, other),
    );
    expect(
        "a dead lease was taken for alive",
        matches!(outcome, AcquireOutcome::Acquired(_)),
    )
}

/// A lease counts from the moment it is given, not from the moment it was asked for.
fn acquire_gives_the_whole_lease(field: &Field<'_>) -> Result<(), String> {
    field.lay(-5_000);
    let mut freed = 0;
    let outcome = field.force(
        KEY_LOCK,
        |store| store.acquire(&key(), &id(NEW), ttl(), &Call::new()),
        |other| {
            freed = other.run(&format!("SELECT {NOW}; COMMIT"))[0]
                .parse()
                .expect("a time");
        },
    );
    match outcome {
        AcquireOutcome::Acquired(grant) => expect(
            "the wait was taken off the lease",
            grant.expires_at_ms >= freed + TTL_MS,
        ),
        AcquireOutcome::Locked(_) => Err("a dead lease is in the way".to_owned()),
    }
}

/// Two extends of one lock: what the first has promised, the second does not take back.
fn extend_after_an_extend(field: &Field<'_>) -> Result<(), String> {
    for locks in [KEY_LOCK, ROW_LOCK] {
        field.lay(TTL_MS);
        let mut promised = 0;
        let outcome = field.force(
            locks,
            |store| store.extend(&id(OLD), ttl(), &Call::new()),
            |other| {
                let sql = format!("UPDATE syncguard_locks SET expires_at_ms = {NOW} + {TTL_MS} WHERE key = 'k' RETURNING expires_at_ms; COMMIT");
                promised = other.run(&sql)[0].parse().expect("a time");
            },
        );
        match outcome {
            ExtendOutcome::Extended(at) => expect(
                "a promised lease was shortened",
                at >= promised && field.row().1 == at,
            )?,
            ExtendOutcome::Absent(_) => return Err("a live lease was not extended".to_owned()),
        }
    }
    Ok(())
}

/// The other releases; the caller that waits for the row gets the lock, with the next fence.
fn acquire_after_a_release(field: &Field<'_>) -> Result<(), String> {
    for gone in [
        "DELETE FROM syncguard_locks WHERE key = 'k'",
        "DELETE FROM syncguard_locks WHERE expires_at_ms < 99999999999999",
    ] {
        field.lay(TTL_MS);
        let outcome = field.force(
            ROW_LOCK,
            |store| store.acquire(&key(), &id(NEW), ttl(), &Call::new()),
            |other| {
                other.run(&format!("{gone}; COMMIT"));
            },
        );
        expect(
            "a released lock was not granted",
            matches!(outcome, AcquireOutcome::Acquired(_)),
        )?;
        expect("the grant is not stored", field.row().0 == NEW)?;
    }
    Ok(())
}

/// Two acquires of a key that is free, the other a transaction of the TypeScript library.
fn acquire_after_an_acquire(field: &Field<'_>) -> Result<(), String> {
    field.lay(-5_000);
    field
        .server
        .sql(&format!("DELETE FROM {}.syncguard_locks", field.schema));
    let outcome = field.force(
        KEY_LOCK,
        |store| store.acquire(&key(), &id(NEW), ttl(), &Call::new()),
        |other| {
            other.run(&format!("INSERT INTO syncguard_locks VALUES ('k', '{OLD}', {NOW} + {TTL_MS}, 1, '000000000000009', 'k'); COMMIT"));
        },
    );
    expect("two grants", matches!(outcome, AcquireOutcome::Locked(_)))?;
    expect("the first grant is gone", field.row().0 == OLD)
}

/// The other gives up: its rollback leaves everything as it was.
fn after_a_rollback(field: &Field<'_>) -> Result<(), String> {
    field.lay(TTL_MS);
    let outcome = field.force(
        &format!("{ROW_LOCK}; DELETE FROM syncguard_locks"),
        |store| store.extend(&id(OLD), ttl(), &Call::new()),
        |other| {
            other.run("ROLLBACK");
        },
    );
    expect(
        "a live lease was not extended",
        matches!(outcome, ExtendOutcome::Extended(_)),
    )?;
    let outcome = field.force(
        KEY_LOCK,
        |store| store.acquire(&key(), &id(NEW), ttl(), &Call::new()),
        commit,
    );
    expect(
        "a live lease was granted",
        matches!(outcome, AcquireOutcome::Locked(_)),
    )
}

const ALL: [(&str, Ordering1); 12] = [
    ("acquire after an extend", acquire_after_an_extend),
    ("extend after an acquire", extend_after_an_acquire),
    ("release after an acquire", release_after_an_acquire),
    (
        "extend of a lease that died",
        extend_of_a_lease_that_died_meanwhile,
    ),
    (
        "extend of a lease that ran out",
        extend_of_a_lease_that_ran_out,
    ),
    (
        "release of a lease that ran out",
        release_of_a_lease_that_ran_out,
    ),
    (
        "acquire of a lease that ran out",
        acquire_of_a_lease_that_ran_out,
    ),
    (
        "acquire gives the whole lease",
        acquire_gives_the_whole_lease,
    ),
    ("extend after an extend", extend_after_an_extend),
    ("acquire after a release", acquire_after_a_release),
    ("acquire after an acquire", acquire_after_an_acquire),
    ("after a rollback", after_a_rollback),
];

#[test]
fn every_forced_ordering_is_safe() {
    // A server of its own: advisory locks on the key are shared by all schemas of a database.
    let server = Server::start(&[]);
    let pooler = Disguise::start(&server);
    for (url, schema) in [(server.url(), "races"), (pooler.url(), "pooled")] {
        let field = Field::at(&url, &server, schema, None);
        for (name, ordering) in ALL {
            assert_eq!(ordering(&field), Ok(()), "{name}, {schema}");
        }
    }
}

/// Which orderings do not find the planted mistake. Some hang on a moment that a busy machine may miss: they have five tries.
fn missed(plant: Plant, schema: &str, wanted: &[&str]) -> Vec<&'static str> {
    let server = Server::start(&[]);
    let field = Field::new(&server, schema, Some(plant));
    ALL.iter()
        .filter(|(name, _)| wanted.contains(name))
        .filter(|(_, ordering)| (0..5).all(|_| ordering(&field).is_ok()))
        .map(|(name, _)| *name)
        .collect()
}

#[test]
fn without_the_row_lock_the_same_orderings_break() {
    let wanted = [
        "acquire after an extend",
        "extend after an acquire",
        "release after an acquire",
        "extend of a lease that died",
    ];
    assert_eq!(missed(NO_ROW_LOCK, "no_row_lock", &wanted), [""; 0]);
}

#[test]
fn with_the_transactions_start_for_a_clock_the_same_orderings_break() {
    let wanted = [
        "extend of a lease that ran out",
        "release of a lease that ran out",
        "acquire of a lease that ran out",
        "acquire gives the whole lease",
        "extend after an extend",
    ];
    assert_eq!(missed(START_TIME, "start_time", &wanted), [""; 0]);
}

#[test]
fn a_crowd_never_holds_one_key_twice() {
    let server = Server::shared();
    let options = ClientOptions::new()
        .schema("crowd")
        .operation_timeout(Duration::from_secs(60));
    server
        .open(&options)
        .setup_schema(&Call::new())
        .expect("set-up");
    // Half of them come through a pooler.
    let pooler = Disguise::start(&server);
    let urls = [server.url(), pooler.url()];
    let held = [AtomicBool::new(false), AtomicBool::new(false)];
    let fences: Mutex<HashMap<usize, u64>> = Mutex::new(HashMap::new());
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (held, fences, options) = (&held, &fences, &options);
            // Its number decides the key with the round, not the way.
            let url = &urls[n / 4];
            scope.spawn(move || {
                let store = PostgresBackend::open(url, options).expect("a store");
                for round in 0..60 {
                    let k = (n + round) % 2;
                    let name = Key::new(&format!("k{k}")).expect("a key");
                    let mine = LockId::random().expect("an id");
                    let AcquireOutcome::Acquired(grant) = store
                        .acquire(&name, &mine, ttl(), &Call::new())
                        .expect("an answer")
                    else {
                        let _ = store.purge_expired(10, &Call::new()).expect("an answer");
                        continue;
                    };
                    assert!(!held[k].swap(true, Ordering::SeqCst), "two holders");
                    let before = fences
                        .lock()
                        .expect("the fences")
                        .insert(k, grant.fence.get());
                    assert!(
                        before.is_none_or(|f| f < grant.fence.get()),
                        "a fence went back"
                    );
                    let extended = store.extend(&mine, ttl(), &Call::new()).expect("an answer");
                    assert!(
                        matches!(extended, ExtendOutcome::Extended(at) if at >= grant.expires_at_ms)
                    );
                    held[k].store(false, Ordering::SeqCst);
                    assert!(
                        store
                            .release(&mine, &Call::new())
                            .expect("an answer")
                            .is_released()
                    );
                }
            });
        }
    });
}

#[test]
fn the_servers_clock_may_be_anywhere_and_step() {
    let mut server = Server::start(&[]);
    server.take_clock();
    let year = 365 * 24 * 3600;
    for (name, seconds) in [("1970", -56 * year), ("2100", 74 * year)] {
        server.set_clock(seconds);
        let field = Field::new(&server, &format!("y{name}"), None);
        let told = server.sql("SELECT extract(year FROM clock_timestamp())");
        assert!(told[..2] == name[..2], "the clock says {told}");
        let mine = LockId::random().expect("an id");
        let AcquireOutcome::Acquired(grant) = field
            .store
            .acquire(&key(), &mine, ttl(), &Call::new())
            .expect("an answer")
        else {
            panic!("no lock is held");
        };
        let other = LockId::random().expect("an id");
        match field
            .store
            .acquire(&key(), &other, ttl(), &Call::new())
            .expect("an answer")
        {
            AcquireOutcome::Locked(Some(holder)) => {
                assert!(
                    holder
                        .remaining
                        .is_some_and(|left| left <= ttl().as_duration() && !left.is_zero())
                );
            }
            other => panic!("{other:?}"),
        }
        // An hour later the lease is over for every caller: it is not extended, and the next caller gets the lock.
        server.set_clock(seconds + 3600);
        assert_eq!(
            field.store.extend(&mine, ttl(), &Call::new()).ok(),
            Some(ExtendOutcome::Absent(Absence::Expired))
        );
        assert_eq!(
            field.store.release(&mine, &Call::new()).ok(),
            Some(ReleaseOutcome::Absent(Absence::Expired))
        );
        match field
            .store
            .acquire(&key(), &other, ttl(), &Call::new())
            .expect("an answer")
        {
            AcquireOutcome::Acquired(next) => {
                assert!(next.fence > grant.fence && next.expires_at_ms > grant.expires_at_ms)
            }
            other => panic!("{other:?}"),
        }
        // A step back revives no other lease.
        server.set_clock(seconds);
        assert_eq!(
            field.store.extend(&mine, ttl(), &Call::new()).ok(),
            Some(ExtendOutcome::Absent(Absence::NotFound))
        );
        assert!(
            field
                .store
                .is_locked(&key(), &Call::new())
                .expect("an answer")
        );
    }
}
