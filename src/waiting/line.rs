//! The callers of one client that wait for the same key stand in a line. Only the first of them asks the store; the others wait
//! for their turn. A burst is served in order and puts the load of one waiter on the store. It uses `policy`, `backend`, `runtime`
//! and `types`.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{HashMap, VecDeque, hash_map};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::backend::{Backend, Watch};
use crate::runtime::process::Owner;
use crate::runtime::sync::Mutex;
use crate::runtime::wake::Wake;
use crate::types::error::LockError;
use crate::types::key::Key;
use crate::waiting::policy::Standing;

/// The lines of one client.
#[derive(Default)]
pub(crate) struct WaitLines {
    by_key: Mutex<HashMap<Key, KeyLine>>,
    /// How many lines there are, read without the mutex: most locks are never waited for. A caller tries again after it has joined
    /// a line, so a release that does not see the line yet is not missed.
    count: AtomicUsize,
    /// Counts the grants to callers in line.
    grants: AtomicU64,
}

/// The callers that wait for one key.
struct KeyLine {
    waiters: VecDeque<(u64, Arc<dyn Wake>)>,
    /// A caller that found no line makes a first attempt. Callers that come meanwhile wait for its outcome.
    trying: bool,
    last_id: u64,
    /// Grows whenever the lock may have been freed.
    freed: u64,
    /// What `freed` was before the last attempt of the first in line. It stays with the line when the first one leaves: a call
    /// that it did not answer is the next one's.
    seen: u64,
    /// The number of the last grant to a caller of this line.
    granted: u64,
    /// The outcome of the last attempt of this line.
    last_outcome: Option<LineOutcome>,
    watch: WatchState,
}

/// The outcome of one caller's attempt, for the others in line, which have not asked the store.
pub(crate) enum LineOutcome {
    /// The store answered.
    Answered,
    Trouble(LockError),
}

enum WatchState {
    /// The store was not asked to watch.
    No,
    /// The store was asked; it has not answered, or it cannot watch.
    Asked,
    Yes(#[allow(dead_code)] Watch),
}

/// The first attempt for a key that no other caller of the client wants. Dropping it calls the first of those that came meanwhile,
/// unless it was [granted](Self::granted).
pub(crate) struct FirstAttempt<'a> {
    lines: &'a Arc<WaitLines>,
    key: &'a Key,
    open: bool,
}

/// One caller's place in a line. Dropping it leaves the line.
pub(crate) struct LineTicket {
    lines: Arc<WaitLines>,
    key: Key,
    id: u64,
    owner: Owner,
}

