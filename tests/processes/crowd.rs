//! Tests that a hundred waiters for one lock cost a few threads, one connection and few requests. Each test has a process of its
//! own, because it counts the threads of that process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crate::support::postgres::Server;
use crate::support::process;
use crate::support::redis::RedisServer;
use crate::support::{WAIT_LIMIT, ended, eventually, threads_named};
use syncguard::{Call, Client, ClientOptions, Key, LockEventType, LockOptions};

const WAITERS: usize = 100;

/// Has a crowd wait for a lock that `there` holds for `held`. Answers how many requests per second `requests` counted meanwhile.
fn crowd(
    here: &Client,
    there: &Client,
    held: Duration,
    requests: impl Fn() -> i64,
    connections: impl Fn() -> i64,
) -> f64 {
    let long = LockOptions::new().ttl(WAIT_LIMIT * 20);
    let guard = there.lock_with("k", &long).expect("a lock");
    // The connection that the first waiter will use.
    here.is_locked_with(Key::new("k").expect("a key"), &Call::new())
        .expect("an answer");
    let (threads, connected) = (threads_named(""), connections());
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let here = here.clone();
            std::thread::spawn(move || {
                here.lock_with("k", &LockOptions::new().acquire_timeout(WAIT_LIMIT * 20))
                    .map(drop)
            })
        })
        .collect();
    eventually("a line", || {
        here.is_waited_for("k").expect("a legal key") && threads_named("") >= threads + WAITERS
    });
    let (before, begun) = (requests(), Instant::now());
    std::thread::sleep(held);
    let rate = (requests() - before) as f64 / begun.elapsed().as_secs_f64();
    let extra = threads_named("").saturating_sub(threads + WAITERS);
    assert!(extra <= 3, "{extra} more threads");
    let more = connections() - connected;
    assert!(more <= 1, "{more} more connections");
    drop(guard);
    for waiter in waiters {
        ended(waiter).expect("the lock in the end");
    }
    rate
}

fn redis(_: &Path) {
    let server = RedisServer::start(&[]);
    let open = || Client::open(&server.url()).expect("a legal URL");
    // Requests: what a script does inside is not the waiters' doing.
    let requests = || -> i64 {
        let info = server.cli(&["INFO", "commandstats"]).text();
        let ours = ["cmdstat_eval", "cmdstat_subscribe", "cmdstat_ping"];
        info.lines()
            .filter(|l| ours.iter().any(|c| l.starts_with(c)))
            .filter_map(|l| {
                let calls = l.split("calls=").nth(1)?;
                calls.split(',').next()?.parse::<i64>().ok()
            })
            .sum()
    };
    let connections = || {
        let all = server.cli(&["CLIENT", "LIST"]).text();
        all.lines().filter(|l| l.contains("name=syncguard")).count() as i64
    };
    let rate = crowd(
        &open(),
        &open(),
        Duration::from_secs(10),
        requests,
        connections,
    );
    assert!(rate <= 20.0, "Redis: {rate} commands per second");
}

fn postgres(_: &Path) {
    let server = Server::start(&[]);
    let options = ClientOptions::new().schema("crowd");
    let open = || Client::open_with(&server.url(), &options).expect("a legal URL");
    open().setup_schema().expect("a schema");
    // The count itself takes a few transactions, and so do the server's own workers.
    let count = |sql: &str| -> i64 { server.sql(sql).trim().parse().expect("a count") };
    let requests = || count("SELECT sum(xact_commit + xact_rollback)::int8 FROM pg_stat_database");
    let connections = || {
        let all =
            count("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'syncguard'");
        assert!(all >= 2, "each client has a session");
        all
    };
    let (here, there) = (open(), open());
    let rate = crowd(
        &here,
        &there,
        Duration::from_secs(10),
        requests,
        connections,
    );
    assert!(rate <= 20.0, "Postgres: {rate} transactions per second");
}

fn sqlite(folder: &Path) {
    let file = folder.join("locks.db");
    let url = format!("sqlite:{}", file.display());
    // No server counts requests to a file: the client reports each of its requests.
    let told = Arc::new(AtomicI64::new(0));
    let counter = Arc::clone(&told);
    let counting = ClientOptions::new().on_event(move |event| {
        if event.kind != LockEventType::Wait {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let here = Client::open_with(&url, &counting).expect("a legal URL");
    let there = Client::open(&url).expect("a legal URL");
    let connections = || {
        let open = std::fs::read_dir("/proc/self/fd").expect("our descriptors");
        open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
            .filter(|path| *path == file)
            .count() as i64
    };
    let requests = || told.load(Ordering::SeqCst);
    let rate = crowd(&here, &there, Duration::from_secs(5), requests, connections);
    assert!(requests() > WAITERS as i64, "each of them was told of");
    assert!(rate <= 20.0, "SQLite: {rate} requests per second");
}

pub const STAGES: &[process::Entry] = &[
    ("crowd on Redis", redis),
    ("crowd on Postgres", postgres),
    ("crowd on SQLite", sqlite),
];

#[test]
fn a_hundred_waiters_are_hardly_noticed_on_redis() {
    process::run_alone("crowd on Redis");
}

#[test]
fn a_hundred_waiters_are_hardly_noticed_on_postgres() {
    process::run_alone("crowd on Postgres");
}

#[test]
fn a_hundred_waiters_are_hardly_noticed_on_sqlite() {
    process::run_alone("crowd on SQLite");
}
