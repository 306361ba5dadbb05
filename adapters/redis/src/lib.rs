#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_debug_implementations)]

mod connections;
mod scripts;

use std::fmt;
use std::sync::Arc;

use r2d2::ManageConnection;
use syncguard::format::redis as format;
use syncguard::{
    AcquireOutcome, Backend, Call, Capabilities, ExtendOutcome, FenceSource, HelperCall,
    HelperThreads, HolderText, Key, KeySpace, ListOptions, ListPage, LockError, LockId, LookupBy,
    MAX_FENCE, ReleaseOutcome, StoredLock, TIME_TOLERANCE_MS, TimedReply, Ttl,
};

use self::connections::{Connections, SharedPool};
use self::format::Reply;
use self::scripts::{Request, Script, Scripts};

/// Locks in Redis over the connections of a program's own pool, in one budget with its other work. They are the locks of
/// [`RedisBackend`](https://docs.rs/syncguard): the same scripts, the same stored names, the same fences.
///
/// ```no_run
/// use syncguard::Client;
/// use syncguard_redis_pool::RedisPool;
///
/// let pool = r2d2::Pool::builder()
///     .test_on_check_out(false) // its PING would be a trip more for every call
///     .build(redis::Client::open("redis://127.0.0.1/")?)?;
/// let client = Client::from_backend(RedisPool::new(pool.clone()));
/// let guard = client.lock("invoice:42")?;
/// println!("fence {}", guard.fence());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What is weaker than the built-in driver
/// - **Time.** A call ends by its deadline and soon after a cancel, on a server that has stopped, is silent or answers a byte at a
///   time: a thread of the adapter makes it, and the caller leaves that thread alone. The thread and its connection stay with the
///   server until it answers or the connection breaks. At most [`max_size`](r2d2::Pool::max_size) threads and one more can be stuck
///   at once; a call that finds all of them stuck ends by its deadline with `RateLimited`.
/// - **Latency.** The way to that thread and back costs some ten microseconds per call, and more on a busy machine.
/// - **Waiting.** Nothing listens for releases: a waiter asks the store again after its retry delay.
/// - **Renewals** go before other calls of the adapter, but no connection is kept for them: size the pool so that the program's own
///   work leaves one free, or locks are lost.
/// - **Topologies** are those of the pool: one server. `MOVED` and a replica are errors.
/// - **Gates** (`Client::fenced_set` and its kin) are not there. [`gate::redis`](syncguard::gate) has their scripts, for a connection of yours.
/// - **Fork.** The pool's threads are not in a forked child: open another pool there.
///
/// `docs/own-pools.md` in the repository has the figures beside those of the built-in driver.
///
/// # Connections
/// A connection that was dropped while it idled costs no call: the call goes on, within its deadline, on another one. The exception is
/// a release whose answer was lost and whose repetition finds nothing: that is an error of unknown effect. A connection on which a read failed,
/// with a `read_timeout` that the program has set for one, never goes back into the pool: it is closed, or stays out.
///
/// `Send` and `Sync`.
pub struct RedisPool {
    connections: Arc<dyn Connections>,
    threads: HelperThreads,
    names: KeySpace,
    fences: FenceSource,
    scripts: Scripts,
}

impl RedisPool {
    /// Locks over the connections of `pool`, under the prefix `syncguard`. No I/O.
    ///
    /// The pool may be of [`redis::Client`], or of any manager that makes [`redis::Connection`]s. With
    /// [`test_on_check_out`](r2d2::Pool::test_on_check_out), the default of r2d2, every call makes a trip more;
    /// [`check`](Backend::check) warns of it.
    ///
    /// ```no_run
    /// use syncguard_redis_pool::RedisPool;
    ///
    /// let pool = r2d2::Pool::builder().test_on_check_out(false).build(redis::Client::open("redis://127.0.0.1/")?)?;
    /// let store = RedisPool::new(pool);
    /// # drop(store);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new<M>(pool: r2d2::Pool<M>) -> Self
    where
        M: ManageConnection<Connection = redis::Connection>,
    {
        let names = KeySpace::redis(syncguard::DEFAULT_KEY_PREFIX);
        Self {
            threads: HelperThreads::new(pool.max_size() as usize + 1),
            connections: Arc::new(SharedPool::new(pool)),
            names: names.unwrap_or_else(|_| unreachable!("the default prefix is a legal one")),
            fences: FenceSource::Counter,
            scripts: Scripts::new(),
        }
    }

