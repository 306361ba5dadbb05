//! The Redis backend: every verb is one script and one round trip.

mod check;
mod cluster;
mod connection;
mod error;
mod resp;
mod route;
mod scripts;
mod sentinel;
mod session;
mod url;
mod value;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::cluster::Cluster;
use self::connection::{Connector, Demand};
use self::resp::Reply;
use self::route::Route;
use self::scripts::{Script, Scripts};
use self::sentinel::Sentinels;
use self::session::Servers;
use self::url::{Login, RedisUrl, Target};
use self::watch::{CHANNEL, Subscription};
use crate::backend::call::Call;
use crate::backend::keyspace::KeySpace;
use crate::backend::limits::Limits;
use crate::backend::pool::Rank;
use crate::backend::release_listener::{Ear, Freed};
use crate::backend::{
    Absence, AcquireOutcome, Backend, Capabilities, ExtendOutcome, LookupBy, ReleaseOutcome, Watch,
};
#[cfg(feature = "tls")]
use crate::net::tls::{Tls, Verify};
use crate::options::client::ClientOptions;
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::fence::{Fence, MAX_FENCE};
use crate::types::holder::Holder;
use crate::types::key::Key;
use crate::types::liveness::TIME_TOLERANCE_MS;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::Acquired;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

/// Locks in a Redis server, shared with the TypeScript library: the same key is the same lock with the same fences.
///
/// Redis removes a lock at its TTL by itself, so `cleanup_in_is_locked` and `purge_expired` have nothing to do here.
/// May be used from many threads; up to `pool_size` calls are under way at once. Fences survive a crash of the server only
/// with `appendonly yes`, `appendfsync always`, `no-appendfsync-on-rewrite no` and `maxmemory-policy noeviction`; [`check`](Backend::check) warns otherwise.
///
/// ```no_run
/// use syncguard::{Backend, Call, ClientOptions, RedisBackend};
///
/// let redis = RedisBackend::open("redis://127.0.0.1/", &ClientOptions::new())?;
/// for warning in redis.check(&Call::new())? {
///     eprintln!("{warning}");
/// }
/// # Ok::<(), syncguard::LockError>(())
/// ```
pub struct RedisBackend {
    owner: Owner,
    operation_timeout: Duration,
    space: KeySpace,
    scripts: Scripts,
    ear: Ear,
    servers: Arc<Servers>,
    tolerance: String,
    max_fence: String,
}

impl RedisBackend {
    /// A backend for the server a URL names: `redis://[user[:password]@]host[:port][/db]`, the same with `rediss://` for
    /// TLS, or `redis+unix:///path/to/redis.sock?db=0&user=…&pass=…`. Checks everything and does no I/O.
    ///
    /// With Sentinel: `redis+sentinel://[user[:password]@]host[:port],…/name[/db][?sentinel_user=…&sentinel_password=…]`, the
    /// hosts being those of the sentinels and the name that of the primary. With Redis Cluster:
    /// `redis+cluster://[user[:password]@]host[:port],…`, any of its nodes, and a `key_prefix` with a hash tag such as
    /// `{app}`. Both also with `rediss+`, for TLS to all servers.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad URL or option, and for a cluster without a hash tag.
    pub fn open(url: &str, options: &ClientOptions) -> Result<Self, LockError> {
        options.checked()?;
        let url = RedisUrl::parse(url)?;
        #[cfg(not(feature = "tls"))]
        if url.tls {
            return Err(LockError::invalid(
                "this build of syncguard lacks the feature \"tls\", which rediss needs",
            ));
        }
        let space = KeySpace::redis(&options.key_prefix)?;
        let connector = |login: Login, demand| Connector {
            login,
            demand,
            #[cfg(feature = "tls")]
            tls: url.tls.then(|| {
                let verify = if options.tls_insecure {
                    Verify::Nothing
                } else {
                    Verify::Full
                };
                Tls::new(verify, options.tls_ca_file.clone())
            }),
        };
        let (route, demand) = match url.target {
            Target::One(endpoint) => (Route::Fixed(endpoint), Demand::Anything),
            Target::Sentinel {
                sentinels,
                master,
                login,
            } => {
                let connector = connector(login, Demand::Anything);
                let sentinels = Sentinels::new(sentinels, master, connector);
                (Route::Sentinel(sentinels), Demand::Primary)
            }
            Target::Cluster(seeds) => {
                let cluster = Cluster::new(seeds, space.prefix())?;
                (Route::Cluster(cluster), Demand::ClusterNode)
            }
        };
        let owner = Owner::current();
        let servers = Arc::new(Servers::new(route, connector(url.login, demand), options));
        Ok(Self {
            owner,
            operation_timeout: options.operation_timeout,
            space,
            scripts: Scripts::new(),
            ear: ear(owner, &servers, options.connect_timeout),
            servers,
            tolerance: TIME_TOLERANCE_MS.to_string(),
            max_fence: MAX_FENCE.to_string(),
        })
    }

