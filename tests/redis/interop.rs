//! Compares state in Redis with samples that the TypeScript library left in a real server: byte for byte, in both directions.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::redis::{Link, RedisServer};
use serde_json::Value as Json;
use syncguard::{
    Absence, AcquireOutcome, Backend, Call, ClientOptions, ErrorCode, ExtendOutcome, Key, KeySpace,
    LockId, LookupBy, MAX_FENCE, RedisBackend, ReleaseOutcome, TIME_TOLERANCE_MS, Ttl,
};

fn samples() -> Json {
    let file: Json = serde_json::from_str(include_str!("../data/stored-state.json")).expect("JSON");
    file["redis"].clone()
}

fn text(json: &Json) -> &str {
    json.as_str().expect("a text")
}

fn list(json: &Json) -> &[Json] {
    json.as_array().expect("a list")
}

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).expect("a legal ttl")
}

fn lock_id(json: &Json) -> LockId {
    LockId::parse(text(&json["result"]["lockId"])).expect("an id")
}

fn open(server: &RedisServer, prefix: &str) -> RedisBackend {
    RedisBackend::open(&server.url(), &ClientOptions::new().key_prefix(prefix)).expect("good")
}

/// Everything in the server: key to value and remaining TTL.
fn dump(server: &RedisServer) -> BTreeMap<String, (String, i64)> {
    let mut link = Link::open(&server.socket()).expect("a connection");
    link.call(&["AUTH", "admin", "x"]).expect("an answer");
    let keys = link.call(&["KEYS", "*"]).expect("an answer");
    keys.list()
        .iter()
        .map(|key| {
            let key = key.text();
            let value = link.call(&["GET", &key]).expect("an answer").text();
            let pttl = link.call(&["PTTL", &key]).expect("an answer").int();
            (key, (value, pttl))
        })
        .collect()
}

/// A stored value with its times, which no two runs share, replaced by their distance and their number of digits.
fn timeless(value: &str) -> String {
    let Ok(Json::Object(lock)) = serde_json::from_str::<Json>(value) else {
        return value.to_owned();
    };
    let (Some(from), Some(to)) = (
        lock.get("acquiredAtMs").and_then(Json::as_i64),
        lock.get("expiresAtMs").and_then(Json::as_i64),
    ) else {
        return value.to_owned();
    };
    let digits = |n: i64| "9".repeat(n.to_string().len());
    value
        .replace(
            &format!("\"acquiredAtMs\":{from}"),
            &format!("\"acquiredAtMs\":{}", digits(from)),
        )
        .replace(
            &format!("\"expiresAtMs\":{to}"),
            &format!("\"expiresAtMs\":{}", digits(to)),
        )
}

/// What the sample holds and what we left behind are the same but for the moment.
fn assert_same(server: &RedisServer, sample: &[Json], ttl_ms: i64, name: &str) {
    let ours = dump(server);
    let names: Vec<&str> = ours.keys().map(String::as_str).collect();
    let mut wanted: Vec<&str> = sample.iter().map(|row| text(&row["key"])).collect();
    wanted.sort_unstable();
    assert_eq!(names, wanted, "{name}");
    for row in sample {
        let (value, pttl) = &ours[text(&row["key"])];
        assert_eq!(timeless(value), timeless(text(&row["value"])), "{name}");
        match row["pttl"].as_i64() {
            Some(-1) => assert_eq!(*pttl, -1, "{name}: a fence counter lives for ever"),
            _ => assert!(
                (0..=ttl_ms).contains(pttl) && *pttl > ttl_ms - 20_000,
                "{name}: {pttl}"
            ),
        }
    }
}

/// Writes a sample as that library left it, its leases moved into the present.
fn restore(server: &RedisServer, sample: &[Json]) {
    server.cli(&["FLUSHALL"]);
    for row in sample {
        let (key, value) = (text(&row["key"]), text(&row["value"]));
        if row["pttl"].as_i64() == Some(-1) {
            server.cli(&["SET", key, value]);
        } else {
            server.cli(&["SET", key, &alive(value), "PX", "600000"]);
        }
    }
}

