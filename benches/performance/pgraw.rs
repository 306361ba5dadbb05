//! A bare Postgres session, for the peers that are SQL alone and for looking at the server.

use std::collections::HashMap;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use syncguard::LockId;

use super::callers::{Caller, ids};
use super::distance::{self, Stream};

pub struct PostgresSession {
    stream: BufReader<Box<dyn Stream>>,
    prepared: HashMap<&'static str, String>,
    out: Vec<u8>,
}

pub type Rows = Vec<Vec<Option<String>>>;

impl PostgresSession {
    pub fn open(socket: &Path) -> Result<Self, String> {
        let stream = distance::connect(socket).map_err(|e| format!("Postgres: {e}"))?;
        let mut session = Self {
            stream: BufReader::with_capacity(16 * 1024, stream),
            prepared: HashMap::new(),
            out: Vec::new(),
        };
        let mut body = 196_608u32.to_be_bytes().to_vec();
        body.extend_from_slice(b"user\0postgres\0database\0postgres\0\0");
        let mut hello = (body.len() as u32 + 4).to_be_bytes().to_vec();
        hello.extend(body);
        session.out = hello;
        session.trip()?;
        Ok(session)
    }

    /// One statement, or several, in the simple protocol: one trip.
    pub fn simple(&mut self, sql: &str) -> Result<Rows, String> {
        message(&mut self.out, b'Q', |b| text(b, sql));
        self.trip().map_err(|e| format!("{sql}: {e}"))
    }

    /// A statement with text parameters, prepared when first used: one trip afterwards.
    pub fn run(&mut self, sql: &'static str, params: &[&str]) -> Result<Rows, String> {
        if !self.prepared.contains_key(sql) {
            let name = format!("s{}", self.prepared.len());
            message(&mut self.out, b'P', |b| {
                text(b, &name);
                text(b, sql);
                b.extend([0, 0]);
            });
            message(&mut self.out, b'S', |_| {});
            self.trip().map_err(|e| format!("{sql}: {e}"))?;
            self.prepared.insert(sql, name);
        }
        let name = &self.prepared[sql];
        message(&mut self.out, b'B', |b| {
            b.push(0);
            text(b, name);
            b.extend([0, 0]);
            b.extend((params.len() as u16).to_be_bytes());
            for param in params {
                b.extend((param.len() as u32).to_be_bytes());
                b.extend_from_slice(param.as_bytes());
            }
            b.extend([0, 0]);
        });
        message(&mut self.out, b'E', |b| b.extend([0, 0, 0, 0, 0]));
        message(&mut self.out, b'S', |_| {});
        self.trip().map_err(|e| format!("{sql}: {e}"))
    }

    fn trip(&mut self) -> Result<Rows, String> {
        let io = |e: std::io::Error| e.to_string();
        self.stream.get_mut().write_all(&self.out).map_err(io)?;
        self.out.clear();
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head).map_err(io)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body).map_err(io)?;
            match head[0] {
                b'D' => rows.push(row(&body)),
                b'E' => refused = Some(String::from_utf8_lossy(&body).replace('\0', " ")),
                b'Z' => return refused.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }
}

