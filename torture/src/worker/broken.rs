//! Clients and stores with a fault each, which the torture must find.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use syncguard::{
    Absence, AcquireOutcome, Backend, Call, Capabilities, Client, ClientOptions, ExtendOutcome,
    Fence, Key, LockError, LockId, LookupBy, PostgresBackend, RedisBackend, ReleaseOutcome,
    SqliteBackend, StoredLock, Ttl, Watch,
};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Takes every renewal for granted.
    DeafToLoss,
    /// A release also removes the lock of the next holder.
    ReleasesOthers,
    /// Some calls end long after their bound.
    Slow,
    /// A cancel does not end a call.
    DeafToCancel,
    /// Each grant leaves a thread and a descriptor behind.
    Leaky,
    /// The store keeps a dead holder's lock for four seconds more.
    Late,
    /// The store gives a lock away after a quarter of its lease.
    Early,
    /// The fences of a key begin again.
    ForgetsFences,
    /// An acquire whose answer was lost is not undone.
    NoUndo,
    /// The URL is written to stderr.
    TellsSecrets,
    /// The server forgets everything when it is killed.
    NoDurability,
    /// The resource accepts the writes of former holders.
    OpenGate,
    /// A callback is told twice.
    ToldTwice,
    /// A forked child releases its parent's lock.
    ChildReleases,
}

impl Break {
    pub const ALL: [Self; 14] = [
        Self::DeafToLoss,
        Self::ReleasesOthers,
        Self::Slow,
        Self::DeafToCancel,
        Self::Leaky,
        Self::Late,
        Self::Early,
        Self::ForgetsFences,
        Self::NoUndo,
        Self::TellsSecrets,
        Self::NoDurability,
        Self::OpenGate,
        Self::ToldTwice,
        Self::ChildReleases,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::DeafToLoss => "deaf-to-loss",
            Self::ReleasesOthers => "releases-others",
            Self::Slow => "slow",
            Self::DeafToCancel => "deaf-to-cancel",
            Self::Leaky => "leaky",
            Self::Late => "late",
            Self::Early => "early",
            Self::ForgetsFences => "forgets-fences",
            Self::NoUndo => "no-undo",
            Self::TellsSecrets => "tells-secrets",
            Self::NoDurability => "no-durability",
            Self::OpenGate => "open-gate",
            Self::ToldTwice => "told-twice",
            Self::ChildReleases => "child-releases",
        }
    }

    /// The promise that it breaks.
    pub fn promise(self) -> usize {
        match self {
            Self::DeafToLoss => 6,
            Self::ReleasesOthers => 9,
            Self::Slow => 4,
            Self::DeafToCancel => 5,
            Self::Leaky => 11,
            Self::Late | Self::Early => 7,
            Self::ForgetsFences | Self::NoDurability => 2,
            Self::NoUndo => 8,
            Self::TellsSecrets => 13,
            Self::OpenGate => 3,
            Self::ToldTwice => 10,
            Self::ChildReleases => 12,
        }
    }

    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|how| how.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            format!(
                "nothing can be broken like {name:?}; there is {}",
                names.join(", ")
            )
        })
    }
}

/// A client over a store that is broken.
pub fn open(how: Break, url: &str, options: &ClientOptions) -> Result<Client, LockError> {
    let inner: Arc<dyn Backend> = match url.split(':').next() {
        Some("redis") => Arc::new(RedisBackend::open(url, options)?),
        Some("postgres") => Arc::new(PostgresBackend::open(url, options)?),
        _ => Arc::new(SqliteBackend::open(url, options)?),
    };
    if how == Break::TellsSecrets {
        eprintln!("connecting to {url}");
    }
    let broken = Broken {
        inner,
        how,
        count: AtomicU64::new(0),
        keys: Mutex::default(),
        failed: Mutex::default(),
    };
    Client::from_backend_with(broken, options)
}

struct Broken {
    inner: Arc<dyn Backend>,
    how: Break,
    count: AtomicU64,
    keys: Mutex<HashMap<LockId, Key>>,
    failed: Mutex<HashSet<LockId>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same call without its cancel.
fn deaf_call(call: &Call<'_>) -> Call<'static> {
    Call::new().within(call.remaining().unwrap_or(Duration::from_secs(1)))
}

impl Broken {
    fn heard<'a>(&self, call: &'a Call<'a>, deaf: &'a Call<'a>) -> &'a Call<'a> {
        match self.how {
            Break::DeafToCancel => deaf,
            _ => call,
        }
    }

    fn ttl(&self, ttl: Ttl) -> Ttl {
        let given = ttl.as_duration();
        let other = match self.how {
            Break::Late => given + Duration::from_secs(4),
            Break::Early => (given / 4).max(Duration::from_millis(1)),
            _ => given,
        };
        Ttl::new(other).unwrap_or(ttl)
    }

    fn every(&self, n: u64) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed).is_multiple_of(n)
    }
}

impl Backend for Broken {
    fn acquire(
        &self,
        key: &Key,
        id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let deaf = deaf_call(call);
        let call = self.heard(call, &deaf);
        let mut answer = self.inner.acquire(key, id, self.ttl(ttl), call);
        match (self.how, &mut answer) {
            (Break::Slow, _) if self.every(20) => {
                let left = call.remaining().unwrap_or_default();
                std::thread::sleep(left + Duration::from_millis(600));
            }
            (Break::Leaky, Ok(AcquireOutcome::Acquired(_))) => {
                std::mem::forget(std::fs::File::open("/dev/null"));
                std::thread::spawn(|| {
                    loop {
                        std::thread::park();
                    }
                });
            }
            (Break::ForgetsFences, Ok(AcquireOutcome::Acquired(grant))) => {
                grant.fence = Fence::new(grant.fence.get() % 5 + 1).expect("a fence");
            }
            (Break::ReleasesOthers, Ok(AcquireOutcome::Acquired(_))) => {
                lock(&self.keys).insert(*id, key.clone());
            }
            (Break::NoUndo, Err(_)) => {
                lock(&self.failed).insert(*id);
            }
            _ => {}
        }
        answer
    }

    fn release(&self, id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        if lock(&self.failed).contains(id) {
            return Ok(ReleaseOutcome::Absent(Absence::NotFound));
        }
        let answer = self.inner.release(id, call);
        let key = lock(&self.keys).remove(id);
        if let Some(key) = key {
            // Time for the next holder.
            std::thread::sleep(Duration::from_millis(5));
            if let Ok(Some(next)) = self.inner.find(LookupBy::Key(&key), call) {
                let _ = self.inner.release(&next.lock_id, call);
            }
        }
        answer
    }

    fn extend(&self, id: &LockId, ttl: Ttl, call: &Call<'_>) -> Result<ExtendOutcome, LockError> {
        let answer = self.inner.extend(id, self.ttl(ttl), call);
        if self.how == Break::DeafToLoss {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let ends = now.unwrap_or_default() + ttl.as_duration();
            return Ok(ExtendOutcome::Extended(ends.as_millis() as i64));
        }
        answer
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let deaf = deaf_call(call);
        self.inner.is_locked(key, self.heard(call, &deaf))
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let deaf = deaf_call(call);
        self.inner.find(by, self.heard(call, &deaf))
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn watch(&self, key: &Key, freed: Arc<dyn Fn() + Send + Sync>) -> Option<Watch> {
        self.inner.watch(key, freed)
    }
}
