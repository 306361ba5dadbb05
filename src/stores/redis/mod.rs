//! The Redis store: every verb is one script and one round trip. It uses `net`, `backend`, `options`, `runtime` and `types`.

mod check;
mod cluster;
mod connection;
mod error;
pub mod format;
pub mod gate;
mod replies;
mod resp;
mod route;
mod routed;
mod scripts;
mod sentinel;
mod session;
mod shared;
mod url;
mod value;
mod verbs;
mod watch;

use std::fmt;
use std::sync::Arc;

use self::cluster::Cluster;
use self::connection::{Connector, Demand};
use self::format::CHANNEL_SUFFIX;
use self::route::Route;
use self::sentinel::Sentinels;
use self::session::RedisSessions;
use self::url::{Login, RedisTarget, RedisUrl};
use self::verbs::RedisVerbs;
use self::watch::RedisListener;
use crate::backend::call::Call;
use crate::backend::gate::GateStore;
use crate::backend::keyspace::KeySpace;
use crate::backend::list::{ListOptions, ListPage};
use crate::backend::release_listener::ReleaseListener;
use crate::backend::{
    AcquireOutcome, Backend, Capabilities, ExtendOutcome, Freed, LookupBy, ReleaseOutcome, Watch,
};
use crate::net::dialer::Dialer;
use crate::net::password::{PasswordProvider, TWO_PASSWORDS};
#[cfg(feature = "tls")]
use crate::net::tls::{Tls, Verify};
use crate::options::client::ClientOptions;
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::key::Key;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

/// Locks in a Redis server, shared with the TypeScript library: the same key is the same lock with the same fences.
///
/// Redis removes a lock at its TTL by itself, so `cleanup_in_is_locked` and `purge_expired` have nothing to do here.
/// May be used from many threads, which share a connection for renewals and releases and one for everything else. Fences survive a crash of the server only
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
    verbs: RedisVerbs,
    listener: ReleaseListener,
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
    /// `fences=clock` in the query of any of them is [`FenceSource::Clock`](crate::FenceSource::Clock).
    ///
    /// ```
    /// use syncguard::{ClientOptions, RedisBackend};
    ///
    /// let store = RedisBackend::open("redis://127.0.0.1/", &ClientOptions::new())?;
    /// # drop(store);
    /// # Ok::<(), syncguard::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument) for a bad URL or option, and for a cluster without a hash tag: correct
    /// what the message names.
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
        let fences = url.fences.unwrap_or(options.fences);
        let has_password = url.login.password.as_ref().is_some_and(|p| !p.is_empty());
        if has_password && options.password.is_some() {
            return Err(LockError::invalid(TWO_PASSWORDS));
        }
        let dialer = Dialer::new(options.connector.clone());
        #[cfg(feature = "tls")]
        let tls = url.tls.then(|| tls(options));
        let connector = |login: Login, demand| Connector {
            login,
            password: None,
            dialer: dialer.clone(),
            demand,
            #[cfg(feature = "tls")]
            tls: tls.clone(),
        };
        let (route, demand) = match url.target {
            RedisTarget::One(endpoint) => (Route::Fixed(endpoint), Demand::Anything),
            RedisTarget::Sentinel {
                sentinels,
                master,
                login,
            } => {
                let connector = connector(login, Demand::Anything);
                let sentinels = Sentinels::new(sentinels, master, connector);
                (Route::Sentinel(sentinels), Demand::Primary)
            }
            RedisTarget::Cluster(seeds) => {
                let cluster = Cluster::new(seeds, space.prefix())?;
                (Route::Cluster(cluster), Demand::ClusterNode)
            }
        };
        let owner = Owner::current();
        let connector = Connector {
            password: options.password.clone().map(PasswordProvider::new),
            ..connector(url.login, demand)
        };
        let sessions = Arc::new(RedisSessions::new(route, connector, options));
        let listening = Arc::clone(&sessions);
        let listener = ReleaseListener::new(
            owner,
            options.connect_timeout,
            Box::new(move |limits| Ok(Box::new(RedisListener::new(listening.connect(limits)?)))),
        );
        Ok(Self {
            verbs: RedisVerbs::new(owner, options.operation_timeout, space, sessions, fences),
            listener,
        })
    }
}

#[cfg(feature = "tls")]
fn tls(options: &ClientOptions) -> Tls {
    if let Some(config) = &options.tls_config {
        return Tls::own(Arc::clone(config));
    }
    let verify = if options.tls_insecure {
        Verify::Nothing
    } else {
        Verify::Full
    };
    Tls::new(
        verify,
        options.tls_ca_file.clone(),
        options.tls_client_cert.clone(),
    )
}

impl Backend for RedisBackend {
    fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        self.verbs.acquire(key, lock_id, ttl, call)
    }

    fn release(&self, lock_id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        self.verbs.release(lock_id, call)
    }

    fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        self.verbs.extend(lock_id, ttl, call)
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        self.verbs.is_locked(key, call)
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        self.verbs.find(by, call)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("redis").with_fence_source(self.verbs.fences())
    }

    fn gate(&self) -> Option<&dyn GateStore> {
        Some(&self.verbs)
    }

    /// One connection subscribes for all waiters. Without the rights to `SUBSCRIBE` and the channels, waiters poll.
    fn watch(&self, key: &Key, freed: Freed) -> Option<Watch> {
        let lock = self.verbs.lock_name(key).ok()?;
        self.listener.watch(lock + CHANNEL_SUFFIX, freed)
    }

    /// Runs every command the scripts need, on a key that no lock uses and leaving nothing behind, and looks at the server's
    /// eviction and persistence. It needs the right to `INFO`, and `CONFIG GET` to see `appendfsync` and
    /// `no-appendfsync-on-rewrite`; without them it says so in a warning.
    fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        self.verbs.check(call)
    }

    /// From `INFO`, for which a right is needed.
    fn version(&self, call: &Call<'_>) -> Result<Option<String>, LockError> {
        self.verbs.version(call)
    }

    fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        self.verbs.list(options, call)
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("prefix", &self.verbs.prefix())
            .field("database", &self.verbs.database())
            .finish_non_exhaustive()
    }
}
