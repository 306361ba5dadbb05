//! Which certificates are accepted.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use sha2::{Digest, Sha256, Sha384};

use super::*;
use crate::backend::call::Call;
use crate::net::dialer::Dialer;
use crate::net::socket::Socket;
use crate::net::uri::Endpoint;
use crate::runtime::cancel::CancelToken;
use crate::runtime::process::Owner;
use crate::types::error::ErrorCode;

const AMPLE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(150);

fn within(timeout: Duration) -> Limits<'static> {
    Limits::enter(Owner::current(), timeout, &Call::new()).expect("time is left")
}

/// An authority with its file, and certificates it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: tempfile::TempDir,
}

impl Authority {
    fn new() -> Self {
        Self::named("authority")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("ca.pem"), certificate.pem()).expect("written");
        Self {
            issuer: Issuer::new(params, key),
            dir,
        }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    fn tls(&self, verify: Verify) -> Tls {
        Tls::new(verify, Some(self.file()), None)
    }

    fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> Arc<ServerConfig> {
        self.sign_with(
            KeyPair::generate().expect("a key"),
            change,
            rustls::ALL_VERSIONS,
        )
    }

    fn sign_with(
        &self,
        key: KeyPair,
        change: impl FnOnce(&mut CertificateParams),
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ServerConfig> {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("parameters");
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        server(certificate.der().clone(), key.serialize_der(), versions)
    }
}

fn server(
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate],
            PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key)),
        )
        .expect("a key that fits");
    Arc::new(config)
}

/// Gives the next connection to `serve`, and a connected socket to the caller.
fn connect(serve: impl FnOnce(TcpStream) + Send + 'static) -> Socket {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let endpoint = Endpoint::Tcp {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().expect("bound").port(),
    };
    thread::spawn(move || serve(listener.accept().expect("a client").0));
    Socket::connect(&endpoint, &Dialer::default(), &within(AMPLE)).expect("connected")
}

/// Sends back what comes; ends like a crash, without a goodbye, when told to.
fn echo(config: Arc<ServerConfig>) -> impl FnOnce(TcpStream) + Send + 'static {
    move |mut tcp| {
        let mut tls = ServerConnection::new(config).expect("a session");
        let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            match &buffer[..n] {
                b"crash" => return,
                b"bye" => {
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                    return;
                }
                bytes => stream.write_all(bytes).expect("sent"),
            }
        }
    }
}

fn refused(config: Arc<ServerConfig>, tls: &Tls, host: &str) -> LockError {
    let mut socket = connect(echo(config));
    let error = socket
        .encrypt(tls, host, &within(AMPLE))
        .expect_err("refused");
    assert!(!error.may_have_applied());
    socket
        .write_all(b"a password", &within(AMPLE))
        .expect_err("nothing goes out in clear");
    error
}

fn exchange(socket: &mut Socket, request: &[u8]) {
    socket.write_all(request, &within(AMPLE)).expect("sent");
    let mut reply = vec![0; request.len()];
    let mut n = 0;
    while n < reply.len() {
        n += socket
            .read(&mut reply[n..], &within(AMPLE))
            .expect("answered");
    }
    assert_eq!(reply, request);
}

#[test]
fn a_known_issuer_and_the_right_host_are_accepted() {
    let authority = Authority::new();
    let tls = authority.tls(Verify::Full);
    for versions in [&[&rustls::version::TLS12], &[&rustls::version::TLS13]] {
        for host in ["localhost", "127.0.0.1", "localhost."] {
            let key = KeyPair::generate().expect("a key");
            let config = authority.sign_with(key, |_| {}, versions);
            let mut socket = connect(echo(config));
            socket
                .encrypt(&tls, host, &within(AMPLE))
                .expect("accepted");
            // More than one record, and more than rustls buffers.
            for request in [&b"ping"[..], &vec![7; 200_000], b"pong"] {
                exchange(&mut socket, request);
                assert!(socket.is_quiet());
            }
        }
    }
}

