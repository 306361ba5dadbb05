//! Tests `run`: mutual exclusion, exit codes, signals, waits, and bad input.

use std::fs;
use std::process::Output;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use syncguard::Client;

use crate::support::common::postgres::Server;
use crate::support::common::redis::RedisServer;
use crate::support::{
    code, end, err, eventually, is_alive, out, output, signal, syncguard, text_of,
};

#[test]
fn twenty_shells_exclude_each_other() {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    let count = dir.path().join("count");
    fs::write(&count, "0\n").expect("a file");
    // Reads, waits and writes: two at a time would lose a count. The directory can be made by one at a time.
    let script = format!(
        "mkdir {inside} || exit 9; n=$(cat {count}); sleep 0.02; echo $((n+1)) > {count}; echo \"$SYNCGUARD_FENCE\" >> {fences}; rmdir {inside}",
        inside = dir.path().join("inside").display(),
        count = count.display(),
        fences = dir.path().join("fences").display()
    );
    let start = |_| {
        let run = ["run", "-w", "10m", "counter", "--", "sh", "-c", &script];
        syncguard(&server.url(), &run).spawn().expect("it starts")
    };
    let shells: Vec<_> = (0..20).map(start).collect();
    for shell in shells {
        let ended = shell.wait_with_output().expect("it ends");
        assert_eq!(code(&ended), 0, "{}", err(&ended));
    }
    assert_eq!(text_of(&count), "20");
    let fences = fs::read_to_string(dir.path().join("fences")).expect("fences");
    let expected: String = (1..=20).map(|n| format!("{n:015}\n")).collect();
    assert_eq!(fences, expected, "fences grow in the order of the grants");
}

#[test]
fn the_exit_code_is_the_command_s() {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("plain");
    fs::write(&file, "not a program").expect("a file");
    let plain = file.display().to_string();
    for (command, expected) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 3"], 3),
        (&["sh", "-c", "kill -9 $$"], 128 + 9),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["/no/such/command"], 127),
        (&["no-such-command-anywhere"], 127),
        (&[plain.as_str()], 126),
    ] {
        let ended = output(&server.url(), &[&["run", "k", "--"], command].concat());
        assert_eq!(code(&ended), expected, "{command:?}: {}", err(&ended));
        let client = Client::open(&server.url()).expect("a client");
        assert!(!client.is_locked("k").expect("a look"), "{command:?}");
    }
    let env = output(&server.url(), &["run", "a b", "--", "env"]);
    let env = out(&env);
    assert!(env.contains("SYNCGUARD_KEY=a b\n"), "{env}");
    assert!(env.contains("SYNCGUARD_FENCE=000000000000001\n"), "{env}");
    assert!(!env.contains("SYNCGUARD_URL"), "{env}");
}

#[test]
fn a_held_lock_is_a_code_of_its_own() {
    let server = RedisServer::start(&[]);
    let client = Client::open(&server.url()).expect("a client");
    let options = syncguard::LockOptions::new().holder("the other one");
    let guard = client.lock_with("k", &options).expect("a lock");
    for (flags, expected) in [
        (&["-n"][..], 75),
        (&["--try", "-E", "7"], 7),
        (&["-w", "100ms"], 75),
        (&["--wait", "0", "--conflict-exit-code", "0"], 0),
    ] {
        let run = [&["run"], flags, &["k", "--", "echo", "ran"]].concat();
        let ended = output(&server.url(), &run);
        assert_eq!(code(&ended), expected, "{flags:?}: {}", err(&ended));
        assert_eq!(out(&ended), "");
    }
    let quiet = output(&server.url(), &["run", "-q", "-n", "k", "--", "true"]);
    assert_eq!((code(&quiet), err(&quiet)), (75, String::new()));
    let waited = output(&server.url(), &["run", "-w", "100ms", "k", "--", "true"]);
    assert!(
        err(&waited).contains("held by the other one"),
        "{}",
        err(&waited)
    );
    // A waiter is told of the release.
    let begun = Instant::now();
    let waiter = syncguard(&server.url(), &["run", "-w", "10m", "k", "--", "true"]).spawn();
    guard.release().expect("an answer").expect_released();
    assert_eq!(end(waiter.expect("it starts")).0, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn signals_are_passed_on_and_end_a_wait() {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    for (sent, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGHUP, "HUP"),
    ] {
        let (ready, caught) = (
            dir.path().join(format!("r{name}")),
            dir.path().join(format!("c{name}")),
        );
        let script = format!(
            "trap 'echo got > {}; exit 5' {name}; echo ready > {}; while :; do sleep 0.05; done",
            caught.display(),
            ready.display()
        );
        let run = syncguard(&server.url(), &["run", "k", "--", "sh", "-c", &script]).spawn();
        let run = run.expect("it starts");
        text_of(&ready);
        // One that waits for the same lock ends by the signal, and its command never runs.
        let waiter = syncguard(
            &server.url(),
            &["run", "-w", "10m", "k", "--", "echo", "ran"],
        )
        .spawn();
        let waiter = waiter.expect("it starts");
        eventually("its handlers", || {
            let status = fs::read_to_string(format!("/proc/{}/status", waiter.id()));
            let caught = status.unwrap_or_default();
            let mask = caught.lines().find_map(|l| l.strip_prefix("SigCgt:"));
            let mask = mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok());
            mask.is_some_and(|m| m >> (Signal::SIGCHLD as i32 - 1) & 1 == 1)
        });
        signal(&waiter, sent);
        assert_eq!(end(waiter).0, Some(128 + sent as i32), "{name}");
        signal(&run, sent);
        assert_eq!(end(run).0, Some(5), "{name}");
        assert_eq!(text_of(&caught), "got");
    }
}

