//! The habits of libpq, each only if the URL asks for it: `PG…` variables with `env=1`, the sections of a service file with
//! `service=…`, the lines of a password file with `passfile=…`. Two programs with different environments would otherwise end up
//! with different locks. It uses `url` and `net::readings`.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::url::{PasswordFile, PostgresUrl, RawOptions, one_of};
use crate::backend::limits::Limits;
use crate::net::readings::{Readings, contents, whatever_its_mode};
use crate::net::uri::Endpoint;
use crate::types::error::LockError;
use crate::types::secret::Secret;

/// Variables, and the options that they stand for.
const VARIABLES: &[(&str, &str)] = &[
    ("PGHOST", "host"),
    ("PGPORT", "port"),
    ("PGUSER", "user"),
    ("PGPASSWORD", "password"),
    ("PGDATABASE", "dbname"),
    ("PGAPPNAME", "application_name"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
    ("PGPASSFILE", "passfile"),
    ("PGSERVICE", "service"),
    ("PGSERVICEFILE", "servicefile"),
];

/// Variables that lead libpq to another server, session or check than this library could: to pass them over would be a lock in
/// another place, or one with fewer checks.
const REFUSED: &[&str] = &[
    "PGHOSTADDR",
    "PGOPTIONS",
    "PGLOADBALANCEHOSTS",
    "PGREQUIREAUTH",
    "PGREQUIREPEER",
    "PGREQUIRESSL",
    "PGSSLCRL",
    "PGSSLCRLDIR",
    "PGSSLNEGOTIATION",
    "PGSSLMINPROTOCOLVERSION",
    "PGSSLMAXPROTOCOLVERSION",
];

/// What a section of a service file may not say: libpq has no such option, or does not look it up there.
const NOT_IN_A_SERVICE: &[&str] = &["service", "servicefile", "env", "pooler", "fences"];

/// What the process's surroundings say.
pub(crate) trait Surroundings {
    /// A variable of the environment; `Err` if it is no UTF-8.
    fn variable(&self, name: &str) -> Result<Option<String>, ()>;
    /// The user's home directory.
    fn home(&self) -> Option<PathBuf>;
}

/// Those of this process.
pub(crate) struct ThisProcess;

impl Surroundings for ThisProcess {
    fn variable(&self, name: &str) -> Result<Option<String>, ()> {
        match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(()),
        }
    }

    fn home(&self) -> Option<PathBuf> {
        std::env::home_dir().filter(|home| !home.as_os_str().is_empty())
    }
}

/// Where a URL leads.
pub(crate) enum Destination {
    /// The URL and the environment say it all.
    Known(Box<PostgresUrl>),
    /// A section of a file says the rest. It is read when the first connection is made, and no more: a client has one place for its
    /// locks.
    Service(Box<Service>),
}

/// A URL that names a section of a service file.
pub(crate) struct Service {
    /// What the URL says; it wins.
    pub(crate) url: RawOptions,
    name: String,
    /// Looked through in this order; only the first of several must not be there.
    files: Vec<PathBuf>,
    /// What the environment says; it loses.
    environment: RawOptions,
    default_password_file: Option<PathBuf>,
}

