//! What the server's error replies mean. It uses `types` alone.
//!
//! A reply may quote the arguments of a command, and with them keys and lock ids: nothing of it is repeated but its code
//! and, where a right is missing, the name of a command.

use crate::stores::redis::resp::Malformed;
use crate::stores::redis::value;
use crate::types::error::{ErrorCode, LockError};
use crate::types::fence::clock_is_wrong;

const KEYS_ARE_MOVING: &str = "the Redis Cluster is moving these keys";

/// The error for an error reply. No script writes a lock before its last check has passed, so nothing was applied.
pub(crate) fn refused(line: &str) -> LockError {
    let ErrorLine { code, text } = ErrorLine::parse(line);
    let (kind, message) = match code {
        "SYNCGUARD_FOREIGN" => return value::foreign(),
        "SYNCGUARD_COUNTER" => (
            ErrorCode::Internal,
            "the stored fence counter of this key is not a counter; the lock was not taken".into(),
        ),
        "SYNCGUARD_LIMIT" => (
            ErrorCode::Internal,
            "the fence counter of this key has reached its limit; the lock was not taken".into(),
        ),
        "SYNCGUARD_GATE" => (
            ErrorCode::Internal,
            "the key of the gate, the name with \":fence\" behind it, holds something else than a fence; nothing was changed".into(),
        ),
        "SYNCGUARD_CLOCK" => return clock_is_wrong(),
        "SYNCGUARD_CURSOR" => (
            ErrorCode::InvalidArgument,
            "the listing began on another server than the one that serves now, after a failover or a restart; begin it anew".into(),
        ),
        "NOAUTH" => (
            ErrorCode::AuthFailed,
            "Redis asks for a password and the URL has none".into(),
        ),
        "WRONGPASS" => (
            ErrorCode::AuthFailed,
            "Redis refused the user name or password".into(),
        ),
        "NOPERM" => (ErrorCode::AuthFailed, missing_right(text)),
        "DENIED" => (
            ErrorCode::AuthFailed,
            "Redis is in protected mode and serves only its own machine; set a password or bind it".into(),
        ),
        "LOADING" => unavailable("Redis is still loading its data"),
        "READONLY" => unavailable("this Redis is a read-only replica and not, or no longer, the primary that the URL must name"),
        "MASTERDOWN" => unavailable("this Redis is a replica that has lost its primary"),
        "CLUSTERDOWN" => unavailable("the Redis Cluster is down"),
        "TRYAGAIN" => unavailable(KEYS_ARE_MOVING),
        "BUSY" => unavailable("Redis is busy with a script of another program"),
        "MISCONF" => unavailable("Redis cannot write its data to disk and refuses changes"),
        "NOREPLICAS" => unavailable("Redis has fewer replicas than it is told to have for writing"),
        "OOM" => (
            ErrorCode::RateLimited,
            "Redis has reached its maxmemory".into(),
        ),
        "WRONGTYPE" => (
            ErrorCode::InvalidArgument,
            "a key of syncguard holds another type of value; another program writes under the same key_prefix".into(),
        ),
        "SYNTAX" | "INVALID" => (
            ErrorCode::InvalidArgument,
            format!("Redis refused the command ({code})"),
        ),
        "CROSSSLOT" => (
            ErrorCode::InvalidArgument,
            "this is a Redis Cluster: key_prefix must be a hash tag such as {app}".into(),
        ),
        "MOVED" | "ASK" => (
            ErrorCode::InvalidArgument,
            "this is a Redis Cluster: use a redis+cluster:// URL".into(),
        ),
        _ => generic(code, text),
    };
    LockError::new(kind, message).nothing_applied()
}

/// The error for a lock that may be on either of two nodes. Nothing was applied.
pub(crate) fn keys_are_moving() -> LockError {
    LockError::unavailable(KEYS_ARE_MOVING).nothing_applied()
}

/// Whether the connection should not be used again although it is in step: the server behind it may be about to be
/// replaced, and a new connection would find the new one.
pub(crate) fn is_stale(line: &str) -> bool {
    matches!(
        ErrorLine::parse(line).code,
        "NOAUTH" | "READONLY" | "LOADING" | "MASTERDOWN" | "DENIED" | "CLUSTERDOWN"
    ) || line.starts_with("ERR max number of clients")
}

/// Whether the server does not know the script yet.
pub(crate) fn is_no_script(line: &str) -> bool {
    line.starts_with("NOSCRIPT")
}

