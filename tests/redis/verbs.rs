//! Tests the verbs on a real Redis server, and the values that may be stored there.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::proxy::{Address, Mode, Proxy};
use crate::support::redis::RedisServer;
use crate::support::verbs::{self, code, granted, id, key, ttl};
use crate::support::{eventually, process};
use syncguard::{
    Absence, AcquireOutcome, Backend, Call, CancelToken, ClientOptions, ErrorCode, ExtendOutcome,
    Key, LockId, LookupBy, RedisBackend, ReleaseOutcome, TIME_TOLERANCE_MS,
};

fn open(url: &str) -> RedisBackend {
    RedisBackend::open(url, &verbs::patient()).expect("a good URL")
}

#[test]
fn a_lock_is_granted_once_and_found() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let (k, a, b) = (key("job"), id(), id());

    assert!(!redis.is_locked(&k, &Call::new()).expect("a look"));
    assert!(
        redis
            .lookup(LookupBy::Key(&k), &Call::new())
            .expect("a look")
            .is_none()
    );
    let first = granted(redis.acquire(&k, &a, ttl(30_000), &Call::new()));
    assert_eq!(
        (first.lock_id, first.fence.to_string().as_str()),
        (a, "000000000000001")
    );
    // The same id again is the same grant: its answer may have been lost.
    assert_eq!(
        granted(redis.acquire(&k, &a, ttl(90_000), &Call::new())),
        first
    );
    assert!(matches!(
        redis
            .acquire(&k, &b, ttl(30_000), &Call::new())
            .expect("an answer"),
        AcquireOutcome::Locked(_)
    ));
    assert!(redis.is_locked(&k, &Call::new()).expect("a look"));
    for by in [LookupBy::Key(&k), LookupBy::LockId(&a)] {
        let found = redis.find(by, &Call::new()).expect("a look").expect("held");
        assert_eq!((found.key.as_str(), found.lock_id), ("job", a));
        assert_eq!(found.expires_at_ms, first.expires_at_ms);
        assert_eq!(found.expires_at_ms - found.acquired_at_ms, 30_000);
    }
    let info = redis
        .lookup(LookupBy::Key(&k), &Call::new())
        .expect("a look")
        .expect("held");
    assert_eq!(
        (info.key_hash, info.lock_id_hash, info.fence),
        (k.log_hash(), a.log_hash(), first.fence)
    );
    assert_eq!(redis.capabilities().backend, "redis");
}

