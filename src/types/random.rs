//! Random bytes from the operating system. It uses `error` alone.

use crate::types::error::LockError;

/// Randomness straight from the operating system.
pub(crate) fn random_bytes(into: &mut [u8]) -> Result<(), LockError> {
    getrandom::fill(into).map_err(|e| {
        LockError::internal("the operating system gives no random bytes")
            .with_source(e)
            .nothing_applied()
    })
}

/// 64 random bits for jitter; where the system has none, jitter may do without.
pub(crate) fn random_bits() -> u64 {
    let mut bytes = [0u8; 8];
    match random_bytes(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => 0,
    }
}
