//! Tests the listing of live locks, on every store: pages, prefixes, bounds and cursors.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::postgres::Server;
use crate::support::redis::RedisServer;
use crate::support::{eventually, verbs};
use syncguard::testkit::MemoryBackend;
use syncguard::{Call, Client, ErrorCode, Guard, ListCursor, ListOptions, LockOptions, hash_key};

/// All keys that a listing finds, page by page, and how many pages there were.
fn listed(client: &Client, prefix: &str, examine: u32) -> (BTreeSet<String>, usize) {
    let mut options = ListOptions::new().prefix(prefix).examine(examine);
    let (mut keys, mut pages) = (BTreeSet::new(), 0);
    loop {
        let page = client.list_raw(&options).expect("a page");
        assert!(
            page.locks.len() <= 4 * examine as usize + 16,
            "bounded work"
        );
        keys.extend(page.locks.into_iter().map(|lock| lock.key));
        pages += 1;
        assert!(pages < 1000, "the listing has no end");
        match page.next {
            Some(next) => options = options.after(next),
            None => return (keys, pages),
        }
    }
}

fn locks_are_listed(client: &Client) {
    assert_eq!(listed(client, "", 10).0, BTreeSet::new());
    let mut names: Vec<String> = (0..40).map(|n| format!("job:{n:02}")).collect();
    // Strange ones, and on Redis one whose stored name is a hash.
    names.extend(["a*", "job", "jo", "É", "x'\"\\%_"].map(str::to_owned));
    names.push(format!("job:{}", "x".repeat(500)));
    let options = LockOptions::new().holder("lister");
    let lock = |name: &String| client.lock_with(name, &options).expect("a lock");
    let guards: Vec<Guard> = names.iter().map(lock).collect();
    let brief = LockOptions::new()
        .ttl(Duration::from_millis(30))
        .no_heartbeat();
    let _dead = client.lock_with("job:dead", &brief).expect("a lock");
    eventually("the lease's end", || {
        !client.is_locked("job:dead").expect("a look")
    });

    let all: BTreeSet<String> = names.iter().cloned().collect();
    let (found, pages) = listed(client, "", 7);
    assert_eq!(found, all);
    assert!(pages > 2, "one call examined everything");
    for prefix in [
        "job:", "job", "jo", "a*", "É", "x'\"\\%_", "job:0", "none", "*", "%",
    ] {
        let mut expected = all.clone();
        expected.retain(|name| name.starts_with(prefix));
        assert_eq!(listed(client, prefix, 7).0, expected, "{prefix}");
    }
    let page = client.list_raw(&ListOptions::new().prefix("a*").examine(5000));
    let page = page.expect("a page");
    let (found, guard) = (&page.locks[0], &guards[40]);
    assert_eq!((page.locks.len(), page.next.is_none()), (1, true));
    assert_eq!(
        (&found.lock_id, found.info.fence),
        (guard.lock_id(), guard.fence())
    );
    assert_eq!(found.holder.as_deref(), Some("lister"));
    let sanitised = client.list(&ListOptions::new().prefix("a*").examine(5000));
    let sanitised = sanitised.expect("a page");
    assert_eq!(sanitised.locks[0].key_hash, hash_key("a*"));
    assert!(!format!("{page:?}{sanitised:?}").contains("lister"));

    for bad in [
        ListOptions::new().examine(0),
        ListOptions::new().examine(10_001),
        ListOptions::new().prefix("x".repeat(513)),
        ListOptions::new().prefix("a\0"),
        ListOptions::new().after(ListCursor::new("")),
        ListOptions::new().after(ListCursor::new("scan:x:'")),
    ] {
        let refused = client.list(&bad).expect_err("bad options");
        assert_eq!(refused.code(), ErrorCode::InvalidArgument, "{refused}");
    }
    let over = Call::new().within(Duration::ZERO);
    let refused = client.list_with(&ListOptions::new(), &over);
    assert_eq!(
        refused.expect_err("no time").code(),
        ErrorCode::NetworkTimeout
    );
}

#[test]
fn in_memory() {
    locks_are_listed(&Client::from_backend(MemoryBackend::new()));
}

