//! All contenders, as processes that answer lines (see worker.rs).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use super::pin::{self, Cores, Place};
use super::servers::Store;

/// No request takes near as long; one that does not answer by then is an error.
const ANSWER_LIMIT: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Floor,
    Us,
    Peer,
}

/// A contender that may be measured.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: &'static str,
    pub role: Role,
    /// What it does not do that we do.
    pub lacks: &'static str,
    pub command: Vec<String>,
    /// What its environment has beside ours.
    pub environment: Vec<(&'static str, String)>,
    /// Whether it can wait for a lock that is taken.
    pub waits: bool,
    /// Whether its way to wait can be tuned.
    pub tunes: bool,
    /// Why it cannot be measured here.
    pub missing: Option<String>,
}

fn own(name: &'static str, role: Role, kind: &str, url: &str, lacks: &'static str) -> Entry {
    let me = std::env::current_exe().unwrap_or_default();
    Entry {
        name,
        role,
        lacks,
        command: ["worker", kind, url].iter().fold(
            vec![me.display().to_string()],
            |mut all, word| {
                all.push((*word).to_owned());
                all
            },
        ),
        environment: Vec::new(),
        waits: matches!(kind, "lock" | "apart" | "advisory"),
        tunes: kind == "lock",
        missing: None,
    }
}

/// A program that `benches/peers/setup` has built.
fn built(
    name: &'static str,
    role: Role,
    program: &[&str],
    target: &str,
    tunes: bool,
    lacks: &'static str,
) -> Entry {
    let folder = peers();
    let command: Vec<String> = program
        .iter()
        .map(|part| part.replace("@", &folder.display().to_string()))
        .chain([target.to_owned()])
        .collect();
    let exists = program
        .iter()
        .zip(&command)
        .filter(|(part, _)| part.starts_with('@'))
        .all(|(_, path)| Path::new(path).exists());
    // What could not be built anew may still lie there from an earlier run.
    let mark = name.split_whitespace().next().unwrap_or(name);
    let why = std::fs::read_to_string(folder.join(format!("missing-{}", mark.to_lowercase())));
    let missing = match why {
        Ok(why) => Some(why.trim().to_owned()),
        Err(_) => (!exists).then(|| "not built; `make bench` builds it".to_owned()),
    };
    // Go counts the cores it may use when it starts, and clients are pinned: a Go program here would have one processor for its
    // goroutines where users have as many as cores, and every call of C would take it from them.
    let environment = if name.contains("Go") {
        vec![("GOMAXPROCS", pin::count().max(2).to_string())]
    } else {
        Vec::new()
    };
    Entry {
        name,
        role,
        lacks,
        command,
        environment,
        waits: true,
        tunes,
        missing,
    }
}

/// Where peers are installed: beside what Cargo builds.
fn peers() -> PathBuf {
    std::env::var_os("BENCH_PEERS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-peers"),
        PathBuf::from,
    )
}

const NOTHING: &str = "–";
/// As `lock()`, with the size of the pool that a client has if nothing is said.
const DEFAULT_POOL: &str = "syncguard lock(), default pool";
pub const C: &str = "C syncguard_lock";
pub const GO: &str = "Go syncguard";

/// What is measured on every store, with the name of its floor.
fn ours(floor: &'static str, url: &str) -> Vec<Entry> {
    vec![
        own(floor, Role::Floor, "floor", url, "no library at all"),
        own(
            "syncguard verbs",
            Role::Us,
            "verbs",
            url,
            "renewal and waiting are the caller's",
        ),
        own("syncguard lock()", Role::Us, "lock", url, NOTHING),
        own(DEFAULT_POOL, Role::Us, "default-pool", url, NOTHING),
    ]
}

fn bindings(url: &str) -> [Entry; 2] {
    [
        built(C, Role::Us, &["@/c/contender"], url, true, NOTHING),
        go(url),
    ]
}

pub fn go(url: &str) -> Entry {
    built(GO, Role::Us, &["@/go/contender"], url, true, NOTHING)
}

