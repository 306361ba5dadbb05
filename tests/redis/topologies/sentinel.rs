//! Tests Redis Sentinel: failovers, replicas, and rights.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{SLACK, WAIT_LIMIT, acquired_at_last, eventually, failing, field, open, ttl, user};
use crate::support::redis::{Link, RedisServer, Value, directory, free_port};
use crate::support::stopwatch::{Stopwatch, worst_of_three};
use crate::support::verbs::{self, granted, id, key};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use syncguard::{
    AcquireOutcome, Backend, Call, Client, ClientOptions, ErrorCode, LockOptions, RedisBackend,
};
use tempfile::TempDir;

/// A redis-sentinel process, in a directory of its own because it rewrites its configuration.
pub struct Sentinel {
    dir: TempDir,
    port: u16,
    process: Child,
}

impl Sentinel {
    /// Watches `master` as "main", with more lines for its configuration, in which `$port` is the port it was given.
    pub fn start(master: &RedisServer, lines: &str) -> Self {
        let dir = directory("sg-sentinel-");
        let end = Instant::now() + WAIT_LIMIT;
        loop {
            let port = free_port();
            let at = dir.path().display();
            let conf = format!(
                "port {port}\nbind 127.0.0.1\nunixsocket {at}/s\ndir {at}\n\
                 sentinel monitor main 127.0.0.1 {} 2\n\
                 sentinel failover-timeout main 5000\n{lines}\n",
                master.port()
            );
            let conf = conf.replace("$port", &port.to_string());
            std::fs::write(dir.path().join("conf"), conf).expect("written");
            let process = Command::new("setpriv")
                .args(["--pdeathsig", "KILL"])
                .arg(std::env::var_os("SYNCGUARD_REDIS_SERVER").unwrap_or("redis-server".into()))
                .arg(dir.path().join("conf"))
                .arg("--sentinel")
                .stdin(Stdio::null())
                .stdout(std::fs::File::create(dir.path().join("log")).expect("a log file"))
                .stderr(Stdio::null())
                .spawn()
                .expect("setpriv and redis-server are installed");
            let mut sentinel = Self {
                dir: tempfile::tempdir().expect("a directory"),
                port,
                process,
            };
            loop {
                let died = sentinel.process.try_wait().expect("our own child");
                if let Some(status) = died {
                    // Another program took the port since we looked.
                    let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
                    assert!(Instant::now() < end, "no sentinel: {status}\n{log}");
                    break;
                }
                let answer = Link::open(&dir.path().join("s")).and_then(|mut l| l.call(&["PING"]));
                if matches!(answer, Ok(Value::Text(_) | Value::Error(_))) {
                    sentinel.dir = dir;
                    return sentinel;
                }
                assert!(Instant::now() < end, "the sentinel never answered");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    fn cli(&self, command: &[&str]) -> Value {
        let mut link = Link::open(&self.dir.path().join("s")).expect("a sentinel");
        link.call(command).expect("an answer")
    }

    /// A field of what it knows about the primary.
    fn knows(&self, name: &str) -> String {
        let all = self.cli(&["SENTINEL", "MASTER", "main"]);
        let all: Vec<String> = all.list().iter().map(Value::text).collect();
        all.chunks(2)
            .find(|pair| pair[0] == name)
            .map(|pair| pair[1].clone())
            .unwrap_or_default()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).expect("a pid"))
    }

    fn pause(&self) -> Resume {
        kill(self.pid(), Signal::SIGSTOP).expect("our own child");
        Resume(self.pid())
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Continues a stopped process when dropped.
struct Resume(Pid);

impl Drop for Resume {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

pub fn sentinel_url(sentinels: &[Sentinel], rest: &str) -> String {
    let hosts: Vec<String> = sentinels
        .iter()
        .map(|s| format!("127.0.0.1:{}", s.port))
        .collect();
    format!("redis+sentinel://{}/{rest}", hosts.join(","))
}

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
