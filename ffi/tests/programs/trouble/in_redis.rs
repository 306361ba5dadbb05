//! Tests C programs on a Redis that refuses, or holds values that the library did not write.

use std::time::{Duration, Instant};

use super::*;
use crate::support::common::redis::{RedisServer, Value};

/// Whether it only looks or not: refused for this reason.
#[track_caller]
fn refused(url: &str, status: &str, says: &str) {
    probe(
        url,
        &[
            "hides=hunter2",
            &word("says", says),
            "open=ok",
            &word("check", status),
            &word("writes", status),
            &word("reads", status),
        ],
    );
}

/// Nothing is taken, for this reason.
#[track_caller]
fn not_taken(url: &str, status: &str, says: &str) {
    probe(
        url,
        &[&word("says", says), "open=ok", &word("tries", status)],
    );
}

#[test]
fn row_36_wrong_password_no_permission_no_database() {
    let server = RedisServer::start(&[]);
    server.cli(&["CONFIG", "SET", "requirepass", "sesame"]);
    let url = |rest: &str| format!("{}?{rest}", server.url());
    refused(&server.url(), REFUSED, "password");
    refused(&url("pass=hunter2"), REFUSED, "");
    refused(&url("user=nobody&pass=hunter2"), REFUSED, "");
    refused(&url("pass=sesame&db=999"), IA, "");
    probe(&url("pass=sesame"), &["open=ok", "check=ok", "works"]);
    let rights = ["~*", "+get", "+time", "+exists"];
    let weak = ["ACL", "SETUSER", "weak", "reset", "on", ">hunter2"];
    server.cli(&[&weak[..], &rights].concat());
    let writes = word("writes", REFUSED);
    probe(
        &url("user=weak&pass=hunter2"),
        &[
            "hides=hunter2",
            "says=EVAL",
            "open=ok",
            &word("check", REFUSED),
            &writes,
        ],
    );
}

