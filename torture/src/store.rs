//! The store that the workers use, the ways to it, and what can be done to it.

#[allow(dead_code)]
#[path = "../../tests/support/common/ports.rs"]
mod ports;
#[allow(dead_code)]
#[path = "../../tests/support/common/postgres.rs"]
mod postgres;
#[allow(dead_code)]
#[path = "../../tests/support/common/proxy.rs"]
mod proxy;
#[allow(dead_code)]
#[path = "../../tests/support/common/redis.rs"]
mod redis;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postgres::{Bouncer, Server};
use proxy::{Address, Mode, Proxy};
use redis::RedisServer;

use crate::clock;
use crate::plan::{Fault, Step};

/// The password in every URL. No output may have it.
pub const SECRET: &str = "canary-secret";

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

    /// How long the store keeps a lock after its lease, in nanoseconds.
    pub fn tolerance(self) -> i64 {
        match self {
            Self::Redis => 0,
            Self::Postgres | Self::Sqlite => 1_000 * clock::MS,
        }
    }
}

/// What is between a worker and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nothing.
    Direct,
    /// The proxy.
    Proxied,
    /// PgBouncer.
    Pooled,
}

enum Servers {
    Redis(Mutex<RedisServer>),
    Postgres(Mutex<Server>, Mutex<Bouncer>),
    /// The URL.
    Sqlite(String),
}

pub struct Store {
    pub kind: Kind,
    servers: Servers,
    proxy: Option<Proxy>,
    /// What stands behind every URL: nothing, or where fences come from.
    option: &'static str,
}

/// Whether the fences of all workers come from the store's clock: `make torture FENCES=clock`.
pub fn by_clock() -> bool {
    std::env::var("SYNCGUARD_TORTURE_FENCES").is_ok_and(|value| value == "clock")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Starts the servers, on the calling thread: they end with it. `durable` is whether what was acknowledged survives a crash.
    pub fn start(kind: Kind, dir: &Path, durable: bool) -> Self {
        let (servers, port) = match kind {
            Kind::Redis => {
                let password = format!(">{SECRET}");
                let mut args = vec!["--user", "app", "on", &password, "~*", "&*", "+@all"];
                if durable {
                    args.extend(["--appendonly", "yes", "--appendfsync", "always"]);
                }
                let server = RedisServer::start_tcp(&args);
                let port = server.port();
                (Servers::Redis(Mutex::new(server)), Some(port))
            }
            Kind::Postgres => {
                let server = Server::start(&["max_connections=200"]);
                let port = server.port;
                let bouncer = Bouncer::start(&server, 20);
                let servers = Servers::Postgres(Mutex::new(server), Mutex::new(bouncer));
                (servers, Some(port))
            }
            Kind::Sqlite => {
                let url = format!("sqlite:{}", dir.join("locks.db").display());
                (Servers::Sqlite(url), None)
            }
        };
        Self {
            kind,
            servers,
            proxy: port.map(|port| Proxy::tcp(Address::port(port))),
            option: match by_clock() {
                true => "fences=clock",
                false => "fences=counter",
            },
        }
    }

    fn url_at(&self, port: u16) -> String {
        let url = self.plain_url_at(port);
        let joined = if url.contains('?') { '&' } else { '?' };
        format!("{url}{joined}{}", self.option)
    }

    fn plain_url_at(&self, port: u16) -> String {
        match &self.servers {
            Servers::Redis(_) => format!("redis://app:{SECRET}@127.0.0.1:{port}"),
            Servers::Postgres(..) => {
                format!("postgres://postgres:{SECRET}@127.0.0.1:{port}/postgres?sslmode=disable")
            }
            Servers::Sqlite(url) => url.clone(),
        }
    }

    /// With nothing in between.
    pub fn direct_url(&self) -> String {
        let port = match &self.servers {
            Servers::Redis(server) => lock(server).port(),
            Servers::Postgres(server, _) => lock(server).port,
            Servers::Sqlite(_) => 0,
        };
        self.url_at(port)
    }

    /// The way of a worker that is started for the `start`th time in its slot, from 0. Every language has the proxy in between; on
    /// Postgres the workers in C and Go take turns between the proxy and PgBouncer, and one in Rust has always PgBouncer.
    pub fn way(&self, slot: usize, start: usize) -> Way {
        let pools = self.kind == Kind::Postgres;
        match slot {
            _ if self.proxy.is_none() => Way::Direct,
            1 => Way::Proxied,
            2 | 3 if pools && (slot + start) % 2 == 1 => Way::Pooled,
            2 | 3 => Way::Proxied,
            4 if pools => Way::Pooled,
            _ => Way::Direct,
        }
    }

    pub fn url(&self, way: Way) -> String {
        match (&self.servers, &self.proxy, way) {
            (Servers::Postgres(_, bouncer), _, Way::Pooled) => self.url_at(lock(bouncer).port),
            (_, Some(proxy), Way::Proxied) => self.url_at(proxy.port()),
            _ => self.direct_url(),
        }
    }

    /// Does what the step says, and undoes it after its time. Answers from when to when it was in full effect.
    pub fn suffer(&self, step: Step, dir: &Path) -> (i64, i64) {
        match step.fault {
            Fault::ServerKilled | Fault::ServerStopped => self.suffer_in_server(step),
            Fault::FileLocked => self.with_file_locked(step),
            Fault::PoolerKilled => {
                let Servers::Postgres(_, bouncer) = &self.servers else {
                    return (0, 0);
                };
                let mut bouncer = lock(bouncer);
                bouncer.kill();
                let span = lasting(step.ms);
                bouncer.start_again();
                span
            }
            Fault::ScriptsFlushed | Fault::SessionsEnded | Fault::QueriesCancelled => {
                self.command(step.fault);
                lasting(0)
            }
            Fault::ClockStepped => {
                step_clock(dir, (step.ms as i64 - 100) * 3600);
                lasting(0)
            }
            _ => self.suffer_on_the_way(step),
        }
    }

    fn suffer_in_server(&self, step: Step) -> (i64, i64) {
        let kills = step.fault == Fault::ServerKilled;
        match &self.servers {
            Servers::Redis(server) => {
                let mut server = lock(server);
                if kills {
                    server.kill();
                    let span = lasting(step.ms);
                    server.start_again();
                    return span;
                }
                let _paused = server.pause();
                lasting(step.ms)
            }
            Servers::Postgres(server, _) => {
                let server = lock(server);
                if kills {
                    server.kill();
                    let span = lasting(step.ms);
                    server.restart();
                    return span;
                }
                let _frozen = server.freeze();
                lasting(step.ms)
            }
            Servers::Sqlite(_) => (0, 0),
        }
    }

    fn with_file_locked(&self, step: Step) -> (i64, i64) {
        let Servers::Sqlite(url) = &self.servers else {
            return (0, 0);
        };
        let path = url.trim_start_matches("sqlite:");
        let Ok(file) = rusqlite::Connection::open(path) else {
            return (0, 0);
        };
        let _ = file.busy_timeout(Duration::from_secs(5));
        if file.execute_batch("BEGIN IMMEDIATE").is_err() {
            return (0, 0);
        }
        let span = lasting(step.ms);
        let _ = file.execute_batch("ROLLBACK");
        span
    }

    fn command(&self, fault: Fault) {
        match &self.servers {
            Servers::Redis(server) => {
                let command: &[&str] = match fault {
                    Fault::ScriptsFlushed => &["SCRIPT", "FLUSH"],
                    _ => &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
                };
                let _ = lock(server).try_cli(command);
            }
            Servers::Postgres(server, _) => {
                let function = match fault {
                    Fault::SessionsEnded => "pg_terminate_backend",
                    _ => "pg_cancel_backend",
                };
                lock(server).sql(&format!(
                    "SELECT {function}(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> \
                     pg_backend_pid()"
                ));
            }
            Servers::Sqlite(_) => {}
        }
    }

    fn suffer_on_the_way(&self, step: Step) -> (i64, i64) {
        let Some(proxy) = &self.proxy else {
            return (0, 0);
        };
        let mode = match step.fault {
            Fault::HalfOpen => Mode::Swallow,
            Fault::AnswersCut => Mode::CutReply,
            Fault::AnswersTorn => Mode::TearReply,
            Fault::AnswersLost => Mode::LoseReply,
            Fault::Trickle => Mode::Trickle(Duration::from_millis(20)),
            Fault::Delayed => Mode::Hold,
            Fault::Refused => Mode::Close,
            Fault::RequestsDelayed => {
                proxy.hold_back();
                let span = lasting(step.ms);
                proxy.let_go();
                return span;
            }
            _ => {
                proxy.reset_all();
                return lasting(0);
            }
        };
        proxy.set(mode);
        let span = lasting(step.ms);
        proxy.set(Mode::Pass);
        if matches!(mode, Mode::Swallow | Mode::LoseReply) {
            // What was dropped is missing for good: a connection that goes on would be out of step.
            proxy.close_all();
        }
        span
    }
}

