//! Makes the calls of the Rust API.

use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use crate::support::common::stopwatch::Stopwatch;
use syncguard::{
    Backend, Call, Client, ClientOptions, Guard, Key, LockId, LockOptions, LookupBy, Ttl,
};

/// All that do not wait for a lock.
pub const VERBS: &[&str] = &[
    "acquire",
    "release",
    "extend",
    "is_locked",
    "find by key",
    "find by id",
    "check",
    "setup_schema",
    "purge_expired",
    "guard.release",
    "guard.extend",
    "drop(guard)",
];

pub struct RustCalls {
    client: Client,
    call: &'static str,
    guards: Vec<Option<Guard>>,
    options: LockOptions,
}

pub struct RunningCallers {
    callers: usize,
    results: mpsc::Receiver<(Duration, Duration)>,
}

impl RustCalls {
    pub fn prepare(
        url: &str,
        call: &'static str,
        callers: usize,
        acquire_ms: u32,
        operation_ms: u32,
    ) -> Self {
        let minute = Duration::from_secs(60);
        let well = ClientOptions::new()
            .connect_timeout(minute)
            .operation_timeout(minute);
        let well = Client::open_with(url, &well).expect("a legal URL");
        well.setup_schema().expect("a schema");
        let operation = Duration::from_millis(operation_ms.into());
        let options = ClientOptions::new()
            .operation_timeout(operation)
            .dispose_timeout(operation)
            .on_release_error(|_| {})
            .on_warning(|_| {});
        let client = Client::open_with(url, &options).expect("a legal URL");
        let end = Instant::now() + minute;
        let mut guards = Vec::new();
        for n in 0..callers {
            let wants = call.starts_with("guard.") || call == "drop(guard)";
            guards.push(wants.then(|| {
                loop {
                    match client.lock(format!("{call} {n} {:?}", std::thread::current().id())) {
                        Ok(guard) => break guard,
                        // On a busy machine it may take longer than the calls are given.
                        Err(e) => assert!(Instant::now() < end, "{e}"),
                    }
                }
            }));
        }
        // A connection that was good a moment ago.
        while client.is_locked_with(key(), &Call::new()).is_err() {
            assert!(Instant::now() < end, "it never works");
        }
        let options = LockOptions::new().acquire_timeout(Duration::from_millis(acquire_ms.into()));
        Self {
            client,
            call,
            guards,
            options,
        }
    }

    pub fn go(self, bound_ms: u32) -> RunningCallers {
        let (tell, results) = mpsc::channel();
        let callers = self.guards.len();
        let start = Arc::new(Barrier::new(callers));
        for guard in self.guards {
            let (client, options, call) = (self.client.clone(), self.options.clone(), self.call);
            let (tell, start) = (tell.clone(), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                let watch = Stopwatch::start();
                let kept = make(&client, call, guard, &options);
                let (took, lost) = watch.stop_after(Duration::from_millis(bound_ms.into()));
                let _ = tell.send((took, lost));
                // A guard's drop would wait for the store.
                std::mem::forget(kept);
            });
        }
        RunningCallers { callers, results }
    }
}

impl RunningCallers {
    pub fn end(self, limit: Duration) -> Vec<(Duration, Duration)> {
        let end = Instant::now() + limit;
        (0..self.callers)
            .map(|_| {
                let left = end.saturating_duration_since(Instant::now());
                self.results.recv_timeout(left).expect("a call that ends")
            })
            .collect()
    }
}

fn key() -> Key {
    Key::new("k").expect("a key")
}

fn make(
    client: &Client,
    call: &str,
    mut guard: Option<Guard>,
    options: &LockOptions,
) -> Option<Guard> {
    let id = LockId::parse("AAAAAAAAAAAAAAAAAAAAAA").expect("an id");
    let ttl = Ttl::new(Duration::from_secs(30)).expect("a ttl");
    match call {
        "lock" => guard = client.lock_with("k", options).ok(),
        "lock, a key each" => {
            let key = format!("{:?}", std::thread::current().id());
            guard = client.lock_with(&key, options).ok();
        }
        "with_lock" => drop(client.with_lock_with("k", options, |_| ())),
        "try_lock" => guard = client.try_lock_with("k", options).ok().flatten(),
        "acquire" => drop(client.acquire(&key(), &id, ttl, &Call::new())),
        "release" => drop(client.release(&id, &Call::new())),
        "extend" => drop(client.extend(&id, ttl, &Call::new())),
        "is_locked" => drop(client.is_locked_with(key(), &Call::new())),
        "find by key" => drop(client.find(LookupBy::Key(&key()), &Call::new())),
        "find by id" => drop(client.find(LookupBy::LockId(&id), &Call::new())),
        "check" => drop(client.check()),
        "setup_schema" => drop(client.setup_schema()),
        "purge_expired" => drop(client.purge_expired_with(10, &Call::new())),
        "guard.release" => drop(guard.as_ref().map(Guard::release)),
        "guard.extend" => drop(
            guard
                .as_ref()
                .map(|guard| guard.extend(Duration::from_secs(30))),
        ),
        "drop(guard)" => drop(guard.take()),
        _ => panic!("there is no call {call}"),
    }
    guard
}
