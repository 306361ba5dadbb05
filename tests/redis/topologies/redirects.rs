//! Tests nodes of a cluster that redirect to each other without end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::support::verbs::{self, key};
use syncguard::{Backend, Call, ErrorCode, RedisBackend};

/// A node that greets, and sends every request to itself.
struct SelfRedirectingNode {
    port: u16,
    visits: Arc<AtomicU64>,
}

impl SelfRedirectingNode {
    /// `redirect` is the answer to all requests, with `$port` for its own.
    fn start(redirect: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let answer = redirect.replace("$port", &port.to_string());
        let visits = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&visits);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, SeqCst);
                let answer = answer.clone();
                std::thread::spawn(move || sent_around(stream, &answer));
            }
        });
        Self { port, visits }
    }
}

fn sent_around(mut stream: TcpStream, answer: &str) -> std::io::Result<()> {
    let (mut buffer, mut heard) = ([0; 4096], Vec::new());
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => heard.extend_from_slice(&buffer[..n]),
        }
        let text = String::from_utf8_lossy(&heard);
        if text.contains("SETNAME") && text.ends_with("syncguard\r\n") {
            // Three commands: whether it is a node, its time, and our name.
            stream.write_all(b"+OK\r\n*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n+OK\r\n")?;
        } else if text.contains("EVALSHA") && text.ends_with("\r\n") {
            // Announced by ASKING after an ASK.
            if text.contains("ASKING") {
                stream.write_all(b"+OK\r\n")?;
            }
            stream.write_all(answer.as_bytes())?;
        } else {
            continue;
        }
        heard.clear();
    }
}

/// Nodes that send each other's clients around are left after a few steps, and not asked until the time is up.
#[test]
fn a_cluster_that_sends_us_around_is_left() {
    for redirect in [
        "-MOVED 6805 127.0.0.1:$port\r\n",
        "-ASK 6805 127.0.0.1:$port\r\n",
    ] {
        let node = SelfRedirectingNode::start(redirect);
        let url = format!("redis+cluster://127.0.0.1:{}", node.port);
        let options = verbs::patient().key_prefix("{app}");
        let redis = RedisBackend::open(&url, &options).expect("a good URL");
        let error = redis
            .is_locked(&key("k"), &Call::new())
            .expect_err("no owner");
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error}");
        assert!(!error.may_have_applied());
        let visits = node.visits.load(SeqCst);
        assert!((2..=10).contains(&visits), "{visits} visits");
    }
}
