//! A worker in Rust: threads that take, hold, extend and release locks in every way, and write down what they believe. The workers
//! in C (`worker.c`) and Go (`ffi/go/internal/torture`) do the same.

pub mod broken;
mod calls;
pub use calls::VERBS;
mod holds;
mod left;
mod watch;

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use syncguard::{Client, ClientOptions, LockError, LockId};

use crate::clock;
use crate::random::Random;
use crate::record::{Log, Record, kind};
use broken::Break;

pub const THREADS: u64 = 3;
/// The operation timeout and the dispose timeout of every client.
pub const OPERATION_MS: u64 = 800;
pub const CONNECT_MS: u64 = 500;
/// Keys that all workers contend for: those that are held for moments, all with short leases, and those with long ones.
pub const HOT_KEYS: u64 = 4;
pub const SHORT_KEYS: u64 = 7;
pub const LONG_KEYS: u64 = 2;
/// The lease of an acquire whose outcome is to become unknown, and of the long keys.
pub const UNKNOWN_TTL_MS: u64 = 120_000;
pub const LONG_TTL_MS: u64 = 4_000;

/// How a worker is started: what stands on its command line, in this order.
#[derive(Clone)]
pub struct Orders {
    pub url: String,
    pub log: PathBuf,
    /// Where the lock ids go.
    pub ids: PathBuf,
    pub gate: PathBuf,
    pub seed: u64,
    /// Every start of a worker in a run has another number.
    pub incarnation: i64,
    pub slot: u64,
    /// When it ends, on the boot-time clock.
    pub end: i64,
    pub broken: Option<Break>,
}

impl Orders {
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            self.url.clone(),
            self.log.display().to_string(),
            self.ids.display().to_string(),
            self.gate.display().to_string(),
            self.seed.to_string(),
            self.incarnation.to_string(),
            self.slot.to_string(),
            self.end.to_string(),
        ];
        arguments.extend(self.broken.map(|how| how.name().to_owned()));
        arguments
    }

    pub fn parse(arguments: &[String]) -> Option<Self> {
        let text = |n: usize| arguments.get(n).cloned();
        Some(Self {
            url: text(0)?,
            log: text(1)?.into(),
            ids: text(2)?.into(),
            gate: text(3)?.into(),
            seed: text(4)?.parse().ok()?,
            incarnation: text(5)?.parse().ok()?,
            slot: text(6)?.parse().ok()?,
            end: text(7)?.parse().ok()?,
            broken: text(8).map(|name| Break::parse(&name)).transpose().ok()?,
        })
    }
}

/// The text of a key. No output may have its beginning.
pub const KEY_CANARY: &str = "canary-key-";

pub fn key_name(key: i64) -> String {
    format!("{KEY_CANARY}{key}")
}

/// What the threads of a worker share.
struct Shared {
    orders: Orders,
    log: Log,
    ids: File,
    /// The calls that the threads make.
    watched: Mutex<Vec<Arc<calls::OwnCall>>>,
    holds: AtomicI64,
    unknowns: AtomicI64,
    told: Mutex<HashSet<String>>,
}

impl Shared {
    fn write(&self, record: Record) {
        self.log.write(record);
    }

    /// Writes down a lock id, which no output may have.
    fn note_id(&self, id: &LockId) {
        (&self.ids)
            .write_all(format!("{}\n", id.as_str()).as_bytes())
            .expect("memory for the lock ids");
    }

    fn next_hold(&self) -> i64 {
        self.orders.incarnation * 1_000_000_000 + self.holds.fetch_add(1, Ordering::Relaxed)
    }

    /// A key that no other call has.
    fn fresh_key(&self) -> i64 {
        (self.orders.incarnation + 1) * 1_000_000 + self.unknowns.fetch_add(1, Ordering::Relaxed)
    }

    /// Every text of an error goes to stderr once, where it is searched for secrets.
    fn tell(&self, error: &LockError) {
        let text = format!("{error} | {error:?}");
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < 200 && told.insert(text.clone()) {
            eprintln!("{text}");
        }
    }
}

/// One thread of a worker.
struct Worker {
    shared: Arc<Shared>,
    client: Client,
    random: Random,
    gate: UnixStream,
    /// The key that only this thread uses.
    private: i64,
}

impl Worker {
    /// Writes to the resource.
    fn write_to_resource(&mut self, key: i64, fence: u64, hold: i64) {
        let mut request = Vec::with_capacity(crate::gate::REQUEST);
        for word in [key, i64::try_from(fence).unwrap_or(i64::MAX), hold] {
            request.extend(word.to_ne_bytes());
        }
        let mut answer = [0];
        let sent = self.gate.write_all(&request);
        if sent
            .and_then(|()| self.gate.read_exact(&mut answer))
            .is_err()
        {
            // The coordinator has ended.
            std::process::exit(0);
        }
    }

    /// The first thread of a worker mostly takes locks that change hands all the time.
    fn is_runner(&self) -> bool {
        self.private % 10 == 0
    }

    /// The last thread of a worker mostly holds its own key, through renewals: losses and deaths meet it.
    fn is_keeper(&self) -> bool {
        self.private % 10 == THREADS as i64 - 1
    }

    fn work(&mut self) {
        if !self.is_runner() && !self.is_keeper() {
            self.fork_with_guard();
        }
        while clock::now() < self.shared.orders.end {
            if self.is_keeper() && !self.random.one_in(8) {
                self.private_cycle();
                continue;
            }
            if self.is_runner() && !self.random.one_in(8) {
                self.hot_cycles();
                continue;
            }
            match self.random.between(0, 99) {
                0..5 => self.hot_cycles(),
                5..40 => self.contended_cycle(),
                40..50 => self.private_cycle(),
                50..65 => self.bare_cycle(),
                65..78 => self.look_around(),
                78..98 => self.unknown_acquire(),
                _ => self.fork_with_guard(),
            }
        }
    }
}

/// Works until its end, and ends the process.
pub fn run(orders: Orders) {
    let start = left::Resources::now();
    let shared = Arc::new(Shared {
        log: Log::open(&orders.log).expect("a file for the records"),
        ids: File::create(&orders.ids).expect("a file for the lock ids"),
        watched: Mutex::default(),
        orders: orders.clone(),
        holds: AtomicI64::new(0),
        unknowns: AtomicI64::new(0),
        told: Mutex::default(),
    });
    let watched = Arc::clone(&shared);
    std::thread::spawn(move || watch::watch(&watched));
    let options = ClientOptions::new()
        .connect_timeout(Duration::from_millis(CONNECT_MS))
        .operation_timeout(Duration::from_millis(OPERATION_MS))
        .dispose_timeout(Duration::from_millis(OPERATION_MS));
    let client = match orders.broken {
        None => Client::open_with(&orders.url, &options),
        Some(how) => broken::open(how, &orders.url, &options),
    };
    let client = client.expect("a client");
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let mut worker = Worker {
                shared: Arc::clone(&shared),
                client: client.clone(),
                random: Random::new(orders.seed.wrapping_add(thread << 40)),
                gate: UnixStream::connect(&orders.gate).expect("the resource"),
                private: (100 + orders.slot * 10 + thread) as i64,
            };
            std::thread::spawn(move || worker.work())
        })
        .collect();
    watch::note_memory(&shared);
    for thread in threads {
        thread.join().expect("no panic in a worker");
    }
    drop(client);
    left::report(&shared, &start);
    shared.write(Record {
        kind: kind::EXIT,
        at: clock::now(),
        ..Record::default()
    });
}
