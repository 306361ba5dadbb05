//! The scripts, each with the digest the server knows it by. It uses `format`, which has their texts.

use super::format;
use crate::types::fence::FenceSource;

/// A Lua script. Those of locks begin with the same prelude.
pub(crate) struct Script {
    pub(crate) text: &'static str,
    /// The SHA-1 of the text in hex.
    pub(crate) digest: String,
    /// Whether it reads a key that the caller cannot name: the lock that an index entry leads to.
    pub(crate) through_index: bool,
    /// Whether its last argument is the time after which the server refuses it.
    pub(crate) in_time: bool,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self {
            text,
            digest: format::digest(text),
            through_index: false,
            in_time: false,
        }
    }

    fn in_time(self) -> Self {
        Self {
            in_time: true,
            ..self
        }
    }

    fn through_index(self) -> Self {
        Self {
            through_index: true,
            ..self
        }
    }
}

/// All scripts. Made with a backend and not in a static, which a fork could catch half made.
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) release: Script,
    pub(crate) extend: Script,
    pub(crate) is_locked: Script,
    pub(crate) find_by_key: Script,
    pub(crate) find_by_id: Script,
    pub(crate) list: Script,
    pub(crate) rehearse: Script,
    pub(crate) fenced_set: Script,
    pub(crate) newest_fence: Script,
    pub(crate) reset_gate: Script,
}

impl Scripts {
    pub(crate) fn new(fences: FenceSource) -> Self {
        let acquire = match fences {
            FenceSource::Counter => format::ACQUIRE,
            FenceSource::Clock => format::ACQUIRE_BY_CLOCK,
        };
        Self {
            acquire: Script::new(acquire).in_time(),
            release: Script::new(format::RELEASE).through_index(),
            extend: Script::new(format::EXTEND).through_index().in_time(),
            is_locked: Script::new(format::IS_LOCKED),
            find_by_key: Script::new(format::FIND_BY_KEY),
            find_by_id: Script::new(format::FIND_BY_ID).through_index(),
            list: Script::new(format::LIST),
            rehearse: Script::new(format::REHEARSE),
            fenced_set: Script::new(format::FENCED_SET),
            newest_fence: Script::new(format::NEWEST_FENCE),
            reset_gate: Script::new(format::RESET_GATE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::fence::MAX_CLOCK_MS;

    #[test]
    fn the_latest_time_in_the_script_is_that_of_the_library() {
        let line = format!("local max_clock_ms = {MAX_CLOCK_MS}\n");
        assert!(format::ACQUIRE_BY_CLOCK.contains(&line));
        assert!(!format::ACQUIRE.contains(&line));
    }

    #[test]
    fn a_digest_is_the_sha1_of_the_text() {
        assert_eq!(
            Script::new("return 1").digest,
            "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
        );
    }
}
