//! Redis Sentinel: which server is the primary now. It asks the sentinels over `connection`. It uses `connection`, `error`, `resp`,
//! `routed`, `net`, `backend`, `runtime` and `types`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::limits::Limits;
use crate::net::uri::Endpoint;
use crate::runtime::sync::Mutex;
use crate::stores::redis::connection::Connector;
use crate::stores::redis::resp::Reply;
use crate::stores::redis::routed::{self, Routed, share};
use crate::types::error::{ErrorCode, LockError};

/// The sentinels of one primary. They are asked before every new connection.
pub(crate) struct Sentinels {
    sentinels: Vec<Endpoint>,
    master: String,
    connector: Connector,
    state: Mutex<SentinelState>,
    /// Grows whenever connections made so far are no longer worth using.
    generation: AtomicU64,
}

#[derive(Default)]
struct SentinelState {
    /// The sentinel that answered last is asked first: one that is stuck costs its share of the time only once.
    first: usize,
    primary: Option<Endpoint>,
}

/// What the sentinels say.
struct Primary {
    endpoint: Endpoint,
    /// What a connection to it is marked with.
    generation: u64,
}

/// Why a sentinel was of no help.
enum SentinelFailure {
    /// Not reached, or without an answer in its share of the time.
    Silent(LockError),
    Refused(LockError),
    UnknownName,
    NoSentinel,
}

impl Sentinels {
    pub(crate) fn new(sentinels: Vec<Endpoint>, master: String, connector: Connector) -> Self {
        Self {
            sentinels,
            master,
            connector,
            state: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// A connection of `generation` failed, or its server is no primary.
    pub(crate) fn lost(&self, generation: u64) {
        // It only grows, and it does not matter which caller does it.
        let _ = self.generation.compare_exchange(
            generation,
            generation + 1,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// A connection to the primary, as `connector` makes it; that checks that it is one.
    pub(crate) fn connect(
        &self,
        connector: &Connector,
        limits: &Limits<'_>,
    ) -> Result<Routed, LockError> {
        let primary = self.discover(limits).map_err(LockError::nothing_applied)?;
        let connection = connector.connect(&primary.endpoint, limits)?;
        Ok(Routed::new(
            connection,
            primary.endpoint,
            primary.generation,
        ))
    }

    /// Asks the sentinels in turn. None of them may use up the time of the others, nor that of the primary.
    fn discover(&self, limits: &Limits<'_>) -> Result<Primary, LockError> {
        let count = self.sentinels.len();
        let first = self.state.lock().first;
        let mut failures = Vec::with_capacity(count);
        for n in 0..count {
            let at = (first + n) % count;
            let turn = share(limits, count - n)?;
            match self.ask(&self.sentinels[at], &turn) {
                Ok(endpoint) => {
                    return Ok(Primary {
                        generation: self.found(at, &endpoint),
                        endpoint,
                    });
                }
                Err(_) if limits.is_cancelled() => return Err(limits.overrun()),
                Err(failure) => failures.push(failure),
            }
        }
        Err(none_knows(failures))
    }

    fn ask(&self, sentinel: &Endpoint, limits: &Limits<'_>) -> Result<Endpoint, SentinelFailure> {
        let judge = |e: LockError| match e.code() {
            ErrorCode::AuthFailed | ErrorCode::InvalidArgument => SentinelFailure::Refused(e),
            ErrorCode::Internal => SentinelFailure::NoSentinel,
            _ => SentinelFailure::Silent(e),
        };
        let mut connection = self.connector.connect(sentinel, limits).map_err(judge)?;
        let question: &[&[u8]] = &[
            b"SENTINEL",
            b"GET-MASTER-ADDR-BY-NAME",
            self.master.as_bytes(),
        ];
        match &connection.pipeline(&[question], limits).map_err(judge)?[..] {
            [Reply::Nil] => Err(SentinelFailure::UnknownName),
            [Reply::Array(address)] => match &address[..] {
                [Reply::Bulk(host), Reply::Bulk(port)] => routed::endpoint(
                    &String::from_utf8_lossy(host),
                    &String::from_utf8_lossy(port),
                )
                .ok_or(SentinelFailure::NoSentinel),
                _ => Err(SentinelFailure::NoSentinel),
            },
            [Reply::Error(line)] => Err(judge(crate::stores::redis::error::refused(line))),
            _ => Err(SentinelFailure::NoSentinel),
        }
    }

    fn found(&self, at: usize, primary: &Endpoint) -> u64 {
        let mut state = self.state.lock();
        state.first = at;
        if state.primary.as_ref() != Some(primary) {
            // The connections to the one before are to a replica now, or will be.
            if state.primary.replace(primary.clone()).is_some() {
                self.generation.fetch_add(1, Ordering::AcqRel);
            }
        }
        self.generation()
    }
}

/// One error for all sentinels. As long as one of them might still know better it is a transient one.
fn none_knows(failures: Vec<SentinelFailure>) -> LockError {
    let asked = failures.len();
    let (mut silent, mut unknown, mut refused) = (Vec::new(), 0, None);
    for failure in failures {
        match failure {
            SentinelFailure::Silent(e) => silent.push(e),
            SentinelFailure::Refused(e) => {
                refused.get_or_insert(e);
            }
            SentinelFailure::UnknownName => unknown += 1,
            SentinelFailure::NoSentinel => {}
        }
    }
    let silent_ones = silent.len();
    if let Some(first) = silent.into_iter().next() {
        let message = format!(
            "none of {asked} sentinels named the primary: {silent_ones} did not answer, {unknown} do not know its name; the first that did not: {}",
            first.message()
        );
        return LockError::unavailable(message).with_source(first);
    }
    if let Some(e) = refused {
        let message = format!("a sentinel refused the question: {}", e.message());
        return LockError::new(e.code(), message).with_source(e);
    }
    LockError::invalid(if unknown == asked {
        format!("none of {asked} sentinels knows a primary of the name in the URL")
    } else {
        format!(
            "of {asked} servers in the URL {unknown} are sentinels, and they do not know a primary of its name"
        )
    })
}
