//! From names to addresses, with a deadline. It uses `runtime` and `backend::limits`.
//!
//! `getaddrinfo` has no timeout and cannot be cancelled. It runs on a few helper threads, and a caller waits for its answer
//! within its own limits. Callers of the same name share a lookup, so that one hung name costs one helper.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::limits::Limits;
use crate::runtime::cancel::deadline_after;
use crate::runtime::ending;
use crate::runtime::process::PerProcess;
use crate::runtime::sync::{Condvar, Mutex};
use crate::runtime::threads;
use crate::runtime::wake::Wake;
use crate::types::error::{ErrorCode, LockError};

/// How many lookups a process makes at a time.
const HELPERS: usize = 4;
/// How long a helper without work stays.
const IDLE: Duration = Duration::from_secs(10);
/// A lookup that has run longer may be hung: the next caller of its name starts another.
const STALE: Duration = Duration::from_secs(10);

/// How many addresses of a name are used. The server that answers for the name decides how many it has, and the client would connect to each.
const MAX_ADDRESSES: usize = 64;

type LookupAnswer = Result<Vec<SocketAddr>, String>;
type Lookup = Box<dyn Fn(&str) -> LookupAnswer + Send + Sync>;

static RESOLVER: PerProcess<Arc<Resolver>> = PerProcess::new();

/// The addresses of `host`, in the system's order of preference. A literal address needs no lookup.
///
/// # Errors
/// `ServiceUnavailable` if the name has none, `NetworkTimeout` at the deadline, `Aborted` if cancelled. Nothing was sent.
pub(crate) fn addresses(
    host: &str,
    port: u16,
    limits: &Limits<'_>,
) -> Result<Vec<SocketAddr>, LockError> {
    let bare = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    if bare.is_empty() || bare.contains('\0') {
        return Err(LockError::invalid(
            "the host name is empty or has a NUL in it",
        ));
    }
    let mut found = shared().resolve(bare, limits)?;
    for address in &mut found {
        address.set_port(port);
    }
    Ok(found)
}

fn shared() -> &'static Arc<Resolver> {
    RESOLVER.get(|| {
        ending::when_unused(|| shared().end_idle_helpers());
        Resolver::new(Box::new(system))
    })
}

fn system(host: &str) -> LookupAnswer {
    match (host, 0).to_socket_addrs() {
        Ok(found) => Ok(found.collect()),
        Err(e) => Err(e.to_string()),
    }
}

struct Resolver {
    lookup: Lookup,
    state: Mutex<ResolverState>,
    work: Condvar,
}

#[derive(Default)]
struct ResolverState {
    waiting: VecDeque<Arc<PendingLookup>>,
    running: Vec<RunningLookup>,
    helpers: usize,
    idle: usize,
    /// Helpers without work do not stay; until there is new work.
    may_end: bool,
}

/// A lookup that a helper has begun.
struct RunningLookup {
    since: Instant,
    lookup: Arc<PendingLookup>,
}

/// One lookup and all callers that wait for it.
struct PendingLookup {
    host: String,
    state: Mutex<PendingState>,
    changed: Condvar,
}

#[derive(Default)]
struct PendingState {
    answer: Option<LookupAnswer>,
    callers: usize,
}

impl Resolver {
    fn new(lookup: Lookup) -> Arc<Self> {
        Arc::new(Self {
            lookup,
            state: Mutex::new(ResolverState::default()),
            work: Condvar::new(),
        })
    }

    fn resolve(
        self: &Arc<Self>,
        host: &str,
        limits: &Limits<'_>,
    ) -> Result<Vec<SocketAddr>, LockError> {
        let pending = self.enqueue(host)?;
        let answer = {
            // Subscribing may wake at once, so it comes before the pending's mutex.
            let _subscription = limits
                .token()
                .map(|token| token.subscribe(Arc::clone(&pending) as Arc<dyn Wake>));
            pending.wait(limits)
        };
        self.leave(&pending);
        match answer {
            Some(Ok(found)) if !found.is_empty() => Ok(found),
            Some(Ok(_)) => Err(LockError::unavailable(format!(
                "the host name {host:?} has no address"
            ))
            .nothing_applied()),
            Some(Err(why)) => Err(LockError::unavailable(format!(
                "the host name {host:?} cannot be resolved: {why}"
            ))
            .nothing_applied()),
            None if limits.is_cancelled() => Err(limits.overrun().nothing_applied()),
            None => Err(LockError::new(
                ErrorCode::NetworkTimeout,
                format!(
                    "the system's resolver gave no answer for the host name {host:?} within the limit of {}",
                    limits.allowed()
                ),
            )
            .nothing_applied()),
        }
    }

