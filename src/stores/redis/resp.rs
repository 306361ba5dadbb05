//! The Redis protocol, version 2: as much of it as the lock scripts need, with a bound on everything a server may send. It uses
//! nothing of the crate.

/// The longest reply, all parts together. The largest that is expected is `INFO`, a few kilobytes.
const MAX_REPLY: usize = 1 << 20;
/// The longest line: a status, an error or a length.
const MAX_LINE: usize = 4096;
/// Enough for a page of a listing, which ends behind 1000 locks, and for `ROLE` of a primary with many replicas.
const MAX_ITEMS: usize = 2048;
const MAX_DEPTH: usize = 4;

/// One reply of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// A short text such as `OK`.
    Status(String),
    /// An error: the line after the `-`, its code first.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Several replies. A map of version 3 of the protocol is one of keys and values by turns.
    Array(Vec<Reply>),
    /// Nothing.
    Nil,
}

/// The server sent something that is not the protocol, or more of it than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) reason: &'static str,
}

/// Appends one command.
pub(crate) fn command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    header(out, b'*', parts.len());
    for part in parts {
        header(out, b'$', part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

fn header(out: &mut Vec<u8>, kind: u8, n: usize) {
    // The kind, at most twenty digits, and the end of the line, in one copy: a request has a header for every argument.
    let mut line = [0u8; 23];
    let mut at = line.len() - 2;
    line[at..].copy_from_slice(b"\r\n");
    let mut n = n;
    loop {
        at -= 1;
        // A remainder of ten is one digit.
        line[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    at -= 1;
    line[at] = kind;
    out.extend_from_slice(&line[at..]);
}

/// A complete reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedReply {
    pub(crate) reply: Reply,
    /// How many bytes of the input it takes.
    pub(crate) bytes: usize,
}

/// The first reply in `input`; `None` if it is not complete yet.
///
/// It starts from the beginning every time: a reply has at most 2048 parts, so even one that arrives a byte at a time
/// costs little, and a length is judged before any memory is set aside for it.
pub(crate) fn parse(input: &[u8]) -> Result<Option<ParsedReply>, Malformed> {
    let mut reader = Reader {
        input,
        at: 0,
        items: 0,
    };
    let reply = reader.reply(0)?;
    match reply {
        Some(_) if reader.at > MAX_REPLY => Err(TOO_LONG),
        None if input.len() > MAX_REPLY => Err(TOO_LONG),
        reply => Ok(reply.map(|reply| ParsedReply {
            reply,
            bytes: reader.at,
        })),
    }
}

const TOO_LONG: Malformed = Malformed {
    reason: "a reply is too long",
};
const NOT_REDIS: Malformed = Malformed {
    reason: "a reply is not in the Redis protocol",
};

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
    items: usize,
}

impl<'a> Reader<'a> {
    fn reply(&mut self, depth: usize) -> Result<Option<Reply>, Malformed> {
        self.items += 1;
        if self.items > MAX_ITEMS {
            return Err(Malformed {
                reason: "a reply has too many parts",
            });
        }
        let Some(&kind) = self.input.get(self.at) else {
            return Ok(None);
        };
        // Judged before the line is complete: a server of another protocol is not waited for.
        if !b"+-:$*".contains(&kind) {
            return Err(NOT_REDIS);
        }
        let Some(line) = self.line()? else {
            return Ok(None);
        };
        Ok(Some(match kind {
            b'+' => Reply::Status(text(line)),
            b'-' => Reply::Error(text(line)),
            b':' => Reply::Integer(number(line)?),
            b'$' => match length(line, MAX_REPLY)? {
                None => Reply::Nil,
                Some(n) => match self.bulk(n)? {
                    None => return Ok(None),
                    Some(bytes) => Reply::Bulk(bytes.to_vec()),
                },
            },
            _ => match length(line, MAX_ITEMS)? {
                None => Reply::Nil,
                Some(_) if depth == MAX_DEPTH => {
                    return Err(Malformed {
                        reason: "a reply is nested too deeply",
                    });
                }
                Some(n) => {
                    let mut items = Vec::with_capacity(n);
                    for _ in 0..n {
                        match self.reply(depth + 1)? {
                            None => return Ok(None),
                            Some(item) => items.push(item),
                        }
                    }
                    Reply::Array(items)
                }
            },
        }))
    }

    /// The rest of the line that starts with the kind byte.
    fn line(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let rest = &self.input[self.at + 1..];
        let window = &rest[..rest.len().min(MAX_LINE)];
        match window.iter().position(|b| *b == b'\r') {
            None if window.len() == MAX_LINE => Err(Malformed {
                reason: "a line of a reply is too long",
            }),
            None => Ok(None),
            Some(end) => match rest.get(end + 1) {
                None => Ok(None),
                Some(b'\n') => {
                    self.at += 1 + end + 2;
                    Ok(Some(&rest[..end]))
                }
                Some(_) => Err(NOT_REDIS),
            },
        }
    }

    fn bulk(&mut self, n: usize) -> Result<Option<&'a [u8]>, Malformed> {
        let rest = &self.input[self.at..];
        if rest.len() < n + 2 {
            return Ok(None);
        }
        if &rest[n..n + 2] != b"\r\n" {
            return Err(NOT_REDIS);
        }
        self.at += n + 2;
        Ok(Some(&rest[..n]))
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

fn number(line: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(line)
        .ok()
        .and_then(|s| s.parse().ok())
        .ok_or(NOT_REDIS)
}

/// A length; -1 stands for nothing at all.
fn length(line: &[u8], max: usize) -> Result<Option<usize>, Malformed> {
    match number(line)? {
        -1 => Ok(None),
        n => match usize::try_from(n) {
            Ok(n) if n <= max => Ok(Some(n)),
            Ok(_) => Err(TOO_LONG),
            Err(_) => Err(NOT_REDIS),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(input: &[u8]) -> Reply {
        let parsed = parse(input).expect("well formed").expect("complete");
        assert_eq!(parsed.bytes, input.len());
        parsed.reply
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        command(&mut out, &[b"SET", b"", b"a\r\n*1\r\n"]);
        assert_eq!(
            out,
            b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$7\r\na\r\n*1\r\n\r\n".as_slice()
        );
        out.clear();
        command(&mut out, &[&[b'x'; 1234]]);
        assert!(out.starts_with(b"*1\r\n$1234\r\nx"));
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(whole(b"+OK\r\n"), Reply::Status("OK".into()));
        assert_eq!(whole(b"-ERR no\r\n"), Reply::Error("ERR no".into()));
        assert_eq!(whole(b":-2\r\n"), Reply::Integer(-2));
        assert_eq!(whole(b"$2\r\na\n\r\n"), Reply::Bulk(b"a\n".to_vec()));
        assert_eq!(whole(b"$-1\r\n"), Reply::Nil);
        assert_eq!(whole(b"*-1\r\n"), Reply::Nil);
        assert_eq!(
            whole(b"*2\r\n:1\r\n*0\r\n"),
            Reply::Array(vec![Reply::Integer(1), Reply::Array(vec![])])
        );
    }

    #[test]
    fn what_no_lock_needs_is_refused() {
        for bad in [
            b"HTTP/1.1 400 Bad Request\r\n".as_slice(),
            b"E",
            b"%1\r\n",
            b"$2147483648\r\n",
            b"$-2\r\n",
            b"$99999999999999999999\r\n",
            b"$2\r\nabc\r\n",
            b"*2049\r\n",
            b":1x\r\n",
            b":\r\n",
            b"+a\rb\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&b"*1\r\n".repeat(1_000_000)).is_err());
        assert!(parse(&[b"+".as_slice(), &[b'x'; MAX_LINE]].concat()).is_err());
        // Each part is legal, the sum is not.
        let part = [b"$1000000\r\n".as_slice(), &[b'x'; 1_000_000], b"\r\n"].concat();
        assert!(parse(&[b"*3\r\n".as_slice(), &part, &part].concat()).is_err());
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let leaf = prop_oneof![
            "[ -~]{0,20}".prop_map(Reply::Status),
            "[ -~]{0,20}".prop_map(Reply::Error),
            any::<i64>().prop_map(Reply::Integer),
            proptest::collection::vec(any::<u8>(), 0..30).prop_map(Reply::Bulk),
            Just(Reply::Nil),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            proptest::collection::vec(inner, 0..4).prop_map(Reply::Array)
        })
    }

    fn print(reply: &Reply, out: &mut Vec<u8>) {
        match reply {
            Reply::Status(s) => out.extend(format!("+{s}\r\n").bytes()),
            Reply::Error(s) => out.extend(format!("-{s}\r\n").bytes()),
            Reply::Integer(n) => out.extend(format!(":{n}\r\n").bytes()),
            Reply::Nil => out.extend(b"$-1\r\n"),
            Reply::Bulk(b) => {
                header(out, b'$', b.len());
                out.extend_from_slice(b);
                out.extend(b"\r\n");
            }
            Reply::Array(items) => {
                header(out, b'*', items.len());
                items.iter().for_each(|i| print(i, out));
            }
        }
    }

    proptest! {
        #[test]
        fn a_reply_is_read_whole_or_not_at_all(reply in replies(), tail in proptest::collection::vec(any::<u8>(), 0..8)) {
            let mut bytes = Vec::new();
            print(&reply, &mut bytes);
            for cut in 0..bytes.len() {
                prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
            }
            let parsed = ParsedReply { reply, bytes: bytes.len() };
            bytes.extend(tail);
            prop_assert_eq!(parse(&bytes), Ok(Some(parsed)));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