/// Waits, and answers from when to when.
fn lasting(ms: u64) -> (i64, i64) {
    let from = clock::now();
    clock::sleep_ms(ms);
    (from, clock::now())
}

/// The file from which the workers' wall clock takes its offset.
pub fn step_clock(dir: &Path, seconds: i64) {
    let mut bytes = seconds.to_ne_bytes().to_vec();
    bytes.extend(0_i64.to_ne_bytes());
    // In place: the workers have mapped it.
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join("clock"))
        .expect("the file of the clock");
    file.write_all_at(&bytes, 0).expect("the clock is set");
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A connection through the proxy, with its two ends.
    fn through(proxy: &Proxy, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).expect("the proxy");
        let (mut server, _) = listener.accept().expect("a connection");
        client.write_all(b"question").expect("sent");
        server.read_exact(&mut [0; 8]).expect("it came");
        for end in [&client, &server] {
            let limit = Some(Duration::from_secs(20));
            end.set_read_timeout(limit).expect("a limit");
        }
        (client, server)
    }

    #[test]
    fn a_reset_is_an_error_and_a_torn_answer_ends_in_its_middle() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let proxy = Proxy::tcp(Address::port(port));

        let (mut client, mut server) = through(&proxy, &listener);
        proxy.reset_all();
        for end in [&mut client, &mut server] {
            let error = end.read(&mut [0; 8]).expect_err("a reset");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }

        let (mut client, mut server) = through(&proxy, &listener);
        proxy.set(Mode::TearReply);
        server.write_all(b"answer").expect("sent");
        let mut got = Vec::new();
        client.read_to_end(&mut got).expect("an end");
        assert_eq!(got, b"ans");

        proxy.set(Mode::Pass);
        let (mut client, mut server) = through(&proxy, &listener);
        proxy.set(Mode::LoseReply);
        server.write_all(b"answer").expect("sent");
        client.write_all(b"question").expect("sent");
        server.read_exact(&mut [0; 8]).expect("it came");
        let limit = Some(Duration::from_millis(50));
        client.set_read_timeout(limit).expect("a limit");
        let error = client.read(&mut [0; 8]).expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}
