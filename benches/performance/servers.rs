//! Servers of the bench's own, each under a process that ends with it: the temp dir, and so the disk, can differ.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[path = "../../tests/support/postgres.rs"]
mod postgres;
#[path = "../../tests/support/redis.rs"]
mod redis;

/// A server and where it listens.
pub struct Served {
    child: Child,
    /// The unix socket, or its directory for Postgres.
    pub socket: PathBuf,
    pub port: u16,
    pub version: String,
}

impl Served {
    pub fn redis() -> Result<Self, String> {
        Self::start("redis", &std::env::temp_dir(), &[])
    }

    pub fn postgres(under: &Path, settings: &[&str]) -> Result<Self, String> {
        Self::start("postgres", under, settings)
    }

    fn start(kind: &str, under: &Path, settings: &[&str]) -> Result<Self, String> {
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
            child,
            socket: word().into(),
            port: word().parse().unwrap_or(0),
            version: word(),
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn redis_url(&self) -> String {
        format!("redis+unix://{}", self.socket.display())
    }

    pub fn postgres_url(&self) -> String {
        format!(
            "postgres://postgres@/postgres?host={}&port={}",
            self.socket.display(),
            self.port
        )
    }

    pub fn postgres_socket(&self) -> PathBuf {
        self.socket.join(format!(".s.PGSQL.{}", self.port))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The end of its input is the end of the server.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
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
            announce(server.path(), server.port, &version);
        }
        other => panic!("no such server: {other}"),
    }
}
