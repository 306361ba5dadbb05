//! Tests Redis Sentinel: failovers, replicas, and rights.

use std::time::Duration;

use super::{SLACK, acquired_at_last, failing, open, ttl, user};
use crate::support::redis::{RedisServer, Value, free_port};
use crate::support::stopwatch::{Stopwatch, worst_of_three};
use crate::support::topologies::{Resume, Sentinel, WAIT_LIMIT, eventually, field, sentinel_url};
use crate::support::verbs::{self, granted, id, key};
use syncguard::{
    AcquireOutcome, Backend, Call, Client, ClientOptions, ErrorCode, LockOptions, RedisBackend,
};

#[test]
fn after_a_failover_the_new_primary_is_found() {
    let mut master = RedisServer::start_tcp(&[]);
    let port = master.port().to_string();
    let replica = RedisServer::start_tcp(&["--replicaof", "127.0.0.1", &port]);
    // A sentinel looks for replicas when it starts, and then only every ten seconds.
    eventually("replication", || {
        let info = master.cli(&["INFO", "replication"]).text();
        info.contains("state=online")
    });
    let sentinels: Vec<Sentinel> = (0..3)
        .map(|_| Sentinel::start(&master, "sentinel down-after-milliseconds main 600000"))
        .collect();
    // Impatient only for as long as the failover takes: a primary on a busy machine must not be given up.
    let give_up_after = |ms: &str| {
        for sentinel in &sentinels {
            sentinel.cli(&["SENTINEL", "SET", "main", "down-after-milliseconds", ms]);
        }
    };
    eventually("sentinels that know each other", || {
        sentinels
            .iter()
            .all(|s| s.knows("num-other-sentinels") == "2" && s.knows("num-slaves") == "1")
    });
    let url = sentinel_url(&sentinels, "main");
    let redis = open(&url);
    let first = granted(redis.acquire(&key("held"), &id(), ttl(), &Call::new()));
    let (passed_on, _) = acquired_at_last(&redis, "k");
    assert!(
        redis
            .release(&passed_on, &Call::new())
            .expect("an answer")
            .is_released()
    );
    // What is replicated survives. What is not may be lost, and is not asserted.
    eventually("replication", || {
        redis.is_locked(&key("held"), &Call::new()).expect("a look")
            && master.cli(&["WAIT", "1", "1000"]).int() == 1
            && replica.cli(&["GET", "syncguard:fence:syncguard:k"]) == Value::Text(b"1".to_vec())
            && replica.cli(&["EXISTS", "syncguard:held"]).int() == 1
    });

    master.kill();
    give_up_after("500");
    // No primary is there yet, unless the machine is so slow that the failover was faster.
    if let Err(error) = redis.is_locked(&key("held"), &Call::new()) {
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
        assert!(!error.may_have_applied());
    }
    // A wait goes on through the failover.
    let client = Client::open(&url).expect("a good URL");
    let options = LockOptions::new().acquire_timeout(WAIT_LIMIT);
    let guard = client.lock_with("k", &options).expect("the lock");
    assert_eq!(guard.fence().get(), 2);
    give_up_after("600000");
    guard.release().expect("an answer").expect_released();
    let (_, grant) = acquired_at_last(&redis, "k");
    assert_eq!(grant.fence.get(), 3);
    assert_eq!(
        field(&replica.cli(&["INFO", "replication"]).text(), "role"),
        "master"
    );
    // The lock that was held is held still.
    assert!(redis.is_locked(&key("held"), &Call::new()).expect("a look"));
    let again = redis.acquire(&key("held"), &first.lock_id, ttl(), &Call::new());
    assert_eq!(granted(again), first);

    // The old primary comes back and takes itself for one until the sentinels tell it otherwise. No client asks it.
    master.start_again();
    let redis = open(&url);
    let (_, grant) = acquired_at_last(&redis, "other");
    assert_eq!(grant.fence.get(), 1);
    assert_eq!(replica.cli(&["EXISTS", "syncguard:other"]).int(), 1);
}

