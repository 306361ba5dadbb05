//! Bytes between this process and a server, under one deadline, and the parts of a URL that stores share. It uses `types`,
//! `options`, `runtime` and `backend::limits`.

pub(crate) mod uri;

#[cfg(any(feature = "redis", feature = "postgres"))]
mod asked;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod connect;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod descriptor;
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) mod dialer;
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) mod password;
#[cfg(any(feature = "tls", feature = "postgres"))]
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) mod readings;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod resolver;
#[cfg(feature = "redis")]
pub(crate) mod shared;
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) mod socket;
#[cfg(all(feature = "tls", any(feature = "redis", feature = "postgres")))]
pub(crate) mod tls;

#[cfg(all(test, any(feature = "redis", feature = "postgres")))]
#[allow(dead_code)]
#[path = "../../tests/support/common/proxy.rs"]
mod proxy;
#[cfg(all(test, any(feature = "redis", feature = "postgres")))]
mod tests;
