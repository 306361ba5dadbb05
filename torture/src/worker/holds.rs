//! The ways in which a worker takes, holds and gives back a lock.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork};
use syncguard::{
    AcquireOutcome, Backend, Call, CancelToken, Client, ExtendOutcome, Guard, Key, LockId,
    LockOptions, LossReason, ReleaseOutcome, Ttl,
};

use super::broken::Break;
use super::calls::{
    ACQUIRE, BARE_EXTEND, BARE_RELEASE, Canceller, DROP, EXTEND, IS_LOCKED, LOCK, LOOKUP, RELEASE,
    TRY_LOCK,
};
use super::{
    HOT_KEYS, LONG_KEYS, LONG_TTL_MS, OPERATION_MS, SHORT_KEYS, Shared, UNKNOWN_TTL_MS, Worker,
    key_name,
};
use crate::clock::{self, MS, sleep_ms};
use crate::record::{Record, kind};

thread_local! {
    /// How long a thread of the library had waited for a processor when it had called back for the last time.
    static WAITED: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

/// A lock that is held, as the records know it.
#[derive(Clone, Copy)]
struct OwnHold {
    id: i64,
    key: i64,
    fence: u64,
    ttl_ms: u64,
}

fn reason(why: Option<LossReason>) -> i64 {
    match why {
        None => 0,
        Some(LossReason::Unconfirmed) => 1,
        Some(LossReason::MaxHold) => 2,
        Some(LossReason::NotRenewed) => 3,
        Some(LossReason::Removed) => 4,
        Some(LossReason::HeartbeatFailed) => 5,
        Some(LossReason::Forked) => 6,
        Some(_) => 7,
    }
}

fn call(token: Option<&CancelToken>) -> Call<'_> {
    token.map_or_else(Call::new, |token| Call::new().cancelled_by(token))
}

impl Shared {
    fn note(&self, what: i64, hold: &OwnHold, at: i64, a: i64) {
        self.note_with(what, hold, at, a, 0);
    }

    fn note_with(&self, what: i64, hold: &OwnHold, at: i64, a: i64, expires_ms: i64) {
        self.write(Record {
            kind: what,
            id: hold.id,
            key: hold.key,
            at,
            a,
            b: hold.fence as i64,
            c: 0,
            d: expires_ms,
        });
    }

    /// Writes down a look at a guard; whether it is held. The time is read before the look, so that the belief is never longer
    /// than the guard's; a look that took long is made once more.
    fn look(&self, guard: &Guard, hold: &OwnHold) -> bool {
        for last in [false, false, true] {
            let at = clock::now();
            // Read before, so that it is never of a later renewal than the belief.
            let expires = guard.expires_at_ms();
            let remaining = guard.remaining();
            if remaining.is_zero() {
                let why = reason(guard.loss());
                self.note_with(kind::LOST, hold, at, why, guard.expires_at_ms());
                return false;
            }
            if last || clock::now() - at < MS {
                self.held(hold, at, at + remaining.as_nanos() as i64, expires);
                break;
            }
        }
        true
    }

    fn held(&self, hold: &OwnHold, at: i64, until: i64, expires_ms: i64) {
        self.write(Record {
            kind: kind::HELD,
            id: hold.id,
            key: hold.key,
            at,
            a: 0,
            b: hold.fence as i64,
            c: until,
            d: expires_ms,
        });
    }

    fn granted(&self, what: i64, hold: &OwnHold, begun: i64, at: i64, until: i64) {
        self.write(Record {
            kind: what,
            id: hold.id,
            key: hold.key,
            at,
            a: begun,
            b: hold.fence as i64,
            c: until,
            d: hold.ttl_ms as i64 * MS,
        });
    }
}

impl Worker {
    /// A key for which all workers contend, and the TTL of its leases.
    fn contended_key(&mut self) -> (i64, u64) {
        if self.random.one_in(8) {
            let key = SHORT_KEYS + self.random.next() % LONG_KEYS;
            (key as i64, LONG_TTL_MS)
        } else {
            let key = (self.random.next() % SHORT_KEYS) as i64;
            (key, self.random.between(300, 1_500))
        }
    }

    fn canceller(&mut self, one_in: u64, longest_ms: u64) -> Option<Canceller> {
        let cancels = self.random.one_in(one_in);
        let us = self.random.between(0, longest_ms * 1000);
        cancels.then(|| Canceller::after(Duration::from_micros(us)))
    }

    /// How long to hold: mostly a moment, now and then through renewals.
    fn hold_ms(&mut self, key: i64, ttl_ms: u64) -> u64 {
        if key < HOT_KEYS as i64 {
            return 0;
        }
        if key == self.private && self.is_keeper() {
            return self.random.between(ttl_ms, ttl_ms * 4);
        }
        match self.random.between(0, 99) {
            0..80 => self.random.between(0, 2),
            80..96 => self.random.between(5, 100),
            _ => self.random.between(ttl_ms / 2, ttl_ms * 5 / 2),
        }
    }

