//! Tests logging in: passwords, TLS, unix sockets, and what a refused caller is told.

use std::time::Duration;

use crate::support::postgres::{Server, wait_for};
use syncguard::*;

fn ask(url: &str, options: &ClientOptions) -> Result<bool, LockError> {
    let options = options
        .clone()
        .schema("s")
        .operation_timeout(Duration::from_secs(30))
        .connect_timeout(Duration::from_secs(30));
    PostgresBackend::open(url, &options)?.is_locked(&Key::new("k").expect("a key"), &Call::new())
}

/// A server that asks over TCP for the method that a role's name says, and lets every role in on its unix socket.
fn guarded(settings: &[&str]) -> Server {
    let server = Server::start(settings);
    server
        .open(&ClientOptions::new().schema("s"))
        .setup_schema(&Call::new())
        .expect("set-up");
    for (role, encryption) in [
        ("scram", "scram-sha-256"),
        ("md5", "md5"),
        ("password", "scram-sha-256"),
        ("nobody", "scram-sha-256"),
    ] {
        server.sql(&format!("SET password_encryption = '{encryption}'; CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'sesame'"));
    }
    let hba = "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all scram 127.0.0.1/32 scram-sha-256\n\
               host all md5 127.0.0.1/32 md5\nhost all password 127.0.0.1/32 password\n";
    std::fs::write(server.data().join("pg_hba.conf"), hba).expect("the rules");
    server.sql("SELECT pg_reload_conf()");
    // The postmaster reads the file in its own time.
    wait_for("the rules hold", || {
        let url = format!(
            "postgres://nobody@127.0.0.1:{}/postgres?sslmode=disable",
            server.port
        );
        (ask(&url, &ClientOptions::new()).err()?.code() == ErrorCode::AuthFailed).then_some(())
    });
    server
}

#[test]
fn passwords() {
    let server = guarded(&[]);
    let url = |user: &str, password: &str, more: &str| {
        format!(
            "postgres://{user}:{password}@127.0.0.1:{}/postgres?{more}",
            server.port
        )
    };
    for role in ["scram", "md5", "password"] {
        assert_eq!(
            ask(
                &url(role, "sesame", "sslmode=disable"),
                &ClientOptions::new()
            )
            .ok(),
            Some(false),
            "{role}"
        );
        for wrong in ["hunter2", ""] {
            let error = ask(&url(role, wrong, "sslmode=disable"), &ClientOptions::new())
                .expect_err("refused");
            assert_eq!(error.code(), ErrorCode::AuthFailed, "{role}: {error}");
            let text = format!("{error} {error:?}");
            assert!(
                !text.contains("hunter2") && !text.contains("sesame"),
                "{text}"
            );
            assert!(!error.may_have_applied());
        }
        let none = format!(
            "postgres://{role}@127.0.0.1:{}/postgres?sslmode=disable",
            server.port
        );
        assert_eq!(
            ask(&none, &ClientOptions::new()).map_err(|e| e.code()),
            Err(ErrorCode::AuthFailed)
        );
    }
}

#[test]
fn a_password_goes_in_the_clear_only_if_the_caller_says_so() {
    let server = guarded(&[]);
    let url = |user: &str, password: &str, more: &str| {
        format!(
            "postgres://{user}:{password}@127.0.0.1:{}/postgres?{more}",
            server.port
        )
    };
    let error = ask(
        &url("password", "sesame", "sslmode=prefer"),
        &ClientOptions::new(),
    )
    .expect_err("in the clear");
    assert!(
        error.code() == ErrorCode::AuthFailed && error.message().contains("in the clear"),
        "{error}"
    );
    // The server has no TLS and the caller demands it: no password is sent.
    for mode in ["require", "verify-ca", "verify-full"] {
        let error = ask(
            &url("md5", "sesame", &format!("sslmode={mode}")),
            &ClientOptions::new(),
        )
        .expect_err("no TLS");
        assert!(
            error.code() == ErrorCode::ServiceUnavailable && error.message().contains("TLS"),
            "{mode}: {error}"
        );
    }
}

