//! Tests that malformed texts and bytes from outside are refused or read, in bounded time and memory, and that no message repeats a
//! secret of a URL.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::mpsc::{Sender, channel};

use crate::support::verbs::{id, key, patient, ttl};
use proptest::prelude::*;
use syncguard::{
    AcquireOutcome, Backend, Call, Client, ClientOptions, Fence, Key, LockError, LockId, LookupBy,
    PostgresBackend, RedisBackend,
};

/// Where a secret stands in the texts below. It is no word of any message.
const SECRET: &str = "hunter2zq";

fn schemes() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "redis://",
        "rediss://",
        "redis+unix://",
        "redis+sentinel://",
        "rediss+sentinel://",
        "redis+cluster://",
        "postgres://",
        "postgresql://",
        "sqlite:",
        "sqlite://",
        "host=",
        "",
    ])
}

/// A text made of what URLs are made of, of the secret, and of what they are not made of.
fn mess() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        proptest::sample::select(vec![
            "user",
            "localhost",
            "127.0.0.1",
            "[::1]",
            "[::1",
            "]",
            ":6379",
            ":0",
            ":65536",
            ":99999999999999999999",
            "/0",
            "/4294967296",
            "db",
            "sslmode=",
            "require",
            "connect_timeout=",
            "password=",
            "sentinel_password=",
            "pass=",
            "main",
            "{app}",
            "'",
            "\\",
        ])
        .prop_map(str::to_owned),
        proptest::sample::select(":/@?#&=%,;[] \t\0\n+".chars().collect::<Vec<_>>())
            .prop_map(String::from),
        proptest::sample::select(vec!["%", "%0", "%00", "%2F", "%40", "%ff", "%zz", "%C3%A9"])
            .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

/// What fails is shown, and leaves no file behind.
fn cases(n: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(n)
    }
}

fn says_nothing(error: &LockError) -> Result<(), TestCaseError> {
    let said = format!("{error} {error:?}");
    prop_assert!(!said.contains(SECRET), "{said}");
    Ok(())
}

/// A server for one connection: sends the bytes it is given and hangs up.
fn server() -> (u16, Sender<Vec<u8>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (give, bytes) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        for bytes in bytes {
            let Ok((mut peer, _)) = listener.accept() else {
                return;
            };
            // A client is answered after its first bytes; what it sends later is not awaited.
            let _ = peer.read(&mut [0; 1024]);
            let _ = peer.write_all(&bytes);
            let _ = peer.shutdown(Shutdown::Write);
            // Until it has hung up too: a reset would take the bytes away from it.
            while peer.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {}
        }
    });
    (port, give)
}

/// Replies that are nearly right: the beginning of good ones, with a byte of it changed.
fn nearly(good: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    let whole = proptest::sample::select(good.to_vec());
    (whole, any::<usize>(), any::<u8>(), any::<usize>()).prop_map(|(whole, at, byte, cut)| {
        let mut bytes = whole.to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(1 + cut % bytes.len());
        bytes
    })
}

fn noise() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..300)
}

const RESP: &[&[u8]] = &[
    b"+OK\r\n*4\r\n:1\r\n$15\r\n000000000000001\r\n:1700000000000\r\n$22\r\nJjYEnSICuoi1IlfW3NFLOw\r\n",
    b"+OK\r\n*4\r\n:0\r\n:30000\r\n$15\r\n000000000000001\r\n$22\r\nJjYEnSICuoi1IlfW3NFLOw\r\n",
    b"+OK\r\n-NOSCRIPT No matching script\r\n-ERR x\r\n",
    b"+OK\r\n$-1\r\n",
    b"+OK\r\n*1048576\r\n",
];

const PG: &[&[u8]] = &[
    // AuthenticationOk, BackendKeyData, ReadyForQuery.
    b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x02Z\0\0\0\x05I",
    // The same, and the beginning of a row with a record in it.
    b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I1\0\0\0\x042\0\0\0\x04D\0\0\0\x1a\0\x01\0\0\0\x10\0\0\0\x01\0\0\0\x10\0\0\0\x01\x01\0\0\0Z\0\0\0\x05I",
    // SASL with SCRAM, a challenge, an error, a notice.
    b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0",
    b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0R\0\0\0\x20\0\0\0\x0br=abc,s=YWJj,i=4294967295",
    b"E\0\0\0\x1dSFATAL\0C28P01\0Mnot you\0\0",
    b"N\0\0\0\x10SNOTICE\0Mx\0\0D\x7f\xff\xff\xff",
];

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn any_text_is_opened_or_refused_without_its_secret(scheme in schemes(), before in mess(), after in mess()) {
        for url in [
            format!("{scheme}user:{SECRET}@{after}"),
            format!("{scheme}{before}:{SECRET}{after}"),
            format!("{scheme}{before}{after}"),
        ] {
            match Client::open_with(&url, &ClientOptions::new().key_prefix("{app}")) {
                Ok(client) => {
                    let shown = format!("{client:?}");
                    prop_assert!(!shown.contains(SECRET), "{}", shown);
                }
                Err(error) => says_nothing(&error)?,
            }
        }
    }

    #[test]
    fn any_text_is_a_key_an_id_or_neither(text in "\\PC{0,700}", ascii in "[ -~]{0,30}") {
        for text in [&text, &ascii] {
            if let Ok(key) = Key::new(text) {
                prop_assert!((1..=512).contains(&key.as_str().len()));
            }
            if let Ok(id) = LockId::parse(text) {
                prop_assert_eq!(id.as_str(), text);
            }
            if let Ok(fence) = Fence::parse(text) {
                prop_assert_eq!(&fence.to_string(), text);
            }
        }
    }
}

#[test]
fn whatever_a_redis_server_sends_is_an_answer_or_an_error() {
    let (port, give) = server();
    let url = format!("redis://127.0.0.1:{port}");
    proptest!(cases(300), |(bytes in prop_oneof![nearly(RESP), noise()], verb in 0..4)| {
        give.send(bytes).expect("a server");
        let redis = RedisBackend::open(&url, &patient()).expect("a good URL");
        let (k, mine) = (key("k"), id());
        match verb {
            0 => if let Ok(AcquireOutcome::Acquired(grant)) = redis.acquire(&k, &mine, ttl(1000), &Call::new()) {
                prop_assert_eq!(grant.lock_id, mine);
            },
            1 => drop(redis.release(&mine, &Call::new())),
            2 => drop(redis.find(LookupBy::Key(&k), &Call::new())),
            _ => drop(redis.check(&Call::new())),
        }
    });
}

#[test]
fn whatever_a_postgres_server_sends_is_an_answer_or_an_error() {
    let (port, give) = server();
    let url = format!("postgres://user:{SECRET}@127.0.0.1:{port}/db?sslmode=disable");
    proptest!(cases(300), |(bytes in prop_oneof![nearly(PG), noise()], verb in 0..3)| {
        give.send(bytes).expect("a server");
        let store = PostgresBackend::open(&url, &patient()).expect("a good URL");
        let (k, mine) = (key("k"), id());
        let error = match verb {
            0 => store.acquire(&k, &mine, ttl(1000), &Call::new()).map(drop).err(),
            1 => store.extend(&mine, ttl(1000), &Call::new()).map(drop).err(),
            _ => store.find(LookupBy::Key(&k), &Call::new()).map(drop).err(),
        };
        if let Some(error) = error {
            says_nothing(&error)?;
        }
    });
}
