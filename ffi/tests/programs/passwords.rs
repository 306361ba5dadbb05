//! Tests that a program that writes a password of the tests is found.

use std::process::Command;
use std::time::Duration;

use crate::support::run;

#[test]
fn a_program_that_tells_a_password_is_found() {
    let tell = |script: &'static str| {
        std::panic::catch_unwind(|| {
            let mut shell = Command::new("sh");
            run(shell.args(["-c", script]), Duration::from_secs(60))
        })
    };
    assert!(tell("echo all is well; echo hunter >&2").is_ok());
    // In two parts, so that nothing that shows this command shows the password.
    for script in ["echo before hun''ter2 after", "echo s3''cret >&2"] {
        let why = tell(script).expect_err("a leak");
        let why = why.downcast_ref::<String>().expect("a text");
        assert!(why.contains("told a password"), "{why}");
    }
}