/// The same value with an expiry in the year 2100.
fn alive(value: &str) -> String {
    match serde_json::from_str::<Json>(value) {
        Ok(Json::Object(lock)) => value.replace(
            &format!("\"expiresAtMs\":{}", lock["expiresAtMs"]),
            "\"expiresAtMs\":4102444800000",
        ),
        _ => value.to_owned(),
    }
}

fn cases(samples: &Json) -> impl Iterator<Item = (&str, &Json)> {
    samples
        .as_object()
        .expect("cases by name")
        .iter()
        .filter(|(_, case)| case.is_object())
        .map(|(name, case)| (name.as_str(), case))
}

#[test]
fn we_store_what_the_reference_stores() {
    let server = RedisServer::start(&[]);
    let samples = samples();
    let mut seen = 0;
    for (name, case) in cases(&samples) {
        server.cli(&["FLUSHALL"]);
        let options = ClientOptions::new().key_prefix(text(&case["prefix"]));
        let redis = RedisBackend::open(&server.url(), &options);
        // Stricter than the reference: a prefix that is too long for any key is refused, U+0000 with any prefix.
        if list(&case["acquire"])
            .iter()
            .any(|a| a.get("error").is_some())
        {
            assert_eq!(redis.expect_err(name).code(), ErrorCode::InvalidArgument);
            continue;
        }
        let redis = redis.expect(name);
        let mut sample = list(&case["dump"]).to_vec();
        for acquire in list(&case["acquire"]) {
            let Ok(key) = Key::new(text(&acquire["key"])) else {
                assert!(text(&acquire["key"]).contains('\0'));
                let id = text(&acquire["result"]["lockId"]);
                sample.retain(|row| {
                    !row["key"].to_string().contains("\\u0000") && !text(&row["key"]).contains(id)
                });
                continue;
            };
            let outcome = redis.acquire(&key, &lock_id(acquire), ttl(30_000), &Call::new());
            let AcquireOutcome::Acquired(grant) = outcome.expect("an answer") else {
                panic!("{name}: not granted")
            };
            assert_eq!(grant.fence.to_string(), text(&acquire["result"]["fence"]));
            seen += 1;
        }
        assert_same(&server, &sample, 30_000, name);
    }
    assert_eq!(seen, 14);
}

#[test]
fn we_read_extend_and_release_what_the_reference_stored() {
    let server = RedisServer::start(&[]);
    let samples = samples();
    for (name, case) in cases(&samples) {
        if list(&case["dump"]).is_empty() {
            continue;
        }
        restore(&server, list(&case["dump"]));
        let redis = open(&server, text(&case["prefix"]));
        for acquire in list(&case["acquire"]) {
            read_extend_and_release(&redis, acquire, name);
        }
    }
}

