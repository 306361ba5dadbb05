//! Tests C programs with certificates that do not fit. A C program cannot turn the verification off: it names the roots that it trusts.

use std::path::Path;

use super::clocks::Clock;
use super::strangers::Stranger;
use super::*;
use crate::support::common::redis::RedisServer;

/// Makes the authority `ca.pem`, and `cert.pem` with `key.pem` that it signed for `$0`, for a month.
const SIGN: &str = r#"set -e
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 30 -subj /CN=authority \
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
openssl req -newkey rsa:2048 -nodes -keyout key.pem -out csr.pem -subj /CN=server
printf 'basicConstraints=CA:FALSE\nsubjectAltName=%s\n' "$0" > extensions
openssl x509 -req -in csr.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile extensions -out cert.pem
"#;

/// A server with a certificate for `name`; the authority's is in `dir`.
fn server_of(name: &str, dir: &Path) -> RedisServer {
    succeed(
        Command::new("sh").current_dir(dir).args(["-c", SIGN, name]),
        "openssl",
    );
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).expect("a file");
    RedisServer::start_tls(&read("cert.pem"), &read("key.pem"), &[])
}

fn url_of(server: &RedisServer) -> String {
    format!("rediss://admin:hunter2@127.0.0.1:{}", server.port())
}

#[test]
fn row_66_certificates_that_do_not_fit() {
    let (dir, other) = (scratch(), scratch());
    let server = server_of("IP:127.0.0.1", dir.path());
    let elsewhere = server_of("DNS:elsewhere.test", other.path());
    let ca = |dir: &Path| word("ca", &dir.join("ca.pem").display().to_string());
    let (ours, theirs) = (ca(dir.path()), ca(other.path()));
    let refused = [
        "hides=hunter2",
        "open=ok",
        &word("check", REFUSED),
        &word("writes", REFUSED),
        &word("reads", REFUSED),
    ];
    probe(&url_of(&server), &[&ours, "open=ok", "check=ok", "works"]);
    // The system's roots do not vouch for it, nor do others.
    probe(&url_of(&server), &refused);
    probe(
        &url_of(&server),
        &[&[theirs.as_str()], &refused[..]].concat(),
    );
    // A certificate of another host.
    probe(
        &url_of(&elsewhere),
        &[&[theirs.as_str()], &refused[..]].concat(),
    );
    // A certificate that has expired: ten years from now.
    let clock = Clock::build();
    clock.set(10 * 366 * 86_400);
    succeed(
        plain("probe")
            .arg(url_of(&server))
            .arg(&ours)
            .args(refused)
            .envs(clock.env()),
        "ten years from now",
    );
    // Roots that are not there.
    let absent = word("ca", &dir.path().join("absent.pem").display().to_string());
    let (check, writes) = (word("check", IA), word("writes", IA));
    probe(&url_of(&server), &[&absent, "open=ok", &check, &writes]);
}

/// A server that asks for a certificate, given one that it knows, none, one of others, and a key that others may read.
#[test]
fn row_68_client_certificates() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, other) = (scratch(), scratch());
    succeed(
        Command::new("sh")
            .current_dir(other.path())
            .args(["-c", SIGN, "DNS:client.test"]),
        "openssl",
    );
    let sign = Command::new("sh")
        .current_dir(dir.path())
        .args(["-c", SIGN, "IP:127.0.0.1"])
        .output();
    assert!(sign.expect("openssl").status.success());
    let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).expect("a file");
    let roots = dir.path().join("ca.pem").display().to_string();
    let server = RedisServer::start_tls(
        &read("cert.pem"),
        &read("key.pem"),
        &["--tls-auth-clients", "yes", "--tls-ca-cert-file", &roots],
    );
    let (url, ca) = (url_of(&server), word("ca", &roots));
    let pair = |dir: &Path| {
        let file = |name: &str| dir.join(name).display().to_string();
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(dir.join("key.pem"), mode).expect("a mode");
        let (cert, key) = (file("cert.pem"), file("key.pem"));
        [word("client_cert", &cert), word("client_key", &key)]
    };
    let (good, strange) = (pair(dir.path()), pair(other.path()));
    probe(
        &url,
        &[&ca, &good[0], &good[1], "open=ok", "check=ok", "works"],
    );
    let check = word("check", REFUSED);
    probe(&url, &[&ca, "hides=hunter2", "open=ok", &check]);
    probe(
        &url,
        &[
            &ca,
            &strange[0],
            &strange[1],
            "hides=hunter2",
            "open=ok",
            &check,
        ],
    );
    let check = word("check", IA);
    let open_to_all = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(dir.path().join("key.pem"), open_to_all).expect("a mode");
    probe(&url, &[&ca, &good[0], &good[1], "open=ok", &check]);
}

/// A server that chose TLS 1.0, and one that speaks none: nothing is said to either.
#[test]
fn row_66_old_tls_and_none() {
    // The handshake's answer: version 3.1, a random, no session, a cipher of that time.
    let hello = [
        &[0x16, 3, 1, 0, 42, 2, 0, 0, 38, 3, 1][..],
        &[7; 32],
        &[0, 0, 0x2f, 0],
    ]
    .concat();
    for answer in [hello.as_slice(), b"-ERR\r\n", b""] {
        let stranger = Stranger::start(answer, false);
        let status = "service unavailable|network timeout|authentication failed|internal error";
        let (writes, reads) = (word("writes", status), word("reads", status));
        probe(
            &format!("rediss://bob:hunter2@127.0.0.1:{}", stranger.port),
            &["timeout=150", "hides=hunter2", "open=ok", &writes, &reads],
        );
        assert!(!stranger.heard("hunter2") && !stranger.heard("AUTH"));
    }
}
