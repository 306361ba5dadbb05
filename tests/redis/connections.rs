//! Connections of the user's own: client certificates, a TLS configuration, a password that changes, a connector on every way to a
//! server.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::certificates::{CertAuthority, SignedFiles, set_mode};
use crate::support::eventually;
use crate::support::redis::RedisServer;
use crate::support::topologies::{Sentinel, cluster, cluster_url, sentinel_url};
use crate::support::verbs::{code, granted, id, key, ttl};
use syncguard::{
    Backend, Call, Client, ClientOptions, ConnectRequest, ErrorCode, LockError, RedisBackend,
    rustls,
};

/// A server that asks for a certificate of the authority, and what clients show it.
struct Guarded {
    server: RedisServer,
    authority: CertAuthority,
    dir: tempfile::TempDir,
}

impl Guarded {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = CertAuthority::new(dir.path(), "ours");
        let files = authority.server();
        let read = |path| std::fs::read_to_string(path).expect("a file");
        let roots = authority.roots().display().to_string();
        let server = RedisServer::start_tls(
            &read(&files.certificate),
            &read(&files.key),
            &["--tls-auth-clients", "yes", "--tls-ca-cert-file", &roots],
        );
        Self {
            server,
            authority,
            dir,
        }
    }

    fn url(&self) -> String {
        format!("rediss://admin:x@127.0.0.1:{}", self.server.port())
    }

    fn options(&self) -> ClientOptions {
        ClientOptions::new().tls_ca_file(self.authority.roots())
    }

    fn with(&self, files: &SignedFiles) -> ClientOptions {
        self.options()
            .tls_client_cert(&files.certificate, &files.key)
    }

    fn ask(&self, options: &ClientOptions) -> Result<bool, LockError> {
        RedisBackend::open(&self.url(), options)
            .expect("legal")
            .is_locked(&key("k"), &Call::new())
    }

    #[track_caller]
    fn refused(&self, options: &ClientOptions, wanted: ErrorCode, said: &str) {
        let error = self.ask(options).expect_err(said);
        assert_eq!(error.code(), wanted, "{error}");
        assert!(error.message().contains(said), "{error}");
        assert!(!error.may_have_applied(), "{error}");
    }
}

#[test]
fn a_client_certificate_lets_in_and_a_bad_one_does_not() {
    let guarded = Guarded::start();
    let good = guarded.authority.client("good", 2100);
    let redis = RedisBackend::open(&guarded.url(), &guarded.with(&good)).expect("legal");
    let lock = id();
    let _ = granted(redis.acquire(&key("k"), &lock, ttl(30_000), &Call::new()));
    let released = redis.release(&lock, &Call::new()).expect("an answer");
    assert!(released.is_released());

    // The server tells after the handshake, while the login is sent already.
    for _ in 0..20 {
        let none = guarded.options();
        guarded.refused(
            &none,
            ErrorCode::AuthFailed,
            "asks for a client certificate",
        );
        let expired = guarded.with(&guarded.authority.client("expired", 2001));
        guarded.refused(&expired, ErrorCode::AuthFailed, "it has expired");
        let name = format!("strangers{}", id().as_str());
        let others = CertAuthority::new(guarded.dir.path(), &name);
        let stranger = guarded.with(&others.client("good", 2100));
        guarded.refused(&stranger, ErrorCode::AuthFailed, "issuer");
    }
}

#[test]
fn a_key_that_others_may_read_or_that_does_not_fit_is_refused() {
    let guarded = Guarded::start();
    let good = guarded.authority.client("good", 2100);
    let (options, invalid) = (guarded.with(&good), ErrorCode::InvalidArgument);
    for mode in [0o644, 0o660, 0o604, 0o601, 0o650] {
        set_mode(&good.key, mode);
        guarded.refused(&options, invalid, "others may read");
    }
    // The group may read a key of root's, and no other's.
    if nix::unistd::geteuid().is_root() {
        set_mode(&good.key, 0o640);
        assert_eq!(guarded.ask(&options).ok(), Some(false));
        std::os::unix::fs::chown(&good.key, Some(65534), None).expect("another owner");
        guarded.refused(&options, invalid, "0600");
    }
    set_mode(&good.key, 0o400);
    assert_eq!(guarded.ask(&options).ok(), Some(false));
    let other = guarded.authority.client("other", 2100);
    let mixed = SignedFiles {
        certificate: good.certificate.clone(),
        key: other.key.clone(),
    };
    guarded.refused(&guarded.with(&mixed), invalid, "belong together");
    let swapped = SignedFiles {
        certificate: other.key.clone(),
        key: other.certificate.clone(),
    };
    guarded.refused(&guarded.with(&swapped), invalid, "no certificate");
    set_mode(&other.certificate, 0o600);
    let twice = SignedFiles {
        key: other.certificate.clone(),
        ..other.clone()
    };
    guarded.refused(&guarded.with(&twice), invalid, "no private key");
    std::fs::remove_file(&other.key).expect("removed");
    guarded.refused(&guarded.with(&other), invalid, "cannot be used");
}

