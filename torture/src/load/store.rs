//! A store for the load, and the time in which it is away.

use std::time::Duration;

use syncguard::Client;

use crate::servers::postgres::Server;
use crate::servers::redis::RedisServer;
use crate::usage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis,
    Postgres,
    Sqlite,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Redis, Self::Postgres, Self::Sqlite];

    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
        }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or(format!("{text:?} is no store: redis, postgres or sqlite"))
    }

    /// A connection of Postgres is a process of its own: a thousand clients need a pooler. A file of SQLite has one writer at a
    /// time, and each flushes to the disk.
    pub fn most_clients(self) -> usize {
        match self {
            Self::Redis => usize::MAX,
            Self::Postgres => 200,
            Self::Sqlite => 100,
        }
    }
}

pub enum Store {
    Redis(Box<RedisServer>),
    Postgres(Box<Server>),
    Sqlite(tempfile::TempDir),
}

impl Store {
    /// Starts a server that forgets nothing when it is killed, for so many connections.
    pub fn start(kind: Kind, connections: usize) -> Self {
        match kind {
            Kind::Redis => Self::Redis(Box::new(RedisServer::start(&[
                "--appendonly",
                "yes",
                "--appendfsync",
                "everysec",
            ]))),
            Kind::Postgres => {
                let most = format!("max_connections={connections}");
                let server = Box::new(Server::start(&[&most]));
                let client = Client::open(&server.unix_url()).expect("the server");
                client.setup_schema().expect("the tables");
                Self::Postgres(server)
            }
            Kind::Sqlite => Self::Sqlite(tempfile::tempdir().expect("a folder")),
        }
    }

    pub fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Postgres(server) => server.unix_url(),
            Self::Sqlite(dir) => format!("sqlite:{}", dir.path().join("locks.db").display()),
        }
    }

    pub fn processor_ms(&self) -> u64 {
        match self {
            Self::Redis(server) => usage::processor_ms(server.pid().as_raw()),
            Self::Postgres(server) => usage::processor_ms(server.pid()),
            Self::Sqlite(_) => 0,
        }
    }

    /// Kills the server and starts it again after `time`. SQLite has none: another program has the file for as long.
    pub fn be_away(&mut self, time: Duration) {
        match self {
            Self::Redis(server) => {
                server.kill();
                std::thread::sleep(time);
                server.start_again();
            }
            Self::Postgres(server) => {
                server.kill();
                std::thread::sleep(time);
                server.restart();
            }
            Self::Sqlite(dir) => {
                let path = dir.path().join("locks.db");
                let file = rusqlite::Connection::open(path).expect("the file");
                file.busy_timeout(Duration::from_secs(10)).expect("a limit");
                file.execute_batch("BEGIN IMMEDIATE").expect("the lock");
                std::thread::sleep(time);
                file.execute_batch("ROLLBACK").expect("the end");
            }
        }
    }
}
