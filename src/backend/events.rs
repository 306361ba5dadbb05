//! [`EventSink`]: where the events of a client, or of a [`Telemetry`](crate::Telemetry), go: through a bounded queue to one
//! thread that calls the hook, and with the feature `tracing` to the subscriber of the program. It uses `backend`, `trace`,
//! `options`, `runtime` and `types`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use crate::backend::Backend;
#[cfg(feature = "tracing")]
use crate::backend::trace;
use crate::options::client::ClientOptions;
use crate::options::hooks::{IncludeRaw, OnEvent};
use crate::runtime::Runtime;
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::runtime::threads;
use crate::runtime::workers::guarded;
use crate::types::error::LockError;
use crate::types::event::{LockEventType, UnhashedEvent};
use crate::types::key::Key;
use crate::types::lock_id::LockId;

/// How many events may wait for a slow callback.
const QUEUE: usize = 1024;

/// Where events go.
pub(crate) struct EventSink {
    /// `None` if only `tracing` is told.
    hook: Option<EventHook>,
    backend: &'static str,
    owner: Owner,
}

struct EventHook {
    callback: OnEvent,
    include_raw: IncludeRaw,
    /// Made with the first event.
    queue: Mutex<Option<SyncSender<UnhashedEvent>>>,
    dropped: AtomicU64,
}

impl EventSink {
    /// A sink whose events go to `callback`, of a store of the name `backend`.
    pub(crate) fn new(
        callback: OnEvent,
        include_raw: IncludeRaw,
        backend: &'static str,
    ) -> Arc<Self> {
        Arc::new(Self {
            hook: Some(EventHook {
                callback,
                include_raw,
                queue: Mutex::new(None),
                dropped: AtomicU64::new(0),
            }),
            backend,
            owner: Owner::current(),
        })
    }

    /// The sink of a client of `backend`; `None` if nothing listens.
    pub(crate) fn of_client(options: &ClientOptions, backend: &dyn Backend) -> Option<Arc<Self>> {
        let name = || backend.capabilities().backend;
        if let Some(hook) = &options.on_event {
            return Some(Self::new(
                Arc::clone(hook),
                options.include_raw.clone(),
                name(),
            ));
        }
        cfg!(feature = "tracing").then(|| {
            Arc::new(Self {
                hook: None,
                backend: name(),
                owner: Owner::current(),
            })
        })
    }

    /// How many events the hook was not told of.
    pub(crate) fn dropped(&self) -> u64 {
        let hook = self.hook.as_ref();
        hook.map_or(0, |hook| hook.dropped.load(Ordering::Relaxed))
    }

    /// Does `work` and tells of it. `judge` says of an answer how it went.
    pub(crate) fn observe<T>(
        &self,
        event: impl FnOnce() -> UnhashedEvent,
        work: impl FnOnce() -> Result<T, LockError>,
        judge: impl FnOnce(&T, &mut UnhashedEvent),
    ) -> Result<T, LockError> {
        // In a forked child the queue's mutex may be locked for ever, and the store refuses anyway.
        if !self.is_listened_to() || !self.owner.is_this_process() {
            return work();
        }
        let mut event = event();
        let start = Instant::now();
        let answer = self.in_span(event.kind, event.key.as_ref(), event.lock_id.as_ref(), work);
        event.duration = start.elapsed();
        match &answer {
            Ok(answer) => judge(answer, &mut event),
            Err(error) => event.code = Some(error.code()),
        }
        self.emit(event);
        answer
    }

    /// Does `work` inside a span of its kind.
    #[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
    pub(crate) fn in_span<R>(
        &self,
        kind: LockEventType,
        key: Option<&Key>,
        lock_id: Option<&LockId>,
        work: impl FnOnce() -> R,
    ) -> R {
        #[cfg(feature = "tracing")]
        return trace::in_span(|| trace::span(kind, self.backend, key, lock_id), work);
        #[cfg(not(feature = "tracing"))]
        work()
    }

    /// Tells of an event, on this thread where it is for `tracing`. Does not wait for the hook.
    pub(crate) fn emit(&self, event: UnhashedEvent) {
        #[cfg(feature = "tracing")]
        guarded(|| trace::event(self.backend, &event));
        self.queue(event);
    }

    /// Tells of an event that a thread met which must not run foreign code.
    #[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
    pub(crate) fn emit_elsewhere(self: &Arc<Self>, runtime: &Runtime, event: UnhashedEvent) {
        #[cfg(feature = "tracing")]
        if trace::is_enabled() {
            let (me, event) = (Arc::clone(self), event.clone());
            runtime.run(move || trace::event(me.backend, &event));
        }
        self.queue(event);
    }

    /// Whether it is worth making an event.
    pub(crate) fn is_listened_to(&self) -> bool {
        #[cfg(feature = "tracing")]
        return self.hook.is_some() || trace::is_enabled();
        #[cfg(not(feature = "tracing"))]
        self.hook.is_some()
    }

    fn queue(&self, event: UnhashedEvent) {
        let Some(hook) = &self.hook else {
            return;
        };
        let mut queue = hook.queue.lock();
        if queue.is_none() {
            *queue = hook.start(self.backend);
        }
        // try_send never waits; a full queue is the callback's fault, a missing one the system's.
        let sent = queue.as_ref().is_some_and(|q| q.try_send(event).is_ok());
        if !sent {
            hook.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl EventHook {
    fn start(&self, backend: &'static str) -> Option<SyncSender<UnhashedEvent>> {
        let (sender, receiver) = sync_channel(QUEUE);
        let (callback, include_raw) = (Arc::clone(&self.callback), self.include_raw.clone());
        threads::spawn("syncguard-events", move || {
            tell(&receiver, backend, &callback, &include_raw);
        })
        .ok()?;
        Some(sender)
    }
}

impl Drop for EventSink {
    fn drop(&mut self) {
        // Closing the queue takes a mutex of its own, which a forked child may have inherited locked.
        if !self.owner.is_this_process()
            && let Some(hook) = &mut self.hook
        {
            std::mem::forget(hook.queue.get_mut().take());
        }
    }
}

/// Ends when the last sender is gone, after the events that were queued by then.
fn tell(
    events: &Receiver<UnhashedEvent>,
    backend: &'static str,
    callback: &OnEvent,
    include_raw: &IncludeRaw,
) {
    while let Ok(raw) = events.recv() {
        guarded(|| {
            let mut event = raw.hashed(backend);
            let include = match include_raw {
                IncludeRaw::Never => false,
                IncludeRaw::Always => true,
                IncludeRaw::When(predicate) => predicate(&event),
            };
            if include {
                event.key = raw.key.map(|k| k.as_str().to_owned());
                event.lock_id = raw.lock_id.map(|id| id.as_str().to_owned());
                event.holder = raw.holder;
            }
            callback(&event);
        });
    }
}
