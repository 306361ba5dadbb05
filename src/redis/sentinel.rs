//! Redis Sentinel: which server is the primary now.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{ErrorCode, LockError};
use crate::limits::Limits;
use crate::net::Endpoint;
use crate::redis::connection::Connector;
use crate::redis::resp::Reply;
use crate::redis::route::{self, Routed, share};
use crate::sync::Mutex;

/// The sentinels of one primary. They are asked before every new connection.
pub(crate) struct Sentinels {
    sentinels: Vec<Endpoint>,
    master: String,
    connector: Connector,
    state: Mutex<State>,
    /// Grows whenever connections made so far are no longer worth using.
    generation: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The sentinel that answered last is asked first: one that is stuck costs its share of the time only once.
    first: usize,
    primary: Option<Endpoint>,
}

/// Why a sentinel was of no help.
enum Failure {
    /// Not reached, or without an answer in its share of the time.
    Silent,
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
        // It only grows, and by whom does not matter.
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
        let (primary, generation) = self.discover(limits).map_err(LockError::nothing_applied)?;
        let connection = connector.connect(&primary, limits)?;
        Ok(Routed::new(connection, primary, generation))
    }

    /// Asks the sentinels in turn. None of them may use up the time of the others, nor that of the primary.
    fn discover(&self, limits: &Limits<'_>) -> Result<(Endpoint, u64), LockError> {
        let count = self.sentinels.len();
        let first = self.state.lock().first;
        let mut failures = Vec::with_capacity(count);
        for n in 0..count {
            let at = (first + n) % count;
            let turn = share(limits, count - n)?;
            match self.ask(&self.sentinels[at], &turn) {
                Ok(primary) => {
                    let generation = self.found(at, &primary);
                    return Ok((primary, generation));
                }
                Err(_) if limits.is_cancelled() => return Err(limits.overrun()),
                Err(failure) => failures.push(failure),
            }
        }
        Err(nobody_knows(&mut failures))
    }

    fn ask(&self, sentinel: &Endpoint, limits: &Limits<'_>) -> Result<Endpoint, Failure> {
        let judge = |e: LockError| match e.code() {
            ErrorCode::AuthFailed | ErrorCode::InvalidArgument => Failure::Refused(e),
            ErrorCode::Internal => Failure::NoSentinel,
            _ => Failure::Silent,
        };
        let mut connection = self.connector.connect(sentinel, limits).map_err(judge)?;
        let question: &[&[u8]] = &[
            b"SENTINEL",
            b"GET-MASTER-ADDR-BY-NAME",
            self.master.as_bytes(),
        ];
        match &connection.pipeline(&[question], limits).map_err(judge)?[..] {
            [Reply::Nil] => Err(Failure::UnknownName),
            [Reply::Array(address)] => match &address[..] {
                [Reply::Bulk(host), Reply::Bulk(port)] => route::endpoint(
                    &String::from_utf8_lossy(host),
                    &String::from_utf8_lossy(port),
                )
                .ok_or(Failure::NoSentinel),
                _ => Err(Failure::NoSentinel),
            },
            [Reply::Error(line)] => Err(judge(crate::redis::error::refused(line))),
            _ => Err(Failure::NoSentinel),
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
fn nobody_knows(failures: &mut Vec<Failure>) -> LockError {
    let asked = failures.len();
    let silent = count(failures, |f| matches!(f, Failure::Silent));
    let unknown = count(failures, |f| matches!(f, Failure::UnknownName));
    let refused = failures
        .iter()
        .position(|f| matches!(f, Failure::Refused(_)));
    let no_sentinel = count(failures, |f| matches!(f, Failure::NoSentinel));
    if silent > 0 {
        return LockError::unavailable(format!(
            "none of {asked} sentinels named the primary: {silent} did not answer, {unknown} do not know the name, {} refused",
            asked - silent - unknown
        ));
    }
    if let Some(at) = refused {
        if let Failure::Refused(e) = failures.swap_remove(at) {
            let message = format!("a sentinel refused the question: {}", e.message());
            return LockError::new(e.code(), message).with_source(e);
        }
    }
    LockError::invalid(if unknown > 0 {
        format!(
            "none of {asked} sentinels knows a primary of the name in the URL{}",
            if no_sentinel > 0 {
                ", and not all of them are sentinels"
            } else {
                ""
            }
        )
    } else {
        format!("none of the {asked} servers in the URL is a sentinel")
    })
}

fn count(failures: &[Failure], is: impl Fn(&Failure) -> bool) -> usize {
    failures.iter().filter(|f| is(f)).count()
}
