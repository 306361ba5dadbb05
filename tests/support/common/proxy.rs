//! A proxy between a client and a server that misbehaves on demand. TCP and unix sockets on either side.
//!
//! Everything ends when the [`Proxy`] is dropped: its threads, its connections and its socket file.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, setsockopt, sockopt};

/// What the proxy does with the bytes that arrive from now on, on every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forwards them.
    Pass,
    /// Drops them, both ways, for good. Connections stay open, and new ones are accepted but not made to the server.
    Swallow,
    /// Keeps them, both ways, and forwards them once the mode is another: a partition that heals.
    Hold,
    /// Forwards requests, and replies a byte at a time with this pause before each.
    Trickle(Duration),
    /// Forwards requests, and closes the connection when the reply comes.
    CutReply,
    /// Forwards requests and the first half of a reply, and closes the connection in the middle of it.
    TearReply,
    /// Forwards requests, and drops replies for good. Connections stay open.
    LoseReply,
    /// Forwards everything but bursts of the server that hold these bytes.
    Mute(&'static [u8]),
    /// Closes a connection when it is made, and one that is there when something arrives on it.
    Close,
}

/// What went through, on all connections together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: usize,
    /// Bytes that arrived from clients.
    pub from_clients: u64,
    /// Bytes that arrived from the server.
    pub from_server: u64,
    /// Bursts of a client that were followed by a burst of the server.
    pub round_trips: u64,
}

/// Where a server, or the proxy, listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// A TCP port of this machine.
    pub fn port(port: u16) -> Self {
        Self::Tcp((Ipv4Addr::LOCALHOST, port).into())
    }

    fn connect(&self) -> io::Result<EitherStream> {
        Ok(match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                EitherStream::Tcp(stream)
            }
            Self::Unix(path) => EitherStream::Unix(UnixStream::connect(path)?),
        })
    }
}

pub struct Proxy {
    shared: Arc<Shared>,
    address: Address,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    upstream: Address,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    mode: Mode,
    /// How many replies are cut whatever the mode.
    cuts: usize,
    /// How many bursts were kept back by [`Mode::Mute`].
    muted: usize,
    /// Requests on connections with a smaller number are kept back.
    held_below: u64,
    counts: Counts,
    stopped: bool,
    next: u64,
    open: Vec<(u64, ProxiedConnection)>,
    threads: Vec<JoinHandle<()>>,
}

/// The two ends of a connection, kept to close them from outside.
struct ProxiedConnection {
    client: EitherStream,
    server: Option<EitherStream>,
}

impl ProxiedConnection {
    fn close(&self) {
        self.client.close();
        if let Some(server) = &self.server {
            server.close();
        }
    }
}