    /// The same under another prefix. All clients of a lock must have the same.
    ///
    /// ```no_run
    /// # let pool = r2d2::Pool::new(redis::Client::open("redis://127.0.0.1/")?)?;
    /// let store = syncguard_redis_pool::RedisPool::new(pool).with_key_prefix("app")?;
    /// # drop(store);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](syncguard::ErrorCode::InvalidArgument) for a prefix that cannot be right: choose another one.
    pub fn with_key_prefix(self, prefix: &str) -> Result<Self, LockError> {
        Ok(Self {
            names: KeySpace::redis(prefix)?,
            ..self
        })
    }

    /// The same with fences from this source. The default is [`FenceSource::Counter`].
    ///
    /// ```no_run
    /// use syncguard::FenceSource;
    ///
    /// # let pool = r2d2::Pool::new(redis::Client::open("redis://127.0.0.1/")?)?;
    /// let store = syncguard_redis_pool::RedisPool::new(pool).with_fences(FenceSource::Clock);
    /// # drop(store);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_fences(self, fences: FenceSource) -> Self {
        Self { fences, ..self }
    }

    /// How many threads of the adapter are with the server now. While the server has stopped, they are stuck there, each with a
    /// connection of the pool.
    ///
    /// ```no_run
    /// # let pool = r2d2::Pool::new(redis::Client::open("redis://127.0.0.1/")?)?;
    /// let store = syncguard_redis_pool::RedisPool::new(pool);
    /// assert_eq!(store.threads_at_work(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn threads_at_work(&self) -> usize {
        self.threads.at_work()
    }

    /// Has a thread send one script, and reads its answer there.
    fn run<T: Send + 'static>(
        &self,
        request: Request,
        call: &Call<'_>,
        read: impl FnOnce(&Reply) -> Result<T, LockError> + Send + 'static,
    ) -> Result<T, LockError> {
        let connections = Arc::clone(&self.connections);
        let first = request.upkeep;
        let work = move |helper: &HelperCall| {
            let repeatable = request.repeatable;
            let answer = connections::exchange(&connections, helper, |connection| {
                request.send(connection, helper)
            })?;
            let reply = answer.reply;
            match (&reply, answer.lost) {
                // The first request may have released it.
                (Reply::Integer(-2..=0), Some(lost)) if !repeatable => Err(lost),
                _ => read(&reply),
            }
        };
        match first {
            true => self.threads.run_first(call, work),
            false => self.threads.run(call, work),
        }
    }

    fn script(&self, script: &Script, keys: Vec<String>, args: Vec<String>) -> Request {
        Request::new(script, keys, args)
    }
}

