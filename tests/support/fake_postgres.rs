//! A server that speaks the start-up of Postgres and may lie at every step of it. It records everything that it receives.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};

/// What a fake server waits for at the most.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
const SALT: &[u8] = b"a salt of sixteen";
const ROUNDS: u32 = 4096;

/// The certificate of a fake server and what it needs to speak TLS.
#[derive(Clone)]
pub struct Identity {
    config: Arc<rustls::ServerConfig>,
    pub certificate: Vec<u8>,
    pub pem: String,
}

impl Identity {
    /// Signed by itself: any impostor can make one.
    pub fn new() -> Self {
        use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
            .expect("a certificate");
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("a key that fits");
        Self {
            config: Arc::new(config),
            certificate: certificate.to_vec(),
            pem: made.cert.pem(),
        }
    }
}

enum PeerStream {
    Plain(TcpStream),
    Tls(Box<rustls::StreamOwned<rustls::ServerConnection, TcpStream>>),
    /// In the midst of a change, or closed.
    Gone,
}

impl Read for PeerStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Tls(stream) => stream.read(into),
            Self::Gone => Ok(0),
        }
    }
}

impl Write for PeerStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Gone => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
            Self::Gone => Ok(()),
        }
    }
}

/// What one client said.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Whether it asked for TLS.
    pub asked_for_tls: bool,
    /// Whether it sent its name and the database's.
    pub introduced: bool,
    /// The kinds of its messages after that, in order.
    pub kinds: String,
    /// Every byte of them.
    pub bytes: Vec<u8>,
    /// The key of a request to cancel, if it was one, and whether it came under TLS.
    pub cancel: Option<(Vec<u8>, bool)>,
}

/// One client, as the server sees it.
pub struct Peer {
    stream: PeerStream,
    pub heard: Heard,
    /// The body of the last message.
    last: Vec<u8>,
}

impl Peer {
    fn new(stream: TcpStream) -> Self {
        let _ = stream.set_read_timeout(Some(WAIT_LIMIT));
        let _ = stream.set_write_timeout(Some(WAIT_LIMIT));
        let _ = stream.set_nodelay(true);
        Self {
            stream: PeerStream::Plain(stream),
            heard: Heard::default(),
            last: Vec::new(),
        }
    }

    /// Reads one of the messages that have no kind. Answers its code.
    fn untyped(&mut self) -> io::Result<u32> {
        let mut head = [0; 8];
        self.stream.read_exact(&mut head)?;
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        self.last = vec![0; (word(0) as usize).saturating_sub(8)];
        let mut rest = std::mem::take(&mut self.last);
        self.stream.read_exact(&mut rest)?;
        self.last = rest;
        Ok(word(4))
    }

    /// Reads the request for TLS.
    pub fn ssl_request(&mut self) -> io::Result<()> {
        self.heard.asked_for_tls = self.untyped()? == 80_877_103;
        Ok(())
    }

    /// Agrees to TLS and does its part of it.
    pub fn encrypt(&mut self, identity: &Identity) -> io::Result<()> {
        self.ssl_request()?;
        self.raw(b"S")?;
        let PeerStream::Plain(tcp) = std::mem::replace(&mut self.stream, PeerStream::Gone) else {
            return Err(io::ErrorKind::Other.into());
        };
        let session = rustls::ServerConnection::new(Arc::clone(&identity.config))
            .map_err(io::Error::other)?;
        self.stream = PeerStream::Tls(Box::new(rustls::StreamOwned::new(session, tcp)));
        Ok(())
    }

