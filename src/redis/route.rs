//! Which server to connect to. Kept apart from how, so that a primary that moves is looked for here and nowhere else.

use crate::error::LockError;
use crate::limits::Limits;
use crate::net::Endpoint;

/// The way to the server that takes writes.
pub(crate) enum Route {
    /// The one the URL names.
    Fixed(Endpoint),
}

impl Route {
    /// The server to connect to now. Asked before every new connection, within its time.
    pub(crate) fn endpoint(&self, _limits: &Limits<'_>) -> Result<Endpoint, LockError> {
        match self {
            Self::Fixed(endpoint) => Ok(endpoint.clone()),
        }
    }
}
