//! How a connection is made: by the library, or by the user's function. It uses `asked`, `connect` and `resolver`.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Socket, Type};

use crate::backend::limits::Limits;
use crate::net::asked::Asked;
use crate::net::connect;
use crate::net::descriptor::{CancelWaker, Descriptor};
use crate::net::resolver;
use crate::net::uri::Endpoint;
use crate::options::connections::{ConnectRequest, MakeConnection};
use crate::runtime::sync::Mutex;
use crate::runtime::workers::guarded;
use crate::types::error::{ErrorCode, LockError};

/// How many calls of a user's function a client has under way at once. A pool is seldom larger, and calls that hang do not add up.
const MAX_CALLS: usize = 256;

/// What makes connections. Clones share the user's function.
#[derive(Clone, Default)]
pub(crate) struct Dialer(Option<Arc<OwnConnector>>);

impl Dialer {
    pub(crate) fn new(make: Option<MakeConnection>) -> Self {
        Self(make.map(|make| {
            Arc::new(OwnConnector {
                make,
                calls: Arc::default(),
            })
        }))
    }

    /// A connection to `endpoint`; `limits` name it.
    ///
    /// # Errors
    /// As [`Socket::connect`](crate::net::socket::Socket::connect).
    pub(super) fn connect(
        &self,
        endpoint: &Endpoint,
        limits: &Limits<'_>,
    ) -> Result<Descriptor, LockError> {
        match (&self.0, endpoint) {
            (Some(own), endpoint) => own.connect(endpoint, limits),
            (None, Endpoint::Tcp { host, port }) => {
                connect::any(&resolver::addresses(host, *port, limits)?, limits)
            }
            (None, Endpoint::Unix(path)) => connect::unix(path, limits),
        }
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Some(_) => "Dialer(own)",
            None => "Dialer(system)",
        })
    }
}

/// The user's function and its calls that are under way.
struct OwnConnector {
    make: MakeConnection,
    calls: Arc<Mutex<Vec<Arc<ConnectorCall>>>>,
}

struct ConnectorCall {
    endpoint: Endpoint,
    asked: Arc<Asked<Connected>>,
    /// The caller that began it has gone. No other one is begun to the same server: callers wait for this one.
    abandoned: AtomicBool,
}

/// The first of the callers that wait takes the descriptor. If none is left, it is closed.
type Connected = Result<Arc<Mutex<Option<OwnedFd>>>, NotConnected>;

#[derive(Clone)]
enum NotConnected {
    Failed(Arc<io::Error>),
    Panicked,
}

impl OwnConnector {
    fn connect(&self, endpoint: &Endpoint, limits: &Limits<'_>) -> Result<Descriptor, LockError> {
        let server = endpoint.to_string();
        let missing = format!("the connector gave no connection to {server}");
        loop {
            let call = self.call(endpoint, limits)?;
            let answer = call.asked.wait(&missing, limits).inspect_err(|_| {
                call.abandoned.store(true, Ordering::Release);
            })?;
            let fd = answer.map_err(|why| why.into_error(&server))?;
            // Bound by itself, so that the mutex is free again.
            let taken = fd.lock().take();
            if let Some(fd) = taken {
                return adopt(fd).map_err(LockError::nothing_applied);
            }
        }
    }

    /// A call to the endpoint that lost its caller, or a new one.
    fn call(
        &self,
        endpoint: &Endpoint,
        limits: &Limits<'_>,
    ) -> Result<Arc<ConnectorCall>, LockError> {
        let mut calls = self.calls.lock();
        let lost = |call: &&Arc<ConnectorCall>| {
            call.endpoint == *endpoint && call.abandoned.load(Ordering::Acquire)
        };
        if let Some(call) = calls.iter().find(lost) {
            return Ok(Arc::clone(call));
        }
        if calls.len() >= MAX_CALLS {
            return Err(LockError::new(
                ErrorCode::RateLimited,
                format!("{MAX_CALLS} calls of the connector are under way"),
            )
            .nothing_applied());
        }
        let call = Arc::new(ConnectorCall {
            endpoint: endpoint.clone(),
            asked: Asked::new(),
            abandoned: AtomicBool::new(false),
        });
        let (make, list, own) = (
            Arc::clone(&self.make),
            Arc::clone(&self.calls),
            Arc::clone(&call),
        );
        let deadline = limits.deadline();
        Asked::<Connected>::begin("syncguard-dial", "run the connector", move || {
            let answer = guarded(|| {
                let (host, port) = match &own.endpoint {
                    Endpoint::Tcp { host, port } => (host.clone(), *port),
                    Endpoint::Unix(path) => (path.display().to_string(), 0),
                };
                make(&ConnectRequest {
                    host: &host,
                    port,
                    deadline,
                })
            });
            drop(make);
            list.lock().retain(|other| !Arc::ptr_eq(other, &own));
            own.asked.answer(match answer {
                Some(Ok(fd)) => Ok(Arc::new(Mutex::new(Some(fd)))),
                Some(Err(e)) => Err(NotConnected::Failed(Arc::new(e))),
                None => Err(NotConnected::Panicked),
            });
        })?;
        calls.push(Arc::clone(&call));
        Ok(call)
    }
}

impl NotConnected {
    fn into_error(self, server: &str) -> LockError {
        let error = match self {
            Self::Panicked => LockError::internal("the connector panicked"),
            // Its own text may hold what a proxy asks for: it is the source, and no part of the message.
            Self::Failed(e) => {
                let why = match e.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => e.kind().into(),
                };
                let failed = connect::failed(server, ErrorCode::AuthFailed, why);
                LockError::new(
                    failed.code(),
                    format!("the connector: {}", failed.message()),
                )
                .with_source(e)
            }
        };
        error.nothing_applied()
    }
}

/// Takes over what the user's function gave: a connected stream socket, whatever kind of stream.
fn adopt(fd: OwnedFd) -> Result<Descriptor, LockError> {
    let socket = Socket::from(fd);
    let kind = socket.r#type().map_err(|_| no_stream("no socket"))?;
    if kind != Type::STREAM {
        return Err(no_stream("a socket that is no stream"));
    }
    if socket.peer_addr().is_err() {
        return Err(no_stream("a socket that is not connected"));
    }
    let prepared = socket
        .set_nonblocking(true)
        .and_then(|()| socket.set_cloexec(true));
    prepared.map_err(|e| {
        LockError::internal("the connector's descriptor cannot be used").with_source(e)
    })?;
    #[cfg(target_vendor = "apple")]
    let _ = socket.set_nosigpipe(true);
    // A socket of another kind has no such delay.
    let _ = socket.set_tcp_nodelay(true);
    Ok(Descriptor::new(socket, CancelWaker::default()))
}

fn no_stream(what: &str) -> LockError {
    LockError::invalid(format!(
        "the connector gave {what}; it must give a connected stream socket"
    ))
}