#[test]
fn refusals_and_sockets() {
    let server = guarded(&[]);
    let url = |user: &str| {
        format!(
            "postgres://{user}:sesame@127.0.0.1:{}/postgres?sslmode=disable",
            server.port
        )
    };
    // No rule, no role, no database.
    assert_eq!(
        ask(&url("nobody"), &ClientOptions::new()).map_err(|e| e.code()),
        Err(ErrorCode::AuthFailed)
    );
    let missing = format!(
        "postgres://postgres@127.0.0.1:{}/nowhere?sslmode=disable",
        server.port
    );
    let error = ask(&missing, &ClientOptions::new()).expect_err("no database");
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    // The unix socket, by URL and by keywords.
    assert_eq!(
        ask(&server.unix_url(), &ClientOptions::new()).ok(),
        Some(false)
    );
    let keywords = format!(
        "host={} port={} user=postgres dbname=postgres",
        server.path().display(),
        server.port
    );
    assert_eq!(ask(&keywords, &ClientOptions::new()).ok(), Some(false));
    // Too many connections.
    server.sql("ALTER ROLE scram CONNECTION LIMIT 0; ALTER ROLE scram NOSUPERUSER");
    assert_eq!(
        ask(&url("scram"), &ClientOptions::new()).map_err(|e| e.code()),
        Err(ErrorCode::RateLimited)
    );
}

#[test]
fn a_role_that_does_not_exist_is_not_said_to_have_a_wrong_password() {
    let server = Server::start(&[]);
    server.sql("CREATE ROLE closed NOLOGIN");
    let mut hba = "local all all trust\nhost all postgres,closed 127.0.0.1/32 trust\n".to_owned();
    for method in ["scram-sha-256", "md5", "password", "trust", "reject"] {
        hba += &format!("host all ghost_{method} 127.0.0.1/32 {method}\n");
    }
    std::fs::write(server.data().join("pg_hba.conf"), hba).expect("the rules");
    server.sql("SELECT pg_reload_conf()");
    let said = |role: &str| {
        let url = format!(
            "postgres://{role}:sesame@127.0.0.1:{}/postgres?sslmode=disable",
            server.port
        );
        let error = ask(&url, &ClientOptions::new()).expect_err("refused");
        assert_eq!(error.code(), ErrorCode::AuthFailed, "{role}: {error}");
        assert!(!error.may_have_applied());
        assert!(!format!("{error:?}").contains("ghost"), "{error:?}");
        error.message().to_owned()
    };
    // The postmaster reads the file in its own time.
    wait_for("the rules hold", || {
        said("ghost_reject").contains("pg_hba.conf").then_some(())
    });
    // With these the server does not tell the two cases apart, so that names cannot be guessed.
    for method in ["scram-sha-256", "md5", "password"] {
        let text = said(&format!("ghost_{method}"));
        assert!(
            text.contains("the role may not exist, or the password is another"),
            "{method}: {text}"
        );
    }
    for (role, meaning) in [
        ("ghost_trust", "the role does not exist"),
        ("closed", "lacks LOGIN"),
        ("ghost_reject", "pg_hba.conf"),
        ("ghost_elsewhere", "pg_hba.conf"),
    ] {
        let text = said(role);
        assert!(
            text.contains(meaning) && !text.contains("password"),
            "{role}: {text}"
        );
    }
}

/// A server with a certificate for `localhost`; beside it is another certificate.
struct Encrypted {
    dir: tempfile::TempDir,
    server: Server,
}

