//! Hearing of releases: one connection for all of a client who wait, made for the first and gone soon after the last.
//!
//! What it says and hears is the store's matter ([`Wire`]). Whatever goes wrong here costs a waiter time and nothing else: it
//! asks by itself now and then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::Watch;
use crate::backend::call::Call;
use crate::backend::limits::Limits;
use crate::options::retry::{Backoff, Jitter, Retry};
use crate::runtime::cancel::{CancelToken, deadline_after};
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::runtime::threads;
use crate::runtime::workers::guarded;
use crate::types::error::{ErrorCode, LockError};
use crate::types::random::random_bits;

/// How long the connection stays without anybody who waits.
const LINGER: Duration = Duration::from_secs(1);
/// How long silence is believed in before the server is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a server may take for what it answers at once.
const PROMPT: Duration = Duration::from_secs(2);
/// How a lost connection is made again.
const AGAIN: Retry = Retry {
    max: None,
    base: Duration::from_millis(20),
    backoff: Backoff::Exponential,
    jitter: Jitter::Equal,
};
/// How soon a server is tried again that said it cannot do this.
const DEAF: Duration = Duration::from_secs(60);

pub(crate) type Freed = Arc<dyn Fn() + Send + Sync>;

/// One connection that listens.
pub(crate) trait Wire: Send {
    /// Begins to listen for some names and ends it for others. Answers the names that are certain to be heard now; a store
    /// that confirms later says so in [`hear`](Self::hear).
    fn update(
        &mut self,
        add: &[String],
        remove: &[String],
        limits: &Limits<'_>,
    ) -> Result<Vec<String>, LockError>;

