//! The floor: what the library says to the server, said again without the library.
//!
//! A relay between the library and the server writes down one steady cycle byte for byte. The floor sends these bytes on a
//! blocking socket, with one write and one read per call, and puts in another lock id each time.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use syncguard::{
    AcquireOutcome, Backend, Call, ClientOptions, Key, LockId, PostgresBackend, RedisBackend, Ttl,
};

use super::callers::{Caller, ids};
use super::distance::{self, Stream};
use super::protocol::{Protocol, process};
use super::servers::postgres_url;

/// The key that is recorded; another of the same length takes its place.
const KEY: &str = "bench-00000000";

/// One request and the number of answers that end it.
#[derive(Clone, Debug)]
struct Exchange {
    request: Vec<u8>,
    answers: usize,
}

/// One recorded session: how it begins, and one cycle.
pub struct Recording {
    protocol: Protocol,
    id: String,
    /// The Postgres process that was recorded: a session asks whether it talks to the process it was told.
    process: Option<[u8; 4]>,
    setup: Vec<Exchange>,
    acquire: Exchange,
    release: Exchange,
}

impl Recording {
    /// Records the library on a server that listens on `socket`; `port` only gives a Postgres socket its name.
    pub fn make(
        protocol: Protocol,
        socket: &Path,
        port: u16,
        ttl: Duration,
    ) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (relay, url) = match protocol {
            Protocol::Redis => {
                let path = dir.path().join("s");
                let url = format!("redis+unix://{}", path.display());
                (path, url)
            }
            Protocol::Postgres => (
                dir.path().join(format!(".s.PGSQL.{port}")),
                postgres_url(dir.path().display(), port),
            ),
        };
        let listener = UnixListener::bind(&relay).map_err(|e| e.to_string())?;
        let socket = socket.to_owned();
        let writer = std::thread::spawn(move || relay_one(&listener, &socket));
        // A request names the time after which the server refuses it, and this one is sent for as long as the bench runs.
        let options = ClientOptions::new().operation_timeout(Duration::from_secs(24 * 3600));
        let backend: Box<dyn Backend> = match protocol {
            Protocol::Redis => {
                Box::new(RedisBackend::open(&url, &options).map_err(|e| e.to_string())?)
            }
            Protocol::Postgres => {
                Box::new(PostgresBackend::open(&url, &options).map_err(|e| e.to_string())?)
            }
        };
        let id = LockId::random().map_err(|e| e.to_string())?;
        let key = Key::new(KEY).map_err(|e| e.to_string())?;
        let ttl = Ttl::new(ttl).map_err(|e| e.to_string())?;
        // The first cycles connect and load; the last is what every further one looks like.
        for _ in 0..3 {
            match backend.acquire(&key, &id, ttl, &Call::new()) {
                Ok(AcquireOutcome::Acquired(_)) => {}
                other => return Err(format!("recording: {other:?}")),
            }
            let _ = backend
                .release(&id, &Call::new())
                .map_err(|e| e.to_string())?;
        }
        drop(backend);
        let exchanges = writer
            .join()
            .map_err(|_| "the relay died")?
            .map_err(|e| e.to_string())?;
        let process = exchanges.iter().find_map(|(_, reply)| process(reply));
        let mut setup: Vec<Exchange> = exchanges
            .into_iter()
            .map(|(request, reply)| Exchange {
                request,
                answers: protocol.answers(&reply),
            })
            .collect();
        let release = setup.pop().ok_or("nothing was recorded")?;
        let acquire = setup.pop().ok_or("too little was recorded")?;
        Ok(Self {
            protocol,
            id: id.as_str().to_owned(),
            process,
            setup,
            acquire,
            release,
        })
    }

    /// What one acquire of another key and id looks like, for filling a store.
    pub fn acquire_of(&self, number: u64) -> Vec<u8> {
        let key = format!("other-{number:08}");
        let id = format!("{number:022}");
        let request = replaced(&self.acquire.request, KEY.as_bytes(), key.as_bytes());
        replaced(&request, self.id.as_bytes(), id.as_bytes())
    }

    /// The same with another name of the same length in everything that is sent; an error if it is nowhere. A release may name it, or
    /// what was prepared before.
    pub fn with_release(&self, from: &[u8], to: &[u8]) -> Result<Self, String> {
        let mut all = self.setup.iter().chain([&self.release]);
        if from.len() != to.len() || all.all(|e| places(&e.request, from).is_empty()) {
            return Err("what was recorded does not name the release".to_owned());
        }
        let other = |exchange: &Exchange| Exchange {
            request: replaced(&exchange.request, from, to),
            answers: exchange.answers,
        };
        Ok(Self {
            protocol: self.protocol,
            id: self.id.clone(),
            process: self.process,
            setup: self.setup.iter().map(other).collect(),
            acquire: other(&self.acquire),
            release: other(&self.release),
        })
    }

    pub fn open(self: &Arc<Self>, socket: &Path, number: usize) -> Result<Replay, String> {
        let mut replay = Replay {
            recording: Arc::clone(self),
            stream: distance::connect(socket).map_err(|e| e.to_string())?,
            acquire: Patched::default(),
            release: Patched::default(),
            ids: ids()?,
            next: 0,
            input: vec![0; 16 * 1024],
        };
        let key = format!("bench-{number:08}");
        let mut own = None;
        for step in &self.setup {
            let mut request = replaced(&step.request, KEY.as_bytes(), key.as_bytes());
            if let (Some(then), Some(now)) = (self.process, own) {
                let as_int8 = |p: [u8; 4]| [[0; 4], p].concat();
                request = replaced(&request, &as_int8(then), &as_int8(now));
            }
            let n = replay.exchange(&request, step.answers)?;
            if self.process.is_some() {
                own = own.or(process(&replay.input[..n]));
            }
        }
        replay.acquire = Patched::new(&self.acquire.request, &key, &self.id);
        replay.release = Patched::new(&self.release.request, &key, &self.id);
        Ok(replay)
    }
}

