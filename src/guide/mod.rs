//! A guide in four chapters, with examples that run. This module exists in the documentation only.
//!
//! Read them in this order:
//!
//! 1. [`fencing`]: how data stays right although a holder was asleep while its lease ran out. Read this one in any case.
//! 2. [`waiting`]: how long to wait for a lock, how to end a wait, and what to do if another holder keeps it.
//! 3. [`loss`]: how work learns that its lock is gone, and what it does then.
//! 4. [`testing`]: how to test your own code without a server and without waiting.
//!
//! The examples use an SQLite file in a temporary folder, or the store in memory of [`testkit`](crate::testkit). With Redis and
//! Postgres only the URL is another one.

pub mod fencing;
pub mod loss;
pub mod testing;
pub mod waiting;
