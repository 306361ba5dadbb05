use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use super::*;

fn limits(timeout: Duration) -> Limits<'static> {
    Limits::enter(std::process::id(), timeout, None).expect("time is left")
}

#[test]
fn a_request_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a client");
        let mut request = [0; 4];
        peer.read_exact(&mut request).expect("a request");
        peer.write_all(&request).expect("sent");
        peer.read(&mut request).expect("the end")
    });
    let limits = limits(Duration::from_secs(30));
    let endpoint = Endpoint::Tcp {
        host: "localhost".to_owned(),
        port,
    };
    let mut socket = Socket::connect(&endpoint, &limits).expect("connected");
    assert!(socket.is_quiet());
    socket.write_all(b"ping", &limits).expect("written");
    let mut reply = [0; 16];
    let mut n = 0;
    while n < 4 {
        n += socket.read(&mut reply[n..], &limits).expect("answered");
    }
    assert_eq!(&reply[..n], b"ping");
    drop(socket);
    assert_eq!(server.join().expect("it ends"), 0);
}
