//! What the server's refusals mean. It uses `types`, and the names of `sql`.

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;

use super::sql::{GATE_FUNCTION, GATE_TABLE};
use crate::types::error::{ErrorCode, LockError};
use crate::types::fence::CLOCK_IS_WRONG;

/// How far the exchange had come when the server refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Connecting: nothing of ours was sent.
    Startup,
    /// Before the commit was reached: the transaction is rolled back.
    Body,
    Commit,
}

/// An error or a warning of the server.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) severity: String,
    message: String,
}

/// The error for an error of the server, with its SQLSTATE, its severity and its message. Of the message only names of tables, columns and
/// functions are repeated.
///
/// A server that ends the connection with it (`FATAL`) may have committed before: the effect is then unknown. Any other error rolls the
/// transaction back.
///
/// ```
/// use syncguard::ErrorCode;
/// use syncguard::format::postgres::refusal;
///
/// assert_eq!(refusal("57014", "ERROR", "canceling statement due to statement timeout").code(), ErrorCode::NetworkTimeout);
/// ```
pub fn refusal(sqlstate: &str, severity: &str, message: &str) -> LockError {
    let refusal = Refusal {
        code: sqlstate.to_owned(),
        severity: severity.to_owned(),
        message: message.to_owned(),
    };
    let stage = match refusal.is_fatal() {
        true => Stage::Commit,
        false => Stage::Body,
    };
    refusal.into_error(stage)
}

impl Refusal {
    pub(crate) fn read(mut fields: ErrorFields<'_>) -> std::io::Result<Self> {
        let (mut code, mut severity, mut message) = (String::new(), String::new(), String::new());
        while let Some(field) = fields.next()? {
            let text = || String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => code = text(),
                // The one that is never translated wins; every server since 9.6 sends it.
                b'V' => severity = text(),
                b'S' if severity.is_empty() => severity = text(),
                b'M' => message = text(),
                _ => {}
            }
        }
        Ok(Self {
            code,
            severity,
            message,
        })
    }

    /// Whether the server ends the connection with it.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(self.severity.as_str(), "FATAL" | "PANIC")
    }

    /// Whether it is about a prepared statement that is gone, was there already, or whose result would have another type.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_elsewhere() || matches!(self.code.as_str(), "42P05" | "0A000")
    }

    /// Whether it says that this is not the session in which the statement was prepared: there is none of this name, or
    /// `STILL_OURS` has divided by zero.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self.code.as_str(), "26000" | "22012")
    }

    /// The library's error for it.
    pub(crate) fn into_error(self, stage: Stage) -> LockError {
        let (code, text) = self.meaning(stage);
        let sqlstate: String = self
            .code
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(5)
            .collect();
        let said = self.quotable().map_or(String::new(), |m| format!(": {m}"));
        let error = LockError::new(code, format!("{text} ({sqlstate}{said})"));
        match stage {
            Stage::Startup | Stage::Body => error.nothing_applied(),
            Stage::Commit => error,
        }
    }

    /// The server's own words where they hold only names of tables, columns and functions, never values or users.
    fn quotable(&self) -> Option<&str> {
        let safe = matches!(self.code.get(..2), Some("42" | "3F" | "0A" | "25"));
        (safe && self.message.len() < 300).then_some(self.message.as_str())
    }

    fn meaning(&self, stage: Stage) -> (ErrorCode, &'static str) {
        use ErrorCode::*;
        let class = self.code.get(..2).unwrap_or_default();
        // PgBouncer has one code for everything it refuses.
        if stage == Stage::Startup && self.code == "08P01" {
            if self.message.contains("no such database") {
                return (InvalidArgument, "the pooler knows no such database");
            }
            if self.message.contains("password") || self.message.contains("no such user") {
                return (AuthFailed, "the pooler refused the user or the password");
            }
        }
        match self.code.as_str() {
            "SGF01" => (
                Internal,
                "the fence counter of this key is over its limit or not a counter; the lock was not taken",
            ),
            "SGF02" => (Internal, CLOCK_IS_WRONG),
            "25006" => (ServiceUnavailable, "the server is a standby or read-only"),
            // BEGIN READ WRITE on a standby.
            "0A000" if self.message.contains("recovery") => {
                (ServiceUnavailable, "the server is a standby")
            }
            "40001" | "40P01" => (ServiceUnavailable, "the server gave up the transaction"),
            "53300" => (RateLimited, "the server has no connection left for us"),
            "55P03" | "57014" | "25P03" | "25P04" => (
                NetworkTimeout,
                "the server did not get to the end within the operation's time",
            ),
            "57P01" | "57P02" | "57P03" | "57P05" => (
                ServiceUnavailable,
                "the server is shutting down or starting",
            ),
            "3D000" => (InvalidArgument, "the database does not exist"),
            "42501" => (
                AuthFailed,
                "the role lacks a right; docs/postgres.md lists the least grants",
            ),
            "42P01" | "42883"
                if self.message.contains(GATE_TABLE) || self.message.contains(GATE_FUNCTION) =>
            {
                (
                    InvalidArgument,
                    "the fence gate is missing; call setup_fence_gate() once, with a role that may create tables and functions",
                )
            }
            "42P01" | "42883" | "42703" | "3F000" | "42704" => (
                InvalidArgument,
                "the tables or functions are missing; call setup_schema() once, with a role that may create them",
            ),
            // With password methods a server says the same of a user that it does not know, so that names cannot be found out.
            "28P01" => (
                AuthFailed,
                "the server refused the user or the password: the role may not exist, or the password is another",
            ),
            "28000" => (AuthFailed, self.not_let_in()),
            "23505" => (
                InvalidArgument,
                "the lock id is in use under another key, or something else writes to the tables",
            ),
            "22P05" | "22021" => (
                InvalidArgument,
                "the database's encoding cannot hold this key; use a UTF8 database",
            ),
            _ => match class {
                "08" => (
                    ServiceUnavailable,
                    "the server or pooler broke the connection off",
                ),
                "53" => (
                    ServiceUnavailable,
                    "the server lacks memory, disk or another resource",
                ),
                "28" => (AuthFailed, "the server does not let this role in"),
                "22" | "23" | "42" => (InvalidArgument, "the server refused the statement"),
                _ => (Internal, "the server reported an error"),
            },
        }
    }
}

