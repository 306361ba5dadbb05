//! What belongs to one process and must not be shared with a forked child.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks deep a process may be before a second row of places is made.
const GENERATIONS: usize = 16;

/// A static that every process has for itself: a forked child never sees its parent's value, whose threads do not exist in
/// it and whose mutexes may be locked for ever. What the parent left is kept, untouched, also where the fork fell into its
/// making.
pub(crate) struct PerProcess<T> {
    places: [Place<T>; GENERATIONS],
    more: OnceLock<Box<Self>>,
}

struct Place<T> {
    /// The process it belongs to; 0 is nobody. Decides, without a lock, whether the cell may be touched.
    owner: AtomicU32,
    cell: OnceLock<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self {
            places: [const {
                Place {
                    owner: AtomicU32::new(0),
                    cell: OnceLock::new(),
                }
            }; GENERATIONS],
            more: OnceLock::new(),
        }
    }

    /// This process's value, made with `make` at its first use.
    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> &T {
        self.get_as(std::process::id(), make)
    }

    fn get_as(&self, pid: u32, make: impl FnOnce() -> T) -> &T {
        let mut row = self;
        loop {
            let mine = row.places.iter().find(|place| {
                let before =
                    place
                        .owner
                        .compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire);
                before.is_ok() || before == Err(pid)
            });
            match mine {
                Some(place) => return place.cell.get_or_init(make),
                None => row = row.more.get_or_init(|| Box::new(Self::new())),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn nobody_waits_for_another_process() {
        static VALUES: PerProcess<u32> = PerProcess::new();
        let (begun, made) = (mpsc::channel(), mpsc::channel::<()>());
        let first = std::thread::spawn(move || {
            *VALUES.get_as(1, || {
                begun.0.send(()).expect("a listener");
                made.1.recv().expect("its end");
                10
            })
        });
        begun.1.recv().expect("it began");
        // As a child forked just now.
        assert_eq!(VALUES.get_as(2, || 20), &20);
        made.0.send(()).expect("a listener");
        assert_eq!(first.join().expect("no panic"), 10);
        for pid in 1..100 {
            assert_eq!(VALUES.get_as(pid, || pid * 10), &(pid * 10));
        }
        assert_eq!(VALUES.get_as(1, || 0), &10);
    }
}
