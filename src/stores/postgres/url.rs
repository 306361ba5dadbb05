//! Reads a Postgres URL or a list of keywords, through `net::uri`. No I/O, and no part of the text in an error but the names of
//! options. It uses `net` and `types`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::net::uri::{self, BareIpv6, Endpoint, HostPort, UriOption, decode_text};
use crate::options::connections::CertificateFiles;
use crate::types::error::LockError;
use crate::types::fence::FenceSource;

const DEFAULT_PORT: u16 = 5432;
const DEFAULT_APPLICATION: &str = "syncguard";
const OPTIONS: &[&str] = &[
    "host",
    "port",
    "user",
    "password",
    "dbname",
    "application_name",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "channel_binding",
    "connect_timeout",
    "target_session_attrs",
    "passfile",
    "service",
    "servicefile",
    "env",
    "pooler",
    "fences",
];

/// Where and how to connect.
pub(crate) struct PostgresUrl {
    pub(crate) hosts: Vec<Endpoint>,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    pub(crate) database: String,
    pub(crate) application: String,
    pub(crate) ssl: SslMode,
    #[cfg_attr(not(feature = "tls"), allow(dead_code))]
    pub(crate) root_cert: Option<PathBuf>,
    #[cfg_attr(not(feature = "tls"), allow(dead_code))]
    pub(crate) client_cert: Option<CertificateFiles>,
    /// Where the password is looked up if there is none.
    pub(crate) password_file: Option<PasswordFile>,
    pub(crate) binding: Binding,
    /// Bounds a single attempt to connect in place of the client's option.
    pub(crate) connect_timeout: Option<Duration>,
    /// Whether a server that cannot write is passed over.
    pub(crate) writable_only: bool,
}

/// A file of passwords, as libpq reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PasswordFile {
    pub(crate) path: PathBuf,
    /// Whether it was named: then it must be there.
    pub(crate) named: bool,
}

/// How much TLS is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum SslMode {
    Disable,
    /// Encrypted if the server can; says nothing about which server it is.
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Whether SCRAM is tied to the TLS channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    Disable,
    Prefer,
    Require,
}

/// Options by their names, as they were written.
#[derive(Clone, Default)]
pub(crate) struct RawOptions(BTreeMap<&'static str, String>);

#[cfg(test)]
impl PostgresUrl {
    /// Reads a URL that does not look beyond itself.
    pub(crate) fn parse(text: &str) -> Result<Self, LockError> {
        RawOptions::read(text)?.checked()
    }
}

/// Whether the text is a list of `name=value`, as psql takes it.
pub(crate) fn is_keyword_dsn(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        let name = name.trim();
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    })
}

impl RawOptions {
    /// Reads `postgres://…`, `postgresql://…` or `host=… user=…`.
    pub(crate) fn read(text: &str) -> Result<Self, LockError> {
        let mut raw = Self::default();
        let rest = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"));
        match rest {
            Some(rest) => read_url(rest, &mut raw)?,
            None if is_keyword_dsn(text) => read_keywords(text, &mut raw)?,
            None => {
                return Err(LockError::invalid(
                    "not a Postgres URL: postgres://user:password@host:5432/database",
                ));
            }
        }
        Ok(raw)
    }

