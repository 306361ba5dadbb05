//! x
/// Guard
pub struct Guard;