impl WaitLines {
    /// Whether a caller stands in line for `key`, or makes a first attempt.
    pub(crate) fn is_waited_for(&self, key: &Key) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.by_key.lock().contains_key(key)
    }

    /// The lock of `key` may be free: calls the first in line.
    pub(crate) fn freed(&self, key: &Key) {
        self.released(key, None);
    }

    /// A release of `key` is on its way to the store: calls the first in line, whose own request follows it. Answers what
    /// [`released`](Self::released) needs to know.
    pub(crate) fn releasing(&self, key: &Key) -> u64 {
        let before = self.grants.load(Ordering::Acquire);
        self.freed(key);
        before
    }

    /// The release was answered, after [`releasing`](Self::releasing) had called. Calls again, in case the request that was
    /// made upon that came too early; not if a caller of the line was granted the lock since, for its release will call.
    pub(crate) fn released(&self, key: &Key, before: Option<u64>) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let first = self.by_key.lock().get_mut(key).and_then(|line| {
            if before.is_some_and(|before| line.granted > before) {
                return None;
            }
            line.freed += 1;
            line.first()
        });
        if let Some(first) = first {
            first.wake();
        }
    }

    /// The lock of `key` was granted to a caller of this client: what called before this has been answered, and the holder's
    /// release will call.
    pub(crate) fn granted(&self, key: &Key) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(line) = self.by_key.lock().get_mut(key) {
            line.seen = line.freed;
            line.granted = self.next_grant();
            line.last_outcome = Some(LineOutcome::Answered);
        }
    }

    /// An attempt of the line of `key` was answered, or met trouble that may pass.
    pub(crate) fn note(&self, key: &Key, trouble: Option<&LockError>) {
        let outcome = match trouble {
            None => LineOutcome::Answered,
            Some(trouble) if trouble.code().is_transient() => {
                LineOutcome::Trouble(trouble.retold())
            }
            // The attempt was at fault, or was cancelled: that says nothing about the others.
            Some(_) => return,
        };
        if let Some(line) = self.by_key.lock().get_mut(key) {
            line.last_outcome = Some(outcome);
        }
    }

    fn next_grant(&self) -> u64 {
        self.grants.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Begins a first attempt, if no caller waits for `key` or tries for it.
    pub(crate) fn enter<'a>(self: &'a Arc<Self>, key: &'a Key) -> Option<FirstAttempt<'a>> {
        let mut by_key = self.by_key.lock();
        match by_key.entry(key.clone()) {
            hash_map::Entry::Occupied(_) => return None,
            hash_map::Entry::Vacant(vacant) => {
                // What is freed from here on calls.
                vacant.insert(KeyLine {
                    trying: true,
                    seen: 1,
                    ..KeyLine::new()
                });
            }
        }
        self.count.store(by_key.len(), Ordering::Release);
        drop(by_key);
        Some(FirstAttempt {
            lines: self,
            key,
            open: true,
        })
    }

    /// Joins the line of `key`; `bell` is woken when the place becomes the first one, and when the first one is called.
    pub(crate) fn join(self: &Arc<Self>, key: &Key, bell: Arc<dyn Wake>) -> LineTicket {
        let mut by_key = self.by_key.lock();
        let line = by_key.entry(key.clone()).or_insert_with(KeyLine::new);
        let id = line.next_id();
        line.waiters.push_back((id, bell));
        self.count.store(by_key.len(), Ordering::Release);
        drop(by_key);
        self.ticket(key.clone(), id)
    }

    fn ticket(self: &Arc<Self>, key: Key, id: u64) -> LineTicket {
        LineTicket {
            lines: Arc::clone(self),
            key,
            id,
            owner: Owner::current(),
        }
    }

    /// Removes the line of `key` if it is empty, and answers it: the caller drops it after the mutex is free, because the store's
    /// code runs in the drop of its watch.
    fn tidy(&self, by_key: &mut HashMap<Key, KeyLine>, key: &Key) -> Option<KeyLine> {
        let needless = by_key
            .get(key)
            .is_some_and(|line| line.waiters.is_empty() && !line.trying);
        let line = if needless { by_key.remove(key) } else { None };
        self.count.store(by_key.len(), Ordering::Release);
        line
    }
}

impl FirstAttempt<'_> {
    /// The attempt was granted: callers that came meanwhile wait for its release.
    pub(crate) fn granted(mut self) {
        self.close(false);
    }

    /// The attempt was not granted: the first place in line.
    pub(crate) fn into_ticket(mut self, bell: Arc<dyn Wake>) -> LineTicket {
        self.open = false;
        let mut by_key = self.lines.by_key.lock();
        let line = by_key.entry(self.key.clone()).or_insert_with(KeyLine::new);
        line.trying = false;
        // The lock may have been freed between the attempt's answer and now, when no caller was in line to be called.
        line.seen = line.freed - 1;
        let id = line.next_id();
        line.waiters.push_front((id, bell));
        drop(by_key);
        self.lines.ticket(self.key.clone(), id)
    }

    fn close(&mut self, call: bool) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        let mut by_key = self.lines.by_key.lock();
        let Some(mut line) = by_key.remove(self.key) else {
            return;
        };
        // On the path of every lock, and mostly no caller came.
        if line.waiters.is_empty() {
            self.lines.count.store(by_key.len(), Ordering::Release);
            drop(by_key);
            return;
        }
        line.trying = false;
        if call {
            line.freed += 1;
        } else {
            line.granted = self.lines.next_grant();
            line.last_outcome = Some(LineOutcome::Answered);
        }
        let next = line.first();
        by_key.insert(self.key.clone(), line);
        drop(by_key);
        if let Some(next) = next {
            next.wake();
        }
    }
}

