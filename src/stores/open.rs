//! From a URL to the store that it names. It uses `postgres`, `redis`, `sqlite`, `unused_options`, `backend`, `options` and
//! `types`.

use std::sync::Arc;

use crate::backend::Backend;
use crate::options::client::ClientOptions;
use crate::stores::unused_options::{self, UsedOptions};
use crate::types::error::LockError;

/// A store, and what the user should know of the options it was opened with.
pub(crate) struct Opened {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) warning: Option<String>,
}

impl Opened {
    fn new(store: impl Backend + 'static, used: UsedOptions, options: &ClientOptions) -> Self {
        Self {
            warning: unused_options::warning(store.capabilities().backend, used, options),
            backend: Arc::new(store),
        }
    }
}

/// The store a URL names. Parses and checks; does no I/O.
pub(crate) fn open(url: &str, options: &ClientOptions) -> Result<Opened, LockError> {
    options.checked()?;
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        #[cfg(feature = "sqlite")]
        "sqlite" if url.contains(':') => {
            let store = crate::stores::sqlite::SqliteBackend::open(url, options)?;
            let used = UsedOptions {
                pool_size: true,
                cleanup: true,
                ..UsedOptions::default()
            };
            Ok(Opened::new(store, used, options))
        }
        #[cfg(not(feature = "sqlite"))]
        "sqlite" => Err(not_built("sqlite")),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster"
            if url.contains(':') =>
        {
            let store = crate::stores::redis::RedisBackend::open(url, options)?;
            let used = UsedOptions {
                key_prefix: true,
                pool_size: true,
                connect_timeout: true,
                connections: true,
                tls: scheme.starts_with("rediss"),
                tls_possible: true,
                ..UsedOptions::default()
            };
            Ok(Opened::new(store, used, options))
        }
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster" => Err(not_built("redis")),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => postgres(url, options),
        #[cfg(feature = "postgres")]
        _ if crate::stores::postgres::is_keyword_dsn(url) => postgres(url, options),
        #[cfg(not(feature = "postgres"))]
        "postgres" | "postgresql" => Err(not_built("postgres")),
        // The scheme of a malformed URL may hold anything, a password too: it is not repeated.
        _ => Err(LockError::invalid(
            "the URL's scheme is not one of redis, rediss, redis+unix, redis+sentinel, rediss+sentinel, redis+cluster, rediss+cluster, postgres, postgresql, sqlite",
        )),
    }
}

#[cfg(feature = "postgres")]
fn postgres(url: &str, options: &ClientOptions) -> Result<Opened, LockError> {
    let store = crate::stores::postgres::PostgresBackend::open(url, options)?;
    let used = UsedOptions {
        tables: true,
        pool_size: true,
        cleanup: true,
        connect_timeout: true,
        connections: true,
        tls: store.may_use_tls(),
        tls_possible: true,
        ..UsedOptions::default()
    };
    Ok(Opened::new(store, used, options))
}

#[allow(dead_code)]
fn not_built(feature: &str) -> LockError {
    LockError::invalid(format!(
        "this build of syncguard lacks the feature \"{feature}\"; build it with --features {feature}"
    ))
}