#[test]
fn a_lock_is_extended_released_and_expires() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let (k, a, b) = (key("job"), id(), id());
    let first = granted(redis.acquire(&k, &a, ttl(30_000), &Call::new()));
    assert_eq!(
        redis
            .extend(&b, ttl(1_000), &Call::new())
            .expect("an answer"),
        ExtendOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        redis.release(&b, &Call::new()).expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    let ExtendOutcome::Extended(until) = redis
        .extend(&a, ttl(60_000), &Call::new())
        .expect("an answer")
    else {
        panic!("not extended")
    };
    assert!(until >= first.expires_at_ms + 30_000);
    // Without the index the lock could not be released any more.
    let index = format!("syncguard:id:{}", a.as_str());
    assert!(server.cli(&["PTTL", &index]).int() > 30_000);
    // Extending replaces and may shorten.
    let ExtendOutcome::Extended(sooner) = redis
        .extend(&a, ttl(10_000), &Call::new())
        .expect("an answer")
    else {
        panic!("not extended")
    };
    assert!(sooner < first.expires_at_ms);
    let stored = redis
        .find(LookupBy::Key(&k), &Call::new())
        .expect("a look")
        .expect("held");
    assert_eq!((stored.expires_at_ms, stored.fence), (sooner, first.fence));

    assert_eq!(
        redis.release(&a, &Call::new()).expect("an answer"),
        ReleaseOutcome::Released
    );
    assert!(
        !redis
            .release(&a, &Call::new())
            .expect("an answer")
            .is_released()
    );
    let second = granted(redis.acquire(&k, &b, ttl(1), &Call::new()));
    assert_eq!(second.fence.get(), 2);
    // A millisecond passes by itself; the fence goes on.
    let deadline = Instant::now() + Duration::from_secs(30);
    while redis.is_locked(&k, &Call::new()).expect("a look") {
        assert!(Instant::now() < deadline, "it never expired");
    }
    assert_eq!(
        redis
            .extend(&b, ttl(1_000), &Call::new())
            .expect("an answer"),
        ExtendOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        granted(redis.acquire(&k, &id(), ttl(1_000), &Call::new()))
            .fence
            .get(),
        3
    );
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
    assert!(!redis.is_locked(&k, &Call::new()).expect("a look"));
    for by in [LookupBy::Key(&k), LookupBy::LockId(&a)] {
        assert!(redis.find(by, &Call::new()).expect("a look").is_none());
    }
    assert_eq!(
        redis
            .extend(&a, ttl(1_000), &Call::new())
            .expect("an answer"),
        ExtendOutcome::Absent(Absence::Expired)
    );
    dead(&a, 5);
    assert_eq!(
        redis.release(&a, &Call::new()).expect("an answer"),
        ReleaseOutcome::Absent(Absence::Expired)
    );
    assert_eq!(server.cli(&["EXISTS", "syncguard:k"]).int(), 0);
    dead(&a, 5);
    let grant = granted(redis.acquire(&k, &id(), ttl(30_000), &Call::new()));
    assert_eq!(grant.fence.get(), 1);
    // Within the tolerance it is alive. A look that took longer than that shows nothing, and is repeated.
    let now = || {
        let time = server.cli(&["TIME"]);
        let part = |i: usize| time.list()[i].text().parse::<i64>().expect("a number");
        part(0) * 1000 + part(1) / 1000
    };
    eventually("a look within the tolerance", || {
        let end = now();
        dead(&a, end);
        let alive = redis.is_locked(&k, &Call::new()).expect("a look");
        let in_time = now() < end + TIME_TOLERANCE_MS;
        assert!(alive || !in_time, "a lock in its tolerance is given away");
        in_time
    });
}

#[test]
fn an_index_that_points_at_a_stranger_s_lock_moves_nothing() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let (owner, liar) = (id(), id());
    let grant = granted(redis.acquire(&key("k"), &owner, ttl(30_000), &Call::new()));
    let index = format!("syncguard:id:{}", liar.as_str());
    server.cli(&["SET", &index, "syncguard:k"]);
    assert_eq!(
        redis.release(&liar, &Call::new()).expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    assert_eq!(
        redis
            .extend(&liar, ttl(1), &Call::new())
            .expect("an answer"),
        ExtendOutcome::Absent(Absence::NotFound)
    );
    assert!(
        redis
            .find(LookupBy::LockId(&liar), &Call::new())
            .expect("a look")
            .is_none()
    );
    let held = redis
        .find(LookupBy::Key(&key("k")), &Call::new())
        .expect("a look")
        .expect("held");
    assert_eq!(
        (held.lock_id, held.expires_at_ms),
        (owner, grant.expires_at_ms)
    );
    // Not even a fence counter can be reached through it.
    server.cli(&["SET", &index, "syncguard:fence:syncguard:k"]);
    assert_eq!(
        code(redis.release(&liar, &Call::new())),
        ErrorCode::Internal
    );
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
        let grant = granted(redis.acquire(&key(name), &lock_id, ttl(30_000), &Call::new()));
        assert_eq!(grant.fence.get(), 1, "{name:?}");
        let found = redis
            .find(LookupBy::LockId(&lock_id), &Call::new())
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
            redis.extend(&lock_id, ttl(40_000), &Call::new()),
            Ok(ExtendOutcome::Extended(_))
        ));
        let found = redis
            .find(LookupBy::Key(&key(name)), &Call::new())
            .expect("a look")
            .expect("held");
        assert_eq!((found.key.as_str(), found.fence), (name, grant.fence));
        assert!(
            redis
                .release(&lock_id, &Call::new())
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
            code(redis.acquire(&key(name), &id(), ttl(1_000), &Call::new())),
            ErrorCode::InvalidArgument
        );
        assert_eq!(
            code(redis.is_locked(&key(name), &Call::new())),
            ErrorCode::InvalidArgument
        );
    }
    assert_eq!(server.cli(&["DBSIZE"]).int(), 0);
    let _ = granted(redis.acquire(&key("foo"), &id(), ttl(1_000), &Call::new()));
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
    let _ = granted(one.acquire(&key("k"), &id(), ttl(30_000), &Call::new()));
    assert!(other.is_locked(&key("k"), &Call::new()).expect("a look"));
}

