//! One connection to one server: log in, then one request and its replies at a time. It uses `net` and the protocol in `resp`;
//! `shared.rs` goes on with it for many callers.

use std::sync::Arc;
use std::time::Instant;

use crate::backend::limits::Limits;
use crate::backend::store_clock::StoreClock;
use crate::net::dialer::Dialer;
use crate::net::password::PasswordProvider;
use crate::net::socket::Socket;
#[cfg(feature = "tls")]
use crate::net::tls::Tls;
use crate::net::uri::Endpoint;
use crate::stores::redis::error;
use crate::stores::redis::resp::{self, ParsedReply, Reply};
use crate::stores::redis::url::Login;
use crate::types::error::{ErrorCode, LockError};
use crate::types::secret::wipe;

/// What a connection is named on the server, in `CLIENT LIST`.
const NAME: &[u8] = b"syncguard";
const READ_SIZE: usize = 4096;

/// Other servers close the connection, or wait for more. A Redis server that expects TLS closes it too.
const NOT_REDIS: &str = "it may be no Redis server";
const NOT_REDIS_OR_TLS: &str = "it may be no Redis server, or one that expects TLS (rediss://)";

/// How to make a connection, wherever it goes.
pub(crate) struct Connector {
    pub(crate) login: Login,
    /// Asked for the password in place of the login's.
    pub(crate) password: Option<Arc<PasswordProvider>>,
    pub(crate) dialer: Dialer,
    pub(crate) demand: Demand,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
}

/// What a server must be to be connected to; it is asked together with the login.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demand {
    Anything,
    /// Not a replica: it would answer from the past.
    Primary,
    /// Not a server on its own: two clients that know different ones would share no lock.
    ClusterNode,
}

/// After any error it must be dropped: what it would read next may be the reply to something else.
pub(crate) struct RedisConnection {
    socket: Socket,
    output: Vec<u8>,
    /// What was read; the first `filled` bytes of it count.
    input: Vec<u8>,
    filled: usize,
    /// The server's clock, once it has told.
    clock: Option<StoreClock>,
    /// Whether every command is to be announced by `ASKING`: the server is only about to own the slot.
    pub(crate) asking: bool,
}

impl Connector {
    /// Connects and logs in. Nothing of the caller's was sent if it fails.
    pub(crate) fn connect(
        &self,
        endpoint: &Endpoint,
        limits: &Limits<'_>,
    ) -> Result<RedisConnection, LockError> {
        self.open(endpoint, limits)
            .map_err(LockError::nothing_applied)
    }

    fn open(&self, endpoint: &Endpoint, limits: &Limits<'_>) -> Result<RedisConnection, LockError> {
        // Before the connection: a server waits only so long for a login.
        let given = match &self.password {
            Some(provider) => Some(provider.password(limits)?),
            None => None,
        };
        let password = match &given {
            Some(given) => Some(given.bytes()),
            None => self.login.password.as_deref().map(str::as_bytes),
        };
        #[cfg_attr(not(feature = "tls"), allow(unused_mut))]
        let mut socket = Socket::connect(endpoint, &self.dialer, limits)?;
        #[cfg(feature = "tls")]
        if let (Some(tls), Endpoint::Tcp { host, .. }) = (&self.tls, endpoint) {
            socket.encrypt(tls, host, limits)?;
        }
        let mut connection = RedisConnection {
            socket,
            output: Vec::new(),
            input: vec![0; READ_SIZE],
            filled: 0,
            clock: None,
            asking: false,
        };
        // No copy of it stays behind when the buffer grows.
        connection
            .output
            .reserve(1024 + password.map_or(0, <[u8]>::len));
        let done = connection.log_in(
            &self.login,
            password,
            self.demand,
            self.hint_if_silent(),
            limits,
        );
        wipe(&mut connection.output);
        done?;
        Ok(connection)
    }

    /// What a server may be that ends a connection without a reply.
    fn hint_if_silent(&self) -> &'static str {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return NOT_REDIS;
        }
        NOT_REDIS_OR_TLS
    }
}

impl RedisConnection {
    /// All in one write. A verb is not sent along: if the login is refused it would run as another user.
    fn log_in(
        &mut self,
        login: &Login,
        password: Option<&[u8]>,
        demand: Demand,
        hint: &str,
        limits: &Limits<'_>,
    ) -> Result<(), LockError> {
        let database = login.database.to_string();
        let mut steps: Vec<(LoginStep, Vec<&[u8]>)> = Vec::new();
        match (&login.user, password) {
            (Some(user), password) => {
                let password = password.unwrap_or_default();
                steps.push((LoginStep::Auth, vec![b"AUTH", user.as_bytes(), password]));
            }
            (None, Some(password)) => {
                steps.push((LoginStep::Auth, vec![b"AUTH", password]));
            }
            (None, None) => {}
        }
        if login.database != 0 {
            steps.push((LoginStep::Select, vec![b"SELECT", database.as_bytes()]));
        }
        match demand {
            Demand::Anything => {}
            Demand::Primary => steps.push((LoginStep::Role, vec![b"ROLE"])),
            // The command after it ends its effect.
            Demand::ClusterNode => steps.push((LoginStep::Cluster, vec![b"ASKING"])),
        }
        steps.push((LoginStep::Time, vec![b"TIME"]));
        steps.push((LoginStep::Name, vec![b"CLIENT", b"SETNAME", NAME]));
        let commands: Vec<&[&[u8]]> = steps.iter().map(|(_, c)| c.as_slice()).collect();
        let sent = Instant::now();
        self.send(&commands, limits)
            .map_err(|e| e.if_unheard(hint))?;
        // Only the first refusal tells: the others follow from it.
        for (n, (step, _)) in steps.iter().enumerate() {
            let reply = match self.receive(limits) {
                Err(e) if n == 0 && self.filled == 0 => return Err(e.if_unheard(hint)),
                reply => reply?,
            };
            match reply {
                Reply::Error(line) => step.judge(&line)?,
                reply => {
                    step.accept(&reply)?;
                    if let (LoginStep::Time, Some(now_ms)) = (step, time(&reply)) {
                        self.clock = Some(StoreClock::read(now_ms, sent));
                    }
                }
            }
        }
        self.end()
    }