pub fn redis(store: &Store) -> Vec<Entry> {
    let socket = &*store.path.display().to_string();
    let url = &*store.url;
    let mut all = ours("floor: same EVALSHA", url);
    all.extend(bindings(url));
    all.extend([
        own(
            "floor with a pipeline",
            Role::Floor,
            "pipeline",
            url,
            "no library, no threads: one connection, and all requests together",
        ),
        own(
            "SET NX and a script, by hand",
            Role::Peer,
            "by-hand",
            url,
            "no fence, no renewal, no waiting, no deadline",
        ),
        built(
            "redis-py Lock",
            Role::Peer,
            &["@/python/bin/python", "@/src/redis_py.py"],
            socket,
            true,
            "no fence, no renewal; polls",
        ),
        built(
            "python-redis-lock",
            Role::Peer,
            &["@/python/bin/python", "@/src/python_redis_lock.py"],
            socket,
            false,
            "no fence; renewal only if asked for",
        ),
        built(
            "redlock (npm)",
            Role::Peer,
            &["node", "@/redlock/contender.js"],
            socket,
            true,
            "no fence, no renewal; polls",
        ),
        built(
            "rslock (Rust)",
            Role::Peer,
            &["@/rslock/release/contender"],
            socket,
            true,
            "no fence, no renewal, a failed release is not reported; polls",
        ),
        built(
            "redsync (Go)",
            Role::Peer,
            &["@/redsync/contender"],
            socket,
            true,
            "no fence, no renewal; polls",
        ),
    ]);
    all
}

pub fn postgres(store: &Store) -> Vec<Entry> {
    let url = &*store.url;
    let mut all = ours("floor: same function calls", url);
    all.extend(bindings(url));
    all.extend([
        own(
            "session advisory lock",
            Role::Peer,
            "advisory",
            url,
            "no fence, no lease: held while the session lives, nothing stored, not through PgBouncer",
        ),
        own(
            "eight-trip transaction",
            Role::Peer,
            "eight-trips",
            url,
            "no waiting, no renewal; the acquire of the TypeScript library",
        ),
    ]);
    all
}

pub fn sqlite(store: &Store) -> Vec<Entry> {
    ours("floor: same statements", &store.url)
}

/// The Go binding where Go has one processor: what a program pinned to one core pays if it says nothing.
pub fn go_alone(entries: &[Entry]) -> Option<Entry> {
    let mut entry = entries.iter().find(|e| e.name == GO)?.clone();
    entry.name = "Go syncguard, GOMAXPROCS=1";
    entry.environment = vec![("GOMAXPROCS", "1".to_owned())];
    Some(entry)
}

/// The same callers with a client each, as programs on several machines have: no caller stands in line with another.
pub fn apart(url: &str) -> Entry {
    own(
        "syncguard lock(), a client each",
        Role::Us,
        "apart",
        url,
        NOTHING,
    )
}

/// A contender that runs.
pub struct Running {
    pub entry: Entry,
    pub version: String,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Running {
    pub fn start(entry: &Entry) -> Result<Self, String> {
        let mut child = Command::new(&entry.command[0])
            .args(&entry.command[1..])
            .envs(entry.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", entry.name))?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = child.stdout.take().ok_or("no output")?;
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let mut running = Self {
            entry: entry.clone(),
            version: String::new(),
            child,
            input,
            lines,
        };
        running.version = running.line("ready")?;
        Ok(running)
    }

    /// Asks, and gives the numbers of the answer, which must be as many as are expected.
    pub fn ask(&mut self, request: &str, expected: usize) -> Result<Vec<f64>, String> {
        let name = self.entry.name;
        writeln!(self.input, "{request}").map_err(|e| format!("{name}: {request}: {e}"))?;
        let answer = self
            .line("ok")
            .map_err(|e| format!("{e} (asked: {request})"))?;
        let numbers: Result<Vec<f64>, _> = answer.split_whitespace().map(str::parse).collect();
        match numbers {
            Ok(numbers) if numbers.len() == expected => Ok(numbers),
            _ => Err(format!(
                "{name}: {request}: not {expected} numbers: {answer}"
            )),
        }
    }

    fn line(&mut self, wanted: &str) -> Result<String, String> {
        let name = self.entry.name;
        match self.lines.recv_timeout(ANSWER_LIMIT) {
            Ok(line) => match line.split_once(' ').unwrap_or((&line, "")) {
                (head, rest) if head == wanted => Ok(rest.to_owned()),
                _ => Err(format!("{name}: {line}")),
            },
            Err(RecvTimeoutError::Timeout) => Err(format!("{name}: no answer")),
            Err(RecvTimeoutError::Disconnected) => Err(format!("{name}: it ended")),
        }
    }

    /// How many connections its process has open. What it talks to the bench by are pipes.
    pub fn connections(&self) -> usize {
        let all = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        let names = all.into_iter().flatten().flatten();
        let names = names.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        names
            .filter(|name| name.to_string_lossy().starts_with("socket:"))
            .count()
    }

    pub fn pin(&self, cores: &Cores, place: Place) {
        pin::tree(self.child.id(), &cores.client(place));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
