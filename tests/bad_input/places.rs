//! Tests URLs, prefixes and table names that are wrong.

use super::*;
use syncguard::KeySpace;

/// Whether this build knows the scheme of a URL that is right.
fn knows(url: &str) -> bool {
    match Client::open(url) {
        Ok(_) => true,
        Err(error) => {
            assert!(error.message().contains("scheme") || error.message().contains("lacks"));
            false
        }
    }
}

const SQLITE: &str = "sqlite:/nowhere/locks.db";
const REDIS: &str = "redis://127.0.0.1:1/0";
const POSTGRES: &str = "postgres://me@127.0.0.1:1/db";

#[test]
fn row_29_prefixes() {
    let name = |prefix: &str| {
        KeySpace::redis(prefix).and_then(|space| {
            let lock = space.lock(&key("k"))?;
            Ok((space.fence(&lock)?, lock))
        })
    };
    let named = |prefix: &str| name(prefix).expect("a legal prefix").1;
    assert_eq!((named(""), named(":::")), ("k".into(), "k".into()));
    assert_eq!(
        (named("a"), named("a:"), named("a::")),
        ("a:k".into(), "a:k".into(), "a:k".into())
    );
    assert_eq!(named("{}"), "{}:k");
    assert_eq!(named("{app}"), "{app}:k");
    assert_eq!(named(&"p".repeat(900)).len(), 902);
    let long = KeySpace::redis(&"p".repeat(900)).expect("a legal prefix");
    for text in ["k".repeat(512), "k".repeat(74)] {
        let lock = long.lock(&key(&text)).expect("a name");
        assert!(lock.len() + 26 <= 1000);
        assert!(long.fence(&lock).expect("a name").len() + 26 <= 1000);
    }
    for bad in ["a\0b", "\0", "fence", "a:fence", "fence:a", "id", "a:id:"] {
        refused(name(bad));
    }
    refused(name(&"p".repeat(1000)));
    refused(name(&"p".repeat(960)));
    if knows(REDIS) {
        for bad in ["a\0b", "fence", "id"] {
            refused(Client::open_with(
                REDIS,
                &ClientOptions::new().key_prefix(bad),
            ));
        }
        let long = "p".repeat(1000);
        refused(Client::open_with(
            REDIS,
            &ClientOptions::new().key_prefix(&long),
        ));
        let good = ClientOptions::new().key_prefix("{}");
        assert!(Client::open_with(REDIS, &good).is_ok());
    }
}

#[test]
fn row_30_prefixes_that_nest_share_a_lock() {
    let (outer, inner) = (KeySpace::redis("app"), KeySpace::redis("app:x"));
    let (outer, inner) = (outer.expect("a prefix"), inner.expect("a prefix"));
    assert_eq!(
        outer.lock(&key("x:foo")).expect("a name"),
        inner.lock(&key("foo")).expect("a name")
    );
}

/// Refused whether or not this build has the store: nothing is looked at before the names.
fn bad_tables(options: ClientOptions) {
    let error = refused(Client::open_with(POSTGRES, &options));
    if knows(POSTGRES) {
        assert!(error.message().contains("table_name"), "{error}");
    }
}

#[test]
fn row_31_table_names() {
    for bad in [
        "",
        "a.b.c",
        "a\"b",
        "a;b",
        "tablé",
        "1a",
        "a b",
        "a\0",
        &"t".repeat(64),
    ] {
        bad_tables(ClientOptions::new().table_name(bad));
        bad_tables(ClientOptions::new().fence_table_name(bad));
    }
    if knows(POSTGRES) {
        for good in ["order", "MyLocks", "_", &"t".repeat(40)] {
            assert!(Client::open_with(POSTGRES, &ClientOptions::new().table_name(good)).is_ok());
        }
    }
}

