//! Tests what happens to a command when it, or the program that runs it, is stopped or killed.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use syncguard::Client;

use crate::support::common::redis::RedisServer;
use crate::support::{
    end, eventually, is_alive, is_stopped, pids_of, signal, syncguard, text_of, without_terminal,
};

/// A server, and a directory for what commands write.
struct Place {
    server: RedisServer,
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            server: RedisServer::start(&[]),
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    /// Runs `command` under the lock `k`, and answers the pids that it writes into the file `pids`.
    fn run(&self, ttl: &str, command: &[&str], count: usize) -> (Child, Vec<i32>) {
        let run = [&["run", "--ttl", ttl, "k", "--"], command].concat();
        let run = without_terminal(&self.server.url(), &run)
            .current_dir(self.dir.path())
            .spawn();
        (run.expect("it starts"), pids_of(&self.file("pids"), count))
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn is_locked(&self) -> bool {
        let client = Client::open(&self.server.url()).expect("a client");
        client.is_locked("k").expect("a look")
    }
}

/// Writes its pid and that of a child, and beats.
const FAMILY: &str = "echo $$ > pids; (echo $BASHPID >> pids; trap '' TERM; while :; do sleep 0.02; done) & \
     while :; do echo x >> beats; sleep 0.02; done";

fn beats(path: &Path) -> usize {
    fs::read(path).expect("beats").len()
}

#[test]
fn the_lock_of_a_command_that_a_tool_stops_is_held_on() {
    let place = Place::new();
    let (mut run, pids) = place.run("1s", &["bash", "-c", "echo $$ > pids; exec sleep 600"], 1);
    let worker = Pid::from_raw(pids[0]);
    let own = i32::try_from(run.id()).expect("a pid");
    for by in [Signal::SIGSTOP, Signal::SIGTSTP, Signal::SIGTTIN] {
        kill(worker, by).expect("a process");
        eventually("the command stopped", || is_stopped(pids[0]));
        // Longer than a lease that is not renewed.
        let until = Instant::now() + Duration::from_millis(2500);
        while Instant::now() < until {
            assert!(place.is_locked(), "{by}");
            assert!(!is_stopped(own) && is_stopped(pids[0]), "{by}");
            assert_eq!(run.try_wait().expect("a child"), None);
            std::thread::sleep(Duration::from_millis(20));
        }
        kill(worker, Signal::SIGCONT).expect("a process");
        eventually("the command goes on", || !is_stopped(pids[0]));
        assert!(is_alive(pids[0]));
    }
    // One that is stopped sees what it is told.
    kill(worker, Signal::SIGSTOP).expect("a process");
    signal(&run, Signal::SIGTERM);
    assert_eq!(end(run).0, Some(128 + 15));
}

#[test]
fn a_stopped_run_stops_its_command_and_both_go_on() {
    let place = Place::new();
    let (run, pids) = place.run("10m", &["bash", "-c", "echo $$ > pids; exec sleep 600"], 1);
    let (worker, own) = (pids[0], i32::try_from(run.id()).expect("a pid"));
    signal(&run, Signal::SIGTSTP);
    eventually("both stopped", || is_stopped(worker) && is_stopped(own));
    signal(&run, Signal::SIGCONT);
    eventually("both running", || !is_stopped(worker) && !is_stopped(own));
    signal(&run, Signal::SIGTERM);
    assert_eq!(end(run).0, Some(128 + 15));
}

#[test]
fn a_command_that_was_stopped_past_its_lease_never_goes_on() {
    let place = Place::new();
    let (run, pids) = place.run("2s", &["bash", "-c", FAMILY], 2);
    let own = i32::try_from(run.id()).expect("a pid");
    text_of(&place.file("beats"));
    signal(&run, Signal::SIGTSTP);
    eventually("both stopped", || is_stopped(pids[0]) && is_stopped(own));
    let before = beats(&place.file("beats"));
    // The second process kills it before the lease ends, although the first one is stopped.
    eventually("the end of the lease", || {
        let alive = pids.iter().any(|pid| is_alive(*pid));
        let locked = place.is_locked();
        assert!(locked || !alive, "the command outlives the lock");
        !locked
    });
    // What a person continues does not run without the lock either.
    let _ = killpg(Pid::from_raw(pids[0]), Signal::SIGCONT);
    signal(&run, Signal::SIGCONT);
    let (code, said) = end(run);
    assert_eq!(code, Some(79), "{said}");
    assert_eq!(beats(&place.file("beats")), before);
}

#[test]
fn a_run_that_is_stopped_by_force_loses_its_command_before_the_lock() {
    let place = Place::new();
    let (run, pids) = place.run("2s", &["bash", "-c", FAMILY], 2);
    signal(&run, Signal::SIGSTOP);
    eventually("the end of the lease", || {
        let alive = pids.iter().any(|pid| is_alive(*pid));
        let locked = place.is_locked();
        assert!(locked || !alive, "the command runs without the lock");
        !locked
    });
    signal(&run, Signal::SIGCONT);
    let (code, said) = end(run);
    assert_eq!(code, Some(79), "{said}");
    assert!(said.contains("run does not act"), "{said}");
}

#[test]
fn a_killed_run_takes_every_process_of_the_group_with_it() {
    for clear in [
        &["bash", "-c", FAMILY][..],
        // A command with another user's rights has no parent-death signal; nor has this one.
        &["setpriv", "--pdeathsig", "clear", "bash", "-c", FAMILY],
    ] {
        let place = Place::new();
        let (run, pids) = place.run("10m", clear, 2);
        signal(&run, Signal::SIGKILL);
        eventually("the end of all", || !pids.iter().any(|pid| is_alive(*pid)));
        assert!(place.is_locked(), "it is free at its ttl");
        assert_eq!(end(run).0, None);
    }
}

/// The second process of a run.
fn supervisor(run: &Child) -> i32 {
    let path = format!("/proc/{0}/task/{0}/children", run.id());
    let is_it = |pid: &&str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("__supervise")
    };
    let mut found = None;
    // A new one has the name of its parent for a moment.
    eventually("a supervisor", || {
        let children = fs::read_to_string(&path).expect("children");
        found = children
            .split_whitespace()
            .find(is_it)
            .map(|pid| pid.parse().expect("a pid"));
        found.is_some()
    });
    found.expect("a supervisor")
}