impl Drop for FirstAttempt<'_> {
    fn drop(&mut self) {
        self.close(true);
    }
}

impl KeyLine {
    fn new() -> Self {
        Self {
            waiters: VecDeque::new(),
            trying: false,
            last_id: 0,
            // Called from the start: the lock may have been freed before the line was there.
            freed: 1,
            seen: 0,
            granted: 0,
            last_outcome: None,
            watch: WatchState::No,
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn first(&self) -> Option<Arc<dyn Wake>> {
        self.waiters.front().map(|(_, bell)| Arc::clone(bell))
    }

    fn is_first(&self, id: u64) -> bool {
        !self.trying && self.waiters.front().is_some_and(|(first, _)| *first == id)
    }
}

impl LineTicket {
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Whether it is first in line, and whether the lock may have been freed since the last attempt.
    pub(crate) fn standing(&self) -> Standing {
        let by_key = self.lines.by_key.lock();
        let line = by_key.get(&self.key).filter(|line| line.is_first(self.id));
        Standing {
            first: line.is_some(),
            called: line.is_some_and(|line| line.freed != line.seen),
        }
    }

    /// An attempt begins. If it is the first one's, what is freed from here on calls again; a call that came before belongs to
    /// the first one, also if another place asks.
    pub(crate) fn begin_attempt(&self) {
        if let Some(line) = self.lines.by_key.lock().get_mut(&self.key)
            && line.is_first(self.id)
        {
            line.seen = line.freed;
        }
    }

    /// The attempt was granted.
    pub(crate) fn granted(&self) {
        self.lines.granted(&self.key);
    }

    /// The attempt was answered, or met `trouble`.
    pub(crate) fn note(&self, trouble: Option<&LockError>) {
        self.lines.note(&self.key, trouble);
    }

    /// What the last attempt of the line came to; `None` if there was none, or it is still under way.
    pub(crate) fn last_outcome(&self) -> Option<LineOutcome> {
        let by_key = self.lines.by_key.lock();
        Some(match by_key.get(&self.key)?.last_outcome.as_ref()? {
            LineOutcome::Answered => LineOutcome::Answered,
            LineOutcome::Trouble(trouble) => LineOutcome::Trouble(trouble.retold()),
        })
    }

    /// Has the store call the line, if this place is the first, the store can, and it was not asked yet. The store calls once when
    /// it begins to watch: the attempt that follows finds what was freed before that.
    pub(crate) fn watch(&self, store: &dyn Backend) {
        {
            let mut by_key = self.lines.by_key.lock();
            let Some(line) = by_key
                .get_mut(&self.key)
                .filter(|l| matches!(l.watch, WatchState::No) && l.is_first(self.id))
            else {
                return;
            };
            line.watch = WatchState::Asked;
            // Its first call is worth waiting for: an attempt before it would have to be made again.
            line.seen = line.freed;
        }
        let (lines, key) = (Arc::downgrade(&self.lines), self.key.clone());
        let watch = store.watch(
            &self.key,
            Arc::new(move || {
                if let Some(lines) = lines.upgrade() {
                    lines.freed(&key);
                }
            }),
        );
        let mut by_key = self.lines.by_key.lock();
        // The line is there as long as this place is.
        let Some(line) = by_key.get_mut(&self.key) else {
            return;
        };
        match watch {
            Some(watch) => line.watch = WatchState::Yes(watch),
            None => line.freed += 1,
        }
    }
}

impl Drop for LineTicket {
    fn drop(&mut self) {
        // In a forked child the mutex may be locked for ever, and no caller waits.
        if !self.owner.is_this_process() {
            return;
        }
        let mut by_key = self.lines.by_key.lock();
        let Some(line) = by_key.get_mut(&self.key) else {
            return;
        };
        let was_first = line.is_first(self.id);
        line.waiters.retain(|(id, _)| *id != self.id);
        let next = if was_first { line.first() } else { None };
        let empty = self.lines.tidy(&mut by_key, &self.key);
        drop(by_key);
        drop(empty);
        if let Some(next) = next {
            next.wake();
        }
    }
}
