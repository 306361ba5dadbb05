//! [`Renewals`]: the threads on which a client's renewals run, the most urgent first. It uses `sync` and `threads`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::sync::Mutex;
use crate::runtime::threads;

/// A renewal that is due. It may block, and must not panic.
pub(crate) trait Renewal: Send + Sync {
    fn renew(self: Arc<Self>);
}

/// Each renewal has a thread while it is under way, so that one that hangs delays no other, and none between two of them.
///
/// There are no more threads than `limit`: renewals over that would wait for a connection anyway. They wait here instead, where
/// they cost less, in the order of their deadlines.
pub(crate) struct Renewals {
    state: Mutex<RenewalsState>,
    limit: usize,
}

#[derive(Default)]
struct RenewalsState {
    /// By the time on the local clock at which the lease is lost; the number tells those with the same time apart.
    waiting: BTreeMap<(Duration, u64), Arc<dyn Renewal>>,
    last_number: u64,
    threads: usize,
}

impl Renewals {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(RenewalsState::default()),
            limit,
        })
    }

    /// Has `renewal` run soon. False if no thread runs and none can be started: then it is not kept.
    pub(crate) fn add(self: &Arc<Self>, deadline: Duration, renewal: Arc<dyn Renewal>) -> bool {
        let mut state = self.state.lock();
        state.last_number += 1;
        let place = (deadline, state.last_number);
        state.waiting.insert(place, renewal);
        if state.threads >= self.limit {
            return true;
        }
        state.threads += 1;
        drop(state);
        let me = Arc::clone(self);
        if threads::spawn("syncguard-beat", move || me.work()).is_ok() {
            return true;
        }
        let mut state = self.state.lock();
        state.threads -= 1;
        // A thread leaves under the mutex and only when nothing waits: one that is still counted takes this renewal.
        if state.threads > 0 {
            return true;
        }
        let kept_back = state.waiting.remove(&place);
        drop(state);
        kept_back.is_none()
    }

    fn work(&self) {
        let mut state = self.state.lock();
        while let Some((_, renewal)) = state.waiting.pop_first() {
            drop(state);
            renewal.renew();
            state = self.state.lock();
        }
        state.threads -= 1;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const WAIT: Duration = Duration::from_secs(30);

    /// Says its name when it begins, and ends when it is told to.
    struct Told {
        name: u64,
        begun: mpsc::Sender<u64>,
        end: Mutex<Option<mpsc::Receiver<()>>>,
    }

    impl Renewal for Told {
        fn renew(self: Arc<Self>) {
            self.begun.send(self.name).unwrap_or_default();
            if let Some(end) = self.end.lock().take() {
                end.recv().unwrap_or_default();
            }
        }
    }

    fn at(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_nearest_deadline_comes_first_and_threads_have_a_limit() {
        let renewals = Renewals::new(2);
        let (begun, order) = mpsc::channel();
        let add = |name: u64, end: Option<mpsc::Receiver<()>>| {
            let renewal = Told {
                name,
                begun: begun.clone(),
                end: Mutex::new(end),
            };
            assert!(renewals.add(at(name), Arc::new(renewal)));
        };
        let (let_first_go, first) = mpsc::channel();
        let (let_second_go, second) = mpsc::channel();
        add(90, Some(first));
        assert_eq!(order.recv_timeout(WAIT), Ok(90));
        add(80, Some(second));
        assert_eq!(order.recv_timeout(WAIT), Ok(80), "it has its own thread");
        for name in [30, 10, 20] {
            add(name, None);
        }
        assert_eq!(renewals.state.lock().threads, 2);
        assert_eq!(renewals.state.lock().waiting.len(), 3);
        drop(let_first_go);
        let next: Vec<_> = (0..3).map(|_| order.recv_timeout(WAIT)).collect();
        assert_eq!(next, [Ok(10), Ok(20), Ok(30)]);
        drop(let_second_go);
        let end = std::time::Instant::now() + WAIT;
        while renewals.state.lock().threads > 0 {
            assert!(std::time::Instant::now() < end, "a thread stayed");
            std::thread::yield_now();
        }
    }
}
