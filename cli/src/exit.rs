//! Exit codes, as of sysexits.h where one fits, and what ends the program early.

use std::io;

use syncguard::{ErrorCode, LockError};

pub const ABSENT: u8 = 1;
pub const USAGE: u8 = 64;
pub const UNAVAILABLE: u8 = 69;
pub const SOFTWARE: u8 = 70;
pub const IO: u8 = 74;
pub const CONFLICT: u8 = 75;
pub const DENIED: u8 = 77;
pub const CONFIG: u8 = 78;
pub const LOST: u8 = 79;
pub const NOT_EXECUTABLE: u8 = 126;
pub const NOT_FOUND: u8 = 127;
/// Behind a pipe whose reader is gone, as of a program that SIGPIPE ends.
pub const BROKEN_PIPE: u8 = 128 + 13;

/// Why the program ends: a text for people and an exit code.
#[derive(Debug)]
pub struct Failure {
    pub text: Option<String>,
    pub code: u8,
}

impl Failure {
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            code,
        }
    }

    /// Ends without a word.
    pub fn silent(code: u8) -> Self {
        Self { text: None, code }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::new(code_of(error.code()), error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::silent(BROKEN_PIPE),
            _ => Self::new(IO, format!("cannot write: {error}")),
        }
    }
}

pub fn code_of(code: ErrorCode) -> u8 {
    match code {
        ErrorCode::InvalidArgument => USAGE,
        ErrorCode::AuthFailed => DENIED,
        ErrorCode::AcquisitionTimeout => CONFLICT,
        ErrorCode::Lost => LOST,
        ErrorCode::ServiceUnavailable | ErrorCode::NetworkTimeout | ErrorCode::RateLimited => {
            UNAVAILABLE
        }
        _ => SOFTWARE,
    }
}
