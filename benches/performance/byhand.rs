//! The lock that people write themselves: `SET … NX PX` with a token, and a script that deletes the key if the token is still there.

use std::path::Path;

use syncguard::LockId;

use super::callers::{Caller, TTL, ids};
use super::redisraw::RedisSession;

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A caller with a connection of its own.
pub struct ByHand {
    session: RedisSession,
    script: String,
    key: String,
    ttl_ms: String,
    tokens: Vec<LockId>,
    next: usize,
}

impl ByHand {
    pub fn open(socket: &Path, key: &str) -> Result<Self, String> {
        let mut session = RedisSession::open(socket)?;
        Ok(Self {
            script: session.load(COMPARE_AND_DELETE)?,
            session,
            // The library's locks have names of their own.
            key: format!("by-hand:{key}"),
            ttl_ms: TTL.as_millis().to_string(),
            tokens: ids()?,
            next: 0,
        })
    }
}

impl Caller for ByHand {
    fn acquire(&mut self) -> Result<bool, String> {
        self.next = (self.next + 1) % self.tokens.len();
        let token = self.tokens[self.next];
        let set = ["SET", &self.key, token.as_str(), "NX", "PX", &self.ttl_ms];
        Ok(self.session.call(&set)? == "+OK\r\n")
    }

    fn release(&mut self) -> Result<(), String> {
        let token = self.tokens[self.next];
        let delete = ["EVALSHA", &self.script, "1", &self.key, token.as_str()];
        match &*self.session.call(&delete)? {
            ":1\r\n" => Ok(()),
            other => Err(format!("compare and delete: {other}")),
        }
    }
}