/// A request and where in it the lock id stands.
#[derive(Default)]
struct Patched {
    bytes: Vec<u8>,
    ids: Vec<usize>,
}

impl Patched {
    fn new(request: &[u8], key: &str, id: &str) -> Self {
        let bytes = replaced(request, KEY.as_bytes(), key.as_bytes());
        Self {
            ids: places(&bytes, id.as_bytes()),
            bytes,
        }
    }

    fn put(&mut self, id: &str) {
        for at in &self.ids {
            self.bytes[*at..*at + id.len()].copy_from_slice(id.as_bytes());
        }
    }
}

/// Callers without threads on one connection: all their requests go out together, and all their answers are read together. No client
/// gets more out of the server.
pub struct Pipeline {
    replay: Replay,
    callers: Vec<(Patched, Patched)>,
    requests: Vec<u8>,
}

impl Pipeline {
    pub fn open(recording: &Arc<Recording>, socket: &Path, callers: usize) -> Result<Self, String> {
        let patched = |number| {
            let key = format!("bench-{number:08}");
            let of = |exchange: &Exchange| Patched::new(&exchange.request, &key, &recording.id);
            (of(&recording.acquire), of(&recording.release))
        };
        Ok(Self {
            replay: recording.open(socket, 0)?,
            callers: (0..callers).map(patched).collect(),
            requests: Vec::new(),
        })
    }

    /// Sends the request that `pick` names of every caller, and checks every answer.
    fn trip(
        &mut self,
        pick: impl Fn(&(Patched, Patched)) -> &Patched,
        answers: usize,
        good: &[u8],
    ) -> Result<(), String> {
        self.requests.clear();
        for caller in &self.callers {
            self.requests.extend_from_slice(&pick(caller).bytes);
        }
        let answers = answers * self.callers.len();
        let n = self.replay.exchange(&self.requests, answers)?;
        let all = &self.replay.input[..n];
        let protocol = self.replay.recording.protocol;
        if places(all, good).len() != self.callers.len() {
            return Err("the floor with a pipeline was refused".to_owned());
        }
        protocol.check(all, good)
    }
}

