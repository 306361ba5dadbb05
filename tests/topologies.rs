//! Redis Sentinel and Redis Cluster, on processes that the tests start.
#![cfg(feature = "redis")]

#[path = "support/redis.rs"]
mod server;
mod support;
#[path = "support/verbs.rs"]
mod verbs;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use server::{Link, RedisServer, Value, directory, free_port};
use support::best_of_three;
use syncguard::{
    AcquireOutcome, Acquired, Backend, CancelToken, Client, ClientOptions, ErrorCode,
    ExtendOutcome, LockError, LockId, LockOptions, LookupBy, RedisBackend, Ttl,
};
use tempfile::TempDir;
use verbs::{granted, id, key};

/// A failover and a cluster that forms take seconds, on a busy machine many.
const PATIENCE: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(60);
/// What a busy machine may add to a bound.
const SLACK: Duration = Duration::from_millis(500);

fn ttl() -> Ttl {
    Ttl::new(TTL).expect("a legal ttl")
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A value of the text that `INFO` and `CLUSTER INFO` answer.
fn field(info: &str, name: &str) -> String {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// How often `server` ran, or refused, `EVALSHA` and `EVAL`.
fn evals(server: &RedisServer) -> (u64, u64) {
    let info = server.cli(&["INFO", "commandstats"]).text();
    let (mut calls, mut refused) = (0, 0);
    for name in ["cmdstat_evalsha", "cmdstat_eval"] {
        for part in field(&info, name).split(',') {
            match part.split_once('=') {
                Some(("calls", n)) => calls += n.parse::<u64>().expect("a number"),
                Some(("rejected_calls", n)) => refused += n.parse::<u64>().expect("a number"),
                _ => {}
            }
        }
    }
    (calls, refused)
}

/// Acquires as soon as it can be, each time with a new id, and every failure on the way must be a transient one.
fn acquired_at_last(redis: &RedisBackend, name: &str) -> (LockId, Acquired) {
    let mut got = None;
    eventually("an acquire", || {
        let id = id();
        match redis.acquire(&key(name), &id, ttl(), None) {
            Ok(AcquireOutcome::Acquired(grant)) => got = Some((id, grant)),
            Ok(other) => panic!("nobody else was there: {other:?}"),
            Err(e) => assert!(e.code().is_transient(), "{e}"),
        }
        got.is_some()
    });
    got.expect("acquired")
}

// Sentinel.

/// A redis-sentinel process, in a directory of its own because it rewrites its configuration.
struct Sentinel {
    dir: TempDir,
    port: u16,
    process: Child,
}

impl Sentinel {
    /// Watches `master` as "main", with more lines for its configuration, in which `$port` is the port it was given.
    fn start(master: &RedisServer, lines: &str) -> Self {
        let dir = directory("sg-sentinel-");
        let end = Instant::now() + PATIENCE;
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
                    // Somebody took the port since we looked.
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

fn sentinel_url(sentinels: &[Sentinel], rest: &str) -> String {
    let hosts: Vec<String> = sentinels
        .iter()
        .map(|s| format!("127.0.0.1:{}", s.port))
        .collect();
    format!("redis+sentinel://{}/{rest}", hosts.join(","))
}

fn open(url: &str) -> RedisBackend {
    RedisBackend::open(url, &verbs::patient()).expect("a good URL")
}

/// The sentinels may name another primary while the one before still serves and takes itself for one: a partition. From the
/// moment that we know, nothing is asked of it any more, also not over a connection that was in use meanwhile.
#[test]
fn connections_to_a_primary_that_was_replaced_are_not_used_again() {
    let (old, new) = (RedisServer::start_tcp(&[]), RedisServer::start_tcp(&[]));
    let sentinel = [Sentinel::start(&old, "")];
    let redis = &open(&sentinel_url(&sentinel, "main"));
    assert!(!redis.is_locked(&key("x"), None).expect("an answer"));
    let paused = old.pause();
    std::thread::scope(|scope| {
        // Has the only connection, and its answer comes when the other one is known.
        let slow = scope.spawn(|| redis.is_locked(&key("y"), None));
        std::thread::sleep(Duration::from_millis(300));
        let port = new.port().to_string();
        sentinel[0].cli(&["SENTINEL", "REMOVE", "main"]);
        sentinel[0].cli(&["SENTINEL", "MONITOR", "main", "127.0.0.1", &port, "2"]);
        // On a machine that kept the other call waiting this one meets the server that stands still; then once more.
        eventually("a grant of the new primary", || {
            let hasty = CancelToken::new().with_timeout(Duration::from_secs(2));
            let grant = redis.acquire(&key("x"), &id(), verbs::ttl(600_000), Some(&hasty));
            matches!(grant, Ok(AcquireOutcome::Acquired(_)))
                || redis.is_locked(&key("x"), Some(&hasty)).unwrap_or(false)
        });
        drop(paused);
        let _ = slow.join().expect("no panic");
    });
    for _ in 0..4 {
        assert!(redis.is_locked(&key("x"), None).expect("an answer"));
    }
}

/// The time of a call that must fail, and its error.
fn failing<T: std::fmt::Debug>(call: impl Fn() -> Result<T, LockError>) -> (Duration, LockError) {
    let mut error = None;
    let time = best_of_three(|| {
        let start = Instant::now();
        error = Some(call().expect_err("nobody can serve"));
        start.elapsed()
    });
    (time, error.expect("it ran"))
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
    let first = granted(redis.acquire(&key("held"), &id(), ttl(), None));
    let (passed_on, _) = acquired_at_last(&redis, "k");
    assert!(
        redis
            .release(&passed_on, None)
            .expect("an answer")
            .is_released()
    );
    // What is replicated survives. What is not may be lost, and is not asserted.
    eventually("replication", || {
        redis.is_locked(&key("held"), None).expect("a look")
            && master.cli(&["WAIT", "1", "1000"]).int() == 1
            && replica.cli(&["GET", "syncguard:fence:syncguard:k"]) == Value::Text(b"1".to_vec())
            && replica.cli(&["EXISTS", "syncguard:held"]).int() == 1
    });

    master.kill();
    give_up_after("500");
    // Nobody is there yet, unless the machine is so slow that the failover was faster.
    if let Err(error) = redis.is_locked(&key("held"), None) {
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
        assert!(!error.may_have_applied());
    }
    // A wait goes on through the failover.
    let client = Client::open(&url).expect("a good URL");
    let options = LockOptions::new().acquire_timeout(PATIENCE);
    let guard = client.lock_with("k", &options).expect("the lock");
    assert_eq!(guard.fence().get(), 2);
    give_up_after("600000");
    guard.release().expect("an answer");
    let (_, grant) = acquired_at_last(&redis, "k");
    assert_eq!(grant.fence.get(), 3);
    assert_eq!(
        field(&replica.cli(&["INFO", "replication"]).text(), "role"),
        "master"
    );
    // The lock that was held is held still.
    assert!(redis.is_locked(&key("held"), None).expect("a look"));
    let again = redis.acquire(&key("held"), &first.lock_id, ttl(), None);
    assert_eq!(granted(again), first);

    // The old primary comes back and takes itself for one until the sentinels tell it otherwise. Nobody asks it.
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
    let time = best_of_three(|| {
        let redis = fresh(&url);
        let start = Instant::now();
        let _ = granted(redis.acquire(&key("a"), &id(), ttl(), None));
        let first = start.elapsed();
        master.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        master.cli(&["DEL", "syncguard:a"]);
        let again = best_of_three(|| {
            let start = Instant::now();
            assert!(!redis.is_locked(&key("a"), None).expect("a look"));
            start.elapsed()
        });
        assert!(again < first, "{again:?} after {first:?}");
        first
    });
    assert!(time < connect_timeout, "{time:?}");

    // All of them hang.
    let all: Vec<Resume> = sentinels[1..].iter().map(Sentinel::pause).collect();
    let (time, error) = failing(|| fresh(&url).is_locked(&key("a"), None));
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    assert!(error.message().contains("none of 3 sentinels"), "{error}");
    assert!(!error.may_have_applied());
    assert!(time < connect_timeout + SLACK, "{time:?}");
    drop((paused, all));

    let options = ClientOptions::new()
        .connect_timeout(PATIENCE)
        .operation_timeout(PATIENCE);
    let patient = |url: &str| RedisBackend::open(url, &options).expect("a good URL");
    let wrong = sentinel_url(&sentinels, "s3cret");
    let (_, error) = failing(|| patient(&wrong).is_locked(&key("a"), None));
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(
        error.message().contains("name") && !error.message().contains("s3cret"),
        "{error}"
    );

    // One that is gone costs nothing.
    drop(sentinels.remove(0));
    let _ = granted(patient(&url).acquire(&key("b"), &id(), ttl(), None));
    // With some that say no and some that say nothing there is still hope.
    let (_, error) =
        failing(|| patient(&url.replace("/main", "/wrong")).is_locked(&key("a"), None));
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");

    // Not sentinels at all.
    let no_sentinel = format!("redis+sentinel://127.0.0.1:{}/main", master.port());
    let (_, error) = failing(|| patient(&no_sentinel).is_locked(&key("a"), None));
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(error.message().contains("sentinel"), "{error}");
}

/// The documentation's line, for a server without Sentinel or Cluster.
const MINIMAL: &[&str] = &[
    "resetchannels",
    "-@all",
    "+evalsha",
    "+eval",
    "+get",
    "+set",
    "+del",
    "+incr",
    "+time",
];

fn user(server: &RedisServer, pattern: &str, more: &[&str]) {
    let mut command = vec![
        "ACL",
        "SETUSER",
        "bob",
        "reset",
        "on",
        ">s3cret",
        "resetkeys",
        pattern,
    ];
    command.extend_from_slice(MINIMAL);
    command.extend_from_slice(more);
    server.cli(&command);
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
            .is_locked(&key("k"), None)
            .expect_err(missing);
        assert_eq!(error.code(), ErrorCode::AuthFailed);
        assert!(error.message().contains(missing), "{error}");
    }
    user(&master, "~syncguard:*", &["+role", "+select"]);
    let watcher = bob("main/2?sentinel_user=watcher&sentinel_password=asks");
    assert!(!watcher.is_locked(&key("k"), None).expect("a look"));
    let redis = bob("main/2?sentinel_password=guard");
    let held = id();
    let _ = granted(redis.acquire(&key("k"), &held, ttl(), None));
    assert!(
        !open(&master.tcp_url())
            .is_locked(&key("k"), None)
            .expect("a look")
    );
    for rest in [
        "main",
        "main?sentinel_password=wrong",
        "main?sentinel_user=x",
    ] {
        let error = bob(rest)
            .is_locked(&key("k"), None)
            .expect_err("not let in");
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{rest}");
        assert!(error.message().contains("sentinel"), "{error}");
    }

    // It becomes a replica behind our back. Once a connection notices, nobody trusts it.
    let nobody = free_port().to_string();
    master.cli(&["REPLICAOF", "127.0.0.1", &nobody]);
    let error = redis.release(&held, None).expect_err("a replica");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    for _ in 0..3 {
        let error = redis.is_locked(&key("k"), None).expect_err("a replica");
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
        assert!(error.message().contains("no primary"), "{error}");
        assert!(!error.may_have_applied());
    }
    master.cli(&["REPLICAOF", "NO", "ONE"]);
    assert!(redis.release(&held, None).expect("an answer").is_released());
}

// Cluster.

/// The slot of `{app}`.
const SLOT: &str = "6805";
const PREFIX: &str = "{app}";

/// Three primaries, and replicas of the second, which has our slot.
fn cluster(replicas: usize) -> Vec<RedisServer> {
    // A busy machine must not cause a failover: whoever wants one says when.
    let node_timeout = "60000";
    let nodes: Vec<RedisServer> = (0..3 + replicas)
        .map(|_| {
            RedisServer::start_tcp(&[
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                node_timeout,
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
            ])
        })
        .collect();
    for (n, range) in [("0", "5460"), ("5461", "10922"), ("10923", "16383")]
        .iter()
        .enumerate()
    {
        nodes[n].cli(&["CLUSTER", "ADDSLOTSRANGE", range.0, range.1]);
    }
    let first = nodes[0].port().to_string();
    for (n, node) in nodes.iter().enumerate() {
        node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
        if n > 0 {
            node.cli(&["CLUSTER", "MEET", "127.0.0.1", &first]);
        }
    }
    let settled = |nodes: &[RedisServer]| {
        let count = nodes.len().to_string();
        nodes.iter().all(|node| {
            let info = node.cli(&["CLUSTER", "INFO"]).text();
            field(&info, "cluster_state") == "ok"
                && field(&info, "cluster_known_nodes") == count
                && field(&info, "cluster_slots_ok") == "16384"
        })
    };
    eventually("a cluster", || settled(&nodes));
    let owner = nodes[1].cli(&["CLUSTER", "MYID"]).text();
    for replica in &nodes[3..] {
        replica.cli(&["CLUSTER", "REPLICATE", &owner]);
    }
    eventually("replicas", || {
        settled(&nodes)
            && nodes[1]
                .cli(&["INFO", "replication"])
                .text()
                .matches("state=online")
                .count()
                == replicas
            && nodes.iter().all(|node| {
                node.cli(&["CLUSTER", "NODES"])
                    .text()
                    .matches(" slave")
                    .count()
                    + node
                        .cli(&["CLUSTER", "NODES"])
                        .text()
                        .matches(",slave")
                        .count()
                    == replicas
            })
    });
    nodes
}

/// A node that greets, and sends every request to itself.
struct Roundabout {
    port: u16,
    visits: Arc<AtomicU64>,
}

impl Roundabout {
    /// `redirect` is the answer to all requests, with `$port` for its own.
    fn start(redirect: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let answer = redirect.replace("$port", &port.to_string());
        let visits = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&visits);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, SeqCst);
                let answer = answer.clone();
                std::thread::spawn(move || sent_around(stream, &answer));
            }
        });
        Self { port, visits }
    }
}

