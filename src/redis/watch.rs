//! Hearing of releases: one subscription for all who wait, started by the first and gone soon after the last.
//!
//! Whatever goes wrong here costs a waiter time and nothing else: it asks by itself now and then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::Watch;
use crate::cancel::{CancelToken, deadline_after};
use crate::error::{ErrorCode, LockError};
use crate::lease::random_bits;
use crate::limits::Limits;
use crate::options::{Backoff, Jitter, Retry};
use crate::redis::connection::Connection;
use crate::redis::resp::Reply;
use crate::redis::servers::Servers;
use crate::sync::Mutex;
use crate::threads;

/// What a lock's channel has more than its key. The release script says the same.
pub(crate) const CHANNEL: &str = ":freed";
/// How long the subscription stays without anybody who waits.
const LINGER: Duration = Duration::from_secs(1);
/// How long silence is believed in before the server is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a server may take for what it answers at once.
const PROMPT: Duration = Duration::from_secs(2);
/// How a lost subscription is made again.
const AGAIN: Retry = Retry {
    max: None,
    base: Duration::from_millis(20),
    backoff: Backoff::Exponential,
    jitter: Jitter::Equal,
};

pub(crate) type Freed = Arc<dyn Fn() + Send + Sync>;

/// The subscription of one backend.
pub(crate) struct Ear(Arc<Shared>);

struct Shared {
    pid: u32,
    servers: Arc<Servers>,
    state: Mutex<State>,
}

struct State {
    channels: HashMap<Vec<u8>, Channel>,
    last_id: u64,
    running: bool,
    /// Cancelled to tell the thread that the channels have changed.
    nudge: CancelToken,
}

#[derive(Default)]
struct Channel {
    watchers: Vec<(u64, Freed)>,
    /// Whether the subscription was sent on the connection at hand.
    sent: bool,
    /// Whether the server has confirmed it.
    heard: bool,
}

impl Ear {
    pub(crate) fn new(pid: u32, servers: Arc<Servers>) -> Self {
        let state = State {
            channels: HashMap::new(),
            last_id: 0,
            running: false,
            nudge: CancelToken::new(),
        };
        Self(Arc::new(Shared {
            pid,
            servers,
            state: Mutex::new(state),
        }))
    }

    /// Has `freed` called for every release of the lock stored under `lock`.
    pub(crate) fn watch(&self, lock: &str, freed: Freed) -> Option<Watch> {
        if std::process::id() != self.0.pid {
            return None;
        }
        let name = [lock.as_bytes(), CHANNEL.as_bytes()].concat();
        let mut state = self.0.state.lock();
        if !state.running {
            let shared = Arc::clone(&self.0);
            threads::spawn("syncguard-ear", move || shared.listen()).ok()?;
            state.running = true;
        }
        state.last_id += 1;
        let id = state.last_id;
        let channel = state.channels.entry(name.clone()).or_default();
        channel.watchers.push((id, Arc::clone(&freed)));
        let heard = channel.heard;
        state.nudge.cancel();
        drop(state);
        if heard {
            freed();
        }
        Some(Watch::new(Watcher {
            shared: Arc::clone(&self.0),
            name,
            id,
        }))
    }
}

struct Watcher {
    shared: Arc<Shared>,
    name: Vec<u8>,
    id: u64,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if std::process::id() != self.shared.pid {
            return;
        }
        let mut state = self.shared.state.lock();
        if let Some(channel) = state.channels.get_mut(&self.name) {
            channel.watchers.retain(|(id, _)| *id != self.id);
        }
        state.nudge.cancel();
    }
}

impl Shared {
    fn listen(&self) {
        let mut failures = 0u32;
        while let Some(token) = self.next_token() {
            let begun = Instant::now();
            let Err(_) = self.subscription(token) else {
                continue;
            };
            failures = if begun.elapsed() > SILENCE {
                1
            } else {
                failures.saturating_add(1)
            };
            let delay = AGAIN
                .delay(failures, Duration::MAX, random_bits())
                .unwrap_or(AGAIN.base);
            // A change of channels does not bring a lost server back: sleep to the end.
            CancelToken::new().sleep_until(Some(deadline_after(delay)));
        }
    }