    fn enter<'a>(&self, call: &Call<'a>) -> Result<Limits<'a>, LockError> {
        Limits::enter(self.owner, self.operation_timeout, call)
    }

    fn run(
        &self,
        rank: Rank,
        limits: &Limits<'_>,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<Reply, LockError> {
        let reply = self.servers.exchange(
            rank,
            limits,
            |connection| {
                let reply = if script.in_time {
                    connection.run_in_time(script, keys, args, limits)?
                } else {
                    connection.run(script, keys, args, limits)?
                };
                // The index entry may have arrived before its lock, which then is not missing but elsewhere.
                let in_doubt = matches!(reply, Reply::Integer(-1) | Reply::Nil);
                if connection.asking && script.through_index && in_doubt {
                    return Ok(Reply::Error("TRYAGAIN in two places".to_owned()));
                }
                Ok(reply)
            },
            |reply| match reply {
                Reply::Error(line) => Some(line),
                _ => None,
            },
        )?;
        match reply {
            Reply::Error(line) => Err(error::refused(&line)),
            reply => Ok(reply),
        }
    }

    fn find_by_key(&self, key: &Key, call: &Call<'_>) -> Result<Option<Vec<u8>>, LockError> {
        let lock = self.space.lock(key)?;
        let limits = self.enter(call)?;
        self.run(
            Rank::Ordinary,
            &limits,
            &self.scripts.find_by_key,
            &[lock.as_bytes()],
            &[self.tolerance.as_bytes()],
        )
        .and_then(stored)
        .map_err(|e| e.for_key(key))
    }

    fn find_by_id(&self, id: &LockId, call: &Call<'_>) -> Result<Option<Vec<u8>>, LockError> {
        let index = self.space.index(id)?;
        let limits = self.enter(call)?;
        self.run(
            Rank::Ordinary,
            &limits,
            &self.scripts.find_by_id,
            &[index.as_bytes()],
            &[id.as_str().as_bytes(), self.tolerance.as_bytes()],
        )
        .and_then(stored)
    }
}

