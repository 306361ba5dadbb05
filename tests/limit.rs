//! Test programs that hang are ended, and say which test it was.

#[path = "support/limit.rs"]
mod limit;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const HANG: &str = "SYNCGUARD_TEST_HANG";

/// Not a test of its own: what the other process runs.
#[test]
fn a_hang() {
    while std::env::var_os(HANG).is_some() {
        std::thread::park();
    }
}

#[test]
fn a_program_that_hangs_is_aborted_and_names_the_test() {
    use std::os::unix::process::ExitStatusExt;
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "a_hang", "--test-threads=2"])
        .env(HANG, "1")
        .env("SYNCGUARD_TEST_LIMIT", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    let end = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("its status").is_none() {
        if Instant::now() > end {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{said}");
    assert!(said.contains("hangs") && said.contains("a_hang"), "{said}");
}

/// Of both packages.
#[test]
fn every_test_program_has_the_limit() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut programs = 0;
    for folder in ["tests", "ffi/tests"] {
        // The second package is not in the published crate.
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else {
            continue;
        };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).expect("a program");
                assert!(text.contains("\nmod limit;"), "{}", path.display());
                programs += 1;
            }
        }
    }
    assert!(programs > 20, "only {programs} programs");
}
