//! Files, read with a deadline. It uses `backend`, `runtime` and `types`.
//!
//! A file may be a pipe, have no end, or lie on a disk that does not answer. A thread reads it, and a caller waits for it within
//! its own limits. All callers of a process share the reading of one source, so that one that hangs costs one thread.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use nix::libc;

use crate::backend::limits::Limits;
use crate::net::asked::Asked;
use crate::runtime::process::PerProcess;
use crate::runtime::sync::Mutex;
use crate::runtime::workers::guarded;
use crate::types::error::LockError;

/// A file that is longer is refused. Those of the systems' CA certificates have less than 1 MiB.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// What is being read in this process of one kind of source. `S` names itself in messages.
pub(crate) struct Readings<S, T: 'static>(PerProcess<Mutex<UnderWay<S, T>>>);

type UnderWay<S, T> = Vec<Arc<Reading<S, T>>>;

struct Reading<S, T> {
    source: S,
    asked: Arc<Asked<Result<T, String>>>,
}

impl<S, T> Readings<S, T>
where
    S: Clone + PartialEq + Display + Send + Sync + 'static,
    T: Clone + Send + 'static,
{
    pub(crate) const fn new() -> Self {
        Self(PerProcess::new())
    }

    /// Has `read` read the source, or waits for a reading of the same source that has begun.
    ///
    /// # Errors
    /// `InvalidArgument` with what `read` says, `NetworkTimeout` at the deadline, `Aborted` if cancelled, `RateLimited` without a
    /// thread. Nothing was sent.
    pub(crate) fn get(
        &'static self,
        source: &S,
        read: impl FnOnce(&S) -> Result<T, String> + Send + 'static,
        limits: &Limits<'_>,
    ) -> Result<T, LockError> {
        let reading = self.join(source, read)?;
        reading
            .asked
            .wait(&format!("{} could not be read", reading.source), limits)?
            .map_err(LockError::invalid)
    }

    fn join(
        &'static self,
        source: &S,
        read: impl FnOnce(&S) -> Result<T, String> + Send + 'static,
    ) -> Result<Arc<Reading<S, T>>, LockError> {
        let readings = self.0.get(Mutex::default);
        let mut list = readings.lock();
        if let Some(reading) = list.iter().find(|reading| reading.source == *source) {
            return Ok(Arc::clone(reading));
        }
        let reading = Arc::new(Reading {
            source: source.clone(),
            asked: Asked::new(),
        });
        let own = Arc::clone(&reading);
        Asked::<Result<T, String>>::begin(
            "syncguard-file",
            &format!("read {source}"),
            move || {
                let answer = guarded(|| read(&own.source))
                    .unwrap_or_else(|| Err(format!("{} could not be read", own.source)));
                // No answer is kept: the file may be another one the next time.
                readings.lock().retain(|other| !Arc::ptr_eq(other, &own));
                own.asked.answer(answer);
            },
        )?;
        list.push(Arc::clone(&reading));
        Ok(reading)
    }
}

/// What is in a regular file of a bounded length, which `permitted` has looked at.
pub(crate) fn contents(
    path: &Path,
    permitted: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
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
    let length = file.metadata()?;
    if !length.is_file() {
        return Err(not_a_file());
    }
    permitted(&file)?;
    // As long as the file, so that no copy of a secret stays behind when the buffer grows.
    let expected = length.len().min(MAX_FILE_BYTES) + 1;
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!(
            "it is longer than {MAX_FILE_BYTES} bytes"
        )));
    }
    Ok(bytes)
}

/// Any file may be read.
pub(crate) fn whatever_its_mode(_: &File) -> io::Result<()> {
    Ok(())
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
    use crate::types::error::ErrorCode;

    const AMPLE: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(100);

    static READINGS: Readings<&str, u32> = Readings::new();

    fn within<'a>(timeout: Duration, call: &Call<'a>) -> Limits<'a> {
        Limits::enter(Owner::current(), timeout, call).expect("time is left")
    }

    #[test]
    fn a_reading_that_hangs_costs_each_caller_its_own_deadline_and_one_thread() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let source = "a file on a disk that hangs";
        let (release, hang) = mpsc::channel::<()>();
        let mut hang = Some(hang);
        let mut read = || {
            let hang = hang.take();
            move |_: &&str| {
                BEGUN.fetch_add(1, SeqCst);
                let _ = hang.map(|hang| hang.recv());
                Ok(7)
            }
        };
        for _ in 0..3 {
            let begun = Instant::now();
            let error = READINGS.get(&source, read(), &within(SHORT, &Call::new()));
            let error = error.expect_err("it hangs");
            assert_eq!(error.code(), ErrorCode::NetworkTimeout, "{error}");
            assert!(error.message().contains(source), "{error}");
            assert!(!error.may_have_applied() && begun.elapsed() < AMPLE / 2);
        }
        // Another source waits for nothing.
        let other = READINGS.get(
            &"another",
            |_| Err("no".to_owned()),
            &within(AMPLE, &Call::new()),
        );
        assert_eq!(
            other.expect_err("refused").code(),
            ErrorCode::InvalidArgument
        );
        // A cancel ends the wait of one caller; another one gets the answer.
        let token = CancelToken::new();
        std::thread::scope(|scope| {
            let cancelled = scope.spawn({
                let (read, limits) = (read(), within(AMPLE, &Call::new().cancelled_by(&token)));
                move || READINGS.get(&source, read, &limits)
            });
            let patient = scope.spawn({
                let read = read();
                move || READINGS.get(&source, read, &within(AMPLE, &Call::new()))
            });
            token.cancel();
            let error = cancelled.join().expect("no panic").expect_err("cancelled");
            assert_eq!(error.code(), ErrorCode::Aborted, "{error}");
            // However late it comes: it waits for the reading that hangs, or begins one that does not.
            drop(release);
            assert_eq!(patient.join().expect("no panic").ok(), Some(7));
        });
        assert!(
            BEGUN.load(SeqCst) <= 2,
            "one that hung, one after it at most"
        );
    }
}
