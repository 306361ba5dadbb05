//! Starts sentinels and clusters of private redis-servers.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::redis::{Link, RedisServer, Value, directory, free_port};

/// A failover and a cluster that forms take seconds, on a busy machine many.
pub const WAIT_LIMIT: Duration = Duration::from_secs(60);

#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT_LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "it did not happen in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A value of the text that `INFO` and `CLUSTER INFO` answer.
pub fn field(info: &str, name: &str) -> String {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

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

    pub fn cli(&self, command: &[&str]) -> Value {
        let mut link = Link::open(&self.dir.path().join("s")).expect("a sentinel");
        link.call(command).expect("an answer")
    }

    /// A field of what it knows about the primary.
    pub fn knows(&self, name: &str) -> String {
        let all = self.cli(&["SENTINEL", "MASTER", "main"]);
        let all: Vec<String> = all.list().iter().map(Value::text).collect();
        all.chunks(2)
            .find(|pair| pair[0] == name)
            .map(|pair| pair[1].clone())
            .unwrap_or_default()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).expect("a pid"))
    }

    pub fn pause(&self) -> Resume {
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
pub struct Resume(Pid);

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

/// Three primaries, and replicas of the second, which has the slot of `{app}`.
pub fn cluster(replicas: usize) -> Vec<RedisServer> {
    // A busy machine must not cause a failover: a test that wants one asks for it.
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

pub fn cluster_url<'a>(nodes: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let hosts: Vec<String> = nodes
        .into_iter()
        .map(|n| format!("127.0.0.1:{}", n.port()))
        .collect();
    format!("redis+cluster://{}", hosts.join(","))
}
