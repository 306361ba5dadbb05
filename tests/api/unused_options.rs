//! Tests that an option which the opened store does not use is told to the user, once, and no other one is.

use std::sync::mpsc;

use crate::support::WAIT_LIMIT;
use syncguard::{
    Client, ClientOptions, DEFAULT_CONNECT_TIMEOUT, DEFAULT_KEY_PREFIX, DEFAULT_POOL_SIZE,
};

/// All that `on_warning` was told by a client of `url` until it was gone. Opening sends nothing: no server is needed.
fn warnings(url: &str, options: ClientOptions) -> Vec<String> {
    let (tell, told) = mpsc::channel();
    let options = options.on_warning(move |text| drop(tell.send(text.to_owned())));
    let client = Client::open_with(url, &options).expect("a good URL");
    drop((client.clone(), client, options));
    let mut all = Vec::new();
    loop {
        match told.recv_timeout(WAIT_LIMIT) {
            Ok(text) => all.push(text),
            // The client is gone, and so is every call of the hook.
            Err(mpsc::RecvTimeoutError::Disconnected) => return all,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the hook is still there"),
        }
    }
}

/// All options that not every store uses.
fn everything() -> ClientOptions {
    ClientOptions::new()
        .key_prefix("{app}")
        .schema("app")
        .table_name("locks")
        .fence_table_name("fences")
        .tls_ca_file("/etc/ssl/ca.pem")
        .tls_danger_accept_invalid_certs(true)
        .pool_size(3)
        .connect_timeout(DEFAULT_CONNECT_TIMEOUT * 2)
        .cleanup_in_is_locked(true)
}

const TLS: &str = "tls_ca_file, tls_danger_accept_invalid_certs";
const CLEANUP: &str = "cleanup_in_is_locked";
const TABLES: &str = "schema, table_name, fence_table_name";

#[test]
fn each_store_names_the_options_that_it_does_not_use() {
    let no_tls = "; the URL does not ask for TLS";
    for (url, unused) in [
        (
            "redis://127.0.0.1/",
            format!("{TABLES}, {CLEANUP}, {TLS}{no_tls}"),
        ),
        (
            "redis+unix:///run/redis",
            format!("{TABLES}, {CLEANUP}, {TLS}{no_tls}"),
        ),
        ("rediss://127.0.0.1/", format!("{TABLES}, {CLEANUP}")),
        (
            "rediss+cluster://127.0.0.1/",
            format!("{TABLES}, {CLEANUP}"),
        ),
        ("postgres://app@127.0.0.1/app", "key_prefix".to_owned()),
        (
            "postgres://app@127.0.0.1/app?sslmode=disable",
            format!("key_prefix, {TLS}{no_tls}"),
        ),
        (
            "host=/run/postgresql user=app",
            format!("key_prefix, {TLS}{no_tls}"),
        ),
        (
            "sqlite:/tmp/no-file-is-made.db",
            format!("key_prefix, {TABLES}, connect_timeout, {TLS}"),
        ),
    ] {
        let told = warnings(url, everything());
        assert_eq!(told.len(), 1, "{url}: {told:?}");
        assert!(
            told[0].ends_with(&format!("does not use them: {unused}")),
            "{url}: {told:?}"
        );
    }
}

#[test]
fn a_default_that_is_set_is_not_warned_of() {
    let defaults = ClientOptions::new()
        .key_prefix(format!("{DEFAULT_KEY_PREFIX}:"))
        .table_name("syncguard_locks")
        .fence_table_name("syncguard_fence_counters")
        .tls_danger_accept_invalid_certs(false)
        .cleanup_in_is_locked(false)
        .pool_size(DEFAULT_POOL_SIZE)
        .connect_timeout(DEFAULT_CONNECT_TIMEOUT);
    for url in [
        "redis://127.0.0.1/",
        "postgres://app@127.0.0.1/app",
        "sqlite:/tmp/no-file-is-made.db",
    ] {
        for options in [ClientOptions::new(), defaults.clone()] {
            assert_eq!(warnings(url, options), [""; 0], "{url}");
        }
    }
}
