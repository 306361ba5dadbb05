//! Tests that the command of a holder that loses its lock is gone before another holder can have it.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use syncguard::Client;

use crate::support::common::proxy::{Address, Mode, Proxy};
use crate::support::common::redis::RedisServer;
use crate::support::{
    code, end, eventually, is_alive, output, pids_of, signal, syncguard, text_of,
};

/// A command that writes its pid, and ignores SIGTERM if it is told so.
fn worker(pids: &Path, stubborn: bool) -> String {
    let trap = if stubborn { "trap '' TERM; " } else { "" };
    format!(
        "{trap}echo $$ > {}; while :; do sleep 0.05; done",
        pids.display()
    )
}

/// While `fault` lasts, the command must be gone before the lock is free in the store.
fn gone_before_the_lease_ends(fault: impl FnOnce(&RedisServer, &Proxy), stubborn: bool) {
    let server = RedisServer::start_tcp(&[]);
    let proxy = Proxy::tcp(Address::port(server.port()));
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let dir = tempfile::tempdir().expect("a directory");
    let pids = dir.path().join("pid");
    let script = worker(&pids, stubborn);
    let run = [
        "run", "--ttl", "4s", "--grace", "1500ms", "k", "--", "sh", "-c", &script,
    ];
    let run = syncguard(&url, &run).spawn().expect("it starts");
    let worker: i32 = text_of(&pids).parse().expect("a pid");
    let client = Client::open(&server.url()).expect("a client");
    assert!(client.is_locked("k").expect("a look"));
    fault(&server, &proxy);
    eventually("the end of the lease", || {
        let alive = is_alive(worker);
        // In this order: the lock was held when the command was seen.
        let locked = client.is_locked("k").expect("a look");
        assert!(locked || !alive, "the command runs without the lock");
        !locked
    });
    assert!(!is_alive(worker));
    let (code, said) = end(run);
    assert_eq!(code, Some(79), "{said}");
    assert!(said.contains("lost"), "{said}");
}

#[test]
fn when_the_network_is_cut() {
    gone_before_the_lease_ends(|_, proxy| proxy.set(Mode::Swallow), false);
}

#[test]
fn when_it_ignores_sigterm() {
    gone_before_the_lease_ends(|_, proxy| proxy.set(Mode::Swallow), true);
}

#[test]
fn when_the_server_refuses_connections() {
    gone_before_the_lease_ends(
        |_, proxy| {
            proxy.set(Mode::Close);
            proxy.close_all();
        },
        false,
    );
}

