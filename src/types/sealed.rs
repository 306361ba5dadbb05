//! [`Sealed`]: no type of another crate can implement a trait that asks for it, so that such a trait may grow. It uses nothing else
//! of the crate.

/// In a module that other crates do not reach.
pub trait Sealed {}

impl Sealed for &str {}
impl Sealed for &&str {}
impl Sealed for String {}
impl Sealed for &String {}
