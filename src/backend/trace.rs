//! What the subscriber of a program is told, with the feature `tracing`. All of it has the target `syncguard`; keys and lock ids
//! are shown as hashes. docs/telemetry.md lists the spans, the events and their fields. It uses `runtime` and `types`.

use tracing::{Level, Span};

use crate::runtime::workers::guarded;
use crate::types::event::{LockEventType, UnhashedEvent};
use crate::types::key::Key;
use crate::types::lock_id::LockId;

/// Whether the subscriber wants anything from here: the loss of a guard is the last thing that it would refuse.
pub(super) fn is_enabled() -> bool {
    tracing::enabled!(target: "syncguard", Level::WARN)
}

/// Does `work` inside the span that `make` makes. The subscriber is foreign code: if it panics, the lock must not be forgotten.
pub(super) fn in_span<R>(make: impl FnOnce() -> Span, work: impl FnOnce() -> R) -> R {
    let entered = guarded(|| make().entered());
    let answer = work();
    guarded(|| drop(entered));
    answer
}

pub(super) fn span(
    kind: LockEventType,
    backend: &'static str,
    key: Option<&Key>,
    lock_id: Option<&LockId>,
) -> Span {
    // The name of a span is part of its place in the code.
    macro_rules! named {
        ($name:literal) => {
            tracing::debug_span!(
                target: "syncguard",
                $name,
                backend,
                key_hash = key.map(Key::log_hash),
                lock_id_hash = lock_id.map(LockId::log_hash),
            )
        };
    }
    match kind {
        LockEventType::Acquire => named!("acquire"),
        LockEventType::Release => named!("release"),
        LockEventType::Extend => named!("extend"),
        LockEventType::IsLocked => named!("is_locked"),
        LockEventType::Lookup => named!("lookup"),
        LockEventType::Wait => named!("wait"),
        LockEventType::Loss => named!("loss"),
    }
}

pub(super) fn event(backend: &'static str, event: &UnhashedEvent) {
    macro_rules! tell {
        ($level:expr, $message:literal) => {
            tracing::event!(
                target: "syncguard",
                $level,
                operation = event.kind.as_str(),
                ok = event.ok,
                reason = event.reason.map(|reason| reason.as_str()),
                code = event.code.map(|code| code.as_str()),
                loss = event.loss.map(|loss| loss.as_str()),
                backend,
                key_hash = event.key.as_ref().map(Key::log_hash),
                lock_id_hash = event.lock_id.as_ref().map(LockId::log_hash),
                fence = event.fence.map(|fence| fence.get()),
                attempts = event.attempts,
                waited_ms = event.waited.map(|time| time.as_secs_f64() * 1000.0),
                held_ms = event.held.map(|time| time.as_secs_f64() * 1000.0),
                duration_ms = event.duration.as_secs_f64() * 1000.0,
                $message
            )
        };
    }
    match (event.kind, event.code) {
        (LockEventType::Loss, _) => tell!(Level::WARN, "the lock was lost"),
        // A wait tells of what its attempts have told already.
        (kind, Some(code)) if code.is_transient() && kind != LockEventType::Wait => {
            tell!(Level::WARN, "the store did not serve the call");
        }
        (_, None) if event.ok => tell!(Level::DEBUG, "done"),
        _ => tell!(Level::DEBUG, "not done"),
    }
}