/// An error reply in its two parts.
struct ErrorLine<'a> {
    /// `ERR` if the line has none of its own.
    code: &'a str,
    text: &'a str,
}

impl<'a> ErrorLine<'a> {
    /// Redis 6 puts the place in the script before the error of a command inside it, and may wrap both in an error of its own.
    fn parse(line: &'a str) -> Self {
        let mut line = line;
        if (line.starts_with("ERR Error running script") || line.starts_with("@user_script:"))
            && let Some(at) = line.rfind("@user_script:")
        {
            line = line[at + "@user_script:".len()..].trim_start_matches(|c: char| {
                c == ' ' || c == ':' || c == '-' || c.is_ascii_digit()
            });
        }
        match line.split_once(' ') {
            Some((code, text)) if code.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') => {
                Self { code, text }
            }
            _ => Self {
                code: "ERR",
                text: line,
            },
        }
    }
}

fn unavailable(message: &str) -> (ErrorCode, String) {
    (ErrorCode::ServiceUnavailable, message.to_owned())
}

fn missing_right(rest: &str) -> String {
    let command = rest.split('\'').nth(1).filter(|name| {
        rest.contains(" run ")
            && name.len() < 24
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"|-".contains(&b))
    });
    match command {
        Some(name) => format!("the Redis user may not run {}", name.to_ascii_uppercase()),
        None if rest.contains("key") => {
            "the Redis user may not access the keys under key_prefix".to_owned()
        }
        None => "the Redis user lacks a right".to_owned(),
    }
}

fn generic(code: &str, rest: &str) -> (ErrorCode, String) {
    let lower = rest.to_ascii_lowercase();
    // Redis 7.0 says these without a code of their own, and without the command's name.
    if lower.starts_with("the user executing the script can't access") {
        return (
            ErrorCode::AuthFailed,
            "the Redis user may not access the keys under key_prefix".into(),
        );
    }
    if lower.starts_with("the user executing the script can't") {
        return (
            ErrorCode::AuthFailed,
            "the Redis user may not run a command of the lock scripts: it needs GET, SET, DEL, INCR and TIME".into(),
        );
    }
    // In a cluster, of the lock that an index entry names: it has gone to another node before its entry.
    if lower.starts_with("script attempted to access a non local key") {
        return unavailable(KEYS_ARE_MOVING);
    }
    if lower.starts_with("script attempted to execute a") && lower.contains("the cluster is down") {
        return unavailable("the Redis Cluster is down");
    }
    if lower.starts_with("auth ")
        || lower.starts_with("client sent auth")
        || lower.starts_with("invalid password")
    {
        return (
            ErrorCode::AuthFailed,
            "Redis refused the user name or password: it may have no such user, or no password at all".into(),
        );
    }
    if lower.starts_with("max number of clients") {
        return (
            ErrorCode::RateLimited,
            "Redis has reached its maximum number of clients".into(),
        );
    }
    if lower.contains("db index") || lower.starts_with("select is not allowed") {
        return (
            ErrorCode::InvalidArgument,
            "Redis has no database of the number in the URL".into(),
        );
    }
    if lower.starts_with("unknown command") {
        return (
            ErrorCode::Internal,
            "this server lacks a command of Redis that locks need (EVALSHA, EVAL)".into(),
        );
    }
    if lower.starts_with("syntax") || lower.starts_with("invalid") {
        return (
            ErrorCode::InvalidArgument,
            "Redis refused the command as invalid".into(),
        );
    }
    let shown = if code.len() <= 20 {
        code
    } else {
        "an unknown code"
    };
    (
        ErrorCode::Internal,
        format!("Redis answered with an error ({shown})"),
    )
}

/// The error for something that is not a reply, or not the one that was asked for.
pub(crate) fn malformed(what: Malformed) -> LockError {
    LockError::internal(format!(
        "the server does not answer like Redis: {}; is the port another service's?",
        what.reason
    ))
}

/// The error for a reply without a request.
pub(crate) fn surplus() -> LockError {
    malformed(Malformed {
        reason: "it sent more replies than it was asked for",
    })
}

