//! Tests C programs on a server that is no store.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::*;
use crate::support::common::postgres::Server;
use crate::support::common::redis::RedisServer;

/// A server that answers every burst with the same bytes, again and again if told, and never closes.
pub struct Stranger {
    pub port: u16,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Stranger {
    pub fn start(answer: &[u8], endless: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (answer, hears): (Arc<[u8]>, _) = (answer.into(), Arc::clone(&heard));
        // The threads end with the test's process; each holds one socket.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, hears) = (Arc::clone(&answer), Arc::clone(&hears));
                std::thread::spawn(move || serve(stream, &answer, endless, &hears));
            }
        });
        Self { port, heard }
    }

    pub fn heard(&self, text: &str) -> bool {
        let heard = self.heard.lock().expect("not poisoned");
        heard.windows(text.len()).any(|w| w == text.as_bytes())
    }
}

fn serve(mut stream: TcpStream, answer: &[u8], endless: bool, heard: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        heard
            .lock()
            .expect("not poisoned")
            .extend_from_slice(&buffer[..n]);
        loop {
            if stream.write_all(answer).is_err() {
                return;
            }
            if !endless {
                break;
            }
        }
    }
}

const ANY: &str = "internal error|network timeout|service unavailable";

#[track_caller]
fn gets_nowhere(url: &str) {
    let (writes, reads) = (word("writes", ANY), word("reads", ANY));
    probe(
        url,
        &[
            "timeout=150",
            "hides=hunter2",
            "open=ok",
            &word("check", ANY),
            &writes,
            &reads,
        ],
    );
}

#[test]
fn row_37_the_port_of_another_service() {
    let pg = Server::shared();
    let redis = RedisServer::start_tcp(&[]);
    let http = Stranger::start(b"HTTP/1.1 400 Bad Request\r\n\r\n", false);
    for (scheme, tail, ports) in [
        ("redis://bob:hunter2", "", [pg.port, http.port]),
        ("rediss://bob:hunter2", "", [pg.port, redis.port()]),
        (
            "postgres://bob:hunter2",
            "/db?sslmode=disable",
            [redis.port(), http.port],
        ),
        (
            "postgres://bob:hunter2",
            "/db?sslmode=require",
            [redis.port(), http.port],
        ),
    ] {
        for port in ports {
            gets_nowhere(&format!("{scheme}@127.0.0.1:{port}{tail}"));
        }
    }
}

#[test]
fn row_37_no_password_in_clear_where_tls_was_asked_for() {
    for answer in [
        b"-ERR unknown command\r\n".as_slice(),
        b"+OK\r\n",
        b"N",
        b"",
    ] {
        let stranger = Stranger::start(answer, false);
        gets_nowhere(&format!("rediss://bob:hunter2@127.0.0.1:{}", stranger.port));
        for mode in ["require", "verify-full"] {
            gets_nowhere(&format!(
                "postgres://bob:hunter2@127.0.0.1:{}/db?sslmode={mode}",
                stranger.port
            ));
        }
        assert!(!stranger.heard("hunter2") && !stranger.heard("AUTH"));
    }
}

#[test]
fn row_38_a_server_that_is_not_redis() {
    // The answer to the greeting, and then this to the verb.
    let greeted = |answer: &[u8]| [b"+OK\r\n".as_slice(), answer].concat();
    let nested = b"*1\r\n".repeat(1_000_000);
    for (answer, endless) in [
        (Vec::new(), false),
        (b"+".to_vec(), false),
        (b"+xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx".to_vec(), true),
        (greeted(&b"$1000\r\n".repeat(400)), true),
        (b"$2147483648\r\n".to_vec(), false),
        (greeted(b"$2147483648\r\n"), false),
        (nested.clone(), false),
        (greeted(&nested), false),
        (b"+OK\r\n+OK\r\n".to_vec(), false),
        (greeted(b":0\r\n:0\r\n"), false),
        (b"+OK\r\n".to_vec(), false),
        (greeted(b"*2\r\n:1\r\n:1\r\n"), false),
        (b":x\r\n".to_vec(), false),
    ] {
        let stranger = Stranger::start(&answer, endless);
        gets_nowhere(&format!("redis://127.0.0.1:{}", stranger.port));
    }
}

#[test]
fn row_38_a_server_that_is_not_postgres() {
    for (answer, endless) in [
        (b"".as_slice(), false),
        (b"N", false),
        (b"R", false),
        (b"R\0\0\0\x02", false),
        (b"D\x7f\xff\xff\xff", false),
        (b"N\0\0\0\x05\0", true),
    ] {
        let stranger = Stranger::start(answer, endless);
        gets_nowhere(&format!(
            "postgres://bob:hunter2@127.0.0.1:{}/db?sslmode=disable",
            stranger.port
        ));
    }
}

/// A server of ours that was stopped: every call costs the timeout and no more.
#[test]
fn row_38_a_server_that_accepts_and_never_answers() {
    let server = RedisServer::start(&[]);
    let _paused = server.pause();
    gets_nowhere(&server.url());
}
