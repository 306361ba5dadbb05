//! A server's side of a whole session of the Redis store: login, scripts and their replies, over a socket.
//!
//! The first byte chooses the verb and how the client logs in, the pieces behind it are sent after one request each.

use std::path::PathBuf;
use std::sync::OnceLock;

use syncguard::RedisBackend;

use crate::engine::Target;
use crate::folder;
use crate::server::{Server, pieces};

/// How it is run.
pub const TARGET: Target = Target {
    name: "redis_session",
    run,
    words: &[
        b"+OK\r\n",
        b"\r\n",
        b"$-1\r\n",
        b":0\r\n",
        b":1\r\n",
        b":-1\r\n",
        b":-2\r\n",
        b":-3\r\n",
        b"*2\r\n",
        b"*3\r\n",
        b"*4\r\n",
        b"$15\r\n000000000000001\r\n",
        b"$22\r\nJjYEnSICuoi1IlfW3NFLOw\r\n",
        b"-NOSCRIPT x\r\n",
        b"-ERR x\r\n",
        b"-MOVED 1 h:1\r\n",
        b"-NOPERM no permissions to run the 'evalsha' command\r\n",
        b"-LOADING x\r\n",
        b"-READONLY x\r\n",
        b"-OOM x\r\n",
        b"-BUSY x\r\n",
        b"-ERR Error running script: @user_script:1: ",
        b"-WRONGPASS hunter2zq\r\n",
        b"-SYNCGUARD_FOREIGN x\r\n",
        b"maxmemory_policy:",
        b"aof_enabled:1\r\n",
        b"allkeys-lru",
        b"appendfsync",
        b"no-appendfsync-on-rewrite",
        b"always",
    ],
    max_len: 8192,
    short: 3_000,
    memory: 4 << 20,
};

/// Executes one input.
pub fn run(data: &[u8]) -> u64 {
    static SERVER: OnceLock<(Server, PathBuf)> = OnceLock::new();
    let (server, path) = SERVER.get_or_init(|| {
        let path = folder().join("redis");
        (Server::on_socket(&path, super::resp::count), path)
    });
    let (&head, rest) = data.split_first().unwrap_or((&0, &[]));
    server.set(pieces(rest));
    let login = match head >> 6 {
        0 => "",
        1 => "?pass=hunter2zq",
        2 => "?user=app&pass=hunter2zq",
        _ => "?db=7&user=app&pass=hunter2zq",
    };
    let url = format!("redis+unix://{}{login}", path.display());
    let store = RedisBackend::open(&url, &super::options()).expect("a good URL");
    super::verb(&store, head & 0x3f, &super::SECRETS)
}