    /// Locks that change hands all the time.
    pub fn hot_cycles(&mut self) {
        for _ in 0..100 {
            if clock::now() >= self.shared.orders.end {
                return;
            }
            let key = (self.random.next() % HOT_KEYS) as i64;
            let ttl_ms = self.random.between(300, 1_500);
            let wait_ms = self.random.between(500, 2_500);
            let cancel = self.canceller(12, 5);
            self.take(key, ttl_ms, Some(wait_ms), cancel);
        }
    }

    /// Waits for a lock and holds it.
    pub fn contended_cycle(&mut self) {
        let (key, ttl_ms) = self.contended_key();
        let wait_ms = self.random.between(100, 2_500);
        let cancel = self.canceller(3, wait_ms / 2);
        self.take(key, ttl_ms, Some(wait_ms), cancel);
    }

    /// Holds a lock for which no other worker asks.
    pub fn private_cycle(&mut self) {
        let ttl_ms = self.random.between(300, 800);
        self.take(self.private, ttl_ms, None, None);
    }

    /// The options of a guard whose loss is written down.
    fn options(&self, id: i64, key: i64, ttl_ms: u64) -> LockOptions {
        let told = Arc::clone(&self.shared);
        let times = match told.orders.broken {
            Some(Break::ToldTwice) => 2,
            _ => 1,
        };
        LockOptions::new()
            .ttl(Duration::from_millis(ttl_ms))
            .retry_delay(Duration::from_millis(20))
            .on_lost(move |why| {
                for _ in 0..times {
                    told.write(Record {
                        kind: kind::TOLD,
                        id,
                        key,
                        at: clock::now(),
                        a: reason(why.loss_reason()),
                        b: 0,
                        c: clock::delayed() - WAITED.get(),
                        d: 0,
                    });
                }
                told.tell(why);
                WAITED.set(clock::delayed());
            })
    }

    fn take(&mut self, key: i64, ttl_ms: u64, wait_ms: Option<u64>, cancel: Option<Canceller>) {
        let shared = Arc::clone(&self.shared);
        let id = shared.next_hold();
        let mut options = self.options(id, key, ttl_ms);
        let renews = !self.random.one_in(10);
        if !renews {
            options = options.no_heartbeat();
        }
        let (verb, bound) = match wait_ms {
            Some(wait) => {
                options = options.acquire_timeout(Duration::from_millis(wait));
                (LOCK, wait.max(OPERATION_MS))
            }
            None => (TRY_LOCK, OPERATION_MS),
        };
        let begun = clock::now();
        let client = &self.client;
        let answer = shared.timed(verb, key, bound, cancel, |token| {
            let options = match token {
                Some(token) => options.clone().cancel(token),
                None => options.clone(),
            };
            match wait_ms {
                Some(_) => client.lock_with(key_name(key), &options).map(Some),
                None => client.try_lock_with(key_name(key), &options),
            }
        });
        match answer {
            Ok(Some(guard)) => self.hold(&guard, id, key, ttl_ms, begun),
            Ok(None) => sleep_ms(self.random.between(1, 20)),
            Err(error) => {
                shared.tell(&error);
                sleep_ms(self.random.between(1, 20));
            }
        }
    }

    fn hold(&mut self, guard: &Guard, id: i64, key: i64, ttl_ms: u64, begun: i64) {
        let shared = Arc::clone(&self.shared);
        let fence = guard.fence().get();
        shared.note_id(guard.lock_id());
        let hold = OwnHold {
            id,
            key,
            fence,
            ttl_ms,
        };
        let at = clock::now();
        shared.granted(
            kind::GRANT,
            &hold,
            begun,
            at,
            at + guard.remaining().as_nanos() as i64,
        );
        let until = clock::now() + self.hold_ms(key, ttl_ms) as i64 * MS;
        let mut held = shared.look(guard, &hold);
        while held {
            self.write_to_resource(key, fence, id);
            if clock::now() >= until {
                break;
            }
            sleep_ms(self.random.between(1, 25));
            if self.random.one_in(30) {
                self.extend(guard, &hold);
            }
            held = shared.look(guard, &hold);
        }
        if !held {
            // A former holder that did not look.
            self.write_to_resource(key, fence, id);
        }
        self.give_back(guard, &hold);
    }

