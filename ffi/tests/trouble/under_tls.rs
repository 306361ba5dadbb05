//! Certificates that do not fit. A C program cannot turn the verification off: it names the roots that it trusts.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

use super::redis::RedisServer;
use super::strangers::Stranger;
use super::*;

/// An authority's certificate, and a server's that it signed for `host`, with its key.
fn signed(host: &str, change: impl FnOnce(&mut CertificateParams)) -> [String; 3] {
    let mut params = CertificateParams::new([]).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new([host.to_owned()]).expect("parameters");
    change(&mut params);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    [authority, certificate.pem(), key.serialize_pem()]
}

#[test]
fn row_66_certificates_that_do_not_fit() {
    let dir = support::scratch();
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2001, 1, 1);
    for (name, [authority, certificate, key], trusted, wanted) in [
        ("good", signed("127.0.0.1", |_| {}), true, "ok"),
        ("of nobody", signed("127.0.0.1", |_| {}), false, REFUSED),
        ("expired", signed("127.0.0.1", expired), true, REFUSED),
        (
            "another host",
            signed("elsewhere.test", |_| {}),
            true,
            REFUSED,
        ),
    ] {
        let server = RedisServer::start_tls(&certificate, &key, &[]);
        let roots = dir.path().join("roots.pem");
        std::fs::write(&roots, authority).expect("a file");
        let ca = word("ca", &roots.display().to_string());
        let url = format!("rediss://admin:hunter2@127.0.0.1:{}", server.port());
        let open = if trusted { vec![ca.as_str()] } else { vec![] };
        let checks = word("check", wanted);
        let (writes, reads) = (word("writes", wanted), word("reads", wanted));
        let mut words = [&open[..], &["hides=hunter2", "open=ok", &checks]].concat();
        if wanted == "ok" {
            words.push("works");
        } else {
            words.extend([writes.as_str(), &reads]);
        }
        eprintln!("{name}");
        probe(&url, &words);
    }
    let absent = word("ca", &dir.path().join("absent.pem").display().to_string());
    probe(
        "rediss://127.0.0.1:1",
        &[&absent, "open=ok|invalid argument"],
    );
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