fn sent_around(mut stream: TcpStream, answer: &str) -> std::io::Result<()> {
    let (mut buffer, mut heard) = ([0; 4096], Vec::new());
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => heard.extend_from_slice(&buffer[..n]),
        }
        let text = String::from_utf8_lossy(&heard);
        if text.contains("SETNAME") && text.ends_with("syncguard\r\n") {
            // Two commands: whether it is a node, and our name.
            stream.write_all(b"+OK\r\n+OK\r\n")?;
        } else if text.contains("EVALSHA") && text.ends_with("\r\n") {
            // Announced by ASKING after an ASK.
            if text.contains("ASKING") {
                stream.write_all(b"+OK\r\n")?;
            }
            stream.write_all(answer.as_bytes())?;
        } else {
            continue;
        }
        heard.clear();
    }
}

/// Nodes that send each other's clients around are left after a few steps, and not asked until the time is up.
#[test]
fn a_cluster_that_sends_us_around_is_left() {
    for redirect in [
        "-MOVED 6805 127.0.0.1:$port\r\n",
        "-ASK 6805 127.0.0.1:$port\r\n",
    ] {
        let node = Roundabout::start(redirect);
        let url = format!("redis+cluster://127.0.0.1:{}", node.port);
        let options = verbs::patient().key_prefix("{app}");
        let redis = RedisBackend::open(&url, &options).expect("a good URL");
        let error = redis.is_locked(&key("k"), None).expect_err("no owner");
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
        assert!(!error.may_have_applied());
        let visits = node.visits.load(SeqCst);
        assert!((2..=10).contains(&visits), "{visits} visits");
    }
}

