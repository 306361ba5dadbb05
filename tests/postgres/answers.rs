//! Tests how much a server may send to a client that is logged in: not more than a client can use.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::fake_postgres::{Identity, Peer, message, serve};
use crate::support::process;
use syncguard::*;

/// What a call here takes at the most, whatever the server does.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// What a server may get rid of before the client hangs up: one answer, and what the sockets hold.
const ENOUGH: usize = 32 << 20;
/// How much a server sends if nothing stops it.
const FLOOD: usize = 256 << 20;

fn options() -> ClientOptions {
    ClientOptions::new()
        .schema("s")
        .connect_timeout(WAIT_LIMIT)
        .operation_timeout(WAIT_LIMIT)
}

/// A row of these values, in binary.
fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let count = u16::try_from(values.len()).expect("few columns");
    let mut body = count.to_be_bytes().to_vec();
    for value in values {
        match value {
            None => body.extend((-1i32).to_be_bytes()),
            Some(bytes) => {
                body.extend(u32::try_from(bytes.len()).expect("short").to_be_bytes());
                body.extend_from_slice(bytes);
            }
        }
    }
    message(b'D', &body)
}

/// Reads up to the end of a client's transaction.
fn until_commit(peer: &mut Peer) -> io::Result<()> {
    while !peer.heard.kinds.ends_with('Q') {
        peer.receive()?;
    }
    peer.heard.kinds.clear();
    Ok(())
}

fn committed() -> Vec<u8> {
    [
        message(b'C', b"SELECT 1\0"),
        message(b'Z', b"T"),
        message(b'C', b"COMMIT\0"),
        message(b'Z', b"I"),
    ]
    .concat()
}

/// Lets a client in, as far as its first question of its own.
fn let_in(peer: &mut Peer) -> io::Result<()> {
    peer.introduction()?;
    peer.auth(0, b"")?;
    peer.welcome()?;
    until_commit(peer)?;
    // No standby, the schema, a pooler, the time.
    let now = 1_700_000_000_000_i64.to_be_bytes();
    let first = row(&[Some(&[0]), Some(b"s"), Some(&[0]), Some(&now)]);
    peer.raw(&[first, committed()].concat())?;
    until_commit(peer)
}

/// The most memory this process has ever used, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<usize>().ok());
    kib.expect("a number") * 1024
}

/// A record of `n` NULLs.
fn record(n: u32) -> Vec<u8> {
    let field = [0, 0, 0, 25, 255, 255, 255, 255];
    let whole = [&n.to_be_bytes()[..], &field.repeat(n as usize)].concat();
    row(&[Some(&whole)])
}

pub const STAGES: &[process::Entry] = &[("answers without end", answers_without_end)];

#[test]
fn an_answer_has_an_end() {
    process::run_alone("answers without end");
}

/// Measures the memory of the whole process.
fn answers_without_end(_: &Path) {
    let nothing: Vec<Option<&[u8]>> = vec![None; 65_535];
    let large = vec![b'x'; 1_000_000];
    let cases = [
        ("rows of nothing", row(&nothing)),
        ("large rows", row(&[Some(&large)])),
        ("rows without columns", row(&[])),
        ("a record of nothing", record(100_000)),
        (
            "a record that says it has two billion fields",
            row(&[Some(&[0x7f, 255, 255, 255])]),
        ),
        (
            "notices",
            message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mhello\0\0"),
        ),
        (
            "large notices",
            message(
                b'N',
                &[b"SNOTICE\0VNOTICE\0C00000\0M", &large[..], b"\0\0"].concat(),
            ),
        ),
        (
            "large refusals",
            message(
                b'E',
                &[b"SERROR\0VERROR\0C42000\0M", &large[..], b"\0\0"].concat(),
            ),
        ),
        (
            "notifications",
            message(b'A', b"\0\0\0\x01syncguard\0text\0"),
        ),
        ("parameters", message(b'S', b"application_name\0x\0")),
        (
            "descriptions",
            message(b'T', &[&[0, 1][..], &large].concat()),
        ),
        ("ends of commands", message(b'C', b"SELECT 1\0")),
        ("prepared statements", message(b'1', b"")),
        ("a message that never ends", {
            let mut endless = message(b'D', &large);
            endless[1..5].copy_from_slice(&0x7fff_ffffu32.to_be_bytes());
            endless
        }),
    ];
    for (name, part) in cases {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let (port, _heard) = serve(vec![Box::new(move |peer: &mut Peer| {
            let_in(peer)?;
            let many = part.repeat((1 << 16) / part.len() + 1);
            while count.load(Ordering::SeqCst) < FLOOD {
                peer.raw(&many)?;
                count.fetch_add(many.len(), Ordering::SeqCst);
            }
            peer.raw(&committed())
        })]);
        let before = peak();
        let url = format!("postgres://user@127.0.0.1:{port}/db?sslmode=disable");
        let store = PostgresBackend::open(&url, &options()).expect("a good URL");
        let mine = LockId::random().expect("an id");
        let begun = Instant::now();
        let error = store
            .release(&mine, &Call::new())
            .map(drop)
            .expect_err(name);
        assert!(
            begun.elapsed() < WAIT_LIMIT,
            "{name}: ended by the limit alone"
        );
        assert_eq!(error.code(), ErrorCode::Internal, "{name}: {error}");
        assert!(error.message().len() < 300, "{name}: {error}");
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < ENOUGH, "{name}: {sent} bytes were taken in");
        let used = peak().saturating_sub(before);
        assert!(used < ENOUGH, "{name}: {used} bytes of memory");
    }
}