    /// Sets an option. What is said later wins.
    pub(crate) fn set(&mut self, name: &str, value: String) -> Result<(), LockError> {
        if value.contains('\0') {
            return Err(LockError::invalid("the connection string holds a NUL"));
        }
        if name == "options" {
            return Err(LockError::invalid(
                "the option \"options\" is not supported: session settings do not survive a pooler, and the ones that matter are set for every transaction",
            ));
        }
        match OPTIONS.iter().find(|known| **known == name) {
            Some(known) => self.0.insert(known, value),
            None => return Err(uri::unknown_option(name, OPTIONS)),
        };
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Sets what is not set.
    pub(crate) fn fill(&mut self, from: Self) {
        for (name, value) in from.0 {
            self.0.entry(name).or_insert(value);
        }
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// Where fences come from, if the URL says it.
    pub(crate) fn fences(&self) -> Result<Option<FenceSource>, LockError> {
        self.get("fences").map(FenceSource::parse).transpose()
    }

    /// Whether the caller says that a pooler is in between.
    pub(crate) fn pooler(&self) -> Result<bool, LockError> {
        match self.get("pooler") {
            None | Some("auto") => Ok(false),
            Some("yes") => Ok(true),
            Some(_) => Err(one_of("pooler", "auto, yes")),
        }
    }

    /// Where the servers are and how they are spoken to.
    pub(crate) fn checked(mut self) -> Result<PostgresUrl, LockError> {
        self.pooler()?;
        self.fences()?;
        let user = self.take("user").filter(|u| !u.is_empty()).ok_or_else(|| {
            LockError::invalid("the Postgres URL names no user: postgres://user@host/database")
        })?;
        let ssl = match self.get("sslmode") {
            None | Some("prefer") => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some("require") => SslMode::Require,
            Some("verify-ca") => SslMode::VerifyCa,
            Some("verify-full") => SslMode::VerifyFull,
            Some(_) => {
                return Err(one_of(
                    "sslmode",
                    "disable, prefer, require, verify-ca, verify-full",
                ));
            }
        };
        if cfg!(not(feature = "tls")) && ssl >= SslMode::Require {
            return Err(LockError::invalid(
                "sslmode asks for TLS, and this build of syncguard lacks the feature \"tls\"",
            ));
        }
        let hosts = hosts(self.get("host"), self.get("port"))?;
        if ssl >= SslMode::Require && hosts.iter().any(|h| matches!(h, Endpoint::Unix(_))) {
            return Err(LockError::invalid(
                "sslmode asks for TLS, which a unix socket does not have",
            ));
        }
        let binding = match self.get("channel_binding") {
            None | Some("prefer") => Binding::Prefer,
            Some("disable") => Binding::Disable,
            Some("require") => Binding::Require,
            Some(_) => return Err(one_of("channel_binding", "disable, prefer, require")),
        };
        if binding == Binding::Require
            && (cfg!(not(feature = "tls"))
                || ssl == SslMode::Disable
                || hosts.iter().any(|h| matches!(h, Endpoint::Unix(_))))
        {
            return Err(LockError::invalid(
                "channel_binding=require needs TLS, which sslmode=disable, a unix socket and a build without the feature \"tls\" do not have",
            ));
        }
        let client_cert = match (self.take("sslcert"), self.take("sslkey")) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(CertificateFiles {
                certificate: certificate.into(),
                key: key.into(),
            }),
            _ => {
                return Err(LockError::invalid(
                    "sslcert and sslkey belong together: name both files, or the same one twice",
                ));
            }
        };
        Ok(PostgresUrl {
            hosts,
            client_cert,
            password_file: self.take("passfile").map(|path| PasswordFile {
                path: path.into(),
                named: true,
            }),
            password: self.take("password"),
            database: self
                .take("dbname")
                .filter(|d| !d.is_empty())
                .unwrap_or_else(|| user.clone()),
            user,
            application: self
                .take("application_name")
                .unwrap_or_else(|| DEFAULT_APPLICATION.to_owned()),
            ssl,
            root_cert: self.take("sslrootcert").map(PathBuf::from),
            binding,
            connect_timeout: match self.get("connect_timeout").map(str::parse::<u32>) {
                None | Some(Ok(0)) => None,
                Some(Ok(seconds)) => Some(Duration::from_secs(seconds.into())),
                Some(Err(_)) => {
                    return Err(LockError::invalid(
                        "connect_timeout is not a whole number of seconds",
                    ));
                }
            },
            writable_only: match self.get("target_session_attrs") {
                None | Some("any") => false,
                Some("read-write" | "primary") => true,
                Some(_) => {
                    return Err(one_of("target_session_attrs", "any, read-write, primary"));
                }
            },
        })
    }
}

pub(super) fn one_of(option: &str, values: &str) -> LockError {
    LockError::invalid(format!("{option} must be one of {values}"))
}

/// `user:password@h1:p1,h2:p2/database?option=value&…`, after the scheme.
fn read_url(rest: &str, raw: &mut RawOptions) -> Result<(), LockError> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = match rest.split_once('/') {
        Some((authority, database)) => (authority, Some(database)),
        None => (rest, None),
    };
    // The last @: a password may hold one, a host cannot.
    let hosts = match authority.rsplit_once('@') {
        Some((userinfo, hosts)) => {
            let (user, password) = match userinfo.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (userinfo, None),
            };
            raw.set("user", decode_text(user, "user name")?)?;
            if let Some(password) = password {
                raw.set("password", decode_text(password, "password")?)?;
            }
            hosts
        }
        None => authority,
    };
    if !hosts.is_empty() {
        raw.set("host", decode_text(hosts, "host")?)?;
    }
    if let Some(database) = database.filter(|d| !d.is_empty()) {
        raw.set("dbname", decode_text(database, "database")?)?;
    }
    for option in uri::options(query) {
        let UriOption { name, value } = option?;
        // A raw '?' in a password cuts it in two: what follows is not an option and must not be named as one.
        raw.set(&name, value).map_err(|error| {
            if query.contains('@') {
                LockError::invalid(
                    "the URL holds an unknown option and a '@' behind the '?'; in a password write %3F for '?', in an option %40 for '@'",
                )
            } else {
                error
            }
        })?;
    }
    Ok(())
}