#[test]
fn sentinels_that_do_not_help_are_passed_over() {
    let master = RedisServer::start_tcp(&[]);
    let mut sentinels: Vec<Sentinel> = (0..3)
        .map(|_| Sentinel::start(&master, "sentinel down-after-milliseconds main 600000"))
        .collect();
    let connect_timeout = Duration::from_secs(2);
    let options = ClientOptions::new().connect_timeout(connect_timeout);
    let fresh = |url: &str| RedisBackend::open(url, &options).expect("a good URL");
    let url = sentinel_url(&sentinels, "main");

    // The first one hangs: it has its share of the time and no more, and is not asked first again.
    let paused = sentinels[0].pause();
    let time = worst_of_three(|| {
        let redis = fresh(&url);
        let watch = Stopwatch::start();
        let _ = granted(redis.acquire(&key("a"), &id(), ttl(), &Call::new()));
        let first = watch.stop();
        master.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        master.cli(&["DEL", "syncguard:a"]);
        let again = worst_of_three(|| {
            let watch = Stopwatch::start();
            assert!(!redis.is_locked(&key("a"), &Call::new()).expect("a look"));
            watch.stop()
        });
        assert!(again < first, "{again:?} after {first:?}");
        first
    });
    assert!(time < connect_timeout, "{time:?}");

    // All of them hang.
    let all: Vec<Resume> = sentinels[1..].iter().map(Sentinel::pause).collect();
    let (time, error) = failing(|| fresh(&url).is_locked(&key("a"), &Call::new()));
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    assert!(error.message().contains("none of 3 sentinels"), "{error}");
    assert!(!error.may_have_applied());
    assert!(time < connect_timeout + SLACK, "{time:?}");
    drop((paused, all));

    let options = ClientOptions::new()
        .connect_timeout(WAIT_LIMIT)
        .operation_timeout(WAIT_LIMIT);
    let patient = |url: &str| RedisBackend::open(url, &options).expect("a good URL");
    let wrong = sentinel_url(&sentinels, "s3cret");
    let (_, error) = failing(|| patient(&wrong).is_locked(&key("a"), &Call::new()));
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(
        error.message().contains("name") && !error.message().contains("s3cret"),
        "{error}"
    );

    // One that is gone costs nothing.
    drop(sentinels.remove(0));
    let _ = granted(patient(&url).acquire(&key("b"), &id(), ttl(), &Call::new()));
    // With some that say no and some that say nothing there is still hope.
    let (_, error) =
        failing(|| patient(&url.replace("/main", "/wrong")).is_locked(&key("a"), &Call::new()));
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");

    // Not sentinels at all.
    let no_sentinel = format!("redis+sentinel://127.0.0.1:{}/main", master.port());
    let (_, error) = failing(|| patient(&no_sentinel).is_locked(&key("a"), &Call::new()));
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(error.message().contains("sentinel"), "{error}");
}

#[test]
fn a_replica_is_not_a_primary_and_users_have_few_rights() {
    let master = RedisServer::start_tcp(&[]);
    let lines = "sentinel down-after-milliseconds main 600000\nrequirepass guard\n\
                 user watcher on >asks -@all +sentinel|get-master-addr-by-name";
    let sentinels = [Sentinel::start(&master, lines)];
    let bob = |rest: &str| open(&sentinel_url(&sentinels, rest).replace("://", "://bob:s3cret@"));
    for (rights, missing) in [(&["+select"], "ROLE"), (&["+role"], "SELECT")] {
        user(&master, "~syncguard:*", rights);
        let error = bob("main/2?sentinel_password=guard")
            .is_locked(&key("k"), &Call::new())
            .expect_err(missing);
        assert_eq!(error.code(), ErrorCode::AuthFailed);
        assert!(error.message().contains(missing), "{error}");
    }
    user(&master, "~syncguard:*", &["+role", "+select"]);
    let watcher = bob("main/2?sentinel_user=watcher&sentinel_password=asks");
    assert!(!watcher.is_locked(&key("k"), &Call::new()).expect("a look"));
    let redis = bob("main/2?sentinel_password=guard");
    let held = id();
    let _ = granted(redis.acquire(&key("k"), &held, ttl(), &Call::new()));
    assert!(
        !open(&master.tcp_url())
            .is_locked(&key("k"), &Call::new())
            .expect("a look")
    );
    for rest in [
        "main",
        "main?sentinel_password=wrong",
        "main?sentinel_user=x",
    ] {
        let error = bob(rest)
            .is_locked(&key("k"), &Call::new())
            .expect_err("not let in");
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{rest}");
        assert!(error.message().contains("sentinel"), "{error}");
    }

    // It becomes a replica behind our back. Once a connection notices, no client trusts it.
    let unused = free_port().to_string();
    master.cli(&["REPLICAOF", "127.0.0.1", &unused]);
    let error = redis.release(&held, &Call::new()).expect_err("a replica");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    for _ in 0..3 {
        let error = redis
            .is_locked(&key("k"), &Call::new())
            .expect_err("a replica");
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
        assert!(error.message().contains("no primary"), "{error}");
        assert!(!error.may_have_applied());
    }
    master.cli(&["REPLICAOF", "NO", "ONE"]);
    assert!(
        redis
            .release(&held, &Call::new())
            .expect("an answer")
            .is_released()
    );
}

