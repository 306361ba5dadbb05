//! Connections of the user's own to a real server: client certificates, a password that changes, a connector, and libpq's habits.

use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::certificates::{CertAuthority, SignedFiles, set_mode};
use crate::support::eventually;
use crate::support::postgres::{Server, set_up, wait_for};
use crate::support::process::{self, Stage, hear, say};
use syncguard::*;

pub const STAGES: &[process::Entry] = &[("with the environment", with_the_environment)];

fn ask(url: &str, options: &ClientOptions) -> Result<bool, LockError> {
    let options = options.clone().schema("s");
    let store = PostgresBackend::open(url, &options)?;
    store.is_locked(&Key::new("k").expect("a key"), &Call::new())
}

#[track_caller]
fn refused(url: &str, options: &ClientOptions, wanted: ErrorCode, said: &str) {
    let error = ask(url, options).expect_err(said);
    assert_eq!(error.code(), wanted, "{error}");
    assert!(error.message().contains(said), "{error}");
    assert!(!error.may_have_applied(), "{error}");
}

/// Replaces the rules of the server, and waits until `probe` is refused by them.
fn rule(server: &Server, rules: &str, probe: &str) {
    std::fs::write(server.data().join("pg_hba.conf"), rules).expect("the rules");
    server.sql("SELECT pg_reload_conf()");
    wait_for("the rules hold", || ask(probe, &ClientOptions::new()).err());
}

/// A server that lets roles in by a certificate of the authority.
struct ByCertificate {
    server: Server,
    authority: CertAuthority,
    dir: tempfile::TempDir,
}

impl ByCertificate {
    fn start() -> Self {
        let dir = Server::directory();
        let authority = CertAuthority::new(dir.path(), "ours");
        let files = authority.server();
        let set = |name: &str, path: &Path| format!("{name}={}", path.display());
        let server = Server::start(&[
            "ssl=on",
            &set("ssl_cert_file", &files.certificate),
            &set("ssl_key_file", &files.key),
            &set("ssl_ca_file", &authority.roots()),
        ]);
        set_up(&server, "s");
        server.sql("CREATE ROLE app LOGIN SUPERUSER");
        let rules = "local all all trust\nhostssl all all 127.0.0.1/32 cert\n";
        rule(&server, rules, &server.url());
        Self {
            server,
            authority,
            dir,
        }
    }

    fn url(&self, more: &str) -> String {
        let (port, roots) = (self.server.port, self.authority.roots());
        let roots = roots.display();
        format!(
            "postgres://app@127.0.0.1:{port}/postgres?sslmode=verify-full&sslrootcert={roots}{more}"
        )
    }

    fn with(&self, files: &SignedFiles) -> String {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        self.url(&format!("&sslcert={certificate}&sslkey={key}"))
    }
}

#[test]
fn a_client_certificate_lets_in_and_a_bad_one_does_not() {
    let (made, none) = (ByCertificate::start(), ClientOptions::new());
    let good = made.authority.client("app", 2100);
    assert_eq!(ask(&made.with(&good), &none).ok(), Some(false));
    // By the options, and with a URL that wins over them.
    let options = none.clone().tls_client_cert(&good.certificate, &good.key);
    assert_eq!(ask(&made.url(""), &options).ok(), Some(false));
    let nowhere = none.clone().tls_client_cert("/nowhere", "/nowhere");
    assert_eq!(ask(&made.with(&good), &nowhere).ok(), Some(false));
    let (auth, invalid) = (ErrorCode::AuthFailed, ErrorCode::InvalidArgument);
    refused(&made.url(""), &nowhere, invalid, "/nowhere");
    for _ in 0..10 {
        refused(&made.url(""), &none, auth, "");
        let other = made.authority.client("other", 2100);
        refused(&made.with(&other), &none, auth, "");
        let expired = made.authority.client("expired", 2001);
        refused(&made.with(&expired), &none, auth, "it has expired");
        let name = format!("strangers{}", LockId::random().expect("an id").as_str());
        let stranger = CertAuthority::new(made.dir.path(), &name).client("app", 2100);
        refused(&made.with(&stranger), &none, auth, "issuer");
    }
    set_mode(&good.key, 0o644);
    refused(&made.with(&good), &none, invalid, "others may read");
    for half in ["&sslcert=/c", "&sslkey=/k"] {
        refused(&made.url(half), &none, invalid, "belong together");
    }
    // Under TLS the request to cancel shows the certificate too.
    set_mode(&good.key, 0o600);
    let patient = none.schema("s").operation_timeout(Duration::from_secs(60));
    let store = PostgresBackend::open(&made.with(&good), &patient).expect("legal");
    cancelled_in_a_query(&store, &made.server);
}