    /// Ends the connection before it is dropped.
    pub(crate) fn shut(&self) {
        self.socket.shut();
    }

    /// What a connection that callers share is made of.
    pub(crate) fn into_parts(self) -> (Socket, Option<StoreClock>) {
        (self.socket, self.clock)
    }

    pub(crate) fn clock_mut(&mut self) -> &mut Option<StoreClock> {
        &mut self.clock
    }

    /// Several commands in one trip.
    pub(crate) fn pipeline(
        &mut self,
        commands: &[&[&[u8]]],
        limits: &Limits<'_>,
    ) -> Result<Vec<Reply>, LockError> {
        const ASKING: &[&[u8]] = &[b"ASKING"];
        let announced: Vec<&[&[u8]]>;
        let sent = if self.asking {
            announced = commands.iter().flat_map(|c| [ASKING, *c]).collect();
            &announced[..]
        } else {
            commands
        };
        self.send(sent, limits)?;
        let mut replies = Vec::with_capacity(commands.len());
        for command in sent {
            let reply = self.receive(limits)?;
            // If it was refused, so is what follows it, and that tells more.
            if *command != ASKING {
                replies.push(reply);
            }
        }
        self.end()?;
        Ok(replies)
    }

    pub(crate) fn send(
        &mut self,
        commands: &[&[&[u8]]],
        limits: &Limits<'_>,
    ) -> Result<(), LockError> {
        self.output.clear();
        for command in commands {
            resp::command(&mut self.output, command);
        }
        self.socket.write_all(&self.output, limits)
    }

    pub(crate) fn receive(&mut self, limits: &Limits<'_>) -> Result<Reply, LockError> {
        loop {
            let parsed = resp::parse(&self.input[..self.filled]).map_err(error::malformed)?;
            if let Some(ParsedReply { reply, bytes }) = parsed {
                self.input.copy_within(bytes..self.filled, 0);
                self.filled -= bytes;
                return Ok(reply);
            }
            if self.filled == self.input.len() {
                // The parser refuses a reply before this grows without end.
                self.input.resize(self.input.len() * 2, 0);
            }
            self.filled += self.socket.read(&mut self.input[self.filled..], limits)?;
        }
    }

    /// Nothing may follow the last reply: if something does, questions and answers are out of step.
    fn end(&mut self) -> Result<(), LockError> {
        if self.filled > 0 {
            return Err(error::surplus());
        }
        if self.input.len() > READ_SIZE {
            self.input = vec![0; READ_SIZE];
        }
        Ok(())
    }
}

/// A command of the login, and what its reply must be.
#[derive(Clone, Copy)]
enum LoginStep {
    Auth,
    Select,
    Role,
    Cluster,
    /// Where it is refused, requests carry no time, and the scripts that read the clock tell what is missing.
    Time,
    Name,
}

/// The server's clock in Unix milliseconds, from the reply to `TIME`.
fn time(reply: &Reply) -> Option<i64> {
    let Reply::Array(items) = reply else {
        return None;
    };
    let [Reply::Bulk(seconds), Reply::Bulk(micros)] = &items[..] else {
        return None;
    };
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    number(seconds)?
        .checked_mul(1000)?
        .checked_add(number(micros)? / 1000)
}

impl LoginStep {
    fn judge(self, line: &str) -> Result<(), LockError> {
        let refused = error::refused(line);
        match self {
            Self::Auth
                if matches!(
                    refused.code(),
                    ErrorCode::Internal | ErrorCode::InvalidArgument
                ) =>
            {
                Err(LockError::new(
                    ErrorCode::AuthFailed,
                    "Redis refused the user name or password",
                ))
            }
            // The name is for readers of CLIENT LIST; a user without the right to it, or a server that does
            // not know it, works as well.
            Self::Name | Self::Time
                if line.starts_with("NOPERM") || refused.code() == ErrorCode::Internal =>
            {
                Ok(())
            }
            Self::Cluster if refused.code() == ErrorCode::Internal => Err(LockError::invalid(
                "this server is no node of a Redis Cluster; use a redis:// URL for it",
            )),
            _ => Err(refused),
        }
    }

    fn accept(self, reply: &Reply) -> Result<(), LockError> {
        match (self, reply) {
            (Self::Role, Reply::Array(items)) => match items.first() {
                Some(Reply::Bulk(role)) if role == b"master" => Ok(()),
                _ => Err(LockError::unavailable(
                    "the server that the sentinels name is no primary yet, or no longer",
                )),
            },
            (Self::Role, _) => Err(error::unexpected()),
            _ => Ok(()),
        }
    }
}