fn cluster_url<'a>(nodes: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let hosts: Vec<String> = nodes
        .into_iter()
        .map(|n| format!("127.0.0.1:{}", n.port()))
        .collect();
    format!("redis+cluster://{}", hosts.join(","))
}

fn tagged() -> ClientOptions {
    verbs::patient().key_prefix(PREFIX)
}

fn open_cluster(url: &str) -> RedisBackend {
    RedisBackend::open(url, &tagged()).expect("a good URL")
}

#[test]
fn a_cluster_is_followed_wherever_it_moves() {
    let nodes = cluster(0);
    assert_eq!(
        nodes[0]
            .cli(&["CLUSTER", "KEYSLOT", "{app}:k"])
            .int()
            .to_string(),
        SLOT
    );
    // The seed is not the owner.
    let redis = open_cluster(&cluster_url(&nodes[..1]));
    let (k, held) = (key("k"), id());
    let first = granted(redis.acquire(&k, &held, ttl(), None));
    assert_eq!(evals(&nodes[0]), (0, 1), "one request went astray");
    // From now on every verb is one request, to the owner.
    let before = evals(&nodes[1]);
    let connections =
        |node: &RedisServer| field(&node.cli(&["INFO", "clients"]).text(), "connected_clients");
    let connected = connections(&nodes[1]);
    for _ in 0..5 {
        let other = id();
        assert!(redis.is_locked(&k, None).expect("a look"));
        assert!(
            redis
                .find(LookupBy::LockId(&held), None)
                .expect("a look")
                .is_some()
        );
        let _ = granted(redis.acquire(&key("other"), &other, ttl(), None));
        assert!(matches!(
            redis.extend(&held, ttl(), None),
            Ok(ExtendOutcome::Extended(_))
        ));
        assert!(
            redis
                .release(&other, None)
                .expect("an answer")
                .is_released()
        );
    }
    // Each of the five scripts was unknown to the server once; acquire came first and does not count.
    assert_eq!(evals(&nodes[1]), (before.0 + 5 * 5 + 4, before.1));
    assert_eq!(connections(&nodes[1]), connected);
    assert_eq!(evals(&nodes[0]), (0, 1));
    assert!(redis.check(None).expect("a good cluster").is_empty());
    // A seed that only check() has asked is followed too.
    assert!(open_cluster(&cluster_url(&nodes[2..])).check(None).is_ok());

    let late = id();
    let _ = granted(redis.acquire(&key("late"), &late, ttl(), None));
    // The slot is on its way from the second node to the third.
    let ids: Vec<String> = nodes
        .iter()
        .map(|n| n.cli(&["CLUSTER", "MYID"]).text())
        .collect();
    nodes[2].cli(&["CLUSTER", "SETSLOT", SLOT, "IMPORTING", &ids[1]]);
    nodes[1].cli(&["CLUSTER", "SETSLOT", SLOT, "MIGRATING", &ids[2]]);
    let target = nodes[2].port().to_string();
    let migrate = |name: &str| {
        nodes[1].cli(&["MIGRATE", "127.0.0.1", &target, name, "0", "30000"]);
    };
    let index = format!("{PREFIX}:id:{}", held.as_str());
    // All keys are still there: the old node serves them.
    assert!(redis.is_locked(&k, None).expect("a look"));
    // The index has gone ahead: the lock must not be taken for missing.
    migrate(&index);
    let moving = |error: LockError| {
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
        assert!(error.message().contains("moving"), "{error}");
        assert!(!error.may_have_applied());
    };
    moving(redis.release(&held, None).expect_err("in two places"));
    moving(redis.extend(&held, ttl(), None).expect_err("in two places"));
    moving(
        redis
            .find(LookupBy::LockId(&held), None)
            .expect_err("in two places"),
    );
    assert!(redis.is_locked(&k, None).expect("a look"));
    // The lock has followed: found where it is, by ASK.
    migrate("{app}:k");
    assert!(redis.is_locked(&k, None).expect("a look"));
    assert!(matches!(
        redis.extend(&held, ttl(), None),
        Ok(ExtendOutcome::Extended(_))
    ));
    let found = redis
        .find(LookupBy::LockId(&held), None)
        .expect("a look")
        .expect("held");
    assert_eq!(found.fence, first.fence);
    assert!(!redis.is_locked(&key("free"), None).expect("a look"));
    // A grant needs three keys in one place, and its fence counter is still at the old one.
    moving(
        redis
            .acquire(&k, &id(), ttl(), None)
            .expect_err("in two places"),
    );
    moving(
        redis
            .acquire(&key("new"), &id(), ttl(), None)
            .expect_err("in two places"),
    );
    // The other way round: the lock has gone ahead of its index.
    migrate("{app}:late");
    moving(redis.release(&late, None).expect_err("in two places"));
    moving(redis.extend(&late, ttl(), None).expect_err("in two places"));
    assert!(redis.is_locked(&key("late"), None).expect("a look"));
    assert!(redis.check(None).is_ok());

    for name in nodes[1]
        .cli(&["CLUSTER", "GETKEYSINSLOT", SLOT, "100"])
        .list()
    {
        migrate(&name.text());
    }
    for node in [&nodes[2], &nodes[1], &nodes[0]] {
        node.cli(&["CLUSTER", "SETSLOT", SLOT, "NODE", &ids[2]]);
    }
    // The move is complete: MOVED to the new owner, with the fences.
    assert!(redis.release(&held, None).expect("an answer").is_released());
    assert!(redis.release(&late, None).expect("an answer").is_released());
    let second = granted(redis.acquire(&k, &id(), ttl(), None));
    assert_eq!(second.fence.get(), first.fence.get() + 1);
    let before = evals(&nodes[1]);
    assert!(redis.is_locked(&k, None).expect("a look"));
    assert_eq!(evals(&nodes[1]), before);
}