#[test]
fn what_is_wrong_with_a_certificate_is_said() {
    let (authority, other) = (Authority::new(), Authority::named("other"));
    let impostor = Authority::new();
    let tls = authority.tls(Verify::Full);
    let old = |p: &mut CertificateParams| p.not_after = date_time_ymd(2001, 1, 1);
    let early = |p: &mut CertificateParams| p.not_before = date_time_ymd(4000, 1, 1);
    let ca = |p: &mut CertificateParams| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    for (config, host, why) in [
        (authority.sign(old), "localhost", "expired"),
        (authority.sign(early), "localhost", "not valid yet"),
        (authority.sign(ca), "localhost", "authority's own"),
        (authority.sign(|_| {}), "example.org", "another host"),
        (authority.sign(|_| {}), "192.0.2.1", "another host"),
        (other.sign(|_| {}), "localhost", "issuer is unknown"),
        (impostor.sign(|_| {}), "localhost", "another authority"),
    ] {
        let error = refused(config, &tls, host);
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
        assert!(error.message().contains(why), "{error:?}");
    }
}

#[test]
fn less_is_asked_only_where_that_was_said() {
    let (authority, other) = (Authority::new(), Authority::new());
    let accepted = |config, verify| {
        let mut socket = connect(echo(config));
        let done = socket.encrypt(&authority.tls(verify), "example.org", &within(AMPLE));
        done.map(|()| exchange(&mut socket, b"ping")).is_ok()
    };
    let old = |p: &mut CertificateParams| p.not_after = date_time_ymd(2001, 1, 1);
    assert!(accepted(authority.sign(|_| {}), Verify::Authority));
    assert!(!accepted(authority.sign(old), Verify::Authority));
    assert!(!accepted(other.sign(|_| {}), Verify::Authority));
    assert!(accepted(authority.sign(old), Verify::Nothing));
    assert!(accepted(other.sign(|_| {}), Verify::Nothing));
    let key = KeyPair::generate().expect("a key");
    let config = other.sign_with(key, |_| {}, &[&rustls::version::TLS12]);
    assert!(accepted(config, Verify::Nothing));
}

#[test]
fn a_peer_without_the_key_is_refused_even_where_any_certificate_is_accepted() {
    let authority = Authority::new();
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("parameters");
    let stolen = params
        .signed_by(&key, &authority.issuer)
        .expect("a certificate");
    let own = KeyPair::generate().expect("a key");
    let provider = rustls::crypto::ring::default_provider();
    let own = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.serialize_der()));
    let own = provider.key_provider.load_private_key(own).expect("a key");
    let certified = rustls::sign::CertifiedKey::new(vec![stolen.der().clone()], own);
    for versions in [&[&rustls::version::TLS12], &[&rustls::version::TLS13]] {
        let resolver = rustls::sign::SingleCertAndKey::from(certified.clone());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        let error = refused(
            Arc::new(config),
            &authority.tls(Verify::Nothing),
            "localhost",
        );
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{error:?}");
    }
}