/// Reads a URL and, if it asks for that, the environment. No file is read.
pub(crate) fn destination(text: &str, around: &dyn Surroundings) -> Result<Destination, LockError> {
    let url = RawOptions::read(text)?;
    let env = match url.get("env") {
        None | Some("0") => false,
        Some("1") => true,
        Some(_) => return Err(one_of("env", "0, 1")),
    };
    let environment = if env {
        environment(around)?
    } else {
        RawOptions::default()
    };
    let in_home = |name: &str| around.home().map(|home| home.join(name));
    let default_password_file = in_home(".pgpass").filter(|_| env);
    let said = |name| url.get(name).or(environment.get(name));
    let Some(name) = said("service").filter(|name| !name.is_empty()) else {
        if url.get("servicefile").is_some() {
            return Err(LockError::invalid("servicefile needs service=NAME"));
        }
        let mut all = url;
        all.fill(environment);
        let known = with_password_file(all.checked()?, default_password_file);
        return Ok(Destination::Known(Box::new(known)));
    };
    let files = match said("servicefile") {
        Some(file) => vec![PathBuf::from(file)],
        None => {
            let system = match env {
                true => variable(around, "PGSYSCONFDIR")?,
                false => None,
            };
            in_home(".pg_service.conf")
                .into_iter()
                .chain(system.map(|dir| Path::new(&dir).join("pg_service.conf")))
                .collect()
        }
    };
    if files.is_empty() {
        return Err(LockError::invalid(
            "there is no home directory with a .pg_service.conf; name the file with servicefile=PATH",
        ));
    }
    // What is wrong whatever the section says is told now.
    let mut alone = url.clone();
    for (name, placeholder) in [("user", "u"), ("host", "h")] {
        if alone.get(name).is_none() {
            alone.set(name, placeholder.to_owned())?;
        }
    }
    if alone.get("sslcert").is_some() == alone.get("sslkey").is_some() {
        alone.checked()?;
    }
    Ok(Destination::Service(Box::new(Service {
        name: name.to_owned(),
        url,
        files,
        environment,
        default_password_file,
    })))
}

fn with_password_file(mut url: PostgresUrl, default: Option<PathBuf>) -> PostgresUrl {
    url.password_file = url
        .password_file
        .or(default.map(|path| PasswordFile { path, named: false }));
    url
}

/// A variable that is empty is as one that is not set.
fn variable(around: &dyn Surroundings, name: &str) -> Result<Option<String>, LockError> {
    let value = around
        .variable(name)
        .map_err(|()| LockError::invalid(format!("the variable {name} is not UTF-8")))?;
    Ok(value.filter(|value| !value.is_empty()))
}

fn environment(around: &dyn Surroundings) -> Result<RawOptions, LockError> {
    for name in REFUSED {
        if variable(around, name)?.is_some() {
            return Err(LockError::invalid(format!(
                "env=1, and the variable {name} is set, which is not supported; unset it or leave env=1 out"
            )));
        }
    }
    let mut options = RawOptions::default();
    for (name, option) in VARIABLES {
        if let Some(value) = variable(around, name)? {
            options.set(option, value)?;
        }
    }
    Ok(options)
}

/// A file, by what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LibpqFile {
    Services(PathBuf),
    Passwords(PathBuf),
}

impl fmt::Display for LibpqFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Services(path) => write!(f, "the service file {}", path.display()),
            Self::Passwords(path) => write!(f, "the password file {}", path.display()),
        }
    }
}

impl LibpqFile {
    /// What is in it; `None` if it is not there.
    fn read(&self, limits: &Limits<'_>) -> Result<Option<Arc<Secret>>, LockError> {
        static READINGS: Readings<LibpqFile, Option<Arc<Secret>>> = Readings::new();
        READINGS.get(
            self,
            |file| {
                let read = match file {
                    Self::Services(path) => contents(path, whatever_its_mode),
                    Self::Passwords(path) => contents(path, ours_alone),
                };
                match read {
                    Ok(bytes) => Ok(Some(Arc::new(Secret::new(bytes)))),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(e) => Err(format!("{file} cannot be used: {e}")),
                }
            },
            limits,
        )
    }

    fn missing(&self) -> LockError {
        LockError::invalid(format!("{self} is not there"))
    }
}

/// The rule of libpq, which has no exception for root.
fn ours_alone(file: &File) -> io::Result<()> {
    if file.metadata()?.mode() & 0o077 != 0 {
        return Err(io::Error::other(
            "others may read or change it; make its mode 0600 or stricter (chmod 600)",
        ));
    }
    Ok(())
}

