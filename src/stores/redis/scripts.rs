//! The scripts, each with the digest the server knows it by. It uses nothing of the crate.

use sha1::{Digest, Sha1};

/// A Lua script. Every one begins with the same prelude.
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
        let digest = Sha1::digest(text.as_bytes())
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        Self {
            text,
            digest,
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
    pub(crate) rehearse: Script,
}

macro_rules! script {
    ($file:literal) => {
        Script::new(concat!(
            include_str!("lua/prelude.lua"),
            include_str!($file)
        ))
    };
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            acquire: script!("lua/acquire.lua").in_time(),
            release: script!("lua/release.lua").through_index(),
            extend: script!("lua/extend.lua").through_index().in_time(),
            is_locked: script!("lua/is_locked.lua"),
            find_by_key: script!("lua/find_by_key.lua"),
            find_by_id: script!("lua/find_by_id.lua").through_index(),
            rehearse: script!("lua/rehearse.lua"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_sha1_of_the_text() {
        assert_eq!(
            Script::new("return 1").digest,
            "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
        );
    }
}