    fn extend(&mut self, guard: &Guard, hold: &OwnHold) {
        let shared = Arc::clone(&self.shared);
        let cancel = self.canceller(4, 20);
        let ttl = Duration::from_millis(hold.ttl_ms);
        let begun = clock::now();
        let answer = shared.timed(EXTEND, hold.key, OPERATION_MS, cancel, |token| {
            guard.extend_with(ttl, &call(token))
        });
        match answer {
            Ok(ExtendOutcome::Extended(_)) => {}
            Ok(ExtendOutcome::Absent(_)) => shared.note(kind::ABSENT, hold, clock::now(), begun),
            Err(error) => shared.tell(&error),
        }
    }

    fn give_back(&mut self, guard: &Guard, hold: &OwnHold) {
        let shared = Arc::clone(&self.shared);
        let lock_id = *guard.lock_id();
        let at = clock::now();
        shared.note_with(kind::RELEASING, hold, at, 0, guard.expires_at_ms());
        if self.random.one_in(3) {
            shared.timed(DROP, hold.key, OPERATION_MS, None, |_| guard.dispose());
            shared.note(kind::ENDED, hold, clock::now(), 0);
            return;
        }
        let cancel = self.canceller(10, 5);
        let answer = shared.timed(RELEASE, hold.key, OPERATION_MS, cancel, |token| {
            guard.release_with(&call(token))
        });
        let at = clock::now();
        match answer {
            Ok(outcome) => {
                shared.note(kind::RELEASED, hold, at, i64::from(!outcome.is_released()));
            }
            Err(error) => {
                shared.tell(&error);
                shared.note(kind::RELEASED, hold, at, -1);
                shared.timed(DROP, hold.key, OPERATION_MS, None, |_| guard.dispose());
            }
        }
        shared.note(kind::ENDED, hold, clock::now(), 0);
        if self.random.one_in(20) {
            self.release_again(&lock_id, hold);
        }
        if self.random.one_in(20) {
            // A former holder that did not look, when the next one may have written.
            sleep_ms(self.random.between(1, 5));
            self.write_to_resource(hold.key, hold.fence, hold.id);
        }
    }

    /// Releases what is released already; by now the key may have another holder.
    fn release_again(&self, id: &LockId, hold: &OwnHold) {
        let shared = &self.shared;
        let answer = shared.timed(BARE_RELEASE, hold.key, OPERATION_MS, None, |_| {
            Backend::release(&self.client, id, &Call::new())
        });
        let outcome = match answer {
            Ok(ReleaseOutcome::Released) => 0,
            Ok(ReleaseOutcome::Absent(_)) => 1,
            Err(_) => -1,
        };
        shared.note(kind::AGAIN, hold, clock::now(), outcome);
    }

    /// The bare verbs; the belief is the caller's own arithmetic.
    pub fn bare_cycle(&mut self) {
        let shared = Arc::clone(&self.shared);
        let (key, ttl_ms) = match self.random.one_in(2) {
            true => (self.private, self.random.between(300, 1_500)),
            false => self.contended_key(),
        };
        let ttl = Ttl::new(Duration::from_millis(ttl_ms)).expect("a TTL");
        let name = Key::new(&key_name(key)).expect("a key");
        let id = LockId::random().expect("an id");
        shared.note_id(&id);
        let belief = |sent: i64| sent + (ttl_ms as i64 * 99 / 100 - 2) * MS;
        let cancel = self.canceller(3, 20);
        let begun = clock::now();
        let answer = shared.timed(ACQUIRE, key, OPERATION_MS, cancel, |token| {
            Backend::acquire(&self.client, &name, &id, ttl, &call(token))
        });
        let grant = match answer {
            Ok(AcquireOutcome::Acquired(grant)) => grant,
            Ok(AcquireOutcome::Locked(_)) => return sleep_ms(self.random.between(1, 10)),
            Err(error) => return shared.tell(&error),
        };
        let hold = OwnHold {
            id: shared.next_hold(),
            key,
            fence: grant.fence.get(),
            ttl_ms,
        };
        let mut until = belief(begun);
        let at = clock::now();
        if at < until {
            shared.granted(kind::GRANT_BARE, &hold, begun, at, until);
            self.write_to_resource(key, hold.fence, hold.id);
        }
        for _ in 0..self.random.between(0, 3) {
            sleep_ms(self.random.between(1, ttl_ms / 3));
            let sent = clock::now();
            let answer = shared.timed(BARE_EXTEND, key, OPERATION_MS, None, |_| {
                Backend::extend(&self.client, &id, ttl, &Call::new())
            });
            match answer {
                Ok(ExtendOutcome::Extended(_)) => {
                    until = belief(sent);
                    shared.held(&hold, sent, until, 0);
                }
                Ok(ExtendOutcome::Absent(_)) => {
                    shared.note(kind::ABSENT, &hold, clock::now(), sent);
                    break;
                }
                Err(error) => shared.tell(&error),
            }
            if clock::now() < until {
                self.write_to_resource(key, hold.fence, hold.id);
            }
        }
        shared.note(kind::RELEASING, &hold, clock::now(), 0);
        let answer = shared.timed(BARE_RELEASE, key, OPERATION_MS, None, |_| {
            Backend::release(&self.client, &id, &Call::new())
        });
        let outcome = answer.map_or_else(
            |error| {
                shared.tell(&error);
                -1
            },
            |outcome| i64::from(!outcome.is_released()),
        );
        shared.note(kind::RELEASED, &hold, clock::now(), outcome);
    }

