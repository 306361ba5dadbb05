//! The client's own certificate and its key. It uses `readings`, `backend` and `types`.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::backend::limits::Limits;
use crate::net::readings::{Readings, contents, whatever_its_mode};
use crate::options::connections::CertificateFiles;
use crate::types::error::LockError;
use crate::types::secret::Secret;

/// Reads the files, as before every connection: a certificate is often replaced while the program runs.
pub(super) fn read(
    files: &CertificateFiles,
    provider: &Arc<CryptoProvider>,
    limits: &Limits<'_>,
) -> Result<Arc<SingleCertAndKey>, LockError> {
    static READINGS: Readings<Source, Arc<SingleCertAndKey>> = Readings::new();
    let provider = Arc::clone(provider);
    let source = Source(files.clone());
    READINGS.get(&source, move |source| source.read(&provider), limits)
}

#[derive(Clone, PartialEq)]
struct Source(CertificateFiles);

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CertificateFiles { certificate, key } = &self.0;
        write!(
            f,
            "the client certificate {} with the key {}",
            certificate.display(),
            key.display()
        )
    }
}

impl Source {
    fn read(&self, provider: &CryptoProvider) -> Result<Arc<SingleCertAndKey>, String> {
        let CertificateFiles { certificate, key } = &self.0;
        let chain = chain(certificate).map_err(|why| {
            let file = certificate.display();
            format!("the client certificate {file} cannot be used: {why}")
        })?;
        let unusable = |why| format!("the key {} cannot be used: {why}", key.display());
        let private = private_key(key).map_err(unusable)?;
        let pair = CertifiedKey::from_der(chain, private, provider).map_err(|e| match e {
            rustls::Error::InconsistentKeys(_) => format!("{self}: the two do not belong together"),
            other => unusable(other.to_string()),
        })?;
        Ok(Arc::new(SingleCertAndKey::from(pair)))
    }
}

fn chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = contents(file, whatever_its_mode).map_err(|e| e.to_string())?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err("there is no certificate in it".to_owned()),
        Ok(chain) => Ok(chain),
        Err(e) => Err(format!("it is not PEM: {e}")),
    }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let pem = Secret::new(contents(file, ours_alone).map_err(|e| e.to_string())?);
    PrivateKeyDer::from_pem_slice(pem.bytes()).map_err(|e| match e {
        pem::Error::NoItemsFound => {
            "there is no private key in it (PEM, in PKCS#8, PKCS#1 or SEC1, without a passphrase)"
                .to_owned()
        }
        // The text of another error could repeat a part of the key.
        _ => "it is not PEM".to_owned(),
    })
}

/// The rule of libpq: no other user may read it; a group may if the file is root's.
fn ours_alone(file: &File) -> io::Result<()> {
    let about = file.metadata()?;
    let (forbidden, rule) = match about.uid() {
        0 => (0o037, "0640 or stricter, as it is root's"),
        _ => (0o077, "0600 or stricter"),
    };
    if about.mode() & forbidden != 0 {
        return Err(io::Error::other(format!(
            "others may read or change it; make its mode {rule} (chmod 600)"
        )));
    }
    Ok(())
}
