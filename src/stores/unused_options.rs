//! Options that a user set and the opened store does not use. A name that has no effect may be a lock in the wrong place, so
//! the user is told. It uses `backend` and `options`.

use crate::backend::keyspace::{DEFAULT_FENCE_TABLE, DEFAULT_TABLE};
use crate::options::client::{
    ClientOptions, DEFAULT_CONNECT_TIMEOUT, DEFAULT_KEY_PREFIX, DEFAULT_POOL_SIZE,
};

/// Which of the options that not every store uses a store does use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UsedOptions {
    pub(crate) key_prefix: bool,
    /// `schema`, `table_name` and `fence_table_name`.
    pub(crate) tables: bool,
    pub(crate) connect_timeout: bool,
    pub(crate) pool_size: bool,
    /// `password` and `connector`.
    pub(crate) connections: bool,
    /// Whether a clean-up finds anything: Redis removes dead locks by itself.
    pub(crate) cleanup: bool,
    /// `tls_ca_file`, `tls_danger_accept_invalid_certs` and their like: whether the URL asks for TLS.
    pub(crate) tls: bool,
    /// Whether another URL of this store can ask for TLS.
    pub(crate) tls_possible: bool,
}

/// The warning, if an option is set to something else than its default and `store` does not use it.
pub(crate) fn warning(store: &str, used: UsedOptions, options: &ClientOptions) -> Option<String> {
    let named = |name: &Option<String>, default: &str| name.as_ref().is_some_and(|n| n != default);
    let prefix = options.key_prefix.trim_end_matches(':');
    let tls = [
        (options.tls_ca_file.is_some(), "tls_ca_file"),
        (options.tls_insecure, "tls_danger_accept_invalid_certs"),
        (options.tls_client_cert.is_some(), "tls_client_cert"),
        #[cfg(feature = "tls")]
        (options.tls_config.is_some(), "tls_config"),
    ];
    let set: Vec<&str> = [
        (
            !used.key_prefix && prefix != DEFAULT_KEY_PREFIX,
            "key_prefix",
        ),
        (!used.tables && options.schema.is_some(), "schema"),
        (
            !used.tables && named(&options.table_name, DEFAULT_TABLE),
            "table_name",
        ),
        (
            !used.tables && named(&options.fence_table_name, DEFAULT_FENCE_TABLE),
            "fence_table_name",
        ),
        (
            !used.pool_size && options.pool_size != DEFAULT_POOL_SIZE,
            "pool_size",
        ),
        (
            !used.connect_timeout && options.connect_timeout != DEFAULT_CONNECT_TIMEOUT,
            "connect_timeout",
        ),
        (!used.connections && options.password.is_some(), "password"),
        (
            !used.connections && options.connector.is_some(),
            "connector",
        ),
        (
            !used.cleanup && options.cleanup_in_is_locked,
            "cleanup_in_is_locked",
        ),
    ]
    .into_iter()
    .chain(tls.map(|(set, name)| (set && !used.tls, name)))
    .filter_map(|(unused, name)| unused.then_some(name))
    .collect();
    if set.is_empty() {
        return None;
    }
    let why = if used.tls_possible && tls.iter().any(|(_, name)| set.contains(name)) {
        "; the URL does not ask for TLS"
    } else {
        ""
    };
    Some(format!(
        "these options are set, but a client of {store} does not use them: {}{why}",
        set.join(", ")
    ))
}