#[test]
fn a_killed_second_process_is_replaced() {
    let place = Place::new();
    let (run, pids) = place.run("10m", &["bash", "-c", FAMILY], 2);
    let before = supervisor(&run);
    kill(Pid::from_raw(before), Signal::SIGKILL).expect("a process");
    eventually("its end", || !is_alive(before));
    eventually("another one", || {
        let path = format!("/proc/{0}/task/{0}/children", run.id());
        let children = fs::read_to_string(path).expect("children");
        children.split_whitespace().count() == 2 && !children.contains(&before.to_string())
    });
    let after = supervisor(&run);
    // It knows the group once it has read the line.
    eventually("its wait", || {
        fs::read_to_string(format!("/proc/{after}/wchan")).is_ok_and(|w| w.contains("poll"))
    });
    signal(&run, Signal::SIGKILL);
    eventually("the end of all", || !pids.iter().any(|pid| is_alive(*pid)));
    assert_eq!(end(run).0, None);
}

#[test]
fn what_a_shell_ignores_is_ignored() {
    let place = Place::new();
    let script = "trap '' TERM INT QUIT HUP TSTP; exec \"$0\" run --ttl 10m k -- \
                  bash -c 'echo $$ > pids; trap \"echo no > caught\" USR1; exec sleep 600'";
    let program = env!("CARGO_BIN_EXE_syncguard");
    let run = std::process::Command::new("setsid")
        .args(["sh", "-c", script, program])
        .env("SYNCGUARD_URL", place.server.url())
        .current_dir(place.dir.path())
        .spawn();
    let run = run.expect("it starts");
    let worker = pids_of(&place.file("pids"), 1)[0];
    for sent in ["TERM", "INT", "QUIT", "HUP", "TSTP"] {
        let sent = format!("SIG{sent}").parse().expect("a signal");
        signal(&run, sent);
        kill(Pid::from_raw(worker), sent).expect("a process");
    }
    // It answers to a signal that comes later, so it had those before.
    let mask = |pid: u32, name: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a status");
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        u64::from_str_radix(line.expect("a mask").trim(), 16).expect("a mask")
    };
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGTSTP] {
        let bit = 1 << (signal as i32 - 1);
        assert_eq!(mask(run.id(), "SigCgt:\t") & bit, 0, "{signal}");
        assert_ne!(mask(run.id(), "SigIgn:\t") & bit, 0, "{signal}");
    }
    kill(Pid::from_raw(worker), Signal::SIGUSR2).expect("a process");
    assert_eq!(end(run).0, Some(128 + Signal::SIGUSR2 as i32));
}

#[test]
fn a_program_that_was_replaced_still_runs_its_command() {
    let place = Place::new();
    let program = place.file("syncguard");
    fs::copy(env!("CARGO_BIN_EXE_syncguard"), &program).expect("a copy");
    let client = Client::open(&place.server.url()).expect("a client");
    let held = client.lock("k").expect("a lock");
    let run = std::process::Command::new(&program)
        .args(["run", "-w", "10m", "k", "--", "sh", "-c", "exit 6"])
        .env("SYNCGUARD_URL", place.server.url())
        .spawn();
    let run = run.expect("it starts");
    fs::remove_file(&program).expect("a file");
    held.release().expect("an answer").expect_released();
    assert_eq!(end(run).0, Some(6));
}

#[test]
fn forever_tells_the_command_s_code_from_a_command_that_does_not_exist() {
    let place = Place::new();
    let script = "echo x >> beats; exit 127";
    let run = ["run", "--forever", "k", "--", "sh", "-c", script];
    let run = syncguard(&place.server.url(), &run)
        .current_dir(place.dir.path())
        .spawn();
    let run = run.expect("it starts");
    let path = place.file("beats");
    eventually("two runs", || fs::read(&path).is_ok_and(|b| b.len() >= 4));
    signal(&run, Signal::SIGTERM);
    end(run);
    let none = ["run", "--forever", "k", "--", "/no/such/command"];
    let run = syncguard(&place.server.url(), &none).spawn();
    assert_eq!(end(run.expect("it starts")).0, Some(127));
}
