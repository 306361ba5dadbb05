//! Loss: how work learns that its lock is gone, and what it does then.
//!
//! # What it is
//!
//! A guard is lost when this process can no longer count on the lock: its lease could not be renewed in time, or the store no longer
//! has it. The guard counts the lease itself, from before the request was sent and less a margin, so it knows before the store gives
//! the lock to another holder, also when the network is gone. A process that was paused knows it when it goes on. A guard that is lost
//! stays lost; [`LossReason`](crate::LossReason) says why.
//!
//! | you want | call |
//! |---|---|
//! | to ask between two steps, without I/O | [`is_lost`](crate::Guard::is_lost), [`loss`](crate::Guard::loss), [`remaining`](crate::Guard::remaining) |
//! | to pause between two steps, and wake up on a loss or a shutdown | [`wait_lost_with`](crate::Guard::wait_lost_with) |
//! | to be called | [`on_lost`](crate::LockOptions::on_lost) |
//! | a descriptor for `poll` | [`lost_fd`](crate::Guard::lost_fd) |
//! | an error afterwards, if the lock was lost meanwhile | [`with_lock`](crate::Client::with_lock) |
//!
//! # What to do
//!
//! - Work in steps, and ask before each. Ask for [`remaining`](crate::Guard::remaining) if a step takes long: it must fit.
//! - After a loss, stop. Write nothing more, send nothing more, and let the next holder find out what was done.
//! - Hand the fence to whatever you write to. A step that had begun before the loss is refused there: see [`fencing`](super::fencing).
//! - Look at the answer of [`release`](crate::Guard::release). `Absent` means that the lock was gone before.
//!
//! Here the store stops answering renewals. The work ends after the step in which the lease ran out:
//!
//! ```
//! use std::time::Duration;
//! use syncguard::testkit::{Fault, ManualClock, MemoryBackend, Verb};
//! use syncguard::{Client, ClientOptions, ErrorCode, Guard, LossReason};
//!
//! /// How many steps were done, and why no more.
//! fn work(guard: &Guard, mut step: impl FnMut()) -> (u32, Option<LossReason>) {
//!     for done in 0..10 {
//!         if let Some(why) = guard.loss() {
//!             return (done, Some(why)); // another holder may work already
//!         }
//!         step();
//!     }
//!     (10, None)
//! }
//!
//! let clock = ManualClock::new();
//! let store = MemoryBackend::with_clock(&clock);
//! let client = Client::from_backend_with(store.clone(), &ClientOptions::new().clock(&clock))?;
//! store.always(Verb::Extend, Fault::Refuse(ErrorCode::ServiceUnavailable));
//!
//! let guard = client.lock("nightly")?; // for 30 seconds
//! let ended = work(&guard, || clock.advance(Duration::from_secs(20)));
//! assert_eq!(ended, (2, Some(LossReason::Unconfirmed)));
//!
//! // With a closure: what it answers does not count if the lock was lost while it ran.
//! clock.advance(Duration::from_secs(60));
//! let error = client.with_lock("nightly", |_guard| clock.advance(Duration::from_secs(60))).unwrap_err();
//! assert_eq!(error.code(), ErrorCode::Lost);
//! assert_eq!(error.loss_reason(), Some(LossReason::Unconfirmed));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How long a lease
//!
//! The default is 30 seconds, renewed every 10. A shorter [`ttl`](crate::LockOptions::ttl) frees the lock sooner after a crash, and is
//! lost sooner when the store is slow or restarts. Choose one that is longer than a restart of your store. A lease need not cover the
//! whole work, because it is renewed. [`max_hold`](crate::LockOptions::max_hold) ends the renewals of work that hangs.
//!
//! # What not to do
//!
//! - Do not compare [`expires_at_ms`](crate::Guard::expires_at_ms) with a clock of your own. It is a time of the store's clock, for
//!   people.
//! - Do not take the lock again and go on where you were. Begin anew: another holder may have changed everything.
//! - Do not put a guard into a `static` or give it to `mem::forget`: it would be renewed as long as the process lives.
//! - Do not end the program with `process::exit` while guards are alive. They are not released, and are free only after their lease.
//! - Do not keep a guard across `fork`. In the child it is lost ([`Forked`](crate::LossReason::Forked)); the parent keeps it.
