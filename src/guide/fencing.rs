//! Fencing: data stays right although a holder was asleep while its lease ran out.
//!
//! # Why
//!
//! A lease ends by time. A holder can be paused for longer than that: the machine is suspended, the virtual machine is moved, the disk
//! is slow, a debugger stops the process. When it goes on, it believes for a moment that it holds the lock, and its next write is
//! under way. Meanwhile the store has given the lock to another holder, which is right. No lock can prevent that write. The resource
//! that receives it can.
//!
//! Every grant has a [`Fence`](crate::Fence): a number that grows with each grant of the same key and never goes back. The resource
//! remembers the largest fence that it has seen, and refuses a smaller one. The late write has a smaller fence, so it changes nothing.
//!
//! # What to do
//!
//! - Keep a column `fence` beside the data that the lock protects. A fence fits a `BIGINT`: `i64::from(guard.fence())`.
//! - Compare and write in **one** statement or one transaction. Let a fence that is equal pass: one holder writes many times.
//! - Look at how many rows were changed. None means that a newer holder has written: stop, and do not try again.
//!
//! Here the first holder sleeps for 32 seconds, longer than its lease. The second holder writes. Then the first one wakes up:
//!
//! ```
//! use std::time::Duration;
//! use rusqlite::{Connection, params};
//! use syncguard::testkit::{ManualClock, MemoryBackend};
//! use syncguard::{Client, ClientOptions, Fence, LockOptions};
//!
//! /// Whether the money was added. `false`: a newer holder has written.
//! fn deposit(db: &Connection, fence: Fence, amount: i64) -> rusqlite::Result<bool> {
//!     let changed = db.execute(
//!         "UPDATE account SET balance = balance + ?1, fence = ?2 WHERE id = 7 AND fence <= ?2",
//!         params![amount, i64::from(fence)],
//!     )?;
//!     Ok(changed == 1)
//! }
//!
//! let db = Connection::open_in_memory()?;
//! db.execute_batch(
//!     "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL);
//!      INSERT INTO account VALUES (7, 0, 0);",
//! )?;
//! let clock = ManualClock::new();
//! let store = MemoryBackend::with_clock(&clock);
//! let client = Client::from_backend_with(store, &ClientOptions::new().clock(&clock))?;
//!
//! // A process that is asleep renews nothing.
//! let first = client.lock_with("account:7", &LockOptions::new().no_heartbeat())?;
//! assert!(deposit(&db, first.fence(), 100)?);
//! clock.advance(Duration::from_secs(32));
//!
//! let second = client.lock("account:7")?;
//! assert!(second.fence() > first.fence());
//! assert!(deposit(&db, second.fence(), 10)?);
//!
//! assert!(!deposit(&db, first.fence(), 100)?); // too late, and refused
//! let balance: i64 = db.query_row("SELECT balance FROM account", [], |row| row.get(0))?;
//! assert_eq!(balance, 110);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The module [`gate`](crate::gate) has this check ready made for Postgres, SQLite, Redis and what compares and sets, and
//! `docs/fencing.md` explains each.
//!
//! # What not to do
//!
//! - Do not rely on [`is_lost`](crate::Guard::is_lost) alone. It is right when you ask, and the process may be paused between the
//!   answer and the write. It saves work; the fence saves data.
//! - Do not read the stored fence in one transaction and write in another. A newer holder may write between the two.
//! - Do not protect one thing with two keys. Each key counts for itself, and their fences cannot be compared.
//! - Do not set the stored fence back, and do not delete the fence counters in the store. An old writer would pass.
//! - Do not use a store that can forget a fence. [`Client::check`](crate::Client::check) warns of settings with which a crash or a
//!   full memory loses fences, and the README says which settings keep them. No setting helps with a replica that takes over before it
//!   has received the last writes; [`FenceSource::Clock`](crate::FenceSource::Clock) does, if all clients of the key have it.
//! - Do not build this on a store of your own without [fencing](crate::Capabilities::supports_fencing). Its guards answer
//!   [`Fence::NONE`](crate::Fence::NONE) each time, and every writer passes that has it. [`Client::check`](crate::Client::check) warns.
//!
//! # If the resource cannot compare
//!
//! Some resources have another condition that does the same. A version of the object, such as an `ETag`: read it under the lock, and
//! write only if it is still the same (`If-Match`). A unique key of the work itself, such as the number of the invoice: the resource
//! does it once, however often it is sent. If there is nothing of that kind, such as for a mail that is sent, a pause at the wrong
//! moment can do the work twice. Make that rare: ask for [`remaining`](crate::Guard::remaining) right before, and do nothing if that
//! is less than the step takes.
