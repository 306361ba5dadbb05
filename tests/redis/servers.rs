//! Tests the Redis store on servers that refuse, restart, load, ask for rights and certificates, or have a wrong clock.

use std::time::{Duration, Instant};

use crate::support::redis::{Link, RedisServer, Value, directory};
use crate::support::verbs::{self, code, granted, id, key, ttl};
use syncguard::{Backend, Call, ClientOptions, ErrorCode, ExtendOutcome, LookupBy, RedisBackend};

fn open(url: &str) -> RedisBackend {
    RedisBackend::open(url, &verbs::patient()).expect("a good URL")
}

#[test]
fn a_server_that_forgets_or_restarts_is_not_an_error() {
    let mut server = RedisServer::start_tcp(&["--appendonly", "yes", "--appendfsync", "always"]);
    for url in [server.url(), server.tcp_url()] {
        let redis = open(&url);
        let k = key("k");
        let cycle = |fence: u64| {
            let a = id();
            let grant = granted(redis.acquire(&k, &a, ttl(30_000), &Call::new()));
            assert!(
                redis
                    .release(&a, &Call::new())
                    .expect("an answer")
                    .is_released()
            );
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

/// An acquire gets this code and this word.
#[track_caller]
fn refused(redis: &RedisBackend, wanted: ErrorCode, word: &str) {
    let error = redis
        .acquire(&key("other"), &id(), ttl(1_000), &Call::new())
        .expect_err(word);
    assert_eq!(error.code(), wanted, "{error}");
    assert!(error.message().contains(word), "{error}");
    assert!(!error.may_have_applied());
}

#[test]
fn refusals_have_the_code_of_the_table() {
    let server = RedisServer::start(&[]);
    let redis = open(&server.url());
    let (k, a) = (key("k"), id());
    let _ = granted(redis.acquire(&k, &a, ttl(600_000), &Call::new()));
    let refused = |wanted: ErrorCode, word: &str| refused(&redis, wanted, word);

    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    refused(ErrorCode::RateLimited, "maxmemory");
    assert_eq!(code(redis.check(&Call::new())), ErrorCode::RateLimited);
    // Nothing more is stored to release, and none of it needs memory.
    assert!(redis.is_locked(&k, &Call::new()).expect("a look"));
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);

    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    refused(ErrorCode::ServiceUnavailable, "replicas");
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);

    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    refused(ErrorCode::ServiceUnavailable, "replica");
    assert_eq!(
        code(redis.extend(&a, ttl(1_000), &Call::new())),
        ErrorCode::ServiceUnavailable
    );
    assert_eq!(
        code(redis.release(&a, &Call::new())),
        ErrorCode::ServiceUnavailable
    );
    assert_eq!(
        code(redis.check(&Call::new())),
        ErrorCode::ServiceUnavailable
    );
    assert!(
        redis
            .is_locked(&k, &Call::new())
            .expect("a replica can be read")
    );
    server.cli(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    refused(ErrorCode::ServiceUnavailable, "lost its primary");
    server.cli(&["REPLICAOF", "NO", "ONE"]);

    // The snapshot cannot be written: something else has its name.
    std::fs::create_dir(server.dir().join("dump.rdb")).expect("a directory");
    server.cli(&["CONFIG", "SET", "save", "3600 1000000"]);
    server.cli(&["BGSAVE"]);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !server
        .cli(&["INFO", "persistence"])
        .text()
        .contains("rdb_last_bgsave_status:err")
    {
        assert!(Instant::now() < deadline, "the snapshot never failed");
        std::thread::sleep(Duration::from_millis(5));
    }
    refused(ErrorCode::ServiceUnavailable, "disk");
    server.cli(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
}

/// A script of another program does not end.
#[test]
fn a_busy_or_full_server_has_the_code_of_the_table() {
    let server = RedisServer::start(&["--lua-time-limit", "1"]);
    let redis = open(&server.url());
    let (k, a) = (key("k"), id());
    let _ = granted(redis.acquire(&k, &a, ttl(600_000), &Call::new()));
    let socket = server.socket();
    let busy = std::thread::spawn(move || {
        let mut link = Link::open(&socket).expect("a connection");
        link.call(&["EVAL", "while true do end", "0"])
            .expect("an answer")
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    while !matches!(redis.is_locked(&k, &Call::new()), Err(e) if e.message().contains("busy")) {
        assert!(Instant::now() < deadline, "it is never busy");
    }
    refused(&redis, ErrorCode::ServiceUnavailable, "busy");
    server.cli(&["SCRIPT", "KILL"]);
    assert!(matches!(busy.join().expect("it ends"), Value::Error(_)));
    assert!(
        redis
            .release(&a, &Call::new())
            .expect("an answer")
            .is_released()
    );

    server.cli(&["CONFIG", "SET", "maxclients", "1"]);
    let full = open(&server.url());
    let held = Link::open(&server.socket()).expect("a connection");
    let error = full
        .is_locked(&k, &Call::new())
        .expect_err("too many clients");
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
    redis.check(&Call::new()).expect("a good server");
    server.cli(&["SAVE"]);
    server.kill();
    server.start_loading(&[
        "--key-load-delay",
        "20000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    let error = redis
        .acquire(&key("k"), &id(), ttl(1_000), &Call::new())
        .expect_err("still loading");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert!(error.message().contains("loading"), "{error}");
}

#[test]
fn a_cluster_node_says_what_is_wrong() {
    let server = RedisServer::start_tcp(&["--cluster-enabled", "yes"]);
    let options = ClientOptions::new().key_prefix("{app}");
    let tagged = RedisBackend::open(&server.url(), &options).expect("good");
    let down = code(tagged.acquire(&key("k"), &id(), ttl(1_000), &Call::new()));
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
    let _ = granted(tagged.acquire(&key("k"), &a, ttl(30_000), &Call::new()));
    assert!(matches!(
        tagged.extend(&a, ttl(30_000), &Call::new()),
        Ok(ExtendOutcome::Extended(_))
    ));
    assert!(
        tagged
            .release(&a, &Call::new())
            .expect("an answer")
            .is_released()
    );
    let error = open(&server.url())
        .acquire(&key("k"), &id(), ttl(1_000), &Call::new())
        .expect_err("no tag");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("{app}"), "{error}");
    let numbered = open(&format!("{}?db=1", server.url()));
    assert_eq!(
        code(numbered.check(&Call::new())),
        ErrorCode::InvalidArgument
    );
}

/// The rights of the line that the documentation gives.
fn minimal() -> Vec<&'static str> {
    let line = include_str!("../../docs/wire-format.md")
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

fn as_user(server: &RedisServer, user: &str) -> RedisBackend {
    open(&format!(
        "{}?user={user}&pass=s3cret%20pa%40ss",
        server.url()
    ))
}

#[test]
fn the_documented_rights_are_enough() {
    let server = RedisServer::start(&[]);
    let minimal = minimal();
    let as_user = |user: &str| as_user(&server, user);
    acl(&server, "bob", &minimal);
    let bob = as_user("bob");
    let (k, a) = (key("k"), id());
    let _ = granted(bob.acquire(&k, &a, ttl(30_000), &Call::new()));
    assert!(bob.is_locked(&k, &Call::new()).expect("a look"));
    assert!(matches!(
        bob.extend(&a, ttl(30_000), &Call::new()),
        Ok(ExtendOutcome::Extended(_))
    ));
    assert!(
        bob.find(LookupBy::LockId(&a), &Call::new())
            .expect("a look")
            .is_some()
    );
    assert!(
        bob.release(&a, &Call::new())
            .expect("an answer")
            .is_released()
    );
    assert!(
        bob.list(&syncguard::ListOptions::new(), &Call::new())
            .is_ok()
    );
    // Without CLIENT SETNAME, INFO and CONFIG it works; what was not looked at is said.
    let warnings = bob.check(&Call::new()).expect("all rights are there");
    assert!(warnings[0].contains("INFO"), "{warnings:?}");
    // With INFO alone: exactly what CONFIG would have told.
    server.cli(&["CONFIG", "SET", "appendonly", "yes"]);
    acl(&server, "carol", &[&minimal[..], &["+info"]].concat());
    let carol = as_user("carol");
    let warnings = carol
        .check(&Call::new())
        .expect("all rights are there")
        .join("\n");
    assert!(
        warnings.contains("may not read appendfsync and no-appendfsync-on-rewrite"),
        "{warnings}"
    );
}

#[test]
fn a_missing_right_is_named() {
    let server = RedisServer::start(&[]);
    let (minimal, k) = (minimal(), key("k"));
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
        let eve = as_user(&server, "eve");
        for error in [
            eve.acquire(&k, &id(), ttl(1_000), &Call::new())
                .map(|_| ())
                .expect_err(missing),
            eve.check(&Call::new()).map(|_| ()).expect_err(missing),
        ] {
            assert_eq!(error.code(), ErrorCode::AuthFailed, "{missing}: {error}");
            assert!(error.message().contains(said), "{missing}: {error}");
            assert!(!error.may_have_applied());
        }
        assert!(
            !open(&server.url())
                .is_locked(&k, &Call::new())
                .expect("a look")
        );
    }
}

#[test]
fn a_wrong_password_is_refused_and_not_repeated() {
    let server = RedisServer::start(&[]);
    acl(&server, "bob", &minimal());
    let k = key("k");
    for url in ["bob&pass=wrong", "nobody&pass=s3cret", "bob"] {
        let error = open(&format!("{}?user={url}", server.url()))
            .is_locked(&k, &Call::new())
            .expect_err("a wrong password");
        assert_eq!(error.code(), ErrorCode::AuthFailed);
        assert!(!format!("{error:?}").contains("s3cret"));
    }
    let unneeded = open(&format!("{}?pass=x", server.url()));
    assert_eq!(
        code(unneeded.is_locked(&k, &Call::new())),
        ErrorCode::AuthFailed
    );
    server.cli(&["CONFIG", "SET", "requirepass", "s3cret"]);
    let error = open(&server.url())
        .is_locked(&k, &Call::new())
        .expect_err("no password");
    assert_eq!(error.code(), ErrorCode::AuthFailed);
    assert!(error.message().contains("password"));
    assert!(
        open(&format!("{}?pass=s3cret", server.url()))
            .check(&Call::new())
            .is_ok()
    );
    let missing = open(&format!("{}?pass=s3cret&db=999", server.url()));
    assert_eq!(
        code(missing.is_locked(&k, &Call::new())),
        ErrorCode::InvalidArgument
    );
}

#[test]
fn check_warns_of_what_loses_locks_and_fences() {
    let server = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let redis = open(&server.url());
    assert_eq!(
        redis.check(&Call::new()).expect("a good server"),
        Vec::<String>::new()
    );
    assert_eq!(server.cli(&["DBSIZE"]).int(), 0);
    for (setting, value, said) in [
        ("maxmemory-policy", "volatile-lru", "volatile-lru"),
        ("maxmemory-policy", "allkeys-random", "allkeys-random"),
        ("maxmemory-policy", "noeviction", ""),
        (
            "no-appendfsync-on-rewrite",
            "yes",
            "no-appendfsync-on-rewrite is on",
        ),
        ("no-appendfsync-on-rewrite", "no", ""),
        ("appendfsync", "everysec", "appendfsync is not always"),
        ("appendonly", "no", "appendonly yes"),
    ] {
        server.cli(&["CONFIG", "SET", setting, value]);
        let warnings = redis.check(&Call::new()).expect("a good server").join("\n");
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
        let _ = granted(redis.acquire(&k, &a, ttl(30_000), &Call::new()));
        assert!(
            redis
                .release(&a, &Call::new())
                .expect("an answer")
                .is_released()
        );
    }
    redis.check(&Call::new()).expect("a good server");
    server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(
        !redis
            .is_locked(&k, &Call::new())
            .expect("a connection that died while idle is replaced")
    );

    // A certificate that no root has signed, or of another host.
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let strange = server.dir().join("strange.pem");
    std::fs::write(&strange, stranger.expect("a certificate").cert.pem()).expect("written");
    let options = ClientOptions::new().tls_ca_file(&strange);
    let untrusted = RedisBackend::open(&url, &options).expect("good");
    assert_eq!(
        code(untrusted.is_locked(&k, &Call::new())),
        ErrorCode::AuthFailed
    );
    let elsewhere = url.replace("127.0.0.1", "localhost");
    let wrong_host = RedisBackend::open(&elsewhere, &trusted).expect("good");
    assert_eq!(
        code(wrong_host.is_locked(&k, &Call::new())),
        ErrorCode::AuthFailed
    );
    let careless = ClientOptions::new().tls_danger_accept_invalid_certs(true);
    let redis = RedisBackend::open(&elsewhere, &careless).expect("good");
    assert!(!redis.is_locked(&k, &Call::new()).expect("a look"));

    // Plain to a TLS port, and TLS to a plain one.
    let plain = open(&url.replace("rediss", "redis"));
    assert!(plain.is_locked(&k, &Call::new()).is_err());
    let other = RedisServer::start_tcp(&[]);
    let quick = trusted.connect_timeout(Duration::from_millis(200));
    let tls_to_plain = other.tcp_url().replace("redis", "rediss");
    let redis = RedisBackend::open(&tls_to_plain, &quick).expect("good");
    let error = redis.is_locked(&k, &Call::new()).expect_err("no TLS there");
    // Redis takes the handshake for the beginning of a long line and waits for its end.
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    assert!(!error.may_have_applied());
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
    let dir = directory("sg-shim-");
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
        let grant = granted(redis.acquire(&k, &a, ttl(30_000), &Call::new()));
        let apart = grant.expires_at_ms - year * 1000;
        assert!(
            (30_000..120_000).contains(&apart),
            "the shim did not work: {apart}"
        );
        assert!(redis.is_locked(&k, &Call::new()).expect("a look"));
        assert!(
            matches!(redis.extend(&a, ttl(60_000), &Call::new()), Ok(ExtendOutcome::Extended(until)) if until > grant.expires_at_ms)
        );
        let found = redis
            .find(LookupBy::LockId(&a), &Call::new())
            .expect("a look")
            .expect("held");
        assert_eq!(found.acquired_at_ms, grant.expires_at_ms - 30_000);
        assert!(
            redis
                .release(&a, &Call::new())
                .expect("an answer")
                .is_released()
        );
        assert_eq!(
            granted(redis.acquire(&k, &id(), ttl(5), &Call::new()))
                .fence
                .get(),
            2
        );
        let deadline = Instant::now() + Duration::from_secs(30);
        while redis.is_locked(&k, &Call::new()).expect("a look") {
            assert!(Instant::now() < deadline, "it never expired");
        }
    }
}
