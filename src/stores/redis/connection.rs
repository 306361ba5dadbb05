//! One connection to one server: log in, then one request and its reply at a time. It uses `net` and the protocol in `resp`.

use std::time::Instant;

use crate::backend::limits::Limits;
use crate::backend::store_clock::{self, StoreClock, TimedReply};
use crate::net::socket::Socket;
#[cfg(feature = "tls")]
use crate::net::tls::Tls;
use crate::net::uri::Endpoint;
use crate::stores::redis::error;
use crate::stores::redis::resp::{self, Malformed, ParsedReply, Reply};
use crate::stores::redis::scripts::Script;
use crate::stores::redis::url::Login;
use crate::types::error::{ErrorCode, LockError};

/// What a connection is named on the server, in `CLIENT LIST`.
const NAME: &[u8] = b"syncguard";
const READ_SIZE: usize = 4096;

/// Other servers close the connection, or wait for more. A Redis server that expects TLS closes it too.
const NOT_REDIS: &str = "it may be no Redis server";
const NOT_REDIS_OR_TLS: &str = "it may be no Redis server, or one that expects TLS (rediss://)";

/// How to make a connection, wherever it goes.
pub(crate) struct Connector {
    pub(crate) login: Login,
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
        #[cfg_attr(not(feature = "tls"), allow(unused_mut))]
        let mut socket = Socket::connect(endpoint, limits)?;
        #[cfg(feature = "tls")]
        if let (Some(tls), Endpoint::Tcp { host, .. }) = (&self.tls, endpoint) {
            socket.encrypt(tls, host, limits)?;
        }
        let mut connection = RedisConnection {
            socket,
            output: Vec::with_capacity(1024),
            input: vec![0; READ_SIZE],
            filled: 0,
            clock: None,
            asking: false,
        };
        connection.log_in(&self.login, self.demand, self.hint_if_silent(), limits)?;
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
        demand: Demand,
        hint: &str,
        limits: &Limits<'_>,
    ) -> Result<(), LockError> {
        let database = login.database.to_string();
        let mut steps: Vec<(LoginStep, Vec<&[u8]>)> = Vec::new();
        match (&login.user, &login.password) {
            (Some(user), password) => {
                let password = password.as_deref().unwrap_or_default();
                steps.push((
                    LoginStep::Auth,
                    vec![b"AUTH", user.as_bytes(), password.as_bytes()],
                ));
            }
            (None, Some(password)) => {
                steps.push((LoginStep::Auth, vec![b"AUTH", password.as_bytes()]));
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
        // The password does not stay in the buffer.
        self.output.fill(0);
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

    /// Runs a script that changes a lease. Its last argument is the time after which the server refuses it.
    pub(crate) fn run_in_time(
        &mut self,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        limits: &Limits<'_>,
    ) -> Result<Reply, LockError> {
        let mut clock = self.clock;
        let reply = store_clock::send_in_time(&mut clock, limits, |not_after| {
            let not_after = not_after.map(|ms| ms.to_string()).unwrap_or_default();
            let args = [args, &[not_after.as_bytes()]].concat();
            let reply = self.run(script, keys, &args, limits)?;
            Ok(match too_late(&reply) {
                Some(now_ms) => TimedReply::TooLate { now_ms },
                None => TimedReply::Answer(reply),
            })
        });
        self.clock = clock;
        reply
    }

    /// Runs a script by its digest, or by its text if the server does not know it yet: `SCRIPT LOAD` would be a trip
    /// and a right more.
    pub(crate) fn run(
        &mut self,
        script: &Script,
        keys: &[&[u8]],
        args: &[&[u8]],
        limits: &Limits<'_>,
    ) -> Result<Reply, LockError> {
        let by_digest = eval(b"EVALSHA", script.digest.as_bytes(), keys, args);
        let reply = self.call(&by_digest, limits)?;
        match reply {
            Reply::Error(line) if error::is_no_script(&line) => {
                let by_text = eval(b"EVAL", script.text.as_bytes(), keys, args);
                self.call(&by_text, limits)
            }
            reply => Ok(reply),
        }
    }

    fn call(&mut self, command: &[&[u8]], limits: &Limits<'_>) -> Result<Reply, LockError> {
        if self.asking {
            let mut replies = self.pipeline(&[command], limits)?;
            return replies.pop().ok_or_else(error::unexpected);
        }
        self.send(&[command], limits)?;
        // Redis serves requests in the order in which it gets them.
        limits.ordered();
        let reply = self.receive(limits)?;
        self.end()?;
        Ok(reply)
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

    /// Whether nothing came in without a request, not even the end.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.socket.is_quiet()
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
            return Err(error::malformed(Malformed {
                reason: "it sent more replies than it was asked for",
            }));
        }
        if self.input.len() > READ_SIZE {
            self.input = vec![0; READ_SIZE];
        }
        Ok(())
    }
}

fn eval<'a>(
    verb: &'a [u8],
    script: &'a [u8],
    keys: &[&'a [u8]],
    args: &[&'a [u8]],
) -> Vec<&'a [u8]> {
    const COUNTS: [&[u8]; 4] = [b"0", b"1", b"2", b"3"];
    let mut command = Vec::with_capacity(3 + keys.len() + args.len());
    command.extend([verb, script, COUNTS[keys.len()]]);
    command.extend_from_slice(keys);
    command.extend_from_slice(args);
    command
}

/// The server's time, if the reply says that the request came too late.
fn too_late(reply: &Reply) -> Option<i64> {
    let Reply::Array(items) = reply else {
        return None;
    };
    match items[..] {
        [Reply::Integer(-3), Reply::Integer(now_ms)] => Some(now_ms),
        _ => None,
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
