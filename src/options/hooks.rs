//! The callbacks that a user sets: their types, and how each is called, on a thread of the library's workers. It uses `runtime` and
//! `types`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::runtime::cancel::{Bell, CancelToken};
use crate::runtime::timer::Timer;
use crate::runtime::wake::Wake as _;
use crate::runtime::workers::{Workers, guarded};
use crate::types::error::LockError;
use crate::types::event::LockEvent;
use crate::types::failed_release::FailedRelease;
use crate::types::lost_lock::LostLock;

/// What a lost guard's callback is told.
pub(crate) type OnLost = Arc<dyn Fn(&LockError) + Send + Sync>;
/// What the loss of any guard of a client is told to.
pub(crate) type OnClientLost = Arc<dyn Fn(&LostLock) + Send + Sync>;
/// What a failed release in `Drop` is told to.
pub(crate) type OnReleaseError = Arc<dyn Fn(&FailedRelease) + Send + Sync>;

/// What a warning is told to.
pub(crate) type OnWarning = Arc<dyn Fn(&str) + Send + Sync>;
/// What an event is told to.
pub(crate) type OnEvent = Arc<dyn Fn(&LockEvent) + Send + Sync>;

/// Whether events carry raw keys, lock ids and texts of holders.
///
/// ```
/// use std::sync::Arc;
/// use syncguard::{ClientOptions, IncludeRaw};
///
/// // The keys of the operations that failed, to find out which they are.
/// let options = ClientOptions::new().events_include_raw(IncludeRaw::When(Arc::new(|event| !event.ok)));
/// # drop(options);
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum IncludeRaw {
    /// Never. The default.
    #[default]
    Never,
    /// Always.
    Always,
    /// When the predicate, given the event without them, says so. It runs on the callback's thread.
    When(Arc<dyn Fn(&LockEvent) -> bool + Send + Sync>),
}

impl fmt::Debug for IncludeRaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "Never",
            Self::Always => "Always",
            Self::When(_) => "When(..)",
        })
    }
}

/// Writes a line, with one write: those of several threads do not mix. `eprintln!` panics where stderr is closed, and a drop
/// must not.
fn tell_stderr(what: fmt::Arguments<'_>) {
    use std::io::Write as _;
    let line = format!("syncguard: {what}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The hooks of a client.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    on_warning: Option<OnWarning>,
    on_release_error: Option<OnReleaseError>,
    pub(crate) on_lost: Option<OnClientLost>,
}

impl Hooks {
    pub(crate) fn new(
        on_warning: Option<OnWarning>,
        on_release_error: Option<OnReleaseError>,
        on_lost: Option<OnClientLost>,
    ) -> Self {
        Self {
            on_warning,
            on_release_error,
            on_lost,
        }
    }

    /// The same with a guard's own release hook, if it has one.
    pub(crate) fn with_release_hook(&self, own: Option<&OnReleaseError>) -> Option<OnReleaseError> {
        own.or(self.on_release_error.as_ref()).cloned()
    }

    pub(crate) fn warn(&self, workers: &Arc<Workers>, timer: &Timer, message: String) {
        let hook = self.on_warning.clone();
        workers.run(timer, Box::new(move || tell(hook.as_ref(), &message)));
    }

    /// Has the hook, or stderr, told of all `messages`, and waits for that until `limit` or a cancel. Answers how many are not delivered by
    /// then; a hook that goes on later gets the rest. A message at which the hook panics counts as delivered.
    pub(crate) fn warn_and_wait(
        &self,
        workers: &Arc<Workers>,
        timer: &Timer,
        messages: &[String],
        cancel: Option<&CancelToken>,
        limit: Instant,
    ) -> usize {
        if messages.is_empty() {
            return 0;
        }
        let (hook, all) = (self.on_warning.clone(), messages.to_vec());
        let (count, bell) = (Arc::new(AtomicUsize::new(0)), Arc::new(Bell::default()));
        let _subscription = cancel.map(|token| token.subscribe(bell.clone()));
        let (told, done) = (Arc::clone(&count), Arc::clone(&bell));
        workers.run(
            timer,
            Box::new(move || {
                for message in &all {
                    guarded(|| tell(hook.as_ref(), message));
                    told.fetch_add(1, Ordering::Release);
                }
                done.wake();
            }),
        );
        bell.sleep_until(Some(limit));
        messages.len() - count.load(Ordering::Acquire)
    }
}

fn tell(hook: Option<&OnWarning>, message: &str) {
    match hook {
        Some(hook) => hook(message),
        None => tell_stderr(format_args!("warning: {message}")),
    }
}

/// Has the hook told of a failed release; without a hook, stderr where a developer looks.
pub(crate) fn report_failed_release(
    failed: FailedRelease,
    hook: Option<OnReleaseError>,
    workers: &Arc<Workers>,
    timer: &Timer,
) {
    match hook {
        Some(hook) => workers.run(timer, Box::new(move || hook(&failed))),
        None if cfg!(debug_assertions)
            || std::env::var("SYNCGUARD_DEBUG").is_ok_and(|v| v == "true") =>
        {
            tell_stderr(format_args!(
                "a lock could not be released ({}): {}",
                failed.origin, failed.error
            ));
        }
        None => {}
    }
}
