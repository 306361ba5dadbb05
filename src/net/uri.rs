//! The parts of a URL that all stores read in the same way: where a server listens, percent-encoded text, options. It uses
//! `types` alone and does no I/O. No message repeats any part of a URL but the name of an option.

use std::fmt;
use std::path::PathBuf;

use crate::types::error::LockError;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// For messages: a URL's user and password are no part of it.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') && !host.starts_with('[') => {
                write!(f, "[{host}]:{port}")
            }
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What a URL says about one server, nothing decoded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostPort<'a> {
    /// Without the brackets of an IPv6 address. Never empty.
    pub(crate) host: &'a str,
    pub(crate) port: Option<u16>,
}

/// Whether an IPv6 address may stand without brackets. It has no port then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BareIpv6 {
    Allowed,
    Refused,
}

impl<'a> HostPort<'a> {
    /// Reads `host`, `host:port`, `[address]` or `[address]:port`.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty host, a bracket that is not closed, or a port that is not one.
    pub(crate) fn parse(text: &'a str, bare_ipv6: BareIpv6) -> Result<Self, LockError> {
        let (host, digits) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| LockError::invalid("the URL's host lacks its \"]\""))?;
            match rest.strip_prefix(':') {
                Some(digits) => (host, Some(digits)),
                None if rest.is_empty() => (host, None),
                None => return Err(bad_port()),
            }
        } else {
            match text.split_once(':') {
                Some((_, rest)) if bare_ipv6 == BareIpv6::Allowed && rest.contains(':') => {
                    (text, None)
                }
                Some((host, digits)) => (host, Some(digits)),
                None => (text, None),
            }
        };
        if host.is_empty() {
            return Err(LockError::invalid("the URL has no host, or an empty one"));
        }
        let port = digits.map(port).transpose()?;
        Ok(Self { host, port })
    }
}

/// # Errors
/// `InvalidArgument` for anything but a number from 1 to 65535.
pub(crate) fn port(digits: &str) -> Result<u16, LockError> {
    match digits.parse() {
        Ok(port) if port > 0 && digits.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
        _ => Err(bad_port()),
    }
}

fn bad_port() -> LockError {
    LockError::invalid(
        "the URL's port is not a number from 1 to 65535 (an IPv6 address stands in brackets, ':' and '@' in a password are %3A and %40)",
    )
}

/// Decodes `%20` and its like. `part` names the part of the URL, for messages.
///
/// # Errors
/// `InvalidArgument` for a `%` without two hex digits, and for a NUL.
pub(crate) fn decode(text: &str, part: &str) -> Result<Vec<u8>, LockError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let hex = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        match (hex(rest.next()), hex(rest.next())) {
            // Two hex digits are one byte.
            (Some(high), Some(low)) => decoded.push((high * 16 + low) as u8),
            _ => {
                return Err(LockError::invalid(format!(
                    "the URL's {part} holds a '%' without two hex digits; write %25 for a percent sign"
                )));
            }
        }
    }
    if decoded.contains(&0) {
        return Err(LockError::invalid(format!("the URL's {part} holds a NUL")));
    }
    Ok(decoded)
}

/// The same, for a part that is text.
///
/// # Errors
/// `InvalidArgument` also for what is not UTF-8.
pub(crate) fn decode_text(text: &str, part: &str) -> Result<String, LockError> {
    String::from_utf8(decode(text, part)?)
        .map_err(|_| LockError::invalid(format!("the URL's {part} is not UTF-8")))
}

/// One option after the `?`, decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UriOption {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// The options of a query, one after the other.
///
/// # Errors
/// `InvalidArgument` for an option without a `=`. It is not named: it may be the rest of a password with a raw `?`.
pub(crate) fn options(query: &str) -> impl Iterator<Item = Result<UriOption, LockError>> + '_ {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            LockError::invalid(
                "an option of the URL has no value; write name=value, and %3F for a '?' that begins no option",
            )
        })?;
        Ok(UriOption {
            name: decode_text(name, "option's name")?,
            value: decode_text(value, "option's value")?,
        })
    })
}

/// The error for an option that is none of `known`.
pub(crate) fn unknown_option(name: &str, known: &[&str]) -> LockError {
    // A malformed URL may carry a secret where a name is expected.
    let shown = if name.len() <= 40 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
        format!("the URL has an unknown option \"{name}\"")
    } else {
        "the URL has an unknown option with a malformed name".to_owned()
    };
    LockError::invalid(match known {
        [] => format!("{shown}; it takes none"),
        known => format!("{shown}; it takes {}", known.join(", ")),
    })
}

/// The error for an option that stands twice.
pub(crate) fn repeated_option(name: &str) -> LockError {
    LockError::invalid(format!("the URL says \"{name}\" twice"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read_or_refused() {
        for (text, host, port) in [
            ("h", "h", None),
            ("h:1", "h", Some(1)),
            ("h:65535", "h", Some(65535)),
            ("[::1]", "::1", None),
            ("[::1]:7", "::1", Some(7)),
        ] {
            for bare in [BareIpv6::Allowed, BareIpv6::Refused] {
                let parsed = HostPort::parse(text, bare).expect(text);
                assert_eq!(parsed, HostPort { host, port }, "{text}");
            }
        }
        for bad in [
            "", ":1", "[]", "[]:1", "[::1", "[::1]x", "[::1]:", "h:", "h:0", "h:65536", "h:+1",
            "h:x",
        ] {
            for bare in [BareIpv6::Allowed, BareIpv6::Refused] {
                let error = HostPort::parse(bad, bare).expect_err(bad);
                assert_eq!(error.code(), crate::ErrorCode::InvalidArgument, "{bad}");
            }
        }
        let bare = HostPort::parse("::1", BareIpv6::Allowed).expect("an address");
        assert_eq!((bare.host, bare.port), ("::1", None));
        assert!(HostPort::parse("::1", BareIpv6::Refused).is_err());
    }

    #[test]
    fn texts_are_decoded_or_refused_without_being_shown() {
        assert_eq!(
            decode_text("a%20b%C3%a9+", "path").ok().as_deref(),
            Some("a bé+")
        );
        assert_eq!(decode("%ff", "path").ok(), Some(vec![0xff]));
        for (bad, said) in [
            ("secret%", "%25"),
            ("secret%2", "%25"),
            ("secret%zz", "%25"),
            ("secret%+1", "%25"),
            ("secret%00", "NUL"),
            ("secret\0", "NUL"),
            ("secret%ff", "UTF-8"),
        ] {
            let error = decode_text(bad, "password").expect_err(bad);
            assert!(error.message().contains(said), "{error}");
            assert!(error.message().contains("password"), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn options_are_split_and_unknown_ones_named_if_they_can_be_names() {
        let read: Result<Vec<_>, _> = options("a=1&&b=&c=%3D=").collect();
        let option = |name: &str, value: &str| UriOption {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let wanted = [option("a", "1"), option("b", ""), option("c", "==")];
        assert_eq!(read.expect("options"), wanted);
        let read: Result<Vec<_>, _> = options("a=1&secret").collect();
        let error = read.expect_err("no value");
        assert!(error.message().contains("name=value"), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        let error = unknown_option("colour", &["db", "user"]);
        assert!(error.message().ends_with("\"colour\"; it takes db, user"));
        assert!(unknown_option("colour", &[]).message().ends_with("none"));
        for secret in ["hunter2", "Hunter", "hunter@h", &"hunter".repeat(10)] {
            let error = unknown_option(secret, &["db"]);
            assert!(!error.message().contains("unter"), "{error}");
            assert!(error.message().contains("malformed"), "{error}");
        }
    }
}