impl Service {
    /// The URL with what the file and the environment add.
    ///
    /// # Errors
    /// `InvalidArgument` for a file or a section that is not there or cannot be used; `NetworkTimeout` and `Aborted` by the limits.
    pub(crate) fn resolve(&self, limits: &Limits<'_>) -> Result<PostgresUrl, LockError> {
        for (n, path) in self.files.iter().enumerate() {
            let file = LibpqFile::Services(path.clone());
            let Some(text) = file.read(limits)? else {
                if n + 1 == self.files.len() && n == 0 {
                    return Err(file.missing());
                }
                continue;
            };
            if let Some(section) = section(text.bytes(), &self.name, &file)? {
                let mut all = self.url.clone();
                all.fill(section);
                all.fill(self.environment.clone());
                return Ok(with_password_file(
                    all.checked()?,
                    self.default_password_file.clone(),
                ));
            }
        }
        let places: Vec<_> = self.files.iter().map(|f| f.display().to_string()).collect();
        Err(LockError::invalid(format!(
            "no section of {} has the name of the service in the URL",
            places.join(" and ")
        )))
    }
}

/// The section of this name. Of an option that stands twice the first counts, as in libpq.
fn section(text: &[u8], name: &str, file: &LibpqFile) -> Result<Option<RawOptions>, LockError> {
    let text = std::str::from_utf8(text)
        .map_err(|_| LockError::invalid(format!("{file} is not UTF-8")))?;
    let mut found: Option<RawOptions> = None;
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        let wrong = |why: &str| LockError::invalid(format!("{file}, line {}: {why}", n + 1));
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            if title.strip_suffix(']') == Some(name) {
                found = Some(RawOptions::default());
            }
            continue;
        }
        let Some(options) = &mut found else {
            continue;
        };
        let (option, value) = line
            .split_once('=')
            .ok_or_else(|| wrong("it is not name=value"))?;
        if NOT_IN_A_SERVICE.contains(&option) {
            return Err(wrong("this option belongs into the URL"));
        }
        let mut one = RawOptions::default();
        one.set(option, value.to_owned())
            .map_err(|e| wrong(e.message()))?;
        options.fill(one);
    }
    Ok(found)
}

/// Looks up the password for a server.
///
/// # Errors
/// `InvalidArgument` for a file that others may read, and for a named one that is not there; `NetworkTimeout` and `Aborted` by the
/// limits.
pub(crate) fn password(
    file: &PasswordFile,
    url: &PostgresUrl,
    endpoint: &Endpoint,
    limits: &Limits<'_>,
) -> Result<Option<Arc<Secret>>, LockError> {
    let place = LibpqFile::Passwords(file.path.clone());
    match place.read(limits)? {
        Some(text) => Ok(line(text.bytes(), &wanted(url, endpoint)).map(Arc::new)),
        None if file.named => Err(place.missing()),
        None => Ok(None),
    }
}

/// Host, port, database and user. A socket in one of the usual directories is "localhost".
fn wanted(url: &PostgresUrl, endpoint: &Endpoint) -> [String; 4] {
    let (host, port) = match endpoint {
        Endpoint::Tcp { host, port } => (host.clone(), port.to_string()),
        Endpoint::Unix(path) => {
            let directory = path.parent().unwrap_or(path).display().to_string();
            let name = path.display().to_string();
            let port = name.rsplit('.').next().unwrap_or_default().to_owned();
            match directory.as_str() {
                "/tmp" | "/var/run/postgresql" | "/run/postgresql" => {
                    ("localhost".to_owned(), port)
                }
                _ => (directory, port),
            }
        }
    };
    [host, port, url.database.clone(), url.user.clone()]
}

/// The password of the first line whose four fields fit; `*` fits everything, `\` takes the meaning of the next byte.
fn line(text: &[u8], wanted: &[String; 4]) -> Option<Secret> {
    text.split(|b| *b == b'\n').find_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.starts_with(b"#") {
            return None;
        }
        let mut rest = line;
        for wanted in wanted {
            let (field, after) = field(rest)?;
            if field != b"*" && unescaped(field) != wanted.as_bytes() {
                return None;
            }
            rest = after;
        }
        Some(Secret::new(unescaped(rest))).filter(|password| !password.bytes().is_empty())
    })
}

/// Up to the next colon that is not escaped.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut escaped = false;
    let end = line.iter().position(|byte| {
        let ends = *byte == b':' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })?;
    Some((&line[..end], &line[end + 1..]))
}

fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => plain.extend(bytes.next()),
            other => plain.push(*other),
        }
    }
    plain
}

#[cfg(test)]
mod tests;
