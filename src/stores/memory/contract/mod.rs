//! The contract of a store, as checks: each rule that a [`Backend`](crate::Backend) keeps is one function, which panics with the
//! rule that was broken. It uses `memory`, `calls`, `hooks`, `leases`, `ownership`,
//! `reads` and `backend`.
//!
//! [`contract!`](super::contract!) makes a test of every check. To run them in another way, walk [`CHECKS`].
//!
//! # The rules
//!
//! *One holder*
//! - [`one_holder_per_key`]: while a lock is held, an acquire by another lock id answers `Locked`. Other keys stay free.
//! - [`one_of_many_acquires_wins`]: of acquires at the same time, one is granted.
//! - [`holders_never_overlap`]: threads that take and release one lock hold it one after the other, with growing fences.
//! - [`every_text_is_a_key_of_its_own`]: no two keys share a lock, and a lookup gives the text of the key back.
//! - [`a_named_holder_is_the_right_one`]: a store that names the holder of a lock names the right one.
//!
//! *Fences*
//! - [`fences_grow`]: every grant of a key has a larger fence than the grants before it, also after a release, an expiry and a
//!   purge. Checked only if [`Capabilities::supports_fencing`](crate::Capabilities::supports_fencing) is true.
//! - [`the_same_id_again_answers_the_stored_grant`]: an acquire that is repeated with its own lock id answers the same grant, and
//!   changes neither the fence nor the lease: the caller may not have heard the first answer.
//!
//! *Owners*
//! - [`only_the_owner_releases`]: a release with another lock id answers `Absent` and removes nothing.
//! - [`a_release_succeeds_once`]: the second release of a lock answers `Absent`, also when the key has a new holder.
//! - [`only_the_owner_extends`]: an extend with another lock id answers `Absent` and changes nothing.
//!
//! *Leases*
//! - [`an_extend_replaces_the_lease`]: the lease ends one TTL after the extend, whether that is later or earlier than before.
//! - [`times_are_those_of_one_clock`]: what `acquire` and `extend` answer is what `find` shows; the time of the grant stays.
//! - [`a_lease_lasts_its_time`]: a lock is held until its lease ends, and the verbs agree about the second of tolerance after it.
//! - [`an_expired_lock_is_absent`]: after the lease and [`TIME_TOLERANCE_MS`](crate::TIME_TOLERANCE_MS) every verb answers as if
//!   the lock did not exist, and the key can be taken.
//! - [`an_extend_revives_nothing`]: an extend of an expired lock answers `Absent`, and the key stays free.
//! - [`an_old_owner_changes_nothing`]: the owner of an expired lock cannot release or extend the lock of the next holder.
//!
//! *Reads*
//! - [`reads_change_nothing`]: `is_locked`, `find` and `lookup` leave a lock, its lease and a free key as they were.
//! - [`lookups_agree`]: `find` by key and by lock id answer the same lock, and `lookup` answers it with hashes in place of the
//!   key and the lock id.
//! - [`a_purge_removes_only_expired_locks`]: a purge removes no live lock and no fence counter.
//! - [`setup_and_check_can_be_repeated`]: both succeed again on a store with locks, and change none of them.
//!
//! *Calls*
//! - [`a_cancelled_call_is_not_made`]: a call that was cancelled before it began answers `Aborted`, says that nothing was applied,
//!   and changes nothing.
//! - [`a_late_call_is_not_made`]: a call whose deadline has passed answers `NetworkTimeout`, says the same, and changes nothing.
//! - [`a_deadline_ends_a_call`], [`a_cancel_ends_a_call`]: while the store hangs, its verbs end by the deadline, and soon after
//!   a cancel. The author of the store says [how a test makes it hang](ContractStore::while_hanging), or
//!   [why none can](ContractStore::cannot_hang).
//!
//! Not checked: [`Backend::watch`](crate::Backend::watch), which a store may leave out and whose calls may get lost; and what a store
//! does when its server fails, which only its author can bring about.

mod calls;
mod hooks;
mod leases;
mod ownership;
mod reads;
mod steps;

