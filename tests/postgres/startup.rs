//! Tests a server that lies at every step of the start-up: the client sends nothing that it should not send, and goes no further.

use std::io;
use std::time::{Duration, Instant};

use crate::support::fake_postgres::{Heard, Peer, Play, message, serve};
use syncguard::*;

const PASSWORD: &str = "sesame-open";
/// What a call here takes at the most, whatever the server does.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// How a case must end.
#[derive(Clone, Copy)]
enum End {
    /// The client goes on with a query.
    In,
    /// The client gives up with this code, having sent messages of exactly these kinds.
    Out(ErrorCode, &'static str),
}
use End::{In, Out};
use ErrorCode::{AuthFailed, Internal, InvalidArgument};

type Case = (
    &'static str,
    &'static str,
    End,
    fn(&mut Peer) -> io::Result<()>,
);

/// Lets a client meet the server of one case, within a limit.
fn meet(name: &str, query: &str, play: Play) -> (LockError, Heard) {
    let (port, heard) = serve(vec![play]);
    let url = format!("postgres://user:{PASSWORD}@localhost:{port}/db?{query}");
    let options = ClientOptions::new()
        .schema("s")
        .connect_timeout(WAIT_LIMIT)
        .operation_timeout(WAIT_LIMIT);
    let begun = Instant::now();
    let error = PostgresBackend::open(&url, &options)
        .expect("a good URL")
        .is_locked(&Key::new("k").expect("a key"), &Call::new())
        .expect_err("no server of these ever answers a query");
    assert!(
        begun.elapsed() < WAIT_LIMIT * 3 / 4,
        "{name}: ended by the limit alone: {error}"
    );
    let said = format!("{error} {error:?}");
    assert!(!said.contains(PASSWORD), "{name}: {said}");
    let heard = heard.recv_timeout(WAIT_LIMIT * 2).expect("a client");
    (error, heard)
}

fn judge(name: &str, end: End, error: &LockError, heard: &Heard) {
    match end {
        In => assert!(
            heard.kinds.trim_start_matches('p').starts_with('P'),
            "{name}: not let in: {:?}, {error}",
            heard.kinds
        ),
        Out(code, kinds) => {
            assert_eq!(heard.kinds, kinds, "{name}: {error}");
            assert_eq!(error.code(), code, "{name}: {error}");
            assert!(!error.may_have_applied(), "{name}: {error}");
        }
    }
}

const SCRAM: &[&str] = &["SCRAM-SHA-256"];

/// Goes on as if all were well, after a lie.
fn consent(peer: &mut Peer) -> io::Result<()> {
    peer.auth(0, b"")?;
    peer.welcome()
}

/// The cases without TLS.
const PLAIN: &[Case] = &[
    ("trust", "", In, |peer| {
        peer.introduction()?;
        consent(peer)
    }),
    ("a password in the clear", "", In, |peer| {
        peer.introduction()?;
        peer.auth(3, b"")?;
        peer.receive()?;
        consent(peer)
    }),
    ("md5", "", In, |peer| {
        peer.introduction()?;
        peer.auth(5, b"salt")?;
        peer.receive()?;
        consent(peer)
    }),
    ("SCRAM", "", In, |peer| {
        peer.introduction()?;
        let scram = peer.scram(SCRAM, PASSWORD)?;
        assert_eq!(scram.header, "n,,");
        consent(peer)
    }),
    // SCRAM, with a lie in it.
    (
        "a server that does not know the password",
        "",
        Out(AuthFailed, "pp"),
        |peer| {
            peer.introduction()?;
            peer.scram(SCRAM, "something else")?;
            consent(peer)
        },
    ),
    (
        "no proof in the last message",
        "",
        Out(AuthFailed, "pp"),
        |peer| last(peer, "v="),
    ),
    (
        "an error for a proof, then consent",
        "",
        Out(AuthFailed, "pp"),
        |peer| last(peer, "e=other-error"),
    ),
    ("an empty last message", "", Out(AuthFailed, "pp"), |peer| {
        last(peer, "")
    }),
    (
        "a proof of another length",
        "",
        Out(AuthFailed, "pp"),
        |peer| last(peer, "v=AAAA"),
    ),
    (
        "consent in place of the proof",
        "",
        Out(Internal, "pp"),
        |peer| {
            peer.introduction()?;
            let mut scram = peer.scram_first(SCRAM)?;
            let first = scram.first(4096);
            peer.auth(11, first.as_bytes())?;
            peer.receive()?;
            consent(peer)
        },
    ),
    (
        "consent in place of the challenge",
        "",
        Out(Internal, "p"),
        |peer| {
            peer.introduction()?;
            peer.scram_first(SCRAM)?;
            consent(peer)
        },
    ),
    (
        "the last message in place of the challenge",
        "",
        Out(Internal, "p"),
        |peer| {
            peer.introduction()?;
            peer.scram_first(SCRAM)?;
            peer.auth(12, b"v=AAAA")?;
            consent(peer)
        },
    ),
    ("the challenge twice", "", Out(Internal, "pp"), |peer| {
        peer.introduction()?;
        let mut scram = peer.scram_first(SCRAM)?;
        let first = scram.first(4096);
        peer.auth(11, first.as_bytes())?;
        peer.receive()?;
        peer.auth(11, first.as_bytes())?;
        consent(peer)
    }),
    (
        "a password in place of the challenge",
        "",
        Out(Internal, "p"),
        |peer| {
            peer.introduction()?;
            peer.scram_first(SCRAM)?;
            peer.auth(3, b"")
        },
    ),
    ("another nonce", "", Out(Internal, "p"), |peer| {
        peer.introduction()?;
        let mut scram = peer.scram_first(SCRAM)?;
        let first = scram.first_of("anothernonce", 4096);
        peer.auth(11, first.as_bytes())?;
        peer.receive().map(drop)
    }),
    ("no rounds", "", Out(Internal, "p"), |peer| {
        rounds(peer, "0")
    }),
    ("a million rounds and one", "", Out(Internal, "p"), |peer| {
        rounds(peer, "1000001")
    }),
    ("rounds of 33 bits", "", Out(Internal, "p"), |peer| {
        rounds(peer, "4294967296")
    }),
    ("rounds below zero", "", Out(Internal, "p"), |peer| {
        rounds(peer, "-1")
    }),
    ("no salt", "", Out(Internal, "p"), |peer| {
        peer.introduction()?;
        let scram = peer.scram_first(SCRAM)?;
        let first = format!("r={}x,s=%%%,i=4096", scram.nonce());
        peer.auth(11, first.as_bytes())?;
        peer.receive().map(drop)
    }),
    ("no mechanism", "", Out(AuthFailed, ""), |peer| {
        peer.introduction()?;
        peer.scram_first(&[]).map(drop)
    }),
    ("an unknown mechanism", "", Out(AuthFailed, ""), |peer| {
        peer.introduction()?;
        peer.scram_first(&["SCRAM-SHA-1", "PLAIN"]).map(drop)
    }),
    (
        "binding offered where there is no TLS",
        "",
        Out(AuthFailed, ""),
        |peer| {
            peer.introduction()?;
            peer.scram_first(&["SCRAM-SHA-256-PLUS"]).map(drop)
        },
    ),
    // Requests that do not come one at a time.
    (
        "a password after SCRAM has succeeded",
        "",
        Out(Internal, "pp"),
        |peer| {
            peer.introduction()?;
            peer.scram(SCRAM, PASSWORD)?;
            peer.auth(3, b"")?;
            peer.receive()?;
            consent(peer)
        },
    ),
    ("SCRAM twice", "", Out(Internal, "pp"), |peer| {
        peer.introduction()?;
        peer.scram(SCRAM, PASSWORD)?;
        peer.scram(SCRAM, PASSWORD)?;
        consent(peer)
    }),
    ("the password twice", "", Out(Internal, "p"), |peer| {
        peer.introduction()?;
        peer.auth(3, b"")?;
        peer.receive()?;
        peer.auth(3, b"")?;
        peer.receive()?;
        consent(peer)
    }),
    (
        "a password after the consent",
        "",
        Out(Internal, ""),
        |peer| {
            peer.introduction()?;
            peer.auth(0, b"")?;
            peer.auth(3, b"")?;
            peer.receive()?;
            peer.welcome()
        },
    ),
    ("consent twice", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        peer.auth(0, b"")?;
        consent(peer)
    }),
    (
        "the last message of SCRAM, unasked",
        "",
        Out(Internal, ""),
        |peer| {
            peer.introduction()?;
            peer.auth(12, b"v=AAAA")?;
            consent(peer)
        },
    ),
    (
        "the challenge of SCRAM, unasked",
        "",
        Out(Internal, ""),
        |peer| {
            peer.introduction()?;
            peer.auth(11, b"r=a,s=YWJj,i=4096")?;
            consent(peer)
        },
    ),
    ("Kerberos", "", Out(AuthFailed, ""), |peer| {
        peer.introduction()?;
        peer.auth(2, b"")
    }),
    ("GSS", "", Out(AuthFailed, ""), |peer| {
        peer.introduction()?;
        peer.auth(7, b"")
    }),
    ("SSPI", "", Out(AuthFailed, ""), |peer| {
        peer.introduction()?;
        peer.auth(9, b"")
    }),
    ("an unknown request", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        peer.auth(99, b"")
    }),
    // What follows the consent, before it.
    ("ready without consent", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        peer.ready(b'I')
    }),
    (
        "a session's key without consent",
        "",
        Out(Internal, ""),
        |peer| {
            peer.introduction()?;
            peer.key_data()?;
            peer.ready(b'I')
        },
    ),
    (
        "a parameter without consent",
        "",
        Out(Internal, ""),
        |peer| {
            peer.introduction()?;
            peer.welcome()
        },
    ),
    (
        "ready in the midst of SCRAM",
        "",
        Out(Internal, "p"),
        |peer| {
            peer.introduction()?;
            peer.scram_first(SCRAM)?;
            peer.ready(b'I')
        },
    ),
    (
        "ready after SCRAM, without consent",
        "",
        Out(Internal, "pp"),
        |peer| {
            peer.introduction()?;
            peer.scram(SCRAM, PASSWORD)?;
            peer.ready(b'I')
        },
    ),
    // What follows it, garbled.
    ("ready in a transaction", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        peer.auth(0, b"")?;
        peer.ready(b'T')
    }),
    ("a session's key cut short", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        peer.auth(0, b"")?;
        peer.send(b'K', &[0, 0, 0])?;
        peer.ready(b'I')
    }),
    (
        "a session's key that is too long",
        "",
        Out(Internal, ""),
        |peer| {
            peer.introduction()?;
            peer.auth(0, b"")?;
            peer.send(b'K', &[7; 40])?;
            peer.ready(b'I')
        },
    ),
    ("two keys of a session", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        peer.auth(0, b"")?;
        peer.key_data()?;
        peer.key_data()?;
        peer.ready(b'I')
    }),
    ("another encoding", "", Out(InvalidArgument, ""), |peer| {
        peer.introduction()?;
        peer.auth(0, b"")?;
        peer.send(b'S', b"client_encoding\0LATIN1\0")?;
        peer.welcome()
    }),
    ("a row", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        peer.auth(0, b"")?;
        peer.send(b'D', &[0, 0])?;
        peer.welcome()
    }),
    ("a refusal", "", Out(AuthFailed, ""), |peer| {
        peer.introduction()?;
        peer.send(b'E', b"SFATAL\0VFATAL\0C28000\0Mno\0\0")
    }),
    (
        "a refusal in the midst of SCRAM",
        "",
        Out(AuthFailed, "p"),
        |peer| {
            peer.introduction()?;
            peer.scram_first(SCRAM)?;
            peer.send(b'E', b"SFATAL\0VFATAL\0C28P01\0Mno\0\0")
        },
    ),
    ("a length below four", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        peer.raw(b"R\0\0\0\x03")
    }),
    ("a length of two gigabytes", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        peer.raw(b"R\x7f\xff\xff\xff")
    }),
    ("a length below zero", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        peer.raw(b"R\xff\xff\xff\xff")
    }),
    // Messages without end.
    ("notices without end", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        flood(
            peer,
            &message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mhello\0\0"),
        )
    }),
    ("parameters without end", "", Out(Internal, ""), |peer| {
        peer.introduction()?;
        peer.auth(0, b"")?;
        flood(peer, &message(b'S', b"a\0b\0"))
    }),
    (
        "notices without end in the midst of SCRAM",
        "",
        Out(Internal, "p"),
        |peer| {
            peer.introduction()?;
            peer.scram_first(SCRAM)?;
            flood(
                peer,
                &message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mhello\0\0"),
            )
        },
    ),
];

