//! Who waits for which key. The waiters of one client stand in line: the first one competes in the store, the others wait for
//! their turn, so that a burst is served in order and puts the load of one waiter on the store.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::backend::{Backend, Watch};
use crate::key::Key;
use crate::sync::Mutex;
use crate::wake::Wake;

/// The lines of one client.
#[derive(Default)]
pub(crate) struct Queue {
    lines: Mutex<HashMap<Key, Line>>,
    /// How many lines there are, to be asked without the mutex: most locks are never waited for.
    count: AtomicUsize,
}

struct Line {
    waiters: VecDeque<(u64, Arc<dyn Wake>)>,
    last_id: u64,
    /// Grows whenever the lock may have been freed.
    freed: u64,
    /// What `freed` was before the last attempt of whoever came first in line. It stays with the line when the first one
    /// leaves: a call that it did not answer is the next one's.
    seen: u64,
    watch: Watching,
}

enum Watching {
    /// Nobody has asked the store.
    No,
    /// The store is being asked, or calls, or cannot.
    Asked,
    Yes(#[allow(dead_code)] Watch),
}

/// A place in a line. Left when dropped.
pub(crate) struct Place {
    queue: Arc<Queue>,
    key: Key,
    id: u64,
    pid: u32,
}

impl Queue {
    /// Whether somebody stands in line for `key`.
    pub(crate) fn is_waited_for(&self, key: &Key) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.lines.lock().contains_key(key)
    }

    /// The lock of `key` may be free: calls the first in line.
    pub(crate) fn freed(&self, key: &Key) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let first = self.lines.lock().get_mut(key).and_then(|line| {
            line.freed += 1;
            line.first()
        });
        if let Some(first) = first {
            first.wake();
        }
    }

    /// Joins the line of `key`; `bell` is woken when the place becomes the first one, and when the first one is called.
    pub(crate) fn join(self: &Arc<Self>, key: &Key, bell: Arc<dyn Wake>) -> Place {
        let mut lines = self.lines.lock();
        let line = lines.entry(key.clone()).or_insert_with(|| Line {
            waiters: VecDeque::new(),
            last_id: 0,
            // Called from the start: the lock may have been freed before the line was there.
            freed: 1,
            seen: 0,
            watch: Watching::No,
        });
        line.last_id += 1;
        let id = line.last_id;
        line.waiters.push_back((id, bell));
        self.count.store(lines.len(), Ordering::SeqCst);
        drop(lines);
        Place {
            queue: Arc::clone(self),
            key: key.clone(),
            id,
            pid: std::process::id(),
        }
    }
}

impl Line {
    fn first(&self) -> Option<Arc<dyn Wake>> {
        self.waiters.front().map(|(_, bell)| Arc::clone(bell))
    }

    fn is_first(&self, id: u64) -> bool {
        self.waiters.front().is_some_and(|(first, _)| *first == id)
    }
}

impl Place {
    /// Whether it is this one's turn to compete.
    pub(crate) fn is_first(&self) -> bool {
        self.queue
            .lines
            .lock()
            .get(&self.key)
            .is_some_and(|line| line.is_first(self.id))
    }

    /// Whether it is first in line and the lock may have been freed since the last attempt.
    pub(crate) fn is_called(&self) -> bool {
        self.queue
            .lines
            .lock()
            .get(&self.key)
            .is_some_and(|line| line.is_first(self.id) && line.freed != line.seen)
    }

    /// An attempt begins: what is freed from here on calls again.
    pub(crate) fn begin_attempt(&self) {
        if let Some(line) = self.queue.lines.lock().get_mut(&self.key) {
            line.seen = line.freed;
        }
    }

    /// Has the store call the line, if it can and nobody has asked it yet. It calls once when it begins to listen: what was
    /// freed before that is found by the attempt that follows.
    pub(crate) fn watch(&self, store: &dyn Backend) {
        {
            let mut lines = self.queue.lines.lock();
            let Some(line) = lines
                .get_mut(&self.key)
                .filter(|l| matches!(l.watch, Watching::No))
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
        if std::process::id() != self.pid {
            return;
        }
        let mut lines = self.queue.lines.lock();
        let Some(line) = lines.get_mut(&self.key) else {
            return;
        };
        let was_first = line.is_first(self.id);
        line.waiters.retain(|(id, _)| *id != self.id);
        let next = if was_first { line.first() } else { None };
        // The watch of an empty line ends after the mutex is free: the store's code runs in its drop.
        let empty = if line.waiters.is_empty() {
            lines.remove(&self.key)
        } else {
            None
        };
        self.queue.count.store(lines.len(), Ordering::SeqCst);
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
            first.is_called() && !second.is_called(),
            "what was freed before the line was there"
        );
        first.begin_attempt();
        assert!(!first.is_called());
        queue.freed(&key);
        assert!(first.is_called() && rung(&a) == 1 && rung(&b) == 0);
        drop(first);
        assert!(
            second.is_first() && second.is_called() && rung(&b) == 1,
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
        assert!(places[0].is_first() && !places[0].is_called() && rung(&bells[2]) == 1);
    }
}
