//! The verbs of the Redis store: the names and arguments of each script, and what its reply means.

use std::sync::Arc;
use std::time::Duration;

use super::check;
use super::error;
use super::resp::Reply;
use super::scripts::{Script, Scripts};
use super::session::RedisSessions;
use super::value;
use crate::backend::call::Call;
use crate::backend::keyspace::KeySpace;
use crate::backend::limits::Limits;
use crate::backend::pool::Rank;
use crate::backend::{Absence, AcquireOutcome, ExtendOutcome, LookupBy, ReleaseOutcome};
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::fence::{Fence, MAX_FENCE};
use crate::types::holder::Holder;
use crate::types::key::Key;
use crate::types::liveness::TIME_TOLERANCE_MS;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::{Acquired, StoredLock};
use crate::types::ttl::Ttl;

pub(crate) struct RedisVerbs {
    owner: Owner,
    operation_timeout: Duration,
    space: KeySpace,
    scripts: Scripts,
    sessions: Arc<RedisSessions>,
    tolerance: String,
    max_fence: String,
}

/// What a script answered.
struct ScriptReply {
    reply: Reply,
    /// The script found no lock, but its slot is moving between two nodes: the index entry may have arrived before its lock.
    lock_may_be_elsewhere: bool,
}

impl RedisVerbs {
    pub(crate) fn new(
        owner: Owner,
        operation_timeout: Duration,
        space: KeySpace,
        sessions: Arc<RedisSessions>,
    ) -> Self {
        Self {
            owner,
            operation_timeout,
            space,
            scripts: Scripts::new(),
            sessions,
            tolerance: TIME_TOLERANCE_MS.to_string(),
            max_fence: MAX_FENCE.to_string(),
        }
    }

    pub(crate) fn prefix(&self) -> &str {
        self.space.prefix()
    }

    pub(crate) fn database(&self) -> u32 {
        self.sessions.database()
    }

    /// The name under which the lock of `key` is stored.
    pub(crate) fn lock_name(&self, key: &Key) -> Result<String, LockError> {
        self.space.lock(key)
    }

    pub(crate) fn acquire(
        &self,
        key: &Key,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        let lock = self.space.lock(key)?;
        let fence = self.space.fence(&lock)?;
        let index = self.space.index(lock_id)?;
        let limits = self.enter(call)?;
        let reply = self
            .run(
                Rank::Ordinary,
                &limits,
                &self.scripts.acquire,
                &[lock.as_bytes(), fence.as_bytes(), index.as_bytes()],
                &[
                    lock_id.as_bytes(),
                    ttl.as_millis().to_string().as_bytes(),
                    self.tolerance.as_bytes(),
                    self.max_fence.as_bytes(),
                    &value::head(key, lock_id),
                ],
            )
            .map_err(|e| e.for_key(key))?;
        match &reply {
            Reply::Array(items) => match &items[..] {
                [
                    Reply::Integer(0),
                    Reply::Integer(left),
                    Reply::Bulk(fence),
                    Reply::Bulk(id_hash),
                ] => Ok(AcquireOutcome::Locked(Some(holder(*left, fence, id_hash)))),
                [
                    Reply::Integer(1),
                    Reply::Bulk(fence),
                    Reply::Integer(expires),
                ] => {
                    let fence = std::str::from_utf8(fence).ok().map(Fence::parse);
                    match fence {
                        Some(Ok(fence)) => Ok(AcquireOutcome::Acquired(Acquired::new(
                            *lock_id, fence, *expires,
                        ))),
                        // The script stores only well-formed fences: this is the repeated acquire of a lock that
                        // another program wrote with our id.
                        _ => Err(value::foreign().for_key(key)),
                    }
                }
                _ => Err(error::unexpected().for_key(key)),
            },
            _ => Err(error::unexpected().for_key(key)),
        }
    }

    pub(crate) fn release(
        &self,
        lock_id: &LockId,
        call: &Call<'_>,
    ) -> Result<ReleaseOutcome, LockError> {
        let index = self.space.index(lock_id)?;
        let limits = self.enter(call)?;
        let reply = self.run(
            Rank::Upkeep,
            &limits,
            &self.scripts.release,
            &[index.as_bytes()],
            &[lock_id.as_bytes(), self.tolerance.as_bytes()],
        )?;
        match reply {
            Reply::Integer(1) => Ok(ReleaseOutcome::Released),
            reply => absence(&reply).map(ReleaseOutcome::Absent),
        }
    }

    pub(crate) fn extend(
        &self,
        lock_id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<ExtendOutcome, LockError> {
        let index = self.space.index(lock_id)?;
        let limits = self.enter(call)?;
        let reply = self.run(
            Rank::Upkeep,
            &limits,
            &self.scripts.extend,
            &[index.as_bytes()],
            &[
                lock_id.as_bytes(),
                ttl.as_millis().to_string().as_bytes(),
                self.tolerance.as_bytes(),
            ],
        )?;
        match &reply {
            Reply::Array(items) => match &items[..] {
                [Reply::Integer(1), Reply::Integer(expires)] => {
                    Ok(ExtendOutcome::Extended(*expires))
                }
                _ => Err(error::unexpected()),
            },
            reply => absence(reply).map(ExtendOutcome::Absent),
        }
    }

    pub(crate) fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        let lock = self.space.lock(key)?;
        let limits = self.enter(call)?;
        self.run(
            Rank::Ordinary,
            &limits,
            &self.scripts.is_locked,
            &[lock.as_bytes()],
            &[self.tolerance.as_bytes()],
        )
        .and_then(|reply| match reply {
            Reply::Integer(live @ (0 | 1)) => Ok(live == 1),
            _ => Err(error::unexpected()),
        })
        .map_err(|e| e.for_key(key))
    }

