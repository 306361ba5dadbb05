//! The password of a connection: a fixed one, or what the user's function says. It uses `asked`.

use std::fmt;
use std::sync::Arc;

use crate::backend::limits::Limits;
use crate::net::asked::Asked;
use crate::options::connections::{AskPassword, ProviderError};
use crate::runtime::sync::Mutex;
use crate::runtime::workers::guarded;
use crate::types::error::{ErrorCode, LockError};
use crate::types::secret::{Secret, wipe};

/// What is refused when a client is opened.
pub(crate) const TWO_PASSWORDS: &str =
    "the URL has a password, and the options have a password provider; take one of them away";

/// A longer answer is refused: Postgres takes no longer one.
const MAX_PASSWORD_BYTES: usize = 65_534;

/// The user's function, asked before each connection. While it runs, all callers wait for that one answer: a call that hangs is not
/// made again.
pub(crate) struct PasswordProvider {
    ask: AskPassword,
    under_way: Arc<Mutex<Option<Arc<Asked<PasswordAnswer>>>>>,
}

type PasswordAnswer = Result<Arc<Secret>, NoPassword>;

/// Why there is no password. Every caller that waited is told.
#[derive(Clone)]
enum NoPassword {
    Failed(Arc<ProviderError>),
    /// It said so itself, in our terms.
    Said(ErrorCode, String),
    Panicked,
    Unusable(&'static str),
}

impl PasswordProvider {
    pub(crate) fn new(ask: AskPassword) -> Arc<Self> {
        Arc::new(Self {
            ask,
            under_way: Arc::default(),
        })
    }

    /// The password for a connection that is to be made now.
    ///
    /// # Errors
    /// `ServiceUnavailable` if the function fails, `Internal` if it panics, `InvalidArgument` for what can be no password,
    /// `NetworkTimeout` and `Aborted` by the limits. Nothing was sent.
    pub(crate) fn password(&self, limits: &Limits<'_>) -> Result<Arc<Secret>, LockError> {
        self.asked()?
            .wait("the password provider gave no password", limits)?
            .map_err(NoPassword::into_error)
    }

    fn asked(&self) -> Result<Arc<Asked<PasswordAnswer>>, LockError> {
        let mut under_way = self.under_way.lock();
        if let Some(asked) = &*under_way {
            return Ok(Arc::clone(asked));
        }
        let asked = Asked::new();
        let (ask, place, own) = (
            Arc::clone(&self.ask),
            Arc::clone(&self.under_way),
            Arc::clone(&asked),
        );
        Asked::<PasswordAnswer>::begin("syncguard-pass", "ask for the password", move || {
            let answer = guarded(|| ask()).map_or(Err(NoPassword::Panicked), judge);
            // The function is done with before its answer is told: the next connection asks again, and a client that goes now
            // takes the user's data with it.
            drop(ask);
            *place.lock() = None;
            own.answer(answer);
        })?;
        *under_way = Some(Arc::clone(&asked));
        Ok(asked)
    }
}

fn judge(answer: Result<String, ProviderError>) -> PasswordAnswer {
    let mut bytes = answer.map_err(failed)?.into_bytes();
    let why = if bytes.contains(&0) {
        "a password with a NUL in it"
    } else if bytes.len() > MAX_PASSWORD_BYTES {
        "a password that is longer than 65534 bytes"
    } else {
        return Ok(Arc::new(Secret::new(bytes)));
    };
    wipe(&mut bytes);
    Err(NoPassword::Unusable(why))
}

fn failed(why: ProviderError) -> NoPassword {
    match why.downcast_ref::<LockError>() {
        Some(own) => NoPassword::Said(own.code(), own.message().to_owned()),
        None => NoPassword::Failed(Arc::new(why)),
    }
}

impl NoPassword {
    fn into_error(self) -> LockError {
        let error = match self {
            Self::Failed(why) => {
                LockError::unavailable("the password provider failed").with_source(SharedError(why))
            }
            Self::Said(code, message) => LockError::new(code, message),
            Self::Panicked => LockError::internal("the password provider panicked"),
            Self::Unusable(why) => LockError::invalid(format!("the password provider gave {why}")),
        };
        error.nothing_applied()
    }
}

/// The user's error, which several callers are told.
struct SharedError(Arc<ProviderError>);

impl fmt::Debug for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for SharedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&**self.0)
    }
}

impl fmt::Debug for PasswordProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordProvider(..)")
    }
}
