//! From an endpoint to a session: TLS, authentication, and what the server says about itself. It uses `net` and `message`.

use std::sync::Arc;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

use super::error::{Refusal, Stage, garbled};
use super::message::{Channel, unsendable};
use super::url::{Binding, PostgresUrl, SslMode};
use crate::backend::limits::Limits;
use crate::net::dialer::Dialer;
use crate::net::socket::Socket;
use crate::net::uri::Endpoint;
use crate::types::error::{ErrorCode, LockError};
use crate::types::secret::{Secret, wipe};

/// A server that asks for more rounds than this wants our processor, not our proof.
const MAX_SCRAM_ROUNDS: u32 = 1_000_000;

/// Other servers wait for the end of a line, or of a message as long as ours seems to say, or close the connection.
const NOT_POSTGRES: &str = "it may be no Postgres server";

/// What cancels a query of a session.
#[derive(Clone)]
pub(crate) struct CancelKey {
    pub(crate) process: i32,
    pub(crate) secret: i32,
}

/// How a session is reached: a request to cancel its query goes the same cancel_route.
#[derive(Clone)]
pub(crate) struct CancelRoute {
    endpoint: Endpoint,
    dialer: Dialer,
    /// Set if the session is under TLS.
    #[cfg(feature = "tls")]
    tls: Option<crate::net::tls::Tls>,
}

impl CancelRoute {
    /// A new connection the same cancel_route. If the session is under TLS, so is this one, or it fails.
    pub(crate) fn connect(&self, limits: &Limits<'_>) -> Result<Socket, LockError> {
        #[cfg_attr(not(feature = "tls"), allow(unused_mut))]
        let mut socket = Socket::connect(&self.endpoint, &self.dialer, limits)?;
        #[cfg(feature = "tls")]
        if let (Some(tls), Endpoint::Tcp { host, .. }) = (&self.tls, &self.endpoint) {
            ask_for_tls(SslMode::Require, &mut socket, limits)?;
            socket.encrypt(tls, host, limits)?;
        }
        Ok(socket)
    }
}

/// A session that the server has let in.
pub(crate) struct StartedSession {
    pub(crate) channel: Channel,
    pub(crate) cancel_route: CancelRoute,
    pub(crate) cancel_key: CancelKey,
}

/// How a server is reached.
pub(crate) struct Way<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) dialer: &'a Dialer,
    #[cfg(feature = "tls")]
    pub(crate) tls: &'a crate::net::tls::Tls,
}

/// Connects and authenticates. Nothing of the caller's was sent if it fails.
pub(crate) fn start(
    url: &PostgresUrl,
    password: Option<Arc<Secret>>,
    way: Way<'_>,
    limits: &Limits<'_>,
) -> Result<StartedSession, LockError> {
    let endpoint = way.endpoint;
    let mut socket = Socket::connect(endpoint, way.dialer, limits)?;
    let encrypted = match endpoint {
        Endpoint::Tcp { host, .. } if url.ssl > SslMode::Disable && cfg!(feature = "tls") => {
            let accepted = ask_for_tls(url.ssl, &mut socket, limits)?;
            #[cfg(feature = "tls")]
            if accepted {
                socket.encrypt(way.tls, host, limits)?;
            }
            let _ = host;
            accepted
        }
        _ => false,
    };
    // Without TLS there is nothing to bind to: not even the user's name is sent.
    if url.binding == Binding::Require && !encrypted {
        return Err(denied(
            "channel_binding=require needs TLS, and this connection has none",
        ));
    }
    let cancel_route = CancelRoute {
        endpoint: endpoint.clone(),
        dialer: way.dialer.clone(),
        #[cfg(feature = "tls")]
        tls: encrypted.then(|| way.tls.clone()),
    };
    let mut startup = Startup {
        url,
        password,
        channel: Channel::new(socket),
        // A password goes in the clear only where no third party can read it, or where the caller turned TLS off.
        private: encrypted || matches!(endpoint, Endpoint::Unix(_)) || url.ssl == SslMode::Disable,
        got_message: false,
    };
    let cancel_key = startup.log_in(limits).map_err(LockError::nothing_applied)?;
    Ok(StartedSession {
        channel: startup.channel,
        cancel_route,
        cancel_key,
    })
}

