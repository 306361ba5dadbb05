//! The servers of a round: a primary, what takes over from it, and the link between them.

use std::path::PathBuf;
use std::time::Duration;

use syncguard::{Backend, Call, ClientOptions, PostgresBackend};

use crate::servers::postgres::{Server, wait_for};
use crate::servers::proxy::{Address, Mode, Proxy};
use crate::servers::redis::RedisServer;
use crate::servers::topologies::{Sentinel, cluster, cluster_url, eventually, field, sentinel_url};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sentinel,
    SentinelMinReplicas,
    Cluster,
    PostgresAsync,
    PostgresSync,
}

impl Kind {
    pub const ALL: [Self; 5] = [
        Self::Sentinel,
        Self::SentinelMinReplicas,
        Self::Cluster,
        Self::PostgresAsync,
        Self::PostgresSync,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sentinel => "sentinel",
            Self::SentinelMinReplicas => "sentinel-min-replicas",
            Self::Cluster => "cluster",
            Self::PostgresAsync => "postgres-async",
            Self::PostgresSync => "postgres-sync",
        }
    }

    /// For the page.
    pub fn text(self) -> &'static str {
        match self {
            Self::Sentinel => "Redis with Sentinel",
            Self::SentinelMinReplicas => "the same with `min-replicas-to-write 1`",
            Self::Cluster => "Redis Cluster",
            Self::PostgresAsync => "Postgres, asynchronous standby",
            Self::PostgresSync => "Postgres, synchronous standby, `remote_apply`",
        }
    }

    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        let names = Self::ALL.map(Self::name).join(", ");
        found.ok_or(format!("there is no drill {name:?}; there is {names}"))
    }

    /// Whether what it acknowledged must survive every failover.
    pub fn loses_nothing(self) -> bool {
        self == Self::PostgresSync
    }
}

/// What becomes of the link to the replica before the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    AsItIs,
    Silent,
}

impl Link {
    pub fn name(self) -> &'static str {
        match self {
            Self::AsItIs => "as-it-is",
            Self::Silent => "silent",
        }
    }

    pub fn parse(name: &str) -> Result<Self, String> {
        let found = [Self::AsItIs, Self::Silent].into_iter();
        let found = found.clone().find(|link| link.name() == name);
        found.ok_or(format!("--link is as-it-is or silent, not {name:?}"))
    }
}

pub trait Topology {
    fn url(&self) -> String;

    fn options(&self) -> ClientOptions {
        let short = Duration::from_secs(1);
        ClientOptions::new()
            .operation_timeout(short)
            .connect_timeout(short)
    }

    /// What stands before the keys of a lock in Redis.
    fn prefix(&self) -> &'static str {
        "syncguard"
    }

    /// The sockets of the Redis servers that take writes, now or after the failover; none for another store.
    fn sockets(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// From now on a primary that is gone is given up soon. Not before: on a busy machine it would be given up alive.
    fn hasten_failover(&self) {}

    /// What the primary writes reaches no replica any more.
    fn silence(&self);

    /// SIGKILL, and what is on its way to a replica is gone with it.
    fn kill_primary(&mut self);

    /// Makes the standby a primary, where nothing else does.
    fn promote(&self) {}
}

/// Starts the servers on the calling thread: they end with it.
pub fn start(kind: Kind, link: Link) -> Box<dyn Topology> {
    match kind {
        Kind::Sentinel => Box::new(Sentinels::start(link, 1, &[])),
        // One more replica: the new primary needs one too before it takes writes.
        Kind::SentinelMinReplicas => {
            let settings = [
                "--min-replicas-to-write",
                "1",
                "--min-replicas-max-lag",
                "1",
            ];
            Box::new(Sentinels::start(link, 2, &settings))
        }
        Kind::Cluster => Box::new(Cluster::start()),
        Kind::PostgresAsync => Box::new(Standby::start(link, false)),
        Kind::PostgresSync => Box::new(Standby::start(link, true)),
    }
}

const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
/// How long a server may be silent before it is given up, in milliseconds.
const GIVE_UP_AFTER: &str = "1000";

struct Sentinels {
    // Before the proxies: a server that is there no more needs no link.
    primary: RedisServer,
    replicas: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
    links: Vec<Proxy>,
}

impl Sentinels {
    fn start(link: Link, replicas: usize, settings: &[&str]) -> Self {
        let primary = RedisServer::start_tcp(&[&DURABLE, settings].concat());
        let mut links = Vec::new();
        let replicas: Vec<RedisServer> = (0..replicas)
            .map(|_| {
                let port = match link {
                    Link::AsItIs => primary.port(),
                    Link::Silent => {
                        links.push(Proxy::tcp(Address::port(primary.port())));
                        links[links.len() - 1].port()
                    }
                };
                let port = port.to_string();
                let follow = ["--replicaof", "127.0.0.1", &port];
                RedisServer::start_tcp(&[&DURABLE, settings, &follow].concat())
            })
            .collect();
        // A sentinel looks for replicas when it starts, and then only every ten seconds.
        eventually("replication", || {
            let info = primary.cli(&["INFO", "replication"]).text();
            info.matches("state=online").count() == replicas.len()
        });
        // A sentinel that sees a replica follow another address than that of the primary corrects that after this time.
        let lines =
            "sentinel down-after-milliseconds main 600000\nsentinel failover-timeout main 30000";
        let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::start(&primary, lines)).collect();
        let count = replicas.len().to_string();
        eventually("sentinels that know each other", || {
            sentinels
                .iter()
                .all(|s| s.knows("num-other-sentinels") == "2" && s.knows("num-slaves") == count)
        });
        Self {
            primary,
            replicas,
            sentinels,
            links,
        }
    }
}