/// SCRAM up to this last message, and consent.
fn last(peer: &mut Peer, text: &str) -> io::Result<()> {
    peer.introduction()?;
    let mut scram = peer.scram_first(SCRAM)?;
    let first = scram.first(4096);
    peer.auth(11, first.as_bytes())?;
    peer.receive()?;
    peer.auth(12, text.as_bytes())?;
    consent(peer)
}

/// A challenge with this number of rounds.
fn rounds(peer: &mut Peer, count: &str) -> io::Result<()> {
    peer.introduction()?;
    let scram = peer.scram_first(SCRAM)?;
    let first = format!("r={}x,s=c2FsdHNhbHQ=,i={count}", scram.nonce());
    peer.auth(11, first.as_bytes())?;
    peer.receive().map(drop)
}

/// The same message again and again, until the client has hung up.
fn flood(peer: &mut Peer, message: &[u8]) -> io::Result<()> {
    let many = message.repeat(1000);
    loop {
        peer.raw(&many)?;
    }
}

#[test]
fn whatever_a_server_says_in_clear_text() {
    for (name, more, end, play) in PLAIN {
        let query = format!("sslmode=disable{more}");
        let (error, heard) = meet(name, &query, Box::new(*play));
        judge(name, *end, &error, &heard);
    }
}