    /// The reads.
    pub fn look_around(&mut self) {
        let (key, _) = self.contended_key();
        let shared = Arc::clone(&self.shared);
        let cancel = self.canceller(2, 50);
        let failed = if self.random.one_in(2) {
            let answer = shared.timed(IS_LOCKED, key, OPERATION_MS, cancel, |token| {
                self.client.is_locked_with(key_name(key), &call(token))
            });
            answer.err()
        } else {
            let answer = shared.timed(LOOKUP, key, OPERATION_MS, cancel, |token| {
                self.client.get_by_key_with(key_name(key), &call(token))
            });
            answer.err()
        };
        if let Some(error) = failed {
            shared.tell(&error);
        }
        sleep_ms(self.random.between(0, 5));
    }

    /// An acquire of a key of its own with a long lease, which is cancelled on its way. If its outcome is unknown, the library has
    /// to undo it.
    pub fn unknown_acquire(&mut self) {
        let shared = Arc::clone(&self.shared);
        let key = shared.fresh_key();
        // Half of the cancels meet a fast store, the others a slow one.
        let us = self.random.pick(&[300, 3_000]);
        let us = self.random.between(0, us);
        let cancels = !self.random.one_in(4);
        let cancel = cancels.then(|| Canceller::after(Duration::from_micros(us)));
        let options = LockOptions::new()
            .ttl(Duration::from_millis(UNKNOWN_TTL_MS))
            .acquire_timeout(Duration::from_millis(100));
        let begun = clock::now();
        let answer = shared.timed(LOCK, key, OPERATION_MS, cancel, |token| {
            let options = match token {
                Some(token) => options.clone().cancel(token),
                None => options.clone(),
            };
            self.client.lock_with(key_name(key), &options)
        });
        match answer {
            // A release of unknown outcome leaves the lock until its TTL: not what is tried here.
            Ok(guard) => {
                shared.note_id(guard.lock_id());
                drop(guard);
            }
            Err(error) => {
                shared.tell(&error);
                shared.write(Record {
                    kind: kind::UNKNOWN,
                    key,
                    at: clock::now(),
                    a: begun,
                    b: i64::from(error.may_have_applied()),
                    ..Record::default()
                });
            }
        }
        sleep_ms(self.random.between(0, 10));
    }

    /// A child that uses the guard it inherited: all of it must be refused, and the parent must keep its lock.
    pub fn fork_with_guard(&mut self) {
        let shared = Arc::clone(&self.shared);
        let key = self.private;
        let ttl_ms = 1_500;
        let id = shared.next_hold();
        let options = self.options(id, key, ttl_ms);
        let begun = clock::now();
        let Ok(Some(guard)) = self.client.try_lock_with(key_name(key), &options) else {
            return;
        };
        // SAFETY: the child uses the library, whose promise about forks this tests, and ends with `_exit`.
        let child = match unsafe { fork() } {
            Ok(ForkResult::Child) => {
                // The kernel ends a child that hangs.
                alarm::set(10);
                let refused = guard.is_lost()
                    && guard.release().is_err()
                    && self.client.is_locked("other").is_err();
                guard.dispose();
                if shared.orders.broken == Some(Break::ChildReleases) {
                    // A client of its own, which no rule about forks keeps from anything.
                    let client = Client::open(&shared.orders.url);
                    let _ = client.map(|c| Backend::release(&c, guard.lock_id(), &Call::new()));
                }
                drop(guard);
                // SAFETY: ends the process without running anything else.
                unsafe { nix::libc::_exit(i32::from(!refused)) }
            }
            Ok(ForkResult::Parent { child }) => child,
            Err(_) => return,
        };
        let harm = loop {
            match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, code)) => break i64::from(code),
                Ok(_) => break 2,
                Err(nix::errno::Errno::EINTR) => {}
                Err(_) => break 3,
            }
        };
        shared.write(Record {
            kind: kind::FORKED,
            id,
            key,
            at: clock::now(),
            a: harm,
            ..Record::default()
        });
        self.hold(&guard, id, key, ttl_ms, begun);
    }
}
