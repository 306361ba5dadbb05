//! Tests the gates: what refuses a former holder at the resource itself, in each kind of store and over compare-and-set, with bad
//! input, many writers at once, and holders that are really paused past their lease.

mod compare_and_set;
mod crowd;
mod late_writers;
mod planted;
mod postgres;
mod redis;
mod share;
mod sqlite;
#[path = "../support/mod.rs"]
mod support;

use syncguard::Fence;

fn fence(n: u64) -> Fence {
    Fence::new(n).expect("15 digits")
}
