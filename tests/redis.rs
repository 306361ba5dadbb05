//! The Redis backend against a real server: the verbs, what may be stored, rights, topologies that refuse.
#![cfg(feature = "redis")]

#[path = "support/proxy.rs"]
mod proxy;
#[path = "support/redis.rs"]
mod server;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proxy::{Address, Proxy};
use server::{Link, RedisServer, Value};
use syncguard::{
    Absence, AcquireOutcome, Acquired, Backend, CancelToken, ClientOptions, ErrorCode,
    ExtendOutcome, Key, LockError, LockId, LookupBy, RedisBackend, ReleaseOutcome, Ttl,
};

fn open(url: &str) -> RedisBackend {
    RedisBackend::open(url, &ClientOptions::new()).expect("a good URL")
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a legal key")
}

fn id() -> LockId {
    LockId::random().expect("randomness")
}

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).expect("a legal ttl")
}

fn granted(outcome: Result<AcquireOutcome, LockError>) -> Acquired {
    match outcome {
        Ok(AcquireOutcome::Acquired(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn code<T: std::fmt::Debug>(result: Result<T, LockError>) -> ErrorCode {
    result.expect_err("an error").code()
}

#[test]
fn a_lock_lives_and_ends() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let (k, a, b) = (key("job"), id(), id());

    assert!(!redis.is_locked(&k, None).expect("a look"));
    assert!(
        redis
            .lookup(LookupBy::Key(&k), None)
            .expect("a look")
            .is_none()
    );
    let first = granted(redis.acquire(&k, &a, ttl(30_000), None));
    assert_eq!(
        (first.lock_id, first.fence.to_string().as_str()),
        (a, "000000000000001")
    );
    // The same id again is the same grant: its answer may have been lost.
    assert_eq!(granted(redis.acquire(&k, &a, ttl(90_000), None)), first);
    assert_eq!(
        redis.acquire(&k, &b, ttl(30_000), None).expect("an answer"),
        AcquireOutcome::Locked(None)
    );
    assert!(redis.is_locked(&k, None).expect("a look"));
    for by in [LookupBy::Key(&k), LookupBy::LockId(&a)] {
        let found = redis.find(by, None).expect("a look").expect("held");
        assert_eq!((found.key.as_str(), found.lock_id), ("job", a));
        assert_eq!(found.expires_at_ms, first.expires_at_ms);
        assert_eq!(found.expires_at_ms - found.acquired_at_ms, 30_000);
    }
    let info = redis
        .lookup(LookupBy::Key(&k), None)
        .expect("a look")
        .expect("held");
    assert_eq!(
        (info.key_hash, info.lock_id_hash, info.fence),
        (k.hash(), a.hash(), first.fence)
    );

    assert_eq!(
        redis.extend(&b, ttl(1_000), None).expect("an answer"),
        ExtendOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        redis.release(&b, None).expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    let ExtendOutcome::Extended(until) = redis.extend(&a, ttl(60_000), None).expect("an answer")
    else {
        panic!("not extended")
    };
    assert!(until >= first.expires_at_ms + 30_000);
    // Extending replaces and may shorten.
    let ExtendOutcome::Extended(sooner) = redis.extend(&a, ttl(10_000), None).expect("an answer")
    else {
        panic!("not extended")
    };
    assert!(sooner < first.expires_at_ms);
    let stored = redis
        .find(LookupBy::Key(&k), None)
        .expect("a look")
        .expect("held");
    assert_eq!((stored.expires_at_ms, stored.fence), (sooner, first.fence));

    assert_eq!(
        redis.release(&a, None).expect("an answer"),
        ReleaseOutcome::Released
    );
    assert!(!redis.release(&a, None).expect("an answer").is_released());
    let second = granted(redis.acquire(&k, &b, ttl(1), None));
    assert_eq!(second.fence.get(), 2);
    // A millisecond passes by itself; the fence goes on.
    let deadline = Instant::now() + Duration::from_secs(30);
    while redis.is_locked(&k, None).expect("a look") {
        assert!(Instant::now() < deadline, "it never expired");
    }
    assert_eq!(
        redis.extend(&b, ttl(1_000), None).expect("an answer"),
        ExtendOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        granted(redis.acquire(&k, &id(), ttl(1_000), None))
            .fence
            .get(),
        3
    );
    assert_eq!(redis.capabilities().backend, "redis");
}

/// A lock without a TTL of Redis' own, long dead by its own time: written by hand, and still never revived.
#[test]
fn a_dead_lock_that_is_still_stored_is_dead() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let dead = |id: &LockId, expires: i64| {
        let value = format!(
            r#"{{"lockId":"{}","key":"k","fence":"000000000000005","acquiredAtMs":1,"expiresAtMs":{expires}}}"#,
            id.as_str()
        );
        server.cli(&["SET", "syncguard:k", &value]);
        server.cli(&[
            "SET",
            &format!("syncguard:id:{}", id.as_str()),
            "syncguard:k",
        ]);
    };
    let (k, a) = (key("k"), id());
    dead(&a, 5);
    assert!(!redis.is_locked(&k, None).expect("a look"));
    for by in [LookupBy::Key(&k), LookupBy::LockId(&a)] {
        assert!(redis.find(by, None).expect("a look").is_none());
    }
    assert_eq!(
        redis.extend(&a, ttl(1_000), None).expect("an answer"),
        ExtendOutcome::Absent(Absence::Expired)
    );
    dead(&a, 5);
    assert_eq!(
        redis.release(&a, None).expect("an answer"),
        ReleaseOutcome::Absent(Absence::Expired)
    );
    assert_eq!(server.cli(&["EXISTS", "syncguard:k"]).int(), 0);
    dead(&a, 5);
    let grant = granted(redis.acquire(&k, &id(), ttl(30_000), None));
    assert_eq!(grant.fence.get(), 1);
    // Within the tolerance it is alive.
    let now = server.cli(&["TIME"]).list()[0]
        .text()
        .parse::<i64>()
        .expect("seconds")
        * 1000;
    dead(&a, now + 3_600_000);
    assert!(redis.is_locked(&k, None).expect("a look"));
}

#[test]
fn an_index_that_points_at_a_stranger_s_lock_moves_nothing() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let (owner, liar) = (id(), id());
    let grant = granted(redis.acquire(&key("k"), &owner, ttl(30_000), None));
    let index = format!("syncguard:id:{}", liar.as_str());
    server.cli(&["SET", &index, "syncguard:k"]);
    assert_eq!(
        redis.release(&liar, None).expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        redis.extend(&liar, ttl(1), None).expect("an answer"),
        ExtendOutcome::Absent(Absence::NotFound)
    );
    assert!(
        redis
            .find(LookupBy::LockId(&liar), None)
            .expect("a look")
            .is_none()
    );
    let held = redis
        .find(LookupBy::Key(&key("k")), None)
        .expect("a look")
        .expect("held");
    assert_eq!(
        (held.lock_id, held.expires_at_ms),
        (owner, grant.expires_at_ms)
    );
    // Not even a fence counter can be reached through it.
    server.cli(&["SET", &index, "syncguard:fence:syncguard:k"]);
    assert_eq!(code(redis.release(&liar, None)), ErrorCode::Internal);
    assert_eq!(
        server.cli(&["GET", "syncguard:fence:syncguard:k"]).text(),
        "1"
    );
}

#[test]
fn names_are_plain_data() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    for name in [
        "a\nb",
        "\r\n*1\r\n$8\r\nFLUSHALL\r\n",
        "\u{7f}\u{1}\u{1f}",
        "\"quo\\te\"",
        "'; DROP TABLE x; --",
        "$1",
        "%s",
        "%00",
        "日本語",
        "😀",
        "\u{202e}rtl",
        "a b ",
        "A b ",
        "\u{e000}\u{fdd0}",
        "\",\"lockId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"x\":\"",
        "id:42",
        "fence:other:x",
    ] {
        let lock_id = id();
        let grant = granted(redis.acquire(&key(name), &lock_id, ttl(30_000), None));
        assert_eq!(grant.fence.get(), 1, "{name:?}");
        let found = redis
            .find(LookupBy::LockId(&lock_id), None)
            .expect("a look")
            .expect("held");
        assert_eq!(found.key, name);
        // As the server itself would have encoded it.
        let encoded = server
            .cli(&["EVAL", "return cjson.encode(ARGV[1])", "0", name])
            .text();
        let stored = server.cli(&["GET", &format!("syncguard:{name}")]).text();
        assert!(
            stored.starts_with(&format!("{{\"key\":{encoded},\"lockId\":\"")),
            "{stored}"
        );
        assert!(matches!(
            redis.extend(&lock_id, ttl(40_000), None),
            Ok(ExtendOutcome::Extended(_))
        ));
        let found = redis
            .find(LookupBy::Key(&key(name)), None)
            .expect("a look")
            .expect("held");
        assert_eq!((found.key.as_str(), found.fence), (name, grant.fence));
        assert!(
            redis
                .release(&lock_id, None)
                .expect("an answer")
                .is_released()
        );
    }
}

#[test]
fn reserved_names_are_refused_before_anything_is_sent() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    for name in ["fence:syncguard:foo", "id:AAAAAAAAAAAAAAAAAAAAAA"] {
        assert_eq!(
            code(redis.acquire(&key(name), &id(), ttl(1_000), None)),
            ErrorCode::InvalidArgument
        );
        assert_eq!(
            code(redis.is_locked(&key(name), None)),
            ErrorCode::InvalidArgument
        );
    }
    assert_eq!(server.cli(&["DBSIZE"]).int(), 0);
    let _ = granted(redis.acquire(&key("foo"), &id(), ttl(1_000), None));
    for prefix in ["fence", "id", "a\0b", &"p".repeat(952)] {
        let options = ClientOptions::new().key_prefix(prefix);
        assert_eq!(
            code(RedisBackend::open(&server.url(), &options)),
            ErrorCode::InvalidArgument
        );
    }
    // "a" and "a:" are the same prefix.
    let (one, other) = (
        RedisBackend::open(&server.url(), &ClientOptions::new().key_prefix("a")).expect("good"),
        RedisBackend::open(&server.url(), &ClientOptions::new().key_prefix("a:")).expect("good"),
    );
    let _ = granted(one.acquire(&key("k"), &id(), ttl(30_000), None));
    assert!(other.is_locked(&key("k"), None).expect("a look"));
}