/// The sentinels may name another primary while the one before still serves and takes itself for one: a partition. From the
/// moment that we know, nothing is asked of it any more, also not over a connection that was in use meanwhile.
#[test]
fn connections_to_a_primary_that_was_replaced_are_not_used_again() {
    let (old, new) = (RedisServer::start_tcp(&[]), RedisServer::start_tcp(&[]));
    let sentinel = [Sentinel::start(&old, "")];
    let redis = &open(&sentinel_url(&sentinel, "main"));
    assert!(!redis.is_locked(&key("x"), &Call::new()).expect("an answer"));
    let paused = old.pause();
    std::thread::scope(|scope| {
        // Has the only connection, and its answer comes when the other one is known.
        let slow = scope.spawn(|| redis.is_locked(&key("y"), &Call::new()));
        std::thread::sleep(Duration::from_millis(300));
        let port = new.port().to_string();
        sentinel[0].cli(&["SENTINEL", "REMOVE", "main"]);
        sentinel[0].cli(&["SENTINEL", "MONITOR", "main", "127.0.0.1", &port, "2"]);
        // On a machine that kept the other call waiting this one meets the server that stands still; then once more.
        eventually("a grant of the new primary", || {
            let hasty = Call::new().within(Duration::from_secs(2));
            let grant = redis.acquire(&key("x"), &id(), verbs::ttl(600_000), &hasty);
            matches!(grant, Ok(AcquireOutcome::Acquired(_)))
                || redis.is_locked(&key("x"), &hasty).unwrap_or(false)
        });
        drop(paused);
        let _ = slow.join().expect("no panic");
    });
    for _ in 0..4 {
        assert!(redis.is_locked(&key("x"), &Call::new()).expect("an answer"));
    }
}

/// A position of `SCAN` means nothing to another server. The documented rights are enough to tell two servers apart.
#[test]
fn a_listing_with_few_rights_does_not_go_on_after_a_failover() {
    use syncguard::ListOptions;
    let master = RedisServer::start_tcp(&[]);
    let port = master.port().to_string();
    let replica = RedisServer::start_tcp(&["--replicaof", "127.0.0.1", &port]);
    eventually("replication", || {
        let info = master.cli(&["INFO", "replication"]).text();
        info.contains("state=online")
    });
    for server in [&master, &replica] {
        user(server, "~syncguard:*", &["+role"]);
    }
    let sentinels = [Sentinel::start(
        &master,
        "sentinel down-after-milliseconds main 600000",
    )];
    eventually("a sentinel that knows both", || {
        sentinels[0].knows("num-slaves") == "1"
    });
    let url = sentinel_url(&sentinels, "main").replace("://", "://bob:s3cret@");
    let redis = open(&url);
    for n in 0..50 {
        let _ = granted(redis.acquire(&key(&n.to_string()), &id(), ttl(), &Call::new()));
    }
    let list = |options: &ListOptions| redis.list(options, &Call::new());
    let page = list(&ListOptions::new().examine(5)).expect("a page");
    let next = ListOptions::new()
        .examine(5)
        .after(page.next.expect("more"));
    // On the same server it goes on, also for another client.
    list(&next).expect("a page");
    open(&url).list(&next, &Call::new()).expect("a page");
    eventually("replication", || {
        replica.cli(&["DBSIZE"]).int() == master.cli(&["DBSIZE"]).int()
    });

    eventually("the failover", || {
        // Refused while one is under way, and before the sentinel has looked at the replica.
        sentinels[0].cli(&["SENTINEL", "FAILOVER", "main"]);
        let info = replica.cli(&["INFO", "replication"]).text();
        field(&info, "role") == "master"
    });
    let refused = std::cell::RefCell::new(None);
    eventually("the new primary", || match list(&next) {
        Err(error) if error.code() == ErrorCode::InvalidArgument => {
            refused.replace(Some(error));
            true
        }
        // The former primary, until it has become a replica.
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
            false
        }
    });
    let refused = refused.into_inner().expect("an error");
    assert!(refused.message().contains("anew"), "{refused}");
    assert!(list(&ListOptions::new()).is_ok());
}