impl Proxy {
    /// A proxy on a free TCP port of this machine.
    pub fn tcp(upstream: Address) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = Address::Tcp(listener.local_addr().expect("a bound port"));
        Self::start(upstream, address, move || {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            Ok(EitherStream::Tcp(stream))
        })
    }

    /// A proxy on a unix socket, which must not exist yet.
    pub fn unix(path: impl AsRef<Path>, upstream: Address) -> Self {
        let path = path.as_ref().to_owned();
        let listener = UnixListener::bind(&path).expect("a path for the proxy's socket");
        Self::start(upstream, Address::Unix(path), move || {
            Ok(EitherStream::Unix(listener.accept()?.0))
        })
    }

    fn start(
        upstream: Address,
        address: Address,
        accept: impl Fn() -> io::Result<EitherStream> + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            upstream,
            state: Mutex::new(State {
                mode: Mode::Pass,
                cuts: 0,
                muted: 0,
                held_below: 0,
                counts: Counts::default(),
                stopped: false,
                next: 0,
                open: Vec::new(),
                threads: Vec::new(),
            }),
            changed: Condvar::new(),
        });
        let server = Arc::clone(&shared);
        let accepting = std::thread::spawn(move || {
            while !server.state().stopped {
                match accept() {
                    Ok(client) => server.admit(client),
                    Err(_) => std::thread::yield_now(),
                }
            }
        });
        Self {
            shared,
            address,
            accepting: Some(accepting),
        }
    }

    /// Where clients connect.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The TCP port clients connect to.
    pub fn port(&self) -> u16 {
        match &self.address {
            Address::Tcp(address) => address.port(),
            Address::Unix(path) => panic!("{} is no TCP port", path.display()),
        }
    }

    /// Changes what is done with whatever arrives from now on.
    pub fn set(&self, mode: Mode) {
        self.shared.state().mode = mode;
        self.shared.changed.notify_all();
    }

    /// Lets the next `n` replies be lost: the request gets through, then the connection is closed without the reply. It goes
    /// before the mode, and what comes after them is treated as the mode says.
    pub fn cut_next_replies(&self, n: usize) {
        self.shared.state().cuts = n;
    }

    /// How many of them are still to be cut.
    pub fn cuts_left(&self) -> usize {
        self.shared.state().cuts
    }

    /// How many bursts of the server [`Mode::Mute`] has kept back.
    pub fn muted(&self) -> usize {
        self.shared.state().muted
    }

    /// Keeps back what clients send on the connections that are open now, until [`let_go`](Self::let_go). New connections
    /// work: what is sent on them overtakes what is kept.
    pub fn hold_back(&self) {
        let mut state = self.shared.state();
        state.held_below = state.next;
    }

    /// Closes the clients' ends of the connections that are held back. What they sent stays on its way.
    pub fn reset_held(&self) {
        let state = self.shared.state();
        for (_, link) in state.open.iter().filter(|(id, _)| *id < state.held_below) {
            link.client.close();
        }
    }

    /// Delivers what was held back, also if its sender has gone.
    pub fn let_go(&self) {
        self.shared.state().held_below = 0;
        self.shared.changed.notify_all();
    }

    /// Closes every connection there is. New ones are accepted.
    pub fn close_all(&self) {
        for (_, link) in &self.shared.state().open {
            link.close();
        }
    }

    /// Resets every connection there is: both ends get an error where [`close_all`](Self::close_all) would give them an end.
    pub fn reset_all(&self) {
        for (_, link) in &self.shared.state().open {
            // Both ends first: what copies between them closes the one when the other ends.
            link.client.reset_when_dropped();
            if let Some(server) = &link.server {
                server.reset_when_dropped();
            }
            link.close();
        }
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.shared.state().open.len()
    }

    pub fn counts(&self) -> Counts {
        self.shared.state().counts
    }

    /// Sets all counts to zero.
    pub fn reset_counts(&self) {
        self.shared.state().counts = Counts::default();
    }

    /// Waits, for at most 30 s, until `condition` holds for the counts.
    pub fn wait_for(&self, condition: impl Fn(&Counts) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut state = self.shared.state();
        while !condition(&state.counts) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the proxy saw only {:?}", state.counts);
            state = self.shared.wait(state, left);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().stopped = true;
        self.shared.changed.notify_all();
        // The accepting thread waits in the kernel: a connection of our own ends that.
        drop(self.address.connect());
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.close_all();
        let threads = std::mem::take(&mut self.shared.state().threads);
        for thread in threads {
            let _ = thread.join();
        }
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, timeout: Duration) -> MutexGuard<'a, State> {
        self.changed
            .wait_timeout(state, timeout)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    fn admit(self: &Arc<Self>, client: EitherStream) {
        let mode = {
            let mut state = self.state();
            if state.stopped {
                return;
            }
            state.counts.connections += 1;
            state.threads.retain(|thread| !thread.is_finished());
            state.mode
        };
        self.changed.notify_all();
        let server = match mode {
            Mode::Close => return,
            Mode::Swallow => None,
            _ => match self.upstream.connect() {
                Ok(server) => Some(server),
                Err(_) => return,
            },
        };
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        let (Ok(client_end), Ok(server_end)) = (
            client.twin(),
            server.as_ref().map(EitherStream::twin).transpose(),
        ) else {
            return;
        };
        state.open.push((
            id,
            ProxiedConnection {
                client: client_end,
                server: server_end,
            },
        ));
        let me = Arc::clone(self);
        let thread = std::thread::spawn(move || {
            me.serve(id, client, server);
            me.state().open.retain(|(other, _)| *other != id);
            me.changed.notify_all();
        });
        state.threads.push(thread);
    }

    /// One connection, until either end closes it.
    fn serve(&self, id: u64, client: EitherStream, server: Option<EitherStream>) {
        // Whether the last burst came from the client.
        let asked = Mutex::new(false);
        let Some(server) = &server else {
            return self.pump(id, Way::ToServer, &client, None, &asked);
        };
        let close = || {
            client.close();
            server.close();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                self.pump(id, Way::ToServer, &client, Some(server), &asked);
                close();
            });
            self.pump(id, Way::ToClient, server, Some(&client), &asked);
            close();
        });
    }

    fn pump(
        &self,
        id: u64,
        way: Way,
        from: &EitherStream,
        to: Option<&EitherStream>,
        asked: &Mutex<bool>,
    ) {
        let mut buffer = [0; 16 * 1024];
        loop {
            match from.read(&mut buffer) {
                Ok(n) if n > 0 => {
                    self.count(way, n, asked);
                    let held = way == Way::ToServer && self.keep_back(id);
                    if !self.forward(way, &buffer[..n], to) {
                        return;
                    }
                    if held {
                        self.await_reply();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    fn count(&self, way: Way, n: usize, asked: &Mutex<bool>) {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        match way {
            Way::ToServer => state.counts.from_clients += n as u64,
            Way::ToClient => {
                state.counts.from_server += n as u64;
                state.counts.round_trips += u64::from(*asked);
            }
        }
        *asked = way == Way::ToServer;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits while this connection is held back; `true` if it was.
    fn keep_back(&self, id: u64) -> bool {
        let mut state = self.state();
        let held = id < state.held_below;
        while id < state.held_below && !state.stopped {
            state = self.wait(state, Duration::from_secs(60));
        }
        held
    }

    /// Waits until the server has answered something: a sender that has gone would else end the connection first.
    fn await_reply(&self) {
        let end = Instant::now() + Duration::from_secs(5);
        let mut state = self.state();
        let before = state.counts.from_server;
        while state.counts.from_server == before && !state.stopped && Instant::now() < end {
            state = self.wait(state, Duration::from_millis(100));
        }
    }

    /// Deals with bytes as the mode says; `false` if the connection is to be closed.
    fn forward(&self, way: Way, bytes: &[u8], to: Option<&EitherStream>) -> bool {
        let Some(to) = to else {
            return true;
        };
        let mode = {
            let mut state = self.state();
            if way == Way::ToClient && state.cuts > 0 {
                state.cuts -= 1;
                return false;
            }
            while state.mode == Mode::Hold && !state.stopped {
                state = self.wait(state, Duration::from_secs(60));
            }
            state.mode
        };
        match mode {
            Mode::Swallow => true,
            Mode::Close => false,
            Mode::CutReply if way == Way::ToClient => false,
            Mode::TearReply if way == Way::ToClient => {
                let _ = to.write_all(&bytes[..bytes.len() / 2]);
                false
            }
            Mode::LoseReply if way == Way::ToClient => true,
            Mode::Mute(what)
                if way == Way::ToClient && bytes.windows(what.len()).any(|w| w == what) =>
            {
                self.state().muted += 1;
                true
            }
            Mode::Trickle(pause) if way == Way::ToClient => bytes
                .iter()
                .all(|byte| self.pause(pause) && to.write_all(&[*byte]).is_ok()),
            _ => to.write_all(bytes).is_ok(),
        }
    }

    /// Waits while the replies still trickle; `false` if the proxy ends.
    fn pause(&self, pause: Duration) -> bool {
        let deadline = Instant::now() + pause;
        let mut state = self.state();
        while !state.stopped && matches!(state.mode, Mode::Trickle(_)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.wait(state, left);
        }
        !state.stopped
    }
}

enum EitherStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl EitherStream {
    fn twin(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    /// Makes its last close a reset.
    fn reset_when_dropped(&self) {
        let Self::Tcp(stream) = self else {
            return;
        };
        let at_once = nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        let _ = setsockopt(stream, sockopt::Linger, &at_once);
    }

    fn is_to_be_reset(&self) -> bool {
        match self {
            Self::Tcp(stream) => {
                getsockopt(stream, sockopt::Linger).is_ok_and(|linger| linger.l_onoff != 0)
            }
            Self::Unix(_) => false,
        }
    }

    /// Ends the connection and whatever waits on it.
    fn close(&self) {
        // This sends nothing, and whatever reads gets an end. An end that is sent would come before the reset.
        let how = match self.is_to_be_reset() {
            true => Shutdown::Read,
            false => Shutdown::Both,
        };
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).read(into),
            Self::Unix(stream) => (&*stream).read(into),
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => (&*stream).write_all(bytes),
            Self::Unix(stream) => (&*stream).write_all(bytes),
        }
    }
}
