//! Tests the prefixes, tables and host names that a C program gives.

use super::*;
use crate::support::common::postgres::Server;
use crate::support::common::redis::RedisServer;
use syncguard::{Key, KeySpace};

#[test]
fn rows_10_29_30_prefixes() {
    let server = RedisServer::start(&[]);
    let space = KeySpace::redis(&"p".repeat(700)).expect("a prefix");
    let long = Key::new(&"k".repeat(512)).expect("a key");
    let name = space.lock(&long).expect("a name");
    let hash = name.rsplit(':').next().expect("a hash");
    succeed(
        plain("places")
            .arg(server.url())
            .env("HASH_OF_512_KS", hash),
        "places in Redis",
    );
}

#[test]
fn rows_31_32_tables() {
    let server = Server::start(&[]);
    succeed(plain("places").arg(server.url()), "places in Postgres");
    // Exactly the tables that were named, each used once.
    for table in ["select", "MyFences", "myfences", "f"] {
        assert_eq!(server.sql(&format!("SELECT fence FROM \"{table}\"")), "1");
    }
    for table in ["order", "MyLocks", "mylocks"] {
        let left = server.sql(&format!("SELECT count(*) FROM \"{table}\""));
        assert_eq!(left, "0");
    }
}

#[test]
fn row_65_names_with_two_addresses_and_resolvers_that_hang() {
    let server = RedisServer::start_tcp(&[]);
    succeed(plain("resolver").arg(server.tcp_url()), "names of hosts");
}

/// Rows 41 and 42 in a lock file: counters at their end, and rows that are not ours.
#[test]
fn rows_41_42_a_lock_file_that_others_wrote() {
    let dir = scratch();
    let path = dir.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    probe(&url, &["open=ok", "works"]);
    let sql = |statement: &str| {
        let file = rusqlite::Connection::open(&path).expect("the file");
        file.busy_timeout(std::time::Duration::from_secs(30))
            .expect("a timeout");
        file.execute_batch(statement).expect(statement);
    };
    for counter in [
        "900000000000000",
        "999999999999999",
        "9007199254740992",
        "9223372036854775807",
        "-1",
        "'abc'",
    ] {
        sql(&format!(
            "UPDATE syncguard_fence_counters SET fence = {counter}"
        ));
        probe(&url, &["open=ok", &word("tries", INTERNAL), "free"]);
    }
    sql("UPDATE syncguard_fence_counters SET fence = 7");
    let client = syncguard::Client::open(&url).expect("a client");
    for garbage in [
        "lock_id = ''",
        "fence = 'abc'",
        "expires_boot_ms = 'null'",
        "expires_at_ms = '{}'",
    ] {
        std::mem::forget(client.lock("k").expect("a lock"));
        sql(&format!("UPDATE syncguard_locks SET {garbage}"));
        probe(&url, &["open=ok", &word("tries", INTERNAL)]);
        sql("DELETE FROM syncguard_locks");
    }
    // A key that a C array cannot hold is not cut to another lock's.
    let held = "held".to_owned();
    for (key, answer, then) in [
        ("hex(zeroblob(256))", "ok", held.clone()),
        // Longer than any key of ours: nothing of the row is believed.
        (
            "hex(zeroblob(256)) || 'x'",
            INTERNAL,
            word("tries", INTERNAL),
        ),
        ("'a' || char(0) || 'b'", INTERNAL, held),
    ] {
        std::mem::forget(client.lock("k").expect("a lock"));
        sql(&format!("UPDATE syncguard_locks SET user_key = {key}"));
        probe(&url, &["open=ok", &word("raw", answer), &then]);
        sql("DELETE FROM syncguard_locks");
    }
}