fn ask_for_tls(ssl: SslMode, socket: &mut Socket, limits: &Limits<'_>) -> Result<bool, LockError> {
    let mut out = BytesMut::new();
    frontend::ssl_request(&mut out);
    socket
        .write_all(&out, limits)
        .map_err(LockError::nothing_applied)?;
    // Exactly one byte: what follows in the clear must not be taken for something sent under TLS.
    let mut answer = [0; 1];
    socket
        .read(&mut answer, limits)
        .map_err(|e| e.nothing_applied().if_unheard(NOT_POSTGRES))?;
    match answer[0] {
        b'S' => Ok(true),
        b'N' if ssl == SslMode::Prefer => Ok(false),
        b'N' => Err(LockError::unavailable(
            "the server does not speak TLS, and sslmode asks for it",
        )
        .nothing_applied()),
        _ => Err(garbled().nothing_applied()),
    }
}

struct Startup<'a> {
    url: &'a PostgresUrl,
    password: Option<Arc<Secret>>,
    channel: Channel,
    private: bool,
    /// Whether the server has sent a message.
    got_message: bool,
}

/// How far the login has come. It only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It has asked for nothing yet.
    Greeted,
    /// Its one request was answered.
    Answered,
    /// It let us in.
    Admitted,
}

impl Startup<'_> {
    fn log_in(&mut self, limits: &Limits<'_>) -> Result<CancelKey, LockError> {
        let mut out = BytesMut::new();
        let parameters = [
            ("user", self.url.user.as_str()),
            ("database", self.url.database.as_str()),
            ("application_name", self.url.application.as_str()),
            ("client_encoding", "UTF8"),
        ];
        frontend::startup_message(parameters, &mut out).map_err(unsendable)?;
        self.channel.send(&out, limits)?;
        self.authenticate(limits)?;
        self.greeting(limits)
    }

    /// Answers the server's request, if it has one, up to its consent. A server that asks twice, or goes on without
    /// consent, is no Postgres server.
    fn authenticate(&mut self, limits: &Limits<'_>) -> Result<(), LockError> {
        let mut progress = Progress::Greeted;
        let mut bound = false;
        while progress != Progress::Admitted {
            let message = self.next(limits)?;
            progress = match (message, progress) {
                (Message::AuthenticationOk, _) => {
                    if self.url.binding == Binding::Require && !bound {
                        return Err(denied(
                            "channel_binding=require, and the server did not ask for it",
                        ));
                    }
                    Progress::Admitted
                }
                (request, Progress::Greeted) => {
                    bound = self.answer_request(&request, limits)?;
                    Progress::Answered
                }
                _ => return Err(garbled()),
            };
        }
        Ok(())
    }

    /// Answers a request for a proof. Says whether the proof was tied to the TLS channel.
    fn answer_request(
        &mut self,
        request: &Message,
        limits: &Limits<'_>,
    ) -> Result<bool, LockError> {
        // Decided before anything is answered: afterwards a password would be gone.
        if self.url.binding == Binding::Require
            && matches!(
                request,
                Message::AuthenticationCleartextPassword | Message::AuthenticationMd5Password(_)
            )
        {
            return Err(denied(
                "channel_binding=require, and the server asks for the password without it; nothing was answered",
            ));
        }
        match request {
            Message::AuthenticationCleartextPassword => {
                if !self.private {
                    return Err(denied(
                        "the server asks for the password in the clear; use sslmode=require, or sslmode=disable if the network is yours",
                    ));
                }
                let password = self.password()?;
                self.answer(limits, |out| {
                    frontend::password_message(password.bytes(), out)
                })?;
                Ok(false)
            }
            Message::AuthenticationMd5Password(body) => {
                let hash = md5_hash(
                    self.url.user.as_bytes(),
                    self.password()?.bytes(),
                    body.salt(),
                );
                self.answer(limits, |out| {
                    frontend::password_message(hash.as_bytes(), out)
                })?;
                Ok(false)
            }
            Message::AuthenticationSasl(body) => self.scram(body, limits),
            Message::AuthenticationGss
            | Message::AuthenticationSspi
            | Message::AuthenticationKerberosV5
            | Message::AuthenticationScmCredential => Err(denied(
                "the server asks for Kerberos or SSPI; only trust, password, md5, SCRAM and certificates of the network are known here",
            )),
            _ => Err(garbled()),
        }
    }

    /// What a server that let us in says about itself, up to its first `ReadyForQuery`.
    fn greeting(&mut self, limits: &Limits<'_>) -> Result<CancelKey, LockError> {
        let mut key = None;
        loop {
            match self.next(limits)? {
                Message::BackendKeyData(body) if key.is_none() => {
                    key = Some(CancelKey {
                        process: body.process_id(),
                        secret: body.secret_key(),
                    });
                }
                Message::ParameterStatus(body) => {
                    let name = body.name().map_err(|_| garbled())?;
                    let value = body.value().map_err(|_| garbled())?;
                    if name == "client_encoding" && value != "UTF8" {
                        return Err(LockError::invalid(
                            "the server or pooler does not use UTF8 on this connection",
                        ));
                    }
                }
                Message::ReadyForQuery(body) if body.status() == b'I' => {
                    // A pooler without query cancel may send none.
                    return Ok(key.unwrap_or(CancelKey {
                        process: 0,
                        secret: 0,
                    }));
                }
                _ => return Err(garbled()),
            }
        }
    }

    /// SCRAM-SHA-256 up to the server's proof. Says whether it was tied to the TLS channel.
    fn scram(
        &mut self,
        body: &AuthenticationSaslBody,
        limits: &Limits<'_>,
    ) -> Result<bool, LockError> {
        let (mut plain, mut plus) = (false, false);
        let mut mechanisms = body.mechanisms();
        while let Some(name) = mechanisms.next().map_err(|_| garbled())? {
            plain |= name == SCRAM_SHA_256;
            plus |= name == SCRAM_SHA_256_PLUS;
        }
        let proof = match self.url.binding {
            Binding::Disable => None,
            _ => self.channel.socket.channel_binding(),
        };
        let (mechanism, binding) = match proof {
            Some(proof) if plus => (
                SCRAM_SHA_256_PLUS,
                ChannelBinding::tls_server_end_point(proof),
            ),
            _ if self.url.binding == Binding::Require => {
                return Err(denied(
                    "channel_binding=require, and server or connection cannot do it",
                ));
            }
            _ if !plain => {
                return Err(denied(
                    "the server offers no SASL mechanism that is known here and fits channel_binding",
                ));
            }
            Some(_) => (SCRAM_SHA_256, ChannelBinding::unrequested()),
            None => (SCRAM_SHA_256, ChannelBinding::unsupported()),
        };
        let mut scram = ScramSha256::new(self.password()?.bytes(), binding);
        self.answer(limits, |out| {
            frontend::sasl_initial_response(mechanism, scram.message(), out)
        })?;
        match self.next(limits)? {
            Message::AuthenticationSaslContinue(body) => {
                if !rounds(body.data()).is_some_and(|n| (1..=MAX_SCRAM_ROUNDS).contains(&n)) {
                    return Err(garbled());
                }
                scram.update(body.data()).map_err(|_| garbled())?;
            }
            _ => return Err(garbled()),
        }
        self.answer(limits, |out| frontend::sasl_response(scram.message(), out))?;
        match self.next(limits)? {
            Message::AuthenticationSaslFinal(body) => scram.finish(body.data()).map_err(|_| {
                denied("the server could not prove that it knows the password's hash")
            })?,
            _ => return Err(garbled()),
        }
        Ok(mechanism == SCRAM_SHA_256_PLUS)
    }

    fn password(&self) -> Result<Arc<Secret>, LockError> {
        self.password
            .clone()
            .ok_or_else(|| denied("the server asks for a password, and the URL has none"))
    }

    fn answer(
        &mut self,
        limits: &Limits<'_>,
        encode: impl FnOnce(&mut BytesMut) -> std::io::Result<()>,
    ) -> Result<(), LockError> {
        // No copy of a password stays behind: the buffer does not grow, and is overwritten.
        let longest = self.password.as_ref().map_or(0, |p| p.bytes().len());
        let mut out = BytesMut::with_capacity(1024 + longest);
        let sent = encode(&mut out)
            .map_err(unsendable)
            .and_then(|()| self.channel.send(&out, limits));
        wipe(&mut out);
        sent
    }

    fn next(&mut self, limits: &Limits<'_>) -> Result<Message, LockError> {
        loop {
            let message = match self.channel.receive(limits) {
                Err(e) if !self.got_message && self.channel.is_empty() => {
                    return Err(e.if_unheard(NOT_POSTGRES));
                }
                message => message?,
            };
            self.got_message = true;
            match message {
                Message::NoticeResponse(_) => {}
                Message::ErrorResponse(body) => {
                    let refusal = Refusal::read(body.fields()).map_err(|_| garbled())?;
                    return Err(refusal.into_error(Stage::Startup));
                }
                message => return Ok(message),
            }
        }
    }
}

/// The iteration count in the server's first SCRAM message.
fn rounds(message: &[u8]) -> Option<u32> {
    std::str::from_utf8(message)
        .ok()?
        .split(',')
        .find_map(|part| part.strip_prefix("i="))?
        .parse()
        .ok()
}

fn denied(message: &str) -> LockError {
    LockError::new(ErrorCode::AuthFailed, message).nothing_applied()
}