mod under_tls {
    use super::*;
    use crate::support::fake_postgres::{Identity, Scram};
    use ErrorCode::ServiceUnavailable;
    use std::sync::OnceLock;

    fn identity() -> &'static Identity {
        static ONE: OnceLock<Identity> = OnceLock::new();
        ONE.get_or_init(Identity::new)
    }

    fn begin(peer: &mut Peer) -> io::Result<()> {
        peer.encrypt(identity())?;
        peer.introduction()
    }

    const BOTH: &[&str] = &["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"];
    const REQUIRED: &str = "sslmode=require&channel_binding=require";
    const USUAL: &str = "sslmode=require";

    const CASES: &[Case] = &[
        ("trust", USUAL, In, |peer| {
            begin(peer)?;
            consent(peer)
        }),
        ("SCRAM with binding", REQUIRED, In, |peer| {
            begin(peer)?;
            let mut scram = peer.scram_first(BOTH)?;
            assert_eq!(scram.mechanism, "SCRAM-SHA-256-PLUS");
            assert_eq!(scram.header, "p=tls-server-end-point,,");
            let first = scram.first(4096);
            peer.auth(11, first.as_bytes())?;
            let answer = peer.receive()?;
            use sha2::{Digest, Sha256};
            let hash = Sha256::digest(&identity().certificate);
            let bound = [b"p=tls-server-end-point,,", &hash[..]].concat();
            assert_eq!(Scram::binding(&answer), bound);
            let last = scram.last(&answer, PASSWORD);
            peer.auth(12, last.as_bytes())?;
            consent(peer)
        }),
        ("binding is used where it is offered", USUAL, In, |peer| {
            begin(peer)?;
            let scram = peer.scram(BOTH, PASSWORD)?;
            assert_eq!(scram.mechanism, "SCRAM-SHA-256-PLUS");
            consent(peer)
        }),
        (
            "a server that takes the offer of binding away is told so",
            USUAL,
            In,
            |peer| {
                begin(peer)?;
                let scram = peer.scram(SCRAM, PASSWORD)?;
                assert_eq!(scram.header, "y,,");
                consent(peer)
            },
        ),
        (
            "only binding is offered, and it is turned off",
            "sslmode=require&channel_binding=disable",
            Out(AuthFailed, ""),
            |peer| {
                begin(peer)?;
                peer.scram_first(&["SCRAM-SHA-256-PLUS"]).map(drop)
            },
        ),
        (
            "no binding if it is turned off",
            "sslmode=require&channel_binding=disable",
            In,
            |peer| {
                begin(peer)?;
                let scram = peer.scram(BOTH, PASSWORD)?;
                assert_eq!(scram.mechanism, "SCRAM-SHA-256");
                assert_eq!(scram.header, "n,,");
                consent(peer)
            },
        ),
        // Binding is required, and the server wants something else.
        (
            "required: a password in the clear",
            REQUIRED,
            Out(AuthFailed, ""),
            |peer| {
                begin(peer)?;
                peer.auth(3, b"")?;
                peer.receive()?;
                consent(peer)
            },
        ),
        ("required: md5", REQUIRED, Out(AuthFailed, ""), |peer| {
            begin(peer)?;
            peer.auth(5, b"salt")?;
            peer.receive()?;
            consent(peer)
        }),
        (
            "required: SCRAM without binding",
            REQUIRED,
            Out(AuthFailed, ""),
            |peer| {
                begin(peer)?;
                peer.scram(SCRAM, PASSWORD)?;
                consent(peer)
            },
        ),
        ("required: GSS", REQUIRED, Out(AuthFailed, ""), |peer| {
            begin(peer)?;
            peer.auth(7, b"")
        }),
        (
            "required: consent at once",
            REQUIRED,
            Out(AuthFailed, ""),
            |peer| {
                begin(peer)?;
                consent(peer)
            },
        ),
        (
            "required: ready at once",
            REQUIRED,
            Out(Internal, ""),
            |peer| {
                begin(peer)?;
                peer.welcome()
            },
        ),
        (
            "required: a server that does not know the password",
            REQUIRED,
            Out(AuthFailed, "pp"),
            |peer| {
                begin(peer)?;
                peer.scram(BOTH, "something else")?;
                consent(peer)
            },
        ),
        (
            "required: a password after SCRAM with binding",
            REQUIRED,
            Out(Internal, "pp"),
            |peer| {
                begin(peer)?;
                peer.scram(BOTH, PASSWORD)?;
                peer.auth(3, b"")?;
                peer.receive()?;
                consent(peer)
            },
        ),
        // The answer to the question for TLS.
        (
            "no TLS where it is asked for",
            USUAL,
            Out(ServiceUnavailable, ""),
            |peer| {
                peer.ssl_request()?;
                peer.raw(b"N")?;
                peer.introduction()
            },
        ),
        (
            "no TLS where binding is required",
            "sslmode=prefer&channel_binding=require",
            Out(AuthFailed, ""),
            |peer| {
                peer.ssl_request()?;
                peer.raw(b"N")?;
                peer.introduction()
            },
        ),
        (
            "no TLS where it is preferred, and a password asked for in the clear",
            "sslmode=prefer",
            Out(AuthFailed, ""),
            |peer| {
                peer.ssl_request()?;
                peer.raw(b"N")?;
                peer.introduction()?;
                peer.auth(3, b"")
            },
        ),
        (
            "another word than yes or no",
            "sslmode=prefer",
            Out(Internal, ""),
            |peer| {
                peer.ssl_request()?;
                peer.raw(b"G")?;
                peer.introduction()
            },
        ),
        (
            "an error for an answer",
            "sslmode=prefer",
            Out(Internal, ""),
            |peer| {
                peer.ssl_request()?;
                peer.send(b'E', b"SFATAL\0VFATAL\0C28000\0Mno\0\0")?;
                peer.introduction()
            },
        ),
        (
            "a consent in the clear before the handshake",
            USUAL,
            // The client's part of the handshake is all that it sends.
            Out(ServiceUnavailable, "\u{16}"),
            |peer| {
                peer.ssl_request()?;
                let welcome = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
                peer.raw(&[b"S", &welcome[..]].concat())
            },
        ),
    ];

    #[test]
    fn whatever_a_server_says_under_tls() {
        for (name, query, end, play) in CASES {
            let (error, heard) = meet(name, query, Box::new(*play));
            judge(name, *end, &error, &heard);
            let plain = name.starts_with("no TLS where it is preferred");
            let early = heard.introduced && !plain && name.contains("TLS where");
            assert!(!early, "{name}: the user's name was sent");
            let bytes = &heard.bytes;
            assert!(
                !bytes
                    .windows(PASSWORD.len())
                    .any(|w| w == PASSWORD.as_bytes()),
                "{name}: the password was sent"
            );
        }
    }
}

/// Where there can be no TLS, binding cannot be had: that is said before anything is sent.
#[test]
fn binding_without_tls_is_refused_before_any_connection() {
    for url in [
        "postgres://user:secret@localhost:1/db?sslmode=disable&channel_binding=require",
        "postgres://user:secret@/db?host=/nowhere&channel_binding=require",
    ] {
        let error = PostgresBackend::open(url, &ClientOptions::new()).expect_err("no TLS");
        assert_eq!(error.code(), InvalidArgument, "{error}");
        assert!(error.message().contains("TLS"), "{error}");
    }
}
