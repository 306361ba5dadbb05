//! The C tests in `tests/c`: strict C99, run plain, under valgrind, and with the address and leak sanitizers.

mod support;

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use support::{C99, compile, root, run, scratch, succeed};

fn program(name: &str, kind: &str, extra: &[&str]) -> PathBuf {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    static ONE: Mutex<()> = Mutex::new(());
    // Two tests may want the same program.
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = BUILT.get_or_init(scratch).path();
    let out = dir.join(format!("{name}-{kind}"));
    if !out.exists() {
        let source = root().join(format!("ffi/tests/c/{name}.c"));
        let flags: Vec<&str> = C99.iter().chain(extra).copied().collect();
        compile("gcc", &flags, &[source], &out);
    }
    out
}

/// A store of its own for each run.
fn store(dir: &tempfile::TempDir) -> String {
    format!("sqlite:{}", dir.path().join("locks.db").display())
}

fn plain(name: &str) {
    let dir = scratch();
    succeed(
        Command::new(program(name, "plain", &[])).arg(store(&dir)),
        name,
    );
}

/// No invalid access, no use of what was never set, nothing lost. What lives as long as the process is not lost; valgrind calls
/// "possible" what only an inner pointer keeps, as in every hash table of Rust and every stack of a thread that still runs.
fn valgrind(name: &str) {
    let dir = scratch();
    succeed(
        Command::new("valgrind")
            .args([
                "--quiet",
                "--error-exitcode=99",
                "--leak-check=full",
                "--show-leak-kinds=definite,indirect",
                "--errors-for-leak-kinds=definite,indirect",
                "--child-silent-after-fork=no",
                "--num-callers=30",
            ])
            .arg(program(name, "plain", &[]))
            .arg(store(&dir))
            .env("SLOW", "1")
            .env("RUST_BACKTRACE", "0"),
        &format!("{name} under valgrind"),
    );
}

fn sanitized(name: &str) {
    let dir = scratch();
    let program = program(
        name,
        "asan",
        &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    );
    succeed(
        Command::new(program)
            .arg(store(&dir))
            .env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0")
            .env("SLOW", "1"),
        &format!("{name} with sanitizers"),
    );
}

macro_rules! programs {
    ($($name:ident: $($mode:ident)+;)+) => {
        $(mod $name {
            $(#[test]
            fn $mode() {
                super::$mode(stringify!($name));
            })+
        })+
    };
}

programs! {
    basics: plain valgrind sanitized;
    arguments: plain valgrind sanitized;
    callbacks: plain valgrind sanitized;
    threads: plain valgrind sanitized;
    waiters: plain valgrind sanitized;
    forked: plain sanitized;
    limits: plain;
}

/// What a debug build recognises; a release build does not look.
#[test]
#[cfg(debug_assertions)]
fn misuse_is_recognised() {
    plain("misuse");
}

/// As many as fit half a minute; `SYNCGUARD_CYCLES` asks for another number.
#[test]
fn cycles_leave_nothing_behind() {
    let dir = scratch();
    let cycles = std::env::var("SYNCGUARD_CYCLES").unwrap_or_else(|_| "20000".to_owned());
    let output = run(
        Command::new(program("cycles", "plain", &[]))
            .arg(store(&dir))
            .arg(&cycles),
        Duration::from_secs(3600),
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    eprintln!("{text}");
}

/// A C program and this one, each with the library of its own language, contend for one key: no overlap, and the fences grow in
/// the order of the holds.
#[test]
fn c_and_rust_contend_for_one_key() {
    const FOR: Duration = Duration::from_secs(2);
    let dir = scratch();
    let url = store(&dir);
    let c = program("contend", "plain", &[]);
    let clock = Instant::now();
    let other = {
        let url = url.clone();
        std::thread::spawn(move || {
            succeed(
                Command::new(c)
                    .args([&url, "contended"])
                    .arg(FOR.as_millis().to_string()),
                "the C program",
            )
        })
    };
    let client = rust_syncguard::Client::open(&url).expect("a client");
    let options = rust_syncguard::LockOptions::new()
        .acquire_timeout(Duration::from_secs(60))
        .retry_delay(Duration::from_millis(1))
        .backoff(rust_syncguard::Backoff::Fixed)
        .jitter(rust_syncguard::Jitter::Full);
    let mut holds = Vec::new();
    while clock.elapsed() < FOR {
        let guard = client.lock_with("contended", &options).expect("a lock");
        let entered = monotonic_ns();
        std::thread::sleep(Duration::from_millis(1));
        holds.push((guard.fence().get(), entered, monotonic_ns(), "Rust"));
        assert!(guard.release().expect("a release"));
    }
    let output = other.join().expect("the C program ends");
    let ours = holds.len();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let n: Vec<i64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
        holds.push((u64::try_from(n[0]).expect("a fence"), n[1], n[2], "C"));
    }
    let theirs = holds.len() - ours;
    assert!(
        ours > 3 && theirs > 3,
        "Rust held it {ours} times, C {theirs} times"
    );
    holds.sort_unstable();
    for pair in holds.windows(2) {
        assert!(pair[0].0 < pair[1].0, "one fence twice: {pair:?}");
        assert!(pair[0].2 <= pair[1].1, "two holders at once: {pair:?}");
    }
    eprintln!("Rust held it {ours} times, C {theirs} times");
}

/// The monotonic clock as C programs read it.
fn monotonic_ns() -> i64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("a clock");
    now.tv_sec() * 1_000_000_000 + now.tv_nsec()
}
