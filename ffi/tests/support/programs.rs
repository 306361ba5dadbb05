//! Builds and runs the C programs in `tests/c`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::{C99, compile, root, scratch, succeed};

/// A program, compiled once for each kind.
pub fn program(name: &str, kind: &str, extra: &[&str]) -> PathBuf {
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

/// A program built with the address, leak and undefined-behaviour sanitizers, to be run.
pub fn sanitized(name: &str) -> Command {
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let mut command = Command::new(program(name, "asan", &flags));
    command
        .env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0")
        .env("SLOW", "1");
    command
}

/// Runs a program under valgrind as most people do: what is "possibly lost" counts, such as the stack of a thread that still
/// runs when the program ends.
pub fn strict_valgrind(name: &str, url: &str) {
    succeed(
        Command::new("valgrind")
            .args(["--quiet", "--leak-check=full", "--error-exitcode=9"])
            .arg(program(name, "plain", &[]))
            .arg(url)
            .env("RUST_BACKTRACE", "0"),
        &format!("{name} under valgrind, leaks of all kinds counted"),
    );
}

/// A C program and this one, each with the library of its own language, contend for one key: no overlap, and the fences grow in
/// the order of the holds.
pub fn contend(url: &str) {
    const FOR: Duration = Duration::from_secs(5);
    let c = program("contend", "plain", &[]);
    let patient = rust_syncguard::ClientOptions::new()
        .connect_timeout(Duration::from_secs(60))
        .operation_timeout(Duration::from_secs(60));
    let client = rust_syncguard::Client::open_with(url, &patient).expect("a client");
    client.setup_schema().expect("a schema");
    let other = {
        let url = url.to_owned();
        std::thread::spawn(move || {
            succeed(
                Command::new(c)
                    .args([&url, "contended"])
                    .arg(FOR.as_millis().to_string()),
                "the C program",
            )
        })
    };
    let options = rust_syncguard::LockOptions::new()
        .acquire_timeout(Duration::from_secs(60))
        .retry_delay(Duration::from_millis(1))
        .backoff(rust_syncguard::Backoff::Fixed)
        .jitter(rust_syncguard::Jitter::Full);
    let mut holds = Vec::new();
    let begun = Instant::now();
    // The other one may be slow to start.
    while begun.elapsed() < FOR || !other.is_finished() {
        let guard = client.lock_with("contended", &options).expect("a lock");
        let entered = monotonic_ns();
        std::thread::sleep(Duration::from_millis(1));
        holds.push((guard.fence().get(), entered, monotonic_ns(), "Rust"));
        assert!(guard.release().expect("a release").is_released());
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