#[test]
fn keys_of_every_form_are_read_and_a_new_certificate_counts_for_new_connections() {
    let guarded = Guarded::start();
    let files = guarded.authority.client("good", 2100);
    let store = RedisBackend::open(&guarded.url(), &guarded.with(&files)).expect("legal");
    let asked = || store.is_locked(&key("k"), &Call::new());
    assert_eq!(asked().ok(), Some(false));
    let openssl = |args: &[&str]| {
        let done = Command::new("openssl").args(args).output();
        let done = done.expect("openssl is installed");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{said}");
        String::from_utf8(done.stdout).expect("PEM")
    };
    let again = |key: &str| {
        std::fs::write(&files.key, key).expect("replaced");
        guarded
            .server
            .cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        asked()
    };
    // SEC1, in place of the PKCS#8 that the certificate was made with.
    let path = files.key.display().to_string();
    let sec1 = openssl(&["ec", "-in", &path]);
    assert!(sec1.contains("BEGIN EC PRIVATE KEY"));
    assert_eq!(again(&sec1).ok(), Some(false));
    // PKCS#1, which is for RSA.
    let pkcs1 = openssl(&["genrsa", "-traditional", "2048"]);
    assert!(pkcs1.contains("BEGIN RSA PRIVATE KEY"));
    std::fs::write(&files.key, &pkcs1).expect("replaced");
    let pkcs8 = openssl(&["pkcs8", "-topk8", "-nocrypt", "-in", &path]);
    let rsa = guarded.authority.client_with("rsa", &pkcs8);
    std::fs::copy(&rsa.certificate, &files.certificate).expect("replaced");
    assert_eq!(again(&pkcs1).ok(), Some(false));
    assert_eq!(again(&pkcs8).ok(), Some(false));
    // The certificate is replaced by one that the server does not take: the next connection shows it.
    let expired = guarded.authority.client("expired", 2001);
    std::fs::copy(&expired.certificate, &files.certificate).expect("replaced");
    std::fs::copy(&expired.key, &files.key).expect("replaced");
    assert_eq!(asked().ok(), Some(false), "the pooled connection goes on");
    guarded
        .server
        .cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let error = asked().expect_err("the new certificate has expired");
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error}");
}

#[test]
fn a_configuration_of_the_user_decides_alone() {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
    let guarded = Guarded::start();
    let files = guarded.authority.client("good", 2100);
    let builder = || {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(guarded.authority.roots()).expect("PEM");
        roots.add(ca).expect("a root");
        rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
    };
    let chain = vec![CertificateDer::from_pem_file(&files.certificate).expect("PEM")];
    let private = PrivateKeyDer::from_pem_file(&files.key).expect("PEM");
    let config = builder().with_client_auth_cert(chain, private);
    let own = ClientOptions::new().tls_config(Arc::new(config.expect("a pair")));
    assert_eq!(guarded.ask(&own).ok(), Some(false));
    let bare = ClientOptions::new().tls_config(Arc::new(builder().with_no_client_auth()));
    guarded.refused(&bare, ErrorCode::AuthFailed, "client certificate");
    for both in [
        own.clone().tls_ca_file("/ca"),
        own.clone().tls_client_cert("/c", "/k"),
        own.clone().tls_danger_accept_invalid_certs(true),
    ] {
        let error = RedisBackend::open(&guarded.url(), &both).expect_err("two of them");
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        assert!(error.message().contains("tls_config"), "{error}");
    }
}

