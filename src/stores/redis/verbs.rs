//! The verbs of the Redis store: the names and arguments of each script, and what its reply means. It uses `check`, `error`,
//! `resp`, `scripts`, `session`, `value`, `backend`, `runtime` and `types`.

use std::sync::Arc;
use std::time::Duration;

use super::check;
use super::error;
use super::replies;
use super::resp::Reply;
use super::scripts::{Script, Scripts};
use super::session::RedisSessions;
use super::value;
use crate::backend::call::Call;
use crate::backend::keyspace::KeySpace;
use crate::backend::limits::Limits;
use crate::backend::list::{ListOptions, ListPage};
use crate::backend::pool::Rank;
use crate::backend::{AcquireOutcome, ExtendOutcome, LookupBy, ReleaseOutcome};
use crate::runtime::process::Owner;
use crate::types::error::LockError;
use crate::types::fence::{FenceSource, MAX_FENCE};
use crate::types::holder_text::HolderText;
use crate::types::key::Key;
use crate::types::liveness::TIME_TOLERANCE_MS;
use crate::types::lock_id::LockId;
use crate::types::stored_lock::StoredLock;
use crate::types::ttl::Ttl;

pub(crate) struct RedisVerbs {
    owner: Owner,
    operation_timeout: Duration,
    space: KeySpace,
    scripts: Scripts,
    sessions: Arc<RedisSessions>,
    tolerance: String,
    max_fence: String,
    fences: FenceSource,
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
        fences: FenceSource,
    ) -> Self {
        Self {
            owner,
            operation_timeout,
            space,
            scripts: Scripts::new(fences),
            fences,
            sessions,
            tolerance: TIME_TOLERANCE_MS.to_string(),
            max_fence: MAX_FENCE.to_string(),
        }
    }

    pub(crate) fn prefix(&self) -> &str {
        self.space.prefix()
    }

    pub(crate) fn fences(&self) -> FenceSource {
        self.fences
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
                    &value::head(
                        key.as_str(),
                        lock_id,
                        call.holder().map_or("", HolderText::as_str),
                    ),
                ],
            )
            .map_err(|e| e.for_key(key))?;
        replies::read_acquire(&reply, lock_id).map_err(|e| e.for_key(key))
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
        replies::read_release(&reply)
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
        replies::read_extend(&reply, lock_id)
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
        .and_then(|reply| replies::read_is_locked(&reply))
        .map_err(|e| e.for_key(key))
    }

    pub(crate) fn find(
        &self,
        by: LookupBy<'_>,
        call: &Call<'_>,
    ) -> Result<Option<StoredLock>, LockError> {
        let reply = match by {
            LookupBy::Key(key) => self.find_by_key(key, call)?,
            LookupBy::LockId(id) => self.find_by_id(id, call)?,
        };
        replies::read_find(&reply, by)
    }

    pub(crate) fn list(
        &self,
        options: &ListOptions,
        call: &Call<'_>,
    ) -> Result<ListPage<StoredLock>, LockError> {
        let request = options.checked()?;
        let args = replies::list_arguments(&self.space, &request)?;
        let args: Vec<&[u8]> = args.iter().map(String::as_bytes).collect();
        // A name that leads to the node of our slot, and that no lock has.
        let slot = self.space.index(&LockId::random()?)?;
        let limits = self.enter(call)?;
        let reply = self.run(
            Rank::Ordinary,
            &limits,
            &self.scripts.list,
            &[slot.as_bytes()],
            &args,
        )?;
        replies::read_list(&reply)
    }

    pub(crate) fn check(&self, call: &Call<'_>) -> Result<Vec<String>, LockError> {
        let index = self.space.index(&LockId::random()?)?;
        let limits = self.enter(call)?;
        let rehearse = &self.scripts.rehearse;
        let replies = self.sessions.exchange(
            Rank::Ordinary,
            &limits,
            |session| {
                session.pipeline(
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
            [Reply::Error(line), ..] => Err(error::refused(line)),
            [_, rehearsed, info, config] => replies::read_check(rehearsed, info, config),
            _ => Err(error::unexpected()),
        }
    }

    pub(crate) fn version(&self, call: &Call<'_>) -> Result<Option<String>, LockError> {
        let limits = self.enter(call)?;
        let replies = self.sessions.exchange(
            Rank::Ordinary,
            &limits,
            |connection| connection.pipeline(&[&[b"INFO", b"server"]], &limits),
            |_| None,
        )?;
        Ok(replies.first().and_then(check::version))
    }

    pub(super) fn sessions(&self) -> &RedisSessions {
        &self.sessions
    }

    pub(super) fn scripts(&self) -> &Scripts {
        &self.scripts
    }

    pub(super) fn enter<'a>(&self, call: &Call<'a>) -> Result<Limits<'a>, LockError> {
        Limits::enter(self.owner, self.operation_timeout, call)
    }

    pub(super) fn run(
        &self,
        rank: Rank,
        limits: &Limits<'_>,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<Reply, LockError> {
        match self.reply(rank, limits, script, keys, args)? {
            Reply::Error(line) => Err(error::refused(&line)),
            reply => Ok(reply),
        }
    }

    /// What a script answers, its errors included.
    pub(super) fn reply(
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
            |session| {
                let reply = if script.in_time {
                    session.run_in_time(script, keys, args, limits)?
                } else {
                    session.run(script, keys, args, limits)?
                };
                let found_no_lock = matches!(reply, Reply::Integer(-1) | Reply::Nil);
                Ok(ScriptReply {
                    lock_may_be_elsewhere: session.is_asking()
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
        if lock_may_be_elsewhere {
            return Err(error::keys_are_moving());
        }
        Ok(reply)
    }

    fn find_by_key(&self, key: &Key, call: &Call<'_>) -> Result<Reply, LockError> {
        let lock = self.space.lock(key)?;
        let limits = self.enter(call)?;
        self.run(
            Rank::Ordinary,
            &limits,
            &self.scripts.find_by_key,
            &[lock.as_bytes()],
            &[self.tolerance.as_bytes()],
        )
        .map_err(|e| e.for_key(key))
    }

    fn find_by_id(&self, id: &LockId, call: &Call<'_>) -> Result<Reply, LockError> {
        let index = self.space.index(id)?;
        let limits = self.enter(call)?;
        self.run(
            Rank::Ordinary,
            &limits,
            &self.scripts.find_by_id,
            &[index.as_bytes()],
            &[id.as_bytes(), self.tolerance.as_bytes()],
        )
    }
}
