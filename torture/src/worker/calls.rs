//! Calls with their bounds and cancels written down.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use syncguard::CancelToken;

use super::Shared;
use crate::clock::{self, MS};
use crate::record::{Record, kind};

/// The verbs, by the number that a record has.
pub const VERBS: [&str; 11] = [
    "",
    "lock",
    "try_lock",
    "release",
    "drop",
    "extend",
    "acquire",
    "release",
    "extend",
    "is_locked",
    "lookup",
];
pub const LOCK: i64 = 1;
pub const TRY_LOCK: i64 = 2;
pub const RELEASE: i64 = 3;
pub const DROP: i64 = 4;
pub const EXTEND: i64 = 5;
pub const ACQUIRE: i64 = 6;
pub const BARE_RELEASE: i64 = 7;
pub const BARE_EXTEND: i64 = 8;
pub const IS_LOCKED: i64 = 9;
pub const LOOKUP: i64 = 10;

/// The call that a thread makes, for the one that watches: it notes how long the thread has waited for a processor when the call is
/// due, so that only what it waits after that is taken off.
pub struct OwnCall {
    thread: i32,
    state: Mutex<CallState>,
}

#[derive(Clone, Copy, Default)]
struct CallState {
    /// When the call is due; 0 if there is none.
    due: i64,
    /// How long the thread had waited by then, once it is due.
    waited: Option<i64>,
}

thread_local! {
    static OWN: std::cell::OnceCell<Arc<OwnCall>> = const { std::cell::OnceCell::new() };
}

impl OwnCall {
    fn state(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By the watching thread, every few milliseconds.
    pub fn watch(&self, now: i64) {
        let mut state = self.state();
        if state.due > 0 && now >= state.due && state.waited.is_none() {
            state.waited = clock::delayed_of(self.thread);
        }
    }

    fn begin(&self, due: i64) {
        *self.state() = CallState { due, waited: None };
    }

    fn due_now(&self, at: i64) {
        let mut state = self.state();
        if state.due > at {
            state.due = at;
        }
    }

    /// How long this thread has waited since the call was due.
    fn end(&self) -> i64 {
        let state = std::mem::take(&mut *self.state());
        state.waited.map_or(0, |waited| clock::delayed() - waited)
    }
}

/// A token that is cancelled some time after the call began.
pub struct Canceller {
    pub token: CancelToken,
    at: Arc<AtomicI64>,
    over: Sender<()>,
    thread: JoinHandle<()>,
}

impl Canceller {
    pub fn after(time: Duration) -> Self {
        let token = CancelToken::new();
        let at = Arc::new(AtomicI64::new(0));
        let (over, waits) = channel();
        let (trigger, cancelled) = (token.clone(), Arc::clone(&at));
        let caller = OWN.with(|own| own.get().cloned());
        let thread = std::thread::spawn(move || {
            if waits.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                let now = clock::now();
                cancelled.store(now, Ordering::SeqCst);
                if let Some(call) = caller {
                    call.due_now(now);
                }
                trigger.cancel();
            }
        });
        Self {
            token,
            at,
            over,
            thread,
        }
    }

    /// When it was cancelled, or 0.
    fn end(self) -> i64 {
        let _ = self.over.send(());
        let _ = self.thread.join();
        self.at.load(Ordering::SeqCst)
    }
}

impl Shared {
    /// The call of this thread, which is watched from now on.
    fn own_call(&self) -> Arc<OwnCall> {
        OWN.with(|own| {
            Arc::clone(own.get_or_init(|| {
                let call = Arc::new(OwnCall {
                    thread: nix::unistd::gettid().as_raw(),
                    state: Mutex::default(),
                });
                let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
                watched.push(Arc::clone(&call));
                call
            }))
        })
    }

    /// Makes a call, and writes down when it began and ended.
    pub fn timed<T>(
        &self,
        verb: i64,
        key: i64,
        bound_ms: u64,
        cancel: Option<Canceller>,
        call: impl FnOnce(Option<&CancelToken>) -> T,
    ) -> T {
        let own = self.own_call();
        let bound = bound_ms as i64 * MS;
        let begun = clock::now();
        own.begin(begun + bound);
        if let Some(cancel) = &cancel {
            // It may have come before the call.
            let at = cancel.at.load(Ordering::SeqCst);
            if at > 0 {
                own.due_now(at);
            }
        }
        let answer = call(cancel.as_ref().map(|cancel| &cancel.token));
        let ended = clock::now();
        let waited = own.end();
        let cancelled = cancel.map_or(0, Canceller::end);
        let late = ended > begun + bound || (cancelled > 0 && ended > cancelled);
        self.write(Record {
            kind: kind::CALL,
            id: verb,
            key,
            at: ended,
            a: begun,
            b: bound,
            c: if cancelled < ended { cancelled } else { 0 },
            d: if late { waited } else { 0 },
        });
        answer
    }
}