impl Encrypted {
    fn start() -> Self {
        let dir = Server::directory();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let signed = |name: &str| {
            rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a certificate")
        };
        let (server_cert, other) = (signed("localhost"), signed("localhost"));
        std::fs::write(path("server.crt"), server_cert.cert.pem()).expect("a file");
        std::fs::write(path("server.key"), server_cert.signing_key.serialize_pem())
            .expect("a file");
        std::fs::write(path("other.crt"), other.cert.pem()).expect("a file");
        let done = std::process::Command::new("sh")
            .args([
                "-c",
                // The server may be another user, whatever the umask says.
                "chmod 600 \"$0\"; chmod 644 \"$1\"; if [ \"$(id -u)\" = 0 ]; then chown postgres \"$0\"; fi",
                &path("server.key"),
                &path("server.crt"),
            ])
            .status();
        assert!(done.expect("sh").success());
        let cert = format!("ssl_cert_file={}", path("server.crt"));
        let key = format!("ssl_key_file={}", path("server.key"));
        let server = guarded(&["ssl=on", &cert, &key]);
        Self { dir, server }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn url(&self, host: &str, more: &str) -> String {
        format!(
            "postgres://scram:sesame@{host}:{}/postgres?{more}",
            self.server.port
        )
    }

    fn roots(&self, name: &str) -> ClientOptions {
        ClientOptions::new().tls_ca_file(self.path(name))
    }
}

#[test]
fn tls_lets_in_under_every_mode() {
    let tls = Encrypted::start();
    let url = |host: &str, more: &str| tls.url(host, more);
    let (roots, none) = (tls.roots("server.crt"), ClientOptions::new());
    for mode in ["prefer", "require"] {
        assert_eq!(
            ask(&url("127.0.0.1", &format!("sslmode={mode}")), &none).ok(),
            Some(false),
            "{mode}"
        );
    }
    assert_eq!(
        ask(&url("localhost", "sslmode=verify-full"), &roots).ok(),
        Some(false)
    );
    assert_eq!(
        ask(
            &url(
                "localhost",
                &format!("sslmode=verify-full&sslrootcert={}", tls.path("server.crt"))
            ),
            &none
        )
        .ok(),
        Some(false)
    );
    assert_eq!(
        ask(&url("127.0.0.1", "sslmode=verify-ca"), &roots).ok(),
        Some(false)
    );
    assert_eq!(
        ask(
            &url("localhost", "sslmode=require&channel_binding=require"),
            &none
        )
        .ok(),
        Some(false)
    );
    assert_eq!(
        ask(
            &url("localhost", "sslmode=require&channel_binding=disable"),
            &none
        )
        .ok(),
        Some(false)
    );
    assert_eq!(
        ask(
            &url("localhost", "sslmode=verify-full"),
            &none.clone().tls_danger_accept_invalid_certs(true)
        )
        .ok(),
        Some(false)
    );
    // Under TLS a password may be said aloud.
    let aloud = format!(
        "postgres://password:sesame@localhost:{}/postgres?sslmode=require",
        tls.server.port
    );
    assert_eq!(ask(&aloud, &none).ok(), Some(false));
    assert_eq!(
        tls.server
            .sql("SELECT count(*) FROM pg_stat_ssl WHERE ssl AND pid = pg_backend_pid()"),
        "0"
    );
}

#[test]
fn tls_that_cannot_be_verified_is_refused() {
    let tls = Encrypted::start();
    let url = |host: &str, more: &str| tls.url(host, more);
    let path = |name: &str| tls.path(name);
    // Not the system's roots: a machine may have none.
    let (roots, others) = (tls.roots("server.crt"), tls.roots("other.crt"));
    let none = ClientOptions::new();
    // An unknown issuer, another name, other roots, roots that are not there.
    for (host, more, options, code) in [
        (
            "localhost",
            "sslmode=verify-full".to_owned(),
            &others,
            ErrorCode::AuthFailed,
        ),
        (
            "127.0.0.1",
            "sslmode=verify-full".to_owned(),
            &roots,
            ErrorCode::AuthFailed,
        ),
        (
            "localhost",
            format!("sslmode=verify-ca&sslrootcert={}", path("other.crt")),
            &none,
            ErrorCode::AuthFailed,
        ),
        (
            "localhost",
            format!("sslmode=require&sslrootcert={}", path("other.crt")),
            &none,
            ErrorCode::AuthFailed,
        ),
        (
            "localhost",
            format!("sslmode=verify-full&sslrootcert={}", path("absent.crt")),
            &none,
            ErrorCode::InvalidArgument,
        ),
        (
            "127.0.0.1",
            "sslmode=disable&channel_binding=require".to_owned(),
            &none,
            ErrorCode::InvalidArgument,
        ),
    ] {
        let error = ask(&url(host, &more), options).expect_err(&more);
        assert_eq!(error.code(), code, "{more}: {error}");
        assert!(!error.to_string().contains("sesame"));
    }
}

#[test]
fn a_cancel_goes_under_tls_too_and_ends_the_query() {
    let tls = Encrypted::start();
    let server = &tls.server;
    let options = ClientOptions::new()
        .schema("s")
        .operation_timeout(Duration::from_secs(60));
    let store = PostgresBackend::open(&tls.url("localhost", "sslmode=require"), &options);
    let store = store.expect("a store");
    let mut blocker = server.session();
    blocker.run("BEGIN; SELECT pg_advisory_xact_lock(hashtext('held'))");
    let token = CancelToken::new();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let ttl = Ttl::new(Duration::from_secs(30)).expect("a ttl");
            let (name, id) = (Key::new("held"), LockId::random());
            let (name, id) = (name.expect("a key"), id.expect("an id"));
            store.acquire(&name, &id, ttl, &Call::new().cancelled_by(&token))
        });
        server.wait_until_waiting("s", 1);
        token.cancel();
        let error = call.join().expect("a thread").expect_err("cancelled");
        assert_eq!(error.code(), ErrorCode::Aborted, "{error}");
    });
    wait_for("the query ends before what it waits for", || {
        (server.waiting("s") == 0).then_some(())
    });
    drop(blocker);
}