/// Moves our slot, as `redis-cli --cluster reshard` does.
fn move_slot(nodes: &[RedisServer], from: usize, to: usize) {
    let ids: Vec<String> = nodes
        .iter()
        .map(|n| n.cli(&["CLUSTER", "MYID"]).text())
        .collect();
    let target = nodes[to].port().to_string();
    nodes[to].cli(&["CLUSTER", "SETSLOT", SLOT, "IMPORTING", &ids[from]]);
    nodes[from].cli(&["CLUSTER", "SETSLOT", SLOT, "MIGRATING", &ids[to]]);
    eventually("an empty slot", || {
        let keys = nodes[from].cli(&["CLUSTER", "GETKEYSINSLOT", SLOT, "3"]);
        for key in keys.list() {
            // It may be gone since: then there is nothing to move.
            nodes[from].cli(&["MIGRATE", "127.0.0.1", &target, &key.text(), "0", "30000"]);
        }
        keys.list().is_empty()
    });
    for node in [to, from]
        .into_iter()
        .chain((0..nodes.len()).filter(|n| *n != to && *n != from))
    {
        nodes[node].cli(&["CLUSTER", "SETSLOT", SLOT, "NODE", &ids[to]]);
    }
}

#[test]
fn no_two_hold_one_key_while_its_slot_moves() {
    const KEYS: usize = 4;
    let nodes = cluster(0);
    let redis = open_cluster(&cluster_url(&nodes));
    let held: [AtomicBool; KEYS] = Default::default();
    let fences: [AtomicU64; KEYS] = Default::default();
    let grants = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (redis, held, fences, grants, stop) = (&redis, &held, &fences, &grants, &stop);
            scope.spawn(move || {
                let transient = |e: LockError| assert!(e.code().is_transient(), "{e}");
                for n in worker.. {
                    if stop.load(SeqCst) {
                        break;
                    }
                    let (at, id) = (n % KEYS, id());
                    match redis.acquire(&key(&format!("k{at}")), &id, ttl(), None) {
                        Ok(AcquireOutcome::Acquired(grant)) => {
                            assert!(!held[at].swap(true, SeqCst), "two holders");
                            let before = fences[at].swap(grant.fence.get(), SeqCst);
                            assert!(before < grant.fence.get(), "{before} {:?}", grant.fence);
                            grants.fetch_add(1, SeqCst);
                            held[at].store(false, SeqCst);
                            eventually("a release", || match redis.release(&id, None) {
                                Ok(outcome) => {
                                    assert!(outcome.is_released(), "the lock was lost");
                                    true
                                }
                                Err(e) => {
                                    transient(e);
                                    false
                                }
                            });
                        }
                        Ok(AcquireOutcome::Locked(_)) => {}
                        Err(e) => transient(e),
                    }
                }
            });
        }
        let _stop = StopOnDrop(&stop);
        for (from, to) in [(1, 2), (2, 0), (0, 1)] {
            let before = grants.load(SeqCst);
            move_slot(&nodes, from, to);
            eventually("traffic", || grants.load(SeqCst) > before + 50);
        }
    });
    let sum: u64 = fences.iter().map(|f| f.load(SeqCst)).sum();
    assert_eq!(sum, grants.load(SeqCst), "every grant has its number");
}