pub use self::calls::{
    a_cancel_ends_a_call, a_cancelled_call_is_not_made, a_deadline_ends_a_call,
    a_late_call_is_not_made,
};
pub use self::hooks::{ContractHooks, ContractStore};
pub use self::leases::{
    a_lease_lasts_its_time, an_expired_lock_is_absent, an_extend_replaces_the_lease,
    an_extend_revives_nothing, an_old_owner_changes_nothing, times_are_those_of_one_clock,
};
pub use self::ownership::{
    a_named_holder_is_the_right_one, a_release_succeeds_once, every_text_is_a_key_of_its_own,
    fences_grow, holders_never_overlap, one_holder_per_key, one_of_many_acquires_wins,
    only_the_owner_extends, only_the_owner_releases, the_same_id_again_answers_the_stored_grant,
};
pub use self::reads::{
    a_purge_removes_only_expired_locks, lookups_agree, reads_change_nothing,
    setup_and_check_can_be_repeated,
};

use crate::backend::Backend;

/// One rule of the contract. It panics if the store breaks the rule; the store must be empty.
pub type Check = fn(&dyn Backend, &ContractHooks);

/// Every check with its name, for a program that does not use [`contract!`](super::contract!).
///
/// ```
/// use syncguard::testkit::MemoryBackend;
/// use syncguard::testkit::contract::{CHECKS, ContractStore};
///
/// let (name, check) = CHECKS[0];
/// assert_eq!(name, "one_holder_per_key");
/// ContractStore::new(MemoryBackend::new()).run(check);
/// ```
pub const CHECKS: &[(&str, Check)] = crate::__contract!(@each list []);

/// Makes a module with a `#[test]` for every rule of the [contract](mod@crate::testkit::contract) of a store.
///
/// The first argument names the module. The second one is an expression that can be called again and again: it makes a fresh
/// empty store, as a [`ContractStore`](crate::testkit::contract::ContractStore). By default time passes by sleeping; a store with a clock of
/// its own moves it in [`pass_time`](crate::testkit::contract::ContractStore::pass_time). Two of the rules need to know
/// [how the store hangs](crate::testkit::contract::ContractStore::while_hanging).
///
/// ```
/// use syncguard::testkit::contract::ContractStore;
/// use syncguard::testkit::{self, ManualClock, MemoryBackend};
///
/// fn store() -> ContractStore {
///     let clock = ManualClock::new();
///     ContractStore::new(MemoryBackend::with_clock(&clock))
///         .pass_time(move |by| clock.advance(by))
///         .cannot_hang("every call is answered from memory")
/// }
///
/// testkit::contract!(keeps_the_contract, store);
/// # fn main() { store().run(testkit::contract::one_holder_per_key) }
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __contract {
    ($name:ident, $make:expr $(,)?) => {
        $crate::__contract! { @each tests [$name, $make] }
    };
    // The one list of checks.
    (@each $what:ident $arguments:tt) => {
        $crate::__contract! { @$what $arguments
            one_holder_per_key, one_of_many_acquires_wins, holders_never_overlap, every_text_is_a_key_of_its_own,
            a_named_holder_is_the_right_one, fences_grow, the_same_id_again_answers_the_stored_grant, only_the_owner_releases,
            a_release_succeeds_once, only_the_owner_extends, an_extend_replaces_the_lease, times_are_those_of_one_clock,
            a_lease_lasts_its_time, an_expired_lock_is_absent, an_extend_revives_nothing, an_old_owner_changes_nothing,
            reads_change_nothing, lookups_agree, a_purge_removes_only_expired_locks, setup_and_check_can_be_repeated,
            a_cancelled_call_is_not_made, a_late_call_is_not_made, a_deadline_ends_a_call, a_cancel_ends_a_call }
    };
    (@tests [$name:ident, $make:expr] $($check:ident),+) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $(#[test]
            fn $check() {
                let store: $crate::testkit::contract::ContractStore = ($make)();
                store.run($crate::testkit::contract::$check);
            })+
        }
    };
    (@list [] $($check:ident),+) => {
        &[$((stringify!($check), $check)),+]
    };
}