    /// A token for the next sleep, or `None` if nobody has waited for a while: the thread ends.
    fn next_token(&self) -> Option<CancelToken> {
        let until = deadline_after(LINGER);
        loop {
            let mut state = self.state.lock();
            let idle = state.channels.values().all(|c| c.watchers.is_empty());
            if idle && Instant::now() >= until {
                state.channels.clear();
                state.running = false;
                return None;
            }
            state.nudge = CancelToken::new();
            let token = state.nudge.clone();
            drop(state);
            if !idle {
                return Some(token);
            }
            token.sleep_until(Some(until));
        }
    }

    /// One connection's life. `Ok` if it ended because nobody waits any more.
    fn subscription(&self, mut token: CancelToken) -> Result<(), LockError> {
        let mut connection = self.servers.connect(self.pid)?;
        self.forget_subscriptions();
        let mut asked = false;
        let mut idle_since = None;
        loop {
            let idle = self.update(&mut connection)?;
            idle_since = idle.then(|| idle_since.unwrap_or_else(Instant::now));
            if idle_since.is_some_and(|since: Instant| since.elapsed() >= LINGER) {
                self.forget_subscriptions();
                return Ok(());
            }
            let patience = if asked {
                PROMPT
            } else if idle {
                LINGER
            } else {
                SILENCE
            };
            let limits = Limits::enter(self.pid, patience, Some(&token));
            let heard = limits.and_then(|limits| connection.receive(&limits));
            match heard {
                Ok(reply) => {
                    asked = false;
                    self.hear(&reply)?;
                }
                // Half a reply stays in the connection's buffer.
                Err(e) if e.code() == ErrorCode::Aborted => token = self.renew_token(),
                Err(e) if e.code() == ErrorCode::NetworkTimeout && !asked && !idle => {
                    asked = true;
                    let limits = Limits::enter(self.pid, PROMPT, None)?;
                    connection.send(&[&[b"PING"]], &limits)?;
                }
                Err(e) if e.code() == ErrorCode::NetworkTimeout && idle => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn renew_token(&self) -> CancelToken {
        let mut state = self.state.lock();
        state.nudge = CancelToken::new();
        state.nudge.clone()
    }

    fn forget_subscriptions(&self) {
        for channel in self.state.lock().channels.values_mut() {
            channel.sent = false;
            channel.heard = false;
        }
    }

    /// Sends what has changed since the last time; answers whether nobody waits.
    fn update(&self, connection: &mut Connection) -> Result<bool, LockError> {
        let mut commands: Vec<(&[u8], Vec<u8>)> = Vec::new();
        let mut state = self.state.lock();
        state.channels.retain(|name, channel| {
            match (channel.watchers.is_empty(), channel.sent) {
                (true, true) => commands.push((b"UNSUBSCRIBE", name.clone())),
                (false, false) => commands.push((b"SUBSCRIBE", name.clone())),
                _ => {}
            }
            channel.sent = true;
            !channel.watchers.is_empty()
        });
        let idle = state.channels.is_empty();
        drop(state);
        if !commands.is_empty() {
            let commands: Vec<[&[u8]; 2]> = commands
                .iter()
                .map(|(verb, name)| [*verb, name.as_slice()])
                .collect();
            let commands: Vec<&[&[u8]]> = commands.iter().map(<[_; 2]>::as_slice).collect();
            let limits = Limits::enter(self.pid, PROMPT, None)?;
            connection.send(&commands, &limits)?;
        }
        Ok(idle)
    }

    fn hear(&self, reply: &Reply) -> Result<(), LockError> {
        let Reply::Array(items) = reply else {
            // A refusal, by an ACL or a server that does not know channels: nothing will be heard on this connection.
            return Err(
                LockError::unavailable("the server does not let us subscribe").nothing_applied(),
            );
        };
        let [Reply::Bulk(kind), Reply::Bulk(name), ..] = &items[..] else {
            return Ok(());
        };
        let confirmed = kind == b"subscribe";
        if !confirmed && kind != b"message" {
            return Ok(());
        }
        let mut state = self.state.lock();
        let Some(channel) = state.channels.get_mut(name) else {
            return Ok(());
        };
        channel.heard |= confirmed;
        let watchers: Vec<Freed> = channel
            .watchers
            .iter()
            .map(|(_, freed)| Arc::clone(freed))
            .collect();
        drop(state);
        watchers.iter().for_each(|freed| freed());
        Ok(())
    }
}
