//! Who waits for which key. The waiters of one client stand in line: the first one competes in the store, the others wait for
//! their turn, so that a burst is served in order and puts the load of one waiter on the store.

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
pub(crate) struct Queue {
    lines: Mutex<HashMap<Key, Line>>,
    /// How many lines there are, to be asked without the mutex: most locks are never waited for. Whoever joins a line tries again
    /// after that, so a release that does not see it yet is not missed.
    count: AtomicUsize,
    /// Counts the grants that those in line were given.
    grants: AtomicU64,
}

struct Line {
    waiters: VecDeque<(u64, Arc<dyn Wake>)>,
    /// Somebody who found no line makes a first attempt: those who come meanwhile wait for its outcome.
    trying: bool,
    last_id: u64,
    /// Grows whenever the lock may have been freed.
    freed: u64,
    /// What `freed` was before the last attempt of whoever came first in line. It stays with the line when the first one
    /// leaves: a call that it did not answer is the next one's.
    seen: u64,
    /// The number of the last grant to one of this line.
    granted: u64,
    /// What the last attempt of this line came to.
    known: Option<Known>,
    watch: Watching,
}

/// What the attempt of one in line tells the others, who have not asked.
pub(crate) enum Known {
    /// The store answered.
    Answered,
    Trouble(LockError),
}

enum Watching {
    /// Nobody has asked the store.
    No,
    /// The store is being asked, or calls, or cannot.
    Asked,
    Yes(#[allow(dead_code)] Watch),
}

/// A first attempt for a key that nobody else of the client wants. Whoever came meanwhile is called when it is dropped, unless
/// it was [granted](Self::granted).
pub(crate) struct Entry<'a> {
    queue: &'a Arc<Queue>,
    key: &'a Key,
    open: bool,
}

/// A place in a line. Left when dropped.
pub(crate) struct Place {
    queue: Arc<Queue>,
    key: Key,
    id: u64,
    owner: Owner,
}

