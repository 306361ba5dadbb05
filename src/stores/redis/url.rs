//! Redis URLs: `redis://`, `rediss://`, `redis+unix://`, and those of Sentinel and Cluster. No message repeats any part of a URL but the name of an option.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::net::Endpoint;
use crate::types::error::LockError;

const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// The system's room for a socket's path, its closing NUL included.
const MAX_SOCKET_PATH: usize = if cfg!(target_os = "macos") { 104 } else { 108 };

/// Who logs in, and to which database.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
}

/// What a URL says.
pub(crate) struct RedisUrl {
    pub(crate) target: Target,
    pub(crate) login: Login,
    pub(crate) tls: bool,
}

/// What the hosts of a URL are.
pub(crate) enum Target {
    One(Endpoint),
    Sentinel {
        sentinels: Vec<Endpoint>,
        /// The name the sentinels know the primary by.
        master: String,
        /// Who logs in to the sentinels; the URL's own user is the primary's.
        login: Login,
    },
    /// Some nodes of a cluster.
    Cluster(Vec<Endpoint>),
}

impl RedisUrl {
    pub(crate) fn parse(url: &str) -> Result<Self, LockError> {
        let parts = Parts::split(url)?;
        let mut login = parts.login()?;
        match parts.scheme {
            "redis" | "rediss" => {
                parts.options(&mut login, &["db"], true)?;
                let mut hosts = parts.hosts(DEFAULT_PORT)?;
                match (hosts.pop(), hosts.is_empty()) {
                    (Some(endpoint), true) => Ok(Self {
                        target: Target::One(endpoint),
                        login,
                        tls: parts.scheme == "rediss",
                    }),
                    _ => Err(LockError::invalid("the URL names more than one host")),
                }
            }
            "redis+sentinel" | "rediss+sentinel" => {
                parts.one_login()?;
                let (master, sentinel) = parts.sentinel(&mut login)?;
                Ok(Self {
                    target: Target::Sentinel {
                        sentinels: parts.hosts(SENTINEL_PORT)?,
                        master,
                        login: sentinel,
                    },
                    login,
                    tls: parts.scheme == "rediss+sentinel",
                })
            }
            "redis+cluster" | "rediss+cluster" => {
                parts.one_login()?;
                parts.options(&mut login, &[], true)?;
                if login.database != 0 {
                    return Err(LockError::invalid("Redis Cluster has only the database 0"));
                }
                Ok(Self {
                    target: Target::Cluster(parts.hosts(DEFAULT_PORT)?),
                    login,
                    tls: parts.scheme == "rediss+cluster",
                })
            }
            "redis+unix" => {
                parts.options(&mut login, &["db", "user", "pass"], false)?;
                Ok(Self {
                    target: Target::One(Endpoint::Unix(parts.socket_path()?)),
                    login,
                    tls: false,
                })
            }
            _ => Err(LockError::invalid(
                "the URL's scheme is not one of redis, rediss, redis+unix, redis+sentinel, rediss+sentinel, redis+cluster, rediss+cluster",
            )),
        }
    }
}