#[test]
fn prefixes_of_every_shape() {
    let server = RedisServer::start(&[]);
    let with = |prefix: &str| {
        RedisBackend::open(&server.url(), &ClientOptions::new().key_prefix(prefix)).expect(prefix)
    };
    let long = "p".repeat(940);
    for prefix in ["", "{}", "a b", "é", "{app}:x", "a:b", &long] {
        let (redis, a) = (with(prefix), id());
        assert_eq!(
            granted(redis.acquire(&key("k"), &a, ttl(30_000), &Call::new()))
                .fence
                .get(),
            1,
            "{prefix}"
        );
        assert!(
            redis
                .release(&a, &Call::new())
                .expect("an answer")
                .is_released()
        );
    }
    // Only colons are no prefix.
    let _ = granted(with(":::").acquire(&key("k"), &id(), ttl(30_000), &Call::new()));
    assert!(with("").is_locked(&key("k"), &Call::new()).expect("a look"));

    // A key that is the hash of another one is the same lock, with one holder.
    server.cli(&["FLUSHALL"]);
    let (redis, a) = (with(&long), id());
    let name = key(&"k".repeat(200));
    let _ = granted(redis.acquire(&name, &a, ttl(30_000), &Call::new()));
    let stored = server
        .cli(&["GET", &server.cli(&["KEYS", "*:id:*"]).list()[0].text()])
        .text();
    let hash = stored.rsplit(':').next().expect("a name").to_owned();
    assert_eq!(hash.len(), 22);
    assert!(matches!(
        redis
            .acquire(&key(&hash), &id(), ttl(30_000), &Call::new())
            .expect("an answer"),
        AcquireOutcome::Locked(_)
    ));
    assert!(
        redis
            .release(&a, &Call::new())
            .expect("an answer")
            .is_released()
    );
    assert_eq!(
        granted(redis.acquire(&key(&hash), &id(), ttl(30_000), &Call::new()))
            .fence
            .get(),
        2
    );
}

/// A value of a lock with this id, and these fields.
fn value_of(id: &LockId, fields: &str) -> String {
    format!("{{\"lockId\":\"{}\",{fields}}}", id.as_str())
}

/// Fields of a lock on `k` that expires at this.
fn expiring(at: &str) -> String {
    format!(r#""key":"k","fence":"000000000000001","acquiredAtMs":1,"expiresAtMs":{at}"#)
}

#[test]
fn a_foreign_value_is_an_error_and_never_a_grant() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let a = id();
    let huge = format!("{{\"lockId\":\"{}\"", "x".repeat(3_000_000));
    let deep = "[".repeat(100_000);
    // The first time that is too large; docs/wire-format.md names it.
    let far = "100000000000000";
    assert!(
        include_str!("../../docs/wire-format.md").contains("A time of `100000000000000` (1e14,")
    );
    let times = [
        far,
        "4102444800000.5",
        "\"4102444800000\"",
        "1e300",
        "Infinity",
        "NaN",
    ];
    for time in times {
        never_a_grant(&server, &redis, &a, &value_of(&a, &expiring(time)));
    }
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
        "{\"expiresAtMs\":4102444800000}",
        "{\"lockId\":null,\"expiresAtMs\":null}",
    ] {
        never_a_grant(&server, &redis, &a, value);
    }
}