#[test]
fn a_foreign_value_is_an_error_and_never_a_grant() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let (k, a) = (key("k"), id());
    let index = format!("syncguard:id:{}", a.as_str());
    let huge = format!("{{\"lockId\":\"{}\"", "x".repeat(3_000_000));
    let deep = "[".repeat(100_000);
    let ours = |fields: &str| format!("{{\"lockId\":\"{}\",{fields}}}", a.as_str());
    let float = ours(
        r#""key":"k","fence":"000000000000001","acquiredAtMs":1,"expiresAtMs":4102444800000.5"#,
    );
    let text_time = ours(
        r#""key":"k","fence":"000000000000001","acquiredAtMs":1,"expiresAtMs":"4102444800000""#,
    );
    let endless =
        ours(r#""key":"k","fence":"000000000000001","acquiredAtMs":1,"expiresAtMs":1e300"#);
    let infinite =
        ours(r#""key":"k","fence":"000000000000001","acquiredAtMs":1,"expiresAtMs":Infinity"#);
    let nan = ours(r#""key":"k","fence":"000000000000001","acquiredAtMs":1,"expiresAtMs":NaN"#);
    for value in [
        "",
        "x",
        "{}",
        "null",
        "[]",
        "1",
        "\"\"",
        "{\"lockId\":1}",
        "{",
        &huge,
        &deep,
        &float,
        &text_time,
        &endless,
        &infinite,
        &nan,
        "{\"expiresAtMs\":4102444800000}",
        "{\"lockId\":null,\"expiresAtMs\":null}",
    ] {
        server.cli(&["FLUSHALL"]);
        server.cli(&["SET", "syncguard:k", value]);
        server.cli(&["SET", &index, "syncguard:k"]);
        let shown = &value[..value.len().min(60)];
        let acquired = redis.acquire(&k, &a, ttl(1_000), None).expect_err(shown);
        assert_eq!(acquired.code(), ErrorCode::Internal, "{shown}");
        assert!(!acquired.may_have_applied() && acquired.key_hash().is_some());
        assert_eq!(
            code(redis.acquire(&k, &id(), ttl(1_000), None)),
            ErrorCode::Internal,
            "{shown}"
        );
        assert_eq!(
            code(redis.release(&a, None)),
            ErrorCode::Internal,
            "{shown}"
        );
        assert_eq!(
            code(redis.extend(&a, ttl(1_000), None)),
            ErrorCode::Internal,
            "{shown}"
        );
        assert_eq!(
            code(redis.is_locked(&k, None)),
            ErrorCode::Internal,
            "{shown}"
        );
        assert_eq!(
            code(redis.find(LookupBy::Key(&k), None)),
            ErrorCode::Internal,
            "{shown}"
        );
        assert_eq!(
            code(redis.find(LookupBy::LockId(&a), None)),
            ErrorCode::Internal,
            "{shown}"
        );
        assert_eq!(server.cli(&["GET", "syncguard:k"]).text(), value);
        assert_eq!(server.cli(&["DBSIZE"]).int(), 2, "{shown}");
    }
    // Alive but incomplete: locked for everybody, no grant for its own id, and no information made up.
    for fields in [
        r#""expiresAtMs":4102444800000"#,
        r#""key":"k","fence":7,"acquiredAtMs":1,"expiresAtMs":4102444800000"#,
        r#""key":"k","fence":"7","acquiredAtMs":1,"expiresAtMs":4102444800000"#,
    ] {
        server.cli(&["SET", "syncguard:k", &ours(fields)]);
        assert_eq!(
            code(redis.acquire(&k, &a, ttl(1_000), None)),
            ErrorCode::Internal
        );
        assert_eq!(
            code(redis.find(LookupBy::Key(&k), None)),
            ErrorCode::Internal
        );
        assert!(redis.is_locked(&k, None).expect("a look"));
        assert_eq!(
            redis
                .acquire(&k, &id(), ttl(1_000), None)
                .expect("an answer"),
            AcquireOutcome::Locked(None)
        );
    }
    // Another type is what Redis itself calls a wrong type.
    server.cli(&["FLUSHALL"]);
    server.cli(&["LPUSH", "syncguard:k", "x"]);
    assert_eq!(
        code(redis.acquire(&k, &a, ttl(1_000), None)),
        ErrorCode::InvalidArgument
    );
    assert_eq!(server.cli(&["DBSIZE"]).int(), 1);
}

#[test]
fn a_counter_that_cannot_count_takes_no_lock() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let (k, counter) = (key("k"), "syncguard:fence:syncguard:k");
    for value in [
        "900000000000000",
        "999999999999999",
        "9007199254740992",
        "9223372036854775807",
        "99999999999999999999",
        "abc",
        "",
        "-1",
        "-9223372036854775808",
        "1.5",
        "1e3",
        "007",
        "+1",
        " 1",
        "0x10",
        "nan",
    ] {
        server.cli(&["SET", counter, value]);
        let error = redis.acquire(&k, &id(), ttl(1_000), None).expect_err(value);
        assert_eq!(error.code(), ErrorCode::Internal, "{value}");
        assert!(!error.may_have_applied());
        assert_eq!(server.cli(&["DBSIZE"]).int(), 1, "{value}");
        assert_eq!(server.cli(&["GET", counter]).text(), value);
    }
    server.cli(&["DEL", counter]);
    server.cli(&["LPUSH", counter, "x"]);
    assert_eq!(
        code(redis.acquire(&k, &id(), ttl(1_000), None)),
        ErrorCode::Internal
    );
    assert_eq!(server.cli(&["DBSIZE"]).int(), 1);

    server.cli(&["DEL", counter]);
    server.cli(&["SET", counter, "899999999999999"]);
    let last = id();
    let grant = granted(redis.acquire(&k, &last, ttl(30_000), None));
    assert_eq!(grant.fence.to_string(), "900000000000000");
    assert!(redis.release(&last, None).expect("an answer").is_released());
    assert_eq!(
        code(redis.acquire(&k, &last, ttl(1_000), None)),
        ErrorCode::Internal
    );
    assert_eq!(server.cli(&["TTL", counter]).int(), -1);
}

#[test]
fn every_verb_is_one_round_trip() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::unix(server.dir().join("p"), Address::Unix(server.socket()));
    let url = format!(
        "redis+unix://{}?db=1&user=admin&pass=x",
        server.dir().join("p").display()
    );
    let redis = open(&url);
    let (k, a) = (key("k"), id());
    let all = |redis: &RedisBackend| {
        let verbs: [(&str, &dyn Fn()); 7] = [
            ("acquire", &|| {
                drop(granted(redis.acquire(&k, &a, ttl(30_000), None)))
            }),
            ("locked", &|| {
                assert!(redis.acquire(&k, &id(), ttl(9), None).is_ok())
            }),
            ("extend", &|| {
                assert!(redis.extend(&a, ttl(30_000), None).is_ok())
            }),
            ("is_locked", &|| {
                assert!(redis.is_locked(&k, None).expect("a look"))
            }),
            ("find by key", &|| {
                assert!(
                    redis
                        .find(LookupBy::Key(&k), None)
                        .expect("a look")
                        .is_some()
                )
            }),
            ("find by id", &|| {
                assert!(
                    redis
                        .find(LookupBy::LockId(&a), None)
                        .expect("a look")
                        .is_some()
                )
            }),
            ("release", &|| {
                assert!(redis.release(&a, None).expect("an answer").is_released())
            }),
        ];
        verbs.map(|(name, verb)| {
            proxy.reset_counts();
            verb();
            (name, proxy.counts().round_trips, proxy.counts().connections)
        })
    };
    // The first time there is a login, and the server does not know the scripts.
    let first = all(&redis);
    assert_eq!(first[0], ("acquire", 3, 1));
    assert_eq!(first[1], ("locked", 1, 0));
    for (name, trips, connections) in all(&redis) {
        assert_eq!((trips, connections), (1, 0), "{name}");
    }
    proxy.reset_counts();
    redis.check(None).expect("a good server");
    assert_eq!(proxy.counts().round_trips, 1);
    let names = server.cli(&["CLIENT", "LIST"]).text();
    assert!(
        names.contains("name=syncguard ") && names.contains(" db=1 "),
        "{names}"
    );
}

