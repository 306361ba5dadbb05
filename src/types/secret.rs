//! [`Secret`]: a text that no output shows and that leaves no copy in memory when it goes. It uses nothing else of the
//! crate.

use std::fmt;

/// A password or a key. Its memory is overwritten when it is dropped; what others copied from it is theirs.
#[derive(PartialEq, Eq)]
pub(crate) struct Secret(Vec<u8>);

impl Secret {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Overwrites what was secret. The compiler may not leave it out although the bytes are not read again.
pub(crate) fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    std::hint::black_box(bytes);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown_and_is_wiped() {
        let secret = Secret::new(b"hunter2".to_vec());
        assert_eq!(secret.bytes(), b"hunter2");
        assert!(!format!("{secret:?}").contains("hunter2"));
        let mut bytes = b"hunter2".to_vec();
        wipe(&mut bytes);
        assert_eq!(bytes, [0; 7]);
    }
}
