//! Hears of releases: one connection for all waiters of a client, opened for the first and closed soon after the last. It uses
//! `types`, `runtime` and the retry rules of `options`.
//!
//! The store says what is sent and received ([`ListenerConnection`]). Whatever fails here costs a waiter time and nothing else:
//! it asks the store now and then by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::call::Call;
use crate::backend::limits::Limits;
use crate::backend::{Freed, Watch};
use crate::options::retry::{Backoff, Jitter, Retry};
use crate::runtime::cancel::{CancelToken, deadline_after};
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::runtime::threads;
use crate::runtime::workers::guarded;
use crate::types::error::{ErrorCode, LockError};
use crate::types::random::random_bits;

/// How long the connection stays open without a waiter.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// After how long without a message the server is asked whether it is still there.
const PROBE_AFTER: Duration = Duration::from_secs(10);
/// How long a server may take for an answer that needs no work.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// How a lost connection is opened again.
const RECONNECT: Retry = Retry {
    max: None,
    base: Duration::from_millis(20),
    backoff: Backoff::Exponential,
    jitter: Jitter::Equal,
};
/// How soon a server is tried again that refused to send notifications.
const RETRY_REFUSED: Duration = Duration::from_secs(60);

/// One connection on which the store tells of releases.
pub(crate) trait ListenerConnection: Send {
    /// Begins to listen for some names and ends it for others. Answers the names whose releases arrive from now on for certain; a
    /// store that confirms later does so in [`next_released`](Self::next_released).
    fn update(
        &mut self,
        add: &[String],
        remove: &[String],
        limits: &Limits<'_>,
    ) -> Result<Vec<String>, LockError>;