/// Certificates of version 1 are what `openssl x509 -req` makes unless told otherwise.
#[test]
fn a_certificate_of_version_1_is_enough_where_any_is_accepted() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = Command::new("sh")
        .current_dir(dir.path())
        .env_remove("OPENSSL_CONF")
        .args(["-c", "openssl req -new -newkey rsa:2048 -nodes -keyout key.pem -subj /CN=localhost -out csr.pem \
            && openssl x509 -req -in csr.pem -signkey key.pem -days 1 -outform DER -out cert.der \
            && openssl pkcs8 -topk8 -nocrypt -in key.pem -outform DER -out key.der"])
        .output()
        .expect("a shell");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let certificate = std::fs::read(dir.path().join("cert.der")).expect("a certificate");
    let key = std::fs::read(dir.path().join("key.der")).expect("a key");
    let ecdsa = KeyPair::generate().expect("a key");
    let provider = rustls::crypto::ring::default_provider();
    let load = |key| {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
        provider.key_provider.load_private_key(key).expect("a key")
    };
    let config = |key| {
        let chain = vec![CertificateDer::from(certificate.clone())];
        let certified = rustls::sign::CertifiedKey::new(chain, load(key));
        let config = ServerConfig::builder_with_provider(Arc::new(provider.clone()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
        Arc::new(config)
    };
    let tls = Tls::new(Verify::Nothing, None, None);
    let mut socket = connect(echo(config(key.clone())));
    socket
        .encrypt(&tls, "localhost", &within(AMPLE))
        .expect("accepted");
    exchange(&mut socket, b"ping");
    assert_eq!(
        socket.channel_binding(),
        Some(Sha256::digest(&certificate).to_vec())
    );

    let error = refused(config(ecdsa.serialize_der()), &tls, "localhost");
    assert_ne!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    let error = refused(
        config(key),
        &Authority::new().tls(Verify::Full),
        "localhost",
    );
    assert!(error.message().contains("version 1"), "{error:?}");
}

#[test]
fn a_server_that_speaks_something_else_is_unavailable() {
    let authority = Authority::new();
    let tls = authority.tls(Verify::Full);
    let alert = [0x15, 3, 1, 0, 2, 2, 70];
    let answers: [&'static [u8]; 4] = [
        b"-ERR unknown command\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        Box::leak(Box::new(alert)),
    ];
    for answer in answers {
        let mut socket = connect(move |mut tcp| {
            let mut hello = [0; 4096];
            let _ = tcp.read(&mut hello);
            tcp.write_all(answer).expect("sent");
        });
        let error = socket
            .encrypt(&tls, "localhost", &within(AMPLE))
            .expect_err("no TLS");
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
        assert!(!error.may_have_applied());
    }
}

#[test]
fn a_handshake_that_is_cut_or_hangs_ends() {
    let authority = Authority::new();
    let tls = authority.tls(Verify::Full);
    let config = authority.sign(|_| {});
    // The first flight of the server, cut in the middle.
    let mut socket = connect(move |mut tcp| {
        let mut session = ServerConnection::new(config).expect("a session");
        session.read_tls(&mut tcp).expect("a hello");
        session.process_new_packets().expect("a good one");
        let mut flight = Vec::new();
        session.write_tls(&mut flight).expect("an answer");
        tcp.write_all(&flight[..flight.len() / 2]).expect("sent");
    });
    let error = socket
        .encrypt(&tls, "localhost", &within(AMPLE))
        .expect_err("cut");
    assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");

    let (hold, held) = std::sync::mpsc::channel::<()>();
    let mut socket = connect(move |_tcp| assert!(held.recv().is_err()));
    let begun = Instant::now();
    let error = socket
        .encrypt(&tls, "localhost", &within(SHORT))
        .expect_err("hung");
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error:?}");
    assert!(!error.may_have_applied() && begun.elapsed() < AMPLE / 2);
    drop(hold);

    let (hold, held) = std::sync::mpsc::channel::<()>();
    let mut socket = connect(move |_tcp| assert!(held.recv().is_err()));
    let token = CancelToken::new();
    let other = token.clone();
    let limits = Limits::enter(Owner::current(), AMPLE, &Call::new().cancelled_by(&token))
        .expect("time is left");
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        other.cancel();
    });
    let error = socket
        .encrypt(&tls, "localhost", &limits)
        .expect_err("cancelled");
    assert_eq!(error.code(), ErrorCode::Aborted, "{error:?}");
    drop(hold);
}

#[test]
fn the_end_is_noticed_with_and_without_a_goodbye() {
    let authority = Authority::new();
    let tls = authority.tls(Verify::Full);
    for end in [&b"crash"[..], b"bye"] {
        let mut socket = connect(echo(authority.sign(|_| {})));
        socket
            .encrypt(&tls, "localhost", &within(AMPLE))
            .expect("accepted");
        exchange(&mut socket, b"ping");
        assert!(socket.is_quiet());
        socket.write_all(end, &within(AMPLE)).expect("sent");
        if end == b"bye" {
            let deadline = Instant::now() + AMPLE;
            while socket.is_quiet() {
                assert!(Instant::now() < deadline, "no goodbye");
                thread::sleep(Duration::from_millis(1));
            }
        }
        let error = socket
            .read(&mut [0; 8], &within(AMPLE))
            .expect_err("the end");
        assert_eq!(error.code(), ErrorCode::ServiceUnavailable, "{error:?}");
        assert!(!socket.is_quiet());
    }
}