/// Every verb refuses this value, and leaves it as it is.
#[track_caller]
fn never_a_grant(server: &RedisServer, redis: &RedisBackend, a: &LockId, value: &str) {
    let k = key("k");
    let index = format!("syncguard:id:{}", a.as_str());
    server.cli(&["FLUSHALL"]);
    server.cli(&["SET", "syncguard:k", value]);
    server.cli(&["SET", &index, "syncguard:k"]);
    let shown = &value[..value.len().min(60)];
    let acquired = redis
        .acquire(&k, a, ttl(1_000), &Call::new())
        .expect_err(shown);
    assert_eq!(acquired.code(), ErrorCode::Internal, "{shown}");
    assert!(!acquired.may_have_applied() && acquired.key_hash().is_some());
    assert_eq!(
        code(redis.acquire(&k, &id(), ttl(1_000), &Call::new())),
        ErrorCode::Internal,
        "{shown}"
    );
    assert_eq!(
        code(redis.release(a, &Call::new())),
        ErrorCode::Internal,
        "{shown}"
    );
    assert_eq!(
        code(redis.extend(a, ttl(1_000), &Call::new())),
        ErrorCode::Internal,
        "{shown}"
    );
    assert_eq!(
        code(redis.is_locked(&k, &Call::new())),
        ErrorCode::Internal,
        "{shown}"
    );
    assert_eq!(
        code(redis.find(LookupBy::Key(&k), &Call::new())),
        ErrorCode::Internal,
        "{shown}"
    );
    assert_eq!(
        code(redis.find(LookupBy::LockId(a), &Call::new())),
        ErrorCode::Internal,
        "{shown}"
    );
    assert_eq!(server.cli(&["GET", "syncguard:k"]).text(), value);
    assert_eq!(server.cli(&["DBSIZE"]).int(), 2, "{shown}");
}