impl Queue {
    /// Whether somebody stands in line for `key`, or tries for it.
    pub(crate) fn is_waited_for(&self, key: &Key) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.lines.lock().contains_key(key)
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
    /// made upon that came too early; not if one of the line was granted the lock since, for that one's release will call.
    pub(crate) fn released(&self, key: &Key, before: Option<u64>) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let first = self.lines.lock().get_mut(key).and_then(|line| {
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

    /// The lock of `key` was granted to somebody here: what called before this has been answered, and the holder's release
    /// will call.
    pub(crate) fn granted(&self, key: &Key) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(line) = self.lines.lock().get_mut(key) {
            line.seen = line.freed;
            line.granted = self.next_grant();
            line.known = Some(Known::Answered);
        }
    }

    /// An attempt of the line of `key` was answered, or met trouble that may pass.
    pub(crate) fn note(&self, key: &Key, trouble: Option<&LockError>) {
        let known = match trouble {
            None => Known::Answered,
            Some(trouble) if trouble.code().is_transient() => Known::Trouble(trouble.retold()),
            // The attempt was at fault, or was cancelled: that says nothing of the others.
            Some(_) => return,
        };
        if let Some(line) = self.lines.lock().get_mut(key) {
            line.known = Some(known);
        }
    }

    fn next_grant(&self) -> u64 {
        self.grants.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Makes way for a first attempt, if nobody waits for `key` or tries for it.
    pub(crate) fn enter<'a>(self: &'a Arc<Self>, key: &'a Key) -> Option<Entry<'a>> {
        let mut lines = self.lines.lock();
        match lines.entry(key.clone()) {
            hash_map::Entry::Occupied(_) => return None,
            hash_map::Entry::Vacant(place) => {
                // What is freed from here on calls.
                place.insert(Line {
                    trying: true,
                    seen: 1,
                    ..Line::new()
                });
            }
        }
        self.count.store(lines.len(), Ordering::Release);
        drop(lines);
        Some(Entry {
            queue: self,
            key,
            open: true,
        })
    }

    /// Joins the line of `key`; `bell` is woken when the place becomes the first one, and when the first one is called.
    pub(crate) fn join(self: &Arc<Self>, key: &Key, bell: Arc<dyn Wake>) -> Place {
        let mut lines = self.lines.lock();
        let line = lines.entry(key.clone()).or_insert_with(Line::new);
        let id = line.next_id();
        line.waiters.push_back((id, bell));
        self.count.store(lines.len(), Ordering::Release);
        drop(lines);
        self.place(key.clone(), id)
    }

    fn place(self: &Arc<Self>, key: Key, id: u64) -> Place {
        Place {
            queue: Arc::clone(self),
            key,
            id,
            owner: Owner::current(),
        }
    }

    /// Removes a line that nobody needs, and answers it: its watch ends after the mutex is free, because the store's code
    /// runs in its drop.
    fn tidy(&self, lines: &mut HashMap<Key, Line>, key: &Key) -> Option<Line> {
        let needless = lines
            .get(key)
            .is_some_and(|line| line.waiters.is_empty() && !line.trying);
        let line = if needless { lines.remove(key) } else { None };
        self.count.store(lines.len(), Ordering::Release);
        line
    }
}

impl Entry<'_> {
    /// The attempt was granted: those who came meanwhile wait for its release.
    pub(crate) fn granted(mut self) {
        self.close(false);
    }

    /// The attempt was not granted: the first place in line.
    pub(crate) fn into_place(mut self, bell: Arc<dyn Wake>) -> Place {
        self.open = false;
        let mut lines = self.queue.lines.lock();
        let line = lines.entry(self.key.clone()).or_insert_with(Line::new);
        line.trying = false;
        // The lock may have been freed between the attempt's answer and now, and nobody was there to be called.
        line.seen = line.freed - 1;
        let id = line.next_id();
        line.waiters.push_front((id, bell));
        drop(lines);
        self.queue.place(self.key.clone(), id)
    }

    fn close(&mut self, call: bool) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        let mut lines = self.queue.lines.lock();
        let Some(mut line) = lines.remove(self.key) else {
            return;
        };
        // Mostly nobody came: on the path of every lock.
        if line.waiters.is_empty() {
            self.queue.count.store(lines.len(), Ordering::Release);
            drop(lines);
            return;
        }
        line.trying = false;
        if call {
            line.freed += 1;
        } else {
            line.granted = self.queue.next_grant();
            line.known = Some(Known::Answered);
        }
        let next = line.first();
        lines.insert(self.key.clone(), line);
        drop(lines);
        if let Some(next) = next {
            next.wake();
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.close(true);
    }
}

impl Line {
    fn new() -> Self {
        Self {
            waiters: VecDeque::new(),
            trying: false,
            last_id: 0,
            // Called from the start: the lock may have been freed before the line was there.
            freed: 1,
            seen: 0,
            granted: 0,
            known: None,
            watch: Watching::No,
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

impl Place {
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Whether it is first in line, and whether the lock may have been freed since the last attempt.
    pub(crate) fn standing(&self) -> Standing {
        let lines = self.queue.lines.lock();
        let line = lines.get(&self.key).filter(|line| line.is_first(self.id));
        Standing {
            first: line.is_some(),
            called: line.is_some_and(|line| line.freed != line.seen),
        }
    }

    /// An attempt begins. If it is the first one's, what is freed from here on calls again; a call that came before belongs to
    /// the first one, also if another place asks.
    pub(crate) fn begin_attempt(&self) {
        if let Some(line) = self.queue.lines.lock().get_mut(&self.key)
            && line.is_first(self.id)
        {
            line.seen = line.freed;
        }
    }

    /// The attempt was granted.
    pub(crate) fn granted(&self) {
        self.queue.granted(&self.key);
    }

    /// The attempt was answered, or met `trouble`.
    pub(crate) fn note(&self, trouble: Option<&LockError>) {
        self.queue.note(&self.key, trouble);
    }

    /// What the last attempt of the line came to; `None` if there was none, or it is still under way.
    pub(crate) fn known(&self) -> Option<Known> {
        let lines = self.queue.lines.lock();
        Some(match lines.get(&self.key)?.known.as_ref()? {
            Known::Answered => Known::Answered,
            Known::Trouble(trouble) => Known::Trouble(trouble.retold()),
        })
    }

    /// Has the store call the line, if this place is the first, the store can, and it was not asked yet. It calls once when it
    /// begins to listen: what was freed before that is found by the attempt that follows.
    pub(crate) fn watch(&self, store: &dyn Backend) {
        {
            let mut lines = self.queue.lines.lock();
            let Some(line) = lines
                .get_mut(&self.key)
                .filter(|l| matches!(l.watch, Watching::No) && l.is_first(self.id))
            else {
                return;
            };
            line.watch = Watching::Asked;
            // Its first call is worth waiting for: an attempt before it would have to be made again.
            line.seen = line.freed;
        }
        let (queue, key) = (Arc::downgrade(&self.queue), self.key.clone());
        let watch = store.watch(
            &self.key,
            Arc::new(move || {
                if let Some(queue) = queue.upgrade() {
                    queue.freed(&key);
                }
            }),
        );
        let mut lines = self.queue.lines.lock();
        // The line is there as long as this place is.
        let Some(line) = lines.get_mut(&self.key) else {
            return;
        };
        match watch {
            Some(watch) => line.watch = Watching::Yes(watch),
            None => line.freed += 1,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // In a forked child the mutex may be locked for ever, and nobody waits.
        if !self.owner.is_this_process() {
            return;
        }
        let mut lines = self.queue.lines.lock();
        let Some(line) = lines.get_mut(&self.key) else {
            return;
        };
        let was_first = line.is_first(self.id);
        line.waiters.retain(|(id, _)| *id != self.id);
        let next = if was_first { line.first() } else { None };
        let empty = self.queue.tidy(&mut lines, &self.key);
        drop(lines);
        drop(empty);
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::error::ErrorCode;

    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn bell() -> Arc<Counter> {
        Arc::new(Counter(AtomicUsize::new(0)))
    }

    fn rung(bell: &Counter) -> usize {
        bell.0.load(Ordering::SeqCst)
    }

    #[test]
    fn the_first_is_called_and_the_others_wait_for_their_turn() {
        let queue = Arc::new(Queue::default());
        let key = Key::new("k").expect("a key");
        let (a, b) = (bell(), bell());
        let first = queue.join(&key, a.clone());
        let second = queue.join(&key, b.clone());
        assert!(
            first.standing().called && !second.standing().called,
            "what was freed before the line was there"
        );
        first.begin_attempt();
        assert!(!first.standing().called);
        queue.freed(&key);
        assert!(first.standing().called && rung(&a) == 1 && rung(&b) == 0);
        drop(first);
        assert!(
            second.standing().first && second.standing().called && rung(&b) == 1,
            "a call that was not answered is passed on"
        );
        second.begin_attempt();
        drop(second);
        assert!(!queue.is_waited_for(&key) && queue.lines.lock().is_empty());
    }

    #[test]
    fn one_that_leaves_the_middle_is_not_missed() {
        let queue = Arc::new(Queue::default());
        let key = Key::new("k").expect("a key");
        let bells = [bell(), bell(), bell()];
        let mut places: Vec<_> = bells.iter().map(|b| queue.join(&key, b.clone())).collect();
        places[0].begin_attempt();
        drop(places.remove(1));
        assert_eq!(rung(&bells[2]), 0);
        drop(places.remove(0));
        assert!(places[0].standing().first && !places[0].standing().called && rung(&bells[2]) == 1);
    }

    #[test]
    fn those_who_come_during_a_first_attempt_wait_for_its_outcome() {
        let queue = Arc::new(Queue::default());
        let key = Key::new("k").expect("a key");
        let entry = queue.enter(&key).expect("nobody else");
        assert!(queue.enter(&key).is_none());
        let second = bell();
        let place = queue.join(&key, second.clone());
        assert!(!place.standing().first);
        entry.granted();
        assert!(
            place.standing().first && !place.standing().called && rung(&second) == 1,
            "the holder's release will call"
        );
        queue.freed(&key);
        assert!(place.standing().called);
        drop(place);
        // One that failed calls whoever came meanwhile; one that was not granted stands before them.
        let entry = queue.enter(&key).expect("nobody else");
        let third = bell();
        let place = queue.join(&key, third.clone());
        drop(entry);
        assert!(place.standing().called && rung(&third) == 1);
        drop(place);
        let entry = queue.enter(&key).expect("nobody else");
        let place = queue.join(&key, bell());
        let first = entry.into_place(bell());
        assert!(first.standing().first && first.standing().called && !place.standing().first);
        drop((first, place));
        assert!(queue.lines.lock().is_empty() && !queue.is_waited_for(&key));
    }

    #[test]
    fn what_one_met_is_known_to_all_in_line() {
        let queue = Arc::new(Queue::default());
        let key = Key::new("k").expect("a key");
        let (first, second) = (queue.join(&key, bell()), queue.join(&key, bell()));
        assert!(second.known().is_none(), "nobody has asked");
        first.note(Some(&LockError::unavailable("refused")));
        assert!(matches!(
            second.known(),
            Some(Known::Trouble(e)) if e.message() == "refused" && !e.may_have_applied()
        ));
        // A caller's own cancel is not the line's trouble.
        first.note(Some(&LockError::new(ErrorCode::Aborted, "cancelled")));
        assert!(matches!(second.known(), Some(Known::Trouble(_))));
        first.note(None);
        assert!(matches!(second.known(), Some(Known::Answered)));
    }

    #[test]
    fn a_release_under_way_calls_and_calls_again_unless_it_was_answered() {
        let queue = Arc::new(Queue::default());
        let key = Key::new("k").expect("a key");
        let first = queue.join(&key, bell());
        let second = queue.join(&key, bell());
        first.begin_attempt();
        // The attempt made upon it came too early.
        let before = queue.releasing(&key);
        assert!(first.standing().called);
        first.begin_attempt();
        queue.released(&key, Some(before));
        assert!(first.standing().called);
        // It came in time, and its answer before the release's.
        let before = queue.releasing(&key);
        first.begin_attempt();
        first.granted();
        drop(first);
        queue.released(&key, Some(before));
        assert!(second.standing().first && !second.standing().called);
        // Or after it.
        let before = queue.releasing(&key);
        second.begin_attempt();
        queue.released(&key, Some(before));
        let third = queue.join(&key, bell());
        second.granted();
        drop(second);
        assert!(third.standing().first && !third.standing().called);
        // Who leaves without an answer passes the call on, and what follows.
        let before = queue.releasing(&key);
        let fourth = queue.join(&key, bell());
        third.begin_attempt();
        drop(third);
        queue.released(&key, Some(before));
        assert!(fourth.standing().called);
    }
}