#[test]
fn when_the_server_is_stopped() {
    let server = RedisServer::start_tcp(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    let (pids, beats) = (dir.path().join("pids"), dir.path().join("beats"));
    // Two processes that ignore SIGTERM and beat.
    let script = format!(
        "trap '' TERM; beat() {{ echo $BASHPID >> {0}; while :; do echo x >> {1}; sleep 0.02; done; }}; beat & beat",
        pids.display(),
        beats.display()
    );
    let ttl = Duration::from_secs(3);
    let run = [
        "run", "--ttl", "3s", "--grace", "1s", "k", "--", "bash", "-c", &script,
    ];
    let run = syncguard(&server.tcp_url(), &run)
        .spawn()
        .expect("it starts");
    let workers = pids_of(&pids, 2);
    let paused = server.pause();
    // No renewal is answered from now on, so the lease ends no later than this. The server's clock goes on while it is stopped.
    let lease_end = SystemTime::now() + ttl;
    let (code, said) = end(run);
    assert_eq!(code, Some(79), "{said}");
    for worker in workers {
        assert!(!is_alive(worker));
    }
    let last = std::fs::metadata(&beats).and_then(|beats| beats.modified());
    let last = last.expect("the last beat");
    assert!(
        last < lease_end,
        "{:?} too late",
        last.duration_since(lease_end)
    );
    drop(paused);
}

#[test]
fn when_a_person_takes_the_lock_away() {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    let pids = dir.path().join("pid");
    let script = worker(&pids, true);
    let run = ["run", "--ttl", "3s", "k", "--", "sh", "-c", &script];
    let run = syncguard(&server.url(), &run).spawn().expect("it starts");
    let worker: i32 = text_of(&pids).parse().expect("a pid");
    let released = output(&server.url(), &["release", "k", "--force"]);
    assert_eq!(code(&released), 0);
    let (code, said) = end(run);
    assert_eq!(code, Some(79), "{said}");
    assert!(said.contains("the store no longer has it"), "{said}");
    assert!(!is_alive(worker));
}

#[test]
fn max_hold_ends_a_command_that_hangs() {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    for trap in ["", "trap '' TERM;"] {
        let pids = dir.path().join(format!("pid{}", trap.len()));
        let script = format!(
            "{trap} echo $$ > {}; while :; do sleep 0.05; done",
            pids.display()
        );
        // The lease is no help: it is longer than the test may take.
        let run = [
            "run",
            "--ttl",
            "10m",
            "--grace",
            "3s",
            "--max-hold",
            "1500ms",
            "k",
            "--",
            "bash",
            "-c",
            &script,
        ];
        let begun = Instant::now();
        let run = syncguard(&server.url(), &run).spawn().expect("it starts");
        let (code, said) = end(run);
        let took = begun.elapsed();
        assert_eq!(code, Some(79), "{said}");
        assert!(said.contains("held for its longest time"), "{said}");
        assert!(
            took >= Duration::from_millis(1500) && took < Duration::from_secs(60),
            "{took:?}"
        );
        // One that ends by SIGTERM is not killed.
        let by_term = said.contains("ended with 143");
        assert_eq!(by_term, trap.is_empty(), "{said}");
        let client = Client::open(&server.url()).expect("a client");
        assert!(!client.is_locked("k").expect("a look"), "it was released");
    }
}

#[test]
fn forever_runs_again_after_a_loss_and_after_the_end() {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    let runs = dir.path().join("runs");
    let script = format!("echo $SYNCGUARD_FENCE >> {}; exit 1", runs.display());
    let run = ["run", "--forever", "k", "--", "sh", "-c", &script];
    let run = syncguard(&server.url(), &run).spawn().expect("it starts");
    let count = || {
        std::fs::read_to_string(&runs)
            .unwrap_or_default()
            .lines()
            .count()
    };
    eventually("three runs", || count() >= 3);
    signal(&run, Signal::SIGTERM);
    let (code, _) = end(run);
    assert!(code == Some(143) || code == Some(1), "{code:?}");
    let client = Client::open(&server.url()).expect("a client");
    assert!(!client.is_locked("k").expect("a look"));
}

#[test]
fn forever_campaigns_again_after_a_loss() {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    let pids = dir.path().join("pids");
    let script = format!(
        "echo $$ >> {}; trap '' TERM; while :; do sleep 0.05; done",
        pids.display()
    );
    let run = [
        "run",
        "--forever",
        "--ttl",
        "3s",
        "k",
        "--",
        "bash",
        "-c",
        &script,
    ];
    let run = syncguard(&server.url(), &run).spawn().expect("it starts");
    let first = pids_of(&pids, 1)[0];
    let taken = output(&server.url(), &["release", "k", "--force", "--fence", "1"]);
    assert_eq!(code(&taken), 0);
    let second = pids_of(&pids, 2)[1];
    // It runs again under a newer fence, and the first one was gone by then.
    assert!(!is_alive(first) && is_alive(second));
    let client = Client::open(&server.url()).expect("a client");
    let held = client.get_by_key("k").expect("a look").expect("a lock");
    assert_eq!(held.fence.get(), 2);
    signal(&run, Signal::SIGKILL);
    eventually("the end of the command", || !is_alive(second));
    let (_, said) = end(run);
    assert!(said.contains("the store no longer has it"), "{said}");
    assert!(said.contains("waiting for the lock again"), "{said}");
}