/// What a client makes of the row of a lock that is held, if its transaction ends with `end`.
fn is_locked_says(end: &'static [u8]) -> Result<bool, LockError> {
    let (port, _heard) = serve(vec![Box::new(move |peer: &mut Peer| {
        let_in(peer)?;
        let (expires, now) = (2_000_i64.to_be_bytes(), 1_000_i64.to_be_bytes());
        let answer = [
            row(&[Some(&expires), Some(&now)]),
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"T"),
            message(b'C', end),
            message(b'Z', b"I"),
        ];
        peer.raw(&answer.concat())?;
        peer.receive().map(drop)
    })]);
    let url = format!("postgres://user@127.0.0.1:{port}/db?sslmode=disable");
    let store = PostgresBackend::open(&url, &options()).expect("a good URL");
    store.is_locked(&Key::new("k").expect("a key"), &Call::new())
}

#[test]
fn a_row_of_a_transaction_that_was_rolled_back_is_no_answer() {
    assert!(is_locked_says(b"COMMIT\0").expect("an answer"));
    let error = is_locked_says(b"ROLLBACK\0").expect_err("no answer");
    assert_eq!(error.code(), ErrorCode::Internal, "{error}");
}

/// The key that cancels a query goes the way of the session, or not at all.
#[test]
fn a_cancel_is_as_private_as_its_session() {
    let identity = Identity::new();
    let key = vec![0, 0, 0, 7, 0, 0, 0, 9];
    type Answer = fn(&mut Peer, &Identity) -> io::Result<()>;
    type Cancel = (Vec<u8>, bool);
    let cases: [(&str, Answer, Option<Cancel>); 3] = [
        (
            "TLS again",
            |peer, identity| {
                peer.encrypt(identity)?;
                peer.introduction()
            },
            Some((key, true)),
        ),
        (
            "no TLS this time",
            |peer, _| {
                peer.ssl_request()?;
                peer.raw(b"N")?;
                peer.introduction()
            },
            None,
        ),
        (
            "silence",
            |peer, _| {
                peer.ssl_request()?;
                peer.introduction()
            },
            None,
        ),
    ];
    for (name, answer, expected) in cases {
        let (first, second) = (identity.clone(), identity.clone());
        let (port, heard) = serve(vec![
            Box::new(move |peer: &mut Peer| {
                peer.encrypt(&first)?;
                let_in(peer)?;
                // Nothing comes until the client gives up.
                peer.receive().map(drop)
            }),
            Box::new(move |peer: &mut Peer| answer(peer, &second)),
        ]);
        let url = format!("postgres://user@localhost:{port}/db?sslmode=require");
        let short = options().operation_timeout(Duration::from_secs(1));
        let store = PostgresBackend::open(&url, &short).expect("a good URL");
        let error = store
            .is_locked(&Key::new("k").expect("a key"), &Call::new())
            .expect_err("silence");
        assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{name}: {error}");
        let both: Vec<_> = (0..2)
            .map(|_| heard.recv_timeout(WAIT_LIMIT * 2).expect("two clients"))
            .collect();
        assert!(
            both.iter().all(|h| h.asked_for_tls),
            "{name}: in clear text"
        );
        let cancels: Vec<_> = both.iter().filter_map(|h| h.cancel.clone()).collect();
        assert_eq!(cancels, expected.into_iter().collect::<Vec<_>>(), "{name}");
    }
}