fn message(out: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let at = out.len();
    out.extend([0; 4]);
    fill(out);
    let length = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn text(out: &mut Vec<u8>, s: &str) {
    out.extend_from_slice(s.as_bytes());
    out.push(0);
}

fn row(body: &[u8]) -> Vec<Option<String>> {
    let mut rest = &body[2..];
    let mut row = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<4>() {
        match usize::try_from(i32::from_be_bytes(*head)) {
            Ok(n) => {
                row.push(Some(String::from_utf8_lossy(&tail[..n]).into_owned()));
                rest = &tail[n..];
            }
            Err(_) => {
                row.push(None);
                rest = tail;
            }
        }
    }
    row
}

/// `pg_advisory_lock` and `pg_advisory_unlock`: two trips, and the server itself queues those that wait.
pub struct Advisory {
    pub session: PostgresSession,
    pub key: String,
}

impl Caller for Advisory {
    fn acquire(&mut self) -> Result<bool, String> {
        self.session
            .run("SELECT pg_advisory_lock(hashtext($1))", &[&self.key])?;
        Ok(true)
    }

    fn release(&mut self) -> Result<(), String> {
        let rows = self
            .session
            .run("SELECT pg_advisory_unlock(hashtext($1))", &[&self.key])?;
        match &rows[..] {
            [row] if row[0].as_deref() == Some("t") => Ok(()),
            other => Err(format!("unlock: {other:?}")),
        }
    }
}

/// The transaction of the TypeScript library: eight trips to acquire, five to release. On the same tables as ours.
pub struct EightTrips {
    session: PostgresSession,
    key: String,
    fence_key: String,
    ids: Vec<LockId>,
    next: usize,
}

impl EightTrips {
    pub fn new(session: PostgresSession, key: String) -> Result<Self, String> {
        Ok(Self {
            session,
            fence_key: format!("fence:{key}"),
            key,
            ids: ids()?,
            next: 0,
        })
    }
}

const NOW: &str = "SELECT (EXTRACT(EPOCH FROM NOW()) * 1000)::bigint";

impl Caller for EightTrips {
    fn acquire(&mut self) -> Result<bool, String> {
        self.next = (self.next + 1) % self.ids.len();
        let (s, key) = (&mut self.session, &*self.key);
        s.simple("BEGIN")?;
        s.run("SELECT pg_advisory_xact_lock(hashtext($1))", &[key])?;
        let now = s.run(NOW, &[])?.pop().and_then(|mut r| r.pop().flatten());
        let now: i64 = now.and_then(|n| n.parse().ok()).ok_or("no time")?;
        let held = s.run(
            "SELECT lock_id, expires_at_ms FROM syncguard_locks WHERE key = $1 FOR UPDATE",
            &[key],
        )?;
        let expires = held
            .first()
            .and_then(|r| r[1].as_deref()?.parse::<i64>().ok());
        if expires.is_some_and(|at| at > now - 1000) {
            s.simple("ROLLBACK")?;
            return Ok(false);
        }
        s.run(
            "INSERT INTO syncguard_fence_counters (fence_key, fence, key_debug) VALUES ($1, 0, $2) ON CONFLICT (fence_key) DO NOTHING",
            &[&self.fence_key, key],
        )?;
        let fence = s.run(
            "UPDATE syncguard_fence_counters SET fence = fence + 1 WHERE fence_key = $1 RETURNING fence",
            &[&self.fence_key],
        )?;
        let fence: i64 = fence
            .first()
            .and_then(|r| r[0].as_deref()?.parse().ok())
            .ok_or("no fence")?;
        s.run(
            "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (key) DO UPDATE SET lock_id = EXCLUDED.lock_id, \
             expires_at_ms = EXCLUDED.expires_at_ms, acquired_at_ms = EXCLUDED.acquired_at_ms, fence = EXCLUDED.fence, \
             user_key = EXCLUDED.user_key",
            &[
                key,
                self.ids[self.next].as_str(),
                &(now + 30_000).to_string(),
                &now.to_string(),
                &format!("{fence:015}"),
                key,
            ],
        )?;
        s.simple("COMMIT")?;
        Ok(true)
    }

    fn release(&mut self) -> Result<(), String> {
        let (s, id) = (&mut self.session, self.ids[self.next]);
        s.simple("BEGIN")?;
        s.run(NOW, &[])?;
        let found = s.run(
            "SELECT key, expires_at_ms FROM syncguard_locks WHERE lock_id = $1 FOR UPDATE",
            &[id.as_str()],
        )?;
        if found.is_empty() {
            return Err("the eight trips lost their lock".to_owned());
        }
        s.run(
            "DELETE FROM syncguard_locks WHERE lock_id = $1",
            &[id.as_str()],
        )?;
        s.simple("COMMIT")?;
        Ok(())
    }
}
