//! The library's own files for sentinels, clusters and listening connections of Redis, compiled over a connection that answers what an
//! input says. Nothing is connected to: an address that a hostile server names is looked at, and no more.

#![allow(dead_code)]

mod types {
    pub(crate) mod error {
        /// The codes that these files use.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            Aborted,
            AuthFailed,
            Internal,
            InvalidArgument,
            NetworkTimeout,
            ServiceUnavailable,
        }

        impl ErrorCode {
            pub(crate) fn is_transient(self) -> bool {
                matches!(self, Self::NetworkTimeout | Self::ServiceUnavailable)
            }
        }

        /// As much of an error as these files use.
        #[derive(Clone, Debug)]
        pub struct LockError {
            code: ErrorCode,
            message: String,
            applied: bool,
        }

        impl LockError {
            pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
                Self {
                    code,
                    message: message.into(),
                    applied: true,
                }
            }

            pub(crate) fn invalid(message: impl Into<String>) -> Self {
                Self::new(ErrorCode::InvalidArgument, message)
            }

            pub(crate) fn internal(message: impl Into<String>) -> Self {
                Self::new(ErrorCode::Internal, message)
            }

            pub(crate) fn unavailable(message: impl Into<String>) -> Self {
                Self::new(ErrorCode::ServiceUnavailable, message)
            }

            pub(crate) fn with_source(self, _source: Self) -> Self {
                self
            }

            pub(crate) fn nothing_applied(mut self) -> Self {
                self.applied = false;
                self
            }

            pub(crate) fn code(&self) -> ErrorCode {
                self.code
            }

            pub(crate) fn message(&self) -> &str {
                &self.message
            }

            pub(crate) fn may_have_applied(&self) -> bool {
                self.applied
            }
        }
    }
}

#[path = "../../../src/stores/redis/cluster.rs"]
mod cluster;
mod connection;
#[path = "../../../src/stores/redis/resp.rs"]
mod resp;
#[path = "../../../src/stores/redis/route.rs"]
mod route;
#[path = "../../../src/stores/redis/routed.rs"]
mod routed;
#[path = "../../../src/stores/redis/sentinel.rs"]
mod sentinel;
#[path = "../../../src/net/uri.rs"]
mod uri;
#[path = "../../../src/stores/redis/watch.rs"]
mod watch;

// Where these files look for each other.
mod net {
    pub(crate) use crate::uri;
}

mod runtime {
    pub(crate) mod sync {
        use std::sync::{MutexGuard, PoisonError};

        #[derive(Debug, Default)]
        pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

        impl<T> Mutex<T> {
            pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
                self.0.lock().unwrap_or_else(PoisonError::into_inner)
            }
        }
    }
}

mod backend {
    pub(crate) mod limits {
        use std::marker::PhantomData;
        use std::time::Duration;

        use crate::types::error::LockError;

        /// Time that never runs out.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Limits<'a>(PhantomData<&'a ()>);

        impl Limits<'_> {
            pub(crate) fn left(&self) -> Result<Duration, LockError> {
                Ok(Duration::from_secs(20))
            }

            pub(crate) fn within(self, _time: Duration) -> Self {
                self
            }

            pub(crate) fn is_cancelled(&self) -> bool {
                false
            }