#[test]
fn row_39_a_replica_no_memory_and_no_disk() {
    let server = RedisServer::start(&[]);
    let url = server.url();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    not_taken(&url, FULL, "maxmemory");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    not_taken(&url, DOWN, "replica");
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    // The snapshot cannot be written: something else has its name.
    std::fs::create_dir(server.dir().join("dump.rdb")).expect("a directory");
    server.cli(&["CONFIG", "SET", "save", "3600 1000000"]);
    server.cli(&["BGSAVE"]);
    let deadline = Instant::now() + Duration::from_secs(30);
    let failed = "rdb_last_bgsave_status:err";
    while !server.cli(&["INFO", "persistence"]).text().contains(failed) {
        assert!(Instant::now() < deadline, "the snapshot never failed");
        std::thread::sleep(Duration::from_millis(5));
    }
    not_taken(&url, DOWN, "disk");
    server.cli(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    probe(&url, &["open=ok", "works"]);
}

#[test]
fn row_39_a_server_that_evicts_is_warned_of() {
    let server = RedisServer::start(&["--maxmemory-policy", "volatile-lru"]);
    let words = ["open=ok", "check=ok", "warned=volatile-lru", "works"];
    probe(&server.url(), &words);
}

#[test]
fn row_39_a_server_that_is_loading() {
    let mut server = RedisServer::start(&[]);
    let fill = "for i = 1, 3000 do redis.call('SET', 'x' .. i, string.rep('y', 2000)) end";
    server.cli(&["EVAL", fill, "0"]);
    server.cli(&["SAVE"]);
    server.kill();
    server.start_loading(&[
        "--key-load-delay",
        "20000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    not_taken(&server.url(), DOWN, "loading");
}

#[test]
fn row_39_scripts_denied_by_the_acl() {
    let server = RedisServer::start(&[]);
    let user = ["ACL", "SETUSER", "eve", "reset", "on", ">hunter2"];
    let rights = ["~*", "&*", "+@all", "-@scripting"];
    server.cli(&[&user[..], &rights].concat());
    let url = format!("{}?user=eve&pass=hunter2", server.url());
    let writes = word("writes", REFUSED);
    probe(&url, &["hides=hunter2", "says=EVAL", "open=ok", &writes]);
}

#[test]
fn row_39_a_node_of_a_cluster() {
    let server = RedisServer::start_tcp(&["--cluster-enabled", "yes"]);
    not_taken(&server.url(), "service unavailable|invalid argument", "");
    let slots: Vec<String> = (0..16384).map(|slot| slot.to_string()).collect();
    let mut add = vec!["CLUSTER", "ADDSLOTS"];
    add.extend(slots.iter().map(String::as_str));
    server.cli(&add);
    let deadline = Instant::now() + Duration::from_secs(30);
    let up = "cluster_state:ok";
    while !server.cli(&["CLUSTER", "INFO"]).text().contains(up) {
        assert!(Instant::now() < deadline, "the cluster never came up");
        std::thread::sleep(Duration::from_millis(20));
    }
    not_taken(&server.url(), IA, "{app}");
    probe(&server.url(), &["prefix={app}", "open=ok", "works"]);
}

#[test]
fn row_41_counters_that_cannot_count() {
    let server = RedisServer::start(&[]);
    let counter = "syncguard:fence:syncguard:k";
    for value in [
        "900000000000000",
        "999999999999999",
        "9007199254740992",
        "9223372036854775807",
        "abc",
        "-1",
    ] {
        server.cli(&["SET", counter, value]);
        probe(
            &server.url(),
            &["open=ok", &word("tries", INTERNAL), "free"],
        );
        assert_eq!(server.cli(&["GET", counter]).text(), value);
    }
    server.cli(&["DEL", counter]);
    server.cli(&["LPUSH", counter, "x"]);
    probe(
        &server.url(),
        &["open=ok", &word("tries", INTERNAL), "free"],
    );
}

#[test]
fn row_42_values_that_we_did_not_write() {
    let server = RedisServer::start(&[]);
    let ours = |fields: &str| format!(r#"{{"lockId":"{}",{fields}}}"#, "A".repeat(22));
    let garbage = [
        "x".to_owned(),
        "{}".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        r#"{"lockId":1}"#.to_owned(),
        "x".repeat(3_000_000),
        "[".repeat(100_000),
        ours(
            r#""key":"k","fence":"000000000000001","acquiredAtMs":1,"expiresAtMs":4102444800000.5"#,
        ),
        ours(
            r#""key":"k","fence":"000000000000001","acquiredAtMs":1,"expiresAtMs":"4102444800000""#,
        ),
        r#"{"expiresAtMs":4102444800000}"#.to_owned(),
    ];
    for value in &garbage {
        server.cli(&["SET", "syncguard:k", value]);
        let tries = word("tries", INTERNAL);
        probe(&server.url(), &["open=ok", &tries]);
        assert_eq!(server.cli(&["GET", "syncguard:k"]).text(), *value);
    }
    server.cli(&["DEL", "syncguard:k"]);
    server.cli(&["LPUSH", "syncguard:k", "x"]);
    probe(
        &server.url(),
        &["says=another type", "open=ok", &word("tries", IA)],
    );
    // In another order, and as the TypeScript library writes it: held.
    let times = r#""acquiredAtMs":1,"expiresAtMs":4102444800000"#;
    for value in [
        ours(r#""expiresAtMs":4102444800000,"acquiredAtMs":1,"fence":"000000000000007","key":"k""#),
        format!(
            r#"{{"key":"k","lockId":"{}","fence":"000000000000007",{times}}}"#,
            "A".repeat(22)
        ),
    ] {
        server.cli(&["SET", "syncguard:k", &value]);
        probe(&server.url(), &["open=ok", "held", "tries=locked"]);
        assert_eq!(
            server.cli(&["GET", "syncguard:k"]),
            Value::Text(value.into_bytes())
        );
    }
}
