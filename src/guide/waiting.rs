//! Waiting: how long to wait for a lock, how to end a wait, and what to do if another holder keeps it.
//!
//! # Which call
//!
//! | you want | call |
//! |---|---|
//! | the lock, or to know at once that another holder has it | [`try_lock`](crate::Client::try_lock) |
//! | the lock within 5 seconds | [`lock`](crate::Client::lock) |
//! | the lock within a time of your own | [`lock_with`](crate::Client::lock_with), [`acquire_timeout`](crate::LockOptions::acquire_timeout) |
//! | to be done by a fixed time, an attempt under way included | [`deadline`](crate::LockOptions::deadline) |
//! | the lock, however long it takes | [`wait_forever`](crate::LockOptions::wait_forever), with a [token](crate::LockOptions::cancel) |
//! | to run a closure under the lock | [`with_lock`](crate::Client::with_lock) |
//!
//! A wait is cheap. The waiters of a client stand in line, one of them asks the store for all, and a release wakes it. An error that
//! can pass, such as a server that restarts, is tried again within the same time.
//!
//! # What to do
//!
//! - Choose the time from what your own caller can wait. A request that is answered within 2 seconds cannot wait 5 for a lock.
//! - Treat [`AcquisitionTimeout`](crate::ErrorCode::AcquisitionTimeout) as an ordinary answer: another holder does this work, or did
//!   not finish in time.
//! - Give every long wait a [`CancelToken`](crate::CancelToken), and cancel it when the program shuts down.
//!
//! ```
//! use std::time::Duration;
//! use syncguard::{CancelToken, Client, ErrorCode, LockError, LockOptions};
//!
//! # let dir = tempfile::tempdir()?;
//! # let client = Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
//! fn report(client: &Client, shutdown: &CancelToken) -> Result<&'static str, LockError> {
//!     let options = LockOptions::new().acquire_timeout(Duration::from_millis(50)).cancel(shutdown);
//!     match client.lock_with("report", &options) {
//!         Ok(_guard) => Ok("written"),
//!         Err(error) => match error.code() {
//!             ErrorCode::AcquisitionTimeout => Ok("another process is at it"),
//!             ErrorCode::Aborted => Ok("shutting down"),
//!             _ => Err(error), // the store, the key or an option
//!         },
//!     }
//! }
//!
//! let shutdown = CancelToken::new();
//! assert_eq!(report(&client, &shutdown)?, "written");
//!
//! let other = client.lock("report")?;
//! assert_eq!(report(&client, &shutdown)?, "another process is at it");
//!
//! shutdown.cancel();
//! assert_eq!(report(&client, &shutdown)?, "shutting down");
//! # drop(other);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A wait without an end of its own ends with its token, at once and from any thread:
//!
//! ```
//! use std::thread;
//! use syncguard::{CancelToken, Client, ErrorCode, LockOptions};
//!
//! # let dir = tempfile::tempdir()?;
//! # let client = Client::open(&format!("sqlite:{}", dir.path().join("locks.db").display()))?;
//! let shutdown = CancelToken::new();
//! let options = LockOptions::new().wait_forever().cancel(&shutdown);
//! let held = client.lock("leader")?;
//! thread::scope(|scope| {
//!     let waiter = scope.spawn(|| client.lock_with("leader", &options));
//!     shutdown.cancel();
//!     let error = waiter.join().unwrap().unwrap_err();
//!     assert_eq!(error.code(), ErrorCode::Aborted);
//! });
//! # drop(held);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What not to do
//!
//! - Do not call [`try_lock`](crate::Client::try_lock) in a loop. [`lock_with`](crate::Client::lock_with) is woken when the lock is
//!   freed, and asks less often.
//! - Do not take a lock again that the same thread holds: it waits for itself until its time is over. Pass the guard on instead.
//! - Do not take two locks in different orders in different places: each may wait for the other. Sort the keys, then take them.
//! - Do not count on an order. The waiters of one client are served in the order in which they came; between clients there is none.
//! - Do not decide by [`is_locked`](crate::Client::is_locked). The answer is old when it arrives. Only an attempt decides.
//! - Do not wait inside an async task: the thread that runs it would stand still. [`docs::tokio`](crate::docs::tokio) has a wait that
//!   does not.