impl Backend for RedisBackend {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let lock = self.space.lock(key)?;
        let fence = self.space.fence(&lock)?;
        let index = self.space.index(lock_id)?;
        let limits = self.enter(call)?;
        let reply = self
            .run(
                Rank::Ordinary,
                &limits,
                &self.scripts.acquire,
                &[lock.as_bytes(), fence.as_bytes(), index.as_bytes()],
                &[
                    lock_id.as_str().as_bytes(),
                    ttl.as_millis().to_string().as_bytes(),
                    self.tolerance.as_bytes(),
                    self.max_fence.as_bytes(),
                    &value::head(key, lock_id),
                ],
            )
            .map_err(|e| e.for_key(key))?;
        match &reply {
            Reply::Array(items) => match &items[..] {
                [
                    Reply::Integer(0),
                    Reply::Integer(left),
                    Reply::Bulk(fence),
                    Reply::Bulk(id_hash),
                ] => Ok(AcquireOutcome::Locked(Some(holder(*left, fence, id_hash)))),
                [
                    Reply::Integer(1),
                    Reply::Bulk(fence),
                    Reply::Integer(expires),
                ] => {
                    let fence = std::str::from_utf8(fence).ok().map(Fence::parse);
                    match fence {
                        Some(Ok(fence)) => Ok(AcquireOutcome::Acquired(Acquired::new(
                            *lock_id, fence, *expires,
                        ))),
                        // The script stores only well-formed fences: this is the repeated acquire of a lock that
                        // somebody else wrote with our id.
                        _ => Err(value::foreign().for_key(key)),
                    }
                }
                _ => Err(error::unexpected().for_key(key)),
            },
            _ => Err(error::unexpected().for_key(key)),
        }
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        let index = self.space.index(lock_id)?;
        let limits = self.enter(call)?;
        let reply = self.run(
            Rank::Upkeep,
            &limits,
            &self.scripts.release,
            &[index.as_bytes()],
            &[lock_id.as_str().as_bytes(), self.tolerance.as_bytes()],
        )?;
        match reply {
            Reply::Integer(1) => Ok(ReleaseOutcome::Released),
            reply => absence(&reply).map(ReleaseOutcome::Absent),
        }
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        let index = self.space.index(lock_id)?;
        let limits = self.enter(call)?;
        let reply = self.run(
            Rank::Upkeep,
            &limits,
            &self.scripts.extend,
            &[index.as_bytes()],
            &[
                lock_id.as_str().as_bytes(),
                ttl.as_millis().to_string().as_bytes(),
                self.tolerance.as_bytes(),
            ],
        )?;
        match &reply {
            Reply::Array(items) => match &items[..] {
                [Reply::Integer(1), Reply::Integer(expires)] => {
                    Ok(ExtendOutcome::Extended(*expires))
                }
                _ => Err(error::unexpected()),
            },
            reply => absence(reply).map(ExtendOutcome::Absent),
        }
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let lock = self.space.lock(key)?;
        let limits = self.enter(call)?;
        self.run(
            Rank::Ordinary,
            &limits,
            &self.scripts.is_locked,
            &[lock.as_bytes()],
            &[self.tolerance.as_bytes()],
        )
        .and_then(|reply| match reply {
            Reply::Integer(live @ (0 | 1)) => Ok(live == 1),
            _ => Err(error::unexpected()),
        })
        .map_err(|e| e.for_key(key))
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        let found = match by {
            LookupBy::Key(key) => self.find_by_key(key, call)?,
            LookupBy::LockId(id) => self.find_by_id(id, call)?,
        };
        found.as_deref().map(value::parse).transpose()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("redis")
    }

    /// One connection subscribes for all who wait. Without the rights to `SUBSCRIBE` and the channels, waiters poll.
    fn watch(&self, key: &Key, freed: Freed) -> Option<Watch> {
        let lock = self.space.lock(key).ok()?;
        self.ear.watch(lock + CHANNEL, freed)
    }

    /// Runs every command the scripts need, on a key nobody else uses and leaving nothing behind, and looks at the server's
    /// eviction and persistence. It needs the right to `INFO`, and `CONFIG GET` to see `appendfsync` and
    /// `no-appendfsync-on-rewrite`; without them it says so in a warning.
    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        let index = self.space.index(&LockId::random()?)?;
        let limits = self.enter(call)?;
        let rehearse = &self.scripts.rehearse;
        let replies = self.servers.exchange(
            Rank::Ordinary,
            &limits,
            |connection| {
                connection.pipeline(
                    &[
                        &[b"EVAL", rehearse.text.as_bytes(), b"1", index.as_bytes()],
                        &[
                            b"EVALSHA",
                            rehearse.digest.as_bytes(),
                            b"1",
                            index.as_bytes(),
                        ],
                        &[b"INFO"],
                        // Servers before 7 take one pattern; this one means both settings.
                        &[b"CONFIG", b"GET", b"*appendfsync*"],
                    ],
                    &limits,
                )
            },
            |replies| match replies.first() {
                Some(Reply::Error(line)) => Some(line),
                _ => None,
            },
        )?;
        match &replies[..] {
            [Reply::Error(line), ..] | [_, Reply::Error(line), ..] => Err(error::refused(line)),
            [_, _, info, config] => Ok(check::warnings(info, config)),
            _ => Err(error::unexpected()),
        }
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("prefix", &self.space.prefix())
            .field("database", &self.servers.database())
            .finish_non_exhaustive()
    }
}

fn ear(owner: Owner, servers: &Arc<Servers>, connect_timeout: Duration) -> Ear {
    let servers = Arc::clone(servers);
    Ear::new(
        owner,
        connect_timeout,
        Box::new(move |limits| Ok(Box::new(Subscription(servers.connect(limits)?)))),
    )
}

/// Who holds a contended lock, as far as its value is one of ours.
fn holder(left_ms: i64, fence: &[u8], id_hash: &[u8]) -> Holder {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let is_hash = |text: &&str| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let holder = Holder::with_left(
        text(id_hash).filter(is_hash).map(str::to_owned),
        text(fence).and_then(|fence| Fence::parse(fence).ok()),
        left_ms,
    );
    match u64::try_from(left_ms) {
        // Redis deletes a key in the millisecond after its last one.
        Ok(left) => holder.with_free_in(Duration::from_millis(left + 1)),
        Err(_) => holder,
    }
}

fn stored(reply: Reply) -> Result<Option<Vec<u8>>, LockError> {
    match reply {
        Reply::Bulk(value) => Ok(Some(value)),
        Reply::Nil => Ok(None),
        _ => Err(error::unexpected()),
    }
}

fn absence(reply: &Reply) -> Result<Absence, LockError> {
    match reply {
        Reply::Integer(-2) => Ok(Absence::Expired),
        Reply::Integer(0 | -1) => Ok(Absence::NotFound),
        _ => Err(error::unexpected()),
    }
}
