//! Those of the contenders that live in this program: the floor, ourselves, and the peers that are SQL alone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use syncguard::{
    AcquireOutcome, Backend, Backoff, Call, Client, ClientOptions, ErrorCode, Guard, Jitter, Key,
    LockId, LockOptions, Ttl,
};

use super::byhand::ByHand;
use super::pgraw::{Advisory, EightTrips, PostgresSession};
use super::protocol::Protocol;
use super::servers::Target;
use super::session::{Pipeline, Recording};
use super::sqlite;

/// A caller that takes a lock and gives it back.
pub trait Caller: Send {
    /// Whether it was granted; false if the caller's own time was over.
    fn acquire(&mut self) -> Result<bool, String>;
    fn release(&mut self) -> Result<(), String>;
    /// How many locks it takes at once.
    fn locks(&self) -> usize {
        1
    }
}

/// How callers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// What the library does if nothing is said.
    Default,
    /// A try every two milliseconds, without end.
    Tuned,
    /// The default pace, without end.
    Patient,
}

impl Wait {
    pub fn parse(word: &str) -> Result<Self, String> {
        match word {
            "default" => Ok(Self::Default),
            "tuned" => Ok(Self::Tuned),
            "patient" => Ok(Self::Patient),
            other => Err(format!("no such way to wait: {other}")),
        }
    }

    pub fn options(self) -> LockOptions {
        let long = Duration::from_secs(600);
        match self {
            Self::Default => LockOptions::new(),
            Self::Patient => LockOptions::new().acquire_timeout(long),
            Self::Tuned => LockOptions::new()
                .acquire_timeout(long)
                .retry_delay(Duration::from_millis(2))
                .backoff(Backoff::Fixed)
                .jitter(Jitter::Full),
        }
    }
}

/// A way to lock. `kind` is `floor`, `pipeline`, `verbs`, `lock`, `default-pool`, `apart`, `by-hand`, `advisory` or `eight-trips`; the
/// URL says where.
pub struct Contender {
    kind: String,
    url: String,
    recording: Option<Arc<Recording>>,
}

impl Contender {
    pub fn new(kind: &str, url: &str) -> Result<Self, String> {
        let recording = match (kind, Target::of(url)) {
            ("floor" | "pipeline", Target::Redis(socket)) => {
                Some(Recording::make(Protocol::Redis, &socket, 0, TTL)?)
            }
            ("floor", Target::Postgres(socket, port)) => {
                Some(Recording::make(Protocol::Postgres, &socket, port, TTL)?)
            }
            _ => None,
        };
        Ok(Self {
            kind: kind.to_owned(),
            url: url.to_owned(),
            recording: recording.map(Arc::new),
        })
    }

    /// Callers of keys of their own that share one client, as the threads of a program do.
    pub fn crowd(&self, count: usize) -> Result<Vec<Box<dyn Caller>>, String> {
        if let ("pipeline", Some(recording), Target::Redis(socket)) =
            (&*self.kind, &self.recording, Target::of(&self.url))
        {
            return Ok(vec![Box::new(Pipeline::open(recording, &socket, count)?)]);
        }
        let client = self.client(count + 1)?;
        (0..count)
            .map(|i| self.caller(&client, &key(i), i, None))
            .collect()
    }

    /// Callers of one key that share one client, or have one each.
    pub fn rivals(
        &self,
        count: usize,
        key: &str,
        wait: Wait,
    ) -> Result<Vec<Box<dyn Caller>>, String> {
        let shared = self.client(count + 1)?;
        // As many connections as callers, made and used now and not in the first rush: a session of Postgres takes milliseconds to
        // make its plans, once.
        at_once(0..count, |_, n| {
            let look = shared.try_lock(format!("{key}-before-{n}"));
            look.map(drop).map_err(|e| e.to_string())
        })?;
        self.of_one_key(&shared, count, key, wait)
    }

    /// The same for callers that do nothing but wait: one of them has a connection in use.
    pub fn waiters(
        &self,
        count: usize,
        key: &str,
        wait: Wait,
    ) -> Result<Vec<Box<dyn Caller>>, String> {
        self.of_one_key(&self.client(count + 1)?, count, key, wait)
    }

    fn of_one_key(
        &self,
        shared: &Client,
        count: usize,
        key: &str,
        wait: Wait,
    ) -> Result<Vec<Box<dyn Caller>>, String> {
        (0..count)
            .map(|i| {
                let client = if self.kind == "apart" {
                    self.client(2)?
                } else {
                    shared.clone()
                };
                self.caller(&client, key, i, Some(wait))
            })
            .collect()
    }

    pub fn client(&self, pool: usize) -> Result<Client, String> {
        let options = match &*self.kind {
            "default-pool" => ClientOptions::new(),
            _ => ClientOptions::new().pool_size(pool),
        };
        Client::open_with(&self.url, &options).map_err(|e| e.to_string())
    }