/// Ends the workers also when the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_node_that_dies_is_an_error_in_time_and_its_replica_is_found() {
    let mut nodes = cluster(1);
    let operation_timeout = Duration::from_secs(2);
    let options = tagged().operation_timeout(operation_timeout);
    // The replica is not among the seeds.
    let redis = RedisBackend::open(&cluster_url(&nodes[..3]), &options).expect("a good URL");
    let (k, held) = (key("k"), id());
    let first = granted(redis.acquire(&k, &held, ttl(), None));
    eventually("replication", || {
        nodes[1].cli(&["WAIT", "1", "1000"]).int() == 1
            && nodes[3].cli(&["CLUSTER", "COUNTKEYSINSLOT", SLOT]).int() == 3
    });

    // Stopped, it costs the operation's time and no more.
    let paused = nodes[1].pause();
    let start = Instant::now();
    let error = redis.extend(&held, ttl(), None).expect_err("stopped");
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
    assert!(start.elapsed() < operation_timeout + Duration::from_secs(5));
    drop(paused);
    nodes[1].kill();
    for node in nodes.iter().filter(|node| node.is_running()) {
        node.cli(&["CONFIG", "SET", "cluster-node-timeout", "1000"]);
    }
    let mut quickest = None;
    eventually("the failover", || {
        let before = Instant::now();
        let result = redis.extend(&held, ttl(), None);
        let time = before.elapsed();
        match result {
            Ok(ExtendOutcome::Extended(_)) => true,
            Ok(absent) => panic!("the lock was replicated: {absent:?}"),
            Err(e) => {
                assert!(e.code().is_transient(), "{e}");
                quickest = quickest.min(Some(time)).or(Some(time));
                false
            }
        }
    });
    assert!(quickest.is_none_or(|time| time < SLACK), "{quickest:?}");
    let stored = redis
        .find(LookupBy::Key(&k), None)
        .expect("a look")
        .expect("held");
    assert_eq!(stored.fence, first.fence);
    assert!(redis.release(&held, None).expect("an answer").is_released());
    let second = granted(redis.acquire(&k, &id(), ttl(), None));
    assert_eq!(second.fence.get(), 2);

    // The whole cluster dies.
    for node in &mut nodes {
        node.kill();
    }
    let (time, error) = failing(|| redis.is_locked(&k, None));
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
    assert!(
        error.message().contains("nodes of the Redis Cluster"),
        "{error}"
    );
    assert!(time < SLACK, "{time:?}");
}

