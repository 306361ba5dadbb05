//! Targets with one bug each: the harness finds it, tells it, and keeps the input.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use syncguard_fuzz::allocation::Counting;
use syncguard_fuzz::engine::{Finding, LIMIT, Plan, Report, Target};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Panics and memory are counted for the whole process: one run at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const fn target(name: &'static str, run: fn(&[u8]) -> u64) -> Target {
    Target {
        name,
        run,
        words: &[b"\r\n", b"$", b":"],
        max_len: 256,
        short: 1,
        memory: 1 << 20,
    }
}

/// The length of a bulk reply, as the parser reads it.
fn length(data: &[u8]) -> Option<&str> {
    let line = data.strip_prefix(b"$")?.split(|b| *b == b'\r').next()?;
    std::str::from_utf8(line).ok()
}

static SOUND: Target = target("sound", |data| u64::from(length(data).is_some()));
/// A length that is no number, in a reply that is otherwise good.
static UNWRAPS: Target = target("unwraps", |data| {
    length(data).map_or(0, |line| line.parse::<i64>().unwrap() as u64)
});
/// Memory as long as the server says.
static TRUSTS_A_LENGTH: Target = target("trusts-a-length", |data| {
    let wanted = length(data).and_then(|line| line.parse().ok()).unwrap_or(0);
    Vec::<u8>::with_capacity(usize::min(wanted, 1 << 28)).capacity() as u64
});
/// A negative length moves the place back.
static NEVER_ENDS: Target = target("never-ends", |data| {
    let mut left = length(data)
        .and_then(|line| line.parse::<i64>().ok())
        .unwrap_or(0);
    while left < 0 {
        thread::sleep(Duration::from_millis(1));
        left = std::hint::black_box(left);
    }
    0
});
/// A panic that a thread of the library takes with it.
static PANICS_ELSEWHERE: Target = target("panics-elsewhere", |data| {
    let big = length(data)
        .and_then(|line| line.parse::<u64>().ok())
        .is_some_and(|n| n > 60_000);
    let thread = thread::Builder::new().name("fuzz helper".to_owned());
    let ended = thread
        .spawn(move || assert!(!big, "far too long"))
        .expect("a thread")
        .join();
    u64::from(ended.is_ok())
});

fn run(target: &'static Target, limit: Duration) -> Result<Report, Finding> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let base = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(target.name);
    let (corpus, findings) = (base.join("corpus"), base.join("findings"));
    let _ = fs::remove_dir_all(&base);
    fs::create_dir_all(corpus.join(target.name)).expect("a folder");
    fs::write(corpus.join(target.name).join("seed"), b"$2\r\nab\r\n").expect("a file");
    target.fuzz(&Plan {
        runs: 20_000,
        seed: 1,
        corpus,
        findings,
        limit,
    })
}

fn found(target: &'static Target, limit: Duration, says: &str) -> Vec<u8> {
    let finding = run(target, limit).expect_err("it has a bug");
    assert!(finding.what.contains(says), "{finding:?}");
    fs::read(&finding.file).expect("the input")
}

#[test]
fn a_target_without_a_bug_is_run_to_the_end() {
    let report = run(&SOUND, LIMIT).expect("it has no bug");
    assert_eq!(
        (report.executions, report.corpus, report.outcomes),
        (20_000, 1, 2)
    );
}

#[test]
fn a_panic_is_found_with_its_input() {
    let input = found(&UNWRAPS, LIMIT, "ParseIntError");
    assert!(
        length(&input).is_some_and(|line| line.parse::<i64>().is_err()),
        "{input:?}"
    );
}

#[test]
fn memory_that_a_server_asks_for_is_found() {
    found(&TRUSTS_A_LENGTH, LIMIT, "bytes of memory");
}

/// The limit is for a target that takes microseconds; a thread that sleeps leaves the processor to others.
#[test]
fn an_execution_without_an_end_is_found() {
    let input = found(&NEVER_ENDS, Duration::from_secs(3), "no end within 3000 ms");
    assert!(
        length(&input).is_some_and(|line| line.starts_with('-')),
        "{input:?}"
    );
}

#[test]
fn a_panic_on_another_thread_is_found() {
    found(&PANICS_ELSEWHERE, LIMIT, "far too long");
}
