//! Any bytes as the certificate of a server, to the code that reads its key, its channel binding, and why it is refused.
//!
//! The key that is found is the one that `rustls` finds; a binding is a hash of the whole certificate; a signature that was not made with
//! the key is never accepted; and a refusal has a code of ours.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{Error, RootCertStore};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use syncguard::ErrorCode;

use crate::engine::Target;
use crate::{gist, outcome};

#[path = "../../../src/net/tls/binding.rs"]
mod binding;
#[path = "../../../src/net/tls/der.rs"]
mod der;
#[path = "../../../src/net/tls/verify.rs"]
mod verify;

/// How it is run.
pub const TARGET: Target = Target {
    name: "certificates",
    run,
    words: &[
        b"\x30\x80",
        b"\x30\x82",
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x85",
        b"\x30\xff",
        b"\xa0\x03\x02\x01\x02",
        b"\x02\x01\x01",
        b"\x06\x09",
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a",
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b",
        b"\x2a\x86\x48\xce\x3d\x04\x03\x02",
        b"\x60\x86\x48\x01\x65\x03\x04\x02\x01",
        b"\x30\x00",
        b"\x05\x00",
        b"\x2b\x65\x70",
    ],
    max_len: 4096,
    short: 30_000,
    memory: 1 << 20,
};

/// Executes one input.
pub fn run(data: &[u8]) -> u64 {
    let key = der::public_key(data);
    if let Some(key) = key {
        assert!(
            data.windows(key.len()).any(|part| part == key),
            "the key is no part of the certificate"
        );
        assert!(
            der::element(key, der::SEQUENCE).is_some_and(|e| e.rest.is_empty()),
            "the key is no element"
        );
    }
    let certificate = CertificateDer::from(data);
    let parsed = ParsedCertificate::try_from(&certificate);
    if let Ok(parsed) = &parsed {
        let theirs = parsed.subject_public_key_info();
        assert_eq!(
            key,
            Some(theirs.as_ref()),
            "another key than that of rustls"
        );
    }
    let bound = binding::end_point(data);
    if let Some(hash) = &bound {
        let wanted = match hash.len() {
            28 => Sha224::digest(data).to_vec(),
            32 => Sha256::digest(data).to_vec(),
            48 => Sha384::digest(data).to_vec(),
            64 => Sha512::digest(data).to_vec(),
            n => panic!("a hash of {n} bytes"),
        };
        assert_eq!(*hash, wanted, "the hash of something else");
    }
    let refused = judge(&certificate);
    outcome((
        key.is_some(),
        parsed.is_ok(),
        bound.map(|hash| hash.len()),
        refused,
    ))
}

/// Whether the certificate is refused, asked for an issuer that is not its own, and how that is told.
fn judge(certificate: &CertificateDer<'_>) -> u64 {
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let name = ServerName::try_from("localhost").expect("a name");
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
    let ask = |roots| {
        verify::Lenient { roots, algorithms }.verify_server_cert(certificate, &[], &name, &[], now)
    };
    assert!(ask(None).is_ok(), "nothing was asked of it");
    let error: Error = ask(Some(Arc::new(RootCertStore::empty())))
        .map(|_| ())
        .expect_err("no issuer is trusted");
    let told = verify::explain(&error, "handshake failed");
    assert!(
        matches!(
            told.code(),
            ErrorCode::AuthFailed | ErrorCode::ServiceUnavailable
        ),
        "{told}"
    );
    gist(&told)
}