    pub(crate) fn find(
        &self,
        by: LookupBy<'_>,
        call: &Call<'_>,
    ) -> Result<Option<StoredLock>, LockError> {
        let found = match by {
            LookupBy::Key(key) => self.find_by_key(key, call)?,
            LookupBy::LockId(id) => self.find_by_id(id, call)?,
        };
        found.as_deref().map(value::parse).transpose()
    }

    pub(crate) fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        let index = self.space.index(&LockId::random()?)?;
        let limits = self.enter(call)?;
        let rehearse = &self.scripts.rehearse;
        let replies = self.sessions.exchange(
            Rank::Ordinary,
            &limits,
            |connection| {
                connection.pipeline(
                    &[
                        &[b"EVAL", rehearse.text.as_bytes(), b"1", index.as_bytes()],
                        &[
                            b"EVALSHA",
                            rehearse.digest.as_bytes(),
                            b"1",
                            index.as_bytes(),
                        ],
                        &[b"INFO"],
                        // Servers before 7 take one pattern; this one means both settings.
                        &[b"CONFIG", b"GET", b"*appendfsync*"],
                    ],
                    &limits,
                )
            },
            |replies| match replies.first() {
                Some(Reply::Error(line)) => Some(line),
                _ => None,
            },
        )?;
        match &replies[..] {
            [Reply::Error(line), ..] | [_, Reply::Error(line), ..] => Err(error::refused(line)),
            [_, _, info, config] => Ok(check::warnings(info, config)),
            _ => Err(error::unexpected()),
        }
    }

    fn enter<'a>(&self, call: &Call<'a>) -> Result<Limits<'a>, LockError> {
        Limits::enter(self.owner, self.operation_timeout, call)
    }

    fn run(
        &self,
        rank: Rank,
        limits: &Limits<'_>,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<Reply, LockError> {
        let ScriptReply {
            reply,
            lock_may_be_elsewhere,
        } = self.sessions.exchange(
            rank,
            limits,
            |connection| {
                let reply = if script.in_time {
                    connection.run_in_time(script, keys, args, limits)?
                } else {
                    connection.run(script, keys, args, limits)?
                };
                let found_no_lock = matches!(reply, Reply::Integer(-1) | Reply::Nil);
                Ok(ScriptReply {
                    lock_may_be_elsewhere: connection.asking
                        && script.through_index
                        && found_no_lock,
                    reply,
                })
            },
            |answer| match &answer.reply {
                Reply::Error(line) => Some(line),
                _ => None,
            },
        )?;
        match reply {
            Reply::Error(line) => Err(error::refused(&line)),
            _ if lock_may_be_elsewhere => Err(error::keys_are_moving()),
            reply => Ok(reply),
        }
    }

    fn find_by_key(&self, key: &Key, call: &Call<'_>) -> Result<Option<Vec<u8>>, LockError> {
        let lock = self.space.lock(key)?;
        let limits = self.enter(call)?;
        self.run(
            Rank::Ordinary,
            &limits,
            &self.scripts.find_by_key,
            &[lock.as_bytes()],
            &[self.tolerance.as_bytes()],
        )
        .and_then(stored)
        .map_err(|e| e.for_key(key))
    }

    fn find_by_id(&self, id: &LockId, call: &Call<'_>) -> Result<Option<Vec<u8>>, LockError> {
        let index = self.space.index(id)?;
        let limits = self.enter(call)?;
        self.run(
            Rank::Ordinary,
            &limits,
            &self.scripts.find_by_id,
            &[index.as_bytes()],
            &[id.as_bytes(), self.tolerance.as_bytes()],
        )
        .and_then(stored)
    }
}

/// The holder of a contended lock, as far as its value is one of ours.
fn holder(left_ms: i64, fence: &[u8], id_hash: &[u8]) -> Holder {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let is_hash = |text: &&str| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let holder = Holder::with_left(
        text(id_hash).filter(is_hash).map(str::to_owned),
        text(fence).and_then(|fence| Fence::parse(fence).ok()),
        left_ms,
    );
    match u64::try_from(left_ms) {
        // Redis deletes a key in the millisecond after its last one.
        Ok(left) => holder.with_free_in(Duration::from_millis(left + 1)),
        Err(_) => holder,
    }
}

fn stored(reply: Reply) -> Result<Option<Vec<u8>>, LockError> {
    match reply {
        Reply::Bulk(value) => Ok(Some(value)),
        Reply::Nil => Ok(None),
        _ => Err(error::unexpected()),
    }
}

fn absence(reply: &Reply) -> Result<Absence, LockError> {
    match reply {
        Reply::Integer(-2) => Ok(Absence::Expired),
        Reply::Integer(0 | -1) => Ok(Absence::NotFound),
        _ => Err(error::unexpected()),
    }
}
