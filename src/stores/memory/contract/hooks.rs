//! [`ContractStore`]: a store for one check, and what the check needs besides it. It uses `backend` alone.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::backend::Backend;
use crate::backend::call::Call;

/// A fresh store for one check of the contract.
///
/// ```
/// use syncguard::testkit::contract::{self, ContractStore};
/// use syncguard::testkit::{ManualClock, MemoryBackend};
///
/// let clock = ManualClock::new();
/// ContractStore::new(MemoryBackend::with_clock(&clock))
///     .pass_time(move |by| clock.advance(by))
///     .run(contract::an_expired_lock_is_absent);
/// ```
pub struct ContractStore {
    store: Box<dyn Backend>,
    hooks: ContractHooks,
    /// Dropped after the store.
    kept: Vec<Box<dyn Any>>,
}

impl ContractStore {
    /// A store whose clock runs by itself. It must be empty and set up.
    ///
    /// ```
    /// use syncguard::testkit::MemoryBackend;
    /// use syncguard::testkit::contract::{self, ContractStore};
    ///
    /// ContractStore::new(MemoryBackend::new()).run(contract::lookups_agree);
    /// ```
    pub fn new(store: impl Backend + 'static) -> Self {
        Self {
            store: Box::new(store),
            hooks: ContractHooks::default(),
            kept: Vec::new(),
        }
    }

    /// Lets time pass on the store's clock with `pass`, in place of sleeping.
    ///
    /// ```
    /// use syncguard::testkit::contract::{self, ContractStore};
    /// use syncguard::testkit::{ManualClock, MemoryBackend};
    ///
    /// let clock = ManualClock::new();
    /// ContractStore::new(MemoryBackend::with_clock(&clock))
    ///     .pass_time(move |by| clock.advance(by))
    ///     .run(contract::an_extend_revives_nothing); // at once
    /// ```
    #[must_use]
    pub fn pass_time(mut self, pass: impl Fn(Duration) + 'static) -> Self {
        self.hooks.pass = Box::new(pass);
        self
    }

    /// Makes the store hang with `hang`: it calls what it is given, once, and no verb of the store is answered meanwhile. The checks
    /// [`a_deadline_ends_a_call`](super::a_deadline_ends_a_call) and [`a_cancel_ends_a_call`](super::a_cancel_ends_a_call) fail for a
    /// store that has neither this nor [`cannot_hang`](Self::cannot_hang).
    ///
    /// ```
    /// use syncguard::testkit::contract::{self, ContractStore};
    /// use syncguard::testkit::{Fault, MemoryBackend, Verb};
    ///
    /// let store = MemoryBackend::new();
    /// let hung = store.clone();
    /// ContractStore::new(store)
    ///     .while_hanging(move |work| {
    ///         for verb in [Verb::Acquire, Verb::Release, Verb::Extend, Verb::IsLocked, Verb::Lookup] {
    ///             hung.always(verb, Fault::Hang);
    ///         }
    ///         work();
    ///         hung.heal();
    ///     })
    ///     .run(contract::a_cancel_ends_a_call);
    /// ```
    #[must_use]
    pub fn while_hanging(mut self, hang: impl Fn(&mut dyn FnMut()) + 'static) -> Self {
        self.hooks.hang = Hang::With(Box::new(hang));
        self
    }

    /// Says why no test can make the store hang. The two checks of calls under way then check nothing, and say so on stderr.
    ///
    /// ```
    /// use syncguard::testkit::MemoryBackend;
    /// use syncguard::testkit::contract::{self, ContractStore};
    ///
    /// ContractStore::new(MemoryBackend::new())
    ///     .cannot_hang("every call is answered from memory")
    ///     .run(contract::a_deadline_ends_a_call);
    /// ```
    #[must_use]
    pub fn cannot_hang(mut self, why: impl Into<String>) -> Self {
        self.hooks.hang = Hang::Never(why.into());
        self
    }

    /// Keeps `what` until the check is over: a server, or a temporary directory.
    ///
    /// ```
    /// use syncguard::Client;
    /// use syncguard::testkit::contract::{self, ContractStore};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let client = Client::open(&format!("sqlite:{}", folder.path().join("locks.db").display()))?;
    /// ContractStore::new(client).keep(folder).run(contract::reads_change_nothing);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn keep(mut self, what: impl Any) -> Self {
        self.kept.push(Box::new(what));
        self
    }

    /// Runs one check.
    ///
    /// ```
    /// use syncguard::testkit::MemoryBackend;
    /// use syncguard::testkit::contract::{CHECKS, ContractStore};
    ///
    /// for (name, check) in CHECKS.iter().take(2) {
    ///     println!("{name}");
    ///     ContractStore::new(MemoryBackend::new()).run(*check);
    /// }
    /// ```
    ///
    /// # Panics
    /// If the store breaks the rule that `check` checks.
    pub fn run(&self, check: fn(&dyn Backend, &ContractHooks)) {
        check(&*self.store, &self.hooks);
    }
}

impl fmt::Debug for ContractStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContractStore")
            .field("store", &self.store.capabilities().backend)
            .field("hooks", &self.hooks)
            .field("kept", &self.kept.len())
            .finish()
    }
}

type HangHook = Box<dyn Fn(&mut dyn FnMut())>;

/// How the store is made to hang.
enum Hang {
    /// Its author has not said.
    Unsaid,
    /// Not at all, for this reason.
    Never(String),
    With(HangHook),
}

/// What a check needs besides the store. The default sleeps to let time pass, and does not say how the store hangs.
///
/// ```
/// use syncguard::testkit::MemoryBackend;
/// use syncguard::testkit::contract::{ContractHooks, one_holder_per_key};
///
/// one_holder_per_key(&MemoryBackend::new(), &ContractHooks::default());
/// ```
pub struct ContractHooks {
    pass: Box<dyn Fn(Duration)>,
    hang: Hang,
}

impl ContractHooks {
    /// Lets time pass on the store's clock.
    pub(super) fn pass(&self, by: Duration) {
        (self.pass)(by);
    }

    /// Whether the store can be made to hang.
    ///
    /// # Panics
    /// If the author of the store has not said.
    pub(super) fn can_hang(&self) -> bool {
        match &self.hang {
            Hang::With(_) => true,
            Hang::Never(why) => {
                eprintln!(
                    "not checked: that a call ends while the store hangs; it cannot be made to hang: {why}"
                );
                false
            }
            Hang::Unsaid => panic!(
                "nothing says how the store hangs, so this rule cannot be checked: give the ContractStore a hook with while_hanging, \
                 or say with cannot_hang why there is none"
            ),
        }
    }

    /// Runs `work` while the store hangs; not at all if it cannot be made to hang.
    pub(super) fn while_hanging(&self, work: &mut dyn FnMut()) {
        if let Hang::With(hang) = &self.hang {
            hang(work);
        }
    }
}

impl Default for ContractHooks {
    fn default() -> Self {
        Self {
            // A call without a deadline that cannot be cancelled sleeps for the whole time.
            pass: Box::new(|by| drop(Call::new().sleep(by))),
            hang: Hang::Unsaid,
        }
    }
}

impl fmt::Debug for ContractHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContractHooks")
            .field("can_hang", &matches!(self.hang, Hang::With(_)))
            .finish_non_exhaustive()
    }
}
