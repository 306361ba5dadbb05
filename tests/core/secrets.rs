//! Tests that no output holds a secret: a process shows every public value and all trouble that it meets, and everything that it
//! wrote is searched for its password, its key and its lock ids.

use std::error::Error;
use std::fmt::Debug;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::WAIT_LIMIT;
use crate::support::common::passwords;
use crate::support::postgres::{Server, set_up};
use crate::support::redis::RedisServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use syncguard::{
    Backend, Call, Client, ClientOptions, Key, LockError, LockId, LockOptions, LookupBy, Ttl,
};

const PASSWORD: &str = "canary-password";
const KEY: &str = "canary-key";
/// The store refuses this one with an error that names it.
const REFUSED: &str = "canary-key-refused";

/// Where the process finds what it needs.
const URLS: &str = "SYNCGUARD_TEST_URLS";
const SERVER: &str = "SYNCGUARD_TEST_SERVER";
const IDS: &str = "SYNCGUARD_TEST_IDS";

fn show(what: &dyn Debug) {
    println!("{what:?}\n{what:#?}");
}

fn show_error(error: &LockError) {
    show(error);
    println!("{error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        println!("{inner} {inner:?}");
        cause = inner.source();
    }
}

/// Shows what a call came to. What it answered is dropped.
fn show_result<T: Debug>(result: Result<T, LockError>) {
    match result {
        Ok(value) => show(&value),
        Err(error) => show_error(&error),
    }
}

/// Notes an id for the search, in a file.
fn note(id: &LockId) {
    use std::io::Write;
    let path = std::env::var_os(IDS).expect("a file for the ids");
    let file = std::fs::OpenOptions::new().append(true).open(path);
    writeln!(file.expect("a file"), "{}", id.as_str()).expect("written");
}

fn options() -> ClientOptions {
    ClientOptions::new()
        .schema("s")
        .operation_timeout(Duration::from_secs(5))
        .dispose_timeout(Duration::from_secs(1))
}

/// A whole life: granted, held, contended, extended, found, lost, released.
fn live(client: &Client) {
    show(client);
    show_result(client.setup_schema());
    show_result(client.check());
    let lasting = LockOptions::new().no_heartbeat();
    let guard = client.lock_with(KEY, &lasting).expect("a lock");
    note(guard.lock_id());
    show(&guard);
    show(&lasting);
    show(&guard.key());
    show(&guard.lock_id());
    println!("{}", guard.fence());
    show_result(client.try_lock(KEY));
    let short = LockOptions::new().acquire_timeout(Duration::from_millis(50));
    show_result(client.lock_with(KEY, &short));
    show_result(client.get_by_key(KEY));
    show_result(client.get_by_key_raw(KEY));
    show_result(client.get_by_id_raw(guard.lock_id()));
    let key = Key::new(KEY).expect("a key");
    show(&LookupBy::Key(&key));
    show(&LookupBy::LockId(guard.lock_id()));
    show_result(client.find(LookupBy::Key(&key), &Call::new()));
    show_result(client.waiter(KEY, &short, || {}));
    show_result(guard.extend(Duration::from_secs(20)));
    show_result(guard.release());
    show_result(guard.extend(Duration::from_secs(20)));
    let brief = Duration::from_millis(200);
    let lost = client.lock_with(KEY, &LockOptions::new().ttl(brief).no_heartbeat());
    // A machine that stands still may have lost it before it was granted.
    if let Ok(lost) = &lost {
        note(lost.lock_id());
        lost.wait_lost_for(WAIT_LIMIT);
        show(&lost.loss());
    }
    show_result(lost);
    let (id, ttl) = (LockId::random().expect("an id"), Ttl::new(brief));
    let ttl = ttl.expect("a ttl");
    note(&id);
    show_result(client.acquire(&Key::new(REFUSED).expect("a key"), &id, ttl, &Call::new()));
    show_result(Backend::release(client, &id, &Call::new()));
    show_result(client.try_lock(format!("{KEY}\0")));
    show_result(client.get_by_id(&*format!("{}x", id.as_str())));
}