#[test]
fn a_cluster_needs_a_tag_a_cluster_and_few_rights() {
    let node = RedisServer::start_tcp(&["--cluster-enabled", "yes"]);
    node.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    eventually("a cluster", || {
        field(&node.cli(&["CLUSTER", "INFO"]).text(), "cluster_state") == "ok"
    });
    let url = cluster_url([&node]);
    for prefix in ["syncguard", "", "{}", "{app"] {
        let options = ClientOptions::new().key_prefix(prefix);
        for error in [
            RedisBackend::open(&url, &options)
                .map(|_| ())
                .expect_err(prefix),
            Client::open_with(&url, &options)
                .map(|_| ())
                .expect_err(prefix),
        ] {
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(error.message().contains("{app}"), "{error}");
        }
    }
    let client = Client::open_with(&url, &tagged()).expect("a good URL");
    let guard = client.lock("k").expect("the lock");
    guard.release().expect("an answer");

    user(&node, "~{app}:*", &[]);
    let as_bob = url.replace("://", "://bob:s3cret@");
    let error = open_cluster(&as_bob)
        .is_locked(&key("k"), None)
        .expect_err("no right to ASKING");
    assert_eq!(error.code(), ErrorCode::AuthFailed);
    assert!(error.message().contains("ASKING"), "{error}");
    user(&node, "~{app}:*", &["+asking"]);
    let bob = open_cluster(&as_bob);
    let held = id();
    let _ = granted(bob.acquire(&key("k"), &held, ttl(), None));
    assert!(matches!(
        bob.extend(&held, ttl(), None),
        Ok(ExtendOutcome::Extended(_))
    ));
    assert!(bob.release(&held, None).expect("an answer").is_released());

    // A server on its own is refused, whichever stands first: it shares no lock with the cluster.
    let single = RedisServer::start_tcp(&[]);
    let error = open_cluster(&cluster_url([&single]))
        .is_locked(&key("k"), None)
        .expect_err("no cluster");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("redis://"), "{error}");
    let both = open_cluster(&cluster_url([&single, &node]));
    assert!(!both.is_locked(&key("k"), None).expect("a look"));

    // A cluster that has lost a slot says so.
    node.cli(&["CLUSTER", "DELSLOTS", "0"]);
    eventually("the cluster's end", || {
        field(&node.cli(&["CLUSTER", "INFO"]).text(), "cluster_state") == "fail"
    });
    let error = client.is_locked(&key("k"), None).expect_err("down");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
    assert!(error.message().contains("down"), "{error}");
}