    /// Waits for the next message and answers the names that it concerns. Half of a message is kept for the next call.
    fn next_released(&mut self, limits: &Limits<'_>) -> Result<Vec<String>, LockError>;

    /// Asks whether the server is still there. `None` if it answers through [`next_released`](Self::next_released); else it has answered, and
    /// these names may have been freed meanwhile.
    fn probe(&mut self, limits: &Limits<'_>) -> Result<Option<Vec<String>>, LockError>;
}

/// Opens a [`ListenerConnection`]. `InvalidArgument` means that the server cannot tell of releases at all.
pub(crate) type OpenListener =
    Box<dyn Fn(&Limits<'_>) -> Result<Box<dyn ListenerConnection>, LockError> + Send + Sync>;

/// The listener of one store. Its thread ends when it is dropped.
pub(crate) struct ReleaseListener {
    shared: Arc<ListenerShared>,
}

struct ListenerShared {
    owner: Owner,
    open: OpenListener,
    connect_timeout: Duration,
    /// Cancelled when the backend is dropped; the parent of every token that the thread waits with.
    closed: CancelToken,
    state: Mutex<ListenerState>,
}

struct ListenerState {
    names: HashMap<String, WatchedName>,
    last_id: u64,
    running: bool,
    /// Cancelled to tell the thread that the names have changed.
    nudge: CancelToken,
}

/// What one watch calls.
struct WatchCallback {
    id: u64,
    freed: Freed,
}

#[derive(Default)]
struct WatchedName {
    callbacks: Vec<WatchCallback>,
    /// Whether the open connection was told.
    sent: bool,
    /// Whether its releases arrive for certain.
    heard: bool,
}

impl ReleaseListener {
    pub(crate) fn new(owner: Owner, connect_timeout: Duration, open: OpenListener) -> Self {
        let closed = CancelToken::new();
        let state = ListenerState {
            names: HashMap::new(),
            last_id: 0,
            running: false,
            nudge: closed.child(),
        };
        Self {
            shared: Arc::new(ListenerShared {
                owner,
                open,
                connect_timeout,
                closed,
                state: Mutex::new(state),
            }),
        }
    }

    /// Calls `freed` at every release that concerns `name`, until the watch is dropped.
    pub(crate) fn watch(&self, name: String, freed: Freed) -> Option<Watch> {
        if !self.shared.owner.is_this_process() {
            return None;
        }
        let mut state = self.shared.state.lock();
        if !state.running {
            let shared = Arc::clone(&self.shared);
            threads::spawn("syncguard-watch", move || shared.listen()).ok()?;
            state.running = true;
        }
        state.last_id += 1;
        let id = state.last_id;
        let entry = state.names.entry(name.clone()).or_default();
        entry.callbacks.push(WatchCallback {
            id,
            freed: Arc::clone(&freed),
        });
        let heard = entry.heard;
        state.nudge.cancel();
        drop(state);
        if heard {
            guarded(|| freed());
        }
        Some(Watch::new(NameWatcher {
            shared: Arc::clone(&self.shared),
            name,
            id,
        }))
    }
}

impl Drop for ReleaseListener {
    fn drop(&mut self) {
        // In a forked child the token's mutex may be locked for ever, and the thread does not exist.
        if self.shared.owner.is_this_process() {
            self.shared.closed.cancel();
        }
    }
}

struct NameWatcher {
    shared: Arc<ListenerShared>,
    name: String,
    id: u64,
}

impl Drop for NameWatcher {
    fn drop(&mut self) {
        if !self.shared.owner.is_this_process() {
            return;
        }
        let mut state = self.shared.state.lock();
        if let Some(name) = state.names.get_mut(&self.name) {
            name.callbacks.retain(|callback| callback.id != self.id);
        }
        state.nudge.cancel();
    }
}

impl ListenerShared {
    fn listen(&self) {
        let mut failures = 0u32;
        while let Some(token) = self.next_token() {
            let begun = Instant::now();
            let Err(error) = self.serve_connection(token) else {
                continue;
            };
            self.mark_unheard();
            failures = if begun.elapsed() > PROBE_AFTER {
                1
            } else {
                failures.saturating_add(1)
            };
            let delay = match error.code() {
                ErrorCode::InvalidArgument => RETRY_REFUSED,
                _ => RECONNECT
                    .delay(failures, Duration::MAX, random_bits())
                    .unwrap_or(RECONNECT.base),
            };
            self.pause_until(deadline_after(delay));
        }
    }

    /// Sleeps until `until`, or until there is no waiter: other changes do not bring a lost server back.
    fn pause_until(&self, until: Instant) {
        while Instant::now() < until && !self.is_idle() && !self.closed.is_cancelled() {
            self.renew_token().sleep_until(Some(until));
        }
    }

    fn is_idle(&self) -> bool {
        self.state
            .lock()
            .names
            .values()
            .all(|name| name.callbacks.is_empty())
    }

    /// A token for the next sleep, or `None` if there was no waiter for a while: the thread ends.
    fn next_token(&self) -> Option<CancelToken> {
        let until = deadline_after(IDLE_TIMEOUT);
        loop {
            let mut state = self.state.lock();
            let idle = state.names.values().all(|name| name.callbacks.is_empty());
            if self.closed.is_cancelled() || (idle && Instant::now() >= until) {
                state.names.clear();
                state.running = false;
                return None;
            }
            state.nudge = self.closed.child();
            let token = state.nudge.clone();
            drop(state);
            if !idle {
                return Some(token);
            }
            token.sleep_until(Some(until));
        }
    }

    fn renew_token(&self) -> CancelToken {
        let mut state = self.state.lock();
        state.nudge = self.closed.child();
        state.nudge.clone()
    }

    /// The connection is gone: no release arrives.
    fn mark_unheard(&self) {
        for name in self.state.lock().names.values_mut() {
            name.sent = false;
            name.heard = false;
        }
    }

    /// A call that ends when the store is closed.
    fn until_closed(&self) -> Call<'_> {
        Call::new().cancelled_by(&self.closed)
    }

    /// Uses one connection until its end. `Ok` if it ended because there is no waiter any more.
    fn serve_connection(&self, mut token: CancelToken) -> Result<(), LockError> {
        let mut connection = (self.open)(&Limits::enter(
            self.owner,
            self.connect_timeout,
            &self.until_closed(),
        )?)?;
        self.mark_unheard();
        let mut probed = false;
        let mut idle_since = None;
        loop {
            let idle = self.update(&mut *connection)?;
            idle_since = idle.then(|| idle_since.unwrap_or_else(Instant::now));
            if idle_since.is_some_and(|since: Instant| since.elapsed() >= IDLE_TIMEOUT) {
                self.mark_unheard();
                return Ok(());
            }
            let wait_limit = match (probed, idle) {
                (true, _) => REPLY_TIMEOUT,
                (false, true) => IDLE_TIMEOUT,
                (false, false) => PROBE_AFTER,
            };
            let heard = Limits::enter(self.owner, wait_limit, &Call::new().cancelled_by(&token))
                .and_then(|limits| connection.next_released(&limits));
            match heard {
                Ok(names) => {
                    probed = false;
                    self.call_watchers(&names);
                }
                Err(e) if e.code() == ErrorCode::Aborted && !self.closed.is_cancelled() => {
                    token = self.renew_token();
                }
                Err(e) if e.code() == ErrorCode::NetworkTimeout && idle => {}
                Err(e) if e.code() == ErrorCode::NetworkTimeout && !probed => {
                    match connection.probe(&Limits::enter(
                        self.owner,
                        REPLY_TIMEOUT,
                        &self.until_closed(),
                    )?)? {
                        Some(names) => self.call_watchers(&names),
                        None => probed = true,
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Tells the connection what has changed since the last time; answers whether there is no waiter.
    fn update(&self, connection: &mut dyn ListenerConnection) -> Result<bool, LockError> {
        let (mut add, mut remove) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        state.names.retain(|text, name| {
            match (name.callbacks.is_empty(), name.sent) {
                (true, true) => remove.push(text.clone()),
                (false, false) => add.push(text.clone()),
                _ => {}
            }
            name.sent = true;
            !name.callbacks.is_empty()
        });
        let idle = state.names.is_empty();
        drop(state);
        if !add.is_empty() || !remove.is_empty() {
            let limits = Limits::enter(self.owner, REPLY_TIMEOUT, &self.until_closed())?;
            let heard = connection.update(&add, &remove, &limits)?;
            self.call_watchers(&heard);
        }
        Ok(idle)
    }

    /// Calls the waiters of these names, whose releases arrive for certain from now on.
    fn call_watchers(&self, names: &[String]) {
        let mut state = self.state.lock();
        let mut watchers: Vec<Freed> = Vec::new();
        for name in names {
            if let Some(name) = state.names.get_mut(name) {
                name.heard = true;
                watchers.extend(
                    name.callbacks
                        .iter()
                        .map(|callback| Arc::clone(&callback.freed)),
                );
            }
        }
        drop(state);
        for freed in watchers {
            // It may be a user's own code, through `Backend::watch`: its panic must not keep the others from being called.
            guarded(|| freed());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// A connection on which no message arrives: its time is up at once.
    struct Silent {
        /// Whether the server answers a probe.
        there: bool,
        probed: Arc<AtomicUsize>,
    }

    impl ListenerConnection for Silent {
        fn update(
            &mut self,
            add: &[String],
            _: &[String],
            _: &Limits<'_>,
        ) -> Result<Vec<String>, LockError> {
            Ok(add.to_vec())
        }

        fn next_released(&mut self, limits: &Limits<'_>) -> Result<Vec<String>, LockError> {
            // As short as a test wants it, and not a spin.
            CancelToken::new().sleep_until(Some(deadline_after(Duration::from_millis(1))));
            limits.left()?;
            Err(LockError::new(ErrorCode::NetworkTimeout, "silence"))
        }

        fn probe(&mut self, _: &Limits<'_>) -> Result<Option<Vec<String>>, LockError> {
            self.probed.fetch_add(1, SeqCst);
            Ok(self.there.then(Vec::new))
        }
    }

    /// How many connections were opened until the server was probed five times.
    fn connections(there: bool) -> usize {
        let (opened, probed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (opens, asks) = (Arc::clone(&opened), Arc::clone(&probed));
        let listener = ReleaseListener::new(
            Owner::current(),
            Duration::from_secs(60),
            Box::new(move |_| {
                opens.fetch_add(1, SeqCst);
                let probed = Arc::clone(&asks);
                Ok(Box::new(Silent { there, probed }))
            }),
        );
        let _watch = listener
            .watch("k".to_owned(), Arc::new(|| {}))
            .expect("a watch");
        let end = Instant::now() + Duration::from_secs(60);
        while probed.load(SeqCst) < 5 {
            assert!(Instant::now() < end, "no probe was sent");
            std::thread::sleep(Duration::from_millis(1));
        }
        opened.load(SeqCst)
    }

    #[test]
    fn a_silent_server_is_probed_and_left_only_if_it_does_not_answer() {
        assert_eq!(connections(true), 1);
        assert!(connections(false) >= 5);
    }
}
