//! The scripts with their digests, and one request of one of them.

use std::sync::Arc;

use syncguard::HelperCall;
use syncguard::format::redis::{self as format, Reply};

use crate::connections::{Borrowed, Failure};
use crate::timed;

/// A script and the name by which a server knows it once it has run.
#[derive(Clone)]
pub(crate) struct Script {
    text: &'static str,
    digest: Arc<str>,
}

/// All scripts. Their digests are computed once.
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) acquire_by_clock: Script,
    pub(crate) release: Script,
    pub(crate) extend: Script,
    pub(crate) is_locked: Script,
    pub(crate) find_by_key: Script,
    pub(crate) find_by_id: Script,
    pub(crate) list: Script,
    pub(crate) rehearse: Script,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        let script = |text| Script {
            text,
            digest: format::digest(text).into(),
        };
        Self {
            acquire: script(format::ACQUIRE),
            acquire_by_clock: script(format::ACQUIRE_BY_CLOCK),
            release: script(format::RELEASE),
            extend: script(format::EXTEND),
            is_locked: script(format::IS_LOCKED),
            find_by_key: script(format::FIND_BY_KEY),
            find_by_id: script(format::FIND_BY_ID),
            list: script(format::LIST),
            rehearse: script(format::REHEARSE),
        }
    }
}

/// A script with its keys and arguments, for a thread that sends it.
pub(crate) struct Request {
    script: Script,
    keys: Vec<String>,
    args: Vec<String>,
    /// Its last argument is the time after which the server refuses it.
    in_time: bool,
    /// A renewal or a release.
    pub(crate) upkeep: bool,
    /// Sent twice it comes to the same.
    pub(crate) repeatable: bool,
}

impl Request {
    pub(crate) fn new(script: &Script, keys: Vec<String>, args: Vec<String>) -> Self {
        Self {
            script: script.clone(),
            keys,
            args,
            in_time: false,
            upkeep: false,
            repeatable: true,
        }
    }

    pub(crate) fn in_time(self) -> Self {
        Self {
            in_time: true,
            ..self
        }
    }

    pub(crate) fn first(self) -> Self {
        Self {
            upkeep: true,
            ..self
        }
    }

    pub(crate) fn once(self) -> Self {
        Self {
            repeatable: false,
            ..self
        }
    }

    /// Sends it on this connection, with the time after which the server refuses it where it has one.
    pub(crate) fn send(
        &self,
        connection: &mut Borrowed<'_>,
        helper: &HelperCall,
    ) -> Result<Reply, Failure> {
        if !self.in_time {
            helper.sending().map_err(Failure::Final)?;
            return self.evaluate(connection, None);
        }
        let mut clock = connection.clock();
        let mut failure = None;
        let reply = helper.send_in_time(&mut clock, |not_after| {
            self.evaluate(connection, Some(not_after))
                .map(timed)
                .map_err(|e| e.into_error(&mut failure))
        });
        connection.set_clock(clock);
        reply.map_err(|error| Failure::again(failure, error))
    }

    /// By the digest, or by the text if the server does not know it yet: `SCRIPT LOAD` would be a trip and a right more.
    fn evaluate(
        &self,
        connection: &mut Borrowed<'_>,
        not_after: Option<i64>,
    ) -> Result<Reply, Failure> {
        match connection.ask(&self.command("EVALSHA", &self.script.digest, not_after))? {
            Reply::Error(line) if line.starts_with("NOSCRIPT") => {
                connection.ask(&self.command("EVAL", self.script.text, not_after))
            }
            reply => Ok(reply),
        }
    }

    fn command(&self, verb: &str, script: &str, not_after: Option<i64>) -> Vec<String> {
        let mut parts = Vec::with_capacity(4 + self.keys.len() + self.args.len());
        parts.extend([
            verb.to_owned(),
            script.to_owned(),
            self.keys.len().to_string(),
        ]);
        parts.extend(self.keys.iter().chain(&self.args).cloned());
        parts.extend(not_after.map(|ms| ms.to_string()));
        parts
    }
}
