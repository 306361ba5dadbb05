//! A server's side of a whole session of the Postgres store: start-up, authentication, settings, rows, refusals, over a socket.
//!
//! The first byte chooses the verb and the URL, the pieces behind it are sent one after the other.

use std::sync::OnceLock;

use syncguard::PostgresBackend;

use crate::engine::Target;
use crate::server::{Server, pieces};
use crate::{SECRET, folder};

/// How it is run.
pub const TARGET: Target = Target {
    name: "postgres_session",
    run,
    words: &[
        b"R\0\0\0\x08\0\0\0\0",
        b"R\0\0\0\x08\0\0\0\x03",
        b"R\0\0\0\x0c\0\0\0\x05salt",
        b"Z\0\0\0\x05I",
        b"Z\0\0\0\x05T",
        b"Z\0\0\0\x05E",
        b"1\0\0\0\x04",
        b"2\0\0\0\x04",
        b"n\0\0\0\x04",
        b"C\0\0\0\x0bCOMMIT\0",
        b"C\0\0\0\x0dSELECT 1\0",
        b"C\0\0\0\x0aBEGIN\0",
        b"D\0\0\0\x06\0\0",
        b"D\0\0\0\x0a\0\x01\xff\xff\xff\xff",
        b"K\0\0\0\x0c\0\0\0\x07\0\0\0\x09",
        b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0",
        b"SCRAM-SHA-256-PLUS\0",
        b"r=",
        b",s=",
        b",i=1",
        b"E\0\0\0\x1dSERROR\0C28P01\0Mnot you\0\0",
        b"E\0\0\0\x1cSERROR\0C26000\0Mno such\0\0",
        b"N\0\0\0\x0dSWARNING\0\0",
        b"S\0\0\0\x19client_encoding\0UTF8\0",
        b"C42P01\0",
        b"C57014\0",
        b"VFATAL\0",
        b"Mhunter2zq\0",
        b"000000000000001",
        b"JjYEnSICuoi1IlfW3NFLOw",
        b"public",
    ],
    max_len: 8192,
    short: 3_000,
    memory: 8 << 20,
};

/// Executes one input.
pub fn run(data: &[u8]) -> u64 {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(|| Server::on_socket(&folder().join(".s.PGSQL.5432"), |_| 0));
    let (&head, rest) = data.split_first().unwrap_or((&0, &[]));
    // At once: this client takes from the stream only what belongs to its request.
    server.set(vec![pieces(rest).concat()]);
    let more = match head >> 6 {
        0 => "",
        1 => " pooler=yes",
        2 => " target_session_attrs=read-write",
        _ => " connect_timeout=20 application_name=x",
    };
    let url = format!(
        "host={} user=app dbname=db password={SECRET}{more}",
        folder().display()
    );
    let store = PostgresBackend::open(&url, &super::options()).expect("a good URL");
    // Some refusals are quoted, and a server that repeats the password in one is told so in its own words.
    let said = |secret: &&str| {
        rest.windows(secret.len())
            .any(|part| part == secret.as_bytes())
    };
    let unsaid: Vec<&str> = super::SECRETS
        .into_iter()
        .filter(|secret| !said(secret))
        .collect();
    super::verb(&store, head & 0x3f, &unsaid)
}
