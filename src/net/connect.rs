//! Connects within limits: to several addresses beside each other, or to a unix socket. It uses `descriptor`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use crate::backend::limits::Limits;
use crate::net::descriptor::{CancelWaker, Descriptor, is_not_yet, is_ready, poll};
use crate::runtime::cancel::deadline_after;
use crate::types::error::{ErrorCode, LockError};

/// The next address of a name is tried beside the earlier ones after this time, and at once when they have failed.
const STAGGER: Duration = Duration::from_millis(250);
/// An idle connection is probed after this time, so that one whose peer vanished is found dead before it is used.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// When a unix socket with a full queue is tried again: there is nothing to wait for.
const QUEUE_FULL: Duration = Duration::from_millis(2);

/// An attempt under way.
struct PendingConnect {
    address: SocketAddr,
    socket: Socket,
}

/// The first of `addresses` that answers. One that is dead costs [`STAGGER`], not the whole time.
pub(super) fn any(addresses: &[SocketAddr], limits: &Limits<'_>) -> Result<Descriptor, LockError> {
    let mut waker = CancelWaker::default();
    let mut pending: Vec<PendingConnect> = Vec::new();
    let mut untried = addresses.iter();
    let mut next_at = Instant::now();
    let mut failure = None;
    loop {
        let left = limits.left()?;
        if pending.is_empty() || next_at <= Instant::now() {
            if let Some(&address) = untried.next() {
                next_at = deadline_after(STAGGER);
                match start(address) {
                    Ok(socket) => pending.push(PendingConnect { address, socket }),
                    Err(e) => note(&mut failure, address, e),
                }
                continue;
            }
            if pending.is_empty() {
                return Err(
                    failure.unwrap_or_else(|| LockError::unavailable("the server has no address"))
                );
            }
        }
        let timeout = if untried.len() == 0 {
            left
        } else {
            left.min(next_at.saturating_duration_since(Instant::now()))
        };
        for i in wait(&pending, &mut waker, timeout, limits)? {
            let PendingConnect { address, socket } = pending.swap_remove(i);
            match finish(&socket) {
                Ok(()) => return Ok(Descriptor::new(socket, waker)),
                Err(e) => note(&mut failure, address, e),
            }
        }
    }
}

/// Which of `pending` have come to an end, the last first.
fn wait(
    pending: &[PendingConnect],
    waker: &mut CancelWaker,
    timeout: Duration,
    limits: &Limits<'_>,
) -> Result<Vec<usize>, LockError> {
    let watch = waker
        .watch(limits)
        .map_err(|e| failed("the server", ErrorCode::ServiceUnavailable, e))?;
    let mut fds: Vec<PollFd<'_>> = pending
        .iter()
        .map(|connect| connect.socket.as_fd())
        .map(|fd| PollFd::new(fd, PollFlags::POLLOUT))
        .chain(watch.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)))
        .collect();
    poll(&mut fds, timeout)?;
    if let Some(cancel) = fds.get(pending.len()) {
        watch.settle(cancel);
    }
    Ok((0..pending.len())
        .rev()
        .filter(|&i| is_ready(&fds[i]))
        .collect())
}

/// Keeps the first failure: it is the preferred address's.
fn note(failure: &mut Option<LockError>, address: SocketAddr, e: io::Error) {
    failure.get_or_insert_with(|| failed(&address.to_string(), ErrorCode::ServiceUnavailable, e));
}

fn start(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    match socket.connect(&address.into()) {
        Err(e) if !is_under_way(&e) => Err(e),
        _ => Ok(socket),
    }
}

/// An interrupted connect goes on like one that was not waited for.
fn is_under_way(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error().map(Errno::from_raw),
        Some(Errno::EINPROGRESS | Errno::EINTR)
    )
}

fn finish(socket: &Socket) -> io::Result<()> {
    if let Some(e) = socket.take_error()? {
        return Err(e);
    }
    // A port of the local range without a listener can, by chance, be connected to itself.
    if socket.peer_addr()?.as_socket() == socket.local_addr()?.as_socket() {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}

/// Connects to a unix socket.
pub(super) fn unix(path: &Path, limits: &Limits<'_>) -> Result<Descriptor, LockError> {
    let name = path.display().to_string();
    // The one would be no address, the other would be cut there or be a name outside the file system.
    if name.is_empty() || path.as_os_str().as_bytes().contains(&0) {
        return Err(LockError::invalid(
            "the path of a unix socket is empty or has a NUL in it",
        ));
    }
    let address = SockAddr::unix(path)
        .map_err(|e| LockError::invalid(format!("{name:?} cannot be a socket's path: {e}")))?;
    let failed = |e| failed(&name, ErrorCode::AuthFailed, e);
    loop {
        limits.left()?;
        // A new socket each time: not every system allows a second connect.
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        match socket.connect(&address) {
            Ok(()) => return Ok(Descriptor::new(socket, CancelWaker::default())),
            Err(e) if is_not_yet(&e) => {
                limits.sleep_until(deadline_after(QUEUE_FULL));
            }
            Err(e) => return Err(failed(e)),
        }
    }
}

/// The error of a connection that was not made; `denied` is what a missing right means.
pub(super) fn failed(server: &str, denied: ErrorCode, e: io::Error) -> LockError {
    let code = match e.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
            ErrorCode::RateLimited
        }
        Some(Errno::ETIMEDOUT) => ErrorCode::NetworkTimeout,
        Some(Errno::EACCES | Errno::EPERM) => denied,
        _ => ErrorCode::ServiceUnavailable,
    };
    LockError::new(code, format!("cannot connect to {server}: {e}")).with_source(e)
}
