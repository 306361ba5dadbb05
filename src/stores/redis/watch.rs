//! Hears of releases through Redis: a channel per lock, on which the release script publishes. It implements
//! `backend::release_listener`'s connection. It uses `connection`, `resp`, `backend` and `types`.

use crate::backend::limits::Limits;
use crate::backend::release_listener::ListenerConnection;
use crate::stores::redis::connection::RedisConnection;
use crate::stores::redis::resp::Reply;
use crate::types::error::LockError;

/// A connection in subscriber mode: it hears messages and may subscribe, nothing else.
pub(crate) struct RedisListener {
    connection: RedisConnection,
}

impl RedisListener {
    pub(crate) fn new(connection: RedisConnection) -> Self {
        Self { connection }
    }
}

impl ListenerConnection for RedisListener {
    /// The server confirms each subscription with a message of its own.
    fn update(
        &mut self,
        add: &[String],
        remove: &[String],
        limits: &Limits<'_>,
    ) -> Result<Vec<String>, LockError> {
        let commands: Vec<[&[u8]; 2]> = remove
            .iter()
            .map(|name| [b"UNSUBSCRIBE", name.as_bytes()])
            .chain(
                add.iter()
                    .map(|name| [b"SUBSCRIBE".as_slice(), name.as_bytes()]),
            )
            .collect();
        let commands: Vec<&[&[u8]]> = commands.iter().map(<[_; 2]>::as_slice).collect();
        self.connection.send(&commands, limits)?;
        Ok(Vec::new())
    }

    fn next_released(&mut self, limits: &Limits<'_>) -> Result<Vec<String>, LockError> {
        match self.connection.receive(limits)? {
            Reply::Array(items) => Ok(match &items[..] {
                [Reply::Bulk(kind), Reply::Bulk(name), ..]
                    if kind == b"subscribe" || kind == b"message" =>
                {
                    String::from_utf8(name.clone()).into_iter().collect()
                }
                // An UNSUBSCRIBE, or a PONG.
                _ => Vec::new(),
            }),
            // Before its first subscription a connection answers PING like any other.
            Reply::Status(_) => Ok(Vec::new()),
            // An ACL, or a server that does not know channels.
            _ => Err(LockError::invalid("the server does not let us subscribe")),
        }
    }

    fn probe(&mut self, limits: &Limits<'_>) -> Result<Option<Vec<String>>, LockError> {
        self.connection.send(&[&[b"PING"]], limits)?;
        Ok(None)
    }
}
