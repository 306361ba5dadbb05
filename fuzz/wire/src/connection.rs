//! A connection that answers what an input says, read with the library's own parser, and a connector that makes such connections.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::limits::Limits;
use crate::net::uri::Endpoint;
use crate::stores::redis::resp::{Reply, parse};
use crate::types::error::LockError;

#[derive(Clone)]
pub(crate) struct Connector(Arc<Mutex<Played>>);

struct Played {
    /// What each connection gets; nothing to let all of them fail.
    answers: Option<VecDeque<Vec<u8>>>,
    tried: Vec<Endpoint>,
}

impl Connector {
    pub(crate) fn new(answers: &[Vec<u8>]) -> Self {
        Self::playing(Some(answers.iter().cloned().collect()))
    }

    pub(crate) fn that_fails() -> Self {
        Self::playing(None)
    }

    fn playing(answers: Option<VecDeque<Vec<u8>>>) -> Self {
        let tried = Vec::new();
        Self(Arc::new(Mutex::new(Played { answers, tried })))
    }

    fn played(&self) -> std::sync::MutexGuard<'_, Played> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connect(
        &self,
        endpoint: &Endpoint,
        _limits: &Limits<'_>,
    ) -> Result<RedisConnection, LockError> {
        let mut played = self.played();
        played.tried.push(endpoint.clone());
        let answers = played.answers.as_mut();
        let answers = answers.ok_or_else(|| LockError::unavailable("not reached"))?;
        Ok(RedisConnection::new(
            &answers.pop_front().unwrap_or_default(),
        ))
    }

    pub(crate) fn last(&self) -> Option<Endpoint> {
        self.played().tried.last().cloned()
    }

    pub(crate) fn tried(&self) -> usize {
        self.played().tried.len()
    }
}

pub(crate) struct RedisConnection {
    input: Vec<u8>,
    pub(crate) asking: bool,
}

impl RedisConnection {
    pub(crate) fn new(input: &[u8]) -> Self {
        Self {
            input: input.to_vec(),
            asking: false,
        }
    }

    pub(crate) fn pipeline(
        &mut self,
        commands: &[&[&[u8]]],
        limits: &Limits<'_>,
    ) -> Result<Vec<Reply>, LockError> {
        commands.iter().map(|_| self.receive(limits)).collect()
    }

    pub(crate) fn send(
        &mut self,
        _commands: &[&[&[u8]]],
        _limits: &Limits<'_>,
    ) -> Result<(), LockError> {
        Ok(())
    }

    pub(crate) fn receive(&mut self, _limits: &Limits<'_>) -> Result<Reply, LockError> {
        match parse(&self.input) {
            Ok(Some(parsed)) => {
                self.input.drain(..parsed.bytes);
                Ok(parsed.reply)
            }
            Ok(None) => Err(LockError::unavailable("the connection ended")),
            Err(malformed) => Err(LockError::internal(malformed.reason)),
        }
    }
}
