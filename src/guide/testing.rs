//! Testing: how to test your own code without a server and without waiting.
//!
//! Switch on the feature `testkit`, for tests only:
//!
//! ```sh
//! cargo add --dev syncguard --features testkit   # from a checkout: --path …/syncguard
//! ```
//!
//! [`testkit`](crate::testkit) has a store in memory, [`MemoryBackend`](crate::testkit::MemoryBackend), which keeps the same contract
//! as the others. A [`ManualClock`](crate::testkit::ManualClock) stands still until the test moves it, and a
//! [`Fault`](crate::testkit::Fault) makes a call fail, hang or lose its answer.
//!
//! # What to do
//!
//! - Let your code take a `&Client`. The program opens it from a URL; the test makes it with
//!   [`Client::from_backend`](crate::Client::from_backend).
//! - Test four cases: the lock is free, another holder has it, the store is in trouble, the lock is lost in the middle.
//! - Take a second client of the same store as the other holder: clones of a `MemoryBackend` are one store.
//!
//! ```
//! use std::time::Duration;
//! use syncguard::testkit::{Fault, ManualClock, MemoryBackend, Verb};
//! use syncguard::{Client, ClientOptions, ErrorCode, LockError};
//!
//! /// The code under test: runs the report once, wherever it is started.
//! fn nightly(client: &Client, mut step: impl FnMut()) -> Result<&'static str, LockError> {
//!     let Some(guard) = client.try_lock("nightly")? else {
//!         return Ok("another process is at it");
//!     };
//!     for _ in 0..3 {
//!         if guard.is_lost() {
//!             return Ok("stopped: the lock was lost");
//!         }
//!         step();
//!     }
//!     Ok("done")
//! }
//!
//! let clock = ManualClock::new();
//! let store = MemoryBackend::with_clock(&clock);
//! let options = ClientOptions::new().clock(&clock);
//! let client = Client::from_backend_with(store.clone(), &options)?;
//!
//! // The lock is free, and free again afterwards.
//! assert_eq!(nightly(&client, || ())?, "done");
//! assert_eq!(store.stored(), 0);
//!
//! // Another holder has it.
//! let other = Client::from_backend_with(store.clone(), &options)?;
//! let held = other.lock("nightly")?;
//! assert_eq!(nightly(&client, || ())?, "another process is at it");
//! drop(held);
//!
//! // The store is in trouble.
//! store.once(Verb::Acquire, Fault::Refuse(ErrorCode::ServiceUnavailable));
//! let error = nightly(&client, || ()).unwrap_err();
//! assert_eq!(error.code(), ErrorCode::ServiceUnavailable);
//!
//! // The lock is lost in the middle: no renewal arrives, and time passes.
//! store.always(Verb::Extend, Fault::Hang);
//! let ended = nightly(&client, || clock.advance(Duration::from_secs(31)))?;
//! assert_eq!(ended, "stopped: the lock was lost");
//! # store.heal();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to test | use |
//! |---|---|
//! | a store that is down, full or refuses the password | [`Fault::Refuse`](crate::testkit::Fault::Refuse) with its code |
//! | an answer that gets lost after the store has acted | [`Fault::DropReply`](crate::testkit::Fault::DropReply) |
//! | a store that does not answer | [`Fault::Hang`](crate::testkit::Fault::Hang), and a short [`operation_timeout`](crate::ClientOptions::operation_timeout) |
//! | an operator that deletes a lock | [`MemoryBackend::evict`](crate::testkit::MemoryBackend::evict) |
//! | a wait that times out, or a lock that comes late | [`ManualClock::sleepers`](crate::testkit::ManualClock::sleepers), then move the clock |
//! | a store of your own | [`testkit::contract!`](crate::testkit::contract!) |
//! | how often your code asks | [`MemoryBackend::calls`](crate::testkit::MemoryBackend::calls) |
//! | large fences, such as those that do not fit an `i32` | [`MemoryBackend::set_fence_counter`](crate::testkit::MemoryBackend::set_fence_counter) |
//!
//! # What not to do
//!
//! - Do not sleep until a lease or a wait is over. Move the clock.
//! - Do not wait for a held lock on the thread that moves the clock: the wait would not end.
//! - Do not expect a callback ([`on_lost`](crate::LockOptions::on_lost)) to have run when the clock was moved: it runs on a thread of
//!   the library. Wait for it with a channel and a time limit.
//! - Do not let tests that run side by side share a key in a shared store. Give each a store in memory of its own.
//! - Do not stop at the store in memory. Rights, TLS, set-up and durability belong to your server: run
//!   [`Client::check`](crate::Client::check) against it when your program starts, and look at what it warns of.