#[test]
fn row_32_one_table_for_two_purposes() {
    for (lock, fence) in [
        ("t", "t"),
        ("Locks", "lOCKS"),
        ("syncguard_fence_counters", "syncguard_fence_counters"),
    ] {
        bad_tables(
            ClientOptions::new()
                .table_name(lock)
                .fence_table_name(fence),
        );
    }
    bad_tables(ClientOptions::new().table_name("Syncguard_Fence_Counters"));
}

const SECRET: &str = "hunter2";

#[test]
fn row_34_urls_that_cannot_work() {
    for bad in [
        "",
        ":",
        "://",
        "sqlite",
        "sqlite:",
        "sqlite://",
        "sqlite://host/file",
        "sqlite::memory:",
        "sqlite:/a/",
        "nothing://hunter2@host",
        "hunter2",
        "SQLITE:/a",
        "redis",
        "redis:",
        "redis://",
        "redis://:hunter2@",
        "redis://:hunter2@host:port",
        "redis://:hunter2@host:65536",
        "redis://:hunter2@host:-1",
        "redis://:hunter2@:6379",
        "rediss://",
        "redis+unix://",
        "redis://:hunter2@host/notanumber",
        "postgres://me:hunter2@host:65536/db",
        "postgres://me:hunter2@host:port/db",
        "http://me:hunter2@host/",
        "redis://:hunter2@host?nonsense=1",
        "postgres://me:hunter2@host/db?nonsense=1",
        "sqlite:/a?nonsense=1",
    ] {
        let error = refused(Client::open(bad));
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(SECRET), "{shown}");
    }
    for (url, right) in [
        ("redis://:hunter2@host?nonsense=1", REDIS),
        ("postgres://me:hunter2@host/db?nonsense=1", POSTGRES),
    ] {
        if knows(right) {
            let error = refused(Client::open(url));
            assert!(error.message().contains("nonsense"), "{error}");
        }
    }
    for bad in [
        ClientOptions::new().pool_size(0),
        ClientOptions::new().pool_size(1),
        ClientOptions::new().operation_timeout(Duration::ZERO),
        ClientOptions::new().connect_timeout(Duration::ZERO),
        ClientOptions::new().dispose_timeout(Duration::ZERO),
    ] {
        refused(Client::open_with(SQLITE, &bad));
        refused(Client::from_backend_with(MemoryBackend::new(), &bad));
    }
}

#[test]
fn row_35_percent_signs_at_signs_ipv6_and_sockets() {
    for bad in [
        "sqlite:/a%00b",
        "sqlite:/a%",
        "sqlite:/a%2",
        "sqlite:/a%zz",
        "sqlite:/a\0b",
        "redis://:hunter2%00@host",
        "redis://:hunter2%@host",
        "redis://:hunter2%zz@host",
        "redis://:hunter2@[::1",
        "redis://:hunter2@[::1]x:1",
        "postgres://me:hunter2%zz@host/db",
        "postgres://me:hunter2%00@host/db",
    ] {
        let error = refused(Client::open(bad));
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(SECRET), "{shown}");
    }
    let good = [
        (SQLITE, "sqlite:/a%20b/100%25@c"),
        (SQLITE, "sqlite:///a/b"),
        (REDIS, "redis://user:p%40ss%2F@host:6379/3"),
        (REDIS, "redis://user:p@ss@host"),
        (REDIS, "redis://[::1]:6379"),
        (REDIS, "redis+unix:///tmp/redis.sock?db=1"),
        (POSTGRES, "postgres://me:p%40ss@host/db"),
        (POSTGRES, "postgres://me@[::1]:5432/db"),
        (POSTGRES, "postgres:///db?host=/var/run/postgresql&user=me"),
    ];
    for (right, url) in good {
        if knows(right) {
            assert!(Client::open(url).is_ok(), "{url}");
        }
    }
    // Exactly the file that was named.
    let dir = tempfile::tempdir().expect("a temp dir");
    let url = format!("sqlite:{}/a%3Fb%23%25", dir.path().display());
    drop(take(&Client::open(&url).expect("a legal URL"), "k"));
    assert!(dir.path().join("a?b#%").exists());
}
