//! Names are resolved under a deadline, by helpers that may hang.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::backend::call::Call;
use crate::runtime::cancel::CancelToken;
use crate::runtime::process::Owner;

const AMPLE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

fn within(timeout: Duration) -> Limits<'static> {
    Limits::enter(Owner::current(), timeout, &Call::new()).expect("time is left")
}

/// Names that begin with "hung" are not answered before the gate is opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
    lookups: AtomicUsize,
}

impl Gate {
    fn resolver() -> (Arc<Self>, Arc<Resolver>) {
        let gate = Arc::new(Self::default());
        let inside = Arc::clone(&gate);
        let lookup = move |host: &str| -> LookupAnswer {
            inside.lookups.fetch_add(1, Ordering::SeqCst);
            if host.starts_with("hung") {
                let mut open = inside.open.lock();
                while !*open {
                    inside.changed.wait(&mut open);
                }
            }
            match host {
                "missing" => Err("no such name".to_owned()),
                "empty" => Ok(Vec::new()),
                _ => Ok(vec![([192, 0, 2, 1], 0).into(), ([192, 0, 2, 2], 0).into()]),
            }
        };
        (gate, Resolver::new(Box::new(lookup)))
    }

    fn open(&self) {
        *self.open.lock() = true;
        self.changed.notify_all();
    }

    fn wait_for(&self, lookups: usize) {
        let deadline = Instant::now() + AMPLE;
        while self.lookups.load(Ordering::SeqCst) < lookups {
            assert!(Instant::now() < deadline, "it is not looked up");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_literal_address_asks_no_resolver() {
    for (host, ip) in [("192.0.2.7", "192.0.2.7"), ("::1", "::1"), ("[::1]", "::1")] {
        let found = addresses(host, 7, &within(AMPLE)).expect("an address");
        let ip: IpAddr = ip.parse().expect("an address");
        assert_eq!(found, [SocketAddr::new(ip, 7)]);
    }
    for host in ["", "[]", "a\0b"] {
        let error = addresses(host, 7, &within(AMPLE)).expect_err("no name");
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
}

#[test]
fn the_system_knows_this_machine() {
    let found = addresses("localhost", 7, &within(AMPLE)).expect("addresses");
    assert!(found.iter().all(|a| a.ip().is_loopback() && a.port() == 7));
}

#[test]
fn a_name_without_addresses_is_unavailable() {
    let (_, resolver) = Gate::resolver();
    for host in ["missing", "empty"] {
        let error = resolver.resolve(host, &within(AMPLE)).expect_err("none");
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
        assert!(!error.may_have_applied() && error.message().contains(host));
    }
    let found = resolver.resolve("good", &within(AMPLE)).expect("addresses");
    assert_eq!(found.len(), 2);
}

#[test]
fn a_hung_name_costs_one_helper_however_many_ask() {
    let (gate, resolver) = Gate::resolver();
    thread::scope(|scope| {
        let patient = scope.spawn(|| resolver.resolve("hung", &within(AMPLE)));
        gate.wait_for(1);
        thread::scope(|impatient| {
            for _ in 0..20 {
                impatient.spawn(|| {
                    let error = resolver.resolve("hung", &within(SHORT));
                    let error = error.expect_err("hung");
                    assert_eq!(error.code(), ErrorCode::NetworkTimeout);
                    assert!(!error.may_have_applied());
                });
            }
        });
        for i in 0..10 {
            let host = format!("good{i}");
            resolver
                .resolve(&host, &within(AMPLE))
                .expect("others go on");
        }
        assert_eq!(gate.lookups.load(Ordering::SeqCst), 11);
        gate.open();
        patient.join().expect("it ends").expect("no longer hung");
    });
}

#[test]
fn when_all_helpers_hang_nothing_piles_up() {
    let (gate, resolver) = Gate::resolver();
    thread::scope(|scope| {
        for i in 0..HELPERS {
            let resolver = &resolver;
            scope.spawn(move || resolver.resolve(&format!("hung{i}"), &within(AMPLE)));
            gate.wait_for(i + 1);
        }
        for i in 0..20 {
            let error = resolver.resolve(&format!("good{i}"), &within(SHORT));
            assert_eq!(error.expect_err("stuck").code(), ErrorCode::NetworkTimeout);
        }
        let state = resolver.state.lock();
        assert_eq!((state.helpers, state.waiting.len()), (HELPERS, 0));
        drop(state);
        gate.open();
    });
    resolver
        .resolve("good", &within(AMPLE))
        .expect("helpers are back");
}

#[test]
fn a_cancel_ends_the_wait() {
    let (gate, resolver) = Gate::resolver();
    let token = CancelToken::new();
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let limits = Limits::enter(Owner::current(), AMPLE, &Call::new().cancelled_by(&token));
            resolver
                .resolve("hung", &limits.expect("time is left"))
                .expect_err("a cancel")
        });
        gate.wait_for(1);
        let begun = Instant::now();
        token.cancel();
        assert_eq!(asking.join().expect("it ends").code(), ErrorCode::Aborted);
        assert!(begun.elapsed() < AMPLE / 2, "the deadline ended it");
    });
    gate.open();
}

#[test]
fn a_name_with_very_many_addresses_is_cut() {
    let lookup = |_: &str| -> LookupAnswer {
        let all = (0..u16::MAX).map(|n| ([192, 0, 2, 1], n).into());
        Ok(all.collect())
    };
    let resolver = Resolver::new(Box::new(lookup));
    let found = resolver.resolve("many", &within(AMPLE)).expect("addresses");
    assert_eq!(found.len(), MAX_ADDRESSES);
}
