//! A pooler that gives every transaction another session of the server and names a real process of it to its clients: a client that
//! trusts this takes a shared session for its own.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What anything here waits for at the most.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// One session of the server, and what it said at its start.
struct Upstream {
    stream: TcpStream,
    greeting: Vec<u8>,
}

#[derive(Default)]
struct Pool {
    idle: Mutex<VecDeque<Upstream>>,
    returned: Condvar,
}

impl Pool {
    /// The session that has been idle the longest.
    fn take(&self) -> Upstream {
        let mut idle = self.idle.lock().expect("the pool");
        loop {
            if let Some(session) = idle.pop_front() {
                return session;
            }
            let (again, waited) = self
                .returned
                .wait_timeout(idle, WAIT_LIMIT)
                .expect("the pool");
            assert!(!waited.timed_out(), "no session comes back");
            idle = again;
        }
    }

    fn put_first(&self, session: Upstream) {
        self.idle.lock().expect("the pool").push_front(session);
        self.returned.notify_one();
    }

    fn put(&self, session: Upstream) {
        self.idle.lock().expect("the pool").push_back(session);
        self.returned.notify_one();
    }
}

/// The pooler. It ends with the test's process.
pub struct ForwardingPooler {
    pub port: u16,
    pool: Arc<Pool>,
    sessions: usize,
}

fn message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; 5];
    stream.read_exact(&mut message)?;
    let len = u32::from_be_bytes([message[1], message[2], message[3], message[4]]);
    message.resize(len as usize + 1, 0);
    stream.read_exact(&mut message[5..])?;
    Ok(message)
}

/// Reads messages up to one of these kinds.
fn batch(stream: &mut TcpStream, last: &[u8]) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let next = message(stream)?;
        let end = last.contains(&next[0]);
        all.extend(next);
        if end {
            return Ok(all);
        }
    }
}

impl ForwardingPooler {
    /// A pooler with this many sessions of the server on `port`, all of the role `postgres`.
    pub fn start(port: u16, sessions: usize) -> Self {
        let pool = Arc::new(Pool::default());
        for _ in 0..sessions {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server");
            stream.set_nodelay(true).expect("a socket");
            let parameters = b"user\0postgres\0database\0postgres\0client_encoding\0UTF8\0\0";
            let len = u32::try_from(parameters.len() + 8).expect("short");
            let hello = [&len.to_be_bytes()[..], &[0, 3, 0, 0], parameters].concat();
            stream.write_all(&hello).expect("the server");
            let greeting = batch(&mut stream, b"Z").expect("a welcome");
            pool.put(Upstream { stream, greeting });
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let own = listener.local_addr().expect("bound").port();
        let shared = Arc::clone(&pool);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let pool = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let _ = Self::serve(&client, &pool);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self {
            port: own,
            pool,
            sessions,
        }
    }

    pub fn url(&self, more: &str) -> String {
        let port = self.port;
        format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable{more}")
    }

    fn serve(client: &TcpStream, pool: &Pool) -> io::Result<()> {
        let mut client = client.try_clone()?;
        client.set_nodelay(true)?;
        let mut head = [0; 4];
        client.read_exact(&mut head)?;
        let mut rest = vec![0; u32::from_be_bytes(head) as usize - 4];
        client.read_exact(&mut rest)?;
        if rest[..4] != [0, 3, 0, 0] {
            // A request to cancel: no test here needs it.
            return Ok(());
        }
        // The process of the session that serves the first transaction, if no other client comes in between.
        let next = pool.take();
        client.write_all(&next.greeting)?;
        pool.put_first(next);
        loop {
            let first = batch(&mut client, b"SQX")?;
            if first.first() == Some(&b'X') {
                return Ok(());
            }
            let mut session = pool.take();
            let served = Self::transaction(&mut client, &mut session.stream, first);
            pool.put(session);
            served?;
        }
    }

    fn transaction(
        client: &mut TcpStream,
        server: &mut TcpStream,
        first: Vec<u8>,
    ) -> io::Result<()> {
        let mut request = first;
        loop {
            server.write_all(&request)?;
            let answer = batch(server, b"Z")?;
            client.write_all(&answer)?;
            if answer.last() == Some(&b'I') {
                return Ok(());
            }
            request = batch(client, b"SQ")?;
        }
    }

    /// What a query answers on each of the sessions, as text; one column, one row.
    pub fn on_each(&self, sql: &str) -> Vec<String> {
        let mut all: Vec<Upstream> = (0..self.sessions).map(|_| self.pool.take()).collect();
        let mut answers = Vec::new();
        for session in &mut all {
            let len = u32::try_from(sql.len() + 5).expect("short");
            let query = [b"Q", &len.to_be_bytes()[..], sql.as_bytes(), b"\0"].concat();
            session.stream.write_all(&query).expect("the server");
            loop {
                let next = message(&mut session.stream).expect("an answer");
                match next[0] {
                    // A count of columns and the length of the first come before its text.
                    b'D' => answers.push(String::from_utf8_lossy(&next[11..]).into_owned()),
                    b'E' => panic!("{sql}: {}", String::from_utf8_lossy(&next)),
                    b'Z' => break,
                    _ => {}
                }
            }
        }
        all.into_iter().for_each(|session| self.pool.put(session));
        answers
    }
}