/// Uses the lock that the reference took with `acquire`.
fn read_extend_and_release(redis: &RedisBackend, acquire: &Json, name: &str) {
    let id = lock_id(acquire);
    let found = redis
        .find(LookupBy::LockId(&id), &Call::new())
        .expect("a look")
        .expect(name);
    // The samples name the key as it was given, and store it normalised.
    let given = text(&acquire["key"]);
    let stored = Key::new(given).map_or(given.to_owned(), |k| k.as_str().to_owned());
    assert_eq!((found.key.as_str(), found.lock_id), (stored.as_str(), id));
    assert_eq!(found.fence.to_string(), text(&acquire["result"]["fence"]));
    let Ok(key) = Key::new(&found.key) else {
        // What only the other library can name, ours can still release.
        assert!(
            redis
                .release(&id, &Call::new())
                .expect("an answer")
                .is_released()
        );
        return;
    };
    assert!(redis.is_locked(&key, &Call::new()).expect("a look"));
    assert!(matches!(
        redis
            .acquire(
                &key,
                &LockId::random().expect("randomness"),
                ttl(9),
                &Call::new()
            )
            .expect("an answer"),
        AcquireOutcome::Locked(_)
    ));
    // Its own id again is its own grant.
    let again = redis
        .acquire(&key, &id, ttl(9), &Call::new())
        .expect("an answer");
    assert!(
        matches!(again, AcquireOutcome::Acquired(g) if g.fence == found.fence && g.expires_at_ms == found.expires_at_ms)
    );
    assert!(matches!(
        redis.extend(&id, ttl(60_000), &Call::new()),
        Ok(ExtendOutcome::Extended(_))
    ));
    let after = redis
        .find(LookupBy::Key(&key), &Call::new())
        .expect("a look")
        .expect(name);
    assert_eq!(
        (after.key, after.fence, after.acquired_at_ms),
        (found.key, found.fence, found.acquired_at_ms)
    );
    assert!(
        redis
            .release(&id, &Call::new())
            .expect("an answer")
            .is_released()
    );
    assert_eq!(
        redis.release(&id, &Call::new()).expect("an answer"),
        ReleaseOutcome::Absent(Absence::NotFound)
    );
    // The next fence follows the reference's.
    let next = redis
        .acquire(&key, &id, ttl(30_000), &Call::new())
        .expect("an answer");
    assert!(matches!(next, AcquireOutcome::Acquired(g) if g.fence.get() == found.fence.get() + 1));
}

/// A lookup answers what the reference answered.
fn looked_up(redis: &RedisBackend, by: LookupBy<'_>, wanted: &Json) {
    let info = redis
        .lookup(by, &Call::new())
        .expect("a look")
        .expect("held");
    assert_eq!(info.key_hash, text(&wanted["keyHash"]));
    assert_eq!(info.lock_id_hash, text(&wanted["lockIdHash"]));
    assert_eq!(info.fence.to_string(), text(&wanted["fence"]));
    assert_eq!(info.expires_at_ms - info.acquired_at_ms, 30_000);
}

