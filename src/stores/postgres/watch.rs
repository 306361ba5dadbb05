//! Hears of releases through Postgres: `LISTEN`, and a shared advisory lock per key that tells a release to `NOTIFY`. It
//! implements `backend::release_listener`'s connection. It uses `connection`, `error`, `message`, `sql`, `backend` and `types`.
//!
//! `NOTIFY` takes a lock of the whole server at commit, so it is sent only if there is a waiter: the listening session holds a
//! shared advisory lock on each key with waiters, and a release that cannot get the exclusive one sends the notification. The
//! end of the session, however it comes, gives the lock back.

use std::collections::HashMap;

use postgres_protocol::message::backend::Message;

use super::connection::PostgresConnection;
use super::error::garbled;
use super::message::Param;
use super::sql::Sql;
use crate::backend::limits::Limits;
use crate::backend::release_listener::ListenerConnection;
use crate::types::error::LockError;

/// The longest hash of a key as the server writes it: a sign and ten digits.
const MAX_PAYLOAD: usize = 11;

/// A session that listens.
pub(crate) struct PostgresListener {
    connection: PostgresConnection,
    watch: String,
    unwatch: String,
    /// The storage keys behind each payload: the key's hash, as the server computes it.
    keys: HashMap<String, Vec<String>>,
}

impl PostgresListener {
    /// Begins to listen on a new session.
    pub(crate) fn new(
        mut connection: PostgresConnection,
        sql: &Sql,
        limits: &Limits<'_>,
    ) -> Result<Self, LockError> {
        // A pooler shows a process that is not the one that runs our statements, and would leave LISTEN and the advisory locks
        // to the next user of that session.
        let rows = connection.query(
            "SELECT pg_catalog.pg_backend_pid()::pg_catalog.int8",
            &[],
            limits,
        )?;
        let process = rows.first().ok_or_else(garbled)?.int8(0)?;
        if !connection.is_own() || process != Some(connection.process().into()) {
            return Err(LockError::invalid(
                "there is a pooler in between: waiters ask by themselves",
            ));
        }
        connection.script(&sql.listen, limits)?;
        Ok(Self {
            connection,
            watch: sql.watch.clone(),
            unwatch: sql.unwatch.clone(),
            keys: HashMap::new(),
        })
    }

    fn all(&self) -> Vec<String> {
        self.keys.values().flatten().cloned().collect()
    }
}

impl ListenerConnection for PostgresListener {
    fn update(
        &mut self,
        add: &[String],
        remove: &[String],
        limits: &Limits<'_>,
    ) -> Result<Vec<String>, LockError> {
        for key in remove {
            self.connection
                .query(&self.unwatch, &[Param::Text(key)], limits)?;
            self.keys.retain(|_, keys| {
                keys.retain(|k| k != key);
                !keys.is_empty()
            });
        }
        for key in add {
            let rows = self
                .connection
                .query(&self.watch, &[Param::Text(key)], limits)?;
            let payload = rows
                .first()
                .ok_or_else(garbled)?
                .text(0)?
                // A number of 32 bits: anything longer would only fill our memory.
                .filter(|payload| payload.len() <= MAX_PAYLOAD)
                .ok_or_else(garbled)?;
            self.keys
                .entry(payload.to_owned())
                .or_default()
                .push(key.clone());
        }
        // Notifications that came during these exchanges were dropped.
        Ok(self.all())
    }

    fn next_released(&mut self, limits: &Limits<'_>) -> Result<Vec<String>, LockError> {
        match self.connection.receive(limits)? {
            Message::NotificationResponse(body) => {
                let payload = body.message().map_err(|_| garbled())?;
                Ok(self.keys.get(payload).cloned().unwrap_or_default())
            }
            Message::NoticeResponse(_) | Message::ParameterStatus(_) => Ok(Vec::new()),
            _ => Err(garbled()),
        }
    }

    fn probe(&mut self, limits: &Limits<'_>) -> Result<Option<Vec<String>>, LockError> {
        self.connection
            .query("SELECT 1::pg_catalog.int8", &[], limits)?;
        // As in `update`.
        Ok(Some(self.all()))
    }
}