/// Cancels a call whose query waits on the server, and sees the query end: the request to cancel has arrived.
fn cancelled_in_a_query(store: &dyn Backend, server: &Server) {
    let mut blocker = server.session();
    blocker.run("BEGIN; SELECT pg_advisory_xact_lock(hashtext('held'))");
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let ttl = Ttl::new(Duration::from_secs(30)).expect("a ttl");
            let (name, id) = (Key::new("held"), LockId::random());
            let (name, id) = (name.expect("a key"), id.expect("an id"));
            let minute = Call::new().within(Duration::from_secs(60));
            store.acquire(&name, &id, ttl, &minute.cancelled_by(&token))
        });
        server.wait_until_waiting("s", 1);
        token.cancel();
        let error = call.join().expect("a thread").expect_err("cancelled");
        assert_eq!(error.code(), ErrorCode::Aborted, "{error}");
    });
    eventually("the end of the query", || server.waiting("s") == 0);
}

#[test]
fn an_own_configuration_and_certificates_of_the_url_are_refused_together() {
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .expect("versions")
    .with_root_certificates(rustls::RootCertStore::empty())
    .with_no_client_auth();
    let own = ClientOptions::new().tls_config(Arc::new(config));
    for more in ["sslrootcert=/r", "sslcert=/c&sslkey=/k"] {
        let url = format!("postgres://u@h/db?{more}");
        refused(&url, &own, ErrorCode::InvalidArgument, "tls_config");
    }
    let made = ByCertificate::start();
    let url = format!(
        "postgres://app@127.0.0.1:{}/postgres?sslmode=require",
        made.server.port
    );
    refused(&url, &own, ErrorCode::AuthFailed, "issuer is unknown");
}

/// A server that asks the role `app` for a password.
fn by_password() -> Server {
    let server = Server::start(&[]);
    set_up(&server, "s");
    server.sql("CREATE ROLE app LOGIN SUPERUSER PASSWORD 'first'");
    let rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    rule(&server, rules, &server.url());
    server
}

fn url(server: &Server, more: &str) -> String {
    let port = server.port;
    format!("postgres://app@127.0.0.1:{port}/postgres?sslmode=disable{more}")
}

fn new_password(server: &Server, password: &str) {
    server.sql(&format!("ALTER ROLE app PASSWORD '{password}'"));
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    eventually("the end of the sessions", || {
        server.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'") == "0"
    });
}

