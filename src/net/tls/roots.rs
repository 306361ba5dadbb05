//! The certificates of trusted issuers, read with a deadline.
//!
//! A file may be a pipe, have no end, or lie on a disk that does not answer. A helper thread reads it, and a caller waits for it
//! within its own limits. All callers of a process share the reading of one source, so that one that hangs costs one thread.

use std::env;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::libc;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::backend::limits::Limits;
use crate::runtime::process::PerProcess;
use crate::runtime::sync::{Condvar, Mutex};
use crate::runtime::threads;
use crate::runtime::wake::Wake;
use crate::runtime::workers::guarded;
use crate::types::error::{ErrorCode, LockError};

/// A file of CA certificates that is longer is refused. Those of the systems have less than 1 MiB.
const MAX_FILE_BYTES: u64 = 16 << 20;

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

/// What is being read in this process.
static READINGS: PerProcess<Mutex<Vec<Arc<RootsReading>>>> = PerProcess::new();

/// One reading of a source and all callers that wait for it.
struct RootsReading {
    source: RootsSource,
    answer: Mutex<Option<RootsAnswer>>,
    changed: Condvar,
}

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
        self.roots_by(read, limits)
    }

    fn roots_by(
        self,
        read: impl FnOnce(&Self) -> RootsAnswer + Send + 'static,
        limits: &Limits<'_>,
    ) -> Result<Arc<RootCertStore>, LockError> {
        let reading = RootsReading::of(self, read)?;
        // Subscribing may wake at once, so it comes before the mutex.
        let _subscription = limits
            .token()
            .map(|token| token.subscribe(Arc::clone(&reading) as Arc<dyn Wake>));
        match reading.wait(limits) {
            Some(Ok(roots)) => Ok(roots),
            Some(Err(why)) => Err(LockError::invalid(why)),
            None if limits.is_cancelled() => Err(limits.overrun().nothing_applied()),
            None => Err(LockError::new(
                ErrorCode::NetworkTimeout,
                format!(
                    "{} could not be read within the limit of {}",
                    reading.source.name(),
                    limits.allowed()
                ),
            )
            .nothing_applied()),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::File(file) => format!("the TLS CA file {}", file.display()),
            Self::System { .. } => "the system's trusted TLS roots".to_owned(),
        }
    }
}

impl RootsReading {
    fn of(
        source: RootsSource,
        read: impl FnOnce(&RootsSource) -> RootsAnswer + Send + 'static,
    ) -> Result<Arc<Self>, LockError> {
        let readings = READINGS.get(Mutex::default);
        let mut list = readings.lock();
        if let Some(reading) = list.iter().find(|reading| reading.source == source) {
            return Ok(Arc::clone(reading));
        }
        let reading = Arc::new(Self {
            source,
            answer: Mutex::new(None),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&reading);
        threads::spawn("syncguard-roots", move || {
            let answer = guarded(|| read(&own.source))
                .unwrap_or_else(|| Err(format!("{} could not be read", own.source.name())));
            // A failure is not kept: the file may be a good one the next time.
            readings.lock().retain(|other| !Arc::ptr_eq(other, &own));
            *own.answer.lock() = Some(answer);
            own.changed.notify_all();
        })
        .map_err(|e| {
            LockError::new(
                ErrorCode::RateLimited,
                "no thread could be started to read the trusted TLS roots",
            )
            .with_source(e)
            .nothing_applied()
        })?;
        list.push(Arc::clone(&reading));
        Ok(reading)
    }

    fn wait(&self, limits: &Limits<'_>) -> Option<RootsAnswer> {
        let mut answer = self.answer.lock();
        while answer.is_none() && limits.left().is_ok() {
            self.changed
                .wait_until(&mut answer, Some(limits.deadline()));
        }
        answer.clone()
    }
}

impl Wake for RootsReading {
    fn wake(&self) {
        // Taking the mutex makes sure that the caller either sees the cancel or is already waiting.
        drop(self.answer.lock());
        self.changed.notify_all();
    }
}

fn read(source: &RootsSource) -> RootsAnswer {
    match source {
        RootsSource::File(file) => {
            in_file(file).map_err(|why| format!("{} cannot be used: {why}", source.name()))
        }
        RootsSource::System { file, dirs } => {
            of_system(file.as_deref().map(Path::new), dirs.as_ref())
        }
    }
    .map(Arc::new)
}

fn in_file(file: &Path) -> Result<RootCertStore, String> {
    let pem = contents(file).map_err(|e| e.to_string())?;
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
        match contents(file) {
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
        if let Ok(pem) = contents(&entry.path()) {
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

/// What is in a regular file of a bounded length.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let not_a_file = || io::Error::other("it is not a file");
    // Before it is opened: to open a pipe lets its writer go on, and to open a terminal may adopt it.
    if !std::fs::metadata(path)?.is_file() {
        return Err(not_a_file());
    }
    let file = OpenOptions::new()
        .read(true)
        // It may have been replaced by a pipe, which does not open without a writer.
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(not_a_file());
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!(
            "it is longer than {MAX_FILE_BYTES} bytes"
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::backend::call::Call;
    use crate::runtime::cancel::CancelToken;
    use crate::runtime::process::Owner;

    const AMPLE: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(100);

    fn within<'a>(timeout: Duration, call: &Call<'a>) -> Limits<'a> {
        Limits::enter(Owner::current(), timeout, call).expect("time is left")
    }

    #[test]
    fn a_reading_that_hangs_costs_each_caller_its_own_deadline_and_one_thread() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let source = RootsSource::File("/a/disk/that/hangs".into());
        let (release, hang) = mpsc::channel::<()>();
        let mut hang = Some(hang);
        let mut read = || {
            let hang = hang.take();
            move |_: &RootsSource| {
                BEGUN.fetch_add(1, SeqCst);
                let _ = hang.map(|hang| hang.recv());
                Ok(Arc::new(RootCertStore::empty()))
            }
        };
        for _ in 0..3 {
            let begun = Instant::now();
            let error = source
                .clone()
                .roots_by(read(), &within(SHORT, &Call::new()));
            let error = error.expect_err("it hangs");
            assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
            assert!(!error.may_have_applied() && begun.elapsed() < AMPLE / 2);
        }
        // Another source waits for nothing.
        let other = RootsSource::File("/another".into());
        assert!(
            other
                .roots_by(|_| Err("no".to_owned()), &within(AMPLE, &Call::new()))
                .is_err()
        );
        // A cancel ends the wait of one caller; another one gets the answer.
        let token = CancelToken::new();
        std::thread::scope(|scope| {
            let cancelled = scope.spawn({
                let (source, read, limits) = (
                    source.clone(),
                    read(),
                    within(AMPLE, &Call::new().cancelled_by(&token)),
                );
                move || source.roots_by(read, &limits)
            });
            let patient = scope.spawn({
                let (source, read) = (source.clone(), read());
                move || source.roots_by(read, &within(AMPLE, &Call::new()))
            });
            token.cancel();
            let error = cancelled.join().expect("no panic").expect_err("cancelled");
            assert_eq!(error.code(), ErrorCode::Aborted, "{error}");
            // However late it comes: it waits for the reading that hangs, or begins one that does not.
            drop(release);
            assert!(patient.join().expect("no panic").is_ok());
        });
        assert!(
            BEGUN.load(SeqCst) <= 2,
            "one that hung, one after it at most"
        );
    }
}
