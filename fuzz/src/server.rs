//! A server that sends what an input says: a piece of it after each request, and then the end of the stream. It never lets a client wait.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Serves any number of connections, one after the other, each with all pieces of the script that is set.
pub(crate) struct Server {
    script: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Server {
    /// A server on a unix socket. `count` says how many commands and replies there are; a server that sends all at the first
    /// request counts none.
    pub(crate) fn on_socket(path: &Path, count: Count) -> Self {
        let listener = UnixListener::bind(path).expect("a socket can be bound");
        Self::start(move |script| {
            let Ok((mut peer, _)) = listener.accept() else {
                return;
            };
            talk(&mut peer, &script(), count);
            let _ = peer.shutdown(Shutdown::Write);
            // Until the client has hung up: a reset would take the last bytes away from it.
            while peer.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {}
        })
    }

    /// A server that hangs up at once, and its port.
    pub(crate) fn that_hangs_up() -> (Self, u16) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let server = Self::start(move |_| drop(listener.accept()));
        (server, port)
    }

    fn start(mut serve: impl FnMut(&dyn Fn() -> Vec<Vec<u8>>) + Send + 'static) -> Self {
        let script = Arc::new(Mutex::new(Vec::new()));
        let shared: Arc<Mutex<Vec<Vec<u8>>>> = Arc::clone(&script);
        let current = move || {
            shared
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone()
        };
        thread::Builder::new()
            .name("fuzz server".to_owned())
            .spawn(move || {
                loop {
                    serve(&current);
                }
            })
            .expect("a thread can be started");
        Self { script }
    }

    /// What connections get from now on.
    pub(crate) fn set(&self, script: Vec<Vec<u8>>) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
    }
}

/// How many replies are complete in what a server sends, or commands in what a client sends.
type Count = fn(&[u8]) -> usize;

fn talk(peer: &mut (impl Read + Write), script: &[Vec<u8>], count: Count) {
    let mut request = [0; 16 * 1024];
    for piece in script {
        let asked = match peer.read(&mut request) {
            Ok(n) if n > 0 => count(&request[..n]),
            _ => return,
        };
        // A client that lacks an answer asks nothing more: to wait for it would be to wait for its time limit.
        if peer.write_all(piece).is_err() || count(piece) < asked {
            return;
        }
    }
}

/// Cuts the bytes behind the head of an input into pieces: two bytes of length, and so many bytes or the rest.
pub(crate) fn pieces(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (piece, after) = rest.split_at(length);
        pieces.push(piece.to_vec());
        data = after;
        if pieces.len() == 16 {
            break;
        }
    }
    pieces
}

/// The opposite of [`pieces`].
pub(crate) fn joined(head: &[u8], pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut data = head.to_vec();
    for piece in pieces {
        let length = u16::try_from(piece.len()).expect("a short piece");
        data.extend_from_slice(&length.to_be_bytes());
        data.extend_from_slice(piece);
    }
    data
}