#[test]
fn a_server_that_forgets_or_restarts_is_not_an_error() {
    let mut server = RedisServer::start_tcp(&["--appendonly", "yes", "--appendfsync", "always"]);
    for url in [server.url(), server.tcp_url()] {
        let redis = open(&url);
        let k = key("k");
        let cycle = |fence: u64| {
            let a = id();
            let grant = granted(redis.acquire(&k, &a, ttl(30_000), None));
            assert!(redis.release(&a, None).expect("an answer").is_released());
            assert!(grant.fence.get() > fence);
            grant.fence.get()
        };
        let mut fence = cycle(0);
        server.cli(&["SCRIPT", "FLUSH"]);
        fence = cycle(fence);
        server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        fence = cycle(fence);
        server.restart();
        fence = cycle(fence);
        server.cli(&["SCRIPT", "FLUSH"]);
        cycle(fence);
    }
}

#[test]
fn refusals_have_the_code_of_the_table() {
    let server = RedisServer::start(&["--lua-time-limit", "1"]);
    let redis = open(&server.url());
    let (k, a) = (key("k"), id());
    let _ = granted(redis.acquire(&k, &a, ttl(600_000), None));
    let other = key("other");
    let refused = |wanted: ErrorCode, word: &str| {
        let error = redis
            .acquire(&other, &id(), ttl(1_000), None)
            .expect_err(word);
        assert_eq!(error.code(), wanted, "{error}");
        assert!(error.message().contains(word), "{error}");
        assert!(!error.may_have_applied());
    };

    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    refused(ErrorCode::RateLimited, "maxmemory");
    assert_eq!(code(redis.check(None)), ErrorCode::RateLimited);
    // Nothing more is stored to release, and none of it needs memory.
    assert!(redis.is_locked(&k, None).expect("a look"));
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);

    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    refused(ErrorCode::ServiceUnavailable, "replicas");
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);

    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    refused(ErrorCode::ServiceUnavailable, "replica");
    assert_eq!(
        code(redis.extend(&a, ttl(1_000), None)),
        ErrorCode::ServiceUnavailable
    );
    assert_eq!(code(redis.release(&a, None)), ErrorCode::ServiceUnavailable);
    assert_eq!(code(redis.check(None)), ErrorCode::ServiceUnavailable);
    assert!(redis.is_locked(&k, None).expect("a replica can be read"));
    server.cli(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    refused(ErrorCode::ServiceUnavailable, "lost its primary");
    server.cli(&["REPLICAOF", "NO", "ONE"]);

    // A script of somebody else's that does not end.
    let socket = server.socket();
    let busy = std::thread::spawn(move || {
        let mut link = Link::open(&socket).expect("a connection");
        link.call(&["EVAL", "while true do end", "0"])
            .expect("an answer")
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    while !matches!(redis.is_locked(&k, None), Err(e) if e.message().contains("busy")) {
        assert!(Instant::now() < deadline, "it is never busy");
    }
    refused(ErrorCode::ServiceUnavailable, "busy");
    server.cli(&["SCRIPT", "KILL"]);
    assert!(matches!(busy.join().expect("it ends"), Value::Error(_)));
    assert!(redis.release(&a, None).expect("an answer").is_released());

    server.cli(&["CONFIG", "SET", "maxclients", "1"]);
    let full = open(&server.url());
    let held = Link::open(&server.socket()).expect("a connection");
    let error = full.is_locked(&k, None).expect_err("no room");
    assert!(
        matches!(
            error.code(),
            ErrorCode::RateLimited | ErrorCode::ServiceUnavailable
        ),
        "{error}"
    );
    drop(held);
}

#[test]
fn a_server_that_is_loading_says_so() {
    let mut server = RedisServer::start(&[]);
    let fill = "for i = 1, 3000 do redis.call('SET', 'x' .. i, string.rep('y', 2000)) end";
    server.cli(&["EVAL", fill, "0"]);
    let redis = open(&server.url());
    redis.check(None).expect("a good server");
    server.cli(&["SAVE"]);
    server.kill();
    server.start_loading(&[
        "--key-load-delay",
        "20000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    let error = redis
        .acquire(&key("k"), &id(), ttl(1_000), None)
        .expect_err("still loading");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert!(error.message().contains("loading"), "{error}");
}

#[test]
fn a_cluster_node_says_what_is_wrong() {
    let server = RedisServer::start_tcp(&["--cluster-enabled", "yes"]);
    let options = ClientOptions::new().key_prefix("{app}");
    let tagged = RedisBackend::open(&server.url(), &options).expect("good");
    let down = code(tagged.acquire(&key("k"), &id(), ttl(1_000), None));
    assert_eq!(down, ErrorCode::ServiceUnavailable);
    let slots: Vec<String> = (0..16384).map(|slot| slot.to_string()).collect();
    let mut add = vec!["CLUSTER", "ADDSLOTS"];
    add.extend(slots.iter().map(String::as_str));
    server.cli(&add);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !server
        .cli(&["CLUSTER", "INFO"])
        .text()
        .contains("cluster_state:ok")
    {
        assert!(Instant::now() < deadline, "the cluster never came up");
        std::thread::sleep(Duration::from_millis(20));
    }
    let a = id();
    let _ = granted(tagged.acquire(&key("k"), &a, ttl(30_000), None));
    assert!(matches!(
        tagged.extend(&a, ttl(30_000), None),
        Ok(ExtendOutcome::Extended(_))
    ));
    assert!(tagged.release(&a, None).expect("an answer").is_released());
    let error = open(&server.url())
        .acquire(&key("k"), &id(), ttl(1_000), None)
        .expect_err("no tag");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("{app}"), "{error}");
    let numbered = open(&format!("{}?db=1", server.url()));
    assert_eq!(code(numbered.check(None)), ErrorCode::InvalidArgument);
}

/// The rights of the line that the documentation gives.
fn minimal() -> Vec<&'static str> {
    let line = include_str!("../docs/wire-format.md")
        .lines()
        .find_map(|l| l.strip_prefix("ACL SETUSER locks on >password "))
        .expect("the documented line");
    line.split(' ').collect()
}

fn acl(server: &RedisServer, user: &str, rules: &[&str]) {
    let mut command = vec!["ACL", "SETUSER", user, "reset", "on", ">s3cret pa@ss"];
    command.extend_from_slice(rules);
    server.cli(&command);
}

#[test]
fn rights_are_few_and_a_missing_one_is_named() {
    let server = RedisServer::start(&[]);
    let minimal = minimal();
    let as_user = |user: &str| {
        open(&format!(
            "{}?user={user}&pass=s3cret%20pa%40ss",
            server.url()
        ))
    };
    acl(&server, "bob", &minimal);
    let bob = as_user("bob");
    let (k, a) = (key("k"), id());
    let _ = granted(bob.acquire(&k, &a, ttl(30_000), None));
    assert!(bob.is_locked(&k, None).expect("a look"));
    assert!(matches!(
        bob.extend(&a, ttl(30_000), None),
        Ok(ExtendOutcome::Extended(_))
    ));
    assert!(
        bob.find(LookupBy::LockId(&a), None)
            .expect("a look")
            .is_some()
    );
    assert!(bob.release(&a, None).expect("an answer").is_released());
    // Without CLIENT SETNAME, INFO and CONFIG it works; what was not looked at is said.
    let warnings = bob.check(None).expect("all rights are there");
    assert!(warnings[0].contains("INFO"), "{warnings:?}");

    for (missing, said) in [
        ("+evalsha", "EVALSHA"),
        ("+eval", "EVAL"),
        ("+incr", "INCR"),
        ("+set", "SET"),
        ("+get", "GET"),
        ("+time", "TIME"),
        ("~syncguard:*", "key_prefix"),
    ] {
        server.cli(&["SCRIPT", "FLUSH"]);
        let rules: Vec<&str> = minimal.iter().copied().filter(|r| *r != missing).collect();
        acl(&server, "eve", &rules);
        let eve = as_user("eve");
        for error in [
            eve.acquire(&k, &id(), ttl(1_000), None)
                .map(|_| ())
                .expect_err(missing),
            eve.check(None).map(|_| ()).expect_err(missing),
        ] {
            assert_eq!(error.code(), ErrorCode::AuthFailed, "{missing}: {error}");
            assert!(error.message().contains(said), "{missing}: {error}");
            assert!(!error.may_have_applied());
        }
        assert!(!open(&server.url()).is_locked(&k, None).expect("a look"));
    }

    for url in ["bob&pass=wrong", "nobody&pass=s3cret", "bob"] {
        let error = open(&format!("{}?user={url}", server.url()))
            .is_locked(&k, None)
            .expect_err("a wrong password");
        assert_eq!(error.code(), ErrorCode::AuthFailed);
        assert!(!format!("{error:?}").contains("s3cret"));
    }
    let unneeded = open(&format!("{}?pass=x", server.url()));
    assert_eq!(code(unneeded.is_locked(&k, None)), ErrorCode::AuthFailed);
    server.cli(&["CONFIG", "SET", "requirepass", "s3cret"]);
    let error = open(&server.url())
        .is_locked(&k, None)
        .expect_err("no password");
    assert_eq!(error.code(), ErrorCode::AuthFailed);
    assert!(error.message().contains("password"));
    assert!(
        open(&format!("{}?pass=s3cret", server.url()))
            .check(None)
            .is_ok()
    );
    let missing = open(&format!("{}?pass=s3cret&db=999", server.url()));
    assert_eq!(
        code(missing.is_locked(&k, None)),
        ErrorCode::InvalidArgument
    );
}

#[test]
fn check_warns_of_what_loses_locks_and_fences() {
    let server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let redis = open(&server.url());
    assert_eq!(
        redis.check(None).expect("a good server"),
        Vec::<String>::new()
    );
    assert_eq!(server.cli(&["DBSIZE"]).int(), 0);
    for (setting, value, said) in [
        ("maxmemory-policy", "volatile-lru", "volatile-lru"),
        ("maxmemory-policy", "allkeys-random", "allkeys-random"),
        ("maxmemory-policy", "noeviction", ""),
        ("appendfsync", "everysec", "appendfsync"),
        ("appendonly", "no", "appendonly yes"),
    ] {
        server.cli(&["CONFIG", "SET", setting, value]);
        let warnings = redis.check(None).expect("a good server").join("\n");
        assert!(
            if said.is_empty() {
                warnings.is_empty()
            } else {
                warnings.contains(said)
            },
            "{setting} {value}: {warnings}"
        );
    }
}

#[test]
fn databases_are_apart() {
    let server = RedisServer::start_tcp(&[]);
    let one = open(&format!("{}/1", server.tcp_url()));
    let two = open(&format!("{}/2", server.tcp_url()));
    let _ = granted(one.acquire(&key("k"), &id(), ttl(30_000), None));
    assert!(!two.is_locked(&key("k"), None).expect("a look"));
    assert!(
        open(&format!("{}?db=1", server.tcp_url()))
            .is_locked(&key("k"), None)
            .expect("a look")
    );
}

#[test]
fn cancel_ends_a_call_before_and_in_flight() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let token = CancelToken::new();
    token.cancel();
    let error = redis
        .is_locked(&key("k"), Some(&token))
        .expect_err("cancelled");
    assert_eq!(error.code(), ErrorCode::Aborted);
    assert!(!error.may_have_applied());

    let a = id();
    let _ = granted(redis.acquire(&key("k"), &a, ttl(30_000), None));
    let token = CancelToken::new();
    let paused = server.pause();
    let result = std::thread::scope(|scope| {
        let call = scope.spawn(|| redis.release(&a, Some(&token)));
        std::thread::sleep(Duration::from_millis(50));
        token.cancel();
        call.join().expect("it returns")
    });
    let error = result.expect_err("cancelled");
    assert_eq!(error.code(), ErrorCode::Aborted);
    assert!(error.may_have_applied());
    drop(paused);
    // The late reply of the cancelled call is nobody else's.
    assert!(
        redis
            .is_locked(&key("other"), None)
            .is_ok_and(|locked| !locked)
    );
}

#[test]
fn a_full_pool_is_said_and_keeps_a_place_for_releases() {
    let server = RedisServer::start(&[]);
    let options = ClientOptions::new()
        .pool_size(2)
        .operation_timeout(Duration::from_millis(600));
    let redis = RedisBackend::open(&server.url(), &options).expect("good");
    let a = id();
    let _ = granted(redis.acquire(&key("k"), &a, ttl(30_000), None));
    let paused = server.pause();
    let codes = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| code(redis.is_locked(&key("x"), None))))
            .collect();
        calls
            .into_iter()
            .map(|c| c.join().expect("it returns"))
            .collect::<Vec<_>>()
    });
    assert!(codes.contains(&ErrorCode::RateLimited), "{codes:?}");
    assert!(codes.contains(&ErrorCode::NetworkTimeout), "{codes:?}");
    drop(paused);
    assert!(redis.release(&a, None).expect("an answer").is_released());
}

