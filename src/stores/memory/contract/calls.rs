//! The rules about the bounds of a call: its deadline and its cancel token. It uses `hooks`, `steps`, `backend`, `runtime` and
//! `types`.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::hooks::ContractHooks;
use super::steps::{LONG, find, found, id, is_locked, key, take, ttl};
use crate::backend::call::Call;
use crate::backend::{Backend, LookupBy};
use crate::runtime::cancel::CancelToken;
use crate::types::error::{ErrorCode, LockError};
use crate::types::lock_id::LockId;

type VerbCall = fn(&dyn Backend, &LockId, &Call<'_>) -> Result<(), LockError>;

/// Every verb with its name: an acquire of a free key, and the others for the lock `k` of the given id.
const VERBS: [(&str, VerbCall); 6] = [
    ("acquire", |store, _, call| {
        store
            .acquire(&key("free"), &id(), ttl(LONG), call)
            .map(drop)
    }),
    ("release", |store, id, call| {
        store.release(id, call).map(drop)
    }),
    ("extend", |store, id, call| {
        store.extend(id, ttl(LONG * 2), call).map(drop)
    }),
    ("is_locked", |store, _, call| {
        store.is_locked(&key("k"), call).map(drop)
    }),
    ("find by key", |store, _, call| {
        store.find(LookupBy::Key(&key("k")), call).map(drop)
    }),
    ("find by lock id", |store, id, call| {
        store.find(LookupBy::LockId(id), call).map(drop)
    }),
];

/// Makes every verb with a call that is over already.
fn not_made(store: &dyn Backend, call: &Call<'_>, code: ErrorCode, why: &str) {
    let owner = id();
    let _ = take(store, "k", &owner, LONG);
    let before = found(store, "k");
    for (name, verb) in VERBS {
        let Err(error) = verb(store, &owner, call) else {
            panic!("{name} was answered though {why}: check the call before anything else");
        };
        assert_eq!(error.code(), code, "{name}, though {why}: {error}");
        assert!(
            !error.may_have_applied(),
            "{name} did nothing because {why}; its error must say so (LockError::nothing_applied)"
        );
    }
    assert_eq!(
        find(store, "k"),
        Some(before),
        "a release or an extend was made though {why}"
    );
    assert!(
        !is_locked(store, "free"),
        "an acquire was made though {why}"
    );
}

/// A call that was cancelled before it began answers `Aborted`, says that nothing was applied, and changes nothing.
pub fn a_cancelled_call_is_not_made(store: &dyn Backend, _: &ContractHooks) {
    let token = CancelToken::new();
    token.cancel();
    let call = Call::new().cancelled_by(&token);
    not_made(store, &call, ErrorCode::Aborted, "the call was cancelled");
}

/// A call whose deadline has passed answers `NetworkTimeout`, says that nothing was applied, and changes nothing.
pub fn a_late_call_is_not_made(store: &dyn Backend, _: &ContractHooks) {
    let call = Call::new().within(Duration::ZERO);
    let why = "the deadline of the call has passed";
    not_made(store, &call, ErrorCode::NetworkTimeout, why);
}

/// How late a call may end, on a machine that does little else.
const LATE: Duration = Duration::from_secs(2);
/// How often a busy machine is asked again.
const ATTEMPTS: usize = 3;

/// What `call` comes to while the store hangs, if it ends within [`LATE`] after `over`. The store hangs no longer than that, so that
/// a verb which does not end on its own ends then.
fn while_hanging(
    store: &dyn Backend,
    hooks: &ContractHooks,
    (verb, call): (VerbCall, &Call<'_>),
    over: &dyn Fn(),
) -> Option<Result<(), LockError>> {
    let owner = id();
    let mut outcome = None;
    std::thread::scope(|scope| {
        hooks.while_hanging(&mut || {
            let (answer, answered) = mpsc::channel();
            scope.spawn(move || drop(answer.send(verb(store, &owner, call))));
            over();
            outcome = answered.recv_timeout(LATE).ok();
        });
    });
    outcome
}

fn ends(
    store: &dyn Backend,
    hooks: &ContractHooks,
    code: ErrorCode,
    after: &str,
    attempt: &dyn Fn(VerbCall) -> Option<Result<(), LockError>>,
) {
    if !hooks.can_hang() {
        return;
    }
    let mut hangs = false;
    hooks.while_hanging(&mut || hangs = true);
    assert!(
        hangs,
        "the hook of while_hanging did not call what it was given"
    );
    for (name, verb) in VERBS {
        let answer = (0..ATTEMPTS).find_map(|_| attempt(verb));
        match answer {
            None => panic!("{name} went on for {LATE:?} after {after}, while the store hung"),
            Some(Ok(())) => panic!("{name} was answered while the store hung: does the hook work?"),
            Some(Err(error)) => assert_eq!(error.code(), code, "{name} after {after}: {error}"),
        }
    }
    let _ = take(store, "k", &id(), LONG);
}

/// While the store hangs, its verbs end by the deadline of the call, with `NetworkTimeout`.
pub fn a_deadline_ends_a_call(store: &dyn Backend, hooks: &ContractHooks) {
    ends(
        store,
        hooks,
        ErrorCode::NetworkTimeout,
        "its deadline",
        &|verb| {
            let deadline = Instant::now() + Duration::from_millis(100);
            let call = Call::new().with_deadline(deadline);
            while_hanging(store, hooks, (verb, &call), &|| {
                let left = deadline.saturating_duration_since(Instant::now());
                let _ = Call::new().sleep(left);
            })
        },
    );
}

/// While the store hangs, its verbs end soon after a cancel of the call, with `Aborted`.
pub fn a_cancel_ends_a_call(store: &dyn Backend, hooks: &ContractHooks) {
    ends(store, hooks, ErrorCode::Aborted, "a cancel", &|verb| {
        let token = CancelToken::new();
        let call = Call::new().within(LONG).cancelled_by(&token);
        while_hanging(store, hooks, (verb, &call), &|| {
            let _ = Call::new().sleep(Duration::from_millis(50));
            token.cancel();
        })
    });
}