impl Backend for RedisPool {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let lock = self.names.lock(key)?;
        let (fence, index) = (self.names.fence(&lock)?, self.names.index(lock_id)?);
        let script = match self.fences {
            FenceSource::Clock => &self.scripts.acquire_by_clock,
            _ => &self.scripts.acquire,
        };
        let head = match call.holder() {
            Some(text) => format::value_head_of(key, lock_id, text),
            None => format::value_head_of(key, lock_id, &HolderText::new("")?),
        };
        let args = vec![
            lock_id.as_str().to_owned(),
            ttl.as_millis().to_string(),
            TIME_TOLERANCE_MS.to_string(),
            MAX_FENCE.to_string(),
            head,
        ];
        let id = *lock_id;
        let request = self.script(script, vec![lock, fence, index], args);
        self.run(request.in_time(), call, move |reply| {
            format::read_acquire(reply, &id)
        })
        .map_err(|e| e.for_key(key))
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        let args = vec![lock_id.as_str().to_owned(), TIME_TOLERANCE_MS.to_string()];
        let keys = vec![self.names.index(lock_id)?];
        let request = self.script(&self.scripts.release, keys, args);
        self.run(request.first().once(), call, format::read_release)
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        let args = vec![
            lock_id.as_str().to_owned(),
            ttl.as_millis().to_string(),
            TIME_TOLERANCE_MS.to_string(),
        ];
        let keys = vec![self.names.index(lock_id)?];
        let request = self.script(&self.scripts.extend, keys, args);
        let id = *lock_id;
        self.run(request.first().in_time(), call, move |reply| {
            format::read_extend(reply, &id)
        })
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let args = vec![TIME_TOLERANCE_MS.to_string()];
        let request = self.script(&self.scripts.is_locked, vec![self.names.lock(key)?], args);
        self.run(request, call, format::read_is_locked)
            .map_err(|e| e.for_key(key))
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let tolerance = TIME_TOLERANCE_MS.to_string();
        match by {
            LookupBy::Key(key) => {
                let lock = self.names.lock(key)?;
                let request = self.script(&self.scripts.find_by_key, vec![lock], vec![tolerance]);
                let key = key.clone();
                let named = key.clone();
                self.run(request, call, move |reply| {
                    format::read_find(reply, LookupBy::Key(&key))
                })
                .map_err(|e| e.for_key(&named))
            }
            LookupBy::LockId(id) => {
                let (keys, id) = (vec![self.names.index(id)?], *id);
                let args = vec![id.as_str().to_owned(), tolerance];
                let request = self.script(&self.scripts.find_by_id, keys, args);
                self.run(request, call, move |reply| {
                    format::read_find(reply, LookupBy::LockId(&id))
                })
            }
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("redis-pool").with_fence_source(self.fences)
    }

    /// Runs every command that the scripts need, and looks at the server's eviction and persistence; warns of a pool that tests its
    /// connections with a trip.
    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        let index = self.names.index(&LockId::random()?)?;
        let request = self.script(&self.scripts.rehearse, vec![index], Vec::new());
        let connections = Arc::clone(&self.connections);
        let mut warnings = self.threads.run(call, move |helper| {
            let answer = connections::exchange(&connections, helper, |connection| {
                let rehearsed = request.send(connection, helper)?;
                let info = connection.ask(&["INFO"])?;
                let config = connection.ask(&["CONFIG", "GET", "*appendfsync*"])?;
                Ok(Reply::Array(vec![rehearsed, info, config]))
            })?;
            match answer.reply {
                Reply::Array(replies) => match &replies[..] {
                    [rehearsed, info, config] => format::read_check(rehearsed, info, config),
                    _ => unreachable!("made of three above"),
                },
                _ => unreachable!("made of three above"),
            }
        })?;
        if self.connections.tests_on_check_out() {
            warnings.push(
                "the pool tests each connection that it hands out (test_on_check_out), which is a trip more for every call; build it \
                 with test_on_check_out(false)"
                    .to_owned(),
            );
        }
        Ok(warnings)
    }

    fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        let args = format::list_arguments(&self.names, &options.checked()?)?;
        let slot = self.names.index(&LockId::random()?)?;
        let request = self.script(&self.scripts.list, vec![slot], args.to_vec());
        self.run(request, call, format::read_list)
    }
}

impl fmt::Debug for RedisPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisPool")
            .field("prefix", &self.names.prefix())
            .field("fences", &self.fences)
            .finish_non_exhaustive()
    }
}

/// Whether a reply of a script that changes a lease says that the request came too late.
fn timed(reply: Reply) -> TimedReply<Reply> {
    match format::too_late(&reply) {
        Some(now_ms) => TimedReply::TooLate { now_ms },
        None => TimedReply::Answer(reply),
    }
}
