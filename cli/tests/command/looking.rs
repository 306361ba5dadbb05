//! Tests `ls`, `show`, `watch`, `release`, `fence`, `check`, `setup`, completions and man pages.

use std::io::{BufRead, BufReader};

use serde_json::Value;
use syncguard::{Client, LockOptions};

use crate::support::common::postgres::Server;
use crate::support::common::proxy::{Address, Mode, Proxy};
use crate::support::common::redis::RedisServer;
use crate::support::{code, err, eventually, out, output, syncguard};

fn json(text: &str) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).expect("JSON");
    text.lines().map(parse).collect()
}

fn locks_are_shown_and_mended(url: &str) {
    let client = Client::open(url).expect("a client");
    let options = LockOptions::new().holder("build-7");
    let guard = client.lock_with("job:1", &options).expect("a lock");
    let _other = client.lock_with("other", &LockOptions::new().holder(""));

    let listed = output(url, &["ls"]);
    assert_eq!(code(&listed), 0, "{}", err(&listed));
    let table = out(&listed);
    assert!(table.starts_with("KEY    HOLDER   FENCE  AGE"), "{table}");
    assert!(table.contains("\njob:1  build-7  1 "), "{table}");
    assert!(table.contains("\nother  -        1 "), "{table}");
    let found = json(&out(&output(url, &["--json", "ls", "job:"])));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["key"], "job:1");
    assert_eq!(found[0]["holder"], "build-7");

    let shown = out(&output(url, &["show", "job:1"]));
    assert!(shown.contains("holder  build-7\n"), "{shown}");
    assert_eq!(code(&output(url, &["show", "none"])), 1);
    assert_eq!(out(&output(url, &["fence", "job:1"])), "000000000000001\n");
    assert_eq!(code(&output(url, &["fence", "none"])), 1);

    assert_eq!(
        code(&output(url, &["release", "job:1"])),
        64,
        "without --force"
    );
    let wrong = output(url, &["release", "job:1", "--force", "--fence", "2"]);
    assert_eq!(code(&wrong), 1, "{}", err(&wrong));
    assert!(client.is_locked("job:1").expect("a look"));
    let released = output(url, &["release", "job:1", "--force", "--fence", "1"]);
    assert_eq!(code(&released), 0, "{}", err(&released));
    assert!(
        out(&released).contains("build-7 (fence 000000000000001"),
        "{}",
        out(&released)
    );
    assert!(!client.is_locked("job:1").expect("a look"));
    assert!(!guard.release().expect("an answer").is_released());

    let checked = output(url, &["--json", "check"]);
    assert_eq!(code(&checked), 0, "{}", err(&checked));
    let report = json(&out(&checked));
    for subject in [
        "reachable",
        "version",
        "allowed",
        "set-up",
        "evicting",
        "clock",
        "latency",
    ] {
        let line = report.iter().find(|line| line["subject"] == subject);
        let level = &line.expect(subject)["level"];
        // A busy machine can be slow.
        let slow = subject == "latency" && level == "warning";
        assert!(level == "ok" || slow, "{report:?}");
    }
}

#[test]
fn on_redis() {
    let server = RedisServer::start(&[]);
    locks_are_shown_and_mended(&server.url());
    // Nothing is saved there: that is a warning, and with --strict it ends with 1.
    let checked = output(&server.url(), &["check", "--strict"]);
    assert_eq!(code(&checked), 1, "{}", out(&checked));
    assert!(
        out(&checked).contains("warning  durable"),
        "{}",
        out(&checked)
    );
}

/// The lines of `check` that are warnings, each with what to do about it.
fn warnings(url: &str) -> Vec<(String, String)> {
    let checked = output(url, &["--json", "check"]);
    let mut found = Vec::new();
    for line in json(&out(&checked)) {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        if text("level") == "warning" && text("subject") != "latency" {
            assert!(!text("advice").is_empty(), "{line}");
            found.push((text("subject"), text("text")));
        }
    }
    found
}

