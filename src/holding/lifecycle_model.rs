//! Every interleaving of a guard's timer, heartbeat, callback, extend and release, tried by loom (`make model`).
//!
//! Loom has no time: a tick of the clock is a thread, and a wait ends only when it is notified.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use loom::thread;
use std::time::Duration;

use crate::backend::call::Call;
use crate::holding::lifecycle::{
    ExtendTurn, Extension, Lease, Lifecycle, LostCallback, ReleaseTurn, Ring,
};
use crate::options::lock::Pace;
use crate::types::ttl::Ttl;

const TTL: Duration = Duration::from_secs(30);
const RENEWAL: Duration = Duration::from_secs(10);

struct WatchedGuard {
    life: Lifecycle,
    /// A release was given its turn: nothing may be sent or called from here on.
    resting: AtomicBool,
    in_flight: AtomicUsize,
    /// By [`LostCallback`].
    reports: [AtomicUsize; 2],
    reporting: AtomicUsize,
}

impl WatchedGuard {
    fn new(pace: Pace) -> Arc<Self> {
        let life = Lifecycle::new(Lease {
            sent: Duration::ZERO,
            ttl: ttl(),
            pace,
            early: 0,
            max_hold: None,
            expires_at_ms: 0,
            callbacks: [true, true],
        });
        Arc::new(Self {
            life,
            resting: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            reports: [AtomicUsize::new(0), AtomicUsize::new(0)],
            reporting: AtomicUsize::new(0),
        })
    }

    fn send(&self) {
        assert!(
            !self.resting.load(SeqCst),
            "a renewal was sent after the release had begun"
        );
        assert_eq!(
            self.in_flight.fetch_add(1, SeqCst),
            0,
            "two extends in flight"
        );
        thread::yield_now();
        assert!(
            !self.resting.load(SeqCst),
            "a release was sent beside a renewal"
        );
        self.in_flight.fetch_sub(1, SeqCst);
    }

    fn report(&self, lost_now: bool) {
        if lost_now {
            for which in LostCallback::ALL {
                self.call_back(which);
            }
        }
    }

    fn call_back(&self, which: LostCallback) {
        if self.life.begin_report(which) {
            assert!(
                !self.resting.load(SeqCst),
                "a lost callback began after the release"
            );
            assert_eq!(
                self.reports[which as usize].fetch_add(1, SeqCst),
                0,
                "a second lost callback"
            );
            self.reporting.fetch_add(1, SeqCst);
            thread::yield_now();
            self.reporting.fetch_sub(1, SeqCst);
            self.life.end_report(which);
        }
    }

    fn reported(&self) -> [usize; 2] {
        [0, 1].map(|which: usize| self.reports[which].load(SeqCst))
    }

    fn tick(&self, now: Duration) {
        self.report(self.life.ring(now) == Ring::Lost);
    }

    /// The heartbeat's thread, as the timer starts it.
    fn beat(&self, answers: &Extension) {
        if !matches!(self.life.ring(RENEWAL), Ring::Start(_)) {
            return;
        }
        while let Some((ttl, _)) = self.life.next_renewal() {
            self.send();
            let effect = self.life.end_extend(RENEWAL, RENEWAL, ttl, answers, TTL);
            self.report(effect.lost_now);
        }
    }

    fn release(&self) {
        match self.life.begin_release(&far()) {
            ReleaseTurn::Send => {
                self.resting.store(true, SeqCst);
                assert_eq!(
                    self.reporting.load(SeqCst),
                    0,
                    "a release did not wait for the callback"
                );
                assert_eq!(self.in_flight.load(SeqCst), 0);
                self.life.end_release(true);
            }
            ReleaseTurn::Known => {}
            ReleaseTurn::Stopped => panic!("nothing keeps a release from its turn for ever"),
        }
    }
}

fn ttl() -> Ttl {
    Ttl::new(TTL).expect("a legal ttl")
}

fn far() -> Call<'static> {
    Call::new().within(Duration::from_secs(3600))
}

fn spawn(
    watched: &Arc<WatchedGuard>,
    body: impl FnOnce(&WatchedGuard) + 'static,
) -> thread::JoinHandle<()> {
    let watched = Arc::clone(watched);
    thread::spawn(move || body(&watched))
}

#[test]
fn no_callback_begins_once_a_release_has() {
    loom::model(|| {
        let guard = WatchedGuard::new(Pace::Never);
        let timer = spawn(&guard, |g| g.tick(TTL));
        guard.release();
        timer.join().expect("the timer ends");
        assert!(
            !LostCallback::ALL
                .iter()
                .any(|w| guard.life.begin_report(*w))
        );
    });
}