#[test]
fn a_password_that_changes_between_two_connections_is_asked_for_again() {
    let server = by_password();
    let current = Arc::new(Mutex::new("first"));
    let (shown, asked) = (Arc::clone(&current), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let options = ClientOptions::new().schema("s").password(move || {
        count.fetch_add(1, SeqCst);
        Ok((*shown.lock().expect("unpoisoned")).to_owned())
    });
    let store = PostgresBackend::open(&url(&server, ""), &options).expect("legal");
    let look = || store.is_locked(&Key::new("k").expect("a key"), &Call::new());
    assert_eq!(look().ok(), Some(false));
    assert_eq!((look().ok(), asked.load(SeqCst)), (Some(false), 1));
    new_password(&server, "second");
    let error = look().expect_err("the old password");
    assert_eq!(error.code(), ErrorCode::AuthFailed, "{error}");
    *current.lock().expect("unpoisoned") = "second";
    assert_eq!(look().ok(), Some(false));
    let both = format!("postgres://app:hunter2@127.0.0.1:{}/postgres", server.port);
    let error = PostgresBackend::open(&both, &options).expect_err("two passwords");
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[test]
fn a_connector_makes_every_connection_also_those_that_listen_and_cancel() {
    let server = Server::start(&[]);
    set_up(&server, "s");
    let places = Arc::new(Mutex::new(Vec::new()));
    let (noted, port) = (Arc::clone(&places), server.port);
    // The host is known to the connector alone.
    let options = ClientOptions::new()
        .schema("s")
        .operation_timeout(Duration::from_secs(60));
    let options = options.connector(move |to| {
        let place = format!("{}:{}", to.host(), to.port());
        noted.lock().expect("unpoisoned").push(place);
        Ok(TcpStream::connect(("127.0.0.1", port))?.into())
    });
    let url = "postgres://postgres@no.such.host:7/postgres?sslmode=disable";
    let client = Client::open_with(url, &options).expect("legal");
    let guard = client.lock("held").expect("a lock");
    let connections = || places.lock().expect("unpoisoned").len();
    assert_eq!(connections(), 1);
    let waiting = {
        let client = client.clone();
        std::thread::spawn(move || client.lock("held").map(|guard| guard.release().is_ok()))
    };
    eventually("a session that listens", || {
        server
            .sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'")
            != "0"
    });
    let _ = guard.release().expect("a release");
    assert_eq!(crate::support::ended(waiting).ok(), Some(true));
    let before = connections();
    cancelled_in_a_query(&client, &server);
    assert!(connections() > before, "one of them cancelled");
    let all = places.lock().expect("unpoisoned").clone();
    assert!(all.iter().all(|place| place == "no.such.host:7"), "{all:?}");
}

#[test]
fn a_password_file_is_read_for_each_connection_and_refused_if_others_may_read_it() {
    let server = by_password();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("passwords");
    let write = |password: &str| {
        std::fs::write(
            &file,
            format!("127.0.0.1:{}:postgres:app:{password}\n", server.port),
        )
        .expect("written");
    };
    write("first");
    set_mode(&file, 0o600);
    let dsn = url(&server, &format!("&passfile={}", file.display()));
    let options = ClientOptions::new().schema("s");
    let store = PostgresBackend::open(&dsn, &options).expect("legal");
    let look = || store.is_locked(&Key::new("k").expect("a key"), &Call::new());
    assert_eq!(look().ok(), Some(false));
    new_password(&server, "second");
    assert_eq!(
        look().expect_err("the old one").code(),
        ErrorCode::AuthFailed
    );
    write("second");
    assert_eq!(look().ok(), Some(false));
    for mode in [0o640, 0o644, 0o620] {
        set_mode(&file, mode);
        refused(
            &dsn,
            &options,
            ErrorCode::InvalidArgument,
            "others may read",
        );
    }
    set_mode(&file, 0o600);
    std::fs::write(&file, "other:*:*:*:hunter2\n").expect("written");
    refused(&dsn, &options, ErrorCode::AuthFailed, "asks for a password");
    std::fs::remove_file(&file).expect("removed");
    refused(&dsn, &options, ErrorCode::InvalidArgument, "is not there");
    // A password in the URL is tried first, as in libpq.
    let own = dsn.replace("app@", "app:second@");
    assert_eq!(ask(&own, &options).ok(), Some(false));
}

/// Asks with `env=1` and without, in the environment that the test made.
fn with_the_environment(_: &Path) {
    let options = ClientOptions::new();
    for dsn in [
        "env=1",
        "postgres:///?env=1",
        "postgres:///postgres",
        "service=locks env=1",
    ] {
        say(&match ask(dsn, &options) {
            Ok(locked) => format!("{locked}"),
            Err(e) => format!("{:?}", e.code()),
        });
    }
    let _ = hear();
}

#[test]
fn the_environment_leads_to_a_real_server_only_if_the_url_asks_for_it() {
    let server = by_password();
    let home = tempfile::tempdir().expect("a directory");
    let passwords = home.path().join(".pgpass");
    std::fs::write(&passwords, "127.0.0.1:*:*:app:first\n").expect("written");
    set_mode(&passwords, 0o600);
    let service = format!(
        "[locks]\nhost=127.0.0.1\nport={}\nsslmode=disable\n",
        server.port
    );
    std::fs::write(home.path().join(".pg_service.conf"), service).expect("written");
    let port = server.port.to_string();
    let env: [(&str, &Path); 6] = [
        ("HOME", home.path()),
        ("PGHOST", Path::new("127.0.0.1")),
        ("PGPORT", Path::new(&port)),
        ("PGUSER", Path::new("app")),
        ("PGDATABASE", Path::new("postgres")),
        ("PGSSLMODE", Path::new("disable")),
    ];
    let mut stage = Stage::start_with("with the environment", home.path(), &env);
    for answer in ["false", "false", "InvalidArgument", "false"] {
        stage.expect(answer);
    }
    stage.tell("end");
    stage.finish();
}