#[test]
fn each_warning_of_a_check_has_a_subject_and_an_advice() {
    let server = RedisServer::start(&[]);
    let subjects = |url: &str| -> Vec<String> {
        let subjects = warnings(url).into_iter().map(|(subject, _)| subject);
        subjects.collect()
    };
    assert_eq!(subjects(&server.url()), ["durable"]);
    server.cli(&["CONFIG", "SET", "appendonly", "yes"]);
    server.cli(&["CONFIG", "SET", "appendfsync", "always"]);
    assert_eq!(subjects(&server.url()), [""; 0]);
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert_eq!(subjects(&server.url()), ["evicting"]);
    // A user that may neither see the settings nor list.
    let rights = "reset on >pw ~syncguard:* -@all +evalsha +eval +get +set +del +incr +time";
    let mut command = vec!["ACL", "SETUSER", "bob"];
    command.extend(rights.split(' '));
    server.cli(&command);
    let url = format!("{}?user=bob&pass=pw", server.url());
    assert_eq!(subjects(&url), ["durable", "evicting", "allowed"]);
    let listing = warnings(&url).pop().expect("a warning").1;
    assert!(listing.contains("cannot be listed"), "{listing}");
}

#[test]
fn on_postgres() {
    let server = Server::start(&[]);
    let checked = output(&server.url(), &["check"]);
    assert_eq!(code(&checked), 78, "{}", out(&checked));
    assert!(
        out(&checked).contains("error    set-up"),
        "{}",
        out(&checked)
    );
    assert!(
        out(&checked).contains("syncguard setup"),
        "{}",
        out(&checked)
    );
    let set_up = output(&server.url(), &["setup"]);
    assert_eq!(code(&set_up), 0, "{}", err(&set_up));
    locks_are_shown_and_mended(&server.url());
    // The printed SQL makes the same.
    let sql = out(&output("", &["--schema", "app", "setup", "--print-sql"]));
    server.sql(&sql);
    let checked = output(&server.url(), &["--schema", "app", "check"]);
    assert_eq!(code(&checked), 0, "{}", out(&checked));
}

#[test]
fn on_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    locks_are_shown_and_mended(&format!("sqlite:{}", dir.path().join("locks.db").display()));
}

#[test]
fn a_store_that_cannot_be_reached_or_refuses_is_told_apart() {
    let server = RedisServer::start(&["--requirepass", "secret"]);
    let refused = output(&server.url(), &["check"]);
    assert_eq!(code(&refused), 77, "{}", out(&refused));
    assert!(
        out(&refused).contains("error    allowed"),
        "{}",
        out(&refused)
    );
    let gone = output("redis://127.0.0.1:1/", &["ls"]);
    assert_eq!(code(&gone), 69, "{}", err(&gone));
}