#[cfg(feature = "tls")]
#[test]
fn sentinels_and_clusters_may_be_under_tls() {
    let made =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let (certificate, private) = (made.cert.pem(), made.signing_key.serialize_pem());
    let node = |args: &[&str]| RedisServer::start_tls(&certificate, &private, args);

    let master = node(&[]);
    let files = master.dir().display();
    let lines = format!(
        "sentinel down-after-milliseconds main 600000\nport 0\ntls-port $port\n\
         tls-cert-file {files}/cert.pem\ntls-key-file {files}/key.pem\n\
         tls-ca-cert-file {files}/cert.pem\ntls-auth-clients no\ntls-replication yes"
    );
    let sentinels = [Sentinel::start(&master, &lines)];
    let options = tagged().tls_ca_file(master.dir().join("cert.pem"));
    let url = sentinel_url(&sentinels, "main").replace("redis+", "rediss+");
    let redis = RedisBackend::open(&url, &options).expect("a good URL");
    let _ = granted(redis.acquire(&key("k"), &id(), ttl(), None));
    // A certificate that nobody vouches for is refused from the sentinel already.
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let strange = master.dir().join("strange.pem");
    std::fs::write(&strange, stranger.expect("a certificate").cert.pem()).expect("written");
    let error = RedisBackend::open(&url, &tagged().tls_ca_file(&strange))
        .expect("a good URL")
        .is_locked(&key("k"), None)
        .expect_err("not trusted");
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error}");
    assert!(error.message().contains("sentinel"), "{error}");

    let nodes = [(); 2].map(|()| node(&["--cluster-enabled", "yes", "--tls-cluster", "yes"]));
    nodes[0].cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "5460"]);
    nodes[1].cli(&["CLUSTER", "ADDSLOTSRANGE", "5461", "16383"]);
    nodes[1].cli(&["CLUSTER", "SET-CONFIG-EPOCH", "7"]);
    let first = nodes[0].port().to_string();
    nodes[1].cli(&["CLUSTER", "MEET", "127.0.0.1", &first]);
    eventually("a cluster", || {
        nodes.iter().all(|node| {
            let info = node.cli(&["CLUSTER", "INFO"]).text();
            field(&info, "cluster_state") == "ok" && field(&info, "cluster_slots_ok") == "16384"
        })
    });
    let url = cluster_url(&nodes[..1]).replace("redis+", "rediss+");
    let redis = RedisBackend::open(&url, &options).expect("a good URL");
    let _ = granted(redis.acquire(&key("k"), &id(), ttl(), None));
    assert_eq!(nodes[1].cli(&["EXISTS", "{app}:k"]).int(), 1);
}