    fn caller(
        &self,
        client: &Client,
        key: &str,
        number: usize,
        wait: Option<Wait>,
    ) -> Result<Box<dyn Caller>, String> {
        let bare = |e: String| format!("{}: {e}", self.kind);
        let mut caller: Box<dyn Caller> = match (&*self.kind, Target::of(&self.url)) {
            ("verbs", _) => Box::new(Verbs::new(client.clone(), key)?),
            ("lock" | "default-pool" | "apart", _) => Box::new(Locks {
                client: client.clone(),
                key: key.to_owned(),
                options: wait.unwrap_or(Wait::Default).options(),
                guard: None,
            }),
            ("floor", Target::Sqlite(path)) => Box::new(Statements::new(&path, key)?),
            ("floor", Target::Redis(socket) | Target::Postgres(socket, _)) => {
                let recording = self.recording.as_ref().ok_or("no recording")?;
                Box::new(recording.open(&socket, number).map_err(bare)?)
            }
            ("by-hand", Target::Redis(socket)) => Box::new(ByHand::open(&socket, key)?),
            ("advisory", Target::Postgres(socket, _)) => Box::new(Advisory {
                session: PostgresSession::open(&socket)?,
                key: key.to_owned(),
            }),
            ("eight-trips", Target::Postgres(socket, _)) => Box::new(EightTrips::new(
                PostgresSession::open(&socket)?,
                key.to_owned(),
            )?),
            _ => return Err(format!("no contender {} on {}", self.kind, self.url)),
        };
        // Connections are made now and not in the first measured cycle.
        match wait {
            None => {
                caller.acquire()?;
                caller.release()?;
            }
            Some(_) => {
                let key = Key::new(key).map_err(|e| e.to_string())?;
                client
                    .is_locked_with(&key, &Call::new())
                    .map_err(|e| e.to_string())?;
            }
        }
        Ok(caller)
    }
}

/// Does the work for each of `all` in a thread of its own, which is told the number of its turn.
pub fn at_once<A: Send, T: Send>(
    all: impl IntoIterator<Item = A>,
    work: impl Fn(usize, A) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = all
            .into_iter()
            .enumerate()
            .map(|(n, one)| scope.spawn(move || work(n, one)))
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().map_err(|_| "a caller panicked".to_owned())?)
            .collect()
    })
}

pub const TTL: Duration = Duration::from_secs(30);

pub fn key(number: usize) -> String {
    format!("bench-{number:08}")
}

/// Lock ids made before anything is measured, for callers that are handed theirs.
pub fn ids() -> Result<Vec<LockId>, String> {
    (0..256)
        .map(|_| LockId::random().map_err(|e| e.to_string()))
        .collect()
}

/// The verbs of the library.
pub struct Verbs<B> {
    store: B,
    key: Key,
    ttl: Ttl,
    held: Option<LockId>,
}

impl<B: Backend> Verbs<B> {
    pub fn new(store: B, key: &str) -> Result<Self, String> {
        Ok(Self {
            store,
            key: Key::new(key).map_err(|e| e.to_string())?,
            ttl: Ttl::new(TTL).map_err(|e| e.to_string())?,
            held: None,
        })
    }
}

impl<B: Backend> Caller for Verbs<B> {
    fn acquire(&mut self) -> Result<bool, String> {
        // A caller of the verbs makes an id for every grant.
        let id = LockId::random().map_err(|e| e.to_string())?;
        self.held = Some(id);
        match self.store.acquire(&self.key, &id, self.ttl, &Call::new()) {
            Ok(AcquireOutcome::Acquired(_)) => Ok(true),
            Ok(AcquireOutcome::Locked(_)) => Ok(false),
            Err(e) => Err(e.to_string()),
        }
    }

    fn release(&mut self) -> Result<(), String> {
        let id = self.held.take().ok_or("nothing is held")?;
        match self.store.release(&id, &Call::new()) {
            Ok(outcome) if outcome.is_released() => Ok(()),
            other => Err(format!("release: {other:?}")),
        }
    }
}

/// `lock()`, and the guard's drop.
struct Locks {
    client: Client,
    key: String,
    options: LockOptions,
    guard: Option<Guard>,
}

impl Caller for Locks {
    fn acquire(&mut self) -> Result<bool, String> {
        match self.client.lock_with(&self.key, &self.options) {
            Ok(guard) => {
                self.guard = Some(guard);
                Ok(true)
            }
            Err(e) if e.code() == ErrorCode::AcquisitionTimeout => Ok(false),
            Err(e) => Err(e.to_string()),
        }
    }

    fn release(&mut self) -> Result<(), String> {
        match self.guard.take() {
            Some(guard) if !guard.is_lost() => Ok(()),
            _ => Err("the guard was lost".to_owned()),
        }
    }
}

/// SQLite without the library.
struct Statements {
    connection: Connection,
    key: String,
    fence_key: String,
    ids: Vec<LockId>,
    next: usize,
}

impl Statements {
    fn new(path: &Path, key: &str) -> Result<Self, String> {
        // The tables are the library's.
        let url = format!("sqlite:{}", path.display());
        let library = Client::open(&url).map_err(|e| e.to_string())?;
        library.setup_schema().map_err(|e| e.to_string())?;
        drop(library);
        let connection = sqlite::connect(path);
        connection
            .busy_timeout(Duration::from_secs(30))
            .map_err(|e| e.to_string())?;
        // The library's side has the same file, and keys of its own.
        let key = format!("{key}-bare");
        Ok(Self {
            connection,
            fence_key: format!("fence:{key}"),
            key,
            ids: ids()?,
            next: 0,
        })
    }
}

impl Caller for Statements {
    fn acquire(&mut self) -> Result<bool, String> {
        self.next = (self.next + 1) % self.ids.len();
        sqlite::acquire(
            &self.connection,
            &self.key,
            &self.fence_key,
            &self.ids[self.next],
        );
        Ok(true)
    }

    fn release(&mut self) -> Result<(), String> {
        sqlite::release(&self.connection, &self.key, &self.ids[self.next]);
        Ok(())
    }
}