pub(crate) fn unexpected() -> LockError {
    malformed(Malformed {
        reason: "a script's answer has an unexpected form",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server says, and its code.
    const REFUSALS: &[(&str, ErrorCode)] = &[
        (
            "LOADING Redis is loading the dataset in memory",
            ErrorCode::ServiceUnavailable,
        ),
        (
            "READONLY You can't write against a read only replica.",
            ErrorCode::ServiceUnavailable,
        ),
        (
            "READONLY You can't write against a read only replica. script: abc, on @user_script:30.",
            ErrorCode::ServiceUnavailable,
        ),
        (
            "MASTERDOWN Link with MASTER is down",
            ErrorCode::ServiceUnavailable,
        ),
        (
            "CLUSTERDOWN The cluster is down",
            ErrorCode::ServiceUnavailable,
        ),
        (
            "TRYAGAIN Multiple keys request during rehashing of slot",
            ErrorCode::ServiceUnavailable,
        ),
        (
            "BUSY Redis is busy running a script.",
            ErrorCode::ServiceUnavailable,
        ),
        (
            "MISCONF Redis is configured to save RDB snapshots",
            ErrorCode::ServiceUnavailable,
        ),
        (
            "NOREPLICAS Not enough good replicas to write.",
            ErrorCode::ServiceUnavailable,
        ),
        ("NOAUTH Authentication required.", ErrorCode::AuthFailed),
        (
            "WRONGPASS invalid username-password pair or user is disabled.",
            ErrorCode::AuthFailed,
        ),
        (
            "NOPERM this user has no permissions to run the 'evalsha' command",
            ErrorCode::AuthFailed,
        ),
        (
            "ERR AUTH <password> called without any password configured",
            ErrorCode::AuthFailed,
        ),
        (
            "ERR The user executing the script can't run this command or subcommand script: a, on @user_script:1.",
            ErrorCode::AuthFailed,
        ),
        (
            "ERR Error running script (call to f_ab): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
            ErrorCode::AuthFailed,
        ),
        (
            "@user_script: 1: The user executing the script can't access at least one of the keys",
            ErrorCode::AuthFailed,
        ),
        (
            "@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.",
            ErrorCode::RateLimited,
        ),
        ("ERR invalid password", ErrorCode::AuthFailed),
        (
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            ErrorCode::InvalidArgument,
        ),
        (
            "ERR Error running script (call to f_ab): @user_script:7: @user_script: 7: WRONGTYPE Operation against a key",
            ErrorCode::InvalidArgument,
        ),
        (
            "ERR Error running script (call to f_ab): @user_script:7: @user_script: 7: -READONLY You can't write",
            ErrorCode::ServiceUnavailable,
        ),
        (
            "ERR Script attempted to access a non local key in a cluster node script: a, on @user_script:3.",
            ErrorCode::ServiceUnavailable,
        ),
        (
            "ERR Script attempted to execute a command while the cluster is down",
            ErrorCode::ServiceUnavailable,
        ),
        ("SYNTAX x", ErrorCode::InvalidArgument),
        ("INVALID x", ErrorCode::InvalidArgument),
        ("ERR syntax error", ErrorCode::InvalidArgument),
        ("ERR DB index is out of range", ErrorCode::InvalidArgument),
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            ErrorCode::RateLimited,
        ),
        ("ERR max number of clients reached", ErrorCode::RateLimited),
        ("SYNCGUARD_FOREIGN x", ErrorCode::Internal),
        ("SYNCGUARD_COUNTER x", ErrorCode::Internal),
        ("SYNCGUARD_LIMIT x", ErrorCode::Internal),
        ("SOMETHING else", ErrorCode::Internal),
        ("", ErrorCode::Internal),
    ];

    #[test]
    fn every_code_of_the_table_is_mapped() {
        for (line, code) in REFUSALS {
            let error = refused(line);
            assert_eq!(error.code(), *code, "{line}");
            assert!(!error.may_have_applied(), "{line}");
        }
    }

    #[test]
    fn the_missing_right_is_named_and_nothing_else_is_quoted() {
        let named =
            refused("NOPERM User bob has no permissions to run the 'client|setname' command");
        assert!(named.message().contains("CLIENT|SETNAME") && !named.message().contains("bob"));
        let key = refused("NOPERM No permissions to access the 'syncguard:secret' key");
        assert!(key.message().contains("key_prefix") && !key.message().contains("secret"));
        let args = refused(
            "ERR unknown command 'EVALSHA', with args beginning with: 'x' 'syncguard:secret'",
        );
        assert!(!args.to_string().contains("secret"));
        assert!(!refused("s3cret:key what").to_string().contains("s3cret"));
    }
}