    /// Reads the client's introduction, or its request to cancel.
    pub fn introduction(&mut self) -> io::Result<()> {
        match self.untyped()? {
            0x0003_0000 => self.heard.introduced = true,
            80_877_102 => {
                let tls = matches!(self.stream, PeerStream::Tls(_));
                self.heard.cancel = Some((self.last.clone(), tls));
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(())
    }

    /// Sends bytes that need not be a message.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    pub fn send(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        self.raw(&message(kind, body))
    }

    /// Sends a request for authentication, or the consent (0).
    pub fn auth(&mut self, code: u32, body: &[u8]) -> io::Result<()> {
        self.send(b'R', &[&code.to_be_bytes(), body].concat())
    }

    /// What follows the consent: a parameter, the key of the session, and that it is ready.
    pub fn welcome(&mut self) -> io::Result<()> {
        self.send(b'S', b"server_version\x0015\0")?;
        self.key_data()?;
        self.ready(b'I')
    }

    pub fn key_data(&mut self) -> io::Result<()> {
        self.send(b'K', &[0, 0, 0, 7, 0, 0, 0, 9])
    }

    pub fn ready(&mut self, status: u8) -> io::Result<()> {
        self.send(b'Z', &[status])
    }

    /// Reads one message of the client. Answers its body.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        self.heard.kinds.push(char::from(head[0]));
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if len > 1 << 20 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; len.saturating_sub(4)];
        self.stream.read_exact(&mut body)?;
        self.heard.bytes.extend_from_slice(&body);
        Ok(body)
    }

    /// Asks for SCRAM and reads the client's first message: its mechanism, its binding header, its nonce.
    pub fn scram_first(&mut self, mechanisms: &[&str]) -> io::Result<Scram> {
        let mut list = Vec::new();
        for name in mechanisms {
            list.extend_from_slice(name.as_bytes());
            list.push(0);
        }
        list.push(0);
        self.auth(10, &list)?;
        let body = self.receive()?;
        let text = String::from_utf8_lossy(&body).into_owned();
        let (mechanism, rest) = text.split_once('\0').unwrap_or_default();
        let first = rest.get(4..).unwrap_or_default();
        let bare = first.find("n=,r=").unwrap_or_default();
        Ok(Scram {
            mechanism: mechanism.to_owned(),
            header: first[..bare].to_owned(),
            bare: first[bare..].to_owned(),
            server_first: String::new(),
        })
    }

    /// The whole of SCRAM, up to its last message.
    pub fn scram(&mut self, mechanisms: &[&str], password: &str) -> io::Result<Scram> {
        let mut scram = self.scram_first(mechanisms)?;
        let first = scram.first(ROUNDS);
        self.auth(11, first.as_bytes())?;
        let answer = self.receive()?;
        let last = scram.last(&answer, password);
        self.auth(12, last.as_bytes())?;
        Ok(scram)
    }

    /// Reads on until the client has hung up or sends a query, which nothing here answers.
    fn drain(&mut self) {
        while self.receive().is_ok() && self.heard.kinds.ends_with('p') {}
        if let PeerStream::Plain(tcp) = &self.stream {
            let _ = tcp.shutdown(Shutdown::Both);
        }
        self.stream = PeerStream::Gone;
    }
}

/// A message with its kind and length.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 4).expect("a short message");
    [&[kind], &len.to_be_bytes()[..], body].concat()
}

/// One SCRAM exchange.
pub struct Scram {
    pub mechanism: String,
    /// What the client says about the binding: `n,,`, `y,,` or `p=…,,`.
    pub header: String,
    bare: String,
    server_first: String,
}

impl Scram {
    /// The client's nonce.
    pub fn nonce(&self) -> &str {
        self.bare.strip_prefix("n=,r=").unwrap_or_default()
    }

    /// The honest first message of a server.
    pub fn first(&mut self, rounds: u32) -> String {
        self.first_of(&format!("{}server", self.nonce()), rounds)
    }

    pub fn first_of(&mut self, nonce: &str, rounds: u32) -> String {
        self.server_first = format!("r={nonce},s={},i={rounds}", BASE64.encode(SALT));
        self.server_first.clone()
    }

    /// The honest last message of a server that knows the password.
    pub fn last(&self, client_final: &[u8], password: &str) -> String {
        let text = String::from_utf8_lossy(client_final);
        let without_proof = text.rsplit_once(",p=").map_or("", |(head, _)| head);
        let everything = format!("{},{},{without_proof}", self.bare, self.server_first);
        let salted = salted(password.as_bytes(), SALT, ROUNDS);
        let key = hmac(&salted, b"Server Key");
        format!("v={}", BASE64.encode(hmac(&key, everything.as_bytes())))
    }

    /// What the client bound its proof to.
    pub fn binding(client_final: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(client_final);
        let coded = text.strip_prefix("c=").and_then(|t| t.split(',').next());
        BASE64.decode(coded.unwrap_or_default()).unwrap_or_default()
    }
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0u8; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |byte: u8| block.map(|b| b ^ byte);
    let inner = Sha256::digest([&pad(0x36)[..], text].concat());
    Sha256::digest([&pad(0x5c)[..], &inner[..]].concat()).into()
}

fn salted(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 32] {
    let mut last = hmac(password, &[salt, &[0, 0, 0, 1]].concat());
    let mut sum = last;
    for _ in 1..rounds {
        last = hmac(password, &last);
        sum.iter_mut().zip(last).for_each(|(s, l)| *s ^= l);
    }
    sum
}

/// How a server deals with one client.
pub type Play = Box<dyn FnOnce(&mut Peer) -> io::Result<()> + Send>;

/// Listens, gives one client after the other to the next of `plays`, and then reads until it has hung up. What each said comes
/// out of the receiver.
pub fn serve(plays: Vec<Play>) -> (u16, Receiver<Heard>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        for play in plays {
            let Ok((stream, _)) = listener.accept() else {
                return;
            };
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut peer = Peer::new(stream);
                // An error here is the client's hanging up, which the test looks at.
                let _ = play(&mut peer);
                peer.drain();
                let _ = tell.send(peer.heard);
            });
        }
    });
    (port, heard)
}
