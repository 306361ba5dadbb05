//! [`Core`]: what the calls of one client share. Waiters and guards use it, so it stands before both.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::backend::{AcquireOutcome, Backend};
use crate::options::client::{CallTimeouts, ClientOptions};
use crate::options::hooks::Hooks;
use crate::runtime::Runtime;
use crate::runtime::process::Owner;
use crate::runtime::threads;
use crate::types::error::LockError;
use crate::types::fence::WARN_FENCE;
use crate::types::holder::Holder;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::ttl::Ttl;
use crate::waiting::line::WaitLines;
use crate::waiting::undo::Undo;

/// The store of a client and all that its calls, waiters and guards share.
pub(crate) struct Core {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) runtime: Runtime,
    pub(crate) timeouts: CallTimeouts,
    pub(crate) hooks: Hooks,
    pub(crate) lines: Arc<WaitLines>,
    pub(crate) owner: Owner,
    /// False once the client was told to stop renewing.
    pub(crate) renewing: AtomicBool,
    /// Whether the caller was told that a guard was lost when it was granted. Once is enough.
    pub(crate) warned_of_loss: AtomicBool,
    undo: Arc<Undo>,
}

impl Core {
    pub(crate) fn new(backend: Arc<dyn Backend>, options: &ClientOptions) -> Arc<Self> {
        let (runtime, timeouts) = (options.runtime(), options.timeouts());
        let hooks = Hooks::new(options.on_warning.clone(), options.on_release_error.clone());
        let undo = Undo::new(
            Arc::clone(&backend),
            timeouts.operation,
            runtime.clone(),
            hooks.with_release_hook(None),
        );
        Arc::new(Self {
            backend,
            runtime,
            timeouts,
            hooks,
            lines: Arc::default(),
            owner: Owner::current(),
            renewing: AtomicBool::new(true),
            warned_of_loss: AtomicBool::new(false),
            undo,
        })
    }

    /// The time on the clock that leases are counted on.
    pub(crate) fn now(&self) -> Duration {
        self.runtime.timer.now()
    }

    /// Asked before anything else is: a store of a user's own may not check for a fork, and its mutexes may be locked for ever.
    pub(crate) fn refuse_inherited(&self) -> Result<(), LockError> {
        self.owner.check()
    }

    /// One attempt, in the process that opened the client.
    pub(crate) fn attempt(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let outcome = (*self.backend).acquire(key, lock_id, ttl, call)?;
        if let AcquireOutcome::Acquired(grant) = &outcome
            && grant.fence.get() > WARN_FENCE
        {
            self.warn(format!(
                "the fence counter of key #{} has passed {WARN_FENCE} and nears its limit",
                key.log_hash()
            ));
        }
        Ok(outcome)
    }

    /// Sees to it that what an acquire of unknown outcome may have left is released.
    pub(crate) fn undo(
        &self,
        key: &Key,
        lock_id: LockId,
        ttl: Ttl,
        refused_after: Option<Instant>,
    ) {
        self.undo.add(key.clone(), lock_id, ttl, refused_after);
    }

    /// The lock was released, and an earlier attempt to acquire it may be on its way until `refused_after`: looks then.
    pub(crate) fn undo_later(&self, key: &Key, lock_id: LockId, ttl: Ttl, refused_after: Instant) {
        self.undo
            .look_later(key.clone(), lock_id, ttl, refused_after);
    }

    /// Whether this thread itself took the lock of `holder`, and has not released it. Only said if it is certain: the store must
    /// name the holder.
    pub(crate) fn is_own(&self, holder: &Holder) -> bool {
        holder.lock_id_hash.as_deref().is_some_and(|hash| {
            let timer = &self.runtime.timer;
            timer.has_lock_of(threads::number(), hash)
        })
    }

    /// Tells the operator, on a thread of the library.
    pub(crate) fn warn(&self, message: String) {
        self.hooks
            .warn(&self.runtime.workers, &self.runtime.timer, message);
    }
}
