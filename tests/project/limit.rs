//! Tests that a test program that hangs is ended, and says which test it was.

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
        .args(["--exact", "limit::a_hang", "--test-threads=2"])
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
    let read = |path: &Path| {
        std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let common = read(&root.join("tests/support/common/mod.rs"));
    assert!(common.contains("\nmod limit;"));
    let mut programs = 0;
    for (tests, reaches) in [
        ("tests", "\npub mod common;"),
        (
            "ffi/tests",
            "\n#[path = \"../../../tests/support/common/mod.rs\"]\npub mod common;",
        ),
    ] {
        let support = read(&root.join(tests).join("support/mod.rs"));
        assert!(support.contains(reaches), "{tests}");
        for entry in std::fs::read_dir(root.join(tests)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let single = path.extension().is_some_and(|e| e == "rs");
            assert!(!single, "a program outside a folder: {}", path.display());
            let main = path.join("main.rs");
            if main.exists() {
                let line = "\n#[path = \"../support/mod.rs\"]\nmod support;";
                assert!(read(&main).contains(line), "{}", main.display());
                programs += 1;
            }
        }
    }
    assert_eq!(programs, 15, "programs");
}