#[test]
fn a_silent_session_ends_by_the_deadline() {
    let authority = Authority::new();
    let mut socket = connect(echo(authority.sign(|_| {})));
    let tls = authority.tls(Verify::Full);
    socket
        .encrypt(&tls, "localhost", &within(AMPLE))
        .expect("accepted");
    let error = socket
        .read(&mut [0; 8], &within(SHORT))
        .expect_err("silence");
    assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error:?}");
}

#[test]
fn a_peer_that_answers_no_handshake_may_speak_no_tls() {
    let authority = Authority::new();
    let tls = authority.tls(Verify::Full);
    // A busy machine may need all of the time to send its part.
    assert!((0..50).any(|_| {
        let mut socket = connect(|mut tcp| drop(tcp.read_to_end(&mut Vec::new())));
        let error = socket
            .encrypt(&tls, "localhost", &within(SHORT))
            .expect_err("silence");
        assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error:?}");
        error.message().contains("may not speak TLS")
    }));
}

#[test]
fn roots_that_cannot_be_used_are_the_callers_fault_and_not_kept() {
    let authority = Authority::new();
    let config = authority.sign(|_| {});
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("ca.pem");
    let tls = Tls::new(Verify::Full, Some(file.clone()), None);
    let invalid = || {
        let error = refused(Arc::clone(&config), &tls, "localhost");
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    };
    invalid();
    for garbage in [
        "",
        "no PEM",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        std::fs::write(&file, garbage).expect("written");
        invalid();
    }
    std::fs::copy(authority.file(), &file).expect("copied");
    let mut socket = connect(echo(Arc::clone(&config)));
    socket
        .encrypt(&tls, "localhost", &within(AMPLE))
        .expect("accepted");
    let directory = Tls::new(Verify::Authority, Some(dir.path().to_owned()), None);
    let error = refused(Arc::clone(&config), &directory, "localhost");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    let error = refused(config, &tls, "no host/at all");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}

#[test]
fn the_systems_roots_do_not_know_our_authority() {
    let config = Authority::new().sign(|_| {});
    let error = refused(config, &Tls::new(Verify::Full, None, None), "localhost");
    let expected = match RootsSource::new(None).roots(&within(AMPLE)) {
        Ok(_) => ErrorCode::AuthFailed,
        Err(_) => ErrorCode::InvalidArgument,
    };
    assert_eq!(error.code(), expected, "{error:?}");
}

#[test]
fn the_channel_is_bound_to_the_certificate() {
    let hash_of = |algorithm| {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("parameters");
        let der = params
            .self_signed(&key)
            .expect("a certificate")
            .der()
            .to_vec();
        (binding::end_point(&der), der)
    };
    let (hash, der) = hash_of(&rcgen::PKCS_ECDSA_P256_SHA256);
    assert_eq!(hash, Some(Sha256::digest(&der).to_vec()));
    let (hash, der) = hash_of(&rcgen::PKCS_ECDSA_P384_SHA384);
    assert_eq!(hash, Some(Sha384::digest(&der).to_vec()));
    assert_eq!(hash_of(&rcgen::PKCS_ED25519).0, None);
    // RSASSA-PSS names its hash in the parameters.
    let pss = |parameters: &[u8]| {
        let mut algorithm = vec![6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
        algorithm.extend(parameters);
        let mut inside = vec![0x30, 0, 0x30, u8::try_from(algorithm.len()).expect("short")];
        inside.extend(algorithm);
        let mut der = vec![0x30, u8::try_from(inside.len()).expect("short")];
        der.extend(inside);
        binding::end_point(&der).map(|hash| hash.len())
    };
    assert_eq!(pss(&[0x30, 0]), Some(32));
    let sha512 = [
        0x30, 15, 0xa0, 13, 0x30, 11, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3,
    ];
    assert_eq!(pss(&sha512), Some(64));
    // Garbage is no certificate, and no reason to panic.
    let (_, der) = hash_of(&rcgen::PKCS_ECDSA_P256_SHA256);
    for n in 0..der.len() {
        let (_, _) = (binding::end_point(&der[..n]), der::public_key(&der[..n]));
    }
    assert_eq!(binding::end_point(&[0x30, 0x84, 255, 255, 255, 255]), None);
}