#[test]
fn on_redis() {
    let server = RedisServer::start(&[]);
    // What else is there is not in the way: other types, other values, other prefixes.
    server.cli(&["SADD", "sync[g]*?:set", "x"]);
    server.cli(&["SET", "sync[g]*?:text", "x"]);
    let other = Client::open(&server.url()).expect("a client");
    let _other = other.lock("of another prefix").expect("a lock");
    for prefix in ["sync[g]*?", "sync^\\"] {
        let options = verbs::patient().key_prefix(prefix);
        locks_are_listed(&Client::open_with(&server.url(), &options).expect("a client"));
    }
}

/// The server removes what has expired by itself; a value that another program wrote without a lifetime stays.
#[test]
fn a_lock_of_redis_that_outlives_its_lease_is_not_listed() {
    let server = RedisServer::start(&[]);
    let client = Client::open_with(&server.url(), &verbs::patient()).expect("a client");
    let guard = client.lock("live").expect("a lock");
    let value = server.cli(&["GET", "syncguard:live"]).text();
    let ends = format!("\"expiresAtMs\":{}", guard.expires_at_ms());
    assert!(value.contains(&ends), "{value}");
    let now = server.cli(&["TIME"]).list()[0].text();
    let ended = now.parse::<i64>().expect("seconds") * 1000 - 60_000;
    let dead = value
        .replace(&ends, &format!("\"expiresAtMs\":{ended}"))
        .replace("\"live\"", "\"dead\"");
    server.cli(&["SET", "syncguard:dead", &dead]);
    let (keys, _) = listed(&client, "", 100);
    assert_eq!(keys, BTreeSet::from(["live".to_owned()]));
}

#[test]
fn on_postgres() {
    let server = Server::start(&[]);
    let client = Client::from_backend(server.open(&verbs::patient()));
    client.setup_schema().expect("set-up");
    locks_are_listed(&client);
}

/// Keys that begin alike need not stand together there.
#[test]
fn on_postgres_in_another_collation() {
    let server = Server::start(&[]);
    let client = Client::from_backend(server.open(&verbs::patient()));
    client.setup_schema().expect("set-up");
    server.sql("ALTER TABLE syncguard_locks ALTER COLUMN key TYPE text COLLATE \"und-x-icu\"");
    locks_are_listed(&client);
}

#[test]
fn on_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    locks_are_listed(&Client::open_with(&url, &verbs::patient()).expect("a client"));
}

#[test]
fn a_cursor_of_redis_is_refused_after_a_failover() {
    let mut server = RedisServer::start(&[]);
    let client = Client::open(&server.url()).expect("a client");
    let guards: Vec<_> = (0..50).map(|n| client.lock(format!("{n}"))).collect();
    let page = client.list(&ListOptions::new().examine(5)).expect("a page");
    let options = ListOptions::new().after(page.next.expect("more"));
    client.list(&options).expect("the same server");
    drop(guards);
    server.restart();
    let refused = client.list(&options).expect_err("another server");
    assert_eq!(refused.code(), ErrorCode::InvalidArgument);
    assert!(refused.to_string().contains("anew"), "{refused}");
    assert!(client.list(&ListOptions::new()).is_ok());
}

/// A page of very many locks, and of large ones, is one that the client takes.
#[test]
fn a_page_of_redis_can_be_full_of_locks() {
    let server = RedisServer::start(&[]);
    let client = Client::open(&server.url()).expect("a client");
    let seed = client.lock("seed").expect("a lock");
    let value = server.cli(&["GET", "syncguard:seed"]).text();
    for n in 0..2000 {
        // Escapes make the longest of values.
        let key = format!("{n}{}", "\u{1}".repeat(if n % 4 == 0 { 400 } else { 0 }));
        let stored = key.replace('\u{1}', "\\u0001");
        let copy = value.replace("\"seed\"", &format!("\"{stored}\""));
        assert_ne!(copy, value);
        server.cli(&["SET", &format!("syncguard:{n}"), &copy]);
    }
    let (keys, pages) = listed(&client, "", 10_000);
    assert_eq!(keys.len(), 2001);
    assert!(pages > 1, "a reply of more than a megabyte");
    assert_eq!(listed(&client, "", 500).0, keys);
    seed.release().expect("an answer").expect_released();
}