/// Not a test of its own: what the other process runs.
#[test]
fn tell_everything() {
    let Ok(urls) = std::env::var(URLS) else {
        return;
    };
    let mut urls = urls.split(' ');
    let url = urls.next().expect("a URL");
    let telling = options()
        .on_event(|event| show(event))
        .on_warning(|text| println!("{text}"))
        .on_lost(|lost| show(lost))
        .on_release_error(|failed| show(failed));
    show(&telling);
    live(&Client::open_with(url, &telling).expect("a client"));
    let silent = Client::open_with(url, &options()).expect("a client");
    live(&silent);
    // URLs that are refused, by us or by the server.
    let bad = [format!("{url}?{PASSWORD}=1"), format!("{url}%")];
    for url in urls.chain(bad.iter().map(String::as_str)) {
        match Client::open_with(url, &options()) {
            Ok(client) => show_result(client.try_lock(KEY)),
            Err(error) => show_error(&error),
        }
    }
    let Ok(server) = std::env::var(SERVER) else {
        return;
    };
    let guards = [("1", &telling), ("2", &options())].map(|(n, options)| {
        let client = Client::open_with(url, options).expect("a client");
        client.lock_with(format!("{KEY}-{n}"), &LockOptions::new().no_heartbeat())
    });
    kill(
        Pid::from_raw(server.parse().expect("a pid")),
        Signal::SIGKILL,
    )
    .expect("the server");
    show_result(silent.is_locked(KEY));
    show_result(silent.try_lock(KEY));
    // The drop fails, and the default hook says so.
    for guard in guards.into_iter().flatten() {
        note(guard.lock_id());
        show_result(guard.extend(Duration::from_secs(20)));
    }
}

/// What the process wrote; it must have ended well.
fn told(urls: &str, server: Option<i32>, ids: &Path) -> Output {
    std::fs::write(ids, "").expect("a file");
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args(["--exact", "secrets::tell_everything", "--nocapture"])
        .env(URLS, urls)
        .env(IDS, ids)
        .env("SYNCGUARD_DEBUG", "true")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(pid) = server {
        command.env(SERVER, pid.to_string());
    }
    let mut child = command.spawn().expect("a process");
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    // Reading goes on while the process runs: a full pipe would hold it up.
    let (over, end) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let limit = Instant::now() + 4 * WAIT_LIMIT;
        while end
            .recv_timeout(Duration::from_millis(50))
            .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            if Instant::now() > limit {
                let _ = kill(pid, Signal::SIGKILL);
                return;
            }
        }
    });
    child.stdin.take();
    let output = child.wait_with_output().expect("its end");
    drop(over);
    output
}

/// Searches all that a process wrote about these URLs.
#[track_caller]
fn no_secret_is_told(urls: &str, server: Option<i32>) {
    let dir = tempfile::tempdir().expect("a folder");
    let ids = dir.path().join("ids");
    let output = told(urls, server, &ids);
    let all = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&all);
    let ids = std::fs::read_to_string(ids).expect("the ids");
    let ids: Vec<&str> = ids.lines().collect();
    // The whole text would repeat the secret: only the line before it is shown.
    for secret in [KEY, PASSWORD].iter().chain(&ids) {
        let line = text.lines().position(|line| line.contains(secret));
        let before = line.map(|n| text.lines().nth(n.saturating_sub(1)));
        assert!(
            line.is_none(),
            "line {line:?} holds a secret, after {before:?}"
        );
    }
    assert!(!passwords::told(&all), "a password");
    assert!(output.status.success() && ids.len() >= 4, "{text}");
    assert!(text.contains(&syncguard::hash_key(KEY)), "{text}");
}

#[test]
fn no_output_on_redis_holds_a_secret() {
    let server = RedisServer::start(&[]);
    let login = format!(">{PASSWORD}");
    for (user, keys) in [("bob", "~*"), ("eve", "~other:*")] {
        server.cli(&[
            "ACL", "SETUSER", user, "reset", "on", &login, keys, "&*", "+@all",
        ]);
    }
    server.cli(&["RPUSH", &format!("syncguard:{REFUSED}"), "x"]);
    let url = |user: &str, password: &str| {
        format!(
            "redis+unix://{user}:{password}@{}",
            server.socket().display()
        )
    };
    let wrong = format!("{PASSWORD}-wrong");
    let urls = [
        url("bob", PASSWORD),
        url("eve", PASSWORD),
        url("bob", &wrong),
    ];
    no_secret_is_told(&urls.join(" "), Some(server.pid().as_raw()));
}

#[test]
fn no_output_on_postgres_holds_a_secret() {
    let server = Server::start(&[]);
    set_up(&server, "s");
    server.sql(&format!(
        "CREATE ROLE bob LOGIN SUPERUSER PASSWORD '{PASSWORD}'; CREATE ROLE eve LOGIN"
    ));
    // A refusal with the key in its text.
    server.sql(&format!(
        "ALTER TABLE s.syncguard_locks ADD CONSTRAINT refuses CHECK (key <> '{REFUSED}')"
    ));
    let url = |user: &str, base: &str| {
        format!(
            "postgres://{user}:{PASSWORD}@127.0.0.1:{}/{base}?sslmode=disable",
            server.port
        )
    };
    let urls = [
        url("bob", "postgres"),
        url("eve", "postgres"),
        url("bob", "none"),
        url("none", "postgres"),
    ];
    no_secret_is_told(&urls.join(" "), Some(server.pid()));
}

#[test]
fn no_output_on_sqlite_holds_a_secret() {
    let dir = tempfile::tempdir().expect("a folder");
    no_secret_is_told(
        &format!("sqlite:{}", dir.path().join("locks.db").display()),
        None,
    );
}