/// `name = value` pairs, values in single quotes where they hold spaces, with backslash escapes.
fn read_keywords(text: &str, raw: &mut RawOptions) -> Result<(), LockError> {
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        if chars.peek().is_none() {
            return Ok(());
        }
        let mut name = String::new();
        while let Some(c) = chars.next_if(|c| *c != '=' && !c.is_ascii_whitespace()) {
            name.push(c);
        }
        while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        if chars.next() != Some('=') {
            return Err(LockError::invalid(
                "the connection string is not a list of name=value",
            ));
        }
        while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        let quoted = chars.next_if_eq(&'\'').is_some();
        let mut value = String::new();
        loop {
            match chars.next() {
                Some('\\') => value.extend(chars.next()),
                Some('\'') if quoted => break,
                Some(c) if !quoted && c.is_ascii_whitespace() => break,
                Some(c) => value.push(c),
                None if quoted => {
                    return Err(LockError::invalid(
                        "the connection string ends inside a quoted value",
                    ));
                }
                None => break,
            }
        }
        raw.set(&name, value)?;
    }
}

fn hosts(hosts: Option<&str>, ports: Option<&str>) -> Result<Vec<Endpoint>, LockError> {
    let hosts: Vec<&str> = hosts
        .filter(|h| !h.is_empty())
        .ok_or_else(|| LockError::invalid("the Postgres URL names no host"))?
        .split(',')
        .collect();
    let ports: Vec<u16> = match ports {
        None => vec![DEFAULT_PORT],
        Some(ports) => ports.split(',').map(uri::port).collect::<Result<_, _>>()?,
    };
    if ports.len() != 1 && ports.len() != hosts.len() {
        return Err(LockError::invalid(
            "port must be one number, or one for every host",
        ));
    }
    hosts
        .iter()
        .enumerate()
        .map(|(i, host)| endpoint(host, *ports.get(i).unwrap_or(&ports[0])))
        .collect()
}

fn endpoint(text: &str, default_port: u16) -> Result<Endpoint, LockError> {
    if text.starts_with('/') {
        // A directory, as everywhere in Postgres; a port may follow as in a URL.
        let (dir, port) = match text.rsplit_once(':') {
            Some((dir, digits)) => (dir, uri::port(digits)?),
            None => (text, default_port),
        };
        return Ok(Endpoint::Unix(
            Path::new(dir).join(format!(".s.PGSQL.{port}")),
        ));
    }
    let HostPort { host, port } = HostPort::parse(text, BareIpv6::Allowed)?;
    if host.contains(|c: char| c.is_whitespace() || c == '@' || c == '/') {
        return Err(LockError::invalid("a host of the URL is malformed"));
    }
    Ok(Endpoint::Tcp {
        host: host.to_owned(),
        port: port.unwrap_or(default_port),
    })
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresUrl")
            .field("hosts", &self.hosts)
            .field("ssl", &self.ssl)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
