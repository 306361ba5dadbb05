//! Tests docs/cli.md: every snippet is run as it stands, with the paths of a machine replaced by those of the test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use nix::sys::signal::Signal;
use syncguard::{Client, LockOptions};

use crate::support::common::redis::RedisServer;
use crate::support::{code, end, err, eventually, out, signal};

const PAGE: &str = include_str!("../../../docs/cli.md");

/// The blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let mark = format!("```{language}\n");
    let block = |rest: &str| rest.split("```").next().unwrap_or_default().to_owned();
    PAGE.split(&mark).skip(1).map(block).collect()
}

/// A machine with the programs and files that the page names.
struct Machine {
    server: RedisServer,
    dir: tempfile::TempDir,
}

impl Machine {
    fn start() -> Self {
        let machine = Self {
            server: RedisServer::start(&[]),
            dir: tempfile::tempdir().expect("a directory"),
        };
        let dir = machine.dir.path();
        fs::create_dir(dir.join("bin")).expect("a directory");
        for (name, text) in [
            ("backup.sh", "echo backed up"),
            ("deploy.sh", "echo deployed with fence $SYNCGUARD_FENCE"),
            ("bin/backup", "echo backed up"),
            ("bin/worker", "echo working >> worked; exec sleep 600"),
        ] {
            write_program(&dir.join(name), text);
        }
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_syncguard"), dir.join("bin/syncguard"))
            .expect("a link");
        fs::write(dir.join("url"), machine.server.url() + "\n").expect("a file");
        machine
    }

    fn shell(&self, line: &str) -> Command {
        let dir = self.dir.path();
        let line = line
            .replace(
                "/usr/local/bin/",
                &format!("{}/", dir.join("bin").display()),
            )
            .replace("/etc/syncguard/url", &dir.join("url").display().to_string());
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command
            .args(["-c", &line])
            .current_dir(dir)
            .env("PATH", format!("{}:{path}", dir.join("bin").display()))
            .env("SYNCGUARD_URL", self.server.url())
            .stdin(std::process::Stdio::null());
        command
    }

    #[track_caller]
    fn runs(&self, line: &str) -> Output {
        let ended = self.shell(line).output().expect("a shell");
        assert_eq!(code(&ended), 0, "{line}: {}", err(&ended));
        ended
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode");
}

#[test]
fn every_line_for_a_shell_works() {
    let machine = Machine::start();
    let client = Client::open(&machine.server.url()).expect("a client");
    let options = LockOptions::new().holder("deployer");
    let mut held = None;
    let mut seen = 0;
    for line in blocks("sh").iter().flat_map(|block| block.lines()) {
        // The part about looking at a lock needs one, with the fence that the page names.
        if line == "syncguard ls" {
            while held
                .as_ref()
                .is_none_or(|g: &syncguard::Guard| g.fence().get() < 7)
            {
                drop(held.take());
                held = Some(
                    client
                        .lock_with("deploy:production", &options)
                        .expect("a lock"),
                );
            }
        }
        let said = out(&machine.runs(line));
        seen += 1;
        let expected = match line {
            "syncguard setup" => continue,
            "syncguard check" => "latency",
            "syncguard fence deploy:production" => "000000000000007",
            line if line.contains("backup") => "backed up",
            line if line.contains("--wait 30m") => "deploying with fence 000000000000001",
            _ => "deployer",
        };
        assert!(said.contains(expected), "{line}: {said}");
    }
    assert_eq!(seen, 9, "lines of the page");
}

/// Cron mails whatever a command writes.
#[test]
fn a_skipped_run_of_cron_is_no_error_and_no_mail() {
    let machine = Machine::start();
    let table = blocks("crontab").concat();
    let fields: Vec<&str> = table.trim().splitn(7, ' ').collect();
    let [minute, hour, "*", "*", "*", "root", line] = fields[..] else {
        panic!("five times, a user and a command: {fields:?}");
    };
    assert!(minute.parse::<u8>().is_ok_and(|m| m < 60) && hour.parse::<u8>().is_ok_and(|h| h < 24));
    // In the line of a crontab it would be a line end.
    assert!(!line.contains('%'));
    assert_eq!(out(&machine.runs(line)), "backed up\n");
    let client = Client::open(&machine.server.url()).expect("a client");
    let _held = client.lock("nightly").expect("a lock");
    let said = machine.runs(line);
    assert_eq!((out(&said), err(&said)), (String::new(), String::new()));
}

#[test]
fn the_job_of_ci_deploys() {
    let machine = Machine::start();
    let job = blocks("yaml").concat();
    assert!(job.contains("SYNCGUARD_URL: ${{ secrets.SYNCGUARD_URL }}"));
    let (_, script) = job.split_once("run: |\n").expect("a script");
    let said = out(&machine.runs(script.trim()));
    assert_eq!(said, "deployed with fence 000000000000001\n");
}

/// systemd's own check of the unit, where it is installed.
#[test]
fn the_unit_is_one_that_systemd_takes() {
    let machine = Machine::start();
    let bin = machine.dir.path().join("bin").display().to_string();
    let unit = blocks("ini").concat().replace("/usr/local/bin", &bin);
    assert!(unit.contains("SuccessExitStatus=143\n"));
    let path = machine.dir.path().join("worker.service");
    fs::write(&path, unit).expect("a file");
    let checked = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&path)
        .output();
    match checked {
        Ok(checked) => {
            let said = err(&checked);
            assert!(!said.contains("worker.service:"), "{said}");
            assert!(checked.status.success(), "{said}");
        }
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::NotFound, "{e}"),
    }
}

#[test]
fn the_service_runs_and_ends_when_it_is_told() {
    let machine = Machine::start();
    let unit = blocks("ini").concat();
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let line = format!("exec {}", line.expect("a command"));
    let service = machine.shell(&line).spawn().expect("it starts");
    let worked = machine.dir.path().join("worked");
    eventually("the worker's work", || worked.exists());
    signal(&service, Signal::SIGTERM);
    assert_eq!(end(service).0, Some(128 + 15));
}
