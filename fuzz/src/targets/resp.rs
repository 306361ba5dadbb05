//! The replies of a Redis server, as bytes, to the parser.
//!
//! What it accepts lies within the input and its limits; is the same reply without the bytes behind it, and encoded anew; and no beginning
//! of it is refused or a reply of its own.

use crate::engine::Target;
use crate::outcome;

#[allow(dead_code, missing_docs)]
#[path = "../../../src/stores/redis/resp.rs"]
mod parser;

use parser::{ParsedReply, Reply, parse};

/// How it is run.
pub const TARGET: Target = Target {
    name: "resp",
    run,
    words: &[
        b"\r\n",
        b"+",
        b"-",
        b":",
        b"$",
        b"*",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"$0\r\n\r\n",
        b"*2048\r\n",
        b"*2049\r\n",
        b"*1\r\n",
        b"$1048576\r\n",
        b"$1048577\r\n",
        b":9223372036854775807\r\n",
        b"-ERR x\r\n",
        b"+OK\r\n",
    ],
    max_len: 8192,
    short: 40_000,
    // A hundred bytes for each of 2048 parts, four deep, would be less.
    memory: 1 << 20,
};

/// The same reply as a server would send it.
fn encode(reply: &Reply, out: &mut Vec<u8>) {
    match reply {
        Reply::Status(text) => out.extend(format!("+{text}\r\n").bytes()),
        Reply::Error(text) => out.extend(format!("-{text}\r\n").bytes()),
        Reply::Integer(n) => out.extend(format!(":{n}\r\n").bytes()),
        Reply::Nil => out.extend(b"$-1\r\n"),
        Reply::Bulk(bytes) => {
            out.extend(format!("${}\r\n", bytes.len()).bytes());
            out.extend(bytes);
            out.extend(b"\r\n");
        }
        Reply::Array(items) => {
            out.extend(format!("*{}\r\n", items.len()).bytes());
            items.iter().for_each(|item| encode(item, out));
        }
    }
}

/// How deep a reply is, and how many parts it has.
fn size(reply: &Reply) -> (usize, usize) {
    let Reply::Array(items) = reply else {
        return (0, 1);
    };
    let inside = items.iter().map(size);
    inside.fold((1, 1), |(depth, parts), (d, p)| {
        (depth.max(d + 1), parts + p)
    })
}

/// Whether a line of it would be longer once the bytes that are no text are replaced.
fn has_replacements(reply: &Reply) -> bool {
    match reply {
        Reply::Status(text) | Reply::Error(text) => text.contains('\u{fffd}'),
        Reply::Array(items) => items.iter().any(has_replacements),
        _ => false,
    }
}

/// How many complete replies, or commands, which have the same form, the bytes begin with.
pub(crate) fn count(mut bytes: &[u8]) -> usize {
    let mut complete = 0;
    while let Ok(Some(parsed)) = parse(bytes) {
        complete += 1;
        bytes = &bytes[parsed.bytes..];
    }
    complete
}

/// Executes one input.
pub fn run(data: &[u8]) -> u64 {
    let ParsedReply { reply, bytes } = match parse(data) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return outcome("not complete"),
        Err(malformed) => {
            // More bytes do not make it well formed.
            let longer = [data, b"\r\n"].concat();
            assert!(
                parse(&longer).is_err(),
                "a refused reply is accepted with more bytes"
            );
            return outcome(malformed.reason);
        }
    };
    assert!(
        bytes <= data.len() && bytes <= 1 << 20,
        "{bytes} of {} bytes",
        data.len()
    );
    let (depth, parts) = size(&reply);
    assert!(depth <= 4 && parts <= 2048, "{parts} parts, {depth} deep");
    let alone = parse(&data[..bytes]);
    assert_eq!(
        alone,
        Ok(Some(ParsedReply {
            reply: reply.clone(),
            bytes
        })),
        "it depends on what follows"
    );
    // All beginnings of a short one, some of a long one.
    for cut in (0..bytes).step_by(1 + bytes / 64) {
        assert_eq!(
            parse(&data[..cut]),
            Ok(None),
            "the first {cut} of {bytes} bytes"
        );
    }
    let mut anew = Vec::new();
    encode(&reply, &mut anew);
    if !has_replacements(&reply) {
        let again = parse(&anew).expect("well formed").expect("complete");
        assert_eq!((again.reply, again.bytes), (reply.clone(), anew.len()));
    }
    outcome((depth, parts.min(8), std::mem::discriminant(&reply)))
}
