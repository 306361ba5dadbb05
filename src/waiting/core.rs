//! [`Core`]: what the calls of one client share. Waiters and guards use it, so it stands before both. It uses `line`, `undo`,
//! `backend`, `options`, `runtime` and `types`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::backend::events::EventSink;
use crate::backend::telemetry::Telemetry;
use crate::backend::{AcquireOutcome, Backend};
use crate::options::client::{CallTimeouts, ClientOptions};
use crate::options::hooks::Hooks;
use crate::runtime::Runtime;
use crate::runtime::clock::Clock;
use crate::runtime::process::{self, Owner};
use crate::runtime::renewals::Renewals;
use crate::runtime::sync::Mutex;
use crate::runtime::threads;
use crate::types::error::LockError;
use crate::types::fence::{CLOCK_FENCES_FROM, Fence, FenceSource, WARN_FENCE};
use crate::types::holder::Holder;
use crate::types::holder_text::HolderText;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::ttl::Ttl;
use crate::waiting::line::WaitLines;
use crate::waiting::undo::Undo;

/// How many renewals may be under way beside those that have a connection: they connect, or wait for one.
const MORE_RENEWALS: usize = 4;
/// How many keys with fences of a clock are told of. An operator has understood by then, and the memory is bounded.
const KEYS_TOLD_OF: usize = 1000;

/// The store of a client and all that its calls, waiters and guards share.
pub(crate) struct Core {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) runtime: Runtime,
    pub(crate) timeouts: CallTimeouts,
    pub(crate) hooks: Hooks,
    /// Where waits and losses are told; the store tells of its own calls. `None` if nothing listens.
    pub(crate) events: Option<Arc<EventSink>>,
    pub(crate) lines: Arc<WaitLines>,
    pub(crate) owner: Owner,
    pub(crate) renewals: Arc<Renewals>,
    /// False once the client was told to stop renewing.
    pub(crate) renewing: AtomicBool,
    /// Whether the caller was told that a guard was lost when it was granted. Once is enough.
    pub(crate) warned_of_loss: AtomicBool,
    /// The hashes of the keys whose fences come from the clock of other clients, as the operator was told.
    told_of_clock_fences: Mutex<HashSet<String>>,
    undo: Arc<Undo>,
    /// What a holder says of itself unless it says something else.
    holder: &'static HolderText,
}

impl Core {
    pub(crate) fn new(backend: Arc<dyn Backend>, options: &ClientOptions) -> Arc<Self> {
        let events = EventSink::of_client(options, &*backend);
        let backend = match &events {
            Some(events) => Arc::new(Telemetry::around(backend, Arc::clone(events))),
            None => backend,
        };
        let (runtime, timeouts) = (options.runtime(), options.timeouts());
        let hooks = Hooks::new(
            options.on_warning.clone(),
            options.on_release_error.clone(),
            options.on_lost.clone(),
        );
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
            events,
            lines: Arc::default(),
            owner: Owner::current(),
            renewals: Renewals::new(options.pool_size.saturating_add(MORE_RENEWALS)),
            renewing: AtomicBool::new(true),
            warned_of_loss: AtomicBool::new(false),
            told_of_clock_fences: Mutex::default(),
            undo,
            holder: process::holder_text(),
        })
    }

    /// The time on the clock that leases are counted on.
    pub(crate) fn now(&self) -> Duration {
        self.runtime.timer.now()
    }

    /// The clock that waits and leases are counted on.
    pub(crate) fn clock(&self) -> &dyn Clock {
        self.runtime.timer.clock()
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
        let call = call.or_held_by(Some(self.holder));
        let outcome = (*self.backend).acquire(key, lock_id, ttl, &call)?;
        let (fence, granted) = match &outcome {
            AcquireOutcome::Acquired(grant) => (Some(grant.fence), true),
            AcquireOutcome::Locked(holder) => (holder.as_ref().and_then(|h| h.fence), false),
        };
        if let Some(fence) = fence.filter(|fence| fence.get() >= CLOCK_FENCES_FROM) {
            self.look_at_large_fence(key, fence, granted);
        }
        Ok(outcome)
    }

    /// What an operator should know of a fence that no counter reaches soon, granted to this client or to another one.
    fn look_at_large_fence(&self, key: &Key, fence: Fence, granted: bool) {
        if granted && fence.get() > WARN_FENCE {
            self.warn(format!(
                "the fence counter of key #{} has passed {WARN_FENCE} and nears its limit",
                key.log_hash()
            ));
            return;
        }
        if self.backend.capabilities().fence_source == FenceSource::Clock {
            return;
        }
        let hash = key.log_hash();
        let told_of = {
            let mut told = self.told_of_clock_fences.lock();
            if told.len() >= KEYS_TOLD_OF || !told.insert(hash.clone()) {
                return;
            }
            told.len()
        };
        let last = if told_of == KEYS_TOLD_OF {
            ". This is the last key that is named; more of them may be so"
        } else {
            ""
        };
        self.warn(format!(
            "the fences of key #{hash} come from a clock: other clients that take it have fences=clock and this one has not. After a \
             failover its fences may repeat; give fences=clock to every client{last}"
        ));
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
