//! The stores that are measured. Each server runs under a process that ends with the bench: the temp dir, and so the disk, can
//! differ.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use syncguard::{Backend, Call, ClientOptions, PostgresBackend};
use tempfile::TempDir;

use super::pin::{self, Cores};

#[allow(dead_code)]
#[path = "../../tests/support/common/ports.rs"]
mod ports;
#[allow(dead_code)]
#[path = "../../tests/support/common/postgres.rs"]
mod postgres;
#[allow(dead_code)]
#[path = "../../tests/support/common/redis.rs"]
mod redis;

const POSTGRES: [&str; 4] = [
    "fsync=on",
    "max_connections=500",
    "shared_buffers=256MB",
    "max_wal_size=4GB",
];

/// All of them; they end when this is dropped.
pub struct Stores {
    pub redis: Store,
    pub postgres_disk: Store,
    pub postgres_tmpfs: Store,
    pub sqlite_disk: Store,
    pub sqlite_tmpfs: Store,
}

impl Stores {
    pub fn start() -> Result<Self, String> {
        let (disk, tmpfs) = (&*std::env::temp_dir(), Path::new("/dev/shm"));
        Ok(Self {
            redis: Store::redis("Redis", disk)?,
            postgres_disk: Store::postgres("Postgres on disk", disk)?,
            postgres_tmpfs: Store::postgres("Postgres on tmpfs", tmpfs)?,
            sqlite_disk: Store::sqlite("SQLite on disk", disk)?,
            sqlite_tmpfs: Store::sqlite("SQLite on tmpfs", tmpfs)?,
        })
    }
}

/// A store and where it is.
pub struct Store {
    pub name: &'static str,
    pub url: String,
    /// The server's unix socket, or the directory of SQLite's files.
    pub path: PathBuf,
    /// Of a Postgres server, whose socket is named after it.
    pub port: u16,
    pub version: String,
    server: Option<Child>,
    /// Removed with the store.
    _files: Option<TempDir>,
}

impl Store {
    fn redis(name: &'static str, under: &Path) -> Result<Self, String> {
        let mut store = Self::start(name, "redis", under, &[])?;
        store.url = format!("redis+unix://{}", store.path.display());
        Ok(store)
    }

    fn postgres(name: &'static str, under: &Path) -> Result<Self, String> {
        let mut store = Self::start(name, "postgres", under, &POSTGRES)?;
        let folder = store.path.parent().ok_or("a socket in no directory")?;
        store.url = postgres_url(folder.display(), store.port);
        PostgresBackend::open(&store.url, &ClientOptions::new())
            .and_then(|backend| backend.setup_schema(&Call::new()))
            .map_err(|e| e.to_string())?;
        Ok(store)
    }

    fn sqlite(name: &'static str, under: &Path) -> Result<Self, String> {
        let files = tempfile::tempdir_in(under).map_err(|e| e.to_string())?;
        Ok(Self {
            name,
            url: format!("sqlite:{}", files.path().join("locks.db").display()),
            path: files.path().to_owned(),
            port: 0,
            version: rusqlite::version().to_owned(),
            server: None,
            _files: Some(files),
        })
    }

    /// Without its URL, which its kind knows.
    fn start(
        name: &'static str,
        kind: &str,
        under: &Path,
        settings: &[&str],
    ) -> Result<Self, String> {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut child = Command::new(me)
            .args(["serve", kind])
            .args(settings)
            .env("TMPDIR", under)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("no output")?;
        let _ = BufReader::new(output).read_line(&mut line);
        let mut words = line.trim_end().splitn(4, '\t');
        let mut word = || words.next().unwrap_or_default().to_owned();
        if word() != "ready" {
            let _ = child.wait();
            return Err(format!("no {kind} server: see above"));
        }
        Ok(Self {
            name,
            url: String::new(),
            path: word().into(),
            port: word().parse().unwrap_or(0),
            version: word(),
            server: Some(child),
            _files: None,
        })
    }

    /// SQLite has no server.
    pub fn has_server(&self) -> bool {
        self.server.is_some()
    }

    /// Moves the server to its core, with the processes it has by now.
    pub fn pin(&self, cores: &Cores) {
        if let Some(server) = &self.server {
            pin::tree(server.id(), &cores.server());
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            // The end of its input is the end of the server.
            drop(server.stdin.take());
            let _ = server.wait();
        }
    }
}

/// `host` is a name, or the directory of a socket.
pub fn postgres_url(host: impl Display, port: u16) -> String {
    format!("postgres://postgres@/postgres?host={host}&port={port}")
}

/// What a URL names, for callers that connect without the library.
pub enum Target {
    Redis(PathBuf),
    Postgres(PathBuf, u16),
    Sqlite(PathBuf),
}

impl Target {
    pub fn of(url: &str) -> Self {
        if let Some(path) = url.strip_prefix("redis+unix://") {
            let path = path.split('?').next().unwrap_or_default();
            return Self::Redis(path.into());
        }
        if let Some(path) = url.strip_prefix("sqlite:") {
            return Self::Sqlite(path.into());
        }
        let part = |name: &str| {
            let query = url.split_once('?').map_or("", |(_, q)| q);
            query
                .split('&')
                .find_map(|p| p.strip_prefix(name)?.strip_prefix('='))
                .unwrap_or_default()
        };
        let socket = Path::new(part("host")).join(format!(".s.PGSQL.{}", part("port")));
        Self::Postgres(socket, part("port").parse().unwrap_or(0))
    }
}

/// The other side: starts the server, says where it is, and stays until its input ends.
pub fn serve(kind: &str, settings: &[String]) {
    let announce = |socket: &Path, port: u16, version: &str| {
        println!("ready\t{}\t{port}\t{version}", socket.display());
        let _ = std::io::stdout().flush();
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    };
    match kind {
        "redis" => {
            let server = redis::RedisServer::start(&["--maxclients", "20000", "--databases", "16"]);
            let info = server.cli(&["INFO", "server"]).text();
            let version = info
                .lines()
                .find_map(|l| l.strip_prefix("redis_version:"))
                .unwrap_or("?");
            announce(&server.socket(), 0, version.trim());
        }
        "postgres" => {
            let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
            let server = postgres::Server::start(&settings);
            let version = server.sql("SHOW server_version");
            let socket = format!(".s.PGSQL.{}", server.port);
            announce(&server.path().join(socket), server.port, &version);
        }
        other => panic!("no such server: {other}"),
    }
}