impl Topology for Sentinels {
    fn url(&self) -> String {
        sentinel_url(&self.sentinels, "main")
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let replicas = self.replicas.iter();
        let all = std::iter::once(&self.primary).chain(replicas);
        all.map(RedisServer::socket).collect()
    }

    fn hasten_failover(&self) {
        let command = [
            "SENTINEL",
            "SET",
            "main",
            "down-after-milliseconds",
            GIVE_UP_AFTER,
        ];
        for sentinel in &self.sentinels {
            sentinel.cli(&command);
        }
    }

    fn silence(&self) {
        for link in &self.links {
            link.set(Mode::Swallow);
        }
    }

    fn kill_primary(&mut self) {
        self.primary.kill();
        self.links.clear();
    }
}

struct Cluster {
    nodes: Vec<RedisServer>,
}

impl Cluster {
    fn start() -> Self {
        Self { nodes: cluster(1) }
    }
}

impl Topology for Cluster {
    fn url(&self) -> String {
        cluster_url(&self.nodes)
    }

    fn sockets(&self) -> Vec<PathBuf> {
        self.nodes.iter().map(RedisServer::socket).collect()
    }

    fn options(&self) -> ClientOptions {
        let short = Duration::from_secs(1);
        ClientOptions::new()
            .operation_timeout(short)
            .connect_timeout(short)
            .key_prefix(self.prefix())
    }

    fn prefix(&self) -> &'static str {
        "{app}"
    }

    fn hasten_failover(&self) {
        for node in &self.nodes {
            node.cli(&["CONFIG", "SET", "cluster-node-timeout", GIVE_UP_AFTER]);
        }
    }

    /// No proxy fits in between: nodes tell each other where they are. The link is cut, and the replica logs in with a wrong password.
    fn silence(&self) {
        let replica = &self.nodes[3];
        replica.cli(&["CONFIG", "SET", "masterauth", "wrong"]);
        replica.cli(&["CONFIG", "SET", "masteruser", "stranger"]);
        self.nodes[1].cli(&["CLIENT", "KILL", "TYPE", "replica"]);
        eventually("a link that is down", || {
            let info = replica.cli(&["INFO", "replication"]).text();
            field(&info, "master_link_status") == "down"
        });
    }

    fn kill_primary(&mut self) {
        self.nodes[1].kill();
    }
}

struct Standby {
    primary: Server,
    standby: Server,
    link: Option<Proxy>,
}

impl Standby {
    fn start(link: Link, synchronous: bool) -> Self {
        let primary = Server::start(&["wal_level=replica", "max_wal_senders=5"]);
        PostgresBackend::open(&primary.url(), &ClientOptions::new())
            .and_then(|store| store.setup_schema(&Call::new()))
            .expect("the tables");
        let standby = primary.standby();
        let link = (link == Link::Silent).then(|| Proxy::tcp(Address::port(primary.port)));
        if let Some(link) = &link {
            standby.sql(&format!(
                "ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port={} user=postgres'",
                link.port()
            ));
            standby.sql("SELECT pg_reload_conf()");
        }
        wait_for("replication", || {
            let through = link.as_ref().is_none_or(|link| link.open() == 1);
            let streams =
                primary.sql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'");
            (through && streams == "1").then_some(())
        });
        if synchronous {
            primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
            primary.sql("ALTER SYSTEM SET synchronous_commit = 'remote_apply'");
            primary.sql("SELECT pg_reload_conf()");
            wait_for("a synchronous standby", || {
                let state = primary.sql("SELECT sync_state FROM pg_stat_replication");
                let level = primary.sql("SHOW synchronous_commit");
                (state == "sync" && level == "remote_apply").then_some(())
            });
        }
        Self {
            primary,
            standby,
            link,
        }
    }
}

impl Topology for Standby {
    fn url(&self) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?sslmode=disable&target_session_attrs=read-write",
            self.primary.port, self.standby.port
        )
    }

    fn silence(&self) {
        if let Some(link) = &self.link {
            link.set(Mode::Swallow);
        }
    }

    fn kill_primary(&mut self) {
        self.primary.kill();
        self.link = None;
    }

    fn promote(&self) {
        assert_eq!(self.standby.sql("SELECT pg_promote()"), "t");
    }
}