#[cfg(feature = "tls")]
#[test]
fn tls_is_verified_unless_told_otherwise() {
    let made =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let certificate = made.cert.pem();
    let server = RedisServer::start_tls(&certificate, &made.signing_key.serialize_pem(), &[]);
    let ca = server.dir().join("cert.pem");
    let url = format!("rediss://admin:x@127.0.0.1:{}/1", server.port());

    let trusted = ClientOptions::new().tls_ca_file(&ca);
    let redis = RedisBackend::open(&url, &trusted).expect("good");
    let (k, a) = (key("k"), id());
    for _ in 0..50 {
        let _ = granted(redis.acquire(&k, &a, ttl(30_000), None));
        assert!(redis.release(&a, None).expect("an answer").is_released());
    }
    redis.check(None).expect("a good server");
    server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(
        !redis
            .is_locked(&k, None)
            .expect("a connection that died while idle is replaced")
    );

    // A certificate nobody vouches for, or of another host.
    assert_eq!(code(open(&url).is_locked(&k, None)), ErrorCode::AuthFailed);
    let elsewhere = url.replace("127.0.0.1", "localhost");
    let wrong_host = RedisBackend::open(&elsewhere, &trusted).expect("good");
    assert_eq!(code(wrong_host.is_locked(&k, None)), ErrorCode::AuthFailed);
    let careless = ClientOptions::new().tls_danger_accept_invalid_certs(true);
    let redis = RedisBackend::open(&elsewhere, &careless).expect("good");
    assert!(!redis.is_locked(&k, None).expect("a look"));

    // Plain to a TLS port, and TLS to a plain one.
    let plain = open(&url.replace("rediss", "redis"));
    assert!(plain.is_locked(&k, None).is_err());
    let other = RedisServer::start_tcp(&[]);
    let quick = trusted.connect_timeout(Duration::from_millis(200));
    let tls_to_plain = other.tcp_url().replace("redis", "rediss");
    let redis = RedisBackend::open(&tls_to_plain, &quick).expect("good");
    let error = redis.is_locked(&k, None).expect_err("no TLS there");
    // Redis takes the handshake for the beginning of a long line and waits for its end.
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    assert!(!error.may_have_applied());
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_that_was_not_built_is_refused_by_name() {
    let error = RedisBackend::open("rediss://h", &ClientOptions::new()).expect_err("not built");
    assert!(error.message().contains("tls"));
}

/// Shifts the wall clock of the process it is loaded into; `libfaketime` hangs redis-server at its start.
const CLOCK_SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long offset(void) { const char *s = getenv("CLOCK_OFFSET"); return s ? atol(s) : 0; }
int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
    int r = real(tv, tz);
    if (tv) tv->tv_sec += offset();
    return r;
}
int clock_gettime(clockid_t id, struct timespec *ts) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int r = real(id, ts);
    if (id == CLOCK_REALTIME) ts->tv_sec += offset();
    return r;
}
time_t time(time_t *out) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (out) *out = ts.tv_sec;
    return ts.tv_sec;
}
"#;