    fn end_idle_helpers(&self) {
        self.state.lock().may_end = true;
        self.work.notify_all();
    }

    /// Joins a lookup of the same name or queues a new one, and makes sure that a helper works on it.
    fn enqueue(self: &Arc<Self>, host: &str) -> Result<Arc<PendingLookup>, LockError> {
        let mut state = self.state.lock();
        state.may_end = false;
        let shared = state
            .waiting
            .iter()
            .chain(
                state
                    .running
                    .iter()
                    .filter(|running| running.since.elapsed() < STALE)
                    .map(|running| &running.lookup),
            )
            .find(|pending| pending.host == host);
        if let Some(pending) = shared {
            pending.state.lock().callers += 1;
            return Ok(Arc::clone(pending));
        }
        // More work than idle helpers can take: another one, as long as there may be.
        if state.idle <= state.waiting.len() && state.helpers < HELPERS {
            let me = Arc::clone(self);
            match threads::spawn("syncguard-dns", move || me.help()) {
                Ok(()) => state.helpers += 1,
                Err(e) if state.helpers == 0 => {
                    return Err(LockError::new(
                        ErrorCode::RateLimited,
                        "no thread could be started to resolve a host name",
                    )
                    .with_source(e)
                    .nothing_applied());
                }
                Err(_) => {}
            }
        }
        let pending = Arc::new(PendingLookup {
            host: host.to_owned(),
            state: Mutex::new(PendingState {
                answer: None,
                callers: 1,
            }),
            changed: Condvar::new(),
        });
        state.waiting.push_back(Arc::clone(&pending));
        drop(state);
        self.work.notify_one();
        Ok(pending)
    }

    /// The last caller takes a lookup that no helper has begun out of the queue: hung helpers do not make it grow.
    fn leave(&self, pending: &Arc<PendingLookup>) {
        let mut state = self.state.lock();
        let callers = {
            let mut shared = pending.state.lock();
            shared.callers -= 1;
            shared.callers
        };
        if callers == 0 {
            state.waiting.retain(|t| !Arc::ptr_eq(t, pending));
        }
    }

    fn help(&self) {
        let mut state = self.state.lock();
        loop {
            let Some(pending) = state.waiting.pop_front() else {
                let until = deadline_after(IDLE);
                state.idle += 1;
                while state.waiting.is_empty() && !state.may_end && Instant::now() < until {
                    self.work.wait_until(&mut state, Some(until));
                }
                state.idle -= 1;
                if state.waiting.is_empty() {
                    state.helpers -= 1;
                    return;
                }
                continue;
            };
            state.running.push(RunningLookup {
                since: Instant::now(),
                lookup: Arc::clone(&pending),
            });
            drop(state);
            let mut answer = ending::stuck(|| (self.lookup)(&pending.host));
            if let Ok(found) = &mut answer {
                found.truncate(MAX_ADDRESSES);
            }
            state = self.state.lock();
            state
                .running
                .retain(|running| !Arc::ptr_eq(&running.lookup, &pending));
            pending.state.lock().answer = Some(answer);
            pending.changed.notify_all();
        }
    }
}

impl PendingLookup {
    fn wait(&self, limits: &Limits<'_>) -> Option<LookupAnswer> {
        let mut state = self.state.lock();
        while state.answer.is_none() && limits.left().is_ok() {
            self.changed.wait_until(&mut state, Some(limits.deadline()));
        }
        state.answer.clone()
    }
}

impl Wake for PendingLookup {
    fn wake(&self) {
        // Taking the mutex makes sure that the caller either sees the cancel or is already waiting.
        drop(self.state.lock());
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
