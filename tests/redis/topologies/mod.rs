//! Tests Redis Sentinel and Redis Cluster, on processes that the tests start.

mod cluster;
mod redirects;
mod sentinel;
mod tls;

use std::time::Duration;

use crate::support::redis::RedisServer;
use crate::support::stopwatch::{Stopwatch, worst_of_three};
use crate::support::topologies::{eventually, field};
use crate::support::verbs::{self, id, key};
use syncguard::{
    AcquireOutcome, Acquired, Backend, Call, ClientOptions, LockError, LockId, RedisBackend, Ttl,
};

const PREFIX: &str = "{app}";
const TTL: Duration = Duration::from_secs(60);
/// What a busy machine may add to a bound.
const SLACK: Duration = Duration::from_millis(500);

fn ttl() -> Ttl {
    Ttl::new(TTL).expect("a legal ttl")
}

/// How often `server` ran, or refused, `EVALSHA` and `EVAL`.
fn evals(server: &RedisServer) -> (u64, u64) {
    let info = server.cli(&["INFO", "commandstats"]).text();
    let (mut calls, mut refused) = (0, 0);
    for name in ["cmdstat_evalsha", "cmdstat_eval"] {
        for part in field(&info, name).split(',') {
            match part.split_once('=') {
                Some(("calls", n)) => calls += n.parse::<u64>().expect("a number"),
                Some(("rejected_calls", n)) => refused += n.parse::<u64>().expect("a number"),
                _ => {}
            }
        }
    }
    (calls, refused)
}

/// Acquires as soon as it can be, each time with a new id, and every failure on the way must be a transient one.
fn acquired_at_last(redis: &RedisBackend, name: &str) -> (LockId, Acquired) {
    let mut got = None;
    eventually("an acquire", || {
        let id = id();
        match redis.acquire(&key(name), &id, ttl(), &Call::new()) {
            Ok(AcquireOutcome::Acquired(grant)) => got = Some((id, grant)),
            Ok(other) => panic!("no other client was there: {other:?}"),
            Err(e) => assert!(e.code().is_transient(), "{e}"),
        }
        got.is_some()
    });
    got.expect("acquired")
}

fn open(url: &str) -> RedisBackend {
    RedisBackend::open(url, &verbs::patient()).expect("a good URL")
}

/// The time of a call that must fail, and its error.
fn failing<T: std::fmt::Debug>(call: impl Fn() -> Result<T, LockError>) -> (Duration, LockError) {
    let mut error = None;
    let time = worst_of_three(|| {
        let watch = Stopwatch::start();
        error = Some(call().expect_err("no server can answer"));
        watch.stop()
    });
    (time, error.expect("it ran"))
}

/// The documentation's line, for a server without Sentinel or Cluster.
const MINIMAL: &[&str] = &[
    "resetchannels",
    "-@all",
    "+evalsha",
    "+eval",
    "+get",
    "+set",
    "+del",
    "+incr",
    "+time",
    "+scan",
];

fn user(server: &RedisServer, pattern: &str, more: &[&str]) {
    let mut command = vec![
        "ACL",
        "SETUSER",
        "bob",
        "reset",
        "on",
        ">s3cret",
        "resetkeys",
        pattern,
    ];
    command.extend_from_slice(MINIMAL);
    command.extend_from_slice(more);
    server.cli(&command);
}

fn tagged() -> ClientOptions {
    verbs::patient().key_prefix(PREFIX)
}
