//! Reads Redis URLs: `redis://`, `rediss://`, `redis+unix://`, and those of Sentinel and Cluster. It uses `net::uri`. No message
//! repeats any part of a URL but the name of an option.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::net::uri::{self, BareIpv6, Endpoint, HostPort, UriOption, decode_text};
use crate::types::error::LockError;
use crate::types::fence::FenceSource;

const DEFAULT_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const FENCES: &str = "fences";
const SENTINEL_OPTIONS: &[&str] = &["sentinel_user", "sentinel_password", FENCES];
/// The longest path of a socket that the system takes, its closing NUL included.
const MAX_SOCKET_PATH: usize = if cfg!(target_os = "macos") { 104 } else { 108 };

/// The user, password and database of a login.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
}

/// What a URL says.
pub(crate) struct RedisUrl {
    pub(crate) target: RedisTarget,
    pub(crate) login: Login,
    pub(crate) tls: bool,
    /// Where fences come from, if the URL says it.
    pub(crate) fences: Option<FenceSource>,
}

/// What the hosts of a URL are.
pub(crate) enum RedisTarget {
    One(Endpoint),
    Sentinel {
        sentinels: Vec<Endpoint>,
        /// The name the sentinels know the primary by.
        master: String,
        /// The login to the sentinels; the URL's own user is the primary's.
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
                let fences = parts.options(&mut login, &["db", FENCES], true)?;
                let mut hosts = parts.hosts(DEFAULT_PORT)?;
                match (hosts.pop(), hosts.is_empty()) {
                    (Some(endpoint), true) => Ok(Self {
                        target: RedisTarget::One(endpoint),
                        login,
                        tls: parts.scheme == "rediss",
                        fences,
                    }),
                    _ => Err(LockError::invalid("the URL names more than one host")),
                }
            }
            "redis+sentinel" | "rediss+sentinel" => {
                parts.one_login()?;
                let SentinelOptions {
                    login: sentinel_login,
                    fences,
                } = parts.sentinel_options()?;
                Ok(Self {
                    target: RedisTarget::Sentinel {
                        master: parts.master(&mut login)?,
                        sentinels: parts.hosts(SENTINEL_PORT)?,
                        login: sentinel_login,
                    },
                    login,
                    tls: parts.scheme == "rediss+sentinel",
                    fences,
                })
            }
            "redis+cluster" | "rediss+cluster" => {
                parts.one_login()?;
                let fences = parts.options(&mut login, &[FENCES], true)?;
                if login.database != 0 {
                    return Err(LockError::invalid("Redis Cluster has only the database 0"));
                }
                Ok(Self {
                    target: RedisTarget::Cluster(parts.hosts(DEFAULT_PORT)?),
                    login,
                    tls: parts.scheme == "rediss+cluster",
                    fences,
                })
            }
            "redis+unix" => {
                let fences = parts.options(&mut login, &["db", "user", "pass", FENCES], false)?;
                Ok(Self {
                    target: RedisTarget::One(Endpoint::Unix(parts.socket_path()?)),
                    login,
                    tls: false,
                    fences,
                })
            }
            _ => Err(LockError::invalid(
                "the URL's scheme is not one of redis, rediss, redis+unix, redis+sentinel, rediss+sentinel, redis+cluster, rediss+cluster",
            )),
        }
    }
}

/// What the options of a URL of Sentinel say.
struct SentinelOptions {
    /// The user and password for the sentinels themselves.
    login: Login,
    fences: Option<FenceSource>,
}

/// A URL cut into its parts, nothing decoded yet.
pub(crate) struct Parts<'a> {
    pub(crate) scheme: &'a str,
    userinfo: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
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
            Some((rest, query)) => (rest, query),
            None => (rest, ""),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        // A raw '/' or '?' in a password cuts it in two. What follows must not be taken for an option and named.
        if path.contains('@') || query.contains('@') {
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
                let HostPort { host, port } = HostPort::parse(text, BareIpv6::Refused)?;
                Ok(Endpoint::Tcp {
                    host: decode_text(host, "host")?,
                    port: port.unwrap_or(default_port),
                })
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

    fn sentinel_options(&self) -> Result<SentinelOptions, LockError> {
        let mut login = Login::default();
        let mut fences = None;
        for option in uri::options(self.query) {
            let UriOption { name, value } = option?;
            let fresh = match name.as_str() {
                "sentinel_user" => login.user.replace(value).is_none(),
                "sentinel_password" => login.password.replace(value).is_none(),
                FENCES => fences.replace(FenceSource::parse(&value)?).is_none(),
                _ => return Err(uri::unknown_option(&name, SENTINEL_OPTIONS)),
            };
            if !fresh {
                return Err(uri::repeated_option(&name));
            }
        }
        Ok(SentinelOptions { login, fences })
    }

    /// The primary's name. Its database, if the path has one, becomes that of `login`.
    fn master(&self, login: &mut Login) -> Result<String, LockError> {
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
            None => Ok(master),
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

    /// Takes the options that say how to log in, and the database number of a path that may have one, and answers where fences
    /// come from; any other option is refused by its name.
    pub(crate) fn options(
        &self,
        login: &mut Login,
        known: &[&str],
        path: bool,
    ) -> Result<Option<FenceSource>, LockError> {
        let mut said = None;
        let mut fences = None;
        for option in uri::options(self.query) {
            let UriOption { name, value } = option?;
            if !known.contains(&name.as_str()) {
                return Err(uri::unknown_option(&name, known));
            }
            let fresh = match name.as_str() {
                "db" => said.replace(database(&value)?).is_none(),
                "user" => login.user.replace(value).is_none(),
                FENCES => fences.replace(FenceSource::parse(&value)?).is_none(),
                _ => login.password.replace(value).is_none(),
            };
            if !fresh {
                return Err(uri::repeated_option(&name));
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
        Ok(fences)
    }

    fn socket_path(&self) -> Result<PathBuf, LockError> {
        if !self.hosts.is_empty() {
            return Err(LockError::invalid(
                "redis+unix:// takes no host: write redis+unix:///path/to/redis.sock",
            ));
        }
        let path = uri::decode(self.path, "socket path")?;
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

fn database(text: &str) -> Result<u32, LockError> {
    if text.bytes().all(|b| b.is_ascii_digit())
        && let Ok(n) = text.parse()
    {
        return Ok(n);
    }
    Err(LockError::invalid("the URL's database is not a number"))
}

#[cfg(test)]
mod tests;