            pub(crate) fn overrun(&self) -> LockError {
                LockError::unavailable("the time is over")
            }
        }
    }

    pub(crate) mod release_listener {
        use crate::backend::limits::Limits;
        use crate::types::error::LockError;

        pub(crate) trait ListenerConnection: Send {
            fn update(
                &mut self,
                add: &[String],
                remove: &[String],
                limits: &Limits<'_>,
            ) -> Result<Vec<String>, LockError>;
            fn next_released(&mut self, limits: &Limits<'_>) -> Result<Vec<String>, LockError>;
            fn probe(&mut self, limits: &Limits<'_>) -> Result<Option<Vec<String>>, LockError>;
        }
    }
}

mod stores {
    pub(crate) mod redis {
        pub(crate) use crate::{cluster, connection, resp, route, routed, sentinel};

        pub(crate) mod error {
            use crate::types::error::LockError;

            pub(crate) fn refused(_line: &str) -> LockError {
                LockError::unavailable("refused")
            }
        }
    }
}

use backend::limits::Limits;
use backend::release_listener::ListenerConnection;
use net::uri::Endpoint;
use stores::redis::cluster::Cluster;
use stores::redis::connection::{Connector, RedisConnection};
use stores::redis::sentinel::Sentinels;
use watch::RedisListener;

/// What came of an input, as words that differ where something else happened.
pub type Came = String;

fn seeds() -> Vec<Endpoint> {
    let node = |port| Endpoint::Tcp {
        host: "node".to_owned(),
        port,
    };
    vec![node(1), node(2), node(3)]
}

/// An address may be shown in a message and is connected to.
fn check(endpoint: &Endpoint) {
    let Endpoint::Tcp { host, port } = endpoint else {
        panic!("a server named a path: {endpoint:?}");
    };
    assert!(*port > 0 && (1..=255).contains(&host.len()), "{endpoint:?}");
    assert!(
        host.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".-_:%".contains(&b)),
        "{endpoint:?}"
    );
}

fn kind(told: &types::error::LockError) -> Came {
    assert!(!told.message().contains("hunter2zq"), "{}", told.message());
    format!("{:?} {}", told.code(), told.may_have_applied())
}

/// The answers of sentinels, one after the other.
pub fn sentinels(answers: &[Vec<u8>]) -> Came {
    let connector = Connector::new(answers);
    let sentinels = Sentinels::new(seeds(), "main".to_owned(), connector.clone());
    let route = stores::redis::route::Route::Sentinel(sentinels);
    let mut came = Came::new();
    for _ in 0..3 {
        match route.connect(&connector, &Limits::default()) {
            Ok(_) => {
                let last = connector.last().expect("it connected");
                check(&last);
                came.push_str(if seeds().contains(&last) { "s" } else { "p" });
            }
            Err(told) => came.push_str(&kind(&told)),
        }
    }
    came
}

/// The lines of nodes that send a request away.
pub fn redirections(lines: &[Vec<u8>]) -> Came {
    let cluster = Cluster::new(seeds(), "{foo}").expect("a tag");
    let mut from = seeds().remove(0);
    let mut came = Came::new();
    for line in lines.iter().take(64) {
        let line = String::from_utf8_lossy(line);
        let before = cluster.generation();
        match cluster.redirect(&line, &from) {
            Ok(None) => {
                assert!(!line.starts_with("MOVED ") && !line.starts_with("ASK "));
                came.push('-');
            }
            Ok(Some(to)) => {
                check(&to.endpoint);
                assert!(to.generation >= before && !(to.ask && to.generation != before));
                came.push(if to.ask { 'a' } else { 'm' });
                from = to.endpoint;
            }
            Err(told) => {
                assert!(!told.may_have_applied());
                came.push_str(&kind(&told));
            }
        }
    }
    // Not more nodes than a few are remembered: each is tried before a call gives up.
    let connector = Connector::that_fails();
    assert!(cluster.connect(&connector, &Limits::default()).is_err());
    assert!(
        connector.tried() <= 19,
        "{} nodes were tried",
        connector.tried()
    );
    came.truncate(400);
    came
}

/// What a server sends on a connection that listens for releases.
pub fn messages(bytes: &[u8]) -> Came {
    let mut listener = RedisListener::new(RedisConnection::new(bytes));
    let limits = Limits::default();
    let name = "syncguard:freed:k".to_owned();
    let _ = listener.update(std::slice::from_ref(&name), &[], &limits);
    let mut came = Came::new();
    for _ in 0..64 {
        match listener.next_released(&limits) {
            Ok(names) => {
                assert!(names.len() <= 1 && names.iter().all(|n| n.len() <= bytes.len()));
                came.push(match names.first() {
                    None => '-',
                    Some(n) if *n == name => 'k',
                    Some(_) => 'o',
                });
            }
            Err(told) => {
                came.push_str(&kind(&told));
                break;
            }
        }
    }
    came
}
