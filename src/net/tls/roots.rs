//! The certificates of trusted issuers. It uses `backend`, `runtime`, `types` and the shared reading of files in `readings`.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::backend::limits::Limits;
use crate::net::readings::{Readings, contents, whatever_its_mode};
use crate::types::error::LockError;

const SYSTEM_FILE: &str = "SSL_CERT_FILE";
const SYSTEM_DIRS: &str = "SSL_CERT_DIR";

/// Where the certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RootsSource {
    File(PathBuf),
    /// Where the system has them, or where the environment says.
    System {
        file: Option<OsString>,
        dirs: Option<OsString>,
    },
}

type RootsAnswer = Result<Arc<RootCertStore>, String>;

static READINGS: Readings<RootsSource, Arc<RootCertStore>> = Readings::new();

impl RootsSource {
    /// `file`, or the system's certificates.
    pub(super) fn new(file: Option<&Path>) -> Self {
        match file {
            Some(file) => Self::File(file.to_owned()),
            None => Self::System {
                file: env::var_os(SYSTEM_FILE),
                dirs: env::var_os(SYSTEM_DIRS),
            },
        }
    }

    /// Reads the certificates, or waits for a reading of the same source that has begun.
    ///
    /// # Errors
    /// `InvalidArgument` if there are none, `NetworkTimeout` at the deadline, `Aborted` if cancelled. Nothing was sent.
    pub(super) fn roots(self, limits: &Limits<'_>) -> Result<Arc<RootCertStore>, LockError> {
        READINGS.get(&self, read, limits)
    }
}

impl fmt::Display for RootsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "the TLS CA file {}", file.display()),
            Self::System { .. } => f.write_str("the system's trusted TLS roots"),
        }
    }
}

fn read(source: &RootsSource) -> RootsAnswer {
    match source {
        RootsSource::File(file) => {
            in_file(file).map_err(|why| format!("{source} cannot be used: {why}"))
        }
        RootsSource::System { file, dirs } => {
            of_system(file.as_deref().map(Path::new), dirs.as_ref())
        }
    }
    .map(Arc::new)
}

fn in_file(file: &Path) -> Result<RootCertStore, String> {
    let pem = contents(file, whatever_its_mode).map_err(|e| e.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|e| format!("it is not PEM: {e}"))?;
        roots.add(certificate).map_err(|e| e.to_string())?;
    }
    if roots.is_empty() {
        return Err("there is no certificate in it".to_owned());
    }
    Ok(roots)
}

/// Some system stores have entries that cannot be used; the others count.
fn of_system(file: Option<&Path>, dirs: Option<&OsString>) -> Result<RootCertStore, String> {
    let mut found = Vec::new();
    let mut why = String::new();
    if file.is_none() && dirs.is_none() {
        found = rustls_native_certs::load_native_certs().certs;
    }
    if let Some(file) = file {
        match contents(file, whatever_its_mode) {
            Ok(pem) => found.extend(CertificateDer::pem_slice_iter(&pem).flatten()),
            Err(e) => why = format!(" ({SYSTEM_FILE} names {}: {e})", file.display()),
        }
    }
    for entry in dirs
        .iter()
        .flat_map(env::split_paths)
        .filter_map(|dir| dir.read_dir().ok())
        .flatten()
        .flatten()
    {
        if let Ok(pem) = contents(&entry.path(), whatever_its_mode) {
            found.extend(CertificateDer::pem_slice_iter(&pem).flatten());
        }
    }
    // Most files have a second name, which is a hash of what is in them.
    found.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
    found.dedup();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        return Err(format!(
            "the system has no trusted TLS roots{why}; install its CA certificates or name a CA file"
        ));
    }
    Ok(roots)
}
