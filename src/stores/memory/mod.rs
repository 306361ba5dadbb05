//! For tests of your own code: a store in memory, a clock the test moves, faults it injects. No server, no waiting.
//!
//! ```
//! use std::time::Duration;
//! use syncguard::testkit::{Fault, ManualClock, MemoryBackend, Verb};
//! use syncguard::{Client, ClientOptions, ErrorCode};
//!
//! let clock = ManualClock::new();
//! let store = MemoryBackend::with_clock(&clock);
//! let client = Client::with_backend_and(store.clone(), &ClientOptions::new().clock(&clock))?;
//!
//! // A holder that is cut off from its store knows that it lost the lock, without any I/O.
//! let guard = client.lock("invoice:42")?;
//! store.always(Verb::Extend, Fault::Refuse(ErrorCode::ServiceUnavailable));
//! clock.advance(Duration::from_secs(30));
//! assert!(guard.is_lost());
//! # Ok::<(), syncguard::LockError>(())
//! ```

mod clock;
mod store;

pub use clock::ManualClock;
pub use store::{Fault, MemoryBackend, Verb};
