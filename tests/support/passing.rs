//! A store that passes every verb on to another, and calls the test before it answers.

use syncguard::{
    AcquireOutcome, Backend, Call, Capabilities, ExtendOutcome, Key, LockError, LockId, LookupBy,
    ReleaseOutcome, StoredLock, Ttl,
};

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Acquire,
    Release,
    Extend,
    IsLocked,
    Find,
    Purge,
}

/// Never calls waiters: `watch` is not passed on.
pub struct Passing<B, F> {
    to: B,
    word: F,
    warnings: Vec<String>,
}

impl<B: Backend, F: Fn(Done) + Send + Sync> Passing<B, F> {
    /// `word` is said after each verb was applied.
    pub fn new(to: B, word: F) -> Self {
        Self {
            to,
            word,
            warnings: Vec::new(),
        }
    }

    /// What its check warns of.
    pub fn warning(self, of: &[&str]) -> Self {
        Self {
            warnings: of.iter().map(|text| (*text).to_owned()).collect(),
            ..self
        }
    }

    fn say<T>(&self, done: Done, answer: T) -> T {
        (self.word)(done);
        answer
    }
}

impl<B: Backend, F: Fn(Done) + Send + Sync> Backend for Passing<B, F> {
    fn acquire(
        &self,
        key: &Key,
        id: &LockId,
        ttl: Ttl,
        call: &Call<'_>,
    ) -> Result<AcquireOutcome, LockError> {
        self.say(Done::Acquire, self.to.acquire(key, id, ttl, call))
    }

    fn check(&self, _: &Call<'_>) -> Result<Vec<String>, LockError> {
        Ok(self.warnings.clone())
    }

    fn release(&self, id: &LockId, call: &Call<'_>) -> Result<ReleaseOutcome, LockError> {
        self.say(Done::Release, self.to.release(id, call))
    }

    fn extend(&self, id: &LockId, ttl: Ttl, call: &Call<'_>) -> Result<ExtendOutcome, LockError> {
        self.say(Done::Extend, self.to.extend(id, ttl, call))
    }

    fn is_locked(&self, key: &Key, call: &Call<'_>) -> Result<bool, LockError> {
        self.say(Done::IsLocked, self.to.is_locked(key, call))
    }

    fn find(&self, by: LookupBy<'_>, call: &Call<'_>) -> Result<Option<StoredLock>, LockError> {
        self.say(Done::Find, self.to.find(by, call))
    }

    fn purge_expired(&self, limit: u32, call: &Call<'_>) -> Result<u64, LockError> {
        self.say(Done::Purge, self.to.purge_expired(limit, call))
    }

    fn capabilities(&self) -> Capabilities {
        self.to.capabilities()
    }
}
