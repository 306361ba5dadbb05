//! What a hostile server says about the way to another: the answers of sentinels, the redirections of cluster nodes, and messages on a
//! connection that listens for releases. The library's own files read it; nothing is connected to.
//!
//! The first byte chooses which of the three, the pieces behind it are answers, lines, or one stream of messages.

use syncguard_fuzz_wire::{messages, redirections, sentinels};

use crate::engine::Target;
use crate::outcome;
use crate::server::pieces;

/// How it is run.
pub const TARGET: Target = Target {
    name: "redis_routes",
    run,
    words: &[
        b"MOVED 12182 ",
        b"ASK 12182 ",
        b"10.0.0.1:7000",
        b"::1:7001",
        b":7002",
        b"?:7000",
        b":0",
        b":65536",
        b"*2\r\n$8\r\n10.0.0.1\r\n$4\r\n6379\r\n",
        b"*-1\r\n",
        b"$-1\r\n",
        b"-ERR x\r\n",
        b"-NOAUTH hunter2zq\r\n",
        b"*3\r\n$9\r\nsubscribe\r\n$17\r\nsyncguard:freed:k\r\n:1\r\n",
        b"*3\r\n$7\r\nmessage\r\n$17\r\nsyncguard:freed:k\r\n$1\r\nx\r\n",
        b"+PONG\r\n",
        b"hunter2zq",
    ],
    max_len: 4096,
    short: 20_000,
    memory: 1 << 20,
};

/// Executes one input.
pub fn run(data: &[u8]) -> u64 {
    let (&head, rest) = data.split_first().unwrap_or((&0, &[]));
    let pieces = pieces(rest);
    match head % 3 {
        0 => outcome(("sentinels", sentinels(&pieces))),
        1 => outcome(("redirections", redirections(&pieces))),
        _ => outcome(("messages", messages(&pieces.concat()))),
    }
}