/// A URL cut into its parts, nothing decoded yet.
pub(crate) struct Parts<'a> {
    pub(crate) scheme: &'a str,
    userinfo: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Parts<'a> {
    pub(crate) fn split(url: &'a str) -> Result<Self, LockError> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| LockError::invalid("the URL has no \"://\""))?;
        if url.contains(|c: char| c.is_control() || c == ' ') {
            return Err(LockError::invalid(
                "the URL holds a space or a control character; percent-encode it",
            ));
        }
        if rest.contains('#') {
            return Err(LockError::invalid(
                "the URL holds a '#'; in a password write %23",
            ));
        }
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        // A raw '/' or '?' in a password cuts it in two. What follows must not be taken for an option and named.
        if path.contains('@') || query.is_some_and(|q| q.contains('@')) {
            return Err(LockError::invalid(
                "the URL holds a '@' after its host; in a password write %2F for '/' and %3F for '?', elsewhere %40 for '@'",
            ));
        }
        let (userinfo, hosts) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (Some(userinfo), hosts),
            None => (None, authority),
        };
        Ok(Self {
            scheme,
            userinfo,
            hosts,
            path,
            query,
        })
    }

    /// The user and password before the `@`.
    pub(crate) fn login(&self) -> Result<Login, LockError> {
        let mut login = Login::default();
        if let Some(userinfo) = self.userinfo {
            let (user, password) = match userinfo.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (userinfo, None),
            };
            if !user.is_empty() {
                login.user = Some(decode_text(user, "user name")?);
            }
            // An empty password is one: a user without password takes any.
            login.password = match password {
                Some("") if user.is_empty() => None,
                Some(password) => Some(decode_text(password, "password")?),
                None if user.is_empty() => None,
                None => Some(String::new()),
            };
        }
        Ok(login)
    }

    /// Every host with its port, of a list with commas.
    pub(crate) fn hosts(&self, default_port: u16) -> Result<Vec<Endpoint>, LockError> {
        self.hosts
            .split(',')
            .map(|text| {
                let (host, port) = host_and_port(text, default_port)?;
                Ok(Endpoint::Tcp { host, port })
            })
            .collect()
    }

    /// Of several hosts each might have been given a user: all but the last would become a part of the password.
    fn one_login(&self) -> Result<(), LockError> {
        if self
            .userinfo
            .is_some_and(|u| u.contains('@') && u.contains(','))
        {
            return Err(LockError::invalid(
                "the URL's user and password stand once, before the first host; in a password write %40 for '@' and %2C for ','",
            ));
        }
        Ok(())
    }

    /// The primary's name, its database, and who logs in to the sentinels.
    fn sentinel(&self, login: &mut Login) -> Result<(String, Login), LockError> {
        let mut sentinel = Login::default();
        for (name, value) in self.query()? {
            let place = match name.as_str() {
                "sentinel_user" => &mut sentinel.user,
                "sentinel_password" => &mut sentinel.password,
                _ => return Err(unknown_option(&name)),
            };
            if place.replace(value).is_some() {
                return Err(LockError::invalid(format!("the URL says \"{name}\" twice")));
            }
        }
        let mut segments = self.segments()?.into_iter();
        let master = segments.next().ok_or_else(|| {
            LockError::invalid(
                "the URL lacks the name of the primary: redis+sentinel://host:port,…/name",
            )
        })?;
        if let Some(number) = segments.next() {
            login.database = database(&number)?;
        }
        match segments.next() {
            None => Ok((master, sentinel)),
            Some(_) => Err(LockError::invalid(
                "the URL's path is more than a name and a database number",
            )),
        }
    }

    /// The segments of the path, decoded.
    pub(crate) fn segments(&self) -> Result<Vec<String>, LockError> {
        self.path
            .split('/')
            .filter(|s| !s.is_empty())
            .map(|s| decode_text(s, "path"))
            .collect()
    }

    /// The options after the `?`, decoded.
    pub(crate) fn query(&self) -> Result<Vec<(String, String)>, LockError> {
        self.query
            .unwrap_or_default()
            .split('&')
            .filter(|s| !s.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((
                    decode_text(name, "option's name")?,
                    decode_text(value, "option's value")?,
                ))
            })
            .collect()
    }

    /// Takes the options that say how to log in, and the database number of a path that may have one; any other option is
    /// refused by its name.
    pub(crate) fn options(
        &self,
        login: &mut Login,
        known: &[&str],
        path: bool,
    ) -> Result<(), LockError> {
        let mut said = None;
        for (name, value) in self.query()? {
            if !known.contains(&name.as_str()) {
                return Err(unknown_option(&name));
            }
            let fresh = match name.as_str() {
                "db" => said.replace(database(&value)?).is_none(),
                "user" => login.user.replace(value).is_none(),
                _ => login.password.replace(value).is_none(),
            };
            if !fresh {
                return Err(LockError::invalid(format!("the URL says \"{name}\" twice")));
            }
        }
        if login.user.is_some() && login.password.is_none() {
            login.password = Some(String::new());
        }
        if path {
            match &self.segments()?[..] {
                [] => {}
                [number] => {
                    if said.replace(database(number)?).is_some() {
                        return Err(LockError::invalid("the URL says the database number twice"));
                    }
                }
                _ => {
                    return Err(LockError::invalid(
                        "the URL's path is more than a database number",
                    ));
                }
            }
        }
        login.database = said.unwrap_or_default();
        Ok(())
    }

    fn socket_path(&self) -> Result<PathBuf, LockError> {
        if !self.hosts.is_empty() {
            return Err(LockError::invalid(
                "redis+unix:// takes no host: write redis+unix:///path/to/redis.sock",
            ));
        }
        let path = decode(self.path, "socket path")?;
        if path.len() < 2 {
            return Err(LockError::invalid("the URL has no socket path"));
        }
        if path.len() >= MAX_SOCKET_PATH {
            return Err(LockError::invalid(format!(
                "the socket path is longer than {} bytes",
                MAX_SOCKET_PATH - 1
            )));
        }
        Ok(OsString::from_vec(path).into())
    }
}

pub(crate) fn unknown_option(name: &str) -> LockError {
    // A malformed URL may carry a secret where a name is expected.
    if name.len() <= 40 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
        LockError::invalid(format!("the URL has an unknown option \"{name}\""))
    } else {
        LockError::invalid("the URL has an unknown option with a malformed name")
    }
}

fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), LockError> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or_else(|| LockError::invalid("the URL's host lacks its \"]\""))?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(bad_port()),
        }
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err(LockError::invalid("the URL has no host"));
    }
    let port = match port {
        None => default_port,
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(bad_port()),
        },
        Some(_) => return Err(bad_port()),
    };
    Ok((decode_text(host, "host")?, port))
}

fn bad_port() -> LockError {
    LockError::invalid(
        "the URL's port is not a number from 1 to 65535 (an IPv6 address stands in brackets, ':' and '@' in a password are %3A and %40)",
    )
}

fn database(text: &str) -> Result<u32, LockError> {
    if text.bytes().all(|b| b.is_ascii_digit())
        && let Ok(n) = text.parse()
    {
        return Ok(n);
    }
    Err(LockError::invalid("the URL's database is not a number"))
}

fn decode_text(text: &str, what: &str) -> Result<String, LockError> {
    String::from_utf8(decode(text, what)?)
        .map_err(|_| LockError::invalid(format!("the URL's {what} is not UTF-8")))
}

fn decode(text: &str, what: &str) -> Result<Vec<u8>, LockError> {
    let bad = || {
        LockError::invalid(format!(
            "the URL's {what} holds a '%' without two hex digits"
        ))
    };
    let hex = |b: Option<&u8>| {
        b.and_then(|b| char::from(*b).to_digit(16))
            .and_then(|d| u8::try_from(d).ok())
            .ok_or_else(bad)
    };
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'%' {
            out.push(hex(bytes.get(at + 1))? * 16 + hex(bytes.get(at + 2))?);
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    if out.contains(&0) {
        return Err(LockError::invalid(format!("the URL's {what} holds a NUL")));
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