impl Refusal {
    /// One code stands for all of these. Only the text tells them apart, in the server's language.
    fn not_let_in(&self) -> &'static str {
        if self.message.contains("pg_hba.conf") {
            "pg_hba.conf of the server does not let this role in from here; its entry may ask for TLS (sslmode=require), or for none"
        } else if self.message.contains("does not exist") {
            "the role does not exist"
        } else if self.message.contains("not permitted to log in") {
            "the role may not log in: it lacks LOGIN"
        } else {
            "the server does not let this role in: it may not exist, may not log in, or pg_hba.conf has no entry for it"
        }
    }
}

/// An answer larger than any of ours. The connection is dropped.
pub(crate) fn too_long() -> LockError {
    LockError::internal("the server sent far more than an answer to our question can have")
}

/// A reply that does not follow the protocol. The connection is dropped.
pub(crate) fn garbled() -> LockError {
    LockError::internal("the answer is not that of a Postgres server")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorCode::*;

    fn refusal(code: &str, message: &str) -> Refusal {
        Refusal {
            code: code.to_owned(),
            severity: "ERROR".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn codes_are_those_of_the_table() {
        for (code, expected) in [
            ("08006", ServiceUnavailable),
            ("53100", ServiceUnavailable),
            ("53300", RateLimited),
            ("57P01", ServiceUnavailable),
            ("57P02", ServiceUnavailable),
            ("57P03", ServiceUnavailable),
            ("40001", ServiceUnavailable),
            ("40P01", ServiceUnavailable),
            ("25006", ServiceUnavailable),
            ("28000", AuthFailed),
            ("28P01", AuthFailed),
            ("42501", AuthFailed),
            ("22001", InvalidArgument),
            ("23505", InvalidArgument),
            ("42P01", InvalidArgument),
            ("42883", InvalidArgument),
            ("3D000", InvalidArgument),
            ("55P03", NetworkTimeout),
            ("57014", NetworkTimeout),
            ("XX000", Internal),
            ("SGF01", Internal),
            ("SGF02", Internal),
            ("", Internal),
        ] {
            let error = refusal(code, "").into_error(Stage::Body);
            assert_eq!(error.code(), expected, "{code}");
            assert!(!error.may_have_applied(), "{code}");
        }
        assert!(
            refusal("57P01", "")
                .into_error(Stage::Commit)
                .may_have_applied()
        );
    }

    #[test]
    fn an_unknown_role_is_not_taken_for_a_wrong_password() {
        for code in ["28000", "28P01"] {
            let error = refusal(code, "").into_error(Stage::Startup);
            assert!(error.message().contains("may not exist"), "{error}");
        }
    }

    #[test]
    fn words_that_may_hold_values_are_not_repeated() {
        for code in ["23505", "28P01", "22021", "XX000", "08P01", "53300"] {
            let error = refusal(code, "user \"bob\" key=(secret)").into_error(Stage::Body);
            assert!(!error.to_string().contains("secret") && !error.to_string().contains("bob"));
        }
        let missing = refusal("42P01", "relation \"x\" does not exist").into_error(Stage::Body);
        assert!(
            missing.message().contains("setup_schema()") && missing.message().contains("\"x\"")
        );
    }
}