impl Caller for Pipeline {
    fn acquire(&mut self) -> Result<bool, String> {
        let replay = &mut self.replay;
        for (acquire, release) in &mut self.callers {
            replay.next = (replay.next + 1) % replay.ids.len();
            let id = replay.ids[replay.next];
            acquire.put(id.as_str());
            release.put(id.as_str());
        }
        let answers = replay.recording.acquire.answers;
        self.trip(|caller| &caller.0, answers, b"*4\r\n:1\r\n")?;
        Ok(true)
    }

    fn release(&mut self) -> Result<(), String> {
        let answers = self.replay.recording.release.answers;
        self.trip(|caller| &caller.1, answers, b":1\r\n")
    }

    fn locks(&self) -> usize {
        self.callers.len()
    }
}

/// A caller that has no library.
pub struct Replay {
    recording: Arc<Recording>,
    stream: Box<dyn Stream>,
    acquire: Patched,
    release: Patched,
    ids: Vec<LockId>,
    next: usize,
    input: Vec<u8>,
}

impl Replay {
    fn exchange(&mut self, request: &[u8], answers: usize) -> Result<usize, String> {
        self.stream.write_all(request).map_err(|e| e.to_string())?;
        self.answer(answers)
    }

    fn answer(&mut self, answers: usize) -> Result<usize, String> {
        let mut filled = 0;
        loop {
            match self.stream.read(&mut self.input[filled..]) {
                Ok(0) | Err(_) => return Err("the server hung up on the floor".to_owned()),
                Ok(n) => filled += n,
            }
            let protocol = self.recording.protocol;
            if protocol.answers(&self.input[..filled]) >= answers {
                return Ok(filled);
            }
            if filled == self.input.len() {
                self.input.resize(filled * 2, 0);
            }
        }
    }
}

impl Caller for Replay {
    fn acquire(&mut self) -> Result<bool, String> {
        self.next = (self.next + 1) % self.ids.len();
        let id = self.ids[self.next];
        self.acquire.put(id.as_str());
        self.release.put(id.as_str());
        self.stream
            .write_all(&self.acquire.bytes)
            .map_err(|e| e.to_string())?;
        let n = self.answer(self.recording.acquire.answers)?;
        self.recording
            .protocol
            .check(&self.input[..n], b"*4\r\n:1\r\n")?;
        Ok(true)
    }

    fn release(&mut self) -> Result<(), String> {
        self.stream
            .write_all(&self.release.bytes)
            .map_err(|e| e.to_string())?;
        let n = self.answer(self.recording.release.answers)?;
        self.recording.protocol.check(&self.input[..n], b":1\r\n")
    }
}

fn places(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    bytes
        .windows(what.len())
        .enumerate()
        .filter_map(|(at, w)| (w == what).then_some(at))
        .collect()
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len(), "lengths stand in the request");
    let mut out = bytes.to_vec();
    for at in places(bytes, from) {
        out[at..at + to.len()].copy_from_slice(to);
    }
    out
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Passes one connection on and writes down which side said what. The library waits for every answer, so turns are clear.
fn relay_one(listener: &UnixListener, server: &Path) -> std::io::Result<Pairs> {
    let (mut client, _) = listener.accept()?;
    let mut server = distance::connect(server)?;
    let mut pairs: Pairs = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    let short = Duration::from_millis(1);
    client.limit_reads(short)?;
    server.limit_reads(short)?;
    loop {
        match client.read(&mut buffer) {
            Ok(0) => return Ok(pairs),
            Ok(n) => {
                server.write_all(&buffer[..n])?;
                match pairs.last_mut() {
                    Some((request, reply)) if reply.is_empty() => request.extend(&buffer[..n]),
                    _ => pairs.push((buffer[..n].to_vec(), Vec::new())),
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        match server.read(&mut buffer) {
            Ok(0) => return Ok(pairs),
            Ok(n) => {
                client.write_all(&buffer[..n])?;
                if let Some((_, reply)) = pairs.last_mut() {
                    reply.extend(&buffer[..n]);
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
}