#[test]
fn a_lock_that_lacks_a_part_is_locked_and_never_a_grant() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let (k, a) = (key("k"), id());
    server.cli(&[
        "SET",
        &format!("syncguard:id:{}", a.as_str()),
        "syncguard:k",
    ]);
    // Alive but incomplete: locked for every caller, no grant for its own id, and no information made up.
    for fields in [
        r#""expiresAtMs":4102444800000"#,
        r#""key":"k","fence":7,"acquiredAtMs":1,"expiresAtMs":4102444800000"#,
        r#""key":"k","fence":"7","acquiredAtMs":1,"expiresAtMs":4102444800000"#,
    ] {
        server.cli(&["SET", "syncguard:k", &value_of(&a, fields)]);
        assert_eq!(
            code(redis.acquire(&k, &a, ttl(1_000), &Call::new())),
            ErrorCode::Internal
        );
        assert_eq!(
            code(redis.find(LookupBy::Key(&k), &Call::new())),
            ErrorCode::Internal
        );
        assert!(redis.is_locked(&k, &Call::new()).expect("a look"));
        assert!(matches!(
            redis
                .acquire(&k, &id(), ttl(1_000), &Call::new())
                .expect("an answer"),
            AcquireOutcome::Locked(_)
        ));
    }
    // A lock in everything but its size.
    let pad = format!("4102444800000,\"pad\":\"{}\"", "x".repeat(2_000_000));
    let padded = value_of(&a, &expiring(&pad));
    server.cli(&["SET", "syncguard:k", &padded]);
    assert_eq!(
        code(redis.find(LookupBy::Key(&k), &Call::new())),
        ErrorCode::Internal
    );
    assert_eq!(
        code(redis.extend(&a, ttl(1_000), &Call::new())),
        ErrorCode::Internal
    );
    // Another type is what Redis itself calls a wrong type.
    server.cli(&["FLUSHALL"]);
    server.cli(&["LPUSH", "syncguard:k", "x"]);
    assert_eq!(
        code(redis.acquire(&k, &a, ttl(1_000), &Call::new())),
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
        let error = redis
            .acquire(&k, &id(), ttl(1_000), &Call::new())
            .expect_err(value);
        assert_eq!(error.code(), ErrorCode::Internal, "{value}");
        assert!(!error.may_have_applied());
        assert_eq!(server.cli(&["DBSIZE"]).int(), 1, "{value}");
        assert_eq!(server.cli(&["GET", counter]).text(), value);
    }
    server.cli(&["DEL", counter]);
    server.cli(&["LPUSH", counter, "x"]);
    assert_eq!(
        code(redis.acquire(&k, &id(), ttl(1_000), &Call::new())),
        ErrorCode::Internal
    );
    assert_eq!(server.cli(&["DBSIZE"]).int(), 1);

    server.cli(&["DEL", counter]);
    server.cli(&["SET", counter, "899999999999999"]);
    let last = id();
    let grant = granted(redis.acquire(&k, &last, ttl(30_000), &Call::new()));
    assert_eq!(grant.fence.to_string(), "900000000000000");
    assert!(
        redis
            .release(&last, &Call::new())
            .expect("an answer")
            .is_released()
    );
    assert_eq!(
        code(redis.acquire(&k, &last, ttl(1_000), &Call::new())),
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
                drop(granted(redis.acquire(&k, &a, ttl(30_000), &Call::new())))
            }),
            ("locked", &|| {
                assert!(redis.acquire(&k, &id(), ttl(9), &Call::new()).is_ok())
            }),
            ("extend", &|| {
                assert!(redis.extend(&a, ttl(30_000), &Call::new()).is_ok())
            }),
            ("is_locked", &|| {
                assert!(redis.is_locked(&k, &Call::new()).expect("a look"))
            }),
            ("find by key", &|| {
                assert!(
                    redis
                        .find(LookupBy::Key(&k), &Call::new())
                        .expect("a look")
                        .is_some()
                )
            }),
            ("find by id", &|| {
                assert!(
                    redis
                        .find(LookupBy::LockId(&a), &Call::new())
                        .expect("a look")
                        .is_some()
                )
            }),
            ("release", &|| {
                assert!(
                    redis
                        .release(&a, &Call::new())
                        .expect("an answer")
                        .is_released()
                )
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
    redis.check(&Call::new()).expect("a good server");
    assert_eq!(proxy.counts().round_trips, 1);
    let names = server.cli(&["CLIENT", "LIST"]).text();
    assert!(
        names.contains("name=syncguard ") && names.contains(" db=1 "),
        "{names}"
    );
}

/// The lock id proves ownership: it must not travel to a client that does not hold the lock.
#[test]
fn only_the_hash_of_the_holders_id_is_sent() {
    let server = RedisServer::start(&[]);
    let holder = open(&server.url());
    let proxy = Proxy::unix(server.dir().join("p"), Address::Unix(server.socket()));
    let loser = open(&format!(
        "redis+unix://{}",
        server.dir().join("p").display()
    ));
    for round in 0..20 {
        let k = key(&format!("secret {round}"));
        let grant = granted(holder.acquire(&k, &id(), ttl(60_000), &Call::new()));
        // A reply that holds the id would be kept back, and counted.
        let secret = grant.lock_id.as_str().as_bytes().to_vec();
        proxy.set(Mode::Mute(secret.leak()));
        let contended = loser.acquire(&k, &id(), ttl(60_000), &Call::new());
        assert_eq!(proxy.muted(), 0, "an acquire was sent the holder's id");
        let seen = match contended.expect("an answer") {
            AcquireOutcome::Locked(Some(seen)) => seen,
            other => panic!("{other:?}"),
        };
        assert_eq!(seen.lock_id_hash, Some(grant.lock_id.log_hash()));
        assert_eq!(seen.fence, Some(grant.fence));
        let locked = loser.is_locked(&k, &Call::new());
        assert_eq!(proxy.muted(), 0, "is_locked was sent the holder's id");
        assert!(locked.expect("a look"));
    }
}

#[test]
fn a_holder_with_a_foreign_id_has_no_hash() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    for foreign in ["short", "JjYEnSICuoi1IlfW3NFLO+", "JjYEnSICuoi1IlfW3NFLé"] {
        let value = format!(
            r#"{{"lockId":"{foreign}","expiresAtMs":99999999999999,"acquiredAtMs":1,"key":"k","fence":"000000000000007"}}"#
        );
        server.cli(&["SET", "syncguard:k", &value]);
        let answer = redis.acquire(&key("k"), &id(), ttl(1_000), &Call::new());
        let AcquireOutcome::Locked(Some(seen)) = answer.expect("an answer") else {
            panic!("{foreign} was not a holder")
        };
        assert_eq!(seen.lock_id_hash, None, "{foreign}");
        assert_eq!(seen.fence.map(|f| f.get()), Some(7), "{foreign}");
    }
}

