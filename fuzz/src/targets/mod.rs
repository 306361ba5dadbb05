//! The targets. Each says in its first lines what it feeds to what, and what must hold.

pub mod c_client_options;
pub mod c_lock_options;
pub mod c_texts;
pub mod certificates;
mod functions;
pub mod names;
pub mod postgres_session;
pub mod redis_routes;
pub mod redis_session;
pub mod resp;
pub mod sqlite_rows;
pub mod stored_values;
pub mod tls_roots;
pub mod urls;

use std::hash::Hash;
use std::time::Duration;

use syncguard::{
    AcquireOutcome, Backend, Call, ClientOptions, Key, ListOptions, LockError, LockId, LookupBy,
    Ttl,
};

use crate::engine::Target;
use crate::{SECRET, gist, outcome, says_nothing};

/// All of them.
pub static TARGETS: [Target; 13] = [
    resp::TARGET,
    redis_session::TARGET,
    redis_routes::TARGET,
    postgres_session::TARGET,
    urls::TARGET,
    names::TARGET,
    stored_values::TARGET,
    sqlite_rows::TARGET,
    certificates::TARGET,
    tls_roots::TARGET,
    c_texts::TARGET,
    c_client_options::TARGET,
    c_lock_options::TARGET,
];

/// A key that no message may repeat.
const KEY: &str = "orders:v3ryprivate";
/// A lock id that no message may repeat.
const LOCK_ID: &str = "JjYEnSICuoi1IlfW3NFLOw";

/// What no message may repeat.
const SECRETS: [&str; 3] = [KEY, LOCK_ID, SECRET];

/// Limits that no execution reaches on a machine that is not stuck.
fn options() -> ClientOptions {
    let ample = Duration::from_secs(20);
    ClientOptions::new()
        .connect_timeout(ample)
        .operation_timeout(ample)
}

fn key() -> Key {
    Key::new(KEY).expect("a key")
}

fn lock_id() -> LockId {
    LockId::parse(LOCK_ID).expect("an id")
}

/// Inputs whose number is at least this one list the locks.
const LIST: u8 = 54;

/// One verb of a store, chosen by `verb`. What must hold, whatever the store has read from outside: a grant is for the id that was
/// asked for, a lock that is found by its id has it, and an error repeats none of
/// `secrets`.
fn verb(store: &dyn Backend, verb: u8, secrets: &[&str]) -> u64 {
    let (key, id, call) = (key(), lock_id(), Call::new());
    let ttl = Ttl::new(Duration::from_secs(30)).expect("a TTL");
    // The inputs of the corpus choose the others by the remainder.
    let chosen = if verb >= LIST { 9 } else { verb % 9 };
    let told = match chosen {
        0 => store
            .acquire(&key, &id, ttl, &call)
            .map(|outcome| match outcome {
                AcquireOutcome::Acquired(grant) => {
                    assert_eq!(grant.lock_id, id, "the grant is another's");
                    seen("acquired")
                }
                AcquireOutcome::Locked(holder) => {
                    let holder = holder.map(|h| {
                        (
                            h.lock_id_hash.is_some(),
                            h.fence.is_some(),
                            h.remaining.is_some(),
                        )
                    });
                    seen(("locked", holder))
                }
            }),
        1 => store.release(&id, &call).map(|o| seen(format!("{o:?}"))),
        2 => store
            .extend(&id, ttl, &call)
            .map(|o| seen(std::mem::discriminant(&o))),
        3 => store
            .is_locked(&key, &call)
            .map(|locked| seen(("is locked", locked))),
        4 => store
            .find(LookupBy::Key(&key), &call)
            .map(|found| seen(("by key", found.map(|lock| lock.key.len() > 512)))),
        5 => store.find(LookupBy::LockId(&id), &call).map(|found| {
            if let Some(lock) = &found {
                assert_eq!(lock.lock_id, id, "another lock than that of the id");
            }
            seen(("by id", found.is_some()))
        }),
        6 => store.check(&call).map(|warnings| {
            for (warning, secret) in warnings
                .iter()
                .flat_map(|w| secrets.iter().map(move |s| (w, s)))
            {
                assert!(!warning.contains(secret), "{warning}");
            }
            seen(("check", warnings.len()))
        }),
        7 => store.purge_expired(10, &call).map(|_| seen("purged")),
        9 => store
            .list(&ListOptions::new().examine(10), &call)
            .map(|page| {
                let long = page.locks.iter().filter(|lock| lock.key.len() > 512);
                seen((
                    "listed",
                    page.locks.len(),
                    long.count(),
                    page.next.is_some(),
                ))
            }),
        _ => store.setup_schema(&call).map(|()| seen("set up")),
    };
    told.unwrap_or_else(|error| refused(&error, secrets))
}

fn seen(what: impl Hash) -> u64 {
    outcome(what)
}

fn refused(error: &LockError, secrets: &[&str]) -> u64 {
    says_nothing(error, secrets);
    gist(error)
}
