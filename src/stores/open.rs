//! From a URL to the store that it names.

use std::sync::Arc;

use crate::backend::Backend;
use crate::options::client::ClientOptions;
use crate::types::error::LockError;

/// The store a URL names. Parses and checks; does no I/O.
pub(crate) fn open(url: &str, options: &ClientOptions) -> Result<Arc<dyn Backend>, LockError> {
    options.checked()?;
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        #[cfg(feature = "sqlite")]
        "sqlite" if url.contains(':') => Ok(Arc::new(crate::stores::sqlite::SqliteBackend::open(
            url, options,
        )?)),
        #[cfg(not(feature = "sqlite"))]
        "sqlite" => Err(not_built("sqlite")),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster"
            if url.contains(':') =>
        {
            Ok(Arc::new(crate::stores::redis::RedisBackend::open(
                url, options,
            )?))
        }
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster" => Err(not_built("redis")),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(crate::stores::postgres::PostgresBackend::open(
            url, options,
        )?)),
        #[cfg(feature = "postgres")]
        _ if crate::stores::postgres::is_keyword_dsn(url) => Ok(Arc::new(
            crate::stores::postgres::PostgresBackend::open(url, options)?,
        )),
        #[cfg(not(feature = "postgres"))]
        "postgres" | "postgresql" => Err(not_built("postgres")),
        // The scheme of a malformed URL may hold anything, a password too: it is not repeated.
        _ => Err(LockError::invalid(
            "the URL's scheme is not one of redis, rediss, redis+unix, redis+sentinel, rediss+sentinel, redis+cluster, rediss+cluster, postgres, postgresql, sqlite",
        )),
    }
}

#[allow(dead_code)]
fn not_built(feature: &str) -> LockError {
    LockError::invalid(format!(
        "this build of syncguard lacks the feature \"{feature}\"; build it with --features {feature}"
    ))
}