#[test]
fn the_lock_is_held_until_the_group_is_empty() {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir().expect("a directory");
    let (pids, go) = (dir.path().join("pid"), dir.path().join("go"));
    let script = format!(
        "(while [ ! -e {go} ]; do sleep 0.02; done) >/dev/null 2>&1 & echo $! > {pids}; exit 4",
        go = go.display(),
        pids = pids.display()
    );
    let run = syncguard(&server.url(), &["run", "k", "--", "sh", "-c", &script]).spawn();
    let mut run = run.expect("it starts");
    let left: i32 = text_of(&pids).parse().expect("a pid");
    let client = Client::open(&server.url()).expect("a client");
    for _ in 0..20 {
        assert!(is_alive(left) && client.is_locked("k").expect("a look"));
        assert_eq!(run.try_wait().expect("a child"), None);
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::write(&go, "").expect("a file");
    assert_eq!(end(run).0, Some(4));
    assert!(!client.is_locked("k").expect("a look"));
}

/// Runs it without a store in its environment.
fn no_url(args: &[&str]) -> Output {
    let mut command = syncguard("", args);
    let ended = command.env_remove("SYNCGUARD_URL").output();
    ended.expect("it runs")
}

#[test]
fn bad_input_is_a_usage_error() {
    let ended = no_url(&["run", "k", "--", "true"]);
    assert_eq!(code(&ended), 64);
    assert!(err(&ended).contains("--url-file"), "{}", err(&ended));
    for args in [
        &["--url", "nonsense://x", "ls"][..],
        &["--url", "sqlite:/x/y", "run", "", "--", "true"],
        &["--url", "sqlite:/x/y", "run", "k", "true"],
        &["--url", "sqlite:/x/y", "run", "k"],
        &[
            "--url",
            "sqlite:/x/y",
            "run",
            "--grace",
            "16s",
            "k",
            "--",
            "true",
        ],
        &[
            "--url",
            "sqlite:/x/y",
            "run",
            "--ttl",
            "0",
            "k",
            "--",
            "true",
        ],
        &[
            "--url",
            "sqlite:/x/y",
            "run",
            "--wait",
            "5 parsecs",
            "k",
            "--",
            "true",
        ],
        &[
            "--url",
            "sqlite:/x/y",
            "run",
            "--holder",
            "a\nb",
            "k",
            "--",
            "true",
        ],
        &["--url-file", "/no/such/file", "ls"],
        &["--fences", "dice", "ls"],
        &[
            "--url",
            "sqlite:/x/y",
            "run",
            "--forever",
            "--wait",
            "5s",
            "k",
            "--",
            "true",
        ],
        &["no-such-command"],
    ] {
        let ended = no_url(args);
        assert_eq!(code(&ended), 64, "{args:?}: {}", err(&ended));
        assert_eq!(out(&ended), "", "{args:?}");
    }
}

#[test]
fn a_password_is_never_repeated() {
    let secret = "redis://bob:hunter2@127.0.0.1:1/";
    let ended = no_url(&["--url", secret, "--json", "check"]);
    assert_eq!(code(&ended), 69, "{}", err(&ended));
    assert!(
        err(&ended).contains("can see the password"),
        "{}",
        err(&ended)
    );
    let by_variable = output(secret, &["check"]);
    assert_eq!(err(&by_variable), "");
    let typed = no_url(&[secret]);
    assert_eq!(code(&typed), 64);
    assert!(err(&typed).contains("--url"), "{}", err(&typed));
    let value = no_url(&["run", "--ttl", secret, "k", "--", "true"]);
    assert_eq!(code(&value), 64);
    for ended in [
        ended,
        by_variable,
        typed,
        value,
        output(secret, &["--help"]),
    ] {
        assert!(!(out(&ended) + &err(&ended)).contains("hunter2"));
    }
}

/// The same on the other stores: the code of the command, the fence, a lock that is held, and one that is taken away.
fn runs_on(url: &str) {
    let ran = output(
        url,
        &[
            "run",
            "k",
            "--",
            "sh",
            "-c",
            "echo $SYNCGUARD_FENCE; exit 3",
        ],
    );
    assert_eq!(code(&ran), 3, "{}", err(&ran));
    assert_eq!(out(&ran), "000000000000001\n");
    let dir = tempfile::tempdir().expect("a directory");
    let pids = dir.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 600", pids.display());
    let run = ["run", "--ttl", "3s", "k", "--", "sh", "-c", &script];
    let run = syncguard(url, &run).spawn().expect("it starts");
    let worker: i32 = text_of(&pids).parse().expect("a pid");
    assert_eq!(code(&output(url, &["run", "-n", "k", "--", "true"])), 75);
    let waiter = syncguard(url, &["run", "-w", "10m", "k", "--", "sh", "-c", "exit 4"]).spawn();
    let waiter = waiter.expect("it starts");
    assert_eq!(code(&output(url, &["release", "k", "--force"])), 0);
    assert_eq!(end(run).0, Some(79));
    assert!(!is_alive(worker));
    assert_eq!(end(waiter).0, Some(4));
}

#[test]
fn on_postgres() {
    let server = Server::start(&[]);
    assert_eq!(code(&output(&server.url(), &["setup"])), 0);
    runs_on(&server.url());
}

#[test]
fn on_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    runs_on(&format!("sqlite:{}", dir.path().join("locks.db").display()));
}