    /// Waits for the next message and answers the names that it concerns. A message that was read half is kept.
    fn hear(&mut self, limits: &Limits<'_>) -> Result<Vec<String>, LockError>;

    /// Asks whether the server is still there. `None` if it answers through [`hear`](Self::hear); else it has answered, and
    /// these names may have been freed meanwhile.
    fn ask(&mut self, limits: &Limits<'_>) -> Result<Option<Vec<String>>, LockError>;
}

/// Makes a [`Wire`]. An `InvalidArgument` says that the server cannot do this at all.
pub(crate) type Dial = Box<dyn Fn(&Limits<'_>) -> Result<Box<dyn Wire>, LockError> + Send + Sync>;

/// The listening of one backend. Its thread ends when it is dropped.
pub(crate) struct Ear(Arc<Shared>);

struct Shared {
    owner: Owner,
    dial: Dial,
    connect_timeout: Duration,
    /// Cancelled when the backend is dropped; the parent of every token that the thread waits with.
    closed: CancelToken,
    state: Mutex<State>,
}

struct State {
    names: HashMap<String, Name>,
    last_id: u64,
    running: bool,
    /// Cancelled to tell the thread that the names have changed.
    nudge: CancelToken,
}

#[derive(Default)]
struct Name {
    watchers: Vec<(u64, Freed)>,
    /// Whether the connection at hand was told.
    sent: bool,
    /// Whether it is certain that a release is heard.
    heard: bool,
}

impl Ear {
    pub(crate) fn new(owner: Owner, connect_timeout: Duration, dial: Dial) -> Self {
        let closed = CancelToken::new();
        let state = State {
            names: HashMap::new(),
            last_id: 0,
            running: false,
            nudge: closed.child(),
        };
        Self(Arc::new(Shared {
            owner,
            dial,
            connect_timeout,
            closed,
            state: Mutex::new(state),
        }))
    }

    /// Has `freed` called for every release that concerns `name`.
    pub(crate) fn watch(&self, name: String, freed: Freed) -> Option<Watch> {
        if !self.0.owner.is_this_process() {
            return None;
        }
        let mut state = self.0.state.lock();
        if !state.running {
            let shared = Arc::clone(&self.0);
            threads::spawn("syncguard-ear", move || shared.listen()).ok()?;
            state.running = true;
        }
        state.last_id += 1;
        let id = state.last_id;
        let entry = state.names.entry(name.clone()).or_default();
        entry.watchers.push((id, Arc::clone(&freed)));
        let heard = entry.heard;
        state.nudge.cancel();
        drop(state);
        if heard {
            guarded(|| freed());
        }
        Some(Watch::new(Watcher {
            shared: Arc::clone(&self.0),
            name,
            id,
        }))
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // In a forked child the token's mutex may be locked for ever, and there is no thread.
        if self.0.owner.is_this_process() {
            self.0.closed.cancel();
        }
    }
}

struct Watcher {
    shared: Arc<Shared>,
    name: String,
    id: u64,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if !self.shared.owner.is_this_process() {
            return;
        }
        let mut state = self.shared.state.lock();
        if let Some(name) = state.names.get_mut(&self.name) {
            name.watchers.retain(|(id, _)| *id != self.id);
        }
        state.nudge.cancel();
    }
}

impl Shared {
    fn listen(&self) {
        let mut failures = 0u32;
        while let Some(token) = self.next_token() {
            let begun = Instant::now();
            let Err(error) = self.conversation(token) else {
                continue;
            };
            self.forget();
            failures = if begun.elapsed() > SILENCE {
                1
            } else {
                failures.saturating_add(1)
            };
            let delay = match error.code() {
                ErrorCode::InvalidArgument => DEAF,
                _ => AGAIN
                    .delay(failures, Duration::MAX, random_bits())
                    .unwrap_or(AGAIN.base),
            };
            self.rest(deadline_after(delay));
        }
    }

    /// Sleeps until `until`, or until nobody waits: other changes do not bring a lost server back.
    fn rest(&self, until: Instant) {
        while Instant::now() < until && !self.is_idle() && !self.closed.is_cancelled() {
            self.renew_token().sleep_until(Some(until));
        }
    }

    fn is_idle(&self) -> bool {
        self.state
            .lock()
            .names
            .values()
            .all(|name| name.watchers.is_empty())
    }

    /// A token for the next sleep, or `None` if nobody has waited for a while: the thread ends.
    fn next_token(&self) -> Option<CancelToken> {
        let until = deadline_after(LINGER);
        loop {
            let mut state = self.state.lock();
            let idle = state.names.values().all(|name| name.watchers.is_empty());
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

    /// Nothing is heard any more.
    fn forget(&self) {
        for name in self.state.lock().names.values_mut() {
            name.sent = false;
            name.heard = false;
        }
    }

    /// A call that ends when the backend is closed.
    fn until_closed(&self) -> Call<'_> {
        Call::new().cancelled_by(&self.closed)
    }

    /// One connection's life. `Ok` if it ended because nobody waits any more.
    fn conversation(&self, mut token: CancelToken) -> Result<(), LockError> {
        let mut wire = (self.dial)(&Limits::enter(
            self.owner,
            self.connect_timeout,
            &self.until_closed(),
        )?)?;
        self.forget();
        let mut asked = false;
        let mut idle_since = None;
        loop {
            let idle = self.update(&mut *wire)?;
            idle_since = idle.then(|| idle_since.unwrap_or_else(Instant::now));
            if idle_since.is_some_and(|since: Instant| since.elapsed() >= LINGER) {
                self.forget();
                return Ok(());
            }
            let patience = match (asked, idle) {
                (true, _) => PROMPT,
                (false, true) => LINGER,
                (false, false) => SILENCE,
            };
            let heard = Limits::enter(self.owner, patience, &Call::new().cancelled_by(&token))
                .and_then(|limits| wire.hear(&limits));
            match heard {
                Ok(names) => {
                    asked = false;
                    self.call(&names);
                }
                Err(e) if e.code() == ErrorCode::Aborted && !self.closed.is_cancelled() => {
                    token = self.renew_token();
                }
                Err(e) if e.code() == ErrorCode::NetworkTimeout && idle => {}
                Err(e) if e.code() == ErrorCode::NetworkTimeout && !asked => {
                    match wire.ask(&Limits::enter(self.owner, PROMPT, &self.until_closed())?)? {
                        Some(names) => self.call(&names),
                        None => asked = true,
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Tells the connection what has changed since the last time; answers whether nobody waits.
    fn update(&self, wire: &mut dyn Wire) -> Result<bool, LockError> {
        let (mut add, mut remove) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        state.names.retain(|text, name| {
            match (name.watchers.is_empty(), name.sent) {
                (true, true) => remove.push(text.clone()),
                (false, false) => add.push(text.clone()),
                _ => {}
            }
            name.sent = true;
            !name.watchers.is_empty()
        });
        let idle = state.names.is_empty();
        drop(state);
        if !add.is_empty() || !remove.is_empty() {
            let limits = Limits::enter(self.owner, PROMPT, &self.until_closed())?;
            let heard = wire.update(&add, &remove, &limits)?;
            self.call(&heard);
        }
        Ok(idle)
    }

    /// Calls whoever waits for these names; from here on they are certain to be heard.
    fn call(&self, names: &[String]) {
        let mut state = self.state.lock();
        let mut watchers: Vec<Freed> = Vec::new();
        for name in names {
            if let Some(name) = state.names.get_mut(name) {
                name.heard = true;
                watchers.extend(name.watchers.iter().map(|(_, freed)| Arc::clone(freed)));
            }
        }
        drop(state);
        for freed in watchers {
            // The caller's own code, where it uses a backend's `watch` itself: its panic is not the others' loss.
            guarded(|| freed());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// A connection on which nothing is ever heard: time is up at once.
    struct Silent {
        /// Whether the server answers when it is asked.
        there: bool,
        asked: Arc<AtomicUsize>,
    }

    impl Wire for Silent {
        fn update(
            &mut self,
            add: &[String],
            _: &[String],
            _: &Limits<'_>,
        ) -> Result<Vec<String>, LockError> {
            Ok(add.to_vec())
        }

        fn hear(&mut self, limits: &Limits<'_>) -> Result<Vec<String>, LockError> {
            // As short as a test wants it, and not a spin.
            CancelToken::new().sleep_until(Some(deadline_after(Duration::from_millis(1))));
            limits.left()?;
            Err(LockError::new(ErrorCode::NetworkTimeout, "silence"))
        }

        fn ask(&mut self, _: &Limits<'_>) -> Result<Option<Vec<String>>, LockError> {
            self.asked.fetch_add(1, SeqCst);
            Ok(self.there.then(Vec::new))
        }
    }

    /// How many connections were made until the server was asked five times.
    fn connections(there: bool) -> usize {
        let (dialled, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (dials, asks) = (Arc::clone(&dialled), Arc::clone(&asked));
        let ear = Ear::new(
            Owner::current(),
            Duration::from_secs(60),
            Box::new(move |_| {
                dials.fetch_add(1, SeqCst);
                let asked = Arc::clone(&asks);
                Ok(Box::new(Silent { there, asked }))
            }),
        );
        let _watch = ear.watch("k".to_owned(), Arc::new(|| {})).expect("a watch");
        let end = Instant::now() + Duration::from_secs(60);
        while asked.load(SeqCst) < 5 {
            assert!(Instant::now() < end, "nobody asks");
            std::thread::sleep(Duration::from_millis(1));
        }
        dialled.load(SeqCst)
    }

    #[test]
    fn a_silent_server_is_asked_and_left_only_if_it_does_not_answer() {
        assert_eq!(connections(true), 1);
        assert!(connections(false) >= 5);
    }
}
