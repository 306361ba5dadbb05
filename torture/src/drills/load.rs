//! Callers that take locks all the time, and write down what they were granted.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use syncguard::{
    AcquireOutcome, Backend, Call, Client, ClientOptions, FenceSource, Key, LockId,
    PostgresBackend, RedisBackend, Ttl,
};

use crate::clock;
use crate::reference::Reference;

/// Callers that take a lock and release it, on keys for which they contend.
const CYCLING: usize = 4;
const CONTENDED_KEYS: usize = 3;
/// Their lease: what a failover leaves behind must not keep a key for the rest of the round.
const SHORT_TTL: Duration = Duration::from_millis(1_000);
/// Callers that take one lock after the other and keep them.
const KEEPING: usize = 2;
/// Far longer than a failover, so that these leases run when the new primary is asked for them.
const LONG_TTL: Duration = Duration::from_secs(300);
/// How long a caller waits between two locks that it keeps.
const PACE: Duration = Duration::from_millis(5);
/// Far longer than a failover takes.
const WAIT_LIMIT: Duration = Duration::from_secs(150);

/// Where the fences of the callers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fences {
    Counter,
    Clock,
    /// One caller counts; the others have the clock. On Redis it takes its locks as a client of the TypeScript library does.
    Mixed,
}

impl Fences {
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "counter" => Ok(Self::Counter),
            "clock" => Ok(Self::Clock),
            "mixed" => Ok(Self::Mixed),
            _ => Err(format!("{name:?} is none of counter, clock, mixed")),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Clock => "clock",
            Self::Mixed => "mixed",
        }
    }

    /// The options of a caller.
    pub fn set_on(self, options: ClientOptions, caller: usize) -> ClientOptions {
        let clock = match self {
            Self::Counter => false,
            Self::Clock => true,
            Self::Mixed => caller != 0,
        };
        options.fences(match clock {
            true => FenceSource::Clock,
            false => FenceSource::Counter,
        })
    }
}

/// A lock that a store acknowledged. Times are those of the boot-time clock.
#[derive(Clone, Debug)]
pub struct Grant {
    pub key: Key,
    pub id: LockId,
    pub fence: u64,
    /// When it was asked for.
    pub begun: i64,
    /// The holder believes in it from the answer to the end of its lease or the begin of its release.
    pub from: i64,
    pub until: i64,
    /// Whether it is kept to the end of the round.
    pub kept: bool,
}

pub fn open(url: &str, options: &ClientOptions) -> Box<dyn Backend> {
    if url.starts_with("postgres") {
        Box::new(PostgresBackend::open(url, options).expect("a good URL"))
    } else {
        Box::new(RedisBackend::open(url, options).expect("a good URL"))
    }
}

/// Asks once; nothing if it was not granted.
pub fn acquire(store: &dyn Backend, key: &Key, ttl: Duration) -> Option<Grant> {
    let id = LockId::random().expect("randomness");
    let lease = Ttl::new(ttl).expect("a legal ttl");
    let begun = clock::now();
    match store.acquire(key, &id, lease, &Call::new()) {
        Ok(AcquireOutcome::Acquired(grant)) => Some(Grant {
            key: key.clone(),
            id,
            fence: grant.fence.get(),
            begun,
            from: clock::now(),
            until: begun + ttl.as_nanos() as i64,
            kept: false,
        }),
        _ => None,
    }
}

pub fn key(text: &str) -> Key {
    Key::new(text).expect("a legal key")
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    grants: Mutex<Vec<Grant>>,
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn tell(&self, grant: Grant) {
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.push(grant);
    }

    fn first_after(&self, time: i64) -> Option<i64> {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        first_after(&grants, time)
    }
}

/// When the first grant came that was asked for after this time.
pub fn first_after(grants: &[Grant], time: i64) -> Option<i64> {
    let later = grants.iter().filter(|grant| grant.begun > time);
    later.map(|grant| grant.from).min()
}

pub struct Load {
    shared: Arc<Shared>,
    warned: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

/// What takes the locks of a caller.
type Taker = Box<dyn FnMut(&dyn Backend, &Key, Duration) -> Option<Grant> + Send>;

impl Load {
    /// `sockets` are those of the Redis servers, for the caller that has their script and no client of ours.
    pub fn start(
        url: &str,
        options: &ClientOptions,
        sockets: &[PathBuf],
        prefix: &str,
        fences: Fences,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let warned = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&warned);
        let options = options.clone().on_warning(move |text| {
            if text.contains("fences=clock") {
                told.fetch_add(1, Ordering::SeqCst);
            }
        });
        let threads = (0..CYCLING + KEEPING)
            .map(|n| {
                let shared = Arc::clone(&shared);
                let options = fences.set_on(options.clone(), n);
                // A client, because a bare store warns of nothing.
                let store = Client::open_with(url, &options).expect("a good URL");
                let mut take: Taker = Box::new(acquire);
                if fences == Fences::Mixed && n == 0 && !sockets.is_empty() {
                    let mut theirs = Reference::new(sockets, prefix);
                    take = Box::new(move |_, key, ttl| theirs.acquire(key, ttl));
                }
                std::thread::spawn(move || match n < CYCLING {
                    true => cycle(&store, take, &shared, n),
                    false => keep(&store, &shared, n),
                })
            })
            .collect();
        Self {
            shared,
            warned,
            threads,
        }
    }

    /// Of how many keys callers were warned whose fences come from the clock of others.
    pub fn warned(&self) -> usize {
        self.warned.load(Ordering::SeqCst)
    }

    /// Waits until the load has run for this long, and has got something.
    pub fn wait_for_grants(&self, time: Duration) {
        self.wait_for_grants_after(clock::now(), time);
    }

    /// Waits for the first grant of a question that was asked after `begin`, and then for `more`.
    pub fn wait_for_grants_after(&self, begin: i64, more: Duration) {
        let end = Instant::now() + WAIT_LIMIT;
        while self.shared.first_after(begin).is_none() {
            assert!(
                Instant::now() < end,
                "no lock was granted in {WAIT_LIMIT:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(more);
    }

    /// Ends the callers, and answers all that they were granted.
    pub fn stop(self) -> Vec<Grant> {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("no panic");
        }
        let mut grants = self.shared.grants.lock().expect("no panic");
        std::mem::take(&mut *grants)
    }
}

fn cycle(store: &dyn Backend, mut take: Taker, shared: &Shared, caller: usize) {
    for n in caller.. {
        if shared.stopped() {
            return;
        }
        let name = key(&format!("contended-{}", n % CONTENDED_KEYS));
        let Some(mut grant) = take(store, &name, SHORT_TTL) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        std::thread::sleep(Duration::from_millis(1));
        grant.until = grant.until.min(clock::now());
        let id = grant.id;
        shared.tell(grant);
        let _ = store.release(&id, &Call::new());
    }
}

fn keep(store: &dyn Backend, shared: &Shared, caller: usize) {
    for n in 0.. {
        if shared.stopped() {
            return;
        }
        let name = key(&format!("kept-{caller}-{n}"));
        if let Some(grant) = acquire(store, &name, LONG_TTL) {
            shared.tell(Grant {
                kept: true,
                ..grant
            });
        }
        std::thread::sleep(PACE);
    }
}