/// Each of the two callbacks runs on a thread of its own.
#[test]
fn a_release_waits_for_both_callbacks_and_starts_none() {
    loom::model(|| {
        let guard = WatchedGuard::new(Pace::Never);
        assert!(guard.life.is_lost(TTL).1);
        let own = spawn(&guard, |g| g.call_back(LostCallback::Guard));
        let client = spawn(&guard, |g| g.call_back(LostCallback::Client));
        guard.release();
        own.join().expect("the guard's callback ends");
        client.join().expect("the client's callback ends");
    });
}

#[test]
fn no_renewal_is_sent_once_a_release_has_begun() {
    loom::model(|| {
        let guard = WatchedGuard::new(Pace::Third);
        let beat = spawn(&guard, |g| g.beat(&Extension::Extended(1)));
        guard.release();
        beat.join().expect("the heartbeat ends");
    });
}

#[test]
fn a_loss_is_told_once_however_it_is_found() {
    loom::model(|| {
        let guard = WatchedGuard::new(Pace::Third);
        let beat = spawn(&guard, |g| g.beat(&Extension::Absent));
        let timer = spawn(&guard, |g| g.tick(TTL));
        let (lost, lost_now) = guard.life.is_lost(TTL);
        guard.report(lost_now);
        assert!(lost);
        timer.join().expect("the timer ends");
        beat.join().expect("the heartbeat ends");
        assert_eq!(guard.reported(), [1, 1]);
    });
}

#[test]
fn one_extend_is_in_flight_at_a_time() {
    loom::model(|| {
        let guard = WatchedGuard::new(Pace::Third);
        let beat = spawn(&guard, |g| g.beat(&Extension::Extended(1)));
        let manual = spawn(&guard, |g| {
            if let (ExtendTurn::Send(ttl, _), _) = g.life.begin_extend(RENEWAL, ttl(), &far()) {
                g.send();
                let _ = g
                    .life
                    .end_extend(RENEWAL, RENEWAL, ttl, &Extension::Extended(2), TTL);
            }
        });
        manual.join().expect("the extend ends");
        guard.release();
        beat.join().expect("the heartbeat ends");
    });
}

/// A thread that finds a manual extend in flight leaves: the renewal is made by it, by that extend, or is due once more.
#[test]
fn no_renewal_that_was_due_is_forgotten() {
    loom::model(|| {
        let guard = WatchedGuard::new(Pace::Third);
        let beat = spawn(&guard, |g| g.beat(&Extension::Extended(1)));
        let (turn, _) = guard.life.begin_extend(RENEWAL, ttl(), &far());
        if let ExtendTurn::Send(ttl, _) = turn {
            guard.send();
            let how = Extension::Refused;
            let _ = guard.life.end_extend(RENEWAL, RENEWAL, ttl, &how, TTL);
        }
        beat.join().expect("the heartbeat ends");
        let renewed = guard.life.expires_at_ms() == 1;
        assert!(
            renewed || guard.life.alarm() == Some(RENEWAL),
            "neither renewed nor due"
        );
    });
}

#[test]
fn an_answer_after_the_deadline_revives_nothing() {
    loom::model(|| {
        let guard = WatchedGuard::new(Pace::Never);
        let extend = spawn(&guard, |g| {
            if let (ExtendTurn::Send(ttl, _), _) = g.life.begin_extend(RENEWAL, ttl(), &far()) {
                let how = Extension::Extended(1);
                let effect = g.life.end_extend(TTL, RENEWAL, ttl, &how, TTL);
                assert!(!effect.held, "the lease ended before the answer came");
                g.report(effect.lost_now);
            }
        });
        let timer = spawn(&guard, |g| g.tick(TTL));
        extend.join().expect("the extend ends");
        assert!(guard.life.is_lost(TTL).0);
        timer.join().expect("the timer ends");
        assert_eq!(guard.reported(), [1, 1]);
    });
}

#[test]
fn one_of_two_releases_is_sent() {
    loom::model(|| {
        let guard = WatchedGuard::new(Pace::Never);
        let other = spawn(&guard, WatchedGuard::release);
        guard.release();
        other.join().expect("the other release ends");
        assert!(matches!(
            guard.life.begin_release(&far()),
            ReleaseTurn::Known
        ));
    });
}

#[test]
fn a_heartbeat_that_cannot_start_keeps_no_release_waiting() {
    loom::model(|| {
        let guard = WatchedGuard::new(Pace::Third);
        let timer = spawn(&guard, |g| {
            if matches!(g.life.ring(RENEWAL), Ring::Start(_)) {
                let _ = g.life.not_started(RENEWAL);
            }
        });
        guard.release();
        timer.join().expect("the timer ends");
        assert_eq!(guard.life.alarm(), None);
    });
}

#[test]
fn every_wait_for_the_loss_is_woken() {
    loom::model(|| {
        let guard = WatchedGuard::new(Pace::Never);
        let waiter = spawn(&guard, |g| {
            g.life.wait_lost(&Call::new());
            assert!(g.life.loss().is_some());
        });
        guard.tick(TTL);
        waiter.join().expect("the waiter ends");
    });
}