#[test]
fn a_password_that_changes_between_two_connections_is_asked_for_again() {
    let server = RedisServer::start_tcp(&[]);
    let rules = |password: &str| {
        let password = format!(">{password}");
        server.cli(&[
            "ACL",
            "SETUSER",
            "app",
            "on",
            "resetpass",
            &password,
            "~*",
            "&*",
            "+@all",
        ]);
        server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    };
    let current = Arc::new(Mutex::new("first".to_owned()));
    let asked = Arc::new(AtomicUsize::new(0));
    let (shown, count) = (Arc::clone(&current), Arc::clone(&asked));
    let options = ClientOptions::new().password(move || {
        count.fetch_add(1, SeqCst);
        Ok(shown.lock().expect("unpoisoned").clone())
    });
    rules("first");
    let url = format!("redis://app@127.0.0.1:{}", server.port());
    let store = RedisBackend::open(&url, &options).expect("legal");
    let look = || store.is_locked(&key("k"), &Call::new());
    assert_eq!(look().ok(), Some(false));
    assert_eq!(look().ok(), Some(false));
    assert_eq!(asked.load(SeqCst), 1, "one connection, one question");
    rules("second");
    assert_eq!(code(look()), ErrorCode::AuthFailed);
    *current.lock().expect("unpoisoned") = "second".to_owned();
    assert_eq!(look().ok(), Some(false));
    assert_eq!(asked.load(SeqCst), 3);
    // A password in the URL as well is a mistake; an empty one is none.
    let both = url.replace("app@", "app:hunter2@");
    let error = RedisBackend::open(&both, &options).expect_err("two passwords");
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

/// Connects as the library would, and notes where.
fn noting(places: &Arc<Mutex<Vec<u16>>>) -> ClientOptions {
    let places = Arc::clone(places);
    ClientOptions::new().connector(move |to: &ConnectRequest<'_>| -> std::io::Result<OwnedFd> {
        places.lock().expect("unpoisoned").push(to.port());
        assert!(to.remaining() > Duration::ZERO);
        Ok(TcpStream::connect((to.host(), to.port()))?.into())
    })
}

#[test]
fn a_connector_makes_every_connection_to_sentinels_and_nodes() {
    let places = Arc::new(Mutex::new(Vec::new()));
    let primary = RedisServer::start_tcp(&[]);
    let sentinels = [Sentinel::start(&primary, "")];
    let url = sentinel_url(&sentinels, "main");
    let client = Client::open_with(&url, &noting(&places)).expect("legal");
    let _ = client
        .lock("k")
        .expect("a lock")
        .release()
        .expect("a release");
    let seen = std::mem::take(&mut *places.lock().expect("unpoisoned"));
    assert!(
        seen.contains(&primary.port()) && seen.len() >= 2,
        "{seen:?}"
    );

    let nodes = cluster(0);
    // A seed that does not own the slot: the owner is named by it.
    let options = noting(&places).key_prefix("{app}");
    let client = Client::open_with(&cluster_url([&nodes[0]]), &options).expect("legal");
    let _ = client
        .lock("k")
        .expect("a lock")
        .release()
        .expect("a release");
    let seen = std::mem::take(&mut *places.lock().expect("unpoisoned"));
    let ports = [nodes[0].port(), nodes[1].port()];
    assert!(ports.iter().all(|port| seen.contains(port)), "{seen:?}");
}

#[test]
fn tls_goes_over_what_a_connector_gave_and_a_waiter_listens_over_it() {
    let guarded = Guarded::start();
    let places = Arc::new(Mutex::new(Vec::new()));
    let files = guarded.authority.client("good", 2100);
    let options = noting(&places)
        .tls_ca_file(guarded.authority.roots())
        .tls_client_cert(&files.certificate, &files.key);
    let client = Client::open_with(&guarded.url(), &options).expect("legal");
    let guard = client.lock("k").expect("a lock");
    let waiting = {
        let client = client.clone();
        std::thread::spawn(move || client.lock("k").map(|guard| guard.release().is_ok()))
    };
    // One connection for calls, one that listens, at the least.
    eventually("a connection that listens", || {
        places.lock().expect("unpoisoned").len() >= 2
    });
    let _ = guard.release().expect("a release");
    assert_eq!(crate::support::ended(waiting).ok(), Some(true));
}