#[test]
fn watch_writes_a_line_per_change_and_ends_with_its_reader() {
    let server = RedisServer::start(&[]);
    let client = Client::open(&server.url()).expect("a client");
    let watch = syncguard(&server.url(), &["watch", "--every", "50ms"]).spawn();
    let mut watch = watch.expect("it starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("a line").expect("UTF-8");
    let options = LockOptions::new().holder("h");
    for fence in ["000000000000001", "000000000000002"] {
        let guard = client.lock_with("k", &options).expect("a lock");
        assert_eq!(line(), format!("held k h {fence}"));
        guard.release().expect("an answer").expect_released();
        assert_eq!(line(), format!("free k h {fence}"));
    }
    // Also while nothing changes.
    drop(lines);
    eventually("its end", || watch.try_wait().expect("a child").is_some());
    let ended = watch.wait().expect("a child");
    assert_eq!(ended.code(), Some(128 + 13));
}

#[test]
fn watch_goes_on_while_the_store_is_away() {
    let server = RedisServer::start_tcp(&[]);
    let proxy = Proxy::tcp(Address::port(server.port()));
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let watch = syncguard(&url, &["watch", "--every", "50ms"]).spawn();
    let mut watch = watch.expect("it starts");
    let mut said = BufReader::new(watch.stderr.take().expect("a pipe")).lines();
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let client = Client::open(&server.url()).expect("a client");
    let options = LockOptions::new().holder("h");
    let guard = client.lock_with("k", &options).expect("a lock");
    let mut line = || lines.next().expect("a line").expect("UTF-8");
    assert!(line().starts_with("held k h"));
    proxy.set(Mode::Close);
    proxy.close_all();
    let said = said.next().expect("a line").expect("UTF-8");
    assert!(said.contains("looking again"), "{said}");
    guard.release().expect("an answer").expect_released();
    proxy.set(Mode::Pass);
    assert!(line().starts_with("free k h"));
    watch.kill().expect("a process");
    watch.wait().expect("a child");
}

#[test]
fn a_pipe_or_a_disk_that_takes_no_more_ends_a_listing() {
    let server = RedisServer::start(&[]);
    let client = Client::open(&server.url()).expect("a client");
    // More than a pipe holds.
    let lock = |n| client.lock(format!("{n}{}", "x".repeat(400)));
    let guards: Result<Vec<_>, _> = (0..300).map(lock).collect();
    let _guards = guards.expect("locks");
    let shell = |script: &str| {
        let mut command = std::process::Command::new("bash");
        command
            .args(["-c", script, env!("CARGO_BIN_EXE_syncguard")])
            .env("SYNCGUARD_URL", server.url());
        command.output().expect("a shell")
    };
    let cut = shell("\"$0\" ls | head -1; exit ${PIPESTATUS[0]}");
    assert_eq!((code(&cut), err(&cut)), (128 + 13, String::new()));
    assert!(out(&cut).starts_with("KEY "), "{}", out(&cut));
    let full = shell("\"$0\" ls > /dev/full");
    assert_eq!(code(&full), 74);
    assert!(err(&full).contains("cannot write"), "{}", err(&full));
}

#[test]
fn what_could_hide_other_characters_is_escaped() {
    let server = RedisServer::start(&[]);
    let client = Client::open(&server.url()).expect("a client");
    let _guard = client.lock("a\u{202e}b\u{200b}\u{1b}é").expect("a lock");
    let shown = out(&output(&server.url(), &["ls"]));
    assert!(shown.contains("a\\u{202e}b\\u{200b}\\u{1b}é "), "{shown}");
    // A long name of a program, with such characters, does not keep it from running.
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join(format!("x\u{200b}{}", "é".repeat(100)));
    std::os::unix::fs::symlink("/bin/sh", &program).expect("a link");
    let script = "\"$0\" show k";
    let own = env!("CARGO_BIN_EXE_syncguard");
    let program = program.display().to_string();
    let url = server.url();
    let show = format!("SYNCGUARD_URL='{url}'; export SYNCGUARD_URL; {script}");
    let ran = output(&url, &["run", "k", "--", &program, "-c", &show, own]);
    assert_eq!(code(&ran), 0, "{}", err(&ran));
    let shown = out(&ran);
    let holder = shown.lines().find_map(|line| line.strip_prefix("holder  "));
    let holder = holder.expect("a holder");
    assert!(holder.contains("/x?éé") && holder.len() <= 200, "{holder}");
    assert!(holder.len() >= 199, "{holder}");
}

#[test]
fn other_tables_can_be_named() {
    let server = Server::start(&[]);
    let names = ["--table", "my_locks", "--fence-table", "my_fences"];
    let run = |args: &[&str]| output(&server.url(), &[&names[..], args].concat());
    assert_eq!(code(&run(&["setup"])), 0);
    let script = "SYNCGUARD_KEY= exit 3";
    let ran = run(&["run", "k", "--", "sh", "-c", script]);
    assert_eq!(code(&ran), 3, "{}", err(&ran));
    assert_eq!(server.sql("SELECT count(*) FROM my_fences"), "1");
}

#[test]
fn completions_and_man_pages_come_from_the_same_definitions() {
    for shell in ["bash", "zsh", "fish"] {
        let text = out(&output("", &["completions", shell]));
        assert!(text.contains("conflict-exit-code"), "{shell}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let made = output("", &["man", &dir.path().display().to_string()]);
    assert_eq!(code(&made), 0, "{}", err(&made));
    let page = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect(name);
    assert!(page("syncguard.1").contains("Exit codes"));
    assert!(
        page("syncguard-run.1").contains("SYNCGUARD\\_FENCE")
            || page("syncguard-run.1").contains("SYNCGUARD_FENCE")
    );
}
