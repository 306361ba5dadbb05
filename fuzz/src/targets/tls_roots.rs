//! Any bytes as the file of trusted certificates, to a client that connects under TLS.
//!
//! A file without a usable certificate is an invalid argument that names the file; with any other one the client goes on to the server,
//! which hangs up.

use std::fs;
use std::sync::OnceLock;

use syncguard::{Backend, Call, ErrorCode, RedisBackend};

use crate::engine::Target;
use crate::server::Server;
use crate::{SECRET, folder, gist};

/// How it is run.
pub const TARGET: Target = Target {
    name: "tls_roots",
    run,
    words: &[
        b"-----BEGIN CERTIFICATE-----\n",
        b"-----END CERTIFICATE-----\n",
        b"-----BEGIN PRIVATE KEY-----\n",
        b"-----",
        b"\n",
        b"\r\n",
        b"=",
        b"==",
        b"AAAA",
        b"MIIB",
        b"\0",
        b" ",
        b"-----BEGIN ",
        b"-----END ",
        b"hunter2zq",
    ],
    max_len: 8192,
    short: 2_000,
    memory: 4 << 20,
};

/// Executes one input.
pub fn run(data: &[u8]) -> u64 {
    static PORT: OnceLock<u16> = OnceLock::new();
    let port = PORT.get_or_init(|| Server::that_hangs_up().1);
    let file = folder().join("roots.pem");
    fs::write(&file, data).expect("a file");
    let url = format!("rediss://app:{SECRET}@127.0.0.1:{port}");
    let store = RedisBackend::open(&url, &super::options().tls_ca_file(&file)).expect("a good URL");
    let error = store
        .is_locked(&super::key(), &Call::new())
        .expect_err("no server");
    match error.code() {
        ErrorCode::InvalidArgument => assert!(error.message().contains("roots.pem"), "{error}"),
        code => assert_eq!(code, ErrorCode::ServiceUnavailable, "{error}"),
    }
    assert!(!error.may_have_applied(), "{error}");
    let told = super::refused(&error, &super::SECRETS);
    // Whether the end of the connection is a reset is a matter of time.
    if error.code() == ErrorCode::ServiceUnavailable {
        1
    } else {
        told.max(gist(&error))
    }
}