#[test]
fn a_whole_life_leaves_the_same_bytes_at_every_step() {
    let server = RedisServer::start(&[]);
    let redis = open(&server, "syncguard");
    let samples = samples();
    let key = Key::new("job:1").expect("a legal key");
    let steps = list(&samples["lifecycle"]);
    let first = lock_id(&steps[0]);
    let stranger = LockId::random().expect("randomness");
    let mut seen = 0;
    for step in steps {
        let name = text(&step["step"]);
        let mut ttl_ms = 30_000;
        let fence = |outcome| match outcome {
            Ok(AcquireOutcome::Acquired(grant)) => {
                assert_eq!(
                    grant.fence.to_string(),
                    text(&step["result"]["fence"]),
                    "{name}"
                );
            }
            other => panic!("{name}: {other:?}"),
        };
        match name {
            "acquire ttl 30000" => fence(redis.acquire(&key, &first, ttl(30_000), &Call::new())),
            "acquire again (contended)" => assert!(matches!(
                redis
                    .acquire(&key, &stranger, ttl(30_000), &Call::new())
                    .expect("an answer"),
                AcquireOutcome::Locked(_)
            )),
            "isLocked" => assert!(redis.is_locked(&key, &Call::new()).expect("a look")),
            "lookup key" => looked_up(&redis, LookupBy::Key(&key), &step["result"]),
            "lookup lockId" => looked_up(&redis, LookupBy::LockId(&first), &step["result"]),
            "extend ttl 60000" => {
                assert!(matches!(
                    redis.extend(&first, ttl(60_000), &Call::new()),
                    Ok(ExtendOutcome::Extended(_))
                ));
                ttl_ms = 60_000;
            }
            "extend wrong id" => {
                assert_eq!(
                    redis
                        .extend(&stranger, ttl(60_000), &Call::new())
                        .expect("an answer"),
                    ExtendOutcome::Absent(Absence::NotFound)
                );
                ttl_ms = 60_000;
            }
            "release" => assert!(
                redis
                    .release(&first, &Call::new())
                    .expect("an answer")
                    .is_released()
            ),
            "release again" => assert!(
                !redis
                    .release(&first, &Call::new())
                    .expect("an answer")
                    .is_released()
            ),
            // Its lease of a millisecond is over before it can be looked at: the state is compared at the next step.
            "acquire 2" => {
                fence(redis.acquire(&key, &lock_id(step), ttl(1), &Call::new()));
                seen += 1;
                continue;
            }
            "after ttl 1ms + 50ms (isLocked)" => {
                while redis.is_locked(&key, &Call::new()).expect("a look") {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            "acquire 3" => fence(redis.acquire(&key, &lock_id(step), ttl(30_000), &Call::new())),
            other => panic!("an unknown step: {other}"),
        }
        assert_same(&server, list(&step["dump"]), ttl_ms, name);
        seen += 1;
    }
    assert_eq!(seen, 12);
}

/// The reference extends by decoding and encoding the table: whatever order it finds, ours must come out as its own.
#[test]
fn an_extended_value_is_what_the_server_itself_would_encode() {
    let server = RedisServer::start(&[]);
    let redis = open(&server, "syncguard");
    let id = LockId::parse("zIsa1UcSv6e44b5G0Fis4Q").expect("an id");
    for value in [
        r#"{"key":"job:1","lockId":"zIsa1UcSv6e44b5G0Fis4Q","expiresAtMs":4102444800000,"acquiredAtMs":1794786911087,"fence":"000000000000001"}"#,
        r#"{"lockId":"zIsa1UcSv6e44b5G0Fis4Q","expiresAtMs":4102444800000,"acquiredAtMs":1794786911087,"key":"job:1","fence":"000000000000001"}"#,
        r#"{"fence":"000000000000001","more":[1,2],"key":"a/b \u00e9","lockId":"zIsa1UcSv6e44b5G0Fis4Q","acquiredAtMs":1794786911087,"expiresAtMs":4102444800000}"#,
    ] {
        server.cli(&["SET", "syncguard:job:1", value]);
        server.cli(&[
            "SET",
            "syncguard:id:zIsa1UcSv6e44b5G0Fis4Q",
            "syncguard:job:1",
        ]);
        for _ in 0..3 {
            let before = server.cli(&["GET", "syncguard:job:1"]).text();
            let Ok(ExtendOutcome::Extended(until)) = redis.extend(&id, ttl(60_000), &Call::new())
            else {
                panic!("not extended")
            };
            let script = "local d = cjson.decode(ARGV[1]) d.expiresAtMs = tonumber(ARGV[2]) return cjson.encode(d)";
            let wanted = server
                .cli(&["EVAL", script, "0", &before, &until.to_string()])
                .text();
            assert_eq!(server.cli(&["GET", "syncguard:job:1"]).text(), wanted);
        }
    }
}

/// A client of another kind has the texts of `syncguard::format` and nothing else.
#[test]
fn a_client_made_of_the_published_scripts_shares_locks() {
    use syncguard::format::redis as published;
    let server = RedisServer::start(&[]);
    let ours = open(&server, "syncguard");
    let names = KeySpace::redis("syncguard").expect("a prefix");
    let (key, id) = (
        Key::new("a/b é").expect("a key"),
        LockId::random().expect("an id"),
    );
    let lock = names.lock(&key).expect("a name");
    let fence = names.fence(&lock).expect("a name");
    let index = names.index(&id).expect("a name");
    let (tolerance, largest) = (TIME_TOLERANCE_MS.to_string(), MAX_FENCE.to_string());
    let head = published::value_head(&key, &id);
    let acquire = [
        "EVAL",
        published::ACQUIRE,
        "3",
        &lock,
        &fence,
        &index,
        id.as_str(),
        "60000",
        &tolerance,
        &largest,
        &head,
        "",
    ];
    let answer = server.cli(&acquire);
    assert_eq!(answer.list()[1].text(), "000000000000001");
    assert!(ours.is_locked(&key, &Call::new()).expect("an answer"));
    let stored = server.cli(&["GET", &lock]).text();
    let found = ours
        .find(LookupBy::Key(&key), &Call::new())
        .expect("an answer");
    let found = found.expect("the lock");
    assert_eq!(published::encode(&found), stored);
    assert_eq!(published::decode(stored.as_bytes()).expect("a lock"), found);
    let digest = published::digest(published::EXTEND);
    server.cli(&["SCRIPT", "LOAD", published::EXTEND]);
    let extended = server.cli(&[
        "EVALSHA",
        &digest,
        "1",
        &index,
        id.as_str(),
        "90000",
        &tolerance,
        "",
    ]);
    let found = ours
        .find(LookupBy::LockId(&id), &Call::new())
        .expect("an answer");
    assert_eq!(
        extended.list()[1].int(),
        found.expect("the lock").expires_at_ms
    );
    let released = ours.release(&id, &Call::new()).expect("an answer");
    assert_eq!(released, ReleaseOutcome::Released);
    let next = LockId::random().expect("an id");
    match ours.acquire(&key, &next, ttl(60_000), &Call::new()) {
        Ok(AcquireOutcome::Acquired(grant)) => assert_eq!(grant.fence.get(), 2),
        other => panic!("not granted: {other:?}"),
    }
    let ask = ["EVAL", published::IS_LOCKED, "1", &lock, &tolerance];
    assert_eq!(server.cli(&ask).int(), 1);
    let index = names.index(&next).expect("a name");
    let release = [
        "EVAL",
        published::RELEASE,
        "1",
        &index,
        next.as_str(),
        &tolerance,
    ];
    assert_eq!(server.cli(&release).int(), 1);
    assert!(!ours.is_locked(&key, &Call::new()).expect("an answer"));
}

/// What the TypeScript library does to a lock when it extends it: it decodes the value, changes the time, and encodes it.
const THEIR_EXTEND: &str = "local lock = cjson.decode(redis.call('GET', KEYS[1])) lock.expiresAtMs = lock.expiresAtMs + 1 \
     redis.call('SET', KEYS[1], cjson.encode(lock), 'PX', 60000) return 1";

#[test]
fn what_a_holder_says_is_carried_along_by_their_extend_and_absent_in_their_locks() {
    let server = RedisServer::start(&[]);
    let client = syncguard::Client::open(&server.url()).expect("a client");
    let text = "build/7 é \\ \"x\"";
    let guard = client.lock_with("a/b", &syncguard::LockOptions::new().holder(text));
    let guard = guard.expect("a lock");
    server.cli(&["EVAL", THEIR_EXTEND, "1", "syncguard:a/b"]);
    let found = client.get_by_key_raw("a/b").expect("an answer");
    assert_eq!(found.expect("a lock").holder.as_deref(), Some(text));
    guard.release().expect("an answer").expect_released();

    // A lock without the field, and one with something else in it.
    let expires = 90_000_000_000_000_i64;
    for (field, key) in [
        ("", "theirs"),
        ("\"holder\":{},", "odd"),
        ("\"holder\":\"a\\u001b\",", "escapes"),
    ] {
        let value = format!(
            "{{{field}\"key\":\"{key}\",\"lockId\":\"W647iISzFHXC1Nia_Mdz2Q\",\"fence\":\"000000000000001\",\
             \"acquiredAtMs\":1,\"expiresAtMs\":{expires}}}"
        );
        server.cli(&["SET", &format!("syncguard:{key}"), &value]);
        let found = client.get_by_key_raw(key).expect("an answer");
        assert_eq!(found.expect("a lock").holder, None, "{key}");
        let soon = syncguard::LockOptions::new().acquire_timeout(Duration::ZERO);
        let refused = client.lock_with(key, &soon).expect_err("it is held");
        assert_eq!(refused.code(), ErrorCode::AcquisitionTimeout);
        assert_eq!(refused.holder_text(), None, "{key}");
    }
}

/// How the TypeScript library takes a lock.
const THEIR_ACQUIRE: &str = include_str!("../support/common/reference_acquire.lua");

/// The fence of one grant of `key`, which is released again. `script` is ours, or theirs.
fn fence_of(server: &RedisServer, key: &str, script: &str) -> u64 {
    use syncguard::format::redis as published;
    let names = KeySpace::redis("syncguard").expect("a prefix");
    let (key, id) = (
        Key::new(key).expect("a key"),
        LockId::random().expect("an id"),
    );
    let lock = names.lock(&key).expect("a name");
    let fence = names.fence(&lock).expect("a name");
    let index = names.index(&id).expect("a name");
    let (tolerance, largest) = (TIME_TOLERANCE_MS.to_string(), MAX_FENCE.to_string());
    let head = published::value_head(&key, &id);
    let (keys, rest) = match script {
        THEIR_ACQUIRE => (
            [&lock, &index, &fence],
            &[&tolerance, &lock, key.as_str()][..],
        ),
        _ => (
            [&lock, &fence, &index],
            &[&tolerance, &largest, &head, ""][..],
        ),
    };
    let head = [
        "EVAL",
        script,
        "3",
        keys[0],
        keys[1],
        keys[2],
        id.as_str(),
        "60000",
    ];
    let answer = server.cli(&[&head, rest].concat());
    let granted = answer.list()[1].text();
    assert_eq!(granted.len(), 15, "{granted}");
    let stored = open(server, "syncguard").find(LookupBy::LockId(&id), &Call::new());
    let stored = stored.expect("an answer").expect("the lock");
    assert_eq!(stored.fence.to_string(), granted, "as it is stored");
    let by_clock = script == published::ACQUIRE_BY_CLOCK;
    let own_clock = stored.fence.get() >= stored.acquired_at_ms.unsigned_abs();
    assert!(
        own_clock || !by_clock,
        "a grant by the clock is not behind it"
    );
    let release = [
        "EVAL",
        published::RELEASE,
        "1",
        &index,
        id.as_str(),
        &tolerance,
    ];
    assert_eq!(server.cli(&release).int(), 1);
    stored.fence.get()
}

/// Their script counts on from a fence of the clock, and ours from theirs: always one plain number.
#[test]
fn their_acquire_and_ours_by_the_clock_go_on_from_each_other() {
    use syncguard::format::redis::{ACQUIRE, ACQUIRE_BY_CLOCK};
    let server = RedisServer::start(&[]);
    let take = |script| fence_of(&server, "job", script);
    assert_eq!(take(THEIR_ACQUIRE), 1);
    let by_clock = take(ACQUIRE_BY_CLOCK);
    assert!(by_clock > 1_700_000_000_000);
    assert_eq!(take(THEIR_ACQUIRE), by_clock + 1);
    assert_eq!(take(ACQUIRE), by_clock + 2);
    let later = take(ACQUIRE_BY_CLOCK);
    assert!(later > by_clock + 2);
    // A counter ahead of the clock, with as many digits as a fence may have.
    let counter = "syncguard:fence:syncguard:job";
    for ahead in [4_000_000_000_000, 99_999_999_999_999, 899_999_999_999_990] {
        server.cli(&["SET", counter, &ahead.to_string()]);
        let scripts = [ACQUIRE_BY_CLOCK, THEIR_ACQUIRE, ACQUIRE_BY_CLOCK, ACQUIRE];
        let fences = scripts.map(take);
        assert_eq!(fences, [1, 2, 3, 4].map(|n| ahead + n));
        let stored = server.cli(&["GET", counter]).text();
        assert_eq!(stored, (ahead + 4).to_string(), "a plain number");
    }
    // Without their option they show: the fence is large and behind the time of the grant.
    server.cli(&["SET", counter, "1700000000000"]);
    assert_eq!(take(THEIR_ACQUIRE), 1_700_000_000_001);
}