#[test]
fn the_server_may_live_in_1970_or_2100() {
    let dir = tempfile::tempdir().expect("a directory");
    let (source, shim) = (dir.path().join("shim.c"), dir.path().join("shim.so"));
    std::fs::write(&source, CLOCK_SHIM).expect("a file");
    let built = std::process::Command::new("gcc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&shim, &source])
        .arg("-ldl")
        .status()
        .expect("gcc is installed");
    assert!(built.success());
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs() as i64;
    for year in [86_400, 4_102_444_800i64] {
        let offset = (year - now).to_string();
        let server = RedisServer::start_env(&[
            ("LD_PRELOAD", shim.to_str().expect("UTF-8")),
            ("CLOCK_OFFSET", &offset),
        ]);
        let redis = open(&server.url());
        let (k, a) = (key("k"), id());
        let grant = granted(redis.acquire(&k, &a, ttl(30_000), None));
        let apart = grant.expires_at_ms - year * 1000;
        assert!(
            (30_000..120_000).contains(&apart),
            "the shim did not work: {apart}"
        );
        assert!(redis.is_locked(&k, None).expect("a look"));
        assert!(
            matches!(redis.extend(&a, ttl(60_000), None), Ok(ExtendOutcome::Extended(until)) if until > grant.expires_at_ms)
        );
        let found = redis
            .find(LookupBy::LockId(&a), None)
            .expect("a look")
            .expect("held");
        assert_eq!(found.acquired_at_ms, grant.expires_at_ms - 30_000);
        assert!(redis.release(&a, None).expect("an answer").is_released());
        assert_eq!(
            granted(redis.acquire(&k, &id(), ttl(5), None)).fence.get(),
            2
        );
        let deadline = Instant::now() + Duration::from_secs(30);
        while redis.is_locked(&k, None).expect("a look") {
            assert!(Instant::now() < deadline, "it never expired");
        }
    }
}

#[test]
fn a_forked_child_gets_an_error_and_sends_nothing() {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let (k, a) = (key("k"), id());
    let _ = granted(redis.acquire(&k, &a, ttl(600_000), None));
    let commands = || {
        let stats = server.cli(&["INFO", "commandstats"]).text();
        stats
            .lines()
            .filter(|l| l.starts_with("cmdstat_eval"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = commands();
    // SAFETY: the child calls the library, which must bear it, and leaves without unwinding.
    match unsafe { fork() }.expect("a child") {
        ForkResult::Child => {
            let refused = redis
                .release(&a, None)
                .is_err_and(|e| e.code() == ErrorCode::Internal && !e.may_have_applied());
            let also = redis.check(None).is_err();
            drop(redis);
            // SAFETY: it ends the process at once.
            unsafe { nix::libc::_exit(i32::from(!(refused && also))) };
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None).expect("our own child");
            assert_eq!(status, WaitStatus::Exited(child, 0));
        }
    }
    assert_eq!(commands(), before);
    // The connection is still the parent's, and in step.
    assert!(redis.release(&a, None).expect("an answer").is_released());
}

/// Cycles per thread; `SYNCGUARD_TORTURE_CYCLES` for more.
fn cycles() -> u64 {
    std::env::var("SYNCGUARD_TORTURE_CYCLES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(20_000)
}

#[test]
fn no_two_hold_one_key_and_fences_only_grow() {
    const KEYS: usize = 16;
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let keys: Vec<Key> = (0..KEYS).map(|i| key(&format!("k{i}"))).collect();
    let held: Vec<AtomicBool> = (0..KEYS).map(|_| AtomicBool::new(false)).collect();
    let fences: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let grants = AtomicU64::new(0);
    let per_thread = cycles();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (redis, keys, held, fences, grants) = (&redis, &keys, &held, &fences, &grants);
            scope.spawn(move || {
                let mut random = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(thread + 1);
                for _ in 0..per_thread {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let at = (random >> 33) as usize % KEYS;
                    let mine = id();
                    let outcome = redis.acquire(&keys[at], &mine, ttl(60_000), None);
                    if let AcquireOutcome::Acquired(grant) = outcome.expect("an answer") {
                        assert!(!held[at].swap(true, Ordering::SeqCst), "two hold one key");
                        let before = fences[at].swap(grant.fence.get(), Ordering::SeqCst);
                        assert!(before < grant.fence.get(), "a fence went back");
                        assert!(held[at].swap(false, Ordering::SeqCst));
                        assert!(redis.release(&mine, None).expect("an answer").is_released());
                        grants.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let total: u64 = fences.iter().map(|f| f.load(Ordering::SeqCst)).sum();
    assert_eq!(
        total,
        grants.load(Ordering::SeqCst),
        "every grant has a fence of its own"
    );
}