#[test]
fn databases_are_apart() {
    let server = RedisServer::start_tcp(&[]);
    let one = open(&format!("{}/1", server.tcp_url()));
    let two = open(&format!("{}/2", server.tcp_url()));
    let _ = granted(one.acquire(&key("k"), &id(), ttl(30_000), &Call::new()));
    assert!(!two.is_locked(&key("k"), &Call::new()).expect("a look"));
    assert!(
        open(&format!("{}?db=1", server.tcp_url()))
            .is_locked(&key("k"), &Call::new())
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
        .is_locked(&key("k"), &Call::new().cancelled_by(&token))
        .expect_err("cancelled");
    assert_eq!(error.code(), ErrorCode::Aborted);
    assert!(!error.may_have_applied());

    let a = id();
    let _ = granted(redis.acquire(&key("k"), &a, ttl(30_000), &Call::new()));
    // Whether the request was sent before the cancel is the machine's choice: it gets more time until it was.
    let mut in_flight = false;
    for wait in [20, 50, 200, 1000, 4000] {
        let token = CancelToken::new();
        let _paused = server.pause();
        let result = std::thread::scope(|scope| {
            let call = scope.spawn(|| redis.release(&a, &Call::new().cancelled_by(&token)));
            std::thread::sleep(Duration::from_millis(wait));
            let begun = Instant::now();
            token.cancel();
            let answer = call.join().expect("it returns");
            assert!(begun.elapsed() < Duration::from_secs(30), "it timed out");
            answer
        });
        let error = result.expect_err("cancelled");
        assert_eq!(error.code(), ErrorCode::Aborted);
        in_flight = error.may_have_applied();
        if in_flight {
            break;
        }
    }
    assert!(in_flight, "it was never sent");
    // The late reply of the cancelled call answers no other call.
    assert!(
        redis
            .is_locked(&key("other"), &Call::new())
            .is_ok_and(|locked| !locked)
    );
}

#[test]
fn a_full_pool_is_said_and_keeps_a_place_for_releases() {
    let server = RedisServer::start(&[]);
    let options = ClientOptions::new()
        .pool_size(2)
        .operation_timeout(Duration::from_secs(60));
    let redis = RedisBackend::open(&server.url(), &options).expect("good");
    let a = id();
    let _ = granted(redis.acquire(&key("k"), &a, ttl(300_000), &Call::new()));
    let paused = server.pause();
    let stop = CancelToken::new();
    std::thread::scope(|scope| {
        let holder =
            scope.spawn(|| code(redis.is_locked(&key("x"), &Call::new().cancelled_by(&stop))));
        // The one that has the place holds it; the others run out of time in the queue, as soon as it has it.
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let hasty = Call::new().within(Duration::from_millis(100));
            if code(redis.is_locked(&key("x"), &hasty)) == ErrorCode::RateLimited {
                break;
            }
            assert!(Instant::now() < end, "the pool was never full");
        }
        stop.cancel();
        assert_eq!(holder.join().expect("it returns"), ErrorCode::Aborted);
    });
    drop(paused);
    assert!(
        redis
            .release(&a, &Call::new())
            .expect("an answer")
            .is_released()
    );
}

pub const STAGES: &[process::Entry] = &[("fork", fork_with_a_connection)];

#[test]
fn a_forked_child_gets_an_error_and_sends_nothing() {
    process::run_alone("fork");
}

fn fork_with_a_connection(_: &Path) {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let (k, a) = (key("k"), id());
    let _ = granted(redis.acquire(&k, &a, ttl(600_000), &Call::new()));
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
                .release(&a, &Call::new())
                .is_err_and(|e| e.code() == ErrorCode::Internal && !e.may_have_applied());
            let also = redis.check(&Call::new()).is_err();
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
    assert!(
        redis
            .release(&a, &Call::new())
            .expect("an answer")
            .is_released()
    );
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
                    let outcome = redis.acquire(&keys[at], &mine, ttl(60_000), &Call::new());
                    if let AcquireOutcome::Acquired(grant) = outcome.expect("an answer") {
                        assert!(!held[at].swap(true, Ordering::SeqCst), "two hold one key");
                        let before = fences[at].swap(grant.fence.get(), Ordering::SeqCst);
                        assert!(before < grant.fence.get(), "a fence went back");
                        assert!(held[at].swap(false, Ordering::SeqCst));
                        assert!(
                            redis
                                .release(&mine, &Call::new())
                                .expect("an answer")
                                .is_released()
                        );
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
